"""Raw JSON Schema as parameters, by way of `jsonschema_rs`.

Owns the compilation, which is done once and never leaves the document (a `$ref` to anywhere else is refused, not
followed), and the words for what the validator finds wrong. It knows nothing of Python types.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urldefrag, urljoin

from toolwire._protocol.json_codec import SHAPES, dumps, loads
from toolwire._support.schema_structure import REFERENCES, iter_subschemas
from toolwire.tools.schema.arguments import (
    REQUIRED,
    TOO_LARGE_TO_SAY,
    DefinitionError,
    InvalidArguments,
    Violation,
    clip,
    got,
    path_of,
    shorten,
    show_value,
    to_json,
    unknown_argument,
)

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

_BRANCHES: Final = 5
_NAMED: Final = (
    300  # values in arguments whose mistakes are all named: each mistake takes up to half a millisecond
)
_OF_WHOLE_LISTS: Final = {
    "minItems",
    "contains",
    "minContains",
}  # what is wrong with a list only because it is cut
_MASK: Final = "Input"
_EXACT: Final = 1 << 53  # a float holds every integer up to here
_LONG: Final = b"0" * 16  # digits that an integer over it has at least
_TOO_ALIKE: Final = "Too many integers over 2**53 are close to one another to see that none comes twice"
_ALIKE: Final = 2_000  # comparisons of integers that are alike as floats: each takes up to 50 microseconds


class RawParameters:
    """Parameters by a JSON schema. The values are the arguments as they came."""

    def __init__(self, json_schema: dict[str, Any]) -> None:
        self.json_schema = json_schema
        self._validator = _compiled(json_schema)
        self._is_valid = self._validator.is_valid
        self._unique = any("uniqueItems" in each for _, each in _walk(json_schema, ""))

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        raw = to_json(arguments)  # the validator takes NaN for null, and knows no limit of digits
        if self._unique and _LONG in raw.translate(SHAPES) and _are_alike(arguments):
            raise InvalidArguments([Violation("", _TOO_ALIKE)])
        try:
            if self._is_valid(arguments):
                return arguments
            named = shorten(arguments, _NAMED)
            errors = [] if named is None else list(self._validator.iter_errors(named))
        except ValueError as error:  # a value that is none of JSON's, or text that is no Unicode
            raise InvalidArguments([Violation("", f"The arguments cannot be read: {error}")]) from error
        if named is not arguments:
            errors = [error for error in errors if error.kind.name not in _OF_WHOLE_LISTS]
        if not errors:
            raise InvalidArguments([Violation("", TOO_LARGE_TO_SAY)])
        known = list(self.json_schema.get("properties", ()))
        raise InvalidArguments(violation for error in errors for violation in _violations(error, known))


def _are_alike(arguments: dict[str, Any]) -> bool:
    """Return whether so many integers are alike that the validator would take minutes to tell them apart.

    For `uniqueItems` it tells integers apart by the float next to them first, then compares those that share it.
    """
    floats: Counter[float] = Counter()
    stack: list[Any] = [arguments]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            stack += each.values()
        elif isinstance(each, list):
            stack += each
        elif isinstance(each, int) and abs(each) > _EXACT:
            floats[float(each) if each.bit_length() < sys.float_info.max_exp else math.inf] += 1
    return sum(count * (count - 1) for count in floats.values()) > _ALIKE


def compile_schema(schema: Any) -> RawParameters:
    """Parameters from a schema, of which a copy is kept. `DefinitionError` says why it cannot be used."""
    if not isinstance(schema, dict):
        raise DefinitionError(f"a JSON schema must be a dict, got {type(schema).__name__}")
    try:
        copy: dict[str, Any] = loads(dumps(schema))
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"the JSON schema holds something that is not JSON: {error}") from error
    kind = copy.get("type", "object")
    if kind != "object":
        raise DefinitionError(
            f'the JSON schema must have "type": "object" at the top, got {show_value(kind)}: arguments have names, '
            "and the CLI drops all tools of a server for one that is no object"
        )
    if (away := _reference_away(copy)) is not None:
        raise DefinitionError(
            f"the JSON schema refers to {away!r}, which is not inside it: copy what it refers to into $defs"
        )
    return RawParameters({"type": "object", **copy})


def _compiled(schema: dict[str, Any]) -> "Validator":
    import jsonschema_rs  # noqa: PLC0415 - only where a schema is compiled

    schema = loads(dumps(schema))
    for _, each in _walk(schema, ""):
        if each.get("additionalProperties") is False:
            each.setdefault("properties", {})  # means the same, and makes the validator name what is too much
    try:
        # Formats are notes, as the official SDK has them; the mask keeps long values out of the messages.
        return jsonschema_rs.validator_for(schema, validate_formats=False, retriever=_stay_here, mask=_MASK)
    except jsonschema_rs.ValidationError as error:
        where = path_of(error.instance_path)
        raise DefinitionError(
            f"the JSON schema is not valid{f' at {where}' if where else ''}: {clip(error.message, 300)}"
        ) from error
    except (ValueError, TypeError) as error:
        raise DefinitionError(f"the JSON schema is not valid: {error}") from error


def _stay_here(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not inside the schema, and nothing is fetched")


def _reference_away(schema: dict[str, Any]) -> str | None:
    """The first reference that leaves the document, in schema positions only: data may look like one."""
    found = list(_walk(schema, ""))
    inside = {urldefrag(base).url for base, _ in found} | {""}
    for base, each in found:
        for keyword in REFERENCES:
            target = each.get(keyword)
            if isinstance(target, str) and urldefrag(urljoin(base, target)).url not in inside:
                return target
    return None


def _walk(schema: Any, base: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in the document, with the address that its own `$id` gives it."""
    if not isinstance(schema, dict):
        return
    if isinstance(identity := schema.get("$id", schema.get("id")), str):
        base = urljoin(base, identity)
    yield base, schema
    for _, inner in iter_subschemas(schema):
        yield from _walk(inner, base)


