"""An open batch: adds runs, reads results, and carries out the user's decisions (cancel, retry, reconcile).

Creates the parts and closes them: records, ledger, outbox, queue, lease, worker. Reads results page by page, so
that memory use does not grow with their number.
"""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import anyio

from toolwire._support.log import logger_for
from toolwire.batch.booking import Books, attempt_of
from toolwire.batch.dbos_queue import DbosQueue
from toolwire.batch.definition import Batch, Money
from toolwire.batch.lease import Lease, new_worker_id
from toolwire.batch.observe import Observer
from toolwire.batch.outbox import Outbox
from toolwire.batch.place import Place, count_slots, find_machine, find_place, report_unusable_folders
from toolwire.batch.queue import Delivery, Queue
from toolwire.batch.records import Records, make_engine
from toolwire.batch.states import (
    BEAT,
    ENDED,
    POLL,
    RETRIED,
    STALE,
    STATES,
    Done,
    Progress,
    RunRow,
    State,
    to_dollars,
)
from toolwire.batch.worker import Worker
from toolwire.catalog.ledger.opening import open_ledger
from toolwire.catalog.ledger.sql_ledger import Ledger
from toolwire.catalog.money import micros
from toolwire.errors import BatchError, OutputValidationError

logger = logger_for("batch")
T = TypeVar("T")
in_thread = anyio.to_thread.run_sync
read_in_thread = partial(anyio.to_thread.run_sync, abandon_on_cancel=True)
"""Like `in_thread`, for functions that only read: a cancelled caller does not wait for an unreachable database."""

Items = Mapping[str, Any] | Iterable[tuple[str, Any]] | AsyncIterable[tuple[str, Any]]
_CHUNK: Final = 500
_PAGE: Final = 200
_REFRESH_EVERY: Final = 0.5  # seconds between updates of the progress while results arrive
_CANCEL: Final = 30.0  # seconds that cancelled runs have to end
_FOREVER: Final = 10 * 365 * 86400.0  # seconds
_STOP_TIMEOUT: Final = 15.0  # seconds that stopped runs have to end, and databases to become reachable


