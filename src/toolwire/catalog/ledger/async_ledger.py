"""The ledger for coroutines: waits for the disk, and for other processes, in a thread of its own.

Guarantees that a call given to `commit` is made, whatever happens to the caller. A cancellation, even one of
asyncio that ignores shields, loses neither a booking nor the outcome of a call. Calls that are queued at the same
time are committed together, with one wait for the disk.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire._support.threads import loop_caller
from toolwire.catalog.ledger.sql_ledger import Ledger
from toolwire.catalog.ledger.types import Unavailable
from toolwire.errors import CatalogError

logger = logger_for("catalog")

PATIENCE: Final = 25.0
"""Seconds that the ledger may take: more than it waits itself for a locked file."""
_MAX_TOGETHER: Final = 64
_MAX_TRIES: Final = 20  # of a posted call that is refused
_RETRY_PAUSE: Final = 1.0
_LONGEST_OUTAGE: Final = 600.0  # seconds for which a posted call is retried while the ledger is unavailable


class _Call:
    """A call of a ledger method. `undo` gets the result if the caller no longer waits for it."""

    def __init__(
        self, method: Callable[[], Any], undo: Callable[[Any], object] | None, skippable: bool
    ) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False
        self.done: anyio.Event | None = None  # None if nobody waits
        self.call_in_loop: Callable[[Callable[[], None]], None] | None = None
        self.abandoned = False
        self.tries = 0
        self._created_at = time.monotonic()
        self._method = method
        self._undo = undo
        self._skippable = skippable

    def perform(self) -> None:
        """Make the call, in the ledger's thread."""
        if self.abandoned and self._skippable:
            return
        self.tries += 1
        self.error = None
        try:
            self.result = self._method()
        except BaseException as error:  # noqa: BLE001 - raised in the caller, or logged
            self.error = error

    @property
    def may_be_retried(self) -> bool:
        """True if the call was posted and failed, and may succeed if it is retried."""
        if self.done is not None or self._skippable or self._undo is not None:
            return False
        if isinstance(self.error, Unavailable):
            return time.monotonic() - self._created_at < _LONGEST_OUTAGE
        return isinstance(self.error, CatalogError) and self.tries < _MAX_TRIES

    def finish(self) -> None:
        """Pass the result to the caller. A failure is logged if the caller is gone, once if it is retried."""
        self.finished = True
        if self.call_in_loop is not None and self.done is not None:
            self.call_in_loop(self.done.set)
        if self.done is None or self.abandoned:
            if self.tries > 1 and self.may_be_retried:
                return  # it was logged the first time
            self.log_error()

    def log_error(self) -> None:
        """Log a failure, because there is no caller to raise it in."""
        if self.error is not None:
            logger.error("the ledger could not book the outcome of a call: %s", self.error)

    def take_undo(self) -> "_Call | None":
        """Return the call that undoes this one, because its caller is gone; None if there is nothing to undo."""
        undo, self._undo = self._undo, None
        if undo is None or self.error is not None:
            return None
        return _Call(partial(undo, self.result), None, skippable=False)


class AsyncLedger:
    """A ledger for coroutines. Its methods are called one after the other, in the order of the requests."""

    def __init__(self, ledger: Ledger, patience: float = PATIENCE) -> None:
        self.ledger = ledger
        self._patience = patience
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()  # None ends the thread
        self._thread: threading.Thread | None = None
        self._closed = False

    async def query(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call a ledger method and return its result. May be skipped if the caller is cancelled; see `commit`."""
        return await self._wait_for(_Call(partial(method, *args), None, skippable=True))

    async def commit(
        self, method: Callable[..., Any], *args: Any, undo: Callable[[Any], object] | None = None
    ) -> Any:
        """Call a ledger method even if the caller is cancelled; then `undo` gets the result, in the thread."""
        call = _Call(partial(method, *args), undo, skippable=False)
        with anyio.move_on_after(self._patience, shield=True):
            return await self._wait_for(call)
        raise CatalogError(f"the ledger did not respond within {self._patience:g} s")

    def post(self, method: Callable[..., Any], *args: Any) -> None:
        """Call a ledger method without waiting; `aclose` waits for it. A failure is logged and retried for a while.

        Retried because a call whose outcome is not booked would block others.
        """
        self._enqueue(_Call(partial(method, *args), None, skippable=False))

    async def aclose(self) -> None:
        """Wait until all queued calls are made, at most `patience` seconds, and end the thread."""
        if self._closed:
            return
        with anyio.CancelScope(shield=True):
            try:
                await self.commit(lambda: None)  # everything that was queued before it is done then
            except CatalogError as error:
                logger.error("the ledger did not finish in time: %s", error)  # noqa: TRY400
        self._closed = True
        self._queue.put(None)

    async def _wait_for(self, call: _Call) -> Any:
        call.done, call.call_in_loop = anyio.Event(), loop_caller()
        self._enqueue(call)
        try:
            await call.done.wait()
        except BaseException:
            # This or the ledger's thread, whichever comes second, undoes the call.
            call.abandoned = True
            if call.finished:  # it was made just now, and nobody gets its result
                call.log_error()
                if (undo := call.take_undo()) is not None:
                    self._enqueue(undo)
            raise
        if call.error is not None:
            raise call.error
        return call.result

    def _enqueue(self, call: _Call) -> None:
        if self._closed:
            raise CatalogError("the ledger is closed")
        self._queue.put(call)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="toolwire ledger", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        failed: list[_Call] = []  # posted calls to be retried
        while True:
            try:
                first = self._queue.get(timeout=_RETRY_PAUSE if failed else None)
            except Empty:
                calls = failed
            else:
                if first is None:
                    return
                calls = [*failed, first, *self._take_queued()]
            try:
                with self.ledger.together() if len(calls) > 1 else nullcontext():
                    for call in calls:
                        call.perform()
            except BaseException as error:  # noqa: BLE001 - the commit failed: nothing of it was booked
                for call in calls:
                    call.error = call.error or error
            failed = [each for each in calls if each.may_be_retried]
            for call in calls:
                call.finish()
                if call.abandoned and (undo := call.take_undo()) is not None:
                    undo.perform()
                    undo.finish()
                    failed += [undo] if undo.may_be_retried else []

    def _take_queued(self) -> Iterator[_Call]:
        """Yield the queued calls, up to the end mark of the thread or the maximum of a group."""
        for _ in range(_MAX_TOGETHER - 1):
            try:
                call = self._queue.get_nowait()
            except Empty:
                return
            if call is None:
                self._queue.put(None)
                return
            yield call