def _violations(error: "ValidationError", known: list[str]) -> Iterator[Violation]:
    """Describe one error; a missing or unknown property is named in the path."""
    path, kind = error.instance_path, error.kind
    if kind.name == "required":
        yield Violation(path_of([*path, kind.value]), REQUIRED)
    elif kind.name in ("additionalProperties", "unevaluatedProperties"):
        for each in kind.value:
            yield Violation(path_of([*path, each]), unknown_argument(() if path else known))
    else:
        yield Violation(path_of(path), got(_words(error), error.instance))


def _words(error: "ValidationError") -> str:
    """The message, in our words where the validator's are for authors of schemas."""
    words = _WORDS.get(error.kind.name)
    return error.message if words is None else words(error)


def _branches(error: "ValidationError") -> str:
    """Why no branch of an `anyOf` or `oneOf` fits, or that more than one does."""
    context: list[list[ValidationError]] = error.kind.value
    if not all(context):
        return f"{_MASK} should fit exactly one of the allowed forms, and fits more"
    reasons = [_reason(branch[0], len(error.instance_path)) for branch in context[:_BRANCHES]]
    return f"{_MASK} fits none of the allowed forms ({' | '.join(reasons)})"


def _reason(error: "ValidationError", depth: int) -> str:
    """Describe the error of a branch, with the path inside it. The value is shown once, with the whole."""
    path, kind = error.instance_path[depth:], error.kind
    if kind.name == "required":
        return str(Violation(path_of([*path, kind.value]), REQUIRED))
    return str(Violation(path_of(path), _words(error)))


_WORDS: Final[dict[str, Callable[["ValidationError"], str]]] = {
    "type": lambda error: f"{_MASK} should be of type {' or '.join(error.kind.value)}",
    "enum": lambda error: f"{_MASK} should be one of {', '.join(map(show_value, error.kind.value))}",
    "const": lambda error: f"{_MASK} should be {show_value(error.kind.value)}",
    "falseSchema": lambda _: "Not allowed here",
    "anyOf": _branches,
    "oneOf": _branches,
}
