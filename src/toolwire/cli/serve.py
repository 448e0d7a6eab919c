"""`toolwire serve`: the tools of a target for any MCP client, over stdio or HTTP."""

import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
        str, typer.Option(help="Address to listen on; any but loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free one.")] = 8000,
    path: Annotated[str, typer.Option(help="Path of the MCP endpoint.")] = "/mcp",
    token: Annotated[
        str | None,
        typer.Option(envvar="TOOLWIRE_TOKEN", help="Bearer token that clients must send.", show_envvar=True),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token; better than an option, which others can see.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name this server is reached by.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of web pages that may use it, such as https://example.com."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Processes that serve; more than one keeps no sessions.")
    ] = 1,
    stateless: Annotated[
        bool, typer.Option("--stateless", help="Keep no sessions: any process can answer any request.")
    ] = False,
    max_sessions: Annotated[
        int,
        typer.Option(
            min=1, help="Sessions that are kept; when there are more, the one idle longest is ended."
        ),
    ] = 1000,
    session_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which a session that nobody uses is ended.")
    ] = 1800.0,
    reload: Annotated[
        bool, typer.Option("--reload", help="Load the file again when it changes; clients stay connected.")
    ] = False,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds that running calls get to finish at the end.")
    ] = 5.0,
    max_body: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="Largest request; more is refused with 413.")
    ] = 4 << 20,
    max_connections: Annotated[
        int | None,
        typer.Option(
            min=1, help="Connections of a process. Default: 3/4 of its descriptors, at most 10,000."
        ),
    ] = None,
    max_per_address: Annotated[
        int | None,
        typer.Option(min=1, help="Connections of one client address. Not for use behind a proxy."),
    ] = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    header: HeaderOption = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="DOLLARS",
            help="For a catalogue: what this process may spend, or all that share $TOOLWIRE_SESSION.",
        ),
    ] = None,
    budget_day: Annotated[
        str | None,
        typer.Option(metavar="DOLLARS", help="For a catalogue: what may be spent on one day (UTC), by all."),
    ] = None,
    budget_total: Annotated[
        str | None,
        typer.Option(
            metavar="DOLLARS", help="For a catalogue: what may be spent ever, by all with this ledger."
        ),
    ] = None,
    max_in_flight: Annotated[
        int | None, typer.Option(min=1, help="For a catalogue: calls that may be out at once. Default: 32.")
    ] = None,
    refresh: Annotated[
        float | None,
        typer.Option(min=1, help="For a catalogue: seconds after which its list is fetched again."),
    ] = None,
    pins: Annotated[
        Path | None,
        typer.Option(help="For a catalogue: a file of agreed definitions (toolwire catalog pin)."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.")
    ] = False,
    fd: Annotated[int | None, typer.Option(hidden=True, help="A socket that is already bound.")] = None,
) -> None:
    """Serve the tools of a target to any MCP client: over stdio, or over HTTP.

    Examples:

      toolwire serve app.py

      toolwire serve app.py:calc --http --port 8000

      TOOLWIRE_TOKEN=... toolwire serve app.py --http --host 0.0.0.0 --workers 4

      toolwire serve app.py --http --reload

      toolwire serve catalog:agentpmt --include 'weather*' --budget 5 --budget-day 20
    """
    if not http:
        _refuse_options_of_http(context)
    from toolwire.mcp.serve.stdio import Wire, have_stderr  # noqa: PLC0415 - heavy

    have_stderr()
    wire = None if http else Wire()  # before the file is loaded: what it prints must not get on the wire
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
    serving = host_for(found.server, name=found.name, secret=_secret())
    beside = [_reloading(found, serving)] if reload else []
    if hasattr(found.server, "loaded"):
        from toolwire.cli.serve_reload import tend  # noqa: PLC0415

        beside.append(partial(tend, found.server, partial(_say, quiet)))
    if wire is not None:
        _say(quiet, f"{_what(serving)} over stdio")
        from toolwire.mcp.serve.start import serve_pipe  # noqa: PLC0415

        _run(partial(serve_pipe, serving, wire, drain), beside)
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
    guard = guard_for(host, _token(token, token_file), allow_host or (), allow_origin or ())
    if fd is not None:
        import socket  # noqa: PLC0415

        listening = socket.socket(fileno=fd)
    else:
        listening = bound_socket(host, port)
        where = Listening(host.removeprefix("[").removesuffix("]"), listening.getsockname()[1], path)
        _say(quiet, f"{_what(serving)} at {where.url}")
        if workers > 1:
            from toolwire.cli.serve_workers import supervise  # noqa: PLC0415

            _say(quiet, f"{workers} processes, no sessions")
            raise typer.Exit(supervise(listening, workers, drain, SECRET))
    from toolwire.mcp.serve.start import serve_over  # noqa: PLC0415

    raise_descriptor_limit()
    work = partial(serve_over, serving, listening, guard, path=path, sessions=not stateless, drain=drain)
    with listening:
        _run(partial(work, limits=limits), beside)


def _run(work: Work, beside: list[Work]) -> None:
    import importlib.util  # noqa: PLC0415

    import anyio  # noqa: PLC0415

    from toolwire._support.tasks import spawn  # noqa: PLC0415

    async def both() -> None:
        watchers = [spawn(each) for each in beside]
        try:
            await work()
        finally:
            for watcher in watchers:
                watcher.cancel()

    fast = importlib.util.find_spec("uvloop") is not None
    anyio.run(both, backend_options={"use_uvloop": fast})


def _reloading(target: "Target", serving: "ServerHost") -> Work:
    if target.path is None:
        raise UsageError(f"--reload needs a file, and {target.text} is none")
    from toolwire.cli.serve_reload import follow  # noqa: PLC0415

    return partial(follow, target, serving.replace, partial(_say, False))


def _refuse_options_of_http(context: typer.Context) -> None:
    """One that was given by hand and does nothing without --http is a mistake."""
    for name in _HTTP_ONLY:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"--{name.replace('_', '-')} is for HTTP: give --http too, or leave it out")


def _secret() -> str | None:
    secret = os.environ.get(SECRET)
    if secret and len(os.fsencode(secret)) < _SECRET_BYTES:
        raise UsageError(f"{SECRET} is too short: at least {_SECRET_BYTES} bytes are needed, random ones")
    return secret


def _token(token: str | None, token_file: Path | None) -> str | None:
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


def _what(serving: "ServerHost") -> str:
    from toolwire.tools.toolset import Toolset  # noqa: PLC0415

    server = serving.server
    if not isinstance(server, Toolset):
        return serving.mcp_server.name
    counts = [
        (len(server.tools), "tool"),
        (len(server.resources) + len(server.resource_templates), "resource"),
        (len(server.prompts), "prompt"),
    ]
    parts = [
        f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count or word == "tool"
    ]
    return f"{server.name}: {', '.join(parts)}"


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        # One write: print() makes two, between which another worker's line can fall.
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _log_to_stderr(quiet: bool) -> None:
    import logging  # noqa: PLC0415

    from toolwire._support.log import RepeatLimit  # noqa: PLC0415

    logging.basicConfig(
        stream=sys.stderr,
        level=logging.ERROR if quiet else logging.WARNING,
        format="%(levelname)s: %(message)s",
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatLimit())
