"""DBOS Transact as the engine of a batch. No other module imports DBOS.

A delivery is a DBOS workflow whose id is derived from the delivery, so queuing it twice starts nothing. Only keys
pass through DBOS, as JSON and never as pickle. DBOS has one instance per process: ours, or the user's.
"""

import asyncio
import contextlib
import functools
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer, EnqueueOptions, error

from toolwire._support.log import logger_for
from toolwire.batch.queue import Deliver, Delivery
from toolwire.batch.records import OPENING, call_with_retries, chunks, complete_address, make_engine
from toolwire.batch.states import POLL
from toolwire.errors import BatchError

logger = logger_for("batch")
_dbos_logger = logging.getLogger("dbos")
T = TypeVar("T")

_APPLICATION: Final = "toolwire-batch"
_VERSION: Final = "1"
"""The version of the delivery format, not of the user's code: a new version of that still gets waiting runs."""
_WORKFLOW: Final = "toolwire.batch.deliver"
_WAITING: Final = ("ENQUEUED", "DELAYED")
_OTHER_INSTANCE: Final = (
    "this process already has a DBOS instance: launch it, and pass it to the batch with open(..., dbos=DBOS)"
)
_SERIALIZER: Final = DBOSPortableJSONSerializer()


@DBOS.workflow(name=_WORKFLOW, max_recovery_attempts=None)
async def _deliver(queue: str, key: str) -> None:
    """Pass a delivery on to the open batch of this process that it belongs to."""
    owner = DbosQueue.open_queues.get(queue)
    if owner is not None:
        await owner.receive(key)


