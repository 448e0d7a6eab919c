"""`toolwire serve`: serves the tools of a target to MCP clients, over stdio or HTTP.

Owns the command; the task that fetches a catalogue again at SIGHUP; and the supervisor of `--workers`, which
starts, replaces and stops processes that share a socket. docs/decisions.md says why it is not uvicorn's. Heavy
modules are imported where they are needed.
"""

import importlib.util
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import typer

from toolwire._support.log import RepeatLimit
from toolwire._support.tasks import spawn
from toolwire._support.words import count
from toolwire._transport.lifeline import Lifeline
from toolwire.cli.shared.printing import FAILURE
from toolwire.cli.shared.target_options import (
    OPENAPI,
    AlwaysListOption,
    ChainOption,
    ExcludeOption,
    FindToolsOption,
    GroupOption,
    HeaderOption,
    IncludeOption,
    LedgerOption,
    OpenAPIOptions,
    TargetArgument,
    resolve_target,
)
from toolwire.errors import UsageError
from toolwire.mcp.versions import SERVING, SERVING_HTTP, check_mcp

if TYPE_CHECKING:
    from toolwire.cli.shared.target import Target
    from toolwire.mcp.serve.host import ServerHost

Work = Callable[[], Coroutine[Any, Any, None]]

SECRET = "TOOLWIRE_STATE_SECRET"  # noqa: S105 - the name of a variable
_SECRET_BYTES = 32
_EARLY: Final = 5.0  # seconds: a worker that exits sooner has failed to start
_EARLY_EXITS: Final = 3  # early exits in a row after which the server stops
_CHECK_INTERVAL: Final = 0.2  # seconds between two checks
_EXIT_TIMEOUT: Final = 8.0  # seconds for a worker to exit after its calls have finished
_WAITING: Final = (
    "\nwaiting for an MCP client on standard input. Clients start this command themselves: `toolwire config` "
    "writes their entry, `toolwire call` tries a tool. Ctrl-C ends it"
)
_METRICS: Final = "toolwire-metrics-"


@dataclass(frozen=True, repr=False)  # the token must not appear in any text
class HttpOptions:
    """Where and to whom to serve over HTTP."""

    host: Annotated[str, typer.Option(help="Address to listen on. Any but loopback needs a token.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free port.")] = 8000
    path: Annotated[str, typer.Option(help="Path of the MCP endpoint.")] = "/mcp"
    token: Annotated[
        str | None,
        typer.Option(envvar="TOOLWIRE_TOKEN", help="Bearer token that clients must send.", show_envvar=True),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file that contains the token. Other users can see an option, but not the file."),
    ] = None
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name that clients may use. Repeatable.")
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of web pages that may connect, such as https://example.com. Repeatable."),
    ] = None
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Number of processes. More than one implies --stateless.")
    ] = 1
    stateless: Annotated[
        bool,
        typer.Option("--stateless", help="Keep no sessions, so that any process can answer any request."),
    ] = False
    max_sessions: Annotated[
        int,
        typer.Option(
            min=1, help="Maximum number of sessions. Beyond it, the session that is idle longest is closed."
        ),
    ] = 1000
    session_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which an idle session is closed.")
    ] = 1800.0


@dataclass(frozen=True)
class LimitOptions:
    """The limits of serving over HTTP."""

    max_body: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="Largest request body. A larger one gets HTTP 413.")
    ] = 4 << 20
    max_connections: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum connections of a process. Default: 3/4 of its file descriptors, at most 10,000.",
        ),
    ] = None
    max_per_address: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum connections of one client address. Not for use behind a proxy."),
    ] = None


@dataclass(frozen=True)
class CatalogOptions:
    """The options for `catalog:` targets, by the names that they have as arguments of `Catalog`."""

    budget: Annotated[
        str | None,
        typer.Option(
            metavar="DOLLARS",
            help="For catalog: targets: budget of this server and all others with its $TOOLWIRE_SESSION.",
        ),
    ] = None
    budget_day: Annotated[
        str | None,
        typer.Option(
            metavar="DOLLARS", help="For catalog: targets: budget per day (UTC) of all that use the ledger."
        ),
    ] = None
    budget_total: Annotated[
        str | None,
        typer.Option(
            metavar="DOLLARS", help="For catalog: targets: total budget of all that use the ledger."
        ),
    ] = None
    max_in_flight: Annotated[
        int | None,
        typer.Option(min=1, help="For catalog: and openapi: targets: maximum concurrent calls. Default: 32."),
    ] = None
    refresh: Annotated[
        float | None,
        typer.Option(
            min=1, help="For catalog: and openapi: targets: seconds after which the list is read again."
        ),
    ] = None
    pins: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|ledger",
            help="For catalog: targets: accepted definitions in a file or the ledger (toolwire catalog pin).",
        ),
    ] = None
    ledger: LedgerOption = None


