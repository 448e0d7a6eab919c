"""A worker: executes the runs that the queue delivers, and books how they ended.

The order of the steps keeps the money correct, whenever and however this process is killed:

    claim (records), reserve (ledger), start (records), the CLI runs, outbox, settle (ledger), finish (records)

Before `start` is recorded no CLI was started, so the money can be released. After it, the cost of the attempt is
unknown until its result is booked, from the outbox at the latest. The runs of lost workers are settled here too, by
the process that detects the loss, according to the batch's `on_lost`.
"""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import spawn
from toolwire.batch.booking import AlreadyBooked, Books, NoMoney
from toolwire.batch.definition import Batch, Run
from toolwire.batch.execution import Execution, Stop, choose_session, conclude
from toolwire.batch.lease import Lease
from toolwire.batch.observe import Observer
from toolwire.batch.outbox import Outbox
from toolwire.batch.queue import Delivery, Queue
from toolwire.batch.records import Records
from toolwire.batch.states import Claim, Outcome, RunRow, State
from toolwire.client.warm import WarmPool
from toolwire.errors import BatchError, SessionStoreError

logger = logger_for("batch")

MOST_LOST: Final = 3
"""A run that was lost this many times is held, since it may be what kills its workers."""
_LOST: Final = "the worker was lost before it reported how the run ended"
_TICK: Final = 1.0
_WARM: Final = 2
_NOTE_AFTER: Final = 2.0  # seconds; the session id of a shorter run is not recorded separately
in_thread = anyio.to_thread.run_sync


