"""The parameters of a tool: their JSON schema, and the validation of arguments.

Owns the interface that both kinds of schema implement (typed functions, raw JSON Schema), the errors that they
raise and the texts of violations. Must know neither Pydantic nor a JSON Schema library.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from toolwire._protocol.json_codec import dumps
from toolwire.errors import ClaudeSDKError, ToolDefinitionError

_SHOWN_VIOLATIONS: Final = 20
_VALUE_LENGTH: Final = 80
_MESSAGE_LENGTH: Final = 400
_DEEPEST: Final = 254
_LIST_LENGTHS: Final = (100, 10, 2)

TOO_LARGE_TO_NAME: Final = "The arguments do not fit the schema, and are too large to list the errors"

REQUIRED: Final = "Field required"
NOT_FINITE: Final = "Input should be a finite number"


# The text of the error says which part of a definition is invalid, why, and what to do.
DefinitionError = ToolDefinitionError


@dataclass(frozen=True, slots=True)
class Violation:
    """One error in the arguments. `path` is like `items[2].price`, and empty for the arguments as a whole."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidArguments(ClaudeSDKError):  # noqa: N818 - it names the arguments
    """Arguments that do not fit the schema, with their errors."""

    def __init__(self, violations: Iterable[Violation], unnamed: int = 0) -> None:
        """`unnamed` is the number of further errors, which are not in `violations`."""
        self.violations = list(dict.fromkeys(violations))
        self._unnamed = unnamed
        shown = "; ".join(map(str, self.violations[:_SHOWN_VIOLATIONS]))
        more = max(0, len(self.violations) - _SHOWN_VIOLATIONS) + unnamed
        super().__init__(f"Validation failed: {shown}" + (f"; ... and {more} more" if more > 0 else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.violations, self._unnamed)


class Parameters(Protocol):
    """The compiled parameters of a tool."""

    @property
    def json_schema(self) -> dict[str, Any]:
        """The JSON schema that clients get, of type object."""
        ...

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the values for the handler; `InvalidArguments` if they do not fit. Never changes `arguments`."""
        ...


def shorten(arguments: dict[str, Any], most: int) -> dict[str, Any] | None:
    """Cut the lists in the arguments so that at most `most` values are left. None if that is not enough.

    For errors in large arguments: describing all errors in 4 MB of arguments would take a minute.
    """
    if _has_at_most(arguments, most):
        return arguments
    for length in _LIST_LENGTHS:
        cut: dict[str, Any] = _cut_lists(arguments, length)
        if _has_at_most(cut, most):
            return cut
    return None


def _cut_lists(value: Any, length: int) -> Any:
    if isinstance(value, dict):
        return {key: _cut_lists(each, length) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut_lists(each, length) for each in value[:length]]
    return value


def _has_at_most(value: Any, most: int) -> bool:
    """True if a JSON value contains at most `most` values."""
    left = [value]
    for _ in range(most + 1):
        if not left:
            return True
        each = left.pop()
        if isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
    return False


def format_path(steps: Iterable[str | int]) -> str:
    """Join keys and indexes to a path: `items[2].price`."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{clip(step)}" if text else clip(step)
    return text


def got(message: str, value: Any) -> str:
    """Append the value to a message."""
    return f"{clip(message, _MESSAGE_LENGTH)}, got {show_value(value)}"


def unknown_argument(known: Sequence[str] = ()) -> str:
    """Return the message for an argument that is not in the schema."""
    names = clip(", ".join(known), _MESSAGE_LENGTH)
    return f"Unknown argument (known: {names})" if names else "Unknown argument"


def show_value(value: Any) -> str:
    """Show a value to a model: a string in quotes, anything else as JSON, cut if long."""
    if isinstance(value, str):
        return clip(repr(value[: _VALUE_LENGTH + 1]))
    try:
        return clip(dumps(value).decode())
    except (TypeError, ValueError):
        return clip(repr(value))


def clip(text: str, length: int = _VALUE_LENGTH) -> str:
    """Cut a text that is longer than `length`."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def to_json(arguments: dict[str, Any]) -> bytes:
    """Encode the arguments as JSON. `InvalidArguments` if they are not JSON."""
    try:
        raw = orjson.dumps(arguments)
        if b"null" not in raw:  # the usual case, which costs no further call
            return raw
    except TypeError:
        pass  # integers over 64 bits, or values that are not JSON
    try:
        return dumps(arguments)
    except TypeError as error:
        raise InvalidArguments([Violation("", f"The arguments are not JSON: {error}")]) from error
    except ValueError as error:
        found = [
            Violation(format_path(path), got(NOT_FINITE, value))
            for path, value in _find_non_finite(arguments)
        ]
        other = Violation("", f"The arguments cannot be read: {error}")
        raise InvalidArguments(found or [other]) from error


def _find_non_finite(arguments: Any) -> Iterator[tuple[tuple[str | int, ...], float]]:
    """Yield the path and value of each number that is not finite, which JSON cannot represent."""
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), arguments)]
    while stack:
        path, each = stack.pop()
        if len(path) > _DEEPEST:  # too deep for JSON, or a value that contains itself: reported elsewhere
            continue
        if isinstance(each, dict):
            stack.extend(((*path, str(key)), value) for key, value in each.items())
        elif isinstance(each, (list, tuple)):
            stack.extend(((*path, index), value) for index, value in enumerate(each))
        elif isinstance(each, float) and not math.isfinite(each):
            yield path, each
