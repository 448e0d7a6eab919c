"""What is asked of the tables of a ledger, each inside a transaction of the caller. Changes nothing."""

from collections.abc import Iterator, Mapping
from sqlite3 import Connection
from typing import Any, Final

from toolwire.catalog.spending import (
    MOST,
    Busy,
    Duplicate,
    Grouping,
    Limits,
    Row,
    Spend,
    State,
    Stopped,
    Total,
)
from toolwire.errors import CatalogError

_COLUMNS: Final = ", ".join(Row.__dataclass_fields__)  # the fields of a Row are columns, by name
_GROUPS: Final[Mapping[str, str]] = {"tool": "tool", "day": "day", "session": "session", "state": "state"}


def one(db: Connection, query: str, *values: Any) -> Any:
    """The first value of the first row, or None."""
    found = db.execute(query, values).fetchone()
    return None if found is None else found[0]


def rows(db: Connection, where: str, *values: Any) -> Iterator[Row]:
    """Calls that a clause picks."""
    query = f"SELECT {_COLUMNS} FROM spending {where}"  # noqa: S608 - clauses are ours, values are bound
    for each in db.execute(query, values).fetchall():
        named = dict(zip(Row.__dataclass_fields__, each, strict=True))
        yield Row(**named | {"exclusive": bool(named["exclusive"]), "over": bool(named["over"])})


def row(db: Connection, id: str) -> Row:
    """One call."""
    found = next(rows(db, "WHERE id = ?", id), None)
    if found is None:
        raise CatalogError(f"there is no call {id} in the ledger")
    return found


def stopped(db: Connection, tool: str) -> str | None:
    """Why a tool is stopped."""
    why: str | None = one(db, "SELECT why FROM stops WHERE tool = ?", tool)
    return why


def let_pass(db: Connection, spend: Spend) -> None:
    """Raise if a call may not be made whatever it costs."""
    if (why := stopped(db, spend.tool)) is not None:
        raise Stopped(f"{spend.tool} is stopped ({why}): toolwire catalog accept {spend.tool}")
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
                "WHERE state IN ('reserved', 'sent', 'unknown') AND tool = ? AND exclusive = 1 LIMIT 1",
                spend.tool,
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
            limits.per_tool.get(spend.tool),
            "sessions WHERE session = ? AND tool = ?",
            (spend.session, spend.tool),
        ),
        ("session", limits.per_session, "sessions WHERE session = ?", (spend.session,)),
        ("day", limits.per_day, "days WHERE day = ?", (day,)),
        ("total", limits.total, "days", ()),
    ):
        if most is not None:
            yield name, most, one(db, f"SELECT coalesce(sum(money), 0) FROM {where}", *values)  # noqa: S608


def totals(db: Connection, by: Grouping, since: float) -> list[Total]:
    """Sums by one column."""
    if by not in _GROUPS:
        raise ValueError(f"totals are by {', '.join(_GROUPS)}, not by {by!r}")
    sums = ", ".join(
        f"coalesce(sum(money) FILTER (WHERE state IN ({states})), 0)"
        for states in ("'settled'", "'reserved', 'sent'", "'unknown'")
    )
    query = f"SELECT {_GROUPS[by]}, count(*), {sums} FROM spending WHERE at >= ? GROUP BY 1 ORDER BY 1"  # noqa: S608
    return [Total(*each) for each in db.execute(query, (since,))]


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
