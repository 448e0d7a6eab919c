"""`toolwire serve`: serves the tools of a target to MCP clients, over stdio or HTTP."""

import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire._support.log import RepeatLimit
from toolwire.cli.shared.target_options import (
    ExcludeOption,
    HeaderOption,
    IncludeOption,
    TargetArgument,
    resolve_target,
)
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.mcp.serve.host import ServerHost

Work = Callable[[], Coroutine[Any, Any, None]]

SECRET = "TOOLWIRE_STATE_SECRET"  # noqa: S105 - the name of a variable
_SECRET_BYTES = 32
_HTTP_ONLY = (
    "host",
    "port",
    "path",
    "token",
    "token_file",
    "allow_host",
    "allow_origin",
    "workers",
    "stateless",
    "max_sessions",
    "session_timeout",
    "max_body",
    "max_connections",
    "max_per_address",
)


def serve(  # noqa: PLR0917 - options
    context: typer.Context,
    target: TargetArgument,
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP instead of stdio.")] = False,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any but loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free port.")] = 8000,
    path: Annotated[str, typer.Option(help="Path of the MCP endpoint.")] = "/mcp",
    token: Annotated[
        str | None,
        typer.Option(envvar="TOOLWIRE_TOKEN", help="Bearer token that clients must send.", show_envvar=True),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token. Other users can see options, but not a file.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name that clients may use. Repeatable.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of web pages that may connect, such as https://example.com. Repeatable."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Number of processes. More than one implies --stateless.")
    ] = 1,
    stateless: Annotated[
        bool,
        typer.Option("--stateless", help="Keep no sessions, so that any process can answer any request."),
    ] = False,
    max_sessions: Annotated[
        int,
        typer.Option(
            min=1, help="Maximum number of sessions. Beyond it, the session that is idle longest is closed."
        ),
    ] = 1000,
    session_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which an idle session is closed.")
    ] = 1800.0,
    reload: Annotated[
        bool, typer.Option("--reload", help="Load the file again when it changes. Clients stay connected.")
    ] = False,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds to let running calls finish at shutdown.")
    ] = 5.0,
    max_body: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="Largest request body. A larger one gets HTTP 413.")
    ] = 4 << 20,
    max_connections: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum connections of a process. Default: 3/4 of its file descriptors, at most 10,000.",
        ),
    ] = None,
    max_per_address: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum connections of one client address. Not for use behind a proxy."),
    ] = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    header: HeaderOption = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="DOLLARS",
            help="For catalog: targets: the most that all with this $TOOLWIRE_SESSION may spend.",
        ),
    ] = None,
    budget_day: Annotated[
        str | None,
        typer.Option(
            metavar="DOLLARS", help="For catalog: targets: the most that all may spend in a day (UTC)."
        ),
    ] = None,
    budget_total: Annotated[
        str | None,
        typer.Option(
            metavar="DOLLARS", help="For catalog: targets: the most that all with this ledger may ever spend."
        ),
    ] = None,
    max_in_flight: Annotated[
        int | None, typer.Option(min=1, help="For catalog: targets: maximum concurrent calls. Default: 32.")
    ] = None,
    refresh: Annotated[
        float | None,
        typer.Option(min=1, help="For catalog: targets: seconds after which the list is fetched again."),
    ] = None,
    pins: Annotated[
        Path | None,
        typer.Option(help="For catalog: targets: a file of accepted definitions (toolwire catalog pin)."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")] = False,
    fd: Annotated[int | None, typer.Option(hidden=True, help="File descriptor of a bound socket.")] = None,
) -> None:
    """Serve the tools of a target to any MCP client, over stdio or HTTP.

    Ctrl-C and SIGTERM are the regular ways to stop it: running calls may finish, and the exit code is 0.

    Examples:

      toolwire serve app.py

      toolwire serve app.py:calc --http --port 8000

      TOOLWIRE_TOKEN=... toolwire serve app.py --http --host 0.0.0.0 --workers 4

      toolwire serve app.py --http --reload

      toolwire serve catalog:agentpmt --include 'weather*' --budget 5 --budget-day 20
    """
    if not http:
        _check_http_options(context)
    from toolwire.mcp.serve.stdio import Wire, ensure_stderr  # noqa: PLC0415 - heavy

    ensure_stderr()
    wire = None if http else Wire()  # before the file is loaded, since it may print to stdout
    _log_to_stderr(quiet)
    from toolwire.mcp.serve.start import host_for  # noqa: PLC0415

    found = resolve_target(
        target,
        header,
        include,
        exclude,
        budget=budget,
        budget_day=budget_day,
        budget_total=budget_total,
        max_in_flight=max_in_flight,
        refresh=refresh,
        pins=pins,
    )
    served = host_for(found.server, name=found.name, secret=_read_secret())
    background = [_reload_task(found, served)] if reload else []
    if hasattr(found.server, "loaded"):
        from toolwire.cli.serve_reload import watch_catalog  # noqa: PLC0415

        background.append(partial(watch_catalog, found.server, partial(_print, quiet)))
    if wire is not None:
        _print(quiet, f"{_describe(served)} over stdio")
        from toolwire.mcp.serve.start import serve_pipe  # noqa: PLC0415

        _run(partial(serve_pipe, served, wire, drain), background)
        return
    from toolwire.mcp.serve.access import guard_for  # noqa: PLC0415
    from toolwire.mcp.serve.http import bound_socket  # noqa: PLC0415
    from toolwire.mcp.serve.limits import HttpLimits, raise_descriptor_limit  # noqa: PLC0415
    from toolwire.mcp.serve.start import Listening, check_path  # noqa: PLC0415

    check_path(path)
    limits = HttpLimits(
        max_body=max_body,
        max_connections=max_connections,
        max_per_address=max_per_address,
        max_sessions=max_sessions,
        session_timeout=session_timeout,
    )
    guard = guard_for(host, _read_token(token, token_file), allow_host or (), allow_origin or ())
    if fd is not None:
        listening = socket.socket(fileno=fd)
    else:
        listening = bound_socket(host, port)
        where = Listening(host.removeprefix("[").removesuffix("]"), listening.getsockname()[1], path)
        _print(quiet, f"{_describe(served)} at {where.url}")
        if workers > 1:
            from toolwire.cli.serve_workers import supervise  # noqa: PLC0415

            _print(quiet, f"{workers} processes, no sessions")
            raise typer.Exit(supervise(listening, workers, drain, SECRET))
    from toolwire.mcp.serve.start import serve_over  # noqa: PLC0415

    raise_descriptor_limit()
    work = partial(serve_over, served, listening, guard, path=path, sessions=not stateless, drain=drain)
    with listening:
        _run(partial(work, limits=limits), background)


def _run(work: Work, background: list[Work]) -> None:
    """Run `work` to its end, with the other tasks beside it."""
    import anyio  # noqa: PLC0415 - heavy

    from toolwire._support.tasks import spawn  # noqa: PLC0415

    async def run_all() -> None:
        tasks = [spawn(each) for each in background]
        try:
            await work()
        finally:
            for task in tasks:
                task.cancel()

    uvloop = importlib.util.find_spec("uvloop") is not None
    anyio.run(run_all, backend_options={"use_uvloop": uvloop})


def _reload_task(target: "Target", served: "ServerHost") -> Work:
    if target.path is None:
        raise UsageError(f"--reload only applies to files, and {target.text} is not one")
    from toolwire.cli.serve_reload import reload_on_change  # noqa: PLC0415 - heavy

    return partial(reload_on_change, target, served.replace, partial(_print, False))


def _check_http_options(context: typer.Context) -> None:
    """Raise `UsageError` for an option on the command line that has no effect without --http."""
    for name in _HTTP_ONLY:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"--{name.replace('_', '-')} only applies with --http: add --http, or leave it out"
            )


