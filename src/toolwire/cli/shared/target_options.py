"""A target from the command line, connected: what `tools`, `call` and `check` share.

Owns the options that they have in common and one client of one server. While user code runs its prints go to
stderr, so that stdout has the result and nothing else.
"""

import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from toolwire._support.terminal import plain
from toolwire.cli.shared.printing import note
from toolwire.errors import CatalogError, McpError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.tools.client import DirectClient

T = TypeVar("T")


def complete_target(incomplete: str) -> list[str]:
    """Python files and folders, for the shell's completion."""
    start = Path(incomplete)
    folder = start if incomplete.endswith("/") else start.parent
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    shown = [
        f"{each}/" if each.is_dir() else str(each) for each in found if not each.name.startswith((".", "__"))
    ]
    return [each for each in shown if each.startswith(incomplete) and each.endswith((".py", "/"))]


TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="app.py, app.py:name, package.module:name, the URL of an MCP server, or catalog:PROFILE.",
        autocompletion=complete_target,
        show_default=False,
    ),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        metavar="'NAME: VALUE'",
        help="An HTTP header for a URL; may be given several times.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


IncludeOption = Annotated[
    list[str] | None,
    typer.Option("--include", metavar="GLOB", help="Only these tools; may be given several times."),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="GLOB", help="All but these tools; may be given several times."),
]


def resolved(
    text: str,
    header: list[str] | None,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    **catalog: Any,
) -> "Target":
    """The target of a command, with its headers and its choice of tools."""
    from toolwire.cli.shared.arguments import headers  # noqa: PLC0415
    from toolwire.cli.shared.target import Choice, resolve  # noqa: PLC0415 - loads the tools

    given = {name: value for name, value in catalog.items() if value is not None}
    return resolve(text, headers(header or []), Choice(tuple(include or ()), tuple(exclude or ()), given))


def run(work: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run async code of a command. What libraries log is not shown: what matters of it comes as an error."""
    import anyio  # noqa: PLC0415 - only when something runs

    for name in ("mcp", "client", "httpx2", "fastmcp"):  # those that would print warnings by themselves
        logging.getLogger(name).addHandler(logging.NullHandler())
    with contextlib.redirect_stdout(sys.stderr):
        try:
            return anyio.run(work, *args)
        except McpError as error:  # the words of a server, on their way to a terminal
            raise McpError(error.code, plain(error.message), error.data) from error


@contextlib.asynccontextmanager
async def connected(
    target: "Target",
    *,
    on_notice: Callable[[str, dict[str, Any]], None] | None = None,
    on_elicitation: Callable[[Any], Any] | None = None,
) -> AsyncIterator["DirectClient"]:
    """A client of the target's server. `on_notice(method, params)` hears what the server tells, when it does."""
    from toolwire._conversation.mcp_router import ClientCallbacks, McpRouter  # noqa: PLC0415 - loads the tools
    from toolwire.tools.client import DirectClient  # noqa: PLC0415

    class Listening(DirectClient):
        def send(self, body: dict[str, Any]) -> None:
            super().send(body)
            if on_notice is not None:
                heard = self.notifications[-1]
                on_notice(heard.method, heard.params)

    servers = McpRouter(ClientCallbacks(on_elicitation))
    client = Listening(servers, target.name)
    servers.attach(client)
    servers.add(target.name, target.server)
    try:
        await client.greet({})
        await _loaded(target.server)
        yield client
    finally:
        await servers.aclose()


async def _loaded(server: Any) -> None:
    """A catalogue's tools come behind the handshake: wait for them, and say why there are none."""
    loaded = getattr(server, "loaded", None)
    if loaded is None:
        return
    status = await loaded()
    if status.state == "cached":
        note(f"{status.error}; these are the tools of last time")
    elif status.state != "live":
        raise CatalogError(status.error or "the catalogue did not load within 30 s")


async def listed_tools(target: "Target") -> list[dict[str, Any]]:
    """All tools of a target, as the server describes them."""
    async with connected(target) as client:
        return [tool.raw for tool in await client.list_tools()]
