"""Cleans text and values that an API wrote, and converts them to the type that was meant.

Owns the maximum length of a text for the model, and the conversion of a value to a JSON type. Knows nothing about
schemas.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from toolwire._protocol.json_codec import dumps, loads
from toolwire.catalog.hidden_text import remove_hidden

LONGEST_TEXT: Final = 2_000
TYPES: Final = ("string", "integer", "number", "boolean", "object", "array", "null")
_TRUE: Final = {"true", "yes", "1", "on"}
_FALSE: Final = {"false", "no", "0", "off"}
_MOST_DIGITS: Final = 7
_NOWHERE: Final = object()


def tidy(text: Any, longest: int = LONGEST_TEXT) -> str:
    """Clean a description for a model: no hidden characters, stripped, cut with an ellipsis. Empty if not text."""
    if not isinstance(text, str):
        return ""
    cleaned = remove_hidden(text[: 8 * longest]).strip()
    return cleaned if len(cleaned) <= longest else remove_hidden(cleaned[: longest - 1]).rstrip() + "…"


def fits(value: Any, kind: str) -> bool:
    """True if a JSON value is of a JSON type."""
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return not isinstance(value, bool) and (
            isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        )
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, {"string": str, "object": dict, "array": list}[kind])


def convert(value: Any, kinds: Iterable[str]) -> tuple[bool, Any]:
    """Convert a value to one of the types: `"5"` as an integer is 5. Returns (False, None) if that fails."""
    kinds = tuple(kinds)
    if any(fits(value, kind) for kind in kinds):
        return True, int(value) if isinstance(value, float) and kinds == ("integer",) else value
    for kind in kinds:
        made = _convert_to(value, kind)
        if made is not None and fits(made, kind):
            return True, made
    return False, None


def get_path(data: Any, path: str) -> Any:
    """Return the value at a dotted path in JSON data (`details.tools.0`); None if the path does not exist.

    A step `-1` is the last element of a list. Of several paths (`price|function.price`) the first with a value is
    used.
    """
    return find_path(data, path)[1]


def has_path(data: Any, path: str) -> bool:
    """True if a path, or one of several, exists, even if its value is null."""
    return find_path(data, path)[0]


def find_path(data: Any, path: str) -> tuple[bool, Any]:
    """Return whether a path exists, and its value as `get_path` does."""
    exists = False
    for steps in _split(path):
        value = data
        for step in steps:
            value = value.get(step, _NOWHERE) if isinstance(value, dict) else _get_element(value, step)
            if value is _NOWHERE:
                break
        else:
            exists = True
            if value is not None:
                return True, value
    return exists, None


@lru_cache(256)
def _split(path: str) -> tuple[tuple[str, ...], ...]:
    """Split a path into the steps of each alternative, once for all items of a list."""
    return tuple(tuple(each.split(".")) for each in path.split("|") if each)


def is_true(value: Any) -> bool:
    """True if a flag is set. It may be a word: `"false"`, `"no"`, `"null"` and an empty value are false."""
    if isinstance(value, str):
        return value.strip().lower() not in {"", "none", "null", *_FALSE}
    return bool(value)


def is_denied(value: Any) -> bool:
    """True if a flag says no, as a boolean, number or word; False if it is missing."""
    return isinstance(value, (str, bool, int, float)) and str(value).strip().lower() in _FALSE


def _get_element(data: Any, step: str) -> Any:
    """Take one step of a path into a list: `0` is its first element, `-1` its last."""
    if not isinstance(data, list) or not data:
        return _NOWHERE
    if step == "-1":
        return data[-1]
    if step.isascii() and step.isdecimal() and len(step) < _MOST_DIGITS and int(step) < len(data):
        return data[int(step)]
    return _NOWHERE


def _convert_to(value: Any, kind: str) -> Any:
    """Convert a value to another type; None if that fails."""
    if kind == "string" and isinstance(value, (bool, int, float)):
        return json_text(value)
    if kind == "boolean":
        word = str(value).strip().lower() if isinstance(value, (str, int)) else ""
        return True if word in _TRUE else False if word in _FALSE else None
    if isinstance(value, str) and kind in ("integer", "number", "array", "object"):
        try:
            return loads(value.encode())
        except ValueError:
            return None
    return None


def json_text(value: Any) -> str | None:
    """Encode a value as compact JSON; None if it is not JSON."""
    try:
        return dumps(value).decode()
    except (TypeError, ValueError):
        return None
