"""Queries on the tables of a ledger, each inside a transaction of the caller. Changes nothing."""

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolwire.catalog.ledger.transactions import Transaction
from toolwire.catalog.ledger.types import (
    GROUPINGS,
    MOST,
    Busy,
    Duplicate,
    Grouping,
    Limit,
    Limits,
    Order,
    Price,
    Row,
    State,
    Stop,
    Stopped,
    Total,
    Unpriced,
)
from toolwire.errors import CatalogError

COLUMNS: Final = tuple(Row.__dataclass_fields__)
"""The fields of a `Row` are columns, by name."""
_FLAGS: Final = [name in ("guessed", "exclusive", "over") for name in COLUMNS]  # numbers in the database
_TABLES: Final = ("spending", "unpriced", "stops", "prices")
"""The tables that name the tools of entries; the last one has the newest names."""
_OPEN: Final = "state IN ('sent', 'unknown')"
"""Written as in the index of open calls, so that the database uses it instead of reading all calls."""
_LATEST_DAY: Final = "SELECT max(day) FROM days"
_STOPS: Final = (
    "SELECT entry_id, tool, why || CASE inherited_from WHEN '' THEN ''"
    " ELSE ' (inherited from ' || inherited_from || ', which had the same name)' END, at FROM stops"
)

Statement = tuple[str, Sequence[Any]]
"""A query and its values."""


def expect_for_begin(order: Order, limits: Limits, day: str) -> list[Statement]:
    """Return the queries of a usual booking, so that a remote database can run them in one round trip."""
    statements = [listed_names([order.entry_id]), _stop_of(order.entry_id)]
    statements += [_same_key(order)] if order.key else []
    statements += [_pin(order.entry_id, order.variant), (_LATEST_DAY, ())]
    found = _set_limits(order, limits, day, day)
    return [*statements, _used(found)] if found else statements


def listed_names(ids: Sequence[str]) -> Statement:
    """Return a query for the names under which entries were listed."""
    return f"SELECT entry_id, name FROM entries WHERE entry_id IN ({marks(ids)})", ids  # noqa: S608 - only marks


def marks(values: Collection[Any]) -> str:
    """Return one placeholder for each value."""
    return ", ".join("?" * len(values))


def one(db: Transaction, query: str, *values: Any) -> Any:
    """Return the first value of the first row, or None."""
    found = db.execute(query, values).fetchone()
    return None if found is None else found[0]


def rows(db: Transaction, where: str, *values: Any) -> Iterator[Row]:
    """Yield the calls that match a clause."""
    query = f"SELECT {', '.join(COLUMNS)} FROM spending {where}"  # noqa: S608 - clauses are ours, values are bound
    for each in list(db.execute(query, values)):
        fields: list[Any] = [bool(value) if flag else value for value, flag in zip(each, _FLAGS, strict=True)]
        yield Row(*fields)


def row(db: Transaction, id: str) -> Row:
    """Return one call."""
    found = next(rows(db, "WHERE id = ?", id), None)
    if found is None:
        raise CatalogError(f"there is no call {id} in the ledger")
    return found


def pin(db: Transaction, entry_id: str, variant: str) -> Price | None:
    """Return the agreed price, with the latest price of the list."""
    found = db.execute(*_pin(entry_id, variant)).fetchone()
    return None if found is None else _read_price(found)


def _pin(entry_id: str, variant: str) -> Statement:
    return (
        "SELECT entry_id, tool, price, offered, variant, confirmed FROM prices WHERE entry_id = ? AND variant = ?",
        (entry_id, variant),
    )


def prices(db: Transaction) -> list[Price]:
    """Return all agreed prices, with what is asked or was charged since."""
    found = db.execute(
        "SELECT entry_id, tool, price, CASE WHEN offered > charged THEN offered ELSE charged END, variant,"
        " confirmed FROM prices ORDER BY entry_id, variant"
    )
    return [_read_price(each) for each in found]


def _read_price(columns: Sequence[Any]) -> Price:
    entry_id, tool, price, offered, variant, confirmed = columns
    return Price(entry_id, tool, price, offered, variant, bool(confirmed))


def unpriced(db: Transaction) -> list[Unpriced]:
    """Return the tools whose price is in neither the list nor a reply."""
    found = db.execute("SELECT entry_id, tool, variant FROM unpriced ORDER BY tool, entry_id, variant")
    return [Unpriced(*each) for each in found]


def is_unpriced(db: Transaction, entry_id: str, variant: str) -> bool:
    """True if an earlier reply had no cost either."""
    return one(db, "SELECT 1 FROM unpriced WHERE entry_id = ? AND variant = ?", entry_id, variant) is not None


