"""Reads and writes JSON with every number kept exact.

Owns the cases where orjson differs: it reads integers over 64 bits as floats, and writes NaN and the infinities as
null. Here integers are exact up to 4,300 digits, Python's own limit, and a number that JSON or a float cannot
represent is an error. Everything else is left to orjson, at its speed. No I/O.
"""

import json
import math
from typing import Any, Final

import orjson

SHAPES: Final = bytes.maketrans(b"123456789[,- \t\r\n", b"000000000:::::::")
"""Translates JSON so that every digit is 0, and every character that may precede a number is a colon."""
LONG_INTEGER: Final = b":" + b"0" * 19
"""Occurs in translated JSON if it has an integer that may exceed 64 bits. Digits in quotes do not count."""
_DEEPEST: Final = 254

NOT_FINITE: Final = "JSON has no NaN and no infinity"
_TOO_LARGE: Final = "a number is too large: only integers can exceed 1.8e308"
_LONE_SURROGATE: Final = "a string contains half of a surrogate pair, which is not a character"


def loads(data: bytes, *, lone_surrogates: bool = False) -> Any:
    r"""Decode a JSON document in UTF-8. Raises ValueError if it is invalid, or a number in it cannot be
    represented.

    With `lone_surrogates`, strings may contain half of a surrogate pair as an escape (`\ud83d`), as JavaScript
    writes it.
    """
    if LONG_INTEGER in b":" + data.translate(SHAPES):
        return _load_exactly(data, lone_surrogates=lone_surrogates)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith("number is infinity"):
            raise ValueError(_TOO_LARGE) from error
        if lone_surrogates and _may_have_surrogates(data):
            return _load_exactly(data, lone_surrogates=True)
        raise


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """Encode a value as compact JSON in UTF-8.

    Raises ValueError for values that JSON cannot represent (NaN, the infinities, half of a surrogate pair, integers
    of more than 4,300 digits, values that are too deep or contain themselves), TypeError for objects of other
    classes.
    """
    try:
        raw = orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)
    except orjson.JSONEncodeError:
        _check_shape(value)
        return _dump_exactly(value, sort_keys=sort_keys)
    if b"null" in raw and has_non_finite(value):
        raise ValueError(NOT_FINITE)
    return raw


def has_non_finite(value: Any) -> bool:
    """Return True if a value contains NaN or an infinity, at any depth."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            stack.extend(each.values())
        elif isinstance(each, (list, tuple)):
            stack.extend(each)
        elif isinstance(each, float) and not math.isfinite(each):
            return True
    return False


def _load_exactly(data: bytes, *, lone_surrogates: bool) -> Any:
    shape = data.translate(SHAPES)
    decoder = _CAREFUL_DECODER if any(each in shape for each in _MAY_BE_INFINITE) else _DECODER
    try:
        value = decoder.decode(data.decode())
        if not lone_surrogates and _may_have_surrogates(data):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(_LONE_SURROGATE) from error
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    except ValueError as error:
        raise _reword(error) from error
    return value


def _check_shape(value: Any) -> None:
    """Reject what orjson rejects and the standard library would write: keys that are not strings, great depth."""
    stack = [(value, 0)] if isinstance(value, (dict, list, tuple)) else []
    while stack:
        each, depth = stack.pop()
        if depth == _DEEPEST and each:
            raise ValueError("the value is nested too deeply to be JSON, or contains itself")
        if isinstance(each, dict) and any(not isinstance(key, str) for key in each):
            raise TypeError("the keys of a JSON object must be strings")
        inner = each.values() if isinstance(each, dict) else each
        stack += [(one, depth + 1) for one in inner if isinstance(one, (dict, list, tuple))]


def _dump_exactly(value: Any, *, sort_keys: bool) -> bytes:
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys
        )
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(_LONE_SURROGATE) from error
    except ValueError as error:
        raise _reword(error) from error


def _reword(error: ValueError) -> ValueError:
    """Replace messages that are about Python by ones about the JSON."""
    if "digits" in str(error):
        return ValueError("an integer has more than 4,300 digits")
    return ValueError(NOT_FINITE) if "Out of range float" in str(error) else error


def _may_have_surrogates(data: bytes) -> bool:
    return b"\\ud" in data or b"\\uD" in data


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(_TOO_LARGE)
    return number


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not valid JSON")


# Three-digit exponents, or so many digits that a two-digit exponent may be too large. All other floats are finite.
_MAY_BE_INFINITE: Final = (b"0e000", b"0E000", b"0e+000", b"0E+000", b"0" * 200)
_DECODER: Final = json.JSONDecoder(parse_constant=_constant)
_CAREFUL_DECODER: Final = json.JSONDecoder(parse_float=_float, parse_constant=_constant)
