"""The ledger in a SQLite file that any number of threads and processes of this machine book in.

Owns what is booked and when it may be. Every change is one transaction that also holds the check, so a budget
cannot be overrun by calls that race, and nothing is half booked when a process dies. Amounts are micros (see
`types`).

    ledger = SqliteLedger(default_path())
    ledger.recover(owner_alive)                  # what a crash left
    ledger.note_entries({entry_id: name, ...})   # after each list that was read
    booking = ledger.begin(order, limits)        # connected, nothing sent yet; raises: no request
    ledger.settle(booking.id, cost) | ledger.release(booking.id) | ledger.unknown(booking.id, why)

What must survive a power cut waits for the disk: `begin`, a cost above what was reserved, `unknown`, stops and what
people accept. A cost within what was reserved, `release` and `note_entries` do not wait (see `database`).
"""

import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Final, Self

from platformdirs import user_state_path

from toolwire._support.terminal import plain_line
from toolwire.catalog.ledger import entries, pricing
from toolwire.catalog.ledger import queries as query
from toolwire.catalog.ledger.database import Database
from toolwire.catalog.ledger.owners import owner_alive, this_process
from toolwire.catalog.ledger.types import (
    MOST,
    STATES,
    Booking,
    Busy,
    Duplicate,
    Grouping,
    Ledger,
    Limit,
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
    format_dollars,
    whole,
)
from toolwire.errors import CatalogError

__all__ = [  # noqa: RUF022 - by kind
    "Ledger", "SqliteLedger", "default_path", "owner_alive", "this_process",
    "Order", "Booking", "Limits", "Settled", "Row", "Total", "State", "Grouping", "Price", "Unpriced", "Stop",
    "OverBudget", "PriceRaised", "Busy", "Duplicate", "Stopped",
]  # fmt: skip

_ABANDONED: Final = 86_400.0  # no call lives for a day: its owner has forgotten it, alive or not
MOST_LOST: Final = 5
"""Replies of an entry that may be lost in a row before it is stopped."""
_LONGEST_WHY: Final = 500
_LONGEST_COST: Final = 80


