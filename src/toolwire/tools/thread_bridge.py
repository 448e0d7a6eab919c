"""Lets the thread of a sync tool wait for an awaitable that runs on the event loop.

Owns the end of such a wait: with the result, with the exception that was raised, or as cancelled once the call has
ended, so that no thread waits for ever. All methods are called on the event loop.
"""

import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

from toolwire._support.tasks import Task, is_cancellation, spawn


class Waits:
    """The awaitables that threads of one call wait for. `cancelled` makes the exception that cancels a wait."""

    def __init__(self, cancelled: Callable[[], Exception]) -> None:
        self._cancelled = cancelled
        self._tasks: dict[Future[Any], Task] = {}
        self._ended = False

    def start(self, awaitable: Awaitable[Any], outcome: "Future[Any]") -> None:
        """Await it, and set the result or exception of `outcome`, for which a thread waits."""
        if self._ended:
            self._end(awaitable, outcome)
            return

        async def work() -> None:
            try:
                outcome.set_result(await awaitable)
            except BaseException as error:  # raised in the waiting thread
                if is_cancellation(error):
                    raise
                outcome.set_exception(error)

        self._tasks[outcome] = spawn(work, on_done=lambda: self._end(awaitable, outcome))

    def cancel_all(self) -> None:
        """Cancel all waits, those that are still to come included, because the call has ended."""
        self._ended = True
        for task in list(self._tasks.values()):
            task.cancel()

    def _end(self, awaitable: Awaitable[Any], outcome: "Future[Any]") -> None:
        self._tasks.pop(outcome, None)
        if inspect.iscoroutine(awaitable):
            awaitable.close()  # it may not have started
        if not outcome.done():
            outcome.set_exception(self._cancelled())