class DbosQueue:
    """A `Queue` on DBOS, in SQLite or Postgres.

    `dbos` is a launched instance of the user's, which this class never closes. `fixed` means that the user set the
    number of slots, which is then the same on every worker; otherwise each worker has its own number.
    """

    open_queues: ClassVar[dict[str, "DbosQueue"]] = {}

    def __init__(
        self,
        url: str,
        uid: str,
        executor: str,
        *,
        poll: float = POLL,
        fixed: bool = True,
        dbos: DBOS | None = None,
    ) -> None:
        self.executor = executor if dbos is None else str(DBOS.executor_id)
        self.name = f"toolwire-{uid}"
        self._uid = uid
        self._file = url.removeprefix("sqlite:///") if url.startswith("sqlite") else None
        is_postgres = url.startswith("postgresql")
        self._url = complete_address(url).render_as_string(hide_password=False) if is_postgres else url
        self._poll = poll
        self._fixed = fixed
        self._dbos = dbos
        self._filters_log = False
        self._is_taking = False
        self._client: DBOSClient | None = None
        self._engine: sa.Engine | None = None
        self._receive: Deliver | None = None
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._closing = threading.Event()
        self._database: Any = None

    async def open(self, deliver: Deliver | None, slots: int) -> None:
        """Connect. With `deliver`, start to receive deliveries, at most `slots` at a time."""
        self._receive = deliver
        if deliver is not None:
            self._check_no_other_worker()
            self.open_queues[self.name] = (
                self  # before the first await, so that two batches cannot both get here
            )
        try:
            if self._dbos is not None:
                await _check_launched()
            elif deliver is not None:
                await _refuse_other_instance()
            if self._dbos is None:
                await asyncio.to_thread(self._connect, slots, deliver is not None)
            if deliver is not None:
                await self._start_taking(slots)
        except BaseException:
            await self.close()
            raise

    def _check_no_other_worker(self) -> None:
        if self.name in self.open_queues:
            raise BatchError(
                "this batch is already open in this process: a process can have one worker per batch"
            )
        if self._dbos is None and self.open_queues:
            raise BatchError(
                "another batch executes runs in this process, and DBOS allows one instance per process: close that"
                " batch first, open this one with work=False, or pass both the same instance with dbos=..."
            )

    def _connect(self, slots: int, takes: bool) -> None:
        engine = self._engine = make_engine(self._url)
        self._call(lambda: self._create_tables(engine))
        client = self._client = self._call(
            lambda: DBOSClient(
                system_database_url=self._url, serializer=_SERIALIZER, application_name=_APPLICATION
            )
        )
        if takes:
            known = None if self._fixed else self._call(lambda: client.retrieve_queue(self.name))
            if known is not None:
                slots = max(slots, known.worker_concurrency or 1)
            self._call(
                lambda: client.register_queue(
                    self.name, worker_concurrency=slots, polling_interval_sec=self._poll
                )
            )

    def _create_tables(self, engine: sa.Engine) -> None:
        with _migration_lock(self._url):
            if self._file is not None:
                engine.connect().close()  # switches the file to WAL mode
            DBOS.migrate(self._url)

    def _call(self, act: Callable[[], T]) -> T:
        """Call DBOS while the queue is opened, where it does not retry failures of the database itself."""
        return call_with_retries(act, self._closing, OPENING, self._file)

    async def _start_taking(self, slots: int) -> None:
        if self._dbos is not None:
            self._is_taking = True
            await DBOS.register_queue_async(
                self.name,
                worker_concurrency=slots,
                polling_interval_sec=self._poll,
                on_conflict="always_update",
            )
            return
        config = DBOSConfig(
            name=_APPLICATION,
            system_database_url=self._url,
            executor_id=self.executor,
            application_version=_VERSION,
            serializer=_SERIALIZER,
            log_level="ERROR",
            run_migrations=False,
            notification_coalesce_sec=POLL,  # none are used, and polling for them 100 times a second is costly
        )
        _dbos_logger.addFilter(_shorten)
        self._filters_log = True
        instance = DBOS(config=config)
        if DBOS.executor_id != self.executor:  # not a new one, but one that the program has not launched yet
            raise BatchError(_OTHER_INSTANCE)
        self._is_taking = True
        DBOS.listen_queues([self.name])
        # In this thread, so that it finds this event loop and delivers on it. It cannot be called twice.
        call_with_retries(DBOS.launch, self._closing, patience=0)
        self._database = instance._sys_db  # noqa: SLF001 - for `stop`

    async def receive(self, key: str) -> None:
        """Handle one delivery from DBOS."""
        if self._receive is None or (self._stopping and self._dbos is not None):
            # The user's instance still receives. Never complete, so that `Worker.sweep` finds it without a worker.
            await asyncio.Event().wait()
            return
        self._active += 1
        self._idle.clear()
        try:
            await self._receive(key)
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()

    async def put(self, deliveries: Sequence[Delivery]) -> None:
        """Queue deliveries. Those that were queued before are skipped."""
        if self._dbos is not None:
            for each in deliveries:
                options = EnqueueOptions(
                    workflow_name=_WORKFLOW, queue_name=self.name, workflow_id=self._id(each),
                )  # fmt: skip
                await DBOS.enqueue_workflow_with_options_async(options, self.name, each.key)
            return
        for chunk in chunks(deliveries):
            await asyncio.to_thread(call_with_retries, functools.partial(self._put, chunk), self._closing)

    def _put(self, deliveries: Sequence[Delivery]) -> None:
        if self._client is None or self._engine is None:
            raise BatchError("the queue of the batch is closed")
        with self._engine.begin() as connection:
            for each in deliveries:
                options = EnqueueOptions(
                    workflow_name=_WORKFLOW,
                    queue_name=self.name,
                    workflow_id=self._id(each),
                    app_version=_VERSION,
                    application_name=_APPLICATION,
                )
                self._client.enqueue_in_transaction(connection, options, self.name, each.key)

    async def locate(self, deliveries: Sequence[Delivery]) -> Mapping[Delivery, str]:
        """Return where deliveries are: "" in the queue, else the executor that has it. Omits complete ones."""
        ids = {self._id(each): each for each in deliveries}
        found = await self._list(list(ids), [*_WAITING, "PENDING"])
        return {
            ids[each.workflow_id]: "" if each.status in _WAITING else str(each.executor_id) for each in found
        }

    async def cancel(self, deliveries: Sequence[Delivery]) -> None:
        """Remove deliveries from the queue. Those that were already received are left alone."""
        waiting = [each.workflow_id for each in await self._list([self._id(d) for d in deliveries], _WAITING)]
        for chunk in chunks(waiting):
            await (DBOS if self._client is None else self._client).cancel_workflows_async(chunk)

    async def _list(self, ids: list[str], states: Sequence[str]) -> list[Any]:
        found: list[Any] = []
        source: Any = DBOS if self._client is None else self._client
        for chunk in chunks(ids):
            found += await source.list_workflows_async(
                workflow_ids=chunk, status=list(states), load_input=False, load_output=False
            )
        return found

    async def stop(self, seconds: float) -> None:
        """Receive no more deliveries, and wait at most `seconds` until those received are complete."""
        if not self._is_taking:
            return
        self._is_taking = False
        self._stopping = True
        if self._dbos is None:
            if self._database is not None:
                # DBOS records the end of a delivery in threads that retry an unreachable database forever, so this
                # process could not end, and there is no option against it. Nothing depends on that record.
                self._database._retry_connection_errors = False  # noqa: SLF001
            # DBOS waits in whole seconds, so wait only if a delivery is active.
            wait = max(1, round(seconds)) if self._active and seconds > 0 else 0
            await asyncio.to_thread(DBOS.destroy, workflow_completion_timeout_sec=wait)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    async def close(self) -> None:
        """Disconnect."""
        self._closing.set()
        await self.stop(0)
        if self.open_queues.get(self.name) is self:
            del self.open_queues[self.name]
        client, self._client = self._client, None
        engine, self._engine = self._engine, None
        if client is not None:
            await asyncio.to_thread(client.destroy)
        if engine is not None:
            await asyncio.to_thread(engine.dispose)
        if self._filters_log:
            _dbos_logger.removeFilter(_shorten)

    def _id(self, delivery: Delivery) -> str:
        digest = hashlib.sha256(delivery.key.encode()).hexdigest()[:40]
        return f"{self._uid}:{digest}:{delivery.number}"