class _MustBeDurableError(Exception):
    """A booking turned out to need the disk: it is undone, and made once more."""


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the usual path of the ledger: `$TOOLWIRE_LEDGER`, or `ledger.db` in the user's folder for state."""
    if given := environ.get("TOOLWIRE_LEDGER"):
        return Path(given).expanduser()
    return user_state_path("toolwire", appauthor=False) / "ledger.db"


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
        self._listed: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def together(self) -> AbstractContextManager[None]:
        """Book all calls that this thread makes inside with one wait for the disk, at the end.

        A call that is refused raises as usual and leaves the others alone. No order may be sent before the block is
        over: if that raises, nothing was booked, except what gives money back.
        """
        return self._database.together()

    def begin(self, order: Order, limits: Limits) -> Booking:
        """Check an order against all that is known and book it as sent. If it raises, nothing may be sent."""
        with self._database.writing() as db:
            if new := entries.find_new(db, {order.entry_id: order.name}):
                entries.note(db, new, self._clock())
            query.check_allowed(db, order)
            for price in (order.price, order.default_price):
                if price is not None:
                    Limit("call", MOST, 0, "the most that a call can be booked with").check(order.tool, price)
            agreed = pricing.agree(db, order)
            if not isinstance(agreed, PriceRaised):
                return self._book(db, order, agreed, limits)
        raise agreed  # after the commit: what was asked is remembered, for a person to accept

    def _book(self, db: Connection, order: Order, agreed: pricing.Agreed, limits: Limits) -> Booking:
        """Book an order as sent, unless a limit or a call that is out forbids it."""
        unpriced = agreed.price is None
        if unpriced:
            query.check_priced(db, order, limits)
        exclusive = unpriced or (not agreed.confirmed and limits.any_for(order.entry_id))
        if exclusive:
            query.check_exclusive(db, order, limits, unpriced, owner_alive)
        now = self._clock()
        today = _day(now)
        day = max(today, query.latest_day(db))  # a clock that was set back opens no day once more
        id = secrets.token_hex(6)  # noqa: A001 - as everywhere here
        reserved = _reserve(order.tool, agreed, list(query.limits_of(db, order, limits, day, today)))
        booking = Booking(id, reserved, agreed.price, exclusive)
        db.execute(
            "INSERT INTO spending (id, at, day, session, tool, entry_id, variant, key, digest, price, guessed,"
            " reserved, exclusive, owner, state, changed) VALUES (:id, :now, :day, :session, :tool, :entry_id,"
            " :variant, :key, :digest, :price, :guessed, :reserved, :exclusive, :owner, 'sent', :now)",
            vars(order)
            | vars(booking)
            | {"guessed": agreed.guessed, "now": now, "day": day, "owner": self.owner},
        )
        return booking

    def check_again(self, id: str, limits: Limits) -> None:
        """Raise if a booked order must not be sent once more: stopped, over a limit by now, or no longer sent."""
        with self._database.reading(current=True) as db:
            row = query.row(db, id)
            if row.state != "sent":
                raise CatalogError(f"call {id} of {row.tool} is {row.state}: it cannot be sent again")
            query.check_stopped(db, row)
            for limit in query.limits_of(db, row, limits, row.day, row.day):
                if limit.name != "call" and limit.used > limit.most:
                    raise OverBudget(
                        f"{limit.text} is {format_dollars(limit.most)}, and {format_dollars(limit.used)} is used by"
                        f" now: {row.tool} is not sent again",
                        limit.name,
                        0,
                        row.reserved,
                    )

    def settle(self, id: str, actual: int | None, *, unreadable: str = "") -> Settled:
        """Book what a call cost; None, if the reply does not tell, counts as the price that was asked.

        More than reserved stops the entry until it is accepted; so does a cost that is `unreadable`, and then what
        was reserved counts. None for a call of unknown price: nothing counts, and the entry is marked as unpriced.
        """
        if actual is not None and unreadable:
            raise ValueError(f"a cost is either read ({actual!r}) or unreadable ({unreadable!r})")
        if actual is not None:
            actual = min(whole("actual", actual), MOST)
        try:
            return self._settle(id, actual, unreadable, durable=bool(unreadable))
        except _MustBeDurableError:
            return self._settle(id, actual, unreadable, durable=True)

    def _settle(self, id: str, actual: int | None, unreadable: str, *, durable: bool) -> Settled:
        with self._database.writing(durable) as db:
            row = query.movable(db, id, "settled")
            told = row.price or 0 if actual is None else actual
            cost = row.reserved if unreadable else told
            if cost > row.reserved and not durable:
                raise _MustBeDurableError
            # A first call of unknown price promised nothing, so it broke no promise.
            over = cost > row.reserved and row.price is not None
            self._move(db, row, "settled", actual=cost, over=over)
            stopped = ""
            if over:
                pricing.record_overcharge(db, row, cost)
                stopped = (
                    f"a call cost {format_dollars(cost)}, and {format_dollars(row.reserved)} was reserved"
                )
            elif unreadable:
                stopped = f"the cost in a reply cannot be read: {_quote(unreadable)}"
            elif actual is not None and (row.price is None or row.guessed):
                pricing.learn(db, row, cost)
            else:
                pricing.confirm(db, row, cost)
            if stopped:
                self._stop(db, row.entry_id, row.tool, stopped)
            if actual is None and (row.price is None or row.guessed):
                pricing.mark_unpriced(db, row, self._clock())
        return Settled(id, row.reserved, cost, over, row.price is None and actual is None, stopped)

    def release(self, id: str) -> None:
        """Book that nothing was spent."""
        with self._database.writing(durable=False) as db:
            self._move(db, query.movable(db, id, "released"), "released")

    def unknown(self, id: str, why: str) -> None:
        """Book that the reply was lost: the money stays reserved.

        What it cost nobody knows, so the price counts as unconfirmed again, and after several in a row the entry is
        stopped: an API that spoils its replies could charge what it likes.
        """
        with self._database.writing() as db:
            row = query.movable(db, id, "unknown")
            self._move(db, row, "unknown", why=why)
            lost = pricing.doubt(db, row)
            if lost >= MOST_LOST and not query.stops(db, row.entry_id):
                self._stop(db, row.entry_id, row.tool, f"the replies to {lost} calls in a row were lost")

    def resolve(self, id: str, charged: bool, amount: int | None = None) -> None:
        """Book what became of an unknown call; no amount is as reserved."""
        if amount is not None and (whole("amount", amount) > MOST or not charged):
            raise CatalogError(f"call {id} cannot be booked with {format_dollars(amount)}")
        with self._database.writing() as db:
            row = query.movable(db, id, "settled")
            if row.state != "unknown":
                raise CatalogError(f"call {id} is {row.state}, not unknown: its own process books it")
            if not charged:
                self._move(db, row, "released", why=row.why)
                return
            if amount is None and row.price is None:
                raise CatalogError(f"call {id} had no known price: say what it cost")
            cost = row.reserved if amount is None else amount
            self._move(db, row, "settled", actual=cost, over=cost > row.reserved, why=row.why)

    def recover(self, owner_alive: Callable[[str], bool]) -> list[Row]:
        """Book the calls of dead owners as unknown. Returns their rows.

        Calls of living owners are left alone, unless nothing happened to them for a day.
        """
        since = self._clock() - _ABANDONED
        with self._database.reading() as db:
            owners = {row.owner for row in query.open_calls(db)} - {self.owner}
        dead = {owner for owner in owners if not owner_alive(owner)}  # the caller's code: in no transaction
        with self._database.writing() as db:
            left = [row for row in query.open_calls(db) if row.owner in dead or row.changed < since]
            for row in left:
                self._move(db, row, "unknown", why="the process that made this call ended before it was over")
            return [query.row(db, row.id) for row in left]

    def note_entries(self, names: Mapping[str, str]) -> None:
        """Take note of a list that was just read: the name of every entry, by its id.

        An id that is new, or has a name that is new for it, inherits stops and prices of those that had the name.
        """
        if names == self._listed:
            return
        with self._database.reading() as db:
            new = entries.find_new(db, names)
        if new:
            with self._database.writing(durable=False) as db:
                new = entries.find_new(db, dict(new))  # another process may have been faster
                entries.note(db, new, self._clock())
        if not self._database.grouped:  # else it may still be undone
            self._listed = dict(names)

    def stopped(self, entry_id: str) -> str | None:
        """Return why an entry is stopped, None if it is not."""
        with self._database.reading() as db:
            return next((stop.why for stop in query.stops(db, entry_id)), None)

    def stop(self, entry_id: str, tool: str, why: str) -> None:
        """Refuse calls of an entry from now on."""
        with self._database.writing() as db:
            self._stop(db, entry_id, tool, why)

    def accept(self, entry_id: str) -> None:
        """Allow calls of a stopped entry again."""
        with self._database.writing() as db:
            db.execute("DELETE FROM stops WHERE entry_id = ?", (entry_id,))
            pricing.trust(db, entry_id)

    def stops(self) -> list[Stop]:
        """Return the tools that are stopped."""
        with self._database.reading() as db:
            return query.stops(db)

    def unpriced(self) -> list[Unpriced]:
        """Return the tools, or actions of them, whose price neither the list nor a reply told."""
        with self._database.reading() as db:
            return query.unpriced(db)

    def find(self, name: str) -> dict[str, str]:
        """Find the entries that a name stands for (an id, or a tool's name), each with the name of its tool."""
        with self._database.reading() as db:
            return query.find(db, name)

    def price(self, entry_id: str, variant: str = "") -> int | None:
        """Return the price that was agreed to, None if there is none."""
        with self._database.reading() as db:
            pin = query.pin(db, entry_id, variant)
            return None if pin is None else pin.price

    def accept_price(self, entry_id: str, price: int, tool: str = "", variant: str = "") -> None:
        """Agree to this price instead, or for the first time."""
        if whole("price", price) > MOST:
            raise CatalogError(f"no call may cost {format_dollars(price)}")
        with self._database.writing() as db:
            pricing.put(db, entry_id, variant, tool, price)

    def prices(self) -> list[Price]:
        """Return the prices that were agreed to."""
        with self._database.reading() as db:
            return query.prices(db)

    def today(self) -> str:
        """Return the day (UTC) that a call made now counts for: the clock's, or a later one that has calls."""
        with self._database.reading() as db:
            return max(_day(self._clock()), query.latest_day(db))

    def rows(
        self, since: float | None = None, states: Collection[State] | None = None, limit: int | None = None
    ) -> list[Row]:
        """Return calls, the newest first."""
        wanted = STATES if states is None else tuple(states)
        where = f"WHERE at >= ? AND state IN ({', '.join('?' * len(wanted))}) ORDER BY number DESC LIMIT ?"
        with self._database.reading() as db:
            return list(query.rows(db, where, since or 0.0, *wanted, -1 if limit is None else limit))

    def totals(self, by: Grouping, since: float | None = None) -> list[Total]:
        """Return sums by tool, day, session or state, in the order of their names."""
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
        db.execute("INSERT OR REPLACE INTO stops (entry_id, tool, why, at) VALUES (?, ?, ?, ?)", values)


def _reserve(tool: str, agreed: pricing.Agreed, limits: Collection[Limit]) -> int:
    """Return how much to reserve: the most that was agreed to, or if that does not fit, what is asked."""
    if agreed.price is not None and all(limit.most - limit.used >= agreed.most for limit in limits):
        return agreed.most
    for limit in limits:
        limit.check(tool, agreed.price)
    return agreed.price or 0


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _brief(why: str) -> str:
    """Cut a reason to what is kept. It may hold the words of others."""
    return why[:_LONGEST_WHY].encode(errors="replace").decode()


def _quote(text: str) -> str:
    """Cut the words of others and make them printable."""
    cut = text if len(text) <= _LONGEST_COST else text[:_LONGEST_COST] + "..."
    return plain_line(cut)
