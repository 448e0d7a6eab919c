"""Reading one item of a list as an entry, by the paths of a profile. Pure, and raises nothing for any item."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from toolwire.catalog.money import micros
from toolwire.catalog.profile.tables import EntryPaths, Price, rate_of
from toolwire.catalog.tools.definitions import Entry
from toolwire.catalog.values import at, leads


@dataclass(frozen=True)
class Item:
    """An item of the list, read."""

    entry: Entry | None
    """None for an item without an id: it could not be bought."""
    found: frozenset[str]
    """The settings of `[entry]` whose path leads to something in this item."""
    unreadable_prices: tuple[Any, ...] = field(default=(), repr=False)
    """Prices that are there and are no amount."""


def read_item(paths: EntryPaths, item: Any) -> Item:
    """Read an item of the list."""
    identity, name, description = at(item, paths.id), at(item, paths.name), at(item, paths.description)
    schema, category = at(item, paths.schema_), at(item, paths.category)
    price = _Prices(paths.price, item)
    values = {
        "id": (identity, paths.id),
        "name": (name, paths.name),
        "description": (description, paths.description),
        "schema": (schema, paths.schema_),
        "category": (category, paths.category),
        "price": (price.given, paths.price.path),
        "price.by_value": (price.by_value, paths.price.by_value),
    }
    found = frozenset(
        key for key, (value, path) in values.items() if value is not None or (path and leads(item, path))
    )
    if isinstance(identity, bool) or not isinstance(identity, (str, int)) or identity == "":
        return Item(None, found - {"id"})
    entry = Entry(
        id=str(identity),
        name=str(identity) if name is None else str(name),
        description=description if isinstance(description, str) else "",
        schema=schema,
        price=price.highest,
        category=category if isinstance(category, str) and category else None,
        raw=item if isinstance(item, Mapping) else {},
        prices=price.prices,
        price_argument=paths.price.argument if price.prices else "",
    )
    return Item(entry, found, tuple(price.unreadable))


class _Prices:
    """The prices of one item."""

    def __init__(self, price: Price, item: Any) -> None:
        self.unreadable: list[Any] = []
        self.given, self.by_value = at(item, price.path), at(item, price.by_value)
        if self.given is None and self.by_value is None:
            self.highest, self.prices = None, dict[str, int | None]()
            return
        rate = self._rate(price, item)
        flat = self._read(self.given, rate)
        self.prices = {
            value: self._read(amount, rate) for value, amount in _pairs(price, self.by_value) if value
        }
        if not self.prices:
            self.highest = flat
            return
        # An amount that cannot be read may be the highest.
        known = [each for each in (flat, *self.prices.values()) if each is not None]
        certain = None not in self.prices.values() and (flat is not None or self.given is None)
        self.highest = max(known) if certain else None

    def _rate(self, price: Price, item: Any) -> Decimal | None:
        """The dollars that one unit is worth; None for a unit that the profile does not know."""
        name = at(item, price.unit_path)
        if name is None:
            return rate_of(price.unit)
        wanted = name.strip().casefold() if isinstance(name, str) else None
        unit = next((unit for each, unit in price.units.items() if each.casefold() == wanted), None)
        return None if unit is None else rate_of(unit)

    def _read(self, amount: Any, rate: Decimal | None) -> int | None:
        if amount is None:
            return None
        if rate is not None:
            with suppress(ValueError):
                return micros(amount, rate)
        self.unreadable.append(amount)
        return None


def _pairs(price: Price, by_value: Any) -> Iterator[tuple[str, Any]]:
    """Each value of the argument with its price, from an object or a list of objects."""
    if isinstance(by_value, Mapping):
        for value, amount in by_value.items():
            yield str(value), at(amount, price.price_path) if isinstance(amount, Mapping) else amount
    elif isinstance(by_value, list):
        for each in by_value:
            value = at(each, price.value_path)
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                yield str(value), at(each, price.price_path)
