"""The ledger on this machine: one SQLite file that any number of threads and processes book in.

Owns what is booked and when it may be. Every change is one transaction that also holds the check, so a budget
cannot be overrun by calls that race, and nothing is half booked when a process dies. Amounts are micros (see
`spending`).

    ledger = SqliteLedger(default_path())
    ledger.recover(owner_alive)                  # what a crash left
    id = ledger.reserve(spend, limits)           # raises: no request
    ledger.sent(id)                              # raises: no request
    ledger.settle(id, actual) | ledger.release(id) | ledger.unknown(id, why)
"""

import os
import secrets
import sys
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Final, Self

from toolwire.catalog.ledger import queries as query
from toolwire.catalog.ledger.database import Database
from toolwire.catalog.ledger.owners import owner_alive, this_process
from toolwire.catalog.ledger.types import (
    MOST,
    STATES,
    Busy,
    Duplicate,
    Grouping,
    Ledger,
    Limits,
    OverBudget,
    Price,
    PriceCheck,
    Row,
    Settled,
    Spend,
    State,
    Stop,
    Stopped,
    Total,
    check,
    shown,
    whole,
)
from toolwire.errors import CatalogError

__all__ = [  # noqa: RUF022 - by kind
    "Ledger", "SqliteLedger", "default_path", "owner_alive", "this_process",
    "Spend", "Limits", "Settled", "Row", "Total", "State", "Grouping", "Price", "PriceCheck", "Stop",
    "OverBudget", "Busy", "Duplicate", "Stopped",
]  # fmt: skip

_ABANDONED: Final = 86_400.0  # no call lives for a day: its owner has forgotten it, alive or not
_LONGEST_WHY: Final = 500


