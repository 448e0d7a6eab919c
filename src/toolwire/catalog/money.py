"""Money: whole micro-dollars inside, dollars at the edges.

Owns the two conversions and nothing else. There are no floats in between, and what is read is rounded up, so that
a price is never taken for less than it is.
"""

import re
from decimal import ROUND_CEILING, Context, Decimal
from typing import Final

PER_DOLLAR: Final = 1_000_000
_DIGITS: Final = 6  # of a dollar's fraction
_MARK: Final = r"(?:US\$|USD|\$)?"  # any other currency is no amount of dollars
_NUMBER: Final = re.compile(
    rf"{_MARK}\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{{1,4}})?)\s*{_MARK}", re.ASCII | re.IGNORECASE
)
_LONGEST: Final = 60
_MOST: Final = 9  # a price has at most ten digits before the point: it always fits the 64 bits of a ledger
_UP: Final = Context(prec=40, rounding=ROUND_CEILING, traps=[])
_MICRO: Final = Decimal("0.000001")


def micros(value: object) -> int:
    """Micro-dollars of an amount in dollars: a number or its text, `"$0.01"` or `"0.01 USD"`. Rounds up.

    ValueError for what is no amount: negative, NaN, infinite, a bool, other text, ten billion dollars and more.
    """
    amount = _decimal(value)
    if not amount.is_finite():
        raise ValueError(f"an amount must be a finite number, got {value!r}")
    if amount.is_zero():
        return 0
    if amount.is_signed():
        raise ValueError(f"an amount must not be negative, got {_shown(value)}")
    if amount.adjusted() > _MOST:
        raise ValueError(f"an amount must be less than ten billion dollars, got {_shown(value)}")
    return int(_UP.quantize(amount, _MICRO).scaleb(_DIGITS))


def dollars(micros: int, places: int = 4) -> str:
    """An amount for people: `$0.0100`, or `$9.99` with 2 places. Rounded half up.

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


def _decimal(value: object) -> Decimal:
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
        return Decimal(found[1])
    raise ValueError(f"an amount must be a number of dollars such as 0.01, got {_shown(value)}")


def _shown(value: object) -> str:
    return repr(value)[:_LONGEST] if isinstance(value, (str, float)) else type(value).__name__
