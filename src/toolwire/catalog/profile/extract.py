"""Extracts entries and amounts of money from the JSON of an API, by the paths of a profile. Pure."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from toolwire.catalog.money import micros
from toolwire.catalog.profile.tables import Balance, EntryPaths, Price, rate_of
from toolwire.catalog.tools.definitions import Entry
from toolwire.catalog.values import find_path, get_path
from toolwire.errors import CatalogError
from toolwire.tools.schema.arguments import clip

_NO_PRICES: Final[dict[str, int | None]] = {}
_LONGEST_QUOTE: Final = 60


@dataclass(frozen=True)
class Item:
    """An item of the list, read."""

    entry: Entry | None
    """None for an item without an id: it cannot be bought."""
    found: tuple[str, ...]
    """The settings of `[entry]` whose path exists in this item."""
    unreadable_prices: tuple[Any, ...] = field(default=(), repr=False)
    """Prices that are not amounts."""


def read_item(paths: EntryPaths, item: Any) -> Item:
    """Read an item of the list."""
    prices = paths.price
    found: list[str] = []
    identity = _read(item, "id", paths.id, found)
    name = _read(item, "name", paths.name, found)
    description = _read(item, "description", paths.description, found)
    schema = _read(item, "schema", paths.schema_, found)
    category = _read(item, "category", paths.category, found)
    flat = _read(item, "price", prices.path, found)
    by_value = _read(item, "price.by_value", prices.by_value, found)
    _read(item, "price.unit_path", prices.unit_path, found)
    if isinstance(identity, bool) or not isinstance(identity, (str, int)) or identity == "":
        return Item(None, tuple(each for each in found if each != "id"))
    unreadable: list[Any] = []
    if flat is None and by_value is None:
        highest, by = None, _NO_PRICES
    else:
        highest, by = _read_prices(prices, item, flat, by_value, unreadable)
    entry = Entry(
        id=str(identity),
        name=str(identity) if name is None else str(name),
        description=description if isinstance(description, str) else "",
        schema=schema,
        price=highest,
        category=category if isinstance(category, str) and category else None,
        raw=item if isinstance(item, Mapping) else {},
        prices=by,
        price_argument=prices.argument if by else "",
    )
    return Item(entry, tuple(found), tuple(unreadable))


def _read(item: Any, setting: str, path: str, found: list[str]) -> Any:
    """Return the value at a path, or None. Adds the setting to `found` if the path exists, even with null."""
    exists, value = find_path(item, path)
    if exists:
        found.append(setting)
    return value


def _read_prices(
    price: Price, item: Any, flat: Any, by_value: Any, unreadable: list[Any]
) -> tuple[int | None, dict[str, int | None]]:
    """Return the highest price and the prices by argument value. Adds invalid amounts to `unreadable`."""
    rate = _rate(price, item)

    def read(amount: Any) -> int | None:
        if rate is not None:
            with suppress(ValueError):
                return micros(amount, rate)
        unreadable.append(amount)
        return None

    single = None if flat is None else read(flat)
    prices = {value: read(amount) for value, amount in _pairs(price, by_value) if value}
    if not prices:
        if by_value:  # it is not empty, but no values and prices are found in it
            unreadable.append(by_value)
            return None, prices
        return single, prices
    # An unreadable amount may be the highest one.
    certain = None not in prices.values() and (single is not None or flat is None)
    known = [each for each in (single, *prices.values()) if each is not None]
    return max(known) if certain else None, prices


def _rate(price: Price, item: Any) -> Decimal | None:
    """Return the worth of one unit in dollars; None for a unit that is not in the profile."""
    name = get_path(item, price.unit_path) if price.unit_path else None
    if name is None:
        return rate_of(price.unit)
    wanted = name.strip().casefold() if isinstance(name, str) else None
    unit = next((unit for each, unit in price.units.items() if each.casefold() == wanted), None)
    return None if unit is None else rate_of(unit)


def _pairs(price: Price, by_value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each value of the argument with its price, from an object or a list of objects."""
    if isinstance(by_value, Mapping):
        for value, amount in by_value.items():
            yield str(value), get_path(amount, price.price_path) if isinstance(amount, Mapping) else amount
    elif isinstance(by_value, list):
        for each in by_value:
            value = get_path(each, price.value_path)
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                yield str(value), get_path(each, price.price_path)


def read_amount(value: Any, rate: Decimal) -> tuple[int | None, str | None]:
    """Return micro-dollars, or the quoted value if it is not an amount. (None, None) if it is null or empty."""
    if value is None or value == "":
        return None, None
    try:
        return micros(value, rate), None
    except ValueError:
        return None, quote_value(value)


def read_balance(body: Any, balance: Balance) -> int:
    """Read the balance in micro-dollars from a reply. CatalogError if it is missing or not an amount."""
    value = get_path(body, balance.amount)
    if value is None:
        raise CatalogError(f"balance.amount = {balance.amount!r} is not in the reply")
    amount, unreadable = read_amount(value, rate_of(balance.unit))
    if amount is None:
        raise CatalogError(f"balance.amount = {balance.amount!r} is {unreadable}, which is not an amount")
    return amount


def quote_value(value: Any) -> str:
    """Quote a value from the API as JSON in printable ASCII, shortened."""
    try:
        return clip(json.dumps(value), _LONGEST_QUOTE)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__
