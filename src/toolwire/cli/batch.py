"""`toolwire batch`: the command group.

`run` and `worker` need the user's file, because its functions run in this process. The others know a batch by its
name and read its databases. Items come from a file, and results go into one: JSON lines or CSV.

Exit codes: 0 all is done; 1 an error; 2 wrong use; 3 some runs failed, were refused or cancelled; 4 some are
unknown; 130 Ctrl-C.
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
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.batch import Batch, OpenBatch, Progress

SOME_FAILED: Final = 3
SOME_UNKNOWN: Final = 4
_COLUMNS: Final = ("key", "state", "output", "text", "cost", "error", "attempts", "session_id")
_FEW: Final = 20

AtOption = Annotated[
    str | None,
    typer.Option("--at", metavar="PLACE", help="postgresql://... or a folder. Default: a folder of yours."),
]
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The file with the Batch: review.py, or review.py:name.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the batch.")]
MetricsOption = Annotated[
    int | None,
    typer.Option("--metrics", metavar="PORT", min=1, max=65535, help="Serve Prometheus metrics on loopback."),
]


def run(  # noqa: PLR0917 - typer takes them by position
    file: FileArgument,
    tasks: Annotated[
        Path | None,
        typer.Argument(help="The items: tasks.jsonl or tasks.csv. Without: go on with what waits."),
    ] = None,
    at: AtOption = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="FIELD", help="The field with the key. Default: key, then id."),
    ] = None,
    work: Annotated[
        bool,
        typer.Option(
            "--work/--no-work", help="Carry out runs in this process too, or leave that to workers."
        ),
    ] = True,
    metrics: MetricsOption = None,
    json: JsonOption = False,
) -> None:
    """Add items to a batch, carry out its runs, and show how far it is.

    A key that is known is skipped, so the same command goes on where it was.

    Examples:

      toolwire batch run review.py tasks.jsonl    # needs an account

      toolwire batch run review.py tasks.csv --key name --at postgresql://toolwire@db/batches    # needs an account
    """
    batch = _load(file)
    if tasks is not None:
        check_items(tasks, key, batch.encode)
    screen = Screen(batch.name, json=json)

    async def drive(stop: asyncio.Event) -> "Progress":
        async with batch.open(at, work=work) as opened:
            with _metrics(opened, metrics), screen.live(opened):
                if tasks is not None:
                    added = await opened.add(read_items(tasks, key))
                    note(f"{added} new, {opened.progress.total} in all, at {opened.place.shown}")
                await _run_until(_show_results(opened, screen), stop)
                return await opened.refresh()

    progress = _run(drive)
    screen.end(progress)
    raise typer.Exit(_choose_exit_code(progress))


def worker(
    file: FileArgument,
    at: AtOption = None,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="End when no run waits or runs any more.")
    ] = False,
    metrics: MetricsOption = None,
) -> None:
    """Carry out runs of a batch, until SIGTERM or Ctrl-C. SIGTERM lets those that run come to their end.

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
        str | None, typer.Argument(metavar="[NAME]", help="The name of the batch. Without: list them.")
    ] = None,
    at: AtOption = None,
    json: JsonOption = False,
) -> None:
    """Show how far a batch is, what failed, and what is unknown; without a name, list the batches."""
    if name is None:
        _list(at, json=json)
        return

    async def look(opened: "OpenBatch[Any]") -> tuple["Progress", list[dict[str, Any]], list[Any]]:
        return await opened.refresh(), await opened.unknown(), await opened.first("failed", _FEW)

    progress, unknown, failed = _with(name, at, look)
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
        note(f"Say what they cost: toolwire batch reconcile {name} KEY --cost DOLLARS")


def cancel(name: NameArgument, at: AtOption = None, json: JsonOption = False) -> None:
    """Cancel a batch: nothing begins any more, and what runs is stopped. Returns when all of it has ended."""
    _show_progress(name, _with(name, at, lambda opened: opened.cancel()), json=json)


def retry(
    name: NameArgument,
    at: AtOption = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="failed, refused, cancelled, unknown, done. Default: the first three."),
    ] = None,
    key: Annotated[list[str] | None, typer.Option("--key", help="Only this run. Repeatable.")] = None,
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

    _show_progress(name, _with(name, at, queue), json=json)


