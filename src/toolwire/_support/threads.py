"""Worker threads for sync functions, with a policy of our own.

- At most `limit` calls run at once; further ones wait for a free thread.
- They are daemon threads: one that hangs never keeps Python from exiting.
- A call that is cancelled is given up at once: its thread finishes by itself (Python cannot stop it), and its
  result is thrown away. Such a thread is *left behind*.
- A pool may let some threads that were left behind run beside its limit, so that those of one client do not take
  the places of others. A client that has left as many behind as the pool's limit gets no further thread until one
  of them ends. Beyond that, and in other pools, a place is free again only when its thread is: threads cannot pile
  up without end.
- Idle threads are kept for the next call, and end when none has come for a while: a pool that nobody uses any more,
  such as that of a server made for one conversation, leaves no thread behind.
"""

import asyncio
import contextvars
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import on_trio

logger = logger_for("threads")

T = TypeVar("T")

DEFAULT_LIMIT = 40
REST = 10.0
"""Seconds after which an idle thread ends."""


class TooManyLeftBehind(Exception):  # noqa: N818 - it says what is wrong
    """A client's calls were given up while they ran, and too many of them still run. `count` says how many."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} calls that were given up still run")
        self.count = count


class Workers:
    """A small pool. One may serve any number of event loops.

    `beside`: how many threads that were left behind may run beside the limit. `rest`: seconds after which an idle
    thread ends.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT, *, beside: int = 0, rest: float = REST) -> None:
        self.limit = limit
        self.rest = rest
        self._most_beside = beside
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._busy = 0  # without those beside
        self._beside = 0
        self._left_behind: Counter[Hashable] = Counter()
        self._queue: OrderedDict[_Job, None] = OrderedDict()

    async def run(self, work: Callable[[], T], client: Hashable = None) -> T:
        """Run `work` in a thread, with the caller's context variables; raises what it raises.

        `TooManyLeftBehind` if that is so for `client`: whoever the call is made for.
        """
        job = _Job(contextvars.copy_context(), work, from_threads(), client)
        self._submit(job)
        try:
            await job.done.wait()
        finally:
            if not job.done.is_set():
                self._give_up(job)
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def _submit(self, job: "_Job") -> None:
        with self._lock:
            if self._most_beside and self._left_behind.get(job.client, 0) >= self.limit:
                raise TooManyLeftBehind(self._left_behind[job.client])
            if self._idle:
                worker = self._idle.pop()
            elif self._busy < self.limit:
                worker = _Worker(self)
            else:
                self._queue[job] = None
                return
            self._busy += 1
        worker.give(job)

    def _give_up(self, job: "_Job") -> None:
        """The caller does not wait any more."""
        with self._lock:
            job.abandoned = True
            self._queue.pop(job, None)
            if not job.running:  # not yet, and so never; or it has just ended
                return
            job.left_behind = True
            if job.client is not None:
                self._left_behind[job.client] += 1
            if self._beside >= self._most_beside:
                return
            job.beside = True
            self._beside += 1
            self._busy -= 1
            if not self._queue:
                return
            try:
                worker = self._idle.pop() if self._idle else _Worker(self)
            except RuntimeError as error:
                logger.warning("a waiting call stays in the queue: %s", error)  # no thread can be had
                return
            following = self._queue.popitem(last=False)[0]
            self._busy += 1
        worker.give(following)

    def begin(self, job: "_Job") -> bool:
        """Called by a worker that is about to do a job: whether anybody still waits for it."""
        with self._lock:
            job.running = not job.abandoned
            return job.running

    def finished(self, worker: "_Worker", job: "_Job") -> bool:
        """Called by a worker that has done its job: it gets the next one or rests. False: it is not needed."""
        with self._lock:
            job.running = False
            if job.left_behind and job.client is not None:
                self._left_behind[job.client] -= 1
                if not self._left_behind[job.client]:
                    del self._left_behind[job.client]
            if job.beside:
                self._beside -= 1
                return False
            if not self._queue:
                self._busy -= 1
                self._idle.append(worker)
                return True
            following = self._queue.popitem(last=False)[0]
        worker.give(following)
        return True

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
        client: Hashable,
    ) -> None:
        self.context = context
        self.work = work
        self.call = call
        self.client = client
        self.done = anyio.Event()
        self.abandoned = False
        self.running = False
        self.left_behind = False
        self.beside = False
        self.result: Any = None
        self.error: BaseException | None = None

    def perform(self) -> None:
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
        needed = True
        while needed:
            try:
                job = self._jobs.get(timeout=self._pool.rest)
            except Empty:
                needed = not self._pool.retire(self)
                continue
            if self._pool.begin(job):
                job.perform()
            needed = self._pool.finished(self, job)
            del job  # or its result would live as long as this thread rests
