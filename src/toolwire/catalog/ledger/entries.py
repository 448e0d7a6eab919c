"""Entries and the names they were listed under: what is new inherits what was decided about its name.

Otherwise an API could get rid of a stop, or of an agreed price, by giving the same tool a new id, or its name to
another id. Runs inside a transaction of the caller.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Final

_AT_ONCE: Final = 500
_MANY: Final = 50

Listed = tuple[str, str]
"""The id of an entry, and a name that it was listed under."""


def find_new(db: Connection, names: Mapping[str, str]) -> list[Listed]:
    """Return the entries that were never listed under their name before."""
    seen: set[Listed] = set()
    all_ids = list(names)
    for start in range(0, len(all_ids), _AT_ONCE):
        ids = all_ids[start : start + _AT_ONCE]
        places = ", ".join("?" * len(ids))
        query = f"SELECT entry_id, name FROM entries WHERE entry_id IN ({places})"  # noqa: S608 - only marks
        seen.update(db.execute(query, ids))
    return [each for each in names.items() if each not in seen]


def note(db: Connection, new: Iterable[Listed], now: float) -> None:
    """Keep new entries, with the stops and prices that they inherit from those that had their name before.

    What is new together inherits nothing from each other: those are two products with one name.
    """
    # Once for each name: a list may have the same one ten thousand times.
    groups: dict[Listed, list[str]] = defaultdict(list)
    for entry_id, name in new:
        groups[_scope(entry_id), name].append(entry_id)
    decided = groups.keys() if len(groups) < _MANY else _find_decided(db)
    # All of them before anything is copied.
    found = {key: _find_legacy(db, *key) for key in groups if key[1] and key in decided}
    for key, legacy in found.items():
        for entry in groups[key]:
            _inherit(db, entry, legacy, now)
    db.executemany(
        "INSERT INTO entries VALUES (?, ?, ?, ?)",
        [(entry, name, scope, now) for (scope, name), entries in groups.items() for entry in entries],
    )


def _find_decided(db: Connection) -> set[Listed]:
    """Find all APIs and names about which anything was decided: few, where a new list has thousands."""
    return set(
        db.execute(
            "SELECT DISTINCT scope, name FROM entries WHERE entry_id IN (SELECT entry_id FROM prices"
            " UNION SELECT entry_id FROM stops UNION SELECT entry_id FROM unpriced)"
        )
    )


@dataclass(frozen=True)
class _Legacy:
    """The decisions that a new entry inherits by its name. A stop ends with the entry that was stopped first."""

    prices: list[tuple[str, str, int]]
    unpriced: list[tuple[str, str]]
    stop: tuple[str, str, str] | None


def _find_legacy(db: Connection, scope: str, name: str) -> _Legacy:
    """Find the lowest price of each variant, unknown prices, and the oldest stop."""
    of_name = "JOIN entries USING (entry_id) WHERE scope = ? AND entries.name = ?"
    prices = db.execute(
        f"SELECT variant, tool, min(price) FROM prices {of_name} GROUP BY variant",  # noqa: S608 - a constant
        (scope, name),
    )
    unpriced = db.execute(f"SELECT DISTINCT variant, tool FROM unpriced {of_name}", (scope, name))  # noqa: S608
    stops = db.execute(
        f"SELECT tool, why, inherited_from, entry_id FROM stops {of_name} ORDER BY at, entry_id LIMIT 1",  # noqa: S608
        (scope, name),
    )
    stop = next(((tool, why, first or entry_id) for tool, why, first, entry_id in stops), None)
    return _Legacy(prices.fetchall(), unpriced.fetchall(), stop)


def _inherit(db: Connection, entry_id: str, legacy: _Legacy, now: float) -> None:
    """Copy what there is to inherit. What an entry has itself stays."""
    db.executemany(
        "INSERT OR IGNORE INTO prices (entry_id, variant, tool, price, offered) VALUES (?1, ?2, ?3, ?4, ?4)",
        [(entry_id, *each) for each in legacy.prices],
    )
    db.executemany(
        "INSERT OR IGNORE INTO unpriced SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS"
        " (SELECT 1 FROM prices WHERE entry_id = ?1 AND variant = ?2)",
        [(entry_id, *each, now) for each in legacy.unpriced],
    )
    if legacy.stop is not None:
        tool, why, first = legacy.stop
        db.execute("INSERT OR IGNORE INTO stops VALUES (?, ?, ?, ?, ?)", (entry_id, tool, why, now, first))


def _scope(entry_id: str) -> str:
    """Return the API part of an entry's id."""
    return entry_id.partition(":")[0]