def reconcile(  # noqa: PLR0917 - as above
    name: NameArgument,
    key: Annotated[str | None, typer.Argument(help="The run. Without: list what is unknown.")] = None,
    at: AtOption = None,
    cost: Annotated[
        str | None, typer.Option("--cost", metavar="DOLLARS", help="What it cost: 0 for nothing.")
    ] = None,
    reserved: Annotated[
        bool, typer.Option("--reserved", help="Book all that was reserved: the most that it may have cost.")
    ] = False,
    again: Annotated[bool, typer.Option("--retry", help="Queue the run again.")] = False,
    json: JsonOption = False,
) -> None:
    """Say what runs cost whose worker was lost, so that their money is no longer held.

    Examples:

      toolwire batch reconcile review-2026-11 backend --cost 1.20    # needs an account

      toolwire batch reconcile review-2026-11 backend --cost 0 --retry    # needs an account
    """
    if key is None:
        show_(name, at, json=json)
        return
    if (cost is None) != reserved:
        raise UsageError("say what the run cost: either --cost DOLLARS (0 for nothing) or --reserved")

    async def decide(opened: "OpenBatch[Any]") -> "Progress":
        try:
            booked = await opened.reconcile(key, cost, retry=again)
        except ValueError as error:
            raise UsageError(f"--cost: {error}") from error
        note(f"{key}: ${booked} booked")
        return opened.progress

    _show_progress(name, _with(name, at, decide), json=json)


def export(
    name: NameArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="results.jsonl or results.csv; - is JSON lines on stdout.")
    ],
    at: AtOption = None,
) -> None:
    """Write the runs that have ended to a file, one line each."""
    table = file.suffix.lower() == TABLE
    if not table and str(file) != "-" and file.suffix.lower() not in LINES:
        raise UsageError(f"{file}: the name must end in .jsonl or .csv, or be -")

    async def write(opened: "OpenBatch[Any]") -> int:
        count = 0
        with contextlib.nullcontext(sys.stdout) if str(file) == "-" else _create(file) as target:
            rows = csv.DictWriter(target, _COLUMNS) if table else None
            if rows is not None:
                rows.writeheader()
            async for done in opened.ended():
                values = to_dict(done)
                count += 1
                if rows is None:
                    target.write(_to_line(values, target.encoding) + "\n")
                else:
                    cells = {name: values[name] for name in _COLUMNS}
                    rows.writerow({**cells, "output": jsons.dumps(values["output"], ensure_ascii=False)})
        return count

    note(f"{_with(name, at, write)} runs written")


def _create(file: Path) -> TextIO:
    """Open a file for results. Half a surrogate pair, which is no valid text, becomes a question mark."""
    return file.open("w", encoding="utf-8", errors="replace", newline="")


def _to_line(values: dict[str, Any], encoding: str) -> str:
    """Write JSON on one line, escaped if the target cannot keep a character of it."""
    line = jsons.dumps(values, ensure_ascii=False)
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return jsons.dumps(values)
    return line


def _choose_exit_code(progress: "Progress") -> int:
    """Return the exit code for how far a batch is."""
    if progress.unknown:
        return SOME_UNKNOWN
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


def _with(name: str, at: str | None, act: Callable[["OpenBatch[Any]"], Coroutine[Any, Any, Any]]) -> Any:
    """Do something with a batch that is there, without its user's file."""
    _import()
    from toolwire.batch.opened import open_existing  # noqa: PLC0415 - as above

    async def inside(_stop: asyncio.Event) -> Any:
        async with open_existing(name, at) as opened:
            return await act(opened)

    return _run(inside)


def _run(work: Callable[[asyncio.Event], Coroutine[Any, Any, Any]]) -> Any:
    """Run on asyncio, with the warnings of the log on stderr. SIGTERM sets the event, Ctrl-C cancels."""

    async def inside() -> Any:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        handlers: dict[int, Callable[[], object]] = {signal.SIGTERM: stop.set}
        if task is not None:
            handlers[signal.SIGINT] = task.cancel
        with contextlib.suppress(NotImplementedError):  # Windows
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
        return await work(stop)

    try:
        with shown_warnings():
            return asyncio.run(inside())
    except asyncio.CancelledError:
        raise typer.Exit(INTERRUPTED) from None


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


async def _show_results(opened: "OpenBatch[Any]", screen: Screen) -> None:
    async for done in opened.results():
        screen.result(done, opened.progress)


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
        note("there are no batches here")
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
    "Many runs on one machine or many: progress, budget, results.",
    (run, worker, show_, cancel, retry, reconcile, export),
)
