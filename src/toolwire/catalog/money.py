"""Money: whole micro-dollars inside, dollars (or an API's own unit) at the edges.

Owns the conversions and nothing else. There are no floats in between, and what is read is rounded up, so that
a price is never taken for less than it is.
"""

import re
from decimal import ROUND_CEILING, Context, Decimal
from typing import Final

PER_DOLLAR: Final = 1_000_000
DOLLARS: Final = Decimal(1)
RATES: Final = {"dollars": DOLLARS, "cents": Decimal("0.01"), "micros": Decimal("0.000001")}
"""Unit -> the dollars that one of it is worth."""
_DIGITS: Final = 6  # of a dollar's fraction
_MARK: Final = r"(?:US\$|USD|\$)?"  # any other currency is not an amount of dollars
_NUMBER: Final = re.compile(
    rf"{_MARK}\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{{1,4}})?)\s*{_MARK}", re.ASCII | re.IGNORECASE
)
_LONGEST: Final = 60
_MOST: Final = 9  # a price has at most ten digits before the point: it always fits the 64 bits of a ledger
_UP: Final = Context(prec=40, rounding=ROUND_CEILING, traps=[])
_EXACT: Final = Context(prec=400, traps=[])  # more digits than any amount and rate have together
_MICRO: Final = Decimal("0.000001")


def micros(value: object, rate: Decimal = DOLLARS) -> int:
    """Convert an amount to micro-dollars: a number or its text, `"$0.01"` or `"0.01 USD"`. Rounds up.

    `rate` is what one unit of the amount is worth in dollars: 0.01 for cents. ValueError for what is no amount:
    negative, NaN, infinite, a bool, other text, text that says dollars where the unit is another, ten billion
    dollars and more.
    """
    amount = _decimal(value, marked=rate == DOLLARS)
    if not amount.is_finite():
        raise ValueError(f"an amount must be a finite number, got {value!r}")
    if amount.is_zero():
        return 0
    if amount.is_signed():
        raise ValueError(f"an amount must not be negative, got {_shown(value)}")
    if amount.adjusted() > _MOST + _LONGEST:  # before it is multiplied
        raise ValueError(f"an amount must be less than ten billion dollars, got {_shown(value)}")
    worth = amount if rate == DOLLARS else _EXACT.multiply(amount, rate)
    if worth.adjusted() > _MOST:
        raise ValueError(f"an amount must be less than ten billion dollars, got {_shown(value)}")
    return int(_UP.quantize(worth, _MICRO).scaleb(_DIGITS))


def dollars(micros: int, places: int = 4) -> str:
    """Format micro-dollars: `$0.0100`, or `$9.99` with 2 places. Rounds half up.

    An amount that would look like nothing is shown with as many of its six places as it takes.
    """
    whole = abs(micros)
    places = max(0, min(places, _DIGITS))
    while (unit := 10 ** (_DIGITS - places)) > 2 * whole > 0:
        places += 1
    count = (whole + unit // 2) // unit
    sign = "-" if micros < 0 else ""
    head, tail = divmod(count, 10**places)
    return f"{sign}${head}.{tail:0{places}d}" if places else f"{sign}${head}"


def _decimal(value: object, *, marked: bool) -> Decimal:
    """Parse the number. Only with `marked` may its text name dollars."""
    if isinstance(value, bool):
        raise ValueError(f"an amount must be a number, got {value!r}")  # noqa: TRY004 - one error for every misfit
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int):
        if value.bit_length() > 2 * _LONGEST:  # before its digits are made
            raise ValueError("an amount must be less than ten billion dollars")
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value))  # 0.1 is meant as 0.1, not as the binary fraction next to it
    if isinstance(value, str) and len(value) <= _LONGEST and (found := _NUMBER.fullmatch(value.strip())):
        if not marked and found[1] != value.strip():
            raise ValueError(f"an amount that is not in dollars must be a bare number, got {_shown(value)}")
        return Decimal(found[1])
    raise ValueError(f"an amount must be a number of dollars such as 0.01, got {_shown(value)}")


def _shown(value: object) -> str:
    return repr(value)[:_LONGEST] if isinstance(value, (str, float)) else type(value).__name__
