"""Worker threads for sync functions, with a policy of our own.

- At most `limit` run at once; further calls wait for a free one.
- They are daemon threads: one that hangs never keeps Python from exiting.
- A call that is cancelled is given up at once: its thread finishes by itself (Python cannot stop it), its result is
  thrown away, and its place is free again only then, so that hung calls cannot pile up threads without end.
- Idle threads are kept for the next call, and end when none has come for a while: a pool that nobody uses any more,
  such as that of a server made for one conversation, leaves no thread behind.
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import anyio

from toolwire._log import logger_for
from toolwire._tasks import on_trio

logger = logger_for("threads")

T = TypeVar("T")

DEFAULT_LIMIT = 40
REST = 10.0
"""Seconds after which an idle thread ends."""


class Workers:
    """A small pool. One may serve any number of event loops."""

    def __init__(self, limit: int = DEFAULT_LIMIT, *, rest: float = REST) -> None:
        self.limit = limit
        self.rest = rest
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._busy = 0
        self._queue: deque[_Job] = deque()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread, with the caller's context variables; raises what it raises."""
        job = _Job(contextvars.copy_context(), work, from_threads())
        self._submit(job)
        try:
            await job.done.wait()
        finally:
            job.abandoned = not job.done.is_set()
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def _submit(self, job: "_Job") -> None:
        with self._lock:
            if self._idle:
                worker = self._idle.pop()
            elif self._busy < self.limit:
                worker = _Worker(self)
            else:
                self._queue.append(job)
                return
            self._busy += 1
        worker.give(job)

    def finished(self, worker: "_Worker") -> None:
        """Called by a worker that has done its job: it gets the next one or rests."""
        with self._lock:
            while self._queue:
                job = self._queue.popleft()
                if not job.abandoned:  # its caller left while it waited
                    break
            else:
                self._busy -= 1
                self._idle.append(worker)
                return
        worker.give(job)

    def retire(self, worker: "_Worker") -> bool:
        """Called by a worker that has rested for long enough: True if it may end, False if a job is on its way."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True


def from_threads() -> Callable[[Callable[[], None]], None]:
    """A function that any thread may call to have another called on this event loop, without waiting."""
    if on_trio():
        import trio  # noqa: PLC0415 - only where it already runs

        token = trio.lowlevel.current_trio_token()
        post: Callable[[Callable[[], None]], object] = token.run_sync_soon
        over: type[Exception] = trio.RunFinishedError
    else:
        post, over = asyncio.get_running_loop().call_soon_threadsafe, RuntimeError

    def call(function: Callable[[], None]) -> None:
        try:
            post(function)
        except over:  # the event loop is gone, and so is whoever waited
            logger.debug("a thread had something for an event loop that has ended")

    return call


class _Job:
    def __init__(
        self,
        context: contextvars.Context,
        work: Callable[[], Any],
        call: Callable[[Callable[[], None]], None],
    ) -> None:
        self.context = context
        self.work = work
        self.call = call
        self.done = anyio.Event()
        self.abandoned = False
        self.result: Any = None
        self.error: BaseException | None = None

    def perform(self) -> None:
        if self.abandoned:
            return
        try:
            self.result = self.context.run(self.work)
        except BaseException as error:  # noqa: BLE001 - the boundary of the thread: raised again where it is awaited
            self.error = error
        self.call(self.done.set)


class _Worker:
    def __init__(self, pool: Workers) -> None:
        self._pool = pool
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=self._loop, name="toolwire worker", daemon=True).start()

    def give(self, job: _Job) -> None:
        self._jobs.put(job)

    def _loop(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._pool.rest)
            except Empty:
                if self._pool.retire(self):
                    return
                continue
            job.perform()
            del job  # or its result would live as long as this thread rests
            self._pool.finished(self)
