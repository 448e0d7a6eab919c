"""Reads amounts of money from an API, in the unit that the profile names. Pure."""

import json
from decimal import Decimal
from typing import Any, Final

from toolwire.catalog.money import micros
from toolwire.catalog.profile.tables import Balance, rate_of
from toolwire.catalog.values import get_path
from toolwire.errors import CatalogError
from toolwire.tools.schema.arguments import clip

_LONGEST_QUOTE: Final = 60


def read_amount(value: Any, rate: Decimal) -> tuple[int | None, str | None]:
    """Return micro-dollars, or the quoted value if it is not an amount. (None, None) if there is nothing."""
    if value is None or value == "":
        return None, None
    try:
        return micros(value, rate), None
    except ValueError:
        return None, quote_value(value)


def read_balance(body: Any, balance: Balance) -> int:
    """Read the balance in micro-dollars from a reply. CatalogError if it is not there."""
    told = get_path(body, balance.amount)
    if told is None:
        raise CatalogError(f"balance.amount = {balance.amount!r} is not in the reply")
    amount, unreadable = read_amount(told, rate_of(balance.unit))
    if amount is None:
        raise CatalogError(f"balance.amount = {balance.amount!r} is {unreadable}, which is not an amount")
    return amount


def quote_value(value: Any) -> str:
    """Quote a value from the API as JSON in printable ASCII, cut."""
    try:
        return clip(json.dumps(value), _LONGEST_QUOTE)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__
