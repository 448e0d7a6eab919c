"""The ledger, asked beside the event loop: it waits for the disk, and perhaps for another process.

Owns one promise: what the ledger is *told* reaches it, whatever becomes of the caller. A cancellation, even one of
asyncio that knows no shield, loses neither a reservation nor the end of a call.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import anyio

from toolwire._log import logger_for
from toolwire._tasks import spawn
from toolwire._threads import Workers
from toolwire.catalog.ledger.sqlite import SqliteLedger, owner_alive
from toolwire.catalog.ledger.types import Ledger
from toolwire.catalog.money import dollars
from toolwire.errors import CatalogError

logger = logger_for("catalog")

PATIENCE: Final = 25.0
"""Seconds that the ledger may take: more than it waits by itself for a locked file."""


class _Act:
    """Something that the ledger does once, however often it is asked to."""

    def __init__(self, act: Callable[[], Any], undo: Callable[[Any], object] | None) -> None:
        self._act = act
        self._undo = undo
        self._done = False
        self._result: Any = None
        self.error: BaseException | None = None
        """What it raised."""

    def __call__(self) -> Any:
        if not self._done:
            try:
                self._result = self._act()
            except BaseException as error:  # noqa: BLE001 - raised again below, to whoever asks
                self.error = error
            self._done = True
        if self.error is not None:
            raise self.error
        return self._result

    def finish(self) -> None:
        """Nobody waits for it any more: do it all the same, and undo what only the caller could have used."""
        try:
            result = self()
            if self._undo is not None:
                self._undo(result)
        except BaseException as error:  # noqa: BLE001 - nobody is there to raise it to
            logger.error("the ledger could not be told how a call ended: %s", error)  # noqa: TRY400


class Books:
    """A ledger for coroutines. Its acts happen one after the other, in the order in which they were asked for."""

    def __init__(self, ledger: Ledger, patience: float = PATIENCE) -> None:
        self.ledger = ledger
        self._patience = patience
        self._workers = Workers(1)

    async def ask(self, act: Callable[..., Any], *args: Any) -> Any:
        """What the ledger answers. A caller that is cancelled may have asked in vain."""
        return await self._workers.run(partial(act, *args))

    async def tell(
        self, act: Callable[..., Any], *args: Any, undo: Callable[[Any], object] | None = None
    ) -> Any:
        """The same, but it happens: a cancellation waits for it, and one that cannot wait leaves it running.

        `undo` is given the result if nobody is left to take it.
        """
        told = _Act(partial(act, *args), undo)
        try:
            with anyio.move_on_after(self._patience, shield=True):
                return await self._workers.run(told)
        except BaseException as error:
            # Anything else is the ledger's answer; so may this be, and then it is not done once more.
            if not isinstance(error, Exception) and error is not told.error:
                self._leave(told)
            raise
        self._leave(told)
        raise CatalogError(f"the ledger has not answered within {self._patience:g} s")

    def _leave(self, told: _Act) -> None:
        # It may run, or wait for its turn, which it has lost with its caller: this one comes after it.
        spawn(self._workers.run, told.finish)


def opened(ledger: Ledger | str | os.PathLike[str]) -> Ledger:
    """A ledger, or the one in a file."""
    return SqliteLedger(ledger) if isinstance(ledger, str | os.PathLike) else ledger


def recovered(ledger: Ledger) -> Ledger:
    """The ledger, with what dead processes left in it booked and told."""
    for row in ledger.recover(owner_alive):
        if row.state == "unknown":
            logger.warning(
                "a call of %s was out when its process ended: %s is reserved (toolwire catalog reconcile %s)",
                row.tool,
                dollars(row.reserved),
                row.id,
            )
    return ledger
