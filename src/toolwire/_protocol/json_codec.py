"""JSON to Python values and back, with every number as it was written.

Owns what orjson does otherwise: it reads integers over 64 bits as floats, and writes NaN and the infinities as
null. Here integers are exact up to 4,300 digits, Python's own limit, and a number that JSON or a float cannot hold
is an error. Everything else goes through orjson at its speed. No I/O.
"""

import json
import math
from typing import Any, Final

import orjson

SHAPES: Final = bytes.maketrans(b"123456789[,- \t\r\n", b"000000000:::::::")
"""Translates JSON so that every digit is 0, and whatever may stand before a number is a colon."""
LONG_INTEGER: Final = b":" + b"0" * 19
"""What is found in JSON so translated if it has an integer over 64 bits. An id in quotes is not taken for one."""
_DEEPEST: Final = 254

NOT_FINITE: Final = "JSON has no NaN and no infinity"


def loads(data: bytes, *, lone_surrogates: bool = False) -> Any:
    r"""Read a JSON document in UTF-8. ValueError if it is none, or has a number that cannot be held.

    With `lone_surrogates`, text may have half of a surrogate pair as an escape (`\ud83d`), as JavaScript writes it.
    """
    if LONG_INTEGER in b":" + data.translate(SHAPES):
        return _load_exactly(data, lone_surrogates=lone_surrogates)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith("number is infinity"):
            raise ValueError("a number is too large: numbers that are no integers end at 1.8e308") from error
        if lone_surrogates and _may_have_surrogates(data):
            return _load_exactly(data, lone_surrogates=True)
        raise


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """Write a value as compact JSON in UTF-8.

    ValueError for what JSON cannot hold (NaN, the infinities, half of a surrogate pair, integers of more than 4,300
    digits, values that are too deep or contain themselves), TypeError for an object of another class.
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
    """Whether a value holds NaN or an infinity, at any depth."""
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
        raise ValueError("a text has half of a surrogate pair, which is no character") from error
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    except ValueError as error:
        raise _in_our_words(error) from error
    return value


def _check_shape(value: Any) -> None:
    """Refuse what orjson refuses and the standard library writes: keys that are no text, and too many levels."""
    stack = [(value, 0)] if isinstance(value, (dict, list, tuple)) else []
    while stack:
        each, depth = stack.pop()
        if depth == _DEEPEST and each:
            raise ValueError("the value is nested too deeply to be JSON, or contains itself")
        if isinstance(each, dict) and any(not isinstance(key, str) for key in each):
            raise TypeError("the keys of a JSON object must be text")
        inner = each.values() if isinstance(each, dict) else each
        stack += [(one, depth + 1) for one in inner if isinstance(one, (dict, list, tuple))]


def _dump_exactly(value: Any, *, sort_keys: bool) -> bytes:
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys
        )
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("a text has half of a surrogate pair, which is no character") from error
    except ValueError as error:
        raise _in_our_words(error) from error


def _in_our_words(error: ValueError) -> ValueError:
    """What Python says of its limits is about Python."""
    if "digits" in str(error):
        return ValueError("an integer has more than 4,300 digits")
    return ValueError(NOT_FINITE) if "Out of range float" in str(error) else error


def _may_have_surrogates(data: bytes) -> bool:
    return b"\\ud" in data or b"\\uD" in data


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large: numbers that are no integers end at 1.8e308")
    return number


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


# Exponents of three digits, and so many digits before one that two would do. Other floats need no further look.
_MAY_BE_INFINITE: Final = (b"0e000", b"0E000", b"0e+000", b"0E+000", b"0" * 200)
_DECODER: Final = json.JSONDecoder(parse_constant=_constant)
_CAREFUL_DECODER: Final = json.JSONDecoder(parse_float=_float, parse_constant=_constant)
