"""`toolwire batch`: the command group.

`run` and `worker` need the user's file, because its functions run in this process. The other commands take the name
of a batch and read its databases. Items are read from a file, and results are written to one: JSON lines or CSV.

Exit codes: 0 all runs are done; 1 an error; 2 wrong use; 3 some runs failed, were refused or cancelled; 4 the
outcome of some runs is unknown; 5 stopped by SIGTERM before all runs had ended or were added; 130 Ctrl-C, or the
terminal was closed.
"""

import asyncio
import contextlib
import csv
import json as jsons
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from toolwire.cli.batch_items import LINES, TABLE, check_items, read_items
from toolwire.cli.batch_screen import Screen, brief, describe, to_dict
from toolwire.cli.shared import user_module
from toolwire.cli.shared.app import make_app
from toolwire.cli.shared.failures import shown_warnings
from toolwire.cli.shared.printing import INTERRUPTED, note, one_line, out, show, show_json
from toolwire.cli.shared.target_options import JsonOption
from toolwire.errors import ClaudeSDKError, UsageError

if TYPE_CHECKING:
    from toolwire.batch import Batch, OpenBatch, Progress

SOME_FAILED: Final = 3
SOME_UNKNOWN: Final = 4
NOT_FINISHED: Final = 5
_COLUMNS: Final = ("key", "state", "output", "text", "cost", "error", "attempts", "session_id")
_FEW: Final = 20

AtOption = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Where the batch is stored: postgresql://... or a folder. "
        "Default: $TOOLWIRE_BATCHES, or a folder in your state folder.",
    ),
]
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The file with the Batch: review.py, or review.py:name.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the batch.")]
MetricsOption = Annotated[
    int | None,
    typer.Option(
        metavar="PORT", min=1, max=65535, help="Serve Prometheus metrics on this port of 127.0.0.1."
    ),
]


def run(  # noqa: PLR0917 - typer takes them by position
    file: FileArgument,
    tasks: Annotated[
        Path | None,
        typer.Argument(
            metavar="TASKS",
            help="The items to add: tasks.jsonl or tasks.csv. Without it, only waiting runs are carried out.",
        ),
    ] = None,
    at: AtOption = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="The field that is the key of an item. Default: key, then id, then a hash of the item.",
        ),
    ] = None,
    work: Annotated[
        bool, typer.Option("--work/--no-work", help="Carry out runs in this process too, or only in workers.")
    ] = True,
    metrics: MetricsOption = None,
    json: JsonOption = False,
) -> None:
    """Add items to a batch, carry out its runs, and show the progress.

    Items whose key is already in the batch are skipped, so running the same command again continues where it
    stopped.

    Examples:

      toolwire batch run review.py tasks.jsonl    # needs an account

      toolwire batch run review.py tasks.csv --key name --at postgresql://toolwire@db/batches    # needs an account
    """
    batch = _load(file)
    if tasks is not None:
        check_items(tasks, key, batch.encode)
    screen = Screen(batch.name, json=json)

    unread = tasks is not None

    async def add_and_show(opened: "OpenBatch[Any]") -> None:
        nonlocal unread
        if tasks is not None:
            added = await opened.add(read_items(tasks, key))
            unread = False
            note(f"{added} new, {opened.progress.total} in all, at {opened.place.shown}")
        async for done in opened.results():
            screen.result(done, opened.progress)

    async def drive(stop: asyncio.Event) -> "Progress":
        async with batch.open(at, work=work) as opened:
            with _metrics(opened, metrics), screen.live(opened):
                await _run_until(add_and_show(opened), stop)
                progress = await opened.refresh()
        if stop.is_set():  # leaving the block has waited for the current runs
            progress = await _read_progress(batch.name, at)
        return progress

    progress = _run(drive)
    screen.end(progress)
    code = _choose_exit_code(progress)
    raise typer.Exit(NOT_FINISHED if unread and code != SOME_UNKNOWN else code)


def worker(
    file: FileArgument,
    at: AtOption = None,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="Exit when no run is waiting or running any more.")
    ] = False,
    metrics: MetricsOption = None,
) -> None:
    """Carry out runs of a batch until SIGTERM or Ctrl-C. After SIGTERM, the current runs are finished first.

    Examples:

      toolwire batch worker review.py --at postgresql://toolwire@db/batches    # needs a server
    """
    batch = _load(file)

    async def work(stop: asyncio.Event) -> None:
        async with batch.open(at) as opened:
            note(f"worker of batch {batch.name} at {opened.place.shown}")
            with _metrics(opened, metrics):
                await opened.work(stop=stop, until_done=until_done)

    _run(work)