def serve(
    *,
    context: typer.Context,
    target: TargetArgument,
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP instead of stdio.")] = False,
    at: HttpOptions,
    reload: Annotated[
        bool, typer.Option("--reload", help="Load the file again when it changes. Clients stay connected.")
    ] = False,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds to let running calls finish at shutdown.")
    ] = 5.0,
    limit: LimitOptions,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    group: GroupOption = None,
    chain: ChainOption = None,
    find_tools: FindToolsOption = False,
    always_list: AlwaysListOption = None,
    header: HeaderOption = None,
    catalog: CatalogOptions,
    openapi: OpenAPIOptions,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print a line for each request: tool, outcome, time.")
    ] = False,
    fd: Annotated[int | None, typer.Option(hidden=True, help="File descriptor of a bound socket.")] = None,
) -> None:
    """Serve the tools of a target to any MCP client, over stdio or HTTP.

    Stop it with Ctrl-C or SIGTERM: running calls may finish (see --drain), and the exit code is 0.

    Examples:

      toolwire serve app.py

      toolwire serve app.py:calc --http --port 8000

      TOOLWIRE_TOKEN=... toolwire serve app.py --http --host 0.0.0.0 --workers 4

      toolwire serve app.py --http --reload

      toolwire serve catalog:agentpmt --include 'weather*' --budget 5 --budget-day 20    # needs an account

      toolwire serve openapi:petstore.yaml --base-url https://petstore.example.com/v1
    """
    _check_options(context, http=http, workers=at.workers, quiet=quiet, verbose=verbose)
    check_mcp("toolwire serve", SERVING_HTTP if http else SERVING)
    from toolwire.mcp.serve.stdio import Wire, ensure_stderr  # noqa: PLC0415 - heavy

    ensure_stderr()
    wire = None if http else Wire()  # before the file is loaded, since it may print to stdout
    _log_to_stderr(quiet)
    from toolwire.mcp.serve.start import host_for  # noqa: PLC0415

    of_document, of_catalog = dict(vars(openapi)), dict(vars(catalog))
    if target.startswith(OPENAPI):
        of_document.update({name: of_catalog.pop(name) for name in ("max_in_flight", "refresh")})
    found = resolve_target(
        target,
        header,
        include,
        exclude,
        of_document,
        groups=group,
        chains=chain,
        find_tools=find_tools,
        always_list=always_list,
        **of_catalog,
    )
    if http and fd is None:
        _check_ledgers(found.server, at.workers)
    served = host_for(found.server, name=found.name, secret=_read_secret())
    if verbose:
        _log_requests(served)
    background = [_reload_task(found, served)] if reload else []
    if hasattr(source := found.source or found.server, "loaded"):
        background.append(partial(watch_catalog, source, partial(_print, quiet)))
    if wire is not None:
        waiting = _WAITING if sys.stdin.isatty() else ""
        _print(quiet, f"{_describe(served)} over stdio{waiting}")
        from toolwire.mcp.serve.start import serve_pipe  # noqa: PLC0415

        _run(partial(serve_pipe, served, wire, drain), background)
        return
    from toolwire.mcp.serve.access import guard_for  # noqa: PLC0415
    from toolwire.mcp.serve.http import bound_socket  # noqa: PLC0415
    from toolwire.mcp.serve.limits import HttpLimits, raise_descriptor_limit  # noqa: PLC0415
    from toolwire.mcp.serve.start import Listening, check_path  # noqa: PLC0415

    check_path(at.path)
    limits = HttpLimits(**vars(limit), max_sessions=at.max_sessions, session_timeout=at.session_timeout)
    token = _read_token(at.token, at.token_file)
    guard = guard_for(at.host, token, at.allow_host or (), at.allow_origin or ())
    listening = bound_socket(at.host, at.port) if fd is None else socket.socket(fileno=fd)
    where = Listening(at.host.removeprefix("[").removesuffix("]"), listening.getsockname()[1], at.path)
    line = f"{_describe(served)} at {where.url}"
    if fd is None and at.workers > 1:
        lines = f"{line}\n{at.workers} processes, no sessions"
        raise typer.Exit(supervise(listening, at.workers, drain, partial(_print, quiet, lines)))
    from toolwire.mcp.serve.start import serve_over  # noqa: PLC0415

    async def announce() -> None:
        _print(quiet or fd is not None, line)  # the supervisor of a worker has printed it

    raise_descriptor_limit()
    work = partial(serve_over, served, listening, guard, path=at.path, sessions=not at.stateless, drain=drain)
    with listening:
        _run(partial(work, limits=limits, announce=announce), background)


