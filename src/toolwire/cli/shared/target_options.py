"""Options that the commands share, and a client connected to the target's server.

While user code runs, its prints go to stderr: stdout carries nothing but the result.
"""

import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from toolwire._support.words import plain
from toolwire.cli.shared.arguments import parse_headers
from toolwire.cli.shared.printing import note
from toolwire.errors import CatalogError, McpError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.mcp.direct_client import DirectClient, Notified

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
    typer.Option(metavar="URL", help="For openapi: targets: the URL of the API, to which requests go."),
]
AllowServersOption = Annotated[
    bool,
    typer.Option(
        "--allow-servers", help="For openapi: targets: send requests to the server that the document names."
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
        metavar="NETWORK",
        help="For openapi: targets: allow internal addresses, such as 10.0.0.0/8. Repeatable.",
    ),
]
AllowHttpOption = Annotated[
    bool, typer.Option("--allow-http", help="For openapi: targets: allow plain http to other machines.")
]


@dataclass(frozen=True)
class OpenAPIOptions:
    """The options for `openapi:` targets, by the names that they have as arguments of `OpenAPI`."""

    base_url: BaseUrlOption = None
    allow_servers: AllowServersOption = False
    credentials_file: Annotated[
        Path | None,
        typer.Option(
            "--credentials",
            metavar="FILE",
            help="For openapi: targets: a file with credentials, which only you can read.",
        ),
    ] = None
    external_files: ExternalFilesOption = False
    allow_network: AllowNetworkOption = None
    allow_http: AllowHttpOption = False


IncludeOption = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", help="Only these tools. Repeatable.")
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", help="All tools but these. Repeatable.")
]
GroupOption = Annotated[
    list[str] | None, typer.Option(metavar="TAG", help="Only tools with this tag. Repeatable.")
]
FindToolsOption = Annotated[
    bool,
    typer.Option(
        "--find-tools",
        help="List a search tool instead of all tools. Tools that a client finds are added to its list.",
    ),
]
AlwaysListOption = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", help="With --find-tools: list these too. Repeatable.")
]
ChainOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE.toml", help="A file of chains to offer as tools. Repeatable."),
]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|URL",
        help="The ledger: a file, or postgresql://... Default: $TOOLWIRE_LEDGER, or a file in your state folder.",
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


def run(work: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run a coroutine function of a command. Log messages of libraries are hidden: failures are raised anyway."""
    import anyio  # noqa: PLC0415 - heavy, and `sessions` does without it

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
    on_notification: "Callable[[Notified], None] | None" = None,
    on_elicitation: Callable[[Any], Any] | None = None,
) -> AsyncIterator["DirectClient"]:
    """Connect a client to the target's server."""
    from toolwire.mcp import direct_client  # noqa: PLC0415 - heavy

    async with direct_client.connect(
        target.server, name=target.name, on_elicitation=on_elicitation, on_notification=on_notification
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