def show_(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name of the batch. Without it, all are listed.")
    ] = None,
    at: AtOption = None,
    json: JsonOption = False,
) -> None:
    """Show the progress of a batch, its failed runs, and runs of unknown cost. Without a name, list the batches."""
    if name is None:
        _list(at, json=json)
        return

    async def look(opened: "OpenBatch[Any]") -> tuple["Progress", list[dict[str, Any]], list[Any]]:
        return await opened.refresh(), await opened.unknown(), await opened.first("failed", _FEW)

    progress, unknown, failed = _run_on_batch(name, at, look)
    if json:
        show_json(
            {
                "name": name,
                **progress.to_dict(),
                "attempts_unknown": [{**each, "reserved": str(each["reserved"])} for each in unknown],
                "failures": [{"key": each.key, "error": each.error} for each in failed],
            }
        )
        return
    typer.echo(describe(name, progress))
    for each in failed:
        typer.echo(f"  failed   {one_line(each.key)}: {brief(each.error)}")
    for each in unknown[:_FEW]:
        typer.echo(
            f"  unknown  {one_line(each['key'])}: attempt {each['attempt']}, ${each['reserved']} reserved,"
            f" session {each['session_id']}"
        )
    if unknown:
        note(f"Record what they cost: toolwire batch reconcile {name} KEY --cost DOLLARS")


def cancel(name: NameArgument, at: AtOption = None, json: JsonOption = False) -> None:
    """Cancel a batch: start no more runs, and stop the current ones. Returns when all of them have ended."""
    _show_progress(name, _run_on_batch(name, at, lambda opened: opened.cancel()), json=json)


def retry(
    name: NameArgument,
    at: AtOption = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="Runs in this state: failed, refused, cancelled, unknown or done. Repeatable. "
            "Default: the first three.",
        ),
    ] = None,
    key: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Only this run. Repeatable.")] = None,
    json: JsonOption = False,
) -> None:
    """Queue ended runs again. A worker, or `run`, carries them out."""
    from toolwire.batch.states import ENDED, RETRIED  # noqa: PLC0415 - needs the extra

    for each in state or ():
        if each not in ENDED:
            raise UsageError(f"--state {each}: only ended runs can be retried: {', '.join(ENDED)}")

    async def queue(opened: "OpenBatch[Any]") -> "Progress":
        states: Any = state or RETRIED
        note(f"{await opened.retry(states, keys=key)} runs are queued again")
        return opened.progress

    _show_progress(name, _run_on_batch(name, at, queue), json=json)


def reconcile(  # noqa: PLR0917 - as above
    name: NameArgument,
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="The key of the run. Without it, the batch is shown.")
    ] = None,
    at: AtOption = None,
    cost: Annotated[
        str | None, typer.Option(metavar="DOLLARS", help="The cost of the run; 0 for nothing.")
    ] = None,
    reserved: Annotated[
        bool,
        typer.Option(
            "--reserved", help="Record the reserved amount, which is the most that it can have cost."
        ),
    ] = False,
    again: Annotated[bool, typer.Option("--retry", help="Queue the run again.")] = False,
    json: JsonOption = False,
) -> None:
    """Record the cost of a run whose worker was lost, so that no money stays reserved for it.

    Examples:

      toolwire batch reconcile review-2026-11 backend --cost 1.20    # needs an account

      toolwire batch reconcile review-2026-11 backend --cost 0 --retry    # needs an account
    """
    if key is None:
        show_(name, at, json=json)
        return
    if (cost is None) != reserved:
        raise UsageError("give the cost of the run: either --cost DOLLARS (0 for nothing) or --reserved")

    async def decide(opened: "OpenBatch[Any]") -> "Progress":
        try:
            booked = await opened.reconcile(key, cost, retry=again)
        except ValueError as error:
            raise UsageError(f"--cost: {error}") from error
        note(f"{key}: ${booked} booked")
        return opened.progress

    _show_progress(name, _run_on_batch(name, at, decide), json=json)


def export(
    name: NameArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="results.jsonl or results.csv; - for JSON lines on stdout.")
    ],
    at: AtOption = None,
) -> None:
    """Write the runs that have ended to a file, one line each."""
    table = file.suffix.lower() == TABLE
    if not table and str(file) != "-" and file.suffix.lower() not in LINES:
        raise UsageError(f"{file}: the name must end in .jsonl or .csv, or be -")

    async def write(opened: "OpenBatch[Any]") -> int:
        count = 0
        with contextlib.ExitStack() as stack:
            with _report_failed_writes(file):
                target = sys.stdout if str(file) == "-" else _create(file)
                if target is not sys.stdout:
                    stack.callback(_close, target)
                rows = csv.DictWriter(target, _COLUMNS) if table else None
                if rows is not None:
                    rows.writeheader()
            async for done in opened.ended():
                values = to_dict(done)
                count += 1
                with _report_failed_writes(file):
                    if rows is None:
                        target.write(_to_line(values, target.encoding) + "\n")
                    else:
                        cells = {name: values[name] for name in _COLUMNS}
                        rows.writerow({**cells, "output": jsons.dumps(values["output"], ensure_ascii=False)})
            with _report_failed_writes(file):
                target.flush()
        return count

    note(f"{_run_on_batch(name, at, write)} runs written")


def _close(target: TextIO) -> None:
    with contextlib.suppress(OSError):  # a failure to write was reported by `flush`
        target.close()


