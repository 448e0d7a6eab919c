"""What is asked of the tables of a ledger, each inside a transaction of the caller. Changes nothing."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from sqlite3 import Connection
from typing import Any, Final

from toolwire.catalog.ledger.types import (
    GROUPINGS,
    MOST,
    Busy,
    Duplicate,
    Grouping,
    Limits,
    Price,
    Row,
    Spend,
    State,
    Stopped,
    Total,
)
from toolwire.errors import CatalogError

_COLUMNS: Final = ", ".join(Row.__dataclass_fields__)  # the fields of a Row are columns, by name
_FLAGS: Final = [name in ("exclusive", "over") for name in Row.__dataclass_fields__]  # numbers in SQLite
TABLES: Final = ("spending", "untold", "stops", "prices")
"""Where entries have names; the last one has the newest."""


def one(db: Connection, query: str, *values: Any) -> Any:
    """The first value of the first row, or None."""
    found = db.execute(query, values).fetchone()
    return None if found is None else found[0]


def rows(db: Connection, where: str, *values: Any) -> Iterator[Row]:
    """Calls that a clause picks."""
    query = f"SELECT {_COLUMNS} FROM spending {where}"  # noqa: S608 - clauses are ours, values are bound
    for each in db.execute(query, values).fetchall():
        fields: list[Any] = [bool(value) if flag else value for value, flag in zip(each, _FLAGS, strict=True)]
        yield Row(*fields)


def row(db: Connection, id: str) -> Row:
    """One call."""
    found = next(rows(db, "WHERE id = ?", id), None)
    if found is None:
        raise CatalogError(f"there is no call {id} in the ledger")
    return found


def price(db: Connection, entry_id: str) -> Price | None:
    """The pinned price of an entry, with what the list asked for it last."""
    found = db.execute("SELECT entry_id, tool, price, offered FROM prices WHERE entry_id = ?", (entry_id,))
    return next((Price(*each) for each in found), None)


def stopped(db: Connection, entry_id: str) -> str | None:
    """Why an entry is stopped."""
    why: str | None = one(db, "SELECT why FROM stops WHERE entry_id = ?", entry_id)
    return why


def named(db: Connection, name: str, tables: Collection[str] = TABLES) -> dict[str, str]:
    """The entries that a name stands for: an entry's id, with or without its API, or the name of a tool."""
    found: dict[str, str] = {}
    for table in tables:
        query = (
            f"SELECT entry_id, tool FROM {table} WHERE ? IN"  # noqa: S608 - a name of ours
            " (tool, entry_id, substr(entry_id, instr(entry_id, ':') + 1)) GROUP BY entry_id"
        )
        found.update((entry, tool or found.get(entry, "")) for entry, tool in db.execute(query, (name,)))
    return found


def let_pass(db: Connection, spend: Spend, limits: Limits) -> None:
    """Raise if a call may not be made whatever it costs."""
    if (why := stopped(db, spend.entry_id)) is not None:
        raise Stopped(f"{spend.tool} is stopped ({why}): toolwire catalog accept {_reference(db, spend)}")
    if (
        spend.exclusive
        and limits.any_for(spend.entry_id)
        and one(db, "SELECT 1 FROM untold WHERE entry_id = ?", spend.entry_id)
    ):
        raise Stopped(
            f"nobody tells what {spend.tool} costs, neither the list nor a reply, and there is a limit to keep:"
            " nothing was bought. A person can say what a call is to count as: toolwire catalog accept"
            f" {_reference(db, spend)} --price 0.01"
        )
    if spend.key:
        # Spelt as in the index, or SQLite would not use it.
        same = (
            "SELECT state FROM spending WHERE session = ? AND key = ? AND state <> 'released' AND key <> ''"
        )
        if (state := one(db, same, spend.session, spend.key)) is not None:
            raise Duplicate(f"this call of {spend.tool} was made before and is {state}: it is not sent again")
    if spend.exclusive:
        under_way = next(
            rows(
                db,
                "WHERE state IN ('reserved', 'sent', 'unknown') AND entry_id = ? AND exclusive = 1 LIMIT 1",
                spend.entry_id,
            ),
            None,
        )
        if under_way is not None and under_way.state == "unknown":
            # Lost answers of unknown price could go on without end, and no limit would see them.
            raise Busy(
                f"the price of {spend.tool} is not known, and the answer to an earlier call was lost: say what it"
                f" cost with toolwire catalog reconcile {under_way.id}"
            )
        if under_way is not None:
            raise Busy(
                f"the price of {spend.tool} is not known, and a call of it is under way: one at a time"
            )