def _read_secret() -> str | None:
    secret = os.environ.get(SECRET)
    if secret and len(os.fsencode(secret)) < _SECRET_BYTES:
        raise UsageError(f"{SECRET} is too short: it needs at least {_SECRET_BYTES} random bytes")
    return secret


def _read_token(token: str | None, token_file: Path | None) -> str | None:
    if token_file is None:
        return token
    if token is not None:
        raise UsageError("--token (or TOOLWIRE_TOKEN) and --token-file exclude each other")
    try:
        return token_file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the token file {token_file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the token file {token_file} is not UTF-8 text") from None


def _describe(served: "ServerHost") -> str:
    from toolwire.tools.toolset import Toolset  # noqa: PLC0415

    server = served.server
    if not isinstance(server, Toolset):
        return served.mcp_server.name
    counts = [
        (len(server.tools), "tool"),
        (len(server.resources) + len(server.resource_templates), "resource"),
        (len(server.prompts), "prompt"),
    ]
    parts = [
        f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count or word == "tool"
    ]
    return f"{server.name}: {', '.join(parts)}"


def _print(quiet: bool, text: str) -> None:
    if not quiet:
        # One write: print() makes two, and a line of another worker could come between them.
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _log_to_stderr(quiet: bool) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.ERROR if quiet else logging.WARNING,
        format="%(levelname)s: %(message)s",
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatLimit())
