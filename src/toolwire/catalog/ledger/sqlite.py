"""The ledger in a SQLite file that any number of threads and processes of this machine book in.

Owns where the file is, and that owners are processes of this machine (`process_owner`). The rules are those of
`sql_ledger`, the file and its transactions of `sqlite_database`.
"""

import math
import os
import time
from collections.abc import Callable, Sequence

from toolwire.catalog.ledger.process_owner import owner_alive, this_process
from toolwire.catalog.ledger.queries import Statement
from toolwire.catalog.ledger.sql_ledger import MOST_LOST, SqlLedger
from toolwire.catalog.ledger.sqlite_database import SqliteDatabase
from toolwire.catalog.ledger.transactions import Transaction
from toolwire.catalog.ledger.types import (
    Booking,
    Busy,
    Duplicate,
    Grouping,
    Ledger,
    Limits,
    Order,
    OverBudget,
    Price,
    PriceRaised,
    Row,
    Settled,
    State,
    Stop,
    Stopped,
    Total,
    Unpriced,
)

__all__ = [  # noqa: RUF022 - by kind
    "Ledger", "SqliteLedger", "owner_alive", "this_process", "MOST_LOST",
    "Order", "Booking", "Limits", "Settled", "Row", "Total", "State", "Grouping", "Price", "Unpriced", "Stop",
    "OverBudget", "PriceRaised", "Busy", "Duplicate", "Stopped",
]  # fmt: skip


class SqliteLedger(SqlLedger):
    """A `Ledger` in a SQLite file, or in memory with the path `:memory:`.

    `owner` tells whose a reservation is (default: this process), `alive` whether an owner still runs; `clock` gives
    seconds since 1970. What is locked by another process is waited for, `patience` seconds at most.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        owner: str | None = None,
        alive: Callable[[str], bool] = owner_alive,
        patience: float = 10.0,
        create: bool = True,
    ) -> None:
        super().__init__(SqliteDatabase(path, patience, create))
        self.lease, self.remote = math.inf, False
        self.owner = this_process() if owner is None else owner
        self._clock = clock
        self._alive = alive

    def beat(self) -> float:
        """Do nothing: a process of this machine is seen to live. Returns infinity."""
        return math.inf

    def _expect(self, _db: Transaction, _statements: Sequence[Statement]) -> None:
        """Do nothing: each question is answered by this process itself."""

    def _now(self, _db: Transaction) -> float:
        return self._clock()

    def _is_alive(self, _db: Transaction, owner: str) -> bool:
        return self._alive(owner)

    def _check_owner(self, _db: Transaction, _row: Row | None = None) -> None:
        """Allow all: who runs this lives."""