def _run(work: Work, background: list[Work]) -> None:
    """Run `work` to its end, with the other tasks in the background."""

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
    from toolwire.cli.shared.target import reload_on_change  # noqa: PLC0415 - heavy

    return partial(reload_on_change, target, served.replace, partial(_print, False))


def _check_options(context: typer.Context, *, http: bool, workers: int, quiet: bool, verbose: bool) -> None:
    """Raise `UsageError` for options that exclude each other, or have no effect without --http."""
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other")
    if workers > 1 and sys.platform == "win32":
        raise UsageError("--workers needs Linux or macOS: here a socket cannot be shared by processes")
    for each in () if http else (*fields(HttpOptions), *fields(LimitOptions)):
        source = context.get_parameter_source(each.name)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"--{each.name.replace('_', '-')} only applies with --http: add --http, or leave it out"
            )


def _log_requests(served: "ServerHost") -> None:
    from toolwire.mcp.serve.metrics import RequestLog  # noqa: PLC0415

    logging.getLogger("toolwire.requests").setLevel(logging.INFO)
    served.observer = RequestLog()  # serving over HTTP replaces it by one that counts too


def _check_ledgers(server: Any, workers: int) -> None:
    """Raise `UsageError` if processes, or machines that share a ledger, would each spend a budget of their own."""
    ledgers = getattr(server, "ledgers", ())
    if not ledgers:
        return
    from toolwire.catalog.ledger.opening import is_in_memory, is_remote  # noqa: PLC0415 - heavy
    from toolwire.catalog.server import SESSION  # noqa: PLC0415 - heavy

    if workers > 1 and any(is_in_memory(each) for each in ledgers):
        raise UsageError(
            "--workers needs a ledger that the processes can share, but this one is in memory: give a file or"
            " postgresql://..., or each process would have the whole budget"
        )
    if not any(is_remote(each) for each in ledgers):
        return
    missing = [name for name in (SESSION, SECRET) if not os.environ.get(name)]
    if missing:
        raise UsageError(
            f"machines that share a ledger need the same {' and '.join(missing)}: set {SESSION} to a name, under"
            f" which they share one budget, and {SECRET} to at least {_SECRET_BYTES} random bytes (openssl"
            " rand -hex 32)"
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
    parts = [count(number, word) for number, word in counts if number or word == "tool"]
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


async def watch_catalog(catalog: Any, report: Callable[[str], None]) -> None:
    """Report how the first load of a catalogue went, and fetch its list again at SIGHUP."""
    # The signal is handled from the start: by default it ends the process. Windows does not have it.
    numbers = [getattr(signal, "SIGHUP")] if hasattr(signal, "SIGHUP") else []  # noqa: B009 - for type checkers
    with anyio.open_signal_receiver(*numbers) as signals:
        status = await catalog.loaded(within=60.0)
        report(
            f"{catalog.name}: {status.fetched} entries fetched, "
            f"{status.registered} tools registered ({status.state})"
        )
        for each in status.skipped:
            report(f"left out: {each.name} ({each.reason})")
        if problem := getattr(catalog, "base_problem", ""):
            report(f"calls will fail: {problem}")
        async for _ in signals:
            report(f"{catalog.name}: fetching the list again")
            catalog.refresh()


def supervise(listening: socket.socket, workers: int, drain: float, announce: Callable[[], None]) -> int:
    """Run this command in `workers` processes on the socket until SIGINT or SIGTERM. Returns the exit code.

    `announce` is called when signals are handled.
    """
    import secrets  # noqa: PLC0415 - loads OpenSSL

    from toolwire.catalog.server import SESSION  # noqa: PLC0415 - heavy
    from toolwire.mcp.serve.host import new_secret  # noqa: PLC0415
    from toolwire.mcp.serve.metrics import FOLDER  # noqa: PLC0415

    # All workers share the key that seals stateless calls, and the session whose budget they spend.
    shared = {SECRET: new_secret(), SESSION: secrets.token_hex(8)}
    stopping, hurry = threading.Event(), threading.Event()

    def on_signal(*_: object) -> None:
        (hurry if stopping.is_set() else stopping).set()

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    announce()
    try:
        with metrics_folder() as (folder, lock):
            given = {name: value for name, value in os.environ.items() if value or name not in shared}
            environment = {**shared, **given, FOLDER: str(folder)}
            command = worker_command(sys.argv[1:], listening.fileno())

            def start(lifeline: Lifeline) -> subprocess.Popen[bytes]:
                return subprocess.Popen(  # noqa: S603 - our own command
                    command,
                    env=environment,
                    pass_fds=[listening.fileno(), lock, *lifeline.inherit],
                    start_new_session=True,
                )

            group = _Group(start, workers, folder)
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: group.send_signal(signal.SIGHUP))
            try:
                while not stopping.is_set() and not group.failed:
                    group.replace_exited()
                    stopping.wait(_CHECK_INTERVAL)
            finally:
                group.stop(drain + _EXIT_TIMEOUT, hurry)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    return FAILURE if group.failed else 0