def _shorten(record: logging.LogRecord) -> bool:
    """Filter the log of DBOS: errors take one line, and those about a cancelled delivery are dropped.

    Its tracebacks help no user: what fails is delivered again.
    """
    reason = record.exc_info[1] if record.exc_info else None
    if isinstance(reason, error.DBOSAwaitedWorkflowCancelledError | error.DBOSWorkflowCancelledError):
        logger.debug("%s %s", record.getMessage(), reason)
        return False
    if reason is not None:
        text = " ".join(str(reason).split())
        record.msg, record.args = f"{record.getMessage()} {type(reason).__name__}: {text}", ()
        record.exc_info = None
    return True


async def _check_launched() -> None:
    """Raise if the user's DBOS instance cannot be used."""
    try:
        await DBOS.list_queues_async()
    except error.DBOSException as reason:
        raise BatchError(
            f"the DBOS instance in dbos= cannot be used: {reason}. Call DBOS.launch() before the batch is opened"
        ) from reason


async def _refuse_other_instance() -> None:
    """Raise if this process already has a launched DBOS instance."""
    with contextlib.suppress(error.DBOSException):
        await DBOS.list_queues_async()
        raise BatchError(_OTHER_INSTANCE)


_migrating: Final = threading.Lock()


@contextlib.contextmanager
def _migration_lock(url: str) -> Iterator[None]:
    """Let only one process of this machine create the tables of a SQLite file at a time, since DBOS would race."""
    with _migrating:
        if not url.startswith("sqlite") or os.name != "posix":
            yield
            return
        import fcntl  # noqa: PLC0415 - not available on Windows

        path = Path(url.removeprefix("sqlite:///"))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
