"""`toolwire studio`: a local page to look into tools, conversations and runs.

Owns the command: what is opened, the link in the terminal, the browser, and the files that are watched. The page
itself is `toolwire.studio`, whose extra may not be installed.
"""

import contextlib
import importlib.util
import socket
import sys
import threading
import warnings
import webbrowser
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolwire.cli.run import permission_rules
from toolwire.cli.shared.printing import note
from toolwire.cli.shared.reload import reload_on_change
from toolwire.cli.shared.target_options import (
    OPENAPI,
    AllowServersOption,
    BaseUrlOption,
    ExcludeOption,
    HeaderOption,
    IncludeOption,
    LedgerOption,
    complete_target,
    openapi_options,
    resolve_target,
)
from toolwire.errors import CanUseToolShadowedWarning, UsageError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.studio.access import Access
    from toolwire.studio.app import Studio

_SESSION: Final = "session:"
_HOST: Final = "127.0.0.1"


def studio(  # noqa: PLR0917 - typer calls it by name
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...",
            help="Tools (app.py, app.py:name, a URL, catalog:PROFILE, openapi:DOCUMENT), a recording (run.jsonl), "
            "or session:ID. Without one: the past sessions of this directory.",
            autocompletion=complete_target,
            show_default=False,
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Begin with your own Claude (it costs money). The page can switch.")
    ] = False,
    script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A Python file with the answers of the scripted model, as for run."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The model of your own Claude.")] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="The system prompt.")] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="SERVER[.TOOL]", help="Run these without asking on the page. Repeatable."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Run the tools of the targets without asking.")] = False,
    builtin: Annotated[
        bool, typer.Option("--builtin", help="Enable Claude Code's own tools too: Bash, Edit, ...")
    ] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Use your own settings and MCP servers too.")
    ] = False,
    cwd: Annotated[
        Path | None,
        typer.Option(metavar="DIR", exists=True, file_okay=False, help="Working directory of the CLI."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on this machine. 0: a free one.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the link, and open no browser.")] = False,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    header: HeaderOption = None,
    base_url: BaseUrlOption = None,
    allow_servers: AllowServersOption = False,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="USD", help="For catalog: targets: the most that may be spent here."
        ),
    ] = None,
    ledger: LedgerOption = None,
) -> None:
    """Look into tools, conversations and runs on a page in your browser.

    The page is on this machine only, and opens by a link that works once. By default a scripted model answers:
    no key, no network.

    Examples:

      toolwire studio app.py

      toolwire studio catalog:agentpmt --budget 5

      toolwire studio run.jsonl

      toolwire studio session:3f0c2c1e-8f2b-4c0e-9f50-3d1f6b8a2c11
    """
    if importlib.util.find_spec("nicegui") is None:
        raise UsageError(
            "toolwire studio needs NiceGUI, which is not installed: pip install 'toolwire[studio]'"
        )
    given = list(targets or ())
    recordings = [each for each in given if each.endswith(".jsonl")]
    past = [each.removeprefix(_SESSION) for each in given if each.startswith(_SESSION)]
    servers = [each for each in given if each not in recordings and not each.startswith(_SESSION)]
    openapi = openapi_options(base_url, allow_servers)
    found: list[Target] = []
    for text in servers:
        paid: dict[str, Any] = {"budget": budget, "ledger": ledger} if text.startswith("catalog:") else {}
        document = openapi if text.startswith(OPENAPI) else None
        found.append(resolve_target(text, header, include, exclude, document, **paid))
    named = _name_servers(found)
    options = {
        "allowed_tools": permission_rules(allow or [], named, yes=yes, builtin=builtin),
        "tools": None if builtin else [],
        "setting_sources": None if settings else [],
        "strict_mcp_config": not settings,
        "model": model,
        "system_prompt": system,
        **({} if cwd is None else {"cwd": cwd.absolute()}),
    }
    warnings.simplefilter("ignore", CanUseToolShadowedWarning)  # --allow is meant to do that
    listening = _listen(port)
    import asyncio  # noqa: PLC0415 - heavy

    with contextlib.suppress(KeyboardInterrupt):  # before the server has begun
        asyncio.run(
            _serve(
                named,
                recordings,
                past,
                options,
                listening,
                script=script,
                live=live,
                cwd=cwd,
                opens=not no_open,
            )
        )


def _name_servers(targets: "list[Target]") -> "dict[str, Target]":
    """Give each target a name of its own."""
    named: dict[str, Target] = {}
    for target in targets:
        name, count = target.name, 1
        while name in named:
            count += 1
            name = f"{target.name}_{count}"
        named[name] = target
    return named


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if sys.platform != "win32":
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_HOST, port))
    except OSError as error:
        listening.close()
        raise UsageError(
            f"port {port} of {_HOST} cannot be used: {error.strerror}; choose another, or 0"
        ) from None
    listening.listen()
    return listening


