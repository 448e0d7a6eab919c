"""Reading money that an API tells, in the unit that the profile names. Pure."""

import json
from decimal import Decimal
from typing import Any, Final

from toolwire.catalog.money import micros
from toolwire.catalog.profile.tables import Balance, rate_of
from toolwire.catalog.values import get_path
from toolwire.errors import CatalogError
from toolwire.tools.schema.arguments import clipped

_LONGEST_QUOTE: Final = 60


def read_amount(value: Any, rate: Decimal) -> tuple[int | None, str | None]:
    """Micro-dollars, or what is there instead, quoted. (None, None) if there is nothing."""
    if value is None or value == "":
        return None, None
    try:
        return micros(value, rate), None
    except ValueError:
        return None, quote_value(value)


def read_balance(body: Any, balance: Balance) -> int:
    """The micro-dollars that are left, by the reply to a balance request. CatalogError if they are not there."""
    told = get_path(body, balance.amount)
    if told is None:
        raise CatalogError(f"balance.amount = {balance.amount!r} is not in the reply")
    amount, unreadable = read_amount(told, rate_of(balance.unit))
    if amount is None:
        raise CatalogError(f"balance.amount = {balance.amount!r} is {unreadable}, which is no amount")
    return amount


def quote_value(value: Any) -> str:
    """A value of the API's as JSON in printable ASCII, cut."""
    try:
        return clipped(json.dumps(value), _LONGEST_QUOTE)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__
