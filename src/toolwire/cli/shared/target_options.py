"""Options that the commands share, and a client connected to the target's server.

While user code runs, its prints go to stderr: stdout carries nothing but the result.
"""

import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from toolwire._support.terminal import plain
from toolwire.cli.shared.arguments import parse_headers
from toolwire.cli.shared.printing import note
from toolwire.errors import CatalogError, McpError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.mcp.direct_client import DirectClient

T = TypeVar("T")


def complete_target(incomplete: str) -> list[str]:
    """List the Python files and folders that complete a target in the shell."""
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
        help="An HTTP header for a URL target. Repeatable.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option("--include", metavar="GLOB", help="Only these tools. Repeatable."),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="GLOB", help="All tools but these. Repeatable."),
]


def resolve_target(
    text: str,
    header: list[str] | None,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    **catalog: Any,
) -> "Target":
    """Find the server that a command names. `catalog` holds options for `catalog:` targets, None if not given."""
    from toolwire.cli.shared.target import Choice, resolve  # noqa: PLC0415 - heavy

    given = {name: value for name, value in catalog.items() if value is not None}
    choice = Choice(tuple(include or ()), tuple(exclude or ()), given)
    return resolve(text, parse_headers(header or []), choice)


def run(work: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run a coroutine function of a command. Log messages of libraries are not shown: failures come as errors."""
    import anyio  # noqa: PLC0415 - heavy

    for name in ("mcp", "client", "httpx2", "fastmcp"):  # without a handler, their warnings are printed
        logging.getLogger(name).addHandler(logging.NullHandler())
    with contextlib.redirect_stdout(sys.stderr):
        try:
            return anyio.run(work, *args)
        except McpError as error:  # the message comes from the server
            raise McpError(error.code, plain(error.message), error.data) from error


@contextlib.asynccontextmanager
async def connect(
    target: "Target",
    *,
    on_notification: Callable[[str, dict[str, Any]], None] | None = None,
    on_elicitation: Callable[[Any], Any] | None = None,
) -> AsyncIterator["DirectClient"]:
    """Connect a client to the target's server. Notifications go to `on_notification(method, params)`."""
    from toolwire.mcp import direct_client  # noqa: PLC0415 - heavy

    def notify(notified: direct_client.Notified) -> None:
        if on_notification is not None:
            on_notification(notified.method, notified.params)

    async with direct_client.connect(
        target.server, name=target.name, on_elicitation=on_elicitation, on_notification=notify
    ) as client:
        await _wait_until_loaded(target.server)
        yield client


async def _wait_until_loaded(server: Any) -> None:
    """Wait for the tools of a catalogue, which it loads after the handshake. `CatalogError` if it cannot."""
    loaded = getattr(server, "loaded", None)
    if loaded is None:
        return
    status = await loaded()
    if status.state == "cached":
        note(f"{status.error}; showing the tools from the cache")
    elif status.state != "live":
        raise CatalogError(status.error or "the catalogue did not load within 30 s")


async def list_tools(target: "Target") -> list[dict[str, Any]]:
    """List all tools of a target, as its server describes them."""
    async with connect(target) as client:
        return [tool.raw for tool in await client.list_tools()]