@contextlib.contextmanager
def _report_failed_writes(file: Path) -> Iterator[None]:
    """Raise failures to write the results as errors that name the file, unless it is stdout."""
    try:
        yield
    except OSError as error:
        if str(file) == "-":
            raise
        text = f"{file}: the results cannot be written: {error.strerror or error}"
        wrong = isinstance(
            error, FileNotFoundError | IsADirectoryError | NotADirectoryError | PermissionError
        )
        raise (UsageError if wrong else ClaudeSDKError)(text) from error


def _create(file: Path) -> TextIO:
    """Open a file for results. A lone surrogate, which UTF-8 cannot encode, becomes a question mark."""
    return file.open("w", encoding="utf-8", errors="replace", newline="")


def _to_line(values: dict[str, Any], encoding: str) -> str:
    """Return JSON on one line, with escapes if the encoding of the target lacks a character."""
    line = jsons.dumps(values, ensure_ascii=False)
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return jsons.dumps(values)
    return line


def _choose_exit_code(progress: "Progress") -> int:
    """Return the exit code for the final progress of a batch."""
    if progress.unknown:
        return SOME_UNKNOWN
    if progress.waiting or progress.running:
        return NOT_FINISHED
    return SOME_FAILED if progress.failed or progress.refused or progress.cancelled else 0


# --- the batch itself ---


def _load(text: str) -> "Batch[Any]":
    """Find the batch in a user's file."""
    stem, colon, name = text.partition(".py:")
    path = f"{stem}.py" if colon and name else text
    if not path.endswith(".py"):
        raise UsageError(f"{text}: name the file with the batch, as in review.py or review.py:name")
    module = user_module.load_file(Path(path), path)
    kind = _import().Batch
    found: dict[str, Batch[Any]] = {
        key: value for key, value in vars(module).items() if isinstance(value, kind)
    }
    if name and name not in found:
        raise UsageError(f"{path} has no batch {name!r}; it has: {', '.join(found) or 'none'}")
    if name:
        return found[name]
    distinct = {id(each): each for each in found.values()}
    if len(distinct) != 1:
        what = (
            f"has {len(distinct)} batches: choose one, {path}:{next(iter(found))}"
            if found
            else "has no Batch(...)"
        )
        raise UsageError(f"{path} {what}")
    return next(iter(distinct.values()))


def _import() -> Any:
    try:
        import toolwire.batch as package  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(str(error)) from error
    return package


def _run_on_batch(
    name: str, at: str | None, act: Callable[["OpenBatch[Any]"], Coroutine[Any, Any, Any]]
) -> Any:
    """Open an existing batch, which does not need the user's file, and return what `act` returns for it."""
    _import()
    from toolwire.batch.opened import open_existing  # noqa: PLC0415 - as above

    async def inside(_stop: asyncio.Event) -> Any:
        async with open_existing(name, at) as opened:
            return await act(opened)

    return _run(inside, drains=False)


def _run(work: Callable[[asyncio.Event], Coroutine[Any, Any, Any]], *, drains: bool = True) -> Any:
    """Run on asyncio, with the warnings of the log on stderr. Ctrl-C and SIGHUP cancel.

    SIGTERM sets the event, or ends the process if the work `drains` nothing.
    """

    async def inside() -> Any:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        handlers: dict[int, Callable[[], object]] = {signal.SIGTERM: stop.set} if drains else {}
        if task is not None:
            handlers[signal.SIGINT] = task.cancel
            # The terminal was closed. Ignored, as with nohup, it stays ignored.
            if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
                handlers[signal.SIGHUP] = task.cancel
        with contextlib.suppress(NotImplementedError):  # Windows
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
        return await work(stop)

    try:
        with shown_warnings():
            return asyncio.run(inside())
    except asyncio.CancelledError:
        raise typer.Exit(INTERRUPTED) from None


async def _read_progress(name: str, at: str | None) -> "Progress":
    from toolwire.batch.opened import open_existing  # noqa: PLC0415 - an extra

    async with open_existing(name, at) as opened:
        return opened.progress


async def _run_until(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Run `work` until it is over or `stop` is set."""
    tasks = {asyncio.create_task(work), asyncio.create_task(stop.wait())}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
    for each in done:
        each.result()


@contextlib.contextmanager
def _metrics(opened: "OpenBatch[Any]", port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    from prometheus_client import start_http_server  # noqa: PLC0415 - heavy

    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=opened.metrics)
    except OSError as error:
        raise UsageError(f"--metrics {port}: {error.strerror}") from error
    note(f"metrics at http://127.0.0.1:{port}/metrics")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def _list(at: str | None, *, json: bool) -> None:
    _import()
    from toolwire.batch.opened import list_names  # noqa: PLC0415 - an extra

    names = list_names(at)
    if json:
        show_json(names)
    elif not names:
        note("There are no batches.")
    else:
        from rich.table import Table  # noqa: PLC0415 - heavy

        table = Table("batch", box=None)
        for each in names:
            table.add_row(one_line(each))
        show(table)


def _show_progress(name: str, progress: "Progress", *, json: bool) -> None:
    if json:
        show_json({"name": name, **progress.to_dict()})
    else:
        out().print(describe(name, progress), markup=False)


batch_app = make_app(
    "batch",
    "Carry out many runs, on one machine or several: progress, budget, results.",
    (run, worker, show_, cancel, retry, reconcile, export),
)
