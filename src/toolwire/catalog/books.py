"""The ledger, asked beside the event loop: it waits for the disk, and perhaps for another process.

Owns one promise: what the ledger is *told* reaches it, whatever becomes of the caller. A cancellation, even one of
asyncio that knows no shield, loses neither a reservation nor the end of a call.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio

from toolwire._log import logger_for
from toolwire._tasks import spawn
from toolwire._threads import Workers
from toolwire.catalog.ledger import SqliteLedger, owner_alive
from toolwire.catalog.money import dollars
from toolwire.catalog.spending import Ledger, Limits, Spend
from toolwire.errors import CatalogError

logger = logger_for("catalog")

PATIENCE: Final = 25.0
"""Seconds that the ledger may take: more than it waits by itself for a locked file."""


@dataclass
class _Told:
    done: anyio.Event = field(default_factory=anyio.Event)
    result: Any = None
    error: Exception | None = None
    left: bool = False
    """Nobody waits for it any more."""


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
        told = _Told()
        spawn(self._perform, told, partial(act, *args), undo)
        try:
            with anyio.move_on_after(self._patience, shield=True):
                await told.done.wait()
        except BaseException:
            self._leave(told, undo)
            raise
        if not told.done.is_set():
            self._leave(told, undo)
            raise CatalogError(f"the ledger has not answered within {self._patience:g} s")
        if told.error is not None:
            raise told.error
        return told.result

    async def reserve(self, spend: Spend, limits: Limits) -> str:
        """Put money aside; it is given back if the caller is gone meanwhile."""
        booking: str = await self.tell(self.ledger.reserve, spend, limits, undo=self.ledger.release)
        return booking

    def _leave(self, told: _Told, undo: Callable[[Any], object] | None) -> None:
        told.left = True
        if undo is not None and told.done.is_set() and told.error is None:  # it came just too late
            spawn(self._perform, _Told(left=True), partial(undo, told.result), None)

    async def _perform(
        self, told: _Told, act: Callable[[], Any], undo: Callable[[Any], object] | None
    ) -> None:
        try:
            told.result = await self._workers.run(act)
            if told.left and undo is not None:
                await self._workers.run(partial(undo, told.result))
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            told.error = error
            if told.left:
                logger.error("the ledger could not be told how a call ended: %s", error)  # noqa: TRY400
        finally:
            told.done.set()


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
