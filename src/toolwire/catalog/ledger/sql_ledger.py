"""A ledger in a SQL database: what is booked, and when that is allowed.

Every change is one transaction that includes the checks, so concurrent calls cannot exceed a budget, and nothing is
half booked when a process dies. Amounts are micros (see `types`). A derived class (`sqlite`, `postgres`) decides
which database is used, and how it is detected that an owner is alive.

    ledger.recover()                             # books the open calls of processes that have died
    ledger.note_entries({entry_id: name, ...})   # after each list that was read
    booking = ledger.begin(order, limits)        # connected, nothing sent yet; if it raises, nothing may be sent
    ledger.settle(booking.id, cost) | ledger.release(booking.id) | ledger.unknown(booking.id, why)

Changes that must survive a power cut wait for the disk: `begin`, a cost above the reserved amount, `unknown`, stops
and whatever a user accepts. A cost within the reserved amount, `release` and `note_entries` do not wait.
"""

import math
import secrets
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, Self

from toolwire._support.words import plain_line, storable
from toolwire.catalog.ledger import pricing
from toolwire.catalog.ledger import queries as query
from toolwire.catalog.ledger.transactions import Database, Transaction
from toolwire.catalog.ledger.types import (
    HELD,
    MOST,
    STATES,
    Booking,
    Document,
    Grouping,
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
    Total,
    Unpriceable,
    Unpriced,
    check_micros,
    format_dollars,
)
from toolwire.errors import CatalogError

_ABANDONED: Final = 86_400.0  # no call takes a day: its owner, alive or not, has lost track of it
MOST_LOST: Final = 5
"""The number of replies of an entry lost in a row after which it is stopped."""
_LONGEST_WHY: Final = 500
_LONGEST_COST: Final = 80
_AT_ONCE: Final = 500
_MANY: Final = 50
_LONGEST_QUEUE: Final = 3_600.0
"""The farthest a rate limit is booked in advance, in seconds; more means that the clock was set back."""

Listed = tuple[str, str]
"""The id of an entry, and a name under which it was listed."""


class _MustBeDurableError(Exception):
    """A booking turned out to need a durable transaction: it is rolled back and made again."""


