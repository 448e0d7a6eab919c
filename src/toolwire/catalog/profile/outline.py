"""Lists the paths in JSON data, for messages about a path that is not there. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolwire.catalog.hidden_text import remove_hidden

_DEPTH: Final = 3
_MOST: Final = 14
_LONGEST_NAME: Final = 40


def outline(data: Any, most: int = _MOST) -> str:
    """List the dotted paths in an object, in one line: `id, pricing.cents, tags (list of 3)`."""
    if not isinstance(data, Mapping):
        return _kind(data)
    found: list[str] = []
    for path in _paths(data, 0):
        if len(found) == most:
            return f"{', '.join(found)}, ..."
        found.append(path)
    return ", ".join(found) or "nothing"


def _paths(data: Mapping[Any, Any], depth: int) -> Iterator[str]:
    for key, value in data.items():
        name = " ".join(remove_hidden(str(key)).split())[:_LONGEST_NAME]  # in one line of a log
        if isinstance(value, Mapping) and value and depth + 1 < _DEPTH and not _is_schema(value):
            yield from (f"{name}.{inner}" for inner in _paths(value, depth + 1))
        else:
            note = f" ({_kind(value)})" if isinstance(value, (list, Mapping)) or value is None else ""
            yield f"{name}{note}"


def _is_schema(value: Mapping[Any, Any]) -> bool:
    """True for what looks like a JSON schema: it is shown as one value."""
    return "properties" in value or "type" in value


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"list of {len(value)}"
    if isinstance(value, Mapping):
        return "object"
    return "null" if value is None else "text" if isinstance(value, str) else type(value).__name__
