"""`toolwire run`: a conversation with Claude about the tools of a target, on a terminal.

Reads the command line and puts the parts together; the terminal itself is in `run_terminal`.
"""

import sys
from collections.abc import AsyncIterator, Iterable
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
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt. Without one, type prompts, or pipe one in.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Use your own CLI, key and model (the default).")
    ] = False,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="Use a scripted model: no key, no network.")
    ] = False,
    script: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The script of the model: a Python file with script = [...]."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to use.")] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System prompt.")] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Allow without asking: calc, calc.add. Repeatable."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Allow all tools of the targets without asking.")
    ] = False,
    builtin: Annotated[
        bool, typer.Option("--builtin", help="Enable Claude Code's own tools too: Bash, Edit, ...")
    ] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Use your own settings and MCP servers too.")
    ] = False,
    max_turns: Annotated[int | None, typer.Option(min=1, help="Stop after this many turns.")] = None,
    max_budget: Annotated[float | None, typer.Option(metavar="USD", min=0, help="Stop at this cost.")] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record every frame, for replay in tests.")
    ] = None,
    cwd: Annotated[
        Path | None,
        typer.Option(metavar="DIR", exists=True, file_okay=False, help="Working directory of the CLI."),
    ] = None,
    thinking: Annotated[bool, typer.Option("--thinking", help="Show the model's thinking.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print each message as a line of JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the model's text.")] = False,
) -> None:
    """Talk to Claude about your tools, and see every call.

    Only the tools of the targets can run, and you are asked before each call, unless you choose otherwise.

    Examples:

      toolwire run -t app.py "What is 15 + 27?"

      toolwire run -t app.py --scripted "add a=15 b=27"

      echo "What is 15 + 27?" | toolwire run -t app.py --yes
    """
    if live and (scripted or script):
        raise typer.BadParameter(f"--live and {'--scripted' if scripted else '--script'} exclude each other")
    from toolwire.cli.run_scripted import choose_peer, load_script  # noqa: PLC0415
    from toolwire.cli.run_terminal import Terminal  # noqa: PLC0415

    file = sys.stdout
    if json:
        sys.stdout = sys.stderr  # tools may print, and stdout is for JSON only
    servers = _resolve_servers(tools)
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
        raise UsageError(f"--record: the folder {record.absolute().parent} does not exist.")
    steps = None if script is None else load_script(script)
    text = _read_prompt(prompt)
    hint = "" if scripted or script else _NO_KEY
    terminal = Terminal(file if json else None, quiet=quiet, thinking=thinking, hint=hint)

    @asynccontextmanager
    async def session() -> AsyncIterator["ClaudeSDKClient"]:
        from toolwire import ClaudeAgentOptions, ClaudeSDKClient  # noqa: PLC0415

        async with AsyncExitStack() as stack:
            peer, description = await choose_peer(
                stack, servers, scripted=bool(scripted or script), script=steps, record=record
            )
            terminal.note(description)
            callbacks = {"can_use_tool": terminal.permission, "on_elicitation": terminal.elicitation}
            client = ClaudeSDKClient(ClaudeAgentOptions(**{**peer, **given, **callbacks}))
            stack.push_async_callback(client.disconnect)
            yield client

    if code := terminal.run(session, servers, text):
        raise typer.Exit(code)


def permission_rules(allow: list[str], servers: Iterable[str], *, yes: bool, builtin: bool) -> list[str]:
    """Translate --allow and --yes to rules of the CLI. `UsageError` for a rule that matches no target."""
    names = list(servers)
    found = [f"mcp__{name}" for name in names] if yes else []
    for rule in allow:
        server, _, tool = rule.removeprefix("mcp__").replace("__", ".", 1).partition(".")
        if server in names:
            found.append(f"mcp__{server}__{tool}" if tool else f"mcp__{server}")
        elif builtin and not rule.startswith("mcp__"):
            found.append(rule)
        else:
            forms = ", ".join(f"{name} or {name}.TOOL" for name in names)
            raise UsageError(f"--allow {rule} matches no tool of the targets: write {forms}.")
    return found


def _read_prompt(given: str | None) -> str | None:
    """Return the prompt, read from a pipe if needed; None if prompts will be typed."""
    if given is None and sys.stdin.isatty():
        return None
    text = sys.stdin.read() if given is None else given
    if not text.strip():
        raise UsageError("The prompt is empty.")
    return text


def _resolve_servers(targets: list[str]) -> dict[str, Any]:
    """Find the servers of the targets, each under a name of its own."""
    from toolwire.cli.shared.target import resolve  # noqa: PLC0415 - heavy

    servers: dict[str, Any] = {}
    for target in map(resolve, targets):
        name, count = target.name, 1
        while name in servers:
            count += 1
            name = f"{target.name}_{count}"
        servers[name] = target.server
    return servers