class Ledger(ABC):
    """Books money. Every method is thread-safe and atomic: it is done entirely or not at all.

    A method that cannot book something raises `CatalogError` and changes nothing: then no request may be sent. A
    ledger of another kind is any object with the same methods, and need not be derived from this class.
    """

    owner: str
    """The owner of calls that are booked now: the unique name of this process."""
    lease: float
    """Seconds after which an owner without a heartbeat counts as dead; infinity if it is observed directly."""
    remote: bool
    """True if processes on other machines may use the ledger too."""
    path: str
    """Where the ledger is, for display; without a password."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.path = database.path
        self._listed: dict[str, str] = {}

    @abstractmethod
    def _now(self, db: Transaction) -> float:
        """Return the current time by the clock that applies, in seconds since 1970."""

    @abstractmethod
    def _is_alive(self, db: Transaction, owner: str) -> bool:
        """True if an owner is alive, so that it may still book the outcome of its calls."""

    @abstractmethod
    def _check_owner(self, db: Transaction, row: Row | None = None) -> None:
        """Raise `LeaseLost` if this owner may not send anything, or may not send the call in `row`."""

    @abstractmethod
    def _expect(self, db: Transaction, order: Order, limits: Limits) -> None:
        """Prepare for the queries of a usual booking: a remote database can run them in one round trip."""

    @abstractmethod
    def beat(self) -> float:
        """Send a heartbeat for this owner. Returns the seconds for which it is valid: a lease, or infinity.

        Raises `LeaseLost` if the last heartbeat was too long ago: others have declared this owner dead and book its
        open calls as unknown, so it must stop everything that costs money. From then on there is a new owner with
        its own lease. Callers need not send heartbeats while they book: an open ledger sends them itself.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the ledger. May be called twice."""
        self._database.close()

    def together(self) -> AbstractContextManager[None]:
        """Commit everything that this thread books inside the block together, with one wait for the disk.

        A call that is refused raises as usual and does not affect the others. No order may be sent before the block
        has ended: if its end raises, nothing was booked, except changes that release money.
        """
        return self._database.together()

    def begin(self, order: Order, limits: Limits, held: str = "") -> Booking:
        """Check an order against limits, prices and stops, and book it as sent.

        Raises `OverBudget`, `Stopped`, `PriceRaised`, `Busy` or `Duplicate`: then nothing may be sent. Money that
        is `held` for it is released in the same transaction, so that no other order can take it.
        """
        with self._database.writing() as db:
            self._check_owner(db)
            if not held:  # releasing held money changes the sums, so they cannot be queried in advance
                self._expect(db, order, limits)
            agreed = self._agree(db, order)
            if not isinstance(agreed, PriceRaised):
                if held:
                    self._drop_held(db, held)
                return self._book(db, order, agreed, limits)
        raise agreed  # after the commit: the new price is recorded, for a user to accept

    def hold(self, orders: Sequence[tuple[Order, Limits]]) -> list[Booking]:
        """Hold the money for several orders, for all or none, before the first of them is sent.

        Raises the same errors as `begin`, and `Unpriceable` if the price of one is unknown.
        """
        raised = None
        with self._database.writing() as db:
            self._check_owner(db)
            agreements = [self._agree(db, order) for order, _ in orders]
            raised = next((each for each in agreements if isinstance(each, PriceRaised)), None)
            if raised is None:
                return [
                    self._hold(db, order, agreed, limits)
                    for (order, limits), agreed in zip(orders, agreements, strict=True)
                    if not isinstance(agreed, PriceRaised)
                ]
        raise raised  # after the commit, as in `begin`

    def drop_held(self, ids: Collection[str]) -> None:
        """Release money that is still held. Ids whose orders were booked meanwhile are ignored."""
        with self._database.writing(durable=False) as db:
            for id in ids:  # noqa: A001 - as everywhere here
                self._drop_held(db, id)

    def _agree(self, db: Transaction, order: Order) -> pricing.Agreed | PriceRaised:
        """Return the agreed price of an order. Raises if it may not be sent at any price."""
        if not order.vouched and (new := _find_new(db, {order.entry_id: order.name})):
            _note_new(db, new, self._now(db))
        query.check_allowed(db, order)
        for price in (order.price, order.default_price):
            if price is not None:
                Limit("call", MOST, 0, "the maximum for a single call").check(order.tool, price)
        return pricing.vouch(order) if order.vouched else pricing.agree(db, order)

    def _hold(self, db: Transaction, order: Order, agreed: pricing.Agreed, limits: Limits) -> Booking:
        if agreed.price is None:
            raise Unpriceable(
                f"{order.tool} has no known price, so its money cannot be reserved in advance; set max_price for"
                f" its step, or set a price: toolwire catalog accept {query.reference(db, order)} --price 0.01."
                " Nothing was bought"
            )
        return self._insert(db, order, agreed, limits, exclusive=False, why=HELD)

    def _drop_held(self, db: Transaction, id: str) -> None:
        """Release the money held under an id, if it still is. Released before it is deleted, to update the sums."""
        where = "WHERE id = ? AND state = ? AND why = ?"
        db.execute(f"UPDATE spending SET state = 'released' {where}", (id, "sent", HELD))  # noqa: S608 - a constant
        db.execute(f"DELETE FROM spending {where}", (id, "released", HELD))  # noqa: S608

    def _book(self, db: Transaction, order: Order, agreed: pricing.Agreed, limits: Limits) -> Booking:
        """Book an order as sent, unless a limit or another call in flight forbids it."""
        unpriced = agreed.price is None
        if unpriced:
            query.check_priced(db, order, limits)
        exclusive = unpriced or (not agreed.confirmed and limits.any_for(order.entry_id))
        if exclusive:
            query.check_exclusive(db, order, limits, unpriced, partial(self._is_alive, db))
        return self._insert(db, order, agreed, limits, exclusive=exclusive)

    def _insert(
        self,
        db: Transaction,
        order: Order,
        agreed: pricing.Agreed,
        limits: Limits,
        *,
        exclusive: bool,
        why: str = "",
    ) -> Booking:
        """Book money within all limits."""
        now = self._now(db)
        today = day_of(now)
        day = max(today, query.latest_day(db))  # a clock that was set back must not reopen an earlier day
        id = secrets.token_hex(6)  # noqa: A001 - as everywhere here
        reserved = _reserve(order.tool, agreed, list(query.limits_of(db, order, limits, day, today)))
        booking = Booking(id, reserved, agreed.price, exclusive)
        booked = {
            **vars(order),
            **vars(booking),
            "at": now,
            "changed": now,
            "day": day,
            "guessed": agreed.guessed,
            "owner": self.owner,
            "state": "sent",
            "why": why,
        }
        columns = [each for each in query.COLUMNS if each in booked]
        db.execute(
            f"INSERT INTO spending ({', '.join(columns)}) VALUES ({query.marks(columns)})",  # noqa: S608 - ours
            [booked[each] for each in columns],
        )
        return booking

    def check_again(self, id: str, limits: Limits) -> None:
        """Raise if a booked order must not be sent again: stopped, over a limit by now, or no longer `sent`."""
        with self._database.reading(current=True) as db:
            row = query.row(db, id)
            if row.state != "sent":
                raise CatalogError(f"call {id} of {row.tool} is {row.state}: it cannot be sent again")
            self._check_owner(db, row)
            query.check_stopped(db, row)
            for limit in query.limits_of(db, row, limits, row.day, row.day):
                if limit.name != "call" and limit.used > limit.most:
                    raise OverBudget(
                        f"{limit.text} is {format_dollars(limit.most)}, but {format_dollars(limit.used)} is already"
                        f" used: {row.tool} is not sent again",
                        limit.name,
                        0,
                        row.reserved,
                    )

    def settle(
        self, id: str, actual: int | None, *, unreadable: str = "", stop_if_over: bool = True
    ) -> Settled:
        """Book the cost of a call, which may be unknown by now: a late reply counts too.

        None, if the reply does not have the cost, counts as the expected price.

        A cost above the reserved amount stops the entry until it is accepted, unless `stop_if_over` is False. An
        `unreadable` cost stops it too, and the reserved amount counts. None for a call of unknown price: nothing is
        counted, and the entry is marked as unpriced.
        """
        if actual is not None and unreadable:
            raise ValueError(f"actual ({actual!r}) and unreadable ({unreadable!r}) cannot both be set")
        if actual is not None:
            actual = min(check_micros("actual", actual), MOST)
        try:
            return self._settle(id, actual, unreadable, stop_if_over, durable=bool(unreadable))
        except _MustBeDurableError:
            return self._settle(id, actual, unreadable, stop_if_over, durable=True)

    def _settle(
        self, id: str, actual: int | None, unreadable: str, stop_if_over: bool, *, durable: bool
    ) -> Settled:
        with self._database.writing(durable) as db:
            row = query.check_transition(db, id, "settled")
            known = row.price or 0 if actual is None else actual
            cost = row.reserved if unreadable else known
            if cost > row.reserved and not durable:
                raise _MustBeDurableError
            # A call of unknown price cannot exceed its price.
            over = cost > row.reserved and row.price is not None
            self._move(db, row, "settled", actual=cost, over=over)
            stopped = ""
            if over and stop_if_over:
                pricing.record_overcharge(db, row, cost)
                stopped = (
                    f"a call cost {format_dollars(cost)}, but {format_dollars(row.reserved)} was reserved"
                )
            elif unreadable:
                stopped = f"the cost in a reply cannot be read: {_quote(unreadable)}"
            elif actual is not None and (row.price is None or row.guessed):
                pricing.adopt_cost(db, row, cost)
            else:
                pricing.confirm(db, row, cost)
            if stopped:
                self._stop(db, row.entry_id, row.tool, stopped)
            if actual is None and (row.price is None or row.guessed):
                pricing.mark_unpriced(db, row, self._now(db))
        return Settled(id, row.reserved, cost, over, row.price is None and actual is None, stopped)

    def release(self, id: str) -> None:
        """Book that nothing was spent."""
        with self._database.writing(durable=False) as db:
            self._move(db, query.check_transition(db, id, "released"), "released")

    def unknown(self, id: str, why: str) -> None:
        """Book that the reply was lost: the money stays reserved.

        The cost is not known, so the price counts as unconfirmed again, and after several lost replies in a row the
        entry is stopped: otherwise an API that breaks its replies could charge any amount.
        """
        with self._database.writing() as db:
            row = query.check_transition(db, id, "unknown")
            self._move(db, row, "unknown", why=why)
            lost = pricing.record_lost_reply(db, row)
            if lost >= MOST_LOST and not query.stops(db, row.entry_id):
                self._stop(db, row.entry_id, row.tool, f"the replies to {lost} calls in a row were lost")

    def resolve(self, id: str, charged: bool, amount: int | None = None) -> None:
        """Book the outcome of an unknown call. Without an amount, the reserved one was charged."""
        if amount is not None and (check_micros("amount", amount) > MOST or not charged):
            raise CatalogError(f"call {id} cannot be booked with {format_dollars(amount)}")
        with self._database.writing() as db:
            row = query.check_transition(db, id, "settled")
            if row.state != "unknown":
                raise CatalogError(
                    f"call {id} is {row.state}, not unknown: its own process books the outcome"
                )
            if not charged:
                self._move(db, row, "released", why=row.why)
                return
            if amount is None and row.price is None:
                raise CatalogError(f"call {id} had no known price: give the amount that it cost")
            cost = row.reserved if amount is None else amount
            self._move(db, row, "settled", actual=cost, over=cost > row.reserved, why=row.why)

    def recover(self) -> list[Row]:
        """Book the open calls of dead owners as unknown, and release what they only held. Returns the unknown ones.

        Calls of living owners are left alone, unless they have not changed for a day.
        """
        with self._database.reading() as db:
            owners = {row.owner for row in query.open_calls(db)} - {self.owner}
            dead = {owner for owner in owners if not self._is_alive(db, owner)}
        with self._database.writing() as db:
            since = self._now(db) - _ABANDONED
            left = [row for row in query.open_calls(db) if row.owner in dead or row.changed < since]
            for row in [each for each in left if each.why == HELD]:  # its order was never sent
                self._drop_held(db, row.id)
                left.remove(row)
            for row in left:
                self._move(
                    db, row, "unknown", why="the process that made this call ended before the call was over"
                )
            return [query.row(db, row.id) for row in left]

    def note_entries(self, names: Mapping[str, str]) -> None:
        """Record the entries of a list that was just read: the name of every entry, by its id.

        A new id, or a new name of a known id, inherits stops and prices from entries that had the name before.
        """
        if names == self._listed:
            return
        with self._database.reading() as db:
            new = _find_new(db, names)
        if new:
            with self._database.writing(durable=False) as db:
                new = _find_new(db, dict(new))  # another process may have recorded some meanwhile
                _note_new(db, new, self._now(db))
        if not self._database.grouped:  # otherwise it may still be rolled back
            self._listed = dict(names)

    def stopped(self, entry_id: str) -> str | None:
        """Return why an entry is stopped, None if it is not."""
        with self._database.reading() as db:
            return next((stop.why for stop in query.stops(db, entry_id)), None)

    def stop(self, entry_id: str, tool: str, why: str) -> None:
        """Refuse calls to an entry from now on."""
        with self._database.writing() as db:
            self._stop(db, entry_id, tool, why)

    def accept(self, entry_id: str) -> None:
        """Allow calls to a stopped entry again."""
        with self._database.writing() as db:
            db.execute("DELETE FROM stops WHERE entry_id = ?", (entry_id,))
            pricing.clear_lost_replies(db, entry_id)

    def stops(self) -> list[Stop]:
        """Return the tools that are stopped."""
        with self._database.reading() as db:
            return query.stops(db)

    def unpriced(self) -> list[Unpriced]:
        """Return the tools, or actions of them, whose price is in neither the list nor a reply."""
        with self._database.reading() as db:
            return query.unpriced(db)

    def find(self, name: str) -> dict[str, str]:
        """Find the entries with this id or tool name. Returns entry id -> tool name."""
        with self._database.reading() as db:
            return query.find(db, name)

    def price(self, entry_id: str, variant: str = "") -> int | None:
        """Return the agreed price; None if there is none."""
        with self._database.reading() as db:
            pin = query.pin(db, entry_id, variant)
            return None if pin is None else pin.price

    def accept_price(self, entry_id: str, price: int, tool: str = "", variant: str = "") -> None:
        """Set the agreed price, which may be the first one."""
        if check_micros("price", price) > MOST:
            raise CatalogError(f"no call may cost {format_dollars(price)}")
        with self._database.writing() as db:
            pricing.set_price(db, entry_id, variant, tool, price)

    def prices(self) -> list[Price]:
        """Return the agreed prices."""
        with self._database.reading() as db:
            return query.prices(db)

    def today(self) -> str:
        """Return the day (UTC) that a call made now counts for: today, or a later day that already has calls."""
        with self._database.reading() as db:
            return max(day_of(self._now(db)), query.latest_day(db))

    def rows(
        self, since: float | None = None, states: Collection[State] | None = None, limit: int | None = None
    ) -> list[Row]:
        """Return calls, the newest first."""
        wanted = STATES if states is None else tuple(states)
        if not wanted:
            return []
        where = f"WHERE at >= ? AND state IN ({query.marks(wanted)}) ORDER BY number DESC"
        values = [since or 0.0, *wanted]
        if limit is not None:
            where, values = f"{where} LIMIT ?", [*values, limit]
        with self._database.reading() as db:
            return list(query.rows(db, where, *values))

    def totals(self, by: Grouping, since: float | None = None) -> list[Total]:
        """Return sums by tool, day, session or state, sorted by name."""
        with self._database.reading() as db:
            return query.totals(db, by, since or 0.0)

    def take_turn(self, name: str, interval: float, slack: float, at_most: float) -> float | None:
        """Take the next slot of a rate limit that all users of this ledger share.

        Returns the seconds until the slot; None, without taking it, if those are more than `at_most`.
        """
        with self._database.writing(durable=False) as db:
            now = self._now(db)
            known: float | None = query.one(db, "SELECT free_at FROM rates WHERE name = ?", name)
            if known is None or known > now + _LONGEST_QUEUE + slack + interval:
                known = -math.inf
            delay = max(0.0, known - slack - now)
            if delay > at_most:
                return None
            db.execute(
                "INSERT INTO rates (name, free_at) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET free_at = ?2",
                (name, max(known, now) + interval),
            )
            return delay

    def return_turn(self, name: str, interval: float) -> None:
        """Give a slot of a rate limit back, for later calls."""
        with self._database.writing(durable=False) as db:
            db.execute("UPDATE rates SET free_at = free_at - ? WHERE name = ?", (interval, name))

    def document(self, name: str) -> Document | None:
        """Return a shared document; None if it does not exist."""
        with self._database.reading() as db:
            found = db.execute("SELECT version, content FROM documents WHERE name = ?", (name,)).fetchone()
        return None if found is None else Document(*found)

    def document_version(self, name: str) -> int:
        """Return the version of a shared document; 0 if it does not exist."""
        with self._database.reading() as db:
            return int(query.one(db, "SELECT version FROM documents WHERE name = ?", name) or 0)

    def change_document(self, name: str, change: Callable[[str | None], str]) -> Document:
        """Replace a shared document with the result of `change`, and return it. Others cannot write meanwhile."""
        with self._database.writing() as db:
            version, before = db.execute(
                "SELECT version, content FROM documents WHERE name = ?", (name,)
            ).fetchone() or (0, None)
            after = change(before)
            if after != before:
                version += 1
                db.execute(
                    "INSERT INTO documents (name, version, content) VALUES (?1, ?2, ?3) ON CONFLICT (name)"
                    " DO UPDATE SET version = ?2, content = ?3",
                    (name, version, after),
                )
        return Document(version, after)

    def _move(
        self,
        db: Transaction,
        row: Row,
        to: State,
        *,
        actual: int | None = None,
        over: bool = False,
        why: str = "",
    ) -> None:
        db.execute(
            "UPDATE spending SET state = ?, actual = ?, over = ?, why = ?, changed = ? WHERE id = ?",
            (to, actual, over, _brief(why), self._now(db), row.id),
        )

    def _stop(self, db: Transaction, entry_id: str, tool: str, why: str) -> None:
        db.execute(
            "INSERT INTO stops (entry_id, tool, why, at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (entry_id)"
            " DO UPDATE SET tool = ?2, why = ?3, at = ?4, inherited_from = ''",
            (entry_id, tool, _brief(why), self._now(db)),
        )


def _reserve(tool: str, agreed: pricing.Agreed, limits: Collection[Limit]) -> int:
    """Return how much to reserve: the agreed maximum or, if that does not fit the limits, the current price."""
    if agreed.price is not None and all(limit.most - limit.used >= agreed.most for limit in limits):
        return agreed.most
    for limit in limits:
        limit.check(tool, agreed.price)
    return agreed.price or 0


def day_of(at: float) -> str:
    """Return the day (UTC) of a time in seconds since 1970."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _brief(why: str) -> str:
    """Shorten a reason, which may quote an API, and make it a text that any database accepts."""
    return storable(why[:_LONGEST_WHY])


