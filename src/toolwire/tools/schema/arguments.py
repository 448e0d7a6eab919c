"""The parameters of a tool: the schema that goes on the wire, and the validation of the arguments that come back.

Owns the interface that both kinds of schema fill (typed functions, raw JSON Schema), the errors they raise and
the words for a violation. It knows neither Pydantic nor a JSON Schema library.
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

TOO_LARGE_TO_SAY: Final = "The arguments do not fit the schema, and are too large to say where"

REQUIRED: Final = "Field required"
NOT_FINITE: Final = "Input should be a finite number"


# The name by which these modules call it: the text says which part of a tool cannot be, why, and what to do.
DefinitionError = ToolDefinitionError


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong with the arguments. `path` is like `items[2].price`, empty for the arguments as a whole."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidArguments(ClaudeSDKError):  # noqa: N818 - it names the arguments, not a fault of ours
    """Arguments that break the schema, with what is wrong with them."""

    def __init__(self, violations: Iterable[Violation], unnamed: int = 0) -> None:
        """`unnamed` is how many there are besides."""
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
        """An object schema, as it goes on the wire."""
        ...

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The values for the handler, or `InvalidArguments`. Never changes what it is given."""
        ...


def shorten(arguments: dict[str, Any], most: int) -> dict[str, Any] | None:
    """Cut the lists in the arguments so that at most `most` values are left. None if that is not enough.

    For naming what is wrong with large arguments: all the mistakes in 4 MB of them take a minute to put into words.
    """
    if _has_at_most(arguments, most):
        return arguments
    for length in _LIST_LENGTHS:
        cut: dict[str, Any] = _with_short_lists(arguments, length)
        if _has_at_most(cut, most):
            return cut
    return None


def _with_short_lists(value: Any, length: int) -> Any:
    if isinstance(value, dict):
        return {key: _with_short_lists(each, length) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_short_lists(each, length) for each in value[:length]]
    return value


def _has_at_most(value: Any, most: int) -> bool:
    """Return whether a JSON value holds at most `most` values."""
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


def path_of(steps: Iterable[str | int]) -> str:
    """Keys and indexes as one path: `items[2].price`."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{clip(step)}" if text else clip(step)
    return text


def got(message: str, value: Any) -> str:
    """A message that ends with the value that it is about."""
    return f"{clip(message, _MESSAGE_LENGTH)}, got {show_value(value)}"


def unknown_argument(known: Sequence[str] = ()) -> str:
    """The message for an argument that is not in the schema."""
    names = clip(", ".join(known), _MESSAGE_LENGTH)
    return f"Unknown argument (known: {names})" if names else "Unknown argument"


def show_value(value: Any) -> str:
    """A value as a model reads it: text in quotes, the rest as JSON, cut when long."""
    if isinstance(value, str):
        return clip(repr(value[: _VALUE_LENGTH + 1]))
    try:
        return clip(dumps(value).decode())
    except (TypeError, ValueError):
        return clip(repr(value))


def clip(text: str, length: int = _VALUE_LENGTH) -> str:
    """The text, or its beginning."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def to_json(arguments: dict[str, Any]) -> bytes:
    """The arguments as JSON. `InvalidArguments` when they cannot have come from there."""
    try:
        raw = orjson.dumps(arguments)
        if b"null" not in raw:  # the usual case, which costs no further call
            return raw
    except TypeError:
        pass  # integers over 64 bits, or no JSON at all
    try:
        return dumps(arguments)
    except TypeError as error:
        raise InvalidArguments([Violation("", f"The arguments are not JSON: {error}")]) from error
    except ValueError as error:
        found = [Violation(path_of(path), got(NOT_FINITE, value)) for path, value in _non_finite(arguments)]
        other = Violation("", f"The arguments cannot be read: {error}")
        raise InvalidArguments(found or [other]) from error


def _non_finite(arguments: Any) -> Iterator[tuple[tuple[str | int, ...], float]]:
    """Each number that JSON does not have, with where it is."""
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), arguments)]
    while stack:
        path, each = stack.pop()
        if len(path) > _DEEPEST:  # no JSON, or a value that contains itself: others will tell
            continue
        if isinstance(each, dict):
            stack.extend(((*path, str(key)), value) for key, value in each.items())
        elif isinstance(each, (list, tuple)):
            stack.extend(((*path, index), value) for index, value in enumerate(each))
        elif isinstance(each, float) and not math.isfinite(each):
            yield path, each
