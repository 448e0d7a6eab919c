"""The spending of a catalogue: the calls in its ledger, the remaining budget, and unknown outcomes to settle.

Reads the ledger in a worker thread with its own connection. Writes only the outcomes that the user enters.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import anyio.to_thread

from toolwire.catalog.ledger.opening import open_ledger
from toolwire.catalog.ledger.sql_ledger import Ledger
from toolwire.catalog.ledger.types import Row, Stop, Total
from toolwire.catalog.server import Catalog

T = TypeVar("T")
_MOST_ROWS: Final = 500


@dataclass(frozen=True)
class Remaining:
    """A spending limit and the amount that is left of it, in micros."""

    title: str
    limit: int
    left: int


@dataclass(frozen=True)
class Books:
    """The state of the ledger. Amounts are in micros."""

    where: str
    rows: list[Row] = field(default_factory=list)
    """The latest calls, the newest first."""
    unknown: list[Row] = field(default_factory=list)
    """Calls whose response was lost. Their money stays reserved until the user records the outcome."""
    tools: list[Total] = field(default_factory=list)
    left: list[Remaining] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)


class Spending:
    """The ledger of one catalogue."""

    def __init__(self, catalog: Catalog) -> None:
        self.name = catalog.name
        self._catalog = catalog

    async def read(self) -> Books:
        """Read the ledger. Raises `CatalogError` if that fails."""
        return await self._use(self._read)

    async def settle(self, row: Row, *, charged: bool, amount: int | None = None) -> None:
        """Record the outcome of a call whose response was lost. `amount`: in micros; None: as reserved."""
        await self._use(lambda ledger: ledger.resolve(row.id, charged, amount))

    async def _use(self, work: Callable[[Ledger], T]) -> T:
        return await anyio.to_thread.run_sync(self._use_in_thread, work)

    def _use_in_thread(self, work: Callable[[Ledger], T]) -> T:
        at: Any = self._catalog.ledger
        if not isinstance(at, str | os.PathLike):
            return work(at)
        with open_ledger(at) as ledger:
            return work(ledger)

    def _read(self, ledger: Ledger) -> Books:
        limits, session = self._catalog.limits, self._catalog.session
        used = {
            "This session": (limits.per_session, _sum(ledger.totals("session"), session)),
            "Today (UTC)": (limits.per_day, _sum(ledger.totals("day"), ledger.today())),
            "In total": (limits.total, sum(each.money for each in ledger.totals("day"))),
        }
        return Books(
            ledger.path,
            ledger.rows(limit=_MOST_ROWS),
            ledger.rows(states=["unknown"]),
            sorted(ledger.totals("tool"), key=lambda each: -each.money),
            [
                Remaining(name, most, max(most - spent, 0))
                for name, (most, spent) in used.items()
                if most is not None
            ],
            ledger.stops(),
        )


def _sum(totals: list[Total], name: str) -> int:
    return sum(each.money for each in totals if each.name == name)