def _quote(text: str) -> str:
    """Shorten a text from an API and make it printable."""
    cut = text if len(text) <= _LONGEST_COST else text[:_LONGEST_COST] + "..."
    return plain_line(cut)


def _find_new(db: Transaction, names: Mapping[str, str]) -> list[Listed]:
    """Return the entries that have not been listed under their name before."""
    seen: set[Listed] = set()
    all_ids = list(names)
    for start in range(0, len(all_ids), _AT_ONCE):
        ids = all_ids[start : start + _AT_ONCE]
        seen.update(tuple(each) for each in db.execute(*query.listed_names(ids)))
    return [each for each in names.items() if each not in seen]


def _note_new(db: Transaction, new: Iterable[Listed], now: float) -> None:
    """Insert new entries, with the stops and prices that they inherit from entries that had their name before.

    Entries that are new together do not inherit from each other: they are different products with the same name.
    """
    # Looked up once per name: a list may have the same name ten thousand times.
    groups: dict[Listed, list[str]] = defaultdict(list)
    for entry_id, name in new:
        groups[_scope(entry_id), name].append(entry_id)
    decided = groups.keys() if len(groups) < _MANY else _find_decided(db)
    # All are looked up before anything is copied.
    found = {key: _find_legacy(db, *key) for key in groups if key[1] and key in decided}
    for key, legacy in found.items():
        for entry in groups[key]:
            _inherit(db, entry, legacy, now)
    db.executemany(
        "INSERT INTO entries VALUES (?, ?, ?, ?)",
        [(entry, name, scope, now) for (scope, name), entries in groups.items() for entry in entries],
    )