def used(db: Connection, spend: Spend, limits: Limits, day: str) -> Iterator[tuple[str, int, int]]:
    """Each limit that is set: its name, how much it allows, how much of that is taken."""
    yield "call", MOST if limits.per_call is None else min(limits.per_call, MOST), 0
    for name, most, where, values in (
        (
            "tool",
            limits.per_tool.get(spend.entry_id),
            "sessions WHERE session = ? AND entry_id = ?",
            (spend.session, spend.entry_id),
        ),
        ("session", limits.per_session, "sessions WHERE session = ?", (spend.session,)),
        ("day", limits.per_day, "days WHERE day = ?", (day,)),
        ("total", limits.total, "days", ()),
    ):
        if most is not None:
            yield name, most, one(db, f"SELECT coalesce(sum(money), 0) FROM {where}", *values)  # noqa: S608


def totals(db: Connection, by: Grouping, since: float) -> list[Total]:
    """Sums by one column."""
    if by not in GROUPINGS:
        raise ValueError(f"totals are by {', '.join(GROUPINGS)}, not by {by!r}")
    sums = ", ".join(
        f"coalesce(sum(money) FILTER (WHERE state IN ({states})), 0)"
        for states in ("'settled'", "'reserved', 'sent'", "'unknown'")
    )
    # With one max() SQLite takes the other columns from its row: the newest name of an entry.
    column, group = ("tool", "entry_id") if by == "tool" else (by, by)
    query = (
        f"SELECT {group}, {column}, count(*), {sums}, max(number) FROM spending WHERE at >= ?"  # noqa: S608
        " GROUP BY 1 ORDER BY 2, 1"
    )
    found = db.execute(query, (since,)).fetchall()
    often = Counter(name for _, name, *_ in found)
    return [
        Total(name if often[name] == 1 else f"{name} ({key})", *numbers) for key, name, *numbers, _ in found
    ]


def _reference(db: Connection, spend: Spend) -> str:
    """What a person can call the entry in a command: the tool's name, unless that stands for another too."""
    return (
        spend.tool
        if named(db, spend.tool, TABLES[1:]).keys() == {spend.entry_id}
        else shlex.quote(spend.entry_id)
    )


def under_way(db: Connection) -> list[Row]:
    """The calls whose process has not said how they ended."""
    # Spelt so that the index of the few open calls serves, and not all that was ever booked is read.
    where = "WHERE state IN ('reserved', 'sent', 'unknown') AND state <> 'unknown' ORDER BY +number"
    return list(rows(db, where))


FROM: Final[Mapping[State, frozenset[State]]] = {
    "sent": frozenset({"reserved"}),
    "settled": frozenset({"reserved", "sent", "unknown"}),  # a late answer is an answer
    "released": frozenset({"reserved", "sent"}),
    "unknown": frozenset({"reserved", "sent"}),
}
"""From which states a call may come into a state."""


def movable(db: Connection, id: str, to: State) -> Row:
    """A call that may come into that state."""
    found = row(db, id)
    if found.state not in FROM[to]:
        raise CatalogError(f"call {id} of {found.tool} is {found.state}: it cannot be {to} any more")
    return found
