"""Worker threads for sync functions, with a policy of our own.

- At most `limit` calls run at once; further ones wait for a free thread.
- They are daemon threads: one that hangs never keeps Python from exiting.
- A call that is cancelled while it runs is *abandoned*: its caller stops waiting at once, its thread runs to the
  end (Python cannot stop it), and its result is discarded.
- A pool may let some abandoned calls run in addition to its limit, so that those of one client do not take the
  threads of others. A client with as many abandoned calls as the pool's limit gets no further thread until one of
  them ends. Beyond that, and in other pools, an abandoned call counts towards the limit until it ends, so that the
  number of threads is bounded.
- Idle threads are kept for the next call, and end when none has come for a while: a pool that is no longer used,
  such as that of a server made for one conversation, keeps no thread.
- After a fork, the pools of the child start without threads and calls, which belong to the parent.
"""

import asyncio
import contextvars
import os
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from toolwire._support.log import logger_for
from toolwire._support.tasks import on_trio
from toolwire._support.waiting import Future

logger = logger_for("threads")

T = TypeVar("T")

DEFAULT_LIMIT = 40
IDLE_TIMEOUT = 10.0
"""Seconds after which an idle thread ends."""


class TooManyAbandonedCalls(Exception):  # noqa: N818 - it says what is wrong
    """Too many of a client's calls were cancelled and still run in their threads. `count` says how many."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} cancelled calls still run in their threads")
        self.count = count


class Workers:
    """A pool of threads, for any number of event loops.

    `abandoned_limit`: how many abandoned calls may run in addition to `limit`. `idle_timeout`: seconds after which
    an idle thread ends.
    """

    def __init__(
        self, limit: int = DEFAULT_LIMIT, *, abandoned_limit: int = 0, idle_timeout: float = IDLE_TIMEOUT
    ) -> None:
        self.limit = limit
        self.idle_timeout = idle_timeout
        self._abandoned_limit = abandoned_limit
        self.reset()
        _pools.add(self)

    def reset(self) -> None:
        """Start with no threads and no calls."""
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._busy = 0  # threads that count towards the limit
        self._extra = 0  # threads of abandoned calls that do not
        self._abandoned: Counter[Hashable] = Counter()  # by client
        self._queue: OrderedDict[_Job, None] = OrderedDict()

    async def run(self, work: Callable[[], T], client: Hashable = None) -> T:
        """Run `work` in a thread, with the caller's context variables; raises what it raises.

        `client` identifies the client that the call is made for. Raises `TooManyAbandonedCalls` if that client has
        too many abandoned calls.
        """
        job = _Job(contextvars.copy_context(), work, loop_caller(), client)
        self._submit(job)
        try:
            await job.done.wait()
        finally:
            if not job.done.is_set:
                self._abandon(job)
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def _submit(self, job: "_Job") -> None:
        with self._lock:
            if self._abandoned_limit and self._abandoned.get(job.client, 0) >= self.limit:
                raise TooManyAbandonedCalls(self._abandoned[job.client])
            if self._idle:
                worker = self._idle.pop()
            elif self._busy < self.limit:
                worker = _Worker(self)
            else:
                self._queue[job] = None
                return
            self._busy += 1
        worker.give(job)

    def _abandon(self, job: "_Job") -> None:
        """Abandon a job whose caller was cancelled."""
        with self._lock:
            job.cancelled = True
            self._queue.pop(job, None)
            if not job.running:  # it will never run, or has just ended
                return
            job.abandoned = True
            if job.client is not None:
                self._abandoned[job.client] += 1
            if self._extra >= self._abandoned_limit:
                return
            job.extra = True
            self._extra += 1
            self._busy -= 1
            if not self._queue:
                return
            try:
                worker = self._idle.pop() if self._idle else _Worker(self)
            except RuntimeError as error:
                logger.warning("no new thread can be started, so calls wait longer: %s", error)
                return
            following = self._queue.popitem(last=False)[0]
            self._busy += 1
        worker.give(following)

    def begin(self, job: "_Job") -> bool:
        """Mark a job as running. Returns False if it was cancelled before: then the worker must skip it."""
        with self._lock:
            job.running = not job.cancelled
            return job.running

    def finish(self, worker: "_Worker", job: "_Job") -> bool:
        """Give a worker that has finished a job the next one, or make it idle. Returns False if it must end."""
        with self._lock:
            job.running = False
            if job.abandoned and job.client is not None:
                self._abandoned[job.client] -= 1
                if not self._abandoned[job.client]:
                    del self._abandoned[job.client]
            if job.extra:
                self._extra -= 1
                return False
            if not self._queue:
                self._busy -= 1
                self._idle.append(worker)
                return True
            following = self._queue.popitem(last=False)[0]
        worker.give(following)
        return True

    def retire(self, worker: "_Worker") -> bool:
        """Remove a worker whose idle time is over. Returns False if it was just given a job and must not end."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True


_pools: "weakref.WeakSet[Workers]" = weakref.WeakSet()


def _reset_all() -> None:
    for pool in list(_pools):
        pool.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)


def loop_caller() -> Callable[[Callable[[], None]], None]:
    """Return a function by which any thread can schedule a callback on this event loop, without waiting."""
    if on_trio():
        import trio  # noqa: PLC0415 - only where it already runs

        token = trio.lowlevel.current_trio_token()
        post: Callable[[Callable[[], None]], object] = token.run_sync_soon
        ended: type[Exception] = trio.RunFinishedError
    else:
        post, ended = asyncio.get_running_loop().call_soon_threadsafe, RuntimeError

    def call(function: Callable[[], None]) -> None:
        try:
            post(function)
        except ended:  # the task that waited for it has ended too
            logger.debug("dropped a call from a thread to an event loop that has ended")

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
        self.done: Future[None] = Future()
        self.running = False
        self.cancelled = False
        self.abandoned = False  # cancelled while it was running
        self.extra = False  # abandoned, and not counted towards the limit any more
        self.result: Any = None
        self.error: BaseException | None = None

    def perform(self) -> None:
        try:
            self.result = self.context.run(self.work)
        except BaseException as error:  # noqa: BLE001 - the boundary of the thread: raised again where it is awaited
            self.error = error
        self.call(partial(self.done.set, None))


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
                job = self._jobs.get(timeout=self._pool.idle_timeout)
            except Empty:
                needed = not self._pool.retire(self)
                continue
            if self._pool.begin(job):
                job.perform()
            needed = self._pool.finish(self, job)
            del job  # or its result would live as long as this thread is idle