def _find_decided(db: Transaction) -> set[Listed]:
    """Find all APIs and names with a price, a stop or an unknown price: a few, while a new list has thousands."""
    return set(
        db.execute(
            "SELECT DISTINCT scope, name FROM entries WHERE entry_id IN (SELECT entry_id FROM prices"
            " UNION SELECT entry_id FROM stops UNION SELECT entry_id FROM unpriced)"
        )
    )


@dataclass(frozen=True)
class _Legacy:
    """What a new entry inherits through its name. `stop` names the entry that was stopped originally."""

    prices: list[tuple[str, str, int]]
    unpriced: list[tuple[str, str]]
    stop: tuple[str, str, str] | None


def _find_legacy(db: Transaction, scope: str, name: str) -> _Legacy:
    """Find the lowest price of each variant, the unknown prices, and the oldest stop."""
    of_name = "JOIN entries USING (entry_id) WHERE scope = ? AND entries.name = ?"
    prices: dict[str, tuple[str, str, int]] = {}
    for variant, tool, price in db.execute(
        f"SELECT variant, tool, price FROM prices {of_name} ORDER BY variant, price, tool",  # noqa: S608 - a constant
        (scope, name),
    ):
        prices.setdefault(variant, (variant, tool, price))
    unpriced = db.execute(f"SELECT DISTINCT variant, tool FROM unpriced {of_name}", (scope, name))  # noqa: S608
    stops = db.execute(
        f"SELECT tool, why, inherited_from, entry_id FROM stops {of_name} ORDER BY at, entry_id LIMIT 1",  # noqa: S608
        (scope, name),
    )
    stop = next(((tool, why, first or entry_id) for tool, why, first, entry_id in stops), None)
    return _Legacy(list(prices.values()), list(unpriced), stop)


def _inherit(db: Transaction, entry_id: str, legacy: _Legacy, now: float) -> None:
    """Copy the inherited prices and stop. Those that the entry already has are not replaced."""
    db.executemany(
        "INSERT INTO prices (entry_id, variant, tool, price, offered) VALUES (?1, ?2, ?3, ?4, ?4)"
        " ON CONFLICT DO NOTHING",
        [(entry_id, *each) for each in legacy.prices],
    )
    db.executemany(
        "INSERT INTO unpriced (entry_id, variant, tool, at) SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS"
        " (SELECT 1 FROM prices WHERE entry_id = ?1 AND variant = ?2) ON CONFLICT DO NOTHING",
        [(entry_id, *each, now) for each in legacy.unpriced],
    )
    if legacy.stop is not None:
        tool, why, first = legacy.stop
        db.execute(
            "INSERT INTO stops (entry_id, tool, why, at, inherited_from) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (entry_id, tool, why, now, first),
        )


def _scope(entry_id: str) -> str:
    """Return the API part of an entry's id."""
    return entry_id.partition(":")[0]