class Worker:
    """Executes runs. Without `id`, it only settles the runs of lost workers."""

    def __init__(
        self,
        batch: Batch[Any],
        id: str | None,
        *,
        records: Records,
        books: Books,
        outbox: Outbox,
        queue: Queue,
        lease: Lease,
        machine: str,
        slots: int,
        observer: Observer,
        on_change: Callable[[], None],
    ) -> None:
        self._batch = batch
        self.id = id
        self._records = records
        self._books = books
        self._outbox = outbox
        self._queue = queue
        self._lease = lease
        self._machine = machine
        self._slots = asyncio.Semaphore(slots)
        self._warm_size = min(_WARM, slots)
        self._observer = observer
        self._on_change = on_change
        self._stops: dict[str, Stop] = {}
        self._pool: WarmPool | None = None
        self._loop: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[Any]] = set()
        self._draining = False
        self.error: BaseException | None = None

    # --- start and close ---

    async def join(self) -> None:
        """Acquire the lease."""
        await self._lease.acquire(self._queue.executor, self._machine)

    async def start(self) -> None:
        """Settle the runs that lost workers left behind, and start to watch for more."""
        await self._settle_lost_workers()
        await self.sweep()
        self._loop = asyncio.create_task(self._watch())

    def stop_taking(self) -> None:
        """Start no more runs. Those whose money is reserved continue; the others will wait again."""
        self._draining = True
        for stop in self._stops.values():
            if not stop.is_booked:
                stop.set("unknown", "the process was stopped before the run started")

    def stop_runs(self, state: State, why: str) -> None:
        """Stop the runs of this worker. Each reports its cost if it can."""
        for stop in list(self._stops.values()):
            stop.set(state, why)

    async def close(self) -> None:
        """Give up the lease. If runs are still unfinished the lease stays, so that others find them as lost."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait({self._loop})
        await in_thread(self._lease.stop)
        for task in list(self._running):  # it overran its time: what it has not booked is found as lost
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=10)
        await self._close_pool()
        if self.id is not None and not self._lease.lost.is_set():
            try:
                if not await in_thread(self._records.running_of_worker, self.id):
                    await in_thread(self._records.remove_worker, self.id)
            except BatchError as error:
                logger.warning("the lease of this worker could not be removed: %s", error)

    async def _watch(self) -> None:
        """Periodically look for lost workers, and stop the runs if the batch is cancelled."""
        loop = asyncio.get_running_loop()
        tick = min(_TICK, self._lease.beat_seconds)
        next_look = 0.0
        next_sweep = loop.time() + 2 * self._lease.stale_seconds
        while self.error is None:
            self._check_lease()
            try:
                if loop.time() >= next_look:
                    next_look = loop.time() + self._lease.beat_seconds
                    await self._settle_lost_workers()
                if loop.time() >= next_sweep:
                    next_sweep = loop.time() + 2 * self._lease.stale_seconds
                    await self.sweep(pages=1)  # an undelivered run reaches the front sooner or later
                busy = self._stops or self._pool is not None
                if busy and await in_thread(self._records.is_cancelled):
                    self.stop_runs("cancelled", "the batch was cancelled")
                    await self._close_pool()
            except Exception as error:  # noqa: BLE001 - databases and engines raise many kinds, and may recover
                logger.warning("the check for lost workers and cancellation failed, will retry: %r", error)
            await asyncio.sleep(tick)

    def _check_lease(self) -> None:
        """Stop all runs if this worker was declared lost, or may have been and others would repeat its runs."""
        if self.id is None:
            return
        if self._lease.lost.is_set():
            self._fail(
                BatchError("this worker was declared lost: it sent no heartbeat for too long. Start it again")
            )
        elif self._batch.on_lost != "hold" and self._lease.unsafe and self._stops:
            self.stop_runs(
                "unknown", "the worker could not reach the database, and may have been declared lost"
            )

    def _fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            self.stop_runs("unknown", str(error))
            self._on_change()

    # --- executing a run ---

    async def deliver(self, key: str) -> None:
        """Execute a run that the queue delivers, unless it is no longer waiting."""
        # In its own task: even if the engine cancels the delivery, an attempt that has started is booked.
        task = asyncio.create_task(self._run(key))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    async def _run(self, key: str) -> None:
        async with self._slots:
            claim: Claim | None = None
            try:
                if self._draining or self.error is not None:
                    await self._redeliver_waiting(key)
                    return
                claim = await in_thread(self._records.claim, key, self.id or "", uuid.uuid4().hex)
                if claim is None:
                    await self._redeliver_waiting(key)
                else:
                    self._on_change()
                    with self._observer.run(claim) as seen:
                        seen.outcome = await self._attempt(claim)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # while this worker lives, no other one would pick up the run
                logger.exception("this worker has failed and stops")
                self._fail(error)
            finally:
                if claim is not None:
                    self._stops.pop(claim.token, None)
                self._on_change()

    async def _redeliver_waiting(self, key: str) -> None:
        """Queue a new delivery for a run that still waits and that this worker cannot execute."""
        row = await in_thread(self._records.get, key)
        if row is not None and row.state == "waiting" and not await in_thread(self._records.is_cancelled):
            await self._put(key, await in_thread(self._records.redeliver, key, row.delivery))

    async def _attempt(self, claim: Claim) -> Outcome:  # noqa: PLR0911 - each step may end the attempt
        stop = self._add_stop(claim)
        try:
            run = await self._prepare(claim, stop)
            if run is None:
                return await self._stop_unbooked(claim, stop)
            options = self._batch.options_for(run)
        except Exception as error:  # noqa: BLE001 - user code, or an item that no longer matches its type
            return await self._finish(
                claim, Outcome("failed", None, error=f"{type(error).__name__}: {error}")
            )
        if claim.resumes and options.session_store is None and claim.machine != self._machine:
            why = "the transcript is on another machine: set session_store in the options to resume on any machine"
            return await self._finish(claim, Outcome("unknown", None, error=why))
        fresh = self._batch.session_of(self._records.uid, claim.key, claim.attempt)
        try:
            options, resumes = await choose_session(options, claim, fresh)
            booking = await self._reserve(claim, stop)
        except NoMoney as error:
            return await self._finish(claim, Outcome("refused", None, error=str(error)))
        except (AlreadyBooked, SessionStoreError) as error:
            return await self._finish(claim, Outcome("unknown", None, error=str(error)))
        if booking is None:
            return await self._stop_unbooked(claim, stop)
        stop.is_booked = True
        warm = self._batch.on_lost != "resume" and not run.changes
        session = "" if warm else options.resume or options.session_id or ""
        started = await in_thread(
            self._records.start, claim, booking, self._books.per_run, session, self._machine
        )
        if not started:  # the batch was cancelled, or this worker was declared lost
            await self._books.release(booking)
            if await in_thread(self._records.is_cancelled):
                return await self._finish(claim, Outcome("cancelled", None, error="the batch was cancelled"))
            return await self._return_to_queue(claim)  # no effect if another worker has the run
        if self._batch.on_lost != "hold" and self._lease.unsafe:
            await self._books.release(booking)
            return await self._return_to_queue(claim)
        return await self._execute(claim, run, booking, stop, options, resumes=resumes, warm=warm)

    def _add_stop(self, claim: Claim) -> Stop:
        stop = self._stops[claim.token] = Stop()
        if self._draining:
            self.stop_taking()
        return stop

    async def _prepare(self, claim: Claim, stop: Stop) -> Run | None:
        """Call the user's task, limited by the batch's timeout; None if the run was stopped meanwhile."""
        making = asyncio.create_task(self._batch.prepare(claim.key, claim.item))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait(
                {making, stopped}, timeout=self._batch.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if making.cancelled():  # by user code, not by us: this worker continues
                raise BatchError("the @batch.task function cancelled itself")
            if making.done():
                return making.result()
            if stop.is_set:
                return None
            raise BatchError(f"the @batch.task function took longer than {self._batch.timeout:g} seconds")
        finally:
            stopped.cancel()
            making.cancel()

    async def _stop_unbooked(self, claim: Claim, stop: Stop) -> Outcome:
        """End a run that was stopped before its money was reserved: cancel it, or set it to waiting again."""
        if stop.state == "cancelled":
            return await self._finish(claim, Outcome("cancelled", None, error=stop.why))
        return await self._return_to_queue(claim)

    async def _return_to_queue(self, claim: Claim) -> Outcome:
        """Set a run that was not started to waiting again."""
        number = await in_thread(
            lambda: self._records.put_back(claim, cost=None, error="", resumes=claim.resumes, lost=False)
        )
        await self._put(claim.key, number)
        return Outcome("waiting", None)

    async def _reserve(self, claim: Claim, stop: Stop) -> str | None:
        """Reserve the money of an attempt; None if it was stopped while waiting for the money."""
        reserve = asyncio.create_task(self._books.reserve(claim))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({reserve, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if reserve.done():
                return reserve.result()
            return None
        finally:
            stopped.cancel()
            if not reserve.done():
                reserve.cancel()
                await asyncio.wait({reserve})
                # It may have been booked anyway.
                await self._books.release_unstarted(claim.key, claim.attempt)

    async def _execute(
        self, claim: Claim, run: Run, booking: str, stop: Stop, options: Any, *, resumes: bool, warm: bool
    ) -> Outcome:
        content = {
            "uid": self._records.uid,
            "key": claim.key,
            "attempt": claim.attempt,
            "booking": booking,
            "worker": claim.worker,
        }
        written: list[Path] = []

        def keep(result: dict[str, Any]) -> None:
            stopped = {"stopped": stop.state, "why": stop.why} if stop.is_set else {}
            written[:] = [
                self._outbox.write(claim.key, claim.attempt, {**content, **stopped, "result": result})
            ]

        noting: list[asyncio.TimerHandle] = []

        def note(session: str) -> None:
            if warm:  # a warm CLI has its own session id; for a run that ends soon the result has it
                record = partial(spawn, in_thread, self._records.note_session, claim, session)
                noting.append(asyncio.get_running_loop().call_later(_NOTE_AFTER, record))

        execution = Execution(self._batch, stop, keep, note)
        pool = await self._get_pool() if warm else None
        try:
            outcome = await execution.carry_out(run, options, resumes=resumes, pool=pool)
        finally:
            for handle in noting:
                handle.cancel()
        path = written[0] if written else None
        if path is not None:
            await in_thread(self._outbox.sync, path)
        outcome = await self._book_cost(booking, outcome)
        ended = await self._finish_or_requeue(claim, outcome, stop)
        if path is not None:
            await in_thread(self._outbox.remove, path)  # in a thread: it may wait for the disk
        return ended

    async def _book_cost(self, booking: str, outcome: Outcome) -> Outcome:
        """Book the cost of an attempt. Return its outcome with the cost that is booked."""
        if outcome.cost is None:
            await self._books.mark_unknown(booking, outcome.error)
            return outcome
        return replace(outcome, cost=await self._books.settle(booking, outcome.cost))

    async def _finish_or_requeue(self, claim: Claim, outcome: Outcome, stop: Stop) -> Outcome:
        """Record the end of the run, or set it to waiting for another attempt."""
        on_lost = self._batch.on_lost
        known = outcome.cost is not None and not outcome.retryable
        if stop.is_set and outcome.state == "unknown" and known and on_lost != "hold":
            # This worker was declared lost, so another one decides what happens to the run.
            await in_thread(self._records.charge, claim.key, claim.attempt, outcome.cost or 0)
            return outcome
        # stopped before its prompt was sent
        not_prompted = stop.is_set and outcome.retryable and outcome.state != "cancelled"
        again = not_prompted or (
            outcome.retryable and claim.attempt < self._batch.attempts and not stop.is_set
        )
        lost = outcome.cost is None and not stop.is_set and on_lost != "hold"
        if lost:
            row = await in_thread(self._records.get, claim.key)
            lost = row is not None and row.lost + 1 < MOST_LOST
        if not again and not lost:
            return await self._finish(claim, outcome)
        number = await in_thread(
            lambda: self._records.put_back(
                claim,
                cost=outcome.cost,
                error=outcome.error,
                resumes=(lost and on_lost == "resume") or (not_prompted and claim.resumes),
                lost=lost,
            )
        )
        await self._put(claim.key, number)
        return outcome

    async def _finish(self, claim: Claim, outcome: Outcome) -> Outcome:
        outcome = _resolve_known(outcome)
        await in_thread(self._records.finish, claim.key, claim.attempt, claim.worker, outcome)
        return outcome

    async def _put(self, key: str, number: int | None) -> None:
        if number is not None:
            await self._queue.put([Delivery(key, number)])

    # --- CLIs started ahead of time ---

    async def _get_pool(self) -> WarmPool:
        """Return the pool of CLIs started ahead of time, for runs that can use any session id."""
        if self._pool is None:
            self._pool = WarmPool(self._batch.options_for(Run("-")), size=self._warm_size)
            await self._pool.__aenter__()
        return self._pool

    async def _close_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    # --- lost workers ---

    async def _settle_lost_workers(self) -> None:
        """Settle the runs of lost workers, according to the batch's `on_lost`."""
        lost = await self._lease.find_lost()
        if not lost:
            return
        await self.flush_outbox()
        for worker in lost:
            for row in await in_thread(self._records.running_of_worker, worker):
                await self._settle_lost_run(row)
            await in_thread(self._records.remove_worker, worker)
            logger.warning("worker %s was lost; its runs were settled", worker)
        await self.sweep()
        self._on_change()

    async def _settle_lost_run(self, row: RunRow) -> None:
        if not row.booking:  # its CLI was not started
            await self._books.release_unstarted(row.key, row.attempt)
            number = await in_thread(
                lambda: self._records.mark_lost(row, hold=False, resumes=bool(row.resumes), error="")
            )
        else:
            await self._books.mark_unknown(row.booking, _LOST)
            hold = self._batch.on_lost == "hold" or row.lost + 1 >= MOST_LOST
            resumes = self._batch.on_lost == "resume"
            number = await in_thread(
                lambda: self._records.mark_lost(row, hold=hold, resumes=resumes, error=_LOST)
            )
        await self._put(row.key, number)

    async def flush_outbox(self) -> None:
        """Book the results that dead workers of this machine left in the outbox."""
        pending = await in_thread(lambda: list(self._outbox.pending()))
        if not pending:
            return
        alive = {row["id"] for row in await in_thread(self._records.workers) if not row["gone"]}
        for path, content in pending:
            if content.get("uid") != self._records.uid:
                logger.warning(
                    "the result in %s belongs to another batch of the same name and is left in place", path
                )
            elif content.get("worker") not in alive:
                await self._book_from_outbox(path, content)

    async def _book_from_outbox(self, path: Path, content: dict[str, Any]) -> None:
        if not await in_thread(self._outbox.sync, path):
            return
        key, attempt = str(content["key"]), int(content["attempt"])
        outcome = conclude(self._batch, content["result"], content.get("stopped"), content.get("why", ""))
        outcome = await self._book_cost(content["booking"], outcome)
        kept = await in_thread(
            self._records.finish, key, attempt, str(content["worker"]), _resolve_known(outcome)
        )
        await in_thread(self._outbox.remove, path)
        logger.warning(
            "found a result of run %s in the outbox: booked %s", key, "it" if kept else "only its cost"
        )

    async def sweep(self, pages: int | None = None) -> None:
        """Queue new deliveries for waiting runs whose delivery, or the worker that received it, was lost."""
        after = 0
        while (pages is None or pages > 0) and (
            rows := await in_thread(self._records.in_state, "waiting", after)
        ):
            pages = None if pages is None else pages - 1
            after = rows[-1][0]
            deliveries = [Delivery(row.key, row.delivery) for _, row in rows]
            found = await self._queue.locate(deliveries)
            living = {row["executor"] for row in await in_thread(self._records.workers) if not row["gone"]}
            new: list[Delivery] = []
            for delivery in deliveries:
                where = found.get(delivery)
                if where is None or (where and where not in living):
                    number = await in_thread(self._records.redeliver, delivery.key, delivery.number)
                    new += [] if number is None else [Delivery(delivery.key, number)]
            if new:
                logger.warning("%d waiting runs had no delivery and were queued again", len(new))
                await self._queue.put(new)


def _resolve_known(outcome: Outcome) -> Outcome:
    """Turn the outcome of a stopped run from unknown to failed if its cost is known after all."""
    if outcome.state == "unknown" and outcome.cost is not None:
        return replace(outcome, state="failed", retryable=False)
    return outcome
