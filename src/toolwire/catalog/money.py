"""Money: whole micro-dollars inside, dollars (or an API's own unit) at the edges.

Owns the conversions and nothing else. No floats are used in between, and amounts are rounded up when they are
read, so that a price is never underestimated.
"""

import re
from decimal import ROUND_CEILING, Context, Decimal
from typing import Final

PER_DOLLAR: Final = 1_000_000
DOLLARS: Final = Decimal(1)
RATES: Final = {"dollars": DOLLARS, "cents": Decimal("0.01"), "micros": Decimal("0.000001")}
"""Unit -> its worth in dollars."""
_DIGITS: Final = 6  # decimal places of a dollar
_MARK: Final = r"(?:US\$|USD|\$)?"  # text with any other currency is rejected
_NUMBER: Final = re.compile(
    rf"{_MARK}\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{{1,4}})?)\s*{_MARK}", re.ASCII | re.IGNORECASE
)
_MAX_LENGTH: Final = 60
_MAX_EXPONENT: Final = 9  # at most ten digits before the point, so that a price fits the 64 bits of a ledger
_UP: Final = Context(prec=40, rounding=ROUND_CEILING, traps=[])
_EXACT: Final = Context(prec=400, traps=[])  # more digits than any amount and rate have together
_MICRO: Final = Decimal("0.000001")


def micros(value: object, rate: Decimal = DOLLARS) -> int:
    """Convert an amount to micro-dollars: a number or its text, `"$0.01"` or `"0.01 USD"`. Rounds up.

    `rate` is what one unit of the amount is worth in dollars: 0.01 for cents. Raises ValueError for anything that
    is not an amount: negative, NaN, infinite, a bool, other text, text that says dollars although the unit is
    another one, ten billion dollars or more.
    """
    amount = _decimal(value, marked=rate == DOLLARS)
    if not amount.is_finite():
        raise ValueError(f"an amount must be a finite number, got {value!r}")
    if amount.is_zero():
        return 0
    if amount.is_signed():
        raise ValueError(f"an amount must not be negative, got {_shown(value)}")
    if amount.adjusted() > _MAX_EXPONENT + _MAX_LENGTH:  # checked before it is multiplied
        raise ValueError(f"an amount must be less than ten billion dollars, got {_shown(value)}")
    worth = amount if rate == DOLLARS else _EXACT.multiply(amount, rate)
    if worth.adjusted() > _MAX_EXPONENT:
        raise ValueError(f"an amount must be less than ten billion dollars, got {_shown(value)}")
    return int(_UP.quantize(worth, _MICRO).scaleb(_DIGITS))


def dollars(micros: int, places: int = 4) -> str:
    """Format micro-dollars: `$0.0100`, or `$9.99` with 2 places. Rounds half up.

    An amount that would be rounded to zero is shown with more places, up to six.
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
    """Parse the number. Its text may name dollars only if `marked` is true."""
    if isinstance(value, bool):
        raise ValueError(f"an amount must be a number, got {value!r}")  # noqa: TRY004 - one kind of error for all invalid values
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int):
        if value.bit_length() > 2 * _MAX_LENGTH:  # checked before it is converted to digits
            raise ValueError("an amount must be less than ten billion dollars")
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value))  # 0.1 means 0.1, not the nearest binary fraction
    if isinstance(value, str) and len(value) <= _MAX_LENGTH and (found := _NUMBER.fullmatch(value.strip())):
        if not marked and found[1] != value.strip():
            raise ValueError(f"an amount that is not in dollars must be a bare number, got {_shown(value)}")
        return Decimal(found[1])
    raise ValueError(f"an amount must be a number of dollars such as 0.01, got {_shown(value)}")


def _shown(value: object) -> str:
    return repr(value)[:_MAX_LENGTH] if isinstance(value, (str, float)) else type(value).__name__