def stops(db: Transaction, entry_id: str | None = None) -> list[Stop]:
    """Return the stops: of one entry, or all."""
    every: Statement = (f"{_STOPS} ORDER BY tool, entry_id", ())
    return [Stop(*each) for each in db.execute(*(every if entry_id is None else _stop_of(entry_id)))]


def _stop_of(entry_id: str) -> Statement:
    return f"{_STOPS} WHERE entry_id = ?", (entry_id,)


def find(db: Transaction, name: str, tables: Collection[str] = _TABLES) -> dict[str, str]:
    """Find the entries with this id (with or without the API) or tool name. Returns entry id -> tool name."""
    found: dict[str, str] = {}
    for table in tables:
        query = (
            f"SELECT entry_id, max(tool) FROM {table} WHERE ? IN"  # noqa: S608 - a name of ours
            " (tool, entry_id, substr(entry_id, instr(entry_id, ':') + 1)) GROUP BY entry_id"
        )
        found.update((entry, tool or found.get(entry, "")) for entry, tool in db.execute(query, (name,)))
    return found


def reference(db: Transaction, order: Order | Row) -> str:
    """Return how a command refers to an entry: by its tool name if that is unique, else by its id."""
    by_name = find(db, order.tool, _TABLES[1:]).keys() == {order.entry_id}
    return shlex.quote(order.tool if by_name else order.entry_id)


def check_stopped(db: Transaction, order: Order | Row) -> None:
    """Raise `Stopped` if the entry is stopped."""
    for stop in stops(db, order.entry_id):
        raise Stopped(f"{order.tool} is stopped ({stop.why}): toolwire catalog accept {reference(db, order)}")


def check_allowed(db: Transaction, order: Order) -> None:
    """Raise if an order may not be sent at any price: its entry is stopped, or its key was used before."""
    check_stopped(db, order)
    if order.key and (found := db.execute(*_same_key(order)).fetchone()) is not None:
        raise Duplicate(f"this call of {order.tool} was already made and is {found[0]}: it is not sent again")


def _same_key(order: Order) -> Statement:
    # Written as in the index, otherwise SQLite would not use it.
    return (
        "SELECT state FROM spending WHERE session = ? AND key = ? AND state <> 'released' AND key <> ''",
        (order.session, order.key),
    )


def check_priced(db: Transaction, order: Order, limits: Limits) -> None:
    """Raise `Stopped` for an order of unknown price under a limit if an earlier reply had no cost either."""
    if limits.any_for(order.entry_id) and is_unpriced(db, order.entry_id, order.variant):
        raise Stopped(
            f"{order.tool} has no known price: it is in neither the list nor a reply, and a limit is set."
            " Nothing was bought. A person can set a price: toolwire catalog accept"
            f" {reference(db, order)} --price 0.01"
        )


def check_exclusive(
    db: Transaction, order: Order, limits: Limits, unpriced: bool, owner_alive: Callable[[str], bool]
) -> None:
    """Raise `Busy` if another call of uncertain cost is in flight that counts against the same limits.

    The limits that are set determine which calls are considered; without any, an unpriced call considers those of
    its entry.
    """
    reach, values = _reach(order, limits, unpriced)
    out = f"WHERE {_OPEN} AND state = 'sent' AND exclusive = 1 AND ({reach})"
    lost = f"WHERE {_OPEN} AND state = 'unknown' AND exclusive = 1 AND price IS NULL AND ({reach})"
    why = "has no known price" if unpriced else "has a price that no reply has confirmed yet"
    for row in rows(db, out, *values):
        if owner_alive(row.owner):
            raise Busy(
                f"{order.tool} {why}, and a call of {row.tool}, whose cost is not certain either, is in flight:"
                " such calls are sent one at a time. Nothing was bought; try again when it is over"
            )
        if row.price is None:
            _refuse_lost(order, why, row)
    for row in rows(db, f"{lost} LIMIT 1", *values):
        _refuse_lost(order, why, row)


def _refuse_lost(order: Order, why: str, lost: Row) -> None:
    # Otherwise replies of unknown price could be lost again and again without counting against any limit.
    raise Busy(
        f"{order.tool} {why}, and the reply to an earlier call of {lost.tool}, whose price is not known either, was"
        f" lost: book what that call cost with toolwire catalog reconcile {lost.id}",
        retryable=False,
    )


def _reach(order: Order, limits: Limits, unpriced: bool) -> tuple[str, list[str]]:
    """Return a clause for the calls that count against the limits of an order, and its values."""
    if limits.per_day is not None or limits.total is not None:
        return "1 = 1", []
    clauses, values = [], []
    if limits.per_session is not None:
        clauses.append("session = ?")
        values.append(order.session)
    if order.entry_id in limits.per_tool:
        entries = _entries_of_tool(order, limits)
        clauses.append(f"(session = ? AND entry_id IN ({marks(entries)}))")
        values += [order.session, *entries]
    if limits.per_call is not None or unpriced:
        clauses.append("entry_id = ?")
        values.append(order.entry_id)
    return " OR ".join(clauses) or "1 = 0", values


