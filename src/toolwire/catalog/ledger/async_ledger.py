"""The ledger for coroutines: waits for the disk, and for other processes, in a thread of its own.

Owns one promise: what is committed happens, whatever becomes of the caller. A cancellation, even one of asyncio
that knows no shield, loses neither a booking nor the end of a call. What waits at the same time is committed
together, with one wait for the disk.
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
from toolwire.catalog.ledger.types import Ledger, Unavailable
from toolwire.errors import CatalogError

logger = logger_for("catalog")

PATIENCE: Final = 25.0
"""Seconds that the ledger may take: more than it waits by itself for a locked file."""
_MOST_TOGETHER: Final = 64
_MOST_TRIES: Final = 20  # of something that was posted and is refused
_RETRY_PAUSE: Final = 1.0
_LONGEST_OUTAGE: Final = 600.0  # seconds for which something that was posted waits for the ledger to be back


class _Act:
    """A call of the ledger that is made once. `undo` gets the result if the caller is gone."""

    def __init__(self, act: Callable[[], Any], undo: Callable[[Any], object] | None, skippable: bool) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False
        self.done: anyio.Event | None = None  # for whoever waits
        self.call: Callable[[Callable[[], None]], None] | None = None
        self.abandoned = False
        self.tries = 0
        self._given_at = time.monotonic()
        self._act = act
        self._undo = undo
        self._skippable = skippable

    def perform(self) -> None:
        """Make the call, in the ledger's thread."""
        if self.abandoned and self._skippable:
            return
        self.tries += 1
        self.error = None
        try:
            self.result = self._act()
        except BaseException as error:  # noqa: BLE001 - raised again to whoever waits, or logged
            self.error = error

    @property
    def may_be_tried_again(self) -> bool:
        """True if it was posted, failed, and may succeed when it is retried."""
        if self.done is not None or self._skippable or self._undo is not None:
            return False
        if isinstance(self.error, Unavailable):
            return time.monotonic() - self._given_at < _LONGEST_OUTAGE
        return isinstance(self.error, CatalogError) and self.tries < _MOST_TRIES

    def finish(self) -> None:
        """Hand the result over, or undo what only the caller could have used."""
        self.finished = True
        if self.call is not None and self.done is not None:
            self.call(self.done.set)
        if self.done is None or self.abandoned:
            if self.tries > 1 and self.may_be_tried_again:
                return  # it was logged the first time
            self.wind_up()

    def wind_up(self) -> None:
        """Undo the result, since the caller is gone, and log what went wrong."""
        undo, self._undo = self._undo, None
        error = self.error
        if error is None and undo is not None:
            try:
                undo(self.result)
            except BaseException as failure:  # noqa: BLE001 - nobody is there to raise it to
                error = failure
        if error is not None:
            logger.error("the ledger could not book how a call ended: %s", error)


class AsyncLedger:
    """A ledger for coroutines. Its calls are made one after the other, in the order in which they were given."""

    def __init__(self, ledger: Ledger, patience: float = PATIENCE) -> None:
        self.ledger = ledger
        self._patience = patience
        self._acts: SimpleQueue[_Act | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def query(self, act: Callable[..., Any], *args: Any) -> Any:
        """Call the ledger and return its result. May be skipped if the caller is cancelled; `commit` is not."""
        return await self._wait_for(_Act(partial(act, *args), None, skippable=True))

    async def commit(
        self, act: Callable[..., Any], *args: Any, undo: Callable[[Any], object] | None = None
    ) -> Any:
        """Call the ledger even if the caller is cancelled; then `undo` gets the result, in the thread."""
        given = _Act(partial(act, *args), undo, skippable=False)
        with anyio.move_on_after(self._patience, shield=True):
            return await self._wait_for(given)
        raise CatalogError(f"the ledger has not answered within {self._patience:g} s")

    def post(self, act: Callable[..., Any], *args: Any) -> None:
        """Call the ledger without waiting; `aclose` waits for it. A failure is logged, and retried for a while.

        A call whose end is not booked would stand in the way of others.
        """
        self._give(_Act(partial(act, *args), None, skippable=False))

    async def aclose(self) -> None:
        """Wait until all queued calls are made, `patience` seconds at most, and end the thread."""
        if self._closed:
            return
        with anyio.CancelScope(shield=True):
            try:
                await self.commit(_do_nothing)
            except CatalogError as error:
                logger.error("the ledger did not finish in time: %s", error)  # noqa: TRY400
        self._closed = True
        self._acts.put(None)

    async def _wait_for(self, act: _Act) -> Any:
        act.done, act.call = anyio.Event(), loop_caller()
        self._give(act)
        try:
            await act.done.wait()
        except BaseException:
            self._abandon(act)
            raise
        if act.error is not None:
            raise act.error
        return act.result

    def _abandon(self, act: _Act) -> None:
        """Give up waiting. This or the ledger's thread, whichever comes second, undoes the call."""
        act.abandoned = True
        if act.finished:  # it was done just now: its result is nobody's
            self._give(_Act(act.wind_up, None, skippable=False))

    def _give(self, act: _Act) -> None:
        if self._closed:
            raise CatalogError("the ledger is closed")
        self._acts.put(act)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="toolwire ledger", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        failed: list[_Act] = []  # posted, and to be tried again
        while True:
            try:
                first = self._acts.get(timeout=_RETRY_PAUSE if failed else None)
            except Empty:
                acts = failed
            else:
                if first is None:
                    return
                acts = [*failed, first, *self._waiting()]
            try:
                with self.ledger.together() if len(acts) > 1 else nullcontext():
                    for act in acts:
                        act.perform()
            except BaseException as error:  # noqa: BLE001 - the commit failed: nothing of it was booked
                for act in acts:
                    act.error = act.error or error
            failed = [each for each in acts if each.may_be_tried_again]
            for act in acts:
                act.finish()

    def _waiting(self) -> Iterator[_Act]:
        """Yield the calls that are queued, up to the one that ends the thread."""
        for _ in range(_MOST_TOGETHER - 1):
            try:
                act = self._acts.get_nowait()
            except Empty:
                return
            if act is None:
                self._acts.put(None)
                return
            yield act


def _do_nothing() -> None:
    """Do nothing, after all that was queued before."""