async def _serve(
    targets: "Mapping[str, Target]",
    recordings: list[str],
    past: list[str],
    options: dict[str, Any],
    listening: socket.socket,
    *,
    script: Path | None,
    live: bool,
    cwd: Path | None,
    opens: bool,
) -> None:
    import anyio  # noqa: PLC0415 - heavy, as are the next ones

    from toolwire.studio.app import serve  # noqa: PLC0415

    shown = _make_studio(targets, recordings, past, options, script=script, live=live, cwd=cwd)
    async with anyio.create_task_group() as tasks:
        for name, target in targets.items():
            if target.path is not None:
                tasks.start_soon(_watch, target, name, shown)
        await serve(shown, listening, partial(_announce, opens=opens))
        tasks.cancel_scope.cancel()


def _make_studio(
    targets: "Mapping[str, Target]",
    recordings: list[str],
    past: list[str],
    options: dict[str, Any],
    *,
    script: Path | None,
    live: bool,
    cwd: Path | None,
) -> "Studio":
    from toolwire.catalog.server import Catalog  # noqa: PLC0415 - heavy, as are the next ones
    from toolwire.cli.run_scripted import load_script  # noqa: PLC0415
    from toolwire.studio.app import Studio  # noqa: PLC0415
    from toolwire.studio.calls import ToolBench  # noqa: PLC0415
    from toolwire.studio.conversation import Conversation  # noqa: PLC0415
    from toolwire.studio.runs import Runs  # noqa: PLC0415
    from toolwire.studio.spending import Spending  # noqa: PLC0415
    from toolwire.studio.test_writer import write_test  # noqa: PLC0415

    conversation: Conversation | None = None
    if targets:
        steps = None if script is None else load_script(script)
        servers = {name: target.server for name, target in targets.items()}
        conversation = Conversation(servers, partial(_choose_peer, steps), options, live=live)
    runs = Runs(conversation, cwd)
    for path in recordings:
        try:
            runs.add_recording(Path(path))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} is not a recording that can be shown: {error}") from error
    for session in past:
        try:
            runs.add_session(session)
        except (OSError, ValueError) as error:
            raise UsageError(f"{_SESSION}{session} cannot be shown: {error}") from error
    sellers = [each.source or each.server for each in targets.values()]
    catalog = next((each for each in sellers if isinstance(each, Catalog)), None)
    files = [target.text for target in targets.values() if target.path is not None]
    names = [*targets, *(Path(each).name for each in recordings), *past]
    return Studio(
        ", ".join(names) or "past sessions",
        [ToolBench(target.server, name) for name, target in targets.items()],
        conversation,
        runs,
        None if catalog is None else Spending(catalog),
        partial(write_test, target=files[0], server=next(iter(targets)))
        if len(targets) == len(files) == 1
        else None,
    )


async def _choose_peer(
    steps: list[Any] | None, stack: AsyncExitStack, servers: Mapping[str, Any], live: bool
) -> tuple[dict[str, Any], str]:
    from toolwire.cli.run_scripted import choose_peer  # noqa: PLC0415 - heavy

    advice = "Or choose the scripted model under Who answers: it needs no CLI."
    return await choose_peer(stack, servers, scripted=not live, script=steps, record=None, advice=advice)


async def _watch(target: "Target", name: str, shown: "Studio") -> None:
    """Load the target again when its file changes, for the tools and for a running conversation."""
    import anyio  # noqa: PLC0415 - heavy

    bench = next(each for each in shown.benches if each.name == name)

    async def replace(server: Any) -> None:
        async with anyio.create_task_group() as tasks:
            if shown.conversation is not None:
                tasks.start_soon(shown.conversation.replace_server, name, server)
            tasks.start_soon(bench.replace, server)

    def report(text: str) -> None:
        note(text)
        if text.startswith("not reloaded"):
            bench.fail_to_reload(text)

    await reload_on_change(target, replace, report)


def _announce(access: "Access", address: str, *, opens: bool) -> None:
    """Print the link, open the browser, and give another link for each Enter."""

    def show() -> None:
        link = access.make_link(address)
        note(f"toolwire studio: {link}")
        if opens:
            threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()

    show()
    if sys.stdin is not None and sys.stdin.isatty():
        note("Ctrl-C ends it; Enter makes another link.")
        threading.Thread(target=_read_enters, args=(show,), daemon=True).start()


def _read_enters(show: Any) -> None:
    for _ in sys.stdin:
        show()