def worker_command(arguments: Sequence[str], fd: int) -> list[str]:
    """Return the command line of a worker: ours, with its own options first, since ours may end with `--`."""
    command, *rest = arguments
    # -P: a file of the user called email.py must not hide Python's own.
    return [sys.executable, "-P", "-m", "toolwire", command, "--fd", str(fd), "--stateless", *rest]


@contextmanager
def metrics_folder() -> Iterator[tuple[Path, int]]:
    """Create a folder for the metrics of all workers, and a descriptor that holds a lock on it.

    Folders that killed servers left behind are removed: their locks are free.
    """
    for stale in Path(tempfile.gettempdir()).glob(f"{_METRICS}*"):
        with suppress(OSError):
            if (found := _try_lock(stale)) is not None:
                shutil.rmtree(stale, ignore_errors=True)
                os.close(found)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_METRICS))
        with suppress(FileNotFoundError):
            lock = _try_lock(folder)
            if lock is not None and folder.exists():  # otherwise another process took it for a stale one
                break
    try:
        yield folder, lock
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _try_lock(folder: Path) -> int | None:
    """Lock a folder and return the descriptor that holds the lock; None if another process holds it."""
    import fcntl  # noqa: PLC0415 - not on Windows

    found = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(found)
        return None
    return found


class _Worker:
    """A worker process. On Linux it gets SIGTERM when this process ends, even by SIGKILL."""

    def __init__(self, start: Callable[[Lifeline], subprocess.Popen[bytes]]) -> None:
        self._lifeline = Lifeline()
        try:
            self.process = start(self._lifeline)
        except BaseException:
            self._lifeline.close()
            raise
        self._lifeline.hold(self.process.pid)
        self.started = time.monotonic()

    def has_exited(self) -> bool:
        """True if the process has exited; its lifeline is then closed."""
        if self.process.poll() is None:
            return False
        self._lifeline.close()
        return True


class _Group:
    """The workers of a server."""

    def __init__(
        self, start: Callable[[Lifeline], subprocess.Popen[bytes]], count: int, folder: Path
    ) -> None:
        self._start = start
        self._folder = folder
        self._early_exits = 0
        self._workers = [_Worker(start) for _ in range(count)]

    @property
    def failed(self) -> bool:
        """True if workers exit as soon as they are started."""
        return self._early_exits >= _EARLY_EXITS

    def replace_exited(self) -> None:
        """Start a new worker for each that has exited."""
        from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - heavy

        for place, worker in enumerate(self._workers):
            if not worker.has_exited():
                continue
            early = time.monotonic() - worker.started < _EARLY
            self._early_exits = self._early_exits + 1 if early else 0
            process = worker.process
            mark_process_dead(process.pid, str(self._folder))  # type: ignore[no-untyped-call]
            if not self.failed:
                sys.stderr.write(f"worker {process.pid} exited ({process.returncode}); starting another\n")
                self._workers[place] = _Worker(self._start)

    def stop(self, seconds: float, hurry: threading.Event) -> None:
        """Stop all workers: by SIGTERM, by SIGINT too once `hurry` is set, and by SIGKILL after `seconds`."""
        self.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        hurried = False
        while (left := self._running()) and time.monotonic() < deadline:
            if hurry.is_set() and not hurried:
                hurried = True
                deadline = min(deadline, time.monotonic() + 3)
                self.send_signal(signal.SIGINT)  # a second SIGTERM could be merged with the first
            with suppress(subprocess.TimeoutExpired):
                left[0].process.wait(_CHECK_INTERVAL)
        for worker in left:
            worker.process.kill()
            worker.process.wait()
            worker.has_exited()

    def send_signal(self, number: int) -> None:
        """Send a signal to all workers."""
        for worker in self._running():
            worker.process.send_signal(number)

    def _running(self) -> list[_Worker]:
        return [worker for worker in self._workers if not worker.has_exited()]