def _entries_of_tool(order: Order | Row, limits: Limits) -> tuple[str, ...]:
    return order.entry_id, *limits.same_tool.get(order.entry_id, ())


def latest_day(db: Transaction) -> str:
    """Return the latest day with a booking; "" if there is none."""
    day: str | None = one(db, _LATEST_DAY)
    return day or ""


def limits_of(db: Transaction, order: Order | Row, limits: Limits, day: str, today: str) -> Iterator[Limit]:
    """Yield each limit that is set, with how much of it is used."""
    most = MOST if limits.per_call is None else min(limits.per_call, MOST)
    yield Limit("call", most, 0, "the limit for one call")
    if found := _set_limits(order, limits, day, today):
        used = db.execute(*_used(found)).fetchone()
        for each, money in zip(found, used, strict=True):
            yield Limit(each.name, each.most, money, each.text)


class _SetLimit(NamedTuple):
    """A limit that is set, and the query for the sums that count against it."""

    name: str
    most: int
    text: str
    where: str
    values: tuple[str, ...]


def _set_limits(order: Order | Row, limits: Limits, day: str, today: str) -> list[_SetLimit]:
    entries = _entries_of_tool(order, limits)
    ahead = (
        ""
        if day == today
        else f": {day}, because calls were already booked on it, although the clock says {today}"
    )
    of_tool = f"sessions WHERE session = ? AND entry_id IN ({marks(entries)})"
    session = order.session
    known: list[tuple[str, int | None, str, str, tuple[str, ...]]] = [
        (
            "tool",
            limits.per_tool.get(order.entry_id),
            "the budget of this tool",
            of_tool,
            (session, *entries),
        ),
        (
            "session",
            limits.per_session,
            "the budget of this session",
            "sessions WHERE session = ?",
            (session,),
        ),
        ("day", limits.per_day, f"the budget of this day (UTC{ahead})", "days WHERE day = ?", (day,)),
        ("total", limits.total, "the whole budget", "days", ()),
    ]
    return [
        _SetLimit(name, most, text, where, values)
        for name, most, text, where, values in known
        if most is not None
    ]


def _used(limits: Sequence[_SetLimit]) -> Statement:
    """Return one query for what is used of all these limits, to save round trips."""
    sums = ", ".join(f"(SELECT {_sum('money')} FROM {each.where})" for each in limits)  # noqa: S608 - ours
    return f"SELECT {sums}", [value for each in limits for value in each.values]


def totals(db: Transaction, by: Grouping, since: float) -> list[Total]:
    """Return sums by one column."""
    if by not in GROUPINGS:
        raise ValueError(f"totals must be by {', '.join(GROUPINGS)}, got {by!r}")
    sums = ", ".join(
        f"{_sum(f'money) FILTER (WHERE state IN ({states})')}"
        for states in ("'settled'", "'sent'", "'unknown'")
    )
    # The newest call of a group has the current name of its tool.
    column, group = ("tool", "entry_id") if by == "tool" else (by, by)
    query = (
        f"SELECT grouped.*, newest.{column} FROM (SELECT {group} AS name, count(*), {sums}, max(number) AS number"  # noqa: S608
        f" FROM spending WHERE at >= ? GROUP BY {group}) AS grouped"
        " JOIN spending AS newest ON newest.number = grouped.number ORDER BY 7, 1"
    )
    found = list(db.execute(query, (since,)))
    often = Counter(name for *_, name in found)
    return [
        Total(name if often[name] == 1 else f"{name} ({key})", *numbers) for key, *numbers, _, name in found
    ]


def _sum(column: str) -> str:
    """Return a sum as an integer; Postgres would return a decimal."""
    return f"CAST(coalesce(sum({column}), 0) AS bigint)"


def open_calls(db: Transaction) -> list[Row]:
    """Return the calls whose outcome was not booked yet."""
    return list(rows(db, f"WHERE {_OPEN} AND state = 'sent' ORDER BY +number"))


_ALLOWED_FROM: Final[Mapping[State, frozenset[State]]] = {
    "settled": frozenset({"sent", "unknown"}),  # a late reply counts too
    "released": frozenset({"sent"}),
    "unknown": frozenset({"sent"}),
}
"""State -> the states from which a call may change to it."""


def check_transition(db: Transaction, id: str, to: State) -> Row:
    """Return a call. Raises CatalogError if its state may not change to `to`."""
    found = row(db, id)
    if found.state not in _ALLOWED_FROM[to]:
        raise CatalogError(f"call {id} of {found.tool} is {found.state}: it cannot be {to} any more")
    return found
