"""`toolwire studio`: a local page to look into tools, conversations and runs.

Owns the command: the targets to open, the link in the terminal, the browser, and the files that are watched. The
page itself is `toolwire.studio`, which needs an extra.
"""

import asyncio
import contextlib
import importlib.util
import os
import socket
import sys
import tempfile
import threading
import time
import warnings
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import typer

from toolwire.cli.shared.agent_options import AgentOptions, CwdOption, name_targets
from toolwire.cli.shared.printing import note
from toolwire.cli.shared.target_options import (
    CATALOG,
    OPENAPI,
    AllowServersOption,
    BaseUrlOption,
    ExcludeOption,
    HeaderOption,
    IncludeOption,
    LedgerOption,
    OpenAPIOptions,
    complete_target,
    resolve_target,
)
from toolwire.errors import CanUseToolShadowedWarning, UsageError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.studio.access import Access
    from toolwire.studio.app import Studio

_SESSION: Final = "session:"
_HINT: Final = (
    "It calls the tool that a line begins with. Send any other text, and it answers with an example."
)
_HOST: Final = "127.0.0.1"
_OPENING: Final = 30.0  # seconds that a browser has to open


def studio(
    *,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET",
            help="Tools (app.py, app.py:name, a URL, catalog:PROFILE, openapi:DOCUMENT), a recording (run.jsonl), "
            "or session:ID (its first characters are enough). Default: the past sessions of this directory.",
            autocompletion=complete_target,
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Start with your own Claude, which costs money. The page can switch."),
    ] = False,
    agent: AgentOptions,
    cwd: CwdOption = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on this machine; 0 for any free port.")
    ] = 0,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Only print the link, without opening a browser.")
    ] = False,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    header: HeaderOption = None,
    base_url: BaseUrlOption = None,
    allow_servers: AllowServersOption = False,
    budget: Annotated[
        str | None, typer.Option(metavar="USD", help="For catalog: targets: the budget of this studio.")
    ] = None,
    ledger: LedgerOption = None,
) -> None:
    """Inspect tools, conversations and runs on a page in your browser.

    The page is served on this machine only, and opens with a link that works once. By default a scripted model
    answers, which needs no key and no network.

    Examples:

      toolwire studio app.py

      toolwire run -t app.py --scripted --yes --record run.jsonl "add a=15 b=27"

      toolwire studio run.jsonl

      toolwire studio catalog:agentpmt --budget 5    # needs an account

      toolwire studio
    """
    if importlib.util.find_spec("nicegui") is None:
        raise UsageError(
            "toolwire studio needs NiceGUI, which is not installed: pip install 'toolwire[studio]'"
        )
    given = list(targets or ())
    if (budget or ledger) and not any(each.startswith(CATALOG) for each in given):
        raise UsageError(
            f"--{'budget' if budget else 'ledger'} only applies to catalog: targets, and none was given"
        )
    recordings = [each for each in given if each.endswith(".jsonl")]
    past = [each.removeprefix(_SESSION) for each in given if each.startswith(_SESSION)]
    servers = [each for each in given if each not in recordings and not each.startswith(_SESSION)]
    openapi = vars(OpenAPIOptions(base_url, allow_servers))
    found: list[Target] = []
    for text in servers:
        paid: dict[str, Any] = {"budget": budget, "ledger": ledger} if text.startswith(CATALOG) else {}
        document = openapi if text.startswith(OPENAPI) else None
        found.append(resolve_target(text, header, include, exclude, document, **paid))
    named = name_targets(found)
    options = agent.for_servers(named, cwd)
    warnings.simplefilter("ignore", CanUseToolShadowedWarning)  # --allow is meant to do that
    shown = _make_studio(named, recordings, past, options, script=agent.script, live=live, cwd=cwd)
    listening = _listen(port)
    with contextlib.suppress(KeyboardInterrupt):  # pressed before the server has started
        asyncio.run(_serve(shown, named, listening, opens=not no_open))


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        reason = str(error.strerror).partition(" (while ")[0]  # the rest repeats the address
        raise UsageError(
            f"cannot listen on port {port} of {_HOST}: {reason}; choose another with --port, or 0 for any"
        ) from None


async def _serve(
    shown: "Studio", targets: "Mapping[str, Target]", listening: socket.socket, *, opens: bool
) -> None:
    from toolwire.studio.app import serve  # noqa: PLC0415 - heavy

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
    from toolwire.cli.sessions_place import DiskPlace, Scope  # noqa: PLC0415
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
        hint = _HINT if script is None else f"It plays the steps of {script.name}."
        conversation = Conversation(servers, partial(_choose_peer, steps), options, live=live, hint=hint)
    runs = Runs(conversation, cwd)
    for path in recordings:
        try:
            runs.add_recording(Path(path))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} is not a recording that can be shown: {error}") from error
    for session in past:
        try:
            runs.add_session(DiskPlace(Scope()).find(session))
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
) -> dict[str, Any]:
    from toolwire.cli.run_scripted import choose_peer  # noqa: PLC0415 - heavy

    advice = "Or choose the scripted model under Who answers: it needs no CLI."
    options, _ = await choose_peer(
        stack, servers, scripted=not live, script=steps, record=None, advice=advice
    )
    return options


async def _watch(target: "Target", name: str, shown: "Studio") -> None:
    """Load the target again when its file changes, for the tools and for a running conversation."""
    from toolwire.cli.shared.target import reload_on_change  # noqa: PLC0415 - heavy

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
    """Print the link, open the browser, and do so again with a new link each time Enter is pressed."""

    def show() -> None:
        note(f"toolwire studio: {access.make_link(address)}")
        if opens:
            threading.Thread(target=_open_browser, args=(access.make_link(address),), daemon=True).start()

    show()
    if _is_in_foreground():
        note("Ctrl-C ends it; Enter makes another link.")
        threading.Thread(target=_read_enters, args=(show,), daemon=True).start()


def _open_browser(link: str) -> None:
    """Open a link by way of a private file: other users can read the browser's command line."""
    with tempfile.TemporaryDirectory(prefix="toolwire-studio-") as folder:
        page = Path(folder) / "studio.html"
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0;url={link}">', encoding="utf-8"
        )
        webbrowser.open(page.as_uri())
        time.sleep(_OPENING)  # the browser reads it meanwhile


def _is_in_foreground() -> bool:
    """True if this process may read from the terminal: the system stops one in the background that tries."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    return sys.platform == "win32" or os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


def _read_enters(show: Callable[[], None]) -> None:
    for _ in sys.stdin:
        show()