def default_path(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Where the ledger is unless somebody says: `$TOOLWIRE_LEDGER`, or the user's folder for such state."""
    if said := environ.get("TOOLWIRE_LEDGER"):
        return Path(said).expanduser()
    home = Path.home()
    if platform == "darwin":
        state = home / "Library" / "Application Support"
    elif platform == "win32":
        state = Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        given = environ.get("XDG_STATE_HOME", "")
        state = Path(given) if given.startswith("/") else home / ".local" / "state"  # as XDG has it
    return state / "toolwire" / "ledger.db"


class SqliteLedger:
    """A `Ledger` in a SQLite file, or in memory with the path `:memory:`.

    `owner` tells whose a reservation is (default: this process); `clock` gives seconds since 1970. What is locked
    by another process is waited for, `patience` seconds at most.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        owner: str | None = None,
        patience: float = 10.0,
        create: bool = True,
    ) -> None:
        self.owner = this_process() if owner is None else owner
        self._clock = clock
        self._database = Database(path, patience, create)
        self.path = self._database.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def reserve(self, spend: Spend, limits: Limits) -> str:
        """Put money aside and return the id of the call. `OverBudget`, `Stopped`, `Busy`, `Duplicate`."""
        now = self._clock()
        day = datetime.fromtimestamp(now, UTC).date().isoformat()
        id = secrets.token_hex(6)  # noqa: A001 - as everywhere here
        with self._database.writing() as db:
            query.let_pass(db, spend, limits)
            for limit, most, used in query.used(db, spend, limits, day):
                check(spend, limit, most, used)
            db.execute(
                "INSERT INTO spending (id, at, day, session, tool, entry_id, key, digest, reserved, exclusive,"
                " owner, state, changed) VALUES (:id, :now, :day, :session, :tool, :entry_id, :key, :digest,"
                " :amount, :exclusive, :owner, 'reserved', :now)",
                {**vars(spend), "id": id, "now": now, "day": day, "owner": self.owner},
            )
        return id

    def sent(self, id: str) -> None:
        """Tell that the request goes out now. It must not, if this raises."""
        with self._database.writing() as db:
            self._move(db, query.movable(db, id, "sent"), "sent")

    def settle(self, id: str, actual: int | None) -> Settled:
        """Book what the call cost; None is as reserved. More than reserved stops the tool until it is accepted.

        None for a call of unknown price: nothing is counted, and the entry is kept in mind as one of no price.
        """
        with self._database.writing() as db:
            row = query.movable(db, id, "settled")
            cost = row.reserved if actual is None else min(whole("actual", actual), MOST)
            # A first call of unknown price promised nothing, so it broke no promise.
            unpriced = row.exclusive and row.reserved == 0
            over = cost > row.reserved and not unpriced
            self._move(db, row, "settled", actual=cost, over=over)
            if over:
                why = f"a call cost {shown(cost)}, and {shown(row.reserved)} was reserved"
                self._stop(db, row.entry_id, row.tool, why)
                db.execute(
                    "INSERT INTO prices VALUES (?1, ?2, ?3, ?3, ?4)"
                    " ON CONFLICT (entry_id) DO UPDATE SET charged = max(charged, ?4)",
                    (row.entry_id, row.tool, row.reserved, cost),
                )
            if unpriced and actual is None:
                self._untold(db, row.entry_id, row.tool)
        return Settled(id, row.reserved, cost, over, unpriced and actual is None)

    def release(self, id: str) -> None:
        """Tell that nothing was spent."""
        with self._database.writing() as db:
            self._move(db, query.movable(db, id, "released"), "released")

    def unknown(self, id: str, why: str) -> None:
        """Tell that the answer was lost: the money stays reserved."""
        with self._database.writing() as db:
            self._move(db, query.movable(db, id, "unknown"), "unknown", why=why)

    def resolve(self, id: str, charged: bool, amount: int | None = None) -> None:
        """Book what became of an unknown call; no amount is as reserved."""
        if amount is not None and (whole("amount", amount) > MOST or not charged):
            raise CatalogError(f"call {id} cannot be booked with {shown(amount)}")
        with self._database.writing() as db:
            row = query.movable(db, id, "settled")
            if row.state != "unknown":
                raise CatalogError(f"call {id} is {row.state}, not unknown: its own process books it")
            if not charged:
                self._move(db, row, "released", why=row.why)
                return
            if amount is None and row.exclusive and row.reserved == 0:
                raise CatalogError(f"call {id} had no known price: say what it cost")
            cost = row.reserved if amount is None else amount
            self._move(db, row, "settled", actual=cost, over=cost > row.reserved, why=row.why)

    def recover(self, owner_alive: Callable[[str], bool]) -> list[Row]:
        """Book what dead owners left: what was not sent is released, what was is unknown. The rows changed.

        Rows of living owners are left alone, unless nothing happened to them for a day.
        """
        since = self._clock() - _ABANDONED
        with self._database.reading() as db:
            owners = {row.owner for row in query.under_way(db)} - {self.owner}
        dead = {owner for owner in owners if not owner_alive(owner)}  # the caller's code: in no transaction
        with self._database.writing() as db:
            left = [row for row in query.under_way(db) if row.owner in dead or row.changed < since]
            for row in left:
                to: State = "released" if row.state == "reserved" else "unknown"
                self._move(db, row, to, why="the process that made this call ended before it was over")
            return [query.row(db, row.id) for row in left]

    def stopped(self, entry_id: str) -> str | None:
        """Why an entry is stopped, None if it is not."""
        with self._database.reading() as db:
            return query.stopped(db, entry_id)

    def stop(self, entry_id: str, tool: str, why: str) -> None:
        """Let an entry be called no more."""
        with self._database.writing() as db:
            self._stop(db, entry_id, tool, why)

    def accept(self, entry_id: str) -> None:
        """Let a stopped entry be called again."""
        with self._database.writing() as db:
            db.execute("DELETE FROM stops WHERE entry_id = ?", (entry_id,))

    def stops(self) -> list[Stop]:
        """The tools that are stopped."""
        with self._database.reading() as db:
            found = db.execute("SELECT entry_id, tool, why, at FROM stops ORDER BY tool, entry_id")
            return [Stop(*each) for each in found]

    def untold(self) -> dict[str, str]:
        """The entries whose price nobody tells, each with the name of its tool."""
        with self._database.reading() as db:
            return dict(db.execute("SELECT entry_id, tool FROM untold ORDER BY tool, entry_id"))

    def named(self, name: str) -> dict[str, str]:
        """The entries that a name stands for, each with the name of its tool: an id, or a tool's name."""
        with self._database.reading() as db:
            return query.named(db, name)

    def price(self, entry_id: str) -> int | None:
        """The pinned price, None if none was seen."""
        with self._database.reading() as db:
            pinned: int | None = query.one(db, "SELECT price FROM prices WHERE entry_id = ?", entry_id)
            return pinned

    def pin_price(self, entry_id: str, tool: str, price: int) -> PriceCheck:
        """Check a price. The first one is pinned; a lower one is fine and leaves the pin; a higher one is not."""
        price = min(whole("price", price), MOST)
        with self._database.reading() as db:
            known = query.price(db, entry_id)
        if known is not None and (known.tool, known.offered) == (tool, price):
            return PriceCheck(price <= known.price, known.price, price)  # nothing new: the disk need not wait
        with self._database.writing() as db:
            pinned = query.one(db, "SELECT price FROM prices WHERE entry_id = ?", entry_id)
            if pinned is None:
                self._pin(db, entry_id, tool, price)
                return PriceCheck(accepted=True, pinned=price, offered=price, first=True)
            db.execute(
                "UPDATE prices SET tool = ?, offered = ? WHERE entry_id = ?",
                (tool, price, entry_id),
            )
        return PriceCheck(price <= pinned, pinned, price)

    def accept_price(self, entry_id: str, price: int, tool: str = "") -> None:
        """Pin this price instead, or for the first time."""
        if whole("price", price) > MOST:
            raise CatalogError(f"no call may cost {shown(price)}")
        with self._database.writing() as db:
            self._pin(db, entry_id, tool, price)

    def prices(self) -> list[Price]:
        """The pinned prices."""
        with self._database.reading() as db:
            found = db.execute(
                "SELECT entry_id, tool, price, max(offered, charged) FROM prices ORDER BY entry_id"
            )
            return [Price(*each) for each in found]

    def rows(
        self, since: float | None = None, states: Collection[State] | None = None, limit: int | None = None
    ) -> list[Row]:
        """Calls, the newest first."""
        wanted = STATES if states is None else tuple(states)
        where = f"WHERE at >= ? AND state IN ({', '.join('?' * len(wanted))}) ORDER BY number DESC LIMIT ?"
        with self._database.reading() as db:
            return list(query.rows(db, where, since or 0.0, *wanted, -1 if limit is None else limit))

    def totals(self, by: Grouping, since: float | None = None) -> list[Total]:
        """Sums by tool, day, session or state, in the order of their names."""
        with self._database.reading() as db:
            return query.totals(db, by, since or 0.0)

    def _move(
        self,
        db: Connection,
        row: Row,
        to: State,
        *,
        actual: int | None = None,
        over: bool = False,
        why: str = "",
    ) -> None:
        db.execute(
            "UPDATE spending SET state = ?, actual = ?, over = ?, why = ?, changed = ? WHERE id = ?",
            (to, actual, over, _brief(why), self._clock(), row.id),
        )

    def _stop(self, db: Connection, entry_id: str, tool: str, why: str) -> None:
        values = (entry_id, tool, _brief(why), self._clock())
        db.execute("INSERT OR REPLACE INTO stops VALUES (?, ?, ?, ?)", values)

    def _untold(self, db: Connection, entry_id: str, tool: str) -> None:
        db.execute("INSERT OR REPLACE INTO untold VALUES (?, ?, ?)", (entry_id, tool, self._clock()))

    def _pin(self, db: Connection, entry_id: str, tool: str, price: int) -> None:
        db.execute(
            "INSERT INTO prices VALUES (?1, ?2, ?3, ?3, 0) ON CONFLICT (entry_id) DO UPDATE SET"
            " tool = CASE ?2 WHEN '' THEN tool ELSE ?2 END, price = ?3, offered = ?3, charged = 0",
            (entry_id, tool, price),
        )
        db.execute("DELETE FROM untold WHERE entry_id = ?", (entry_id,))


def _brief(why: str) -> str:
    """A reason as it is kept. It may hold the words of others."""
    return why[:_LONGEST_WHY].encode(errors="replace").decode()
