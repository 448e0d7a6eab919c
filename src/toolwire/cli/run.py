"""`toolwire run`: a conversation about your tools, on a terminal.

Reads the command line and puts the pieces together; the terminal itself is in `_talking`.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire import ClaudeSDKClient

_NO_KEY: Final = "No key? --scripted tries your tools without one; --settings uses your own settings."


def run(
    *,
    tools: Annotated[
        list[str],
        typer.Option(
            "--tools", "-t", metavar="TARGET", help="Tools to offer: app.py, app.py:name, a URL. Repeatable."
        ),
    ],
    prompt: Annotated[str | None, typer.Argument(help="Without one: type them, or pipe one in.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Your own CLI, key and model (the default).")] = False,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="A stand-in for the model: no key, no network.")
    ] = False,
    script: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What the stand-in does: a Python file with script = [...]."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to use.")] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System prompt.")] = None,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Never ask about: calc, calc.add. Repeatable.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Never ask about the targets' tools.")] = False,
    builtin: Annotated[
        bool, typer.Option("--builtin", help="Also Claude Code's own tools: Bash, Edit, ...")
    ] = False,
    settings: Annotated[bool, typer.Option("--settings", help="Also your own settings and servers.")] = False,
    max_turns: Annotated[int | None, typer.Option(min=1, help="Stop after so many turns.")] = None,
    max_budget: Annotated[float | None, typer.Option(metavar="USD", min=0, help="Stop at this cost.")] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record every frame, to be replayed in tests.")
    ] = None,
    cwd: Annotated[
        Path | None, typer.Option(metavar="DIR", exists=True, file_okay=False, help="Where the CLI works.")
    ] = None,
    thinking: Annotated[bool, typer.Option("--thinking", help="Show what the model thinks.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print each message as a line of JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what the model says.")] = False,
) -> None:
    """Talk to Claude about your tools, and see every call.

    Nothing but the targets' tools can run, and each is asked about first, unless you say otherwise.

    Examples:

      toolwire run -t app.py "What is 15 + 27?"

      toolwire run -t app.py --scripted "add a=15 b=27"

      echo "What is 15 + 27?" | toolwire run -t app.py --yes
    """
    if live and (scripted or script):
        raise typer.BadParameter(f"--live and {'--scripted' if scripted else '--script'} exclude each other")
    from toolwire.cli.run_scripted import load_script, peer  # noqa: PLC0415
    from toolwire.cli.run_terminal import Terminal  # noqa: PLC0415
    from toolwire.cli.shared.questions import permission_rules  # noqa: PLC0415 - a wrong command line must fail at once

    file = sys.stdout
    if json:
        sys.stdout = sys.stderr  # what tools print is no JSON
    servers = _servers(tools)
    given = {
        "mcp_servers": servers,
        "allowed_tools": permission_rules(allow or [], servers, yes=yes, builtin=builtin),
        "tools": None if builtin else [],
        "setting_sources": None if settings else [],
        "strict_mcp_config": not settings,
        "model": model,
        "system_prompt": system,
        "max_turns": max_turns,
        "max_budget_usd": max_budget,
        "include_partial_messages": not json,
        "include_all_messages": True,
        **({} if cwd is None else {"cwd": cwd.absolute()}),
    }
    if record is not None and not record.absolute().parent.is_dir():
        raise UsageError(f"There is no folder {record.absolute().parent} to record into.")
    steps = None if script is None else load_script(script)
    text = _prompt(prompt)
    hint = "" if scripted or script else _NO_KEY
    terminal = Terminal(file if json else None, quiet=quiet, thinking=thinking, hint=hint)

    @asynccontextmanager
    async def session() -> AsyncIterator["ClaudeSDKClient"]:
        from toolwire import ClaudeAgentOptions, ClaudeSDKClient  # noqa: PLC0415

        async with AsyncExitStack() as stack:
            found, told = await peer(
                stack, servers, scripted=bool(scripted or script), script=steps, record=record
            )
            terminal.note(told)
            asked = {"can_use_tool": terminal.permission, "on_elicitation": terminal.elicitation}
            client = ClaudeSDKClient(ClaudeAgentOptions(**{**found, **given, **asked}))
            stack.push_async_callback(client.disconnect)
            yield client

    if code := terminal.hold(session, servers, text):
        raise typer.Exit(code)


def _prompt(given: str | None) -> str | None:
    """The prompt, from the pipe if there is one; None if prompts will be typed."""
    if given is None and sys.stdin.isatty():
        return None
    text = sys.stdin.read() if given is None else given
    if not text.strip():
        raise UsageError("The prompt is empty.")
    return text


def _servers(targets: list[str]) -> dict[str, Any]:
    """Each target under a name of its own."""
    from toolwire.cli.shared.target import resolve  # noqa: PLC0415 - loads what it needs

    servers: dict[str, Any] = {}
    for target in map(resolve, targets):
        name, count = target.name, 1
        while name in servers:
            count += 1
            name = f"{target.name}_{count}"
        servers[name] = target.server
    return servers