class OpenBatch(Generic[T]):
    """An open batch, returned by `Batch.open()`."""

    def __init__(
        self,
        batch: Batch[T],
        at: str | Path | None = None,
        *,
        work: bool = True,
        ledger: Ledger | str | Path | None = None,
        dbos: Any = None,
        poll: float = POLL,
        beat: float = BEAT,
        stale: float = STALE,
    ) -> None:
        self.batch = batch
        self.place: Place = find_place(at, batch.name)
        self._poll = poll
        self._work = work
        self._dbos = dbos
        self._beat = beat
        self._stale = stale
        self._given_ledger = ledger
        self._observer = Observer(batch.name)
        self._changed = asyncio.Event()
        self._records: Records
        self._books: Books
        self._queue: Queue
        self._worker: Worker
        self._progress = Progress()
        self._stack = AsyncExitStack()
        self._closed = False

    # --- open and close ---

    async def start(self, *, existing: bool = False) -> None:
        """Open the databases, settle what lost workers left behind, and start to work.

        With `existing`, only open the databases of a batch that exists.
        """
        try:
            with report_unusable_folders():
                if self.place.folder is not None:
                    self.place.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                await self._start(existing=existing)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._stack.aclose()
            raise

    async def _start(self, *, existing: bool) -> None:
        batch = self.batch
        records = self._records = self._open_records()
        await in_thread(records.prepare)
        if existing:
            await in_thread(records.find, batch.name)
        else:
            before = await in_thread(records.create, batch.name, batch.settings)
            _warn_of_changes(batch, before)
        ledger = await in_thread(self._open_ledger)
        self._books = Books(ledger, batch.name, records.uid, batch.per_run or 0, batch.budget)
        self._stack.push_async_callback(self._books.aclose)
        slots = batch.concurrency or count_slots()
        worker = new_worker_id() if self._work else None
        heartbeat_records = self._open_records()
        self._queue = DbosQueue(
            self.place.queue, records.uid, worker or "", poll=self._poll, fixed=batch.concurrency is not None,
            dbos=self._dbos,
        )  # fmt: skip
        self._stack.push_async_callback(self._queue.close)
        self._worker = Worker(
            batch,
            worker,
            records=records,
            books=self._books,
            outbox=Outbox(self.place.outbox),
            queue=self._queue,
            lease=Lease(
                records, worker, beat=self._beat, stale=self._stale, heartbeat_records=heartbeat_records
            ),
            machine=find_machine(),
            slots=slots,
            observer=self._observer,
            on_change=self._changed.set,
        )
        self._observer.start()
        self._stack.callback(self._observer.end)
        # The lease comes first: a delivery may arrive at once, and needs a worker with a valid lease.
        await self._worker.join()
        self._stack.push_async_callback(self._worker.close)
        await self._queue.open(self._worker.deliver if self._work else None, slots)
        if not existing:  # settling runs needs the settings of the user's file
            await self._worker.flush_outbox()
            await self._worker.start()
        await self.refresh()

    def _open_records(self) -> Records:
        records = Records(make_engine(self.place.records))
        self._stack.push_async_callback(in_thread, records.close)
        return records

    def _open_ledger(self) -> Ledger:
        given = self.place.ledger if self._given_ledger is None else self._given_ledger
        if not isinstance(given, str | Path):
            return given
        ledger = open_ledger(given)
        self._stack.push_async_callback(in_thread, ledger.close)
        return ledger

    async def close(self, drain: float | None = None) -> None:
        """Start no more runs, wait at most `drain` seconds for those of this process, and close.

        With `drain=None` wait until they end. With `drain=0` stop them; each reports its cost if it can.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._worker.stop_taking()
            if drain == 0 or self._worker.error is not None:
                self.stop_runs()
                drain = _STOP_TIMEOUT
                asyncio.get_running_loop().call_later(_STOP_TIMEOUT, self._stop_retrying)
            await self._queue.stop(_FOREVER if drain is None else drain)
            if drain is not None:
                self.stop_runs()
        finally:
            await self._stack.aclose()

    def _stop_retrying(self) -> None:
        """Give up on databases that are unreachable. Results that are not booked are in the outbox."""
        self._records.stop_retrying()
        self._books.stop_retrying()

    def stop_runs(self) -> None:
        """Stop the runs of this process. Each reports its cost if it can."""
        self._worker.stop_runs("unknown", "the process that ran it was stopped")

    # --- runs ---

    async def add(self, items: Items) -> int:
        """Add runs from a mapping of keys to items, or from an iterable or async iterable of pairs.

        Return how many are new. A key that exists is skipped, whatever the state of its run. Items are stored as
        JSON: any JSON value, dataclasses and Pydantic models. Raises if the batch is cancelled meanwhile.
        """
        if isinstance(items, str | bytes) or not isinstance(items, Mapping | Iterable | AsyncIterable):
            raise BatchError(
                f"add() needs a mapping of keys to items, or pairs of a key and an item, got {type(items).__name__}"
            )
        new = 0
        chunk: dict[str, str] = {}
        was_cancelled = await in_thread(self._records.is_cancelled)
        async for key, item in _pairs(items):
            chunk.setdefault(key, self.batch.encode(key, item))
            if len(chunk) >= _CHUNK:
                new += await self._add(chunk, more=new > 0 or not was_cancelled)
                chunk = {}
        if chunk:
            new += await self._add(chunk, more=new > 0 or not was_cancelled)
        await self.refresh()
        return new

    async def _add(self, chunk: dict[str, str], *, more: bool) -> int:
        """Add some of the runs of `add`. With `more`, the batch was not cancelled when the last ones were added."""
        new = await in_thread(partial(self._records.add, list(chunk.items()), more=more))
        if new:
            # If this process dies here, the next one that opens the batch delivers them.
            await self._queue.put([Delivery(key, 1) for key in new])
        return len(new)

    async def results(self) -> AsyncIterator[Done[T]]:
        """Yield the runs that have ended, those of earlier starts first, until no run is waiting or running.

        A run that was unknown is yielded again if its result arrives late.
        """
        last, looked = 0, 0.0
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            open_before = await read_in_thread(self._records.has_open)
            rows = await read_in_thread(self._records.ended_after, last, _PAGE)
            if loop.time() > looked + _REFRESH_EVERY:
                looked = loop.time()
                await self.refresh()
            for row in rows:
                last = row.finished
                yield self._decode(row)
            if rows:
                continue
            if self._worker.error is not None:
                raise self._worker.error
            if not open_before:
                await self.refresh()
                return
            await self._wait_for_change()

    async def ended(self) -> AsyncIterator[Done[T]]:
        """Yield the runs that have ended so far, in the order in which they ended."""
        last = 0
        while rows := await in_thread(self._records.ended_after, last, _PAGE):
            for row in rows:
                last = row.finished
                yield self._decode(row)

    async def first(self, state: State, most: int) -> list[Done[T]]:
        """Return the first `most` runs in a state, in the order in which they were added."""
        rows = await in_thread(self._records.in_state, state, 0, most)
        return [self._decode(row) for _, row in rows]

    async def _wait_for_change(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._poll):
                await self._changed.wait()

    def _decode(self, row: RunRow) -> Done[T]:
        kept = json.loads(row.result) if row.result else {}
        output, error = None, row.error
        if row.state == "done":
            try:
                output = self.batch.decode_output(kept.get("output"), kept.get("text") or "")
            except OutputValidationError as misfit:  # output_type has changed since
                error = str(misfit)
        return Done(
            row.key,
            row.state,
            output,  # type: ignore[arg-type]  # of the batch's type if there is one
            kept.get("text") or "",
            to_dollars(row.cost),
            error,
            row.attempt,
            kept.get("session_id") or row.session,
            kept.get("usage"),
        )

    async def work(self, *, stop: asyncio.Event | None = None, until_done: bool = False) -> None:
        """Execute runs until `stop` is set, or with `until_done` until no run is waiting or running.

        Raises if this worker has failed, for example because it was declared lost.
        """
        while stop is None or not stop.is_set():
            self._changed.clear()
            if self._worker.error is not None:
                raise self._worker.error
            if until_done and not await read_in_thread(self._records.has_open):
                return
            waits = [asyncio.create_task(self._changed.wait())]
            if stop is not None:
                waits.append(asyncio.create_task(stop.wait()))
            try:
                await asyncio.wait(waits, timeout=self._poll, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()

    # --- progress ---

    @property
    def progress(self) -> Progress:
        """The progress of the batch as of the last `refresh()`."""
        return self._progress

    async def refresh(self) -> Progress:
        """Read and return the current progress of the batch."""
        counts = await read_in_thread(self._records.counts)
        spent, reserved, unknown = await self._books.sums()
        budget = self.batch.budget
        self._progress = Progress(
            **{state: int(counts.get(state, 0)) for state in STATES},
            spent=to_dollars(spent),
            reserved=to_dollars(reserved + unknown),
            budget=None if budget is None else to_dollars(budget),
            workers=int(counts["workers"]),
        )
        self._observer.progress(self._progress)
        return self._progress

    @property
    def metrics(self) -> Any:
        """The Prometheus registry with the metrics of this process, for the program to serve or write."""
        return self._observer.registry

    @property
    def lost(self) -> BaseException | None:
        """Why this worker has failed; None while it works."""
        return self._worker.error

    # --- decisions of the user ---

    async def cancel(self) -> Progress:
        """Cancel the batch: no run starts any more, and running ones are stopped. Returns when all have ended.

        `retry(["cancelled"])` or `add()` continues the batch. Raises `BatchError` if a run does not end in time.
        """
        waiting = await in_thread(self._records.cancel)
        self._worker.stop_runs("cancelled", "the batch was cancelled")
        await self._queue.cancel([Delivery(*each) for each in waiting])
        loop = asyncio.get_running_loop()
        until = loop.time() + _CANCEL
        while (progress := await self.refresh()).running:
            if loop.time() > until:
                raise BatchError(
                    f"{progress.running} runs have not ended {_CANCEL:g} seconds after the batch was cancelled:"
                    " no new run starts, but their workers may be lost. Start a worker, which settles the runs of"
                    " lost ones"
                )
            await asyncio.sleep(0.05)
        return progress

    async def retry(self, states: Sequence[State] = RETRIED, *, keys: Sequence[str] | None = None) -> int:
        """Queue ended runs again: those in `states`, and with `keys` only these. Return how many.

        By default the failed, refused and cancelled ones. Done and unknown runs are retried only if `states` names
        them, since they may then be paid twice.
        """
        for state in states:
            if state not in ENDED:
                raise BatchError(f"runs in state {state!r} cannot be retried; choose from {', '.join(ENDED)}")
        keys = None if keys is None else list(keys)
        for key in keys or ():
            if await in_thread(self._records.get, key) is None:
                raise BatchError(f"batch {self.batch.name!r} has no run {key!r}")
        queued = await in_thread(self._records.retry, states, keys)
        await in_thread(self._records.clear_cancelled)
        await self._queue.put([Delivery(*each) for each in queued])
        await self.refresh()
        return len(queued)

    async def unknown(self) -> list[dict[str, Any]]:
        """List the attempts of unknown cost: key, attempt, booking, reserved dollars, why, state, session id."""
        found = []
        for booking in await self._books.unknown():
            key, attempt = attempt_of(booking)
            row = await in_thread(self._records.get, key)
            found.append(
                {
                    "key": key,
                    "attempt": attempt,
                    "booking": booking.id,
                    "reserved": to_dollars(booking.reserved),
                    "why": booking.why,
                    "state": "" if row is None else row.state,
                    "session_id": "" if row is None else row.session,
                }
            )
        return found

    async def reconcile(self, key: str, cost: Money | None = None, *, retry: bool = False) -> Decimal:
        """Set the total cost of the unknown attempts of a run, in dollars; None means all that was reserved.

        The run then counts as failed, or with `retry` is queued again. Return the cost that was booked.
        """
        amount = None if cost is None else micros(cost)
        bookings = [each for each in await self._books.unknown() if attempt_of(each)[0] == key]
        row = await in_thread(self._records.get, key)
        if row is None:
            raise BatchError(f"batch {self.batch.name!r} has no run {key!r}")
        if not bookings and row.state == "running":
            raise BatchError(
                f"run {key!r} is running: its cost is booked when it ends. If its worker was lost, start another"
                " one, which settles it"
            )
        if not bookings and row.state != "unknown":
            raise BatchError(f"run {key!r} is {row.state}, and the cost of all its attempts is known")
        closed, recorded = await self._books.closed(key), await in_thread(self._records.costs_of, key)
        costs = {attempt_of(each)[1]: each.actual or 0 for each in closed}
        # If an earlier call of this was interrupted, what it has booked is not booked again. Only attempts that
        # were unknown have a reason (`why`).
        total = sum(each.actual or 0 for each in closed if each.why and attempt_of(each)[1] not in recorded)
        left = None if amount is None else max(0, amount - total)
        for booking in bookings:
            cost = costs[attempt_of(booking)[1]] = await self._books.resolve(booking.id, left)
            left, total = None if left is None else 0, total + cost
        await in_thread(self._records.resolve, key, costs, "reconciled by a person: the run counts as failed")
        if retry:
            await self.retry(["failed"], keys=[key])
        await self.refresh()
        return to_dollars(total)


@asynccontextmanager
async def open_existing(name: str, at: str | Path | None = None) -> AsyncIterator[OpenBatch[Any]]:
    """Open an existing batch by its name alone, to inspect, cancel, retry or reconcile it. Nothing is executed."""
    place = find_place(at, name)
    settings = None
    with report_unusable_folders():
        exists = place.folder is None or (place.folder / "runs.db").exists()
    if exists:
        with closing(Records(make_engine(place.records))) as records:
            await in_thread(records.prepare)
            settings = await in_thread(records.find, name)
    if settings is None:
        known = await in_thread(list_names, at)
        hint = f"; existing batches: {', '.join(known[:10])}" if known else ""
        raise BatchError(f"there is no batch {name!r} at {place.shown}{hint}")
    batch: Batch[Any] = Batch(
        name,
        on_lost=settings["on_lost"],
        attempts=settings["attempts"],
        budget=None if settings["budget"] is None else to_dollars(settings["budget"]),
        per_run=None if settings["per_run"] is None else to_dollars(settings["per_run"]),
    )
    opened: OpenBatch[Any] = OpenBatch(batch, at, work=False)
    await opened.start(existing=True)
    try:
        yield opened
    finally:
        with anyio.CancelScope(shield=True):
            await opened.close(0)


@report_unusable_folders()
def list_names(at: str | Path | None = None) -> list[str]:
    """List the names of the batches stored at `at`, or by default in the user's state folder."""
    folders = [find_place(at, "-")] if at is not None else []
    if at is None:
        base = find_place(None, "-").outbox.parents[1]
        folders = [find_place(each, "-") for each in sorted(base.glob("*")) if (each / "runs.db").exists()]
    names: list[str] = []
    for place in folders:
        if place.folder is not None and not (place.folder / "runs.db").exists():
            continue
        with closing(Records(make_engine(place.records))) as records:
            records.prepare()
            names += records.names()
    return names


async def _pairs(items: Items) -> AsyncIterator[tuple[str, Any]]:
    if isinstance(items, AsyncIterable):
        async for pair in items:
            yield _pair(pair)
    else:
        for pair in items.items() if isinstance(items, Mapping) else items:
            yield _pair(pair)


def _pair(pair: Any) -> tuple[str, Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:  # noqa: PLR2004 - a key and an item
        raise BatchError(f"add() needs pairs of a key and an item, got {str(pair)[:80]!r}")
    return pair[0], pair[1]


def _warn_of_changes(batch: Batch[Any], before: dict[str, Any]) -> None:
    """Log the settings that differ from the last start. The new ones apply from now on."""
    changed = [name for name, value in batch.settings.items() if before.get(name) != value]
    if changed:
        logger.info("batch %s has changed settings: %s", batch.name, ", ".join(changed))
