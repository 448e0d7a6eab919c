"""Options that the commands share, and a client connected to the target's server.

While user code runs, its prints go to stderr: stdout carries nothing but the result.
"""

import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from toolwire._support.words import plain
from toolwire.cli.shared.arguments import parse_headers
from toolwire.cli.shared.printing import note
from toolwire.errors import CatalogError, McpError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.mcp.direct_client import DirectClient

T = TypeVar("T")

CATALOG: Final = "catalog:"
OPENAPI: Final = "openapi:"
"""The prefixes of targets that are a catalogue or an OpenAPI document."""


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
        help="app.py, app.py:name, package.module:name, a URL, catalog:PROFILE or openapi:DOCUMENT.",
        autocompletion=complete_target,
        show_default=False,
    ),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="'NAME: VALUE'", help="An HTTP header for a URL target. Repeatable."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BaseUrlOption = Annotated[
    str | None,
    typer.Option(
        "--base-url", metavar="URL", help="For openapi: targets: the URL of the API, to which requests go."
    ),
]
AllowServersOption = Annotated[
    bool,
    typer.Option(
        "--allow-servers", help="For openapi: targets: send requests to the server that the document names."
    ),
]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="For openapi: targets: a file with credentials, which only you can read."
    ),
]
ExternalFilesOption = Annotated[
    bool,
    typer.Option(
        "--external-files", help="For openapi: targets: also read files in its folder that it refers to."
    ),
]
AllowNetworkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-network",
        metavar="NETWORK",
        help="For openapi: targets: allow internal addresses, such as 10.0.0.0/8. Repeatable.",
    ),
]
AllowHttpOption = Annotated[
    bool, typer.Option("--allow-http", help="For openapi: targets: allow plain http to other machines.")
]
IncludeOption = Annotated[
    list[str] | None, typer.Option("--include", metavar="GLOB", help="Only these tools. Repeatable.")
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="GLOB", help="All tools but these. Repeatable.")
]
GroupOption = Annotated[
    list[str] | None, typer.Option("--group", metavar="TAG", help="Only tools with this tag. Repeatable.")
]
FindToolsOption = Annotated[
    bool,
    typer.Option(
        "--find-tools",
        help="List a search tool instead of all tools. Tools that a client finds are added to its list.",
    ),
]
AlwaysListOption = Annotated[
    list[str] | None,
    typer.Option("--always-list", metavar="GLOB", help="With --find-tools: list these too. Repeatable."),
]
ChainOption = Annotated[
    list[Path] | None,
    typer.Option("--chain", metavar="FILE.toml", help="A file of chains to offer as tools. Repeatable."),
]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="FILE|URL",
        help="The ledger: a file, or postgresql://... Default: $TOOLWIRE_LEDGER, or a file in your state folder.",
        show_default=False,
    ),
]


def resolve_target(
    text: str,
    header: list[str] | None,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    openapi: dict[str, Any] | None = None,
    *,
    groups: list[str] | None = None,
    find_tools: bool = False,
    always_list: list[str] | None = None,
    chains: list[Path] | None = None,
    **catalog: Any,
) -> "Target":
    """Find the server that a command names.

    `catalog` holds the options for `catalog:` targets; a value of None was not given. `openapi` holds those for
    `openapi:` targets; a value that is None, False or empty was not given.
    """
    from toolwire.cli.shared.target import Choice, resolve  # noqa: PLC0415 - heavy

    given = {name: value for name, value in catalog.items() if value is not None}
    document = {name: value for name, value in (openapi or {}).items() if value}
    choice = Choice(
        tuple(include or ()),
        tuple(exclude or ()),
        given,
        document,
        groups=tuple(groups or ()),
        find_tools=find_tools,
        always_list=tuple(always_list or ()),
        chains=tuple(chains or ()),
    )
    return resolve(text, parse_headers(header or []), choice)


def openapi_options(  # noqa: PLR0917 - as the commands have them
    base_url: str | None = None,
    allow_servers: bool = False,
    credentials: Path | None = None,
    external_files: bool = False,
    allow_network: list[str] | None = None,
    allow_http: bool = False,
) -> dict[str, Any]:
    """Return the options for `openapi:` targets as arguments of `OpenAPI`."""
    return {
        "base_url": base_url,
        "allow_servers": allow_servers,
        "credentials_file": credentials,
        "external_files": external_files,
        "allow_network": allow_network,
        "allow_http": allow_http,
    }


def run(work: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run a coroutine function of a command. Log messages of libraries are hidden: failures are raised anyway."""
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
        await _wait_until_loaded(target.source or target.server)
        yield client


async def _wait_until_loaded(server: Any) -> None:
    """Wait for the tools of a catalogue, which it loads after the handshake. `CatalogError` if it cannot."""
    loaded = getattr(server, "loaded", None)
    if loaded is None:
        return
    status = await loaded()
    if status.state == "cached":
        note(f"{status.error}; using the tools that were loaded last time")
    elif status.state != "live":
        raise CatalogError(status.error or "the tools were not loaded in time")


async def list_tools(target: "Target") -> list[dict[str, Any]]:
    """List all tools of a target, as its server describes them."""
    async with connect(target) as client:
        return [tool.raw for tool in await client.list_tools()]
