"""Threads that wait for the event loop: a sync tool has something awaited there, and stands still meanwhile.

Owns how such a thread is let go: with the result, with what was raised, or as cancelled once its call is over, so
that none is kept for ever by an answer that nobody will give. All of it happens on the event loop.
"""

import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

from toolwire._support.tasks import Task, is_cancellation, spawn


class Waits:
    """The awaitables that threads of one call wait for. `cancelled` makes the exception that ends a wait."""

    def __init__(self, cancelled: Callable[[], Exception]) -> None:
        self._cancelled = cancelled
        self._tasks: dict[Future[Any], Task] = {}
        self._over = False

    def begin(self, awaitable: Awaitable[Any], outcome: "Future[Any]") -> None:
        """Await it for the thread that waits for `outcome`."""
        if self._over:
            self._end(awaitable, outcome)
            return

        async def work() -> None:
            try:
                outcome.set_result(await awaitable)
            except BaseException as error:  # raised in the thread, which is where it was asked for
                if is_cancellation(error):
                    raise
                outcome.set_exception(error)

        self._tasks[outcome] = spawn(work, on_done=lambda: self._end(awaitable, outcome))

    def release(self) -> None:
        """The call is over: let all go, and whoever comes later."""
        self._over = True
        for task in list(self._tasks.values()):
            task.cancel()

    def _end(self, awaitable: Awaitable[Any], outcome: "Future[Any]") -> None:
        self._tasks.pop(outcome, None)
        if inspect.iscoroutine(awaitable):
            awaitable.close()  # it may never have begun
        if not outcome.done():
            outcome.set_exception(self._cancelled())
