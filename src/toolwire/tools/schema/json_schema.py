"""Compiles raw JSON Schema to parameters, with `jsonschema_rs`.

Owns the compilation, which is done once and never fetches anything (a `$ref` to another document is refused), and
the texts of the validator's errors. It must not know Python types.
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
    TOO_LARGE_TO_NAME,
    DefinitionError,
    InvalidArguments,
    Violation,
    clip,
    format_path,
    got,
    shorten,
    show_value,
    to_json,
    unknown_argument,
)

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

_MAX_BRANCHES: Final = 5
_MAX_NAMED: Final = (
    300  # values in arguments whose errors are all described: each takes up to half a millisecond
)
_OF_WHOLE_LISTS: Final = {
    "minItems",
    "contains",
    "minContains",
}  # errors that a list may have because it was cut
_MASK: Final = "Input"
_EXACT: Final = 1 << 53  # a float holds every integer up to here
_LONG: Final = b"0" * 16  # larger integers have at least so many digits
_TOO_CLOSE: Final = "Too many integers over 2**53 are too close to one another to check that they are unique"
_MAX_COMPARISONS: Final = (
    2_000  # comparisons of integers that are equal as floats: each takes up to 50 microseconds
)


class RawParameters:
    """Parameters defined by a JSON schema. The values are the arguments, unchanged."""

    def __init__(self, json_schema: dict[str, Any]) -> None:
        self.json_schema = json_schema
        self._validator = _compile(json_schema)
        self._is_valid = self._validator.is_valid
        self._unique = any("uniqueItems" in each for _, each in _walk(json_schema, ""))

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        raw = to_json(arguments)  # the validator takes NaN for null, and has no limit of digits
        if self._unique and _LONG in raw.translate(SHAPES) and _has_many_equal_floats(arguments):
            raise InvalidArguments([Violation("", _TOO_CLOSE)])
        try:
            if self._is_valid(arguments):
                return arguments
            named = shorten(arguments, _MAX_NAMED)
            errors = [] if named is None else list(self._validator.iter_errors(named))
        except ValueError as error:  # a value that is not JSON, or a string that is not Unicode
            raise InvalidArguments([Violation("", f"The arguments cannot be read: {error}")]) from error
        if named is not arguments:
            errors = [error for error in errors if error.kind.name not in _OF_WHOLE_LISTS]
        if not errors:
            raise InvalidArguments([Violation("", TOO_LARGE_TO_NAME)])
        known = list(self.json_schema.get("properties", ()))
        raise InvalidArguments(violation for error in errors for violation in _violations(error, known))


def _has_many_equal_floats(arguments: dict[str, Any]) -> bool:
    """True if so many integers are equal as floats that the validator would take minutes for `uniqueItems`.

    It distinguishes integers by their floats first, and then compares all those with the same float.
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
    return sum(count * (count - 1) for count in floats.values()) > _MAX_COMPARISONS


def compile_schema(schema: Any) -> RawParameters:
    """Compile a copy of a schema. `DefinitionError` says why it cannot be used."""
    if not isinstance(schema, dict):
        raise DefinitionError(f"a JSON schema must be a dict, got {type(schema).__name__}")
    try:
        copy: dict[str, Any] = loads(dumps(schema))
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"the JSON schema contains a value that is not JSON: {error}") from error
    kind = copy.get("type", "object")
    if kind != "object":
        raise DefinitionError(
            f'the JSON schema must have "type": "object" at the top, got {show_value(kind)}: arguments have names, '
            "and the CLI drops all tools of a server if one has another type"
        )
    if (away := _find_external_reference(copy)) is not None:
        raise DefinitionError(
            f"the JSON schema refers to {away!r}, which is not inside it: copy what it refers to into $defs"
        )
    return RawParameters({"type": "object", **copy})


def _compile(schema: dict[str, Any]) -> "Validator":
    import jsonschema_rs  # noqa: PLC0415 - only needed to compile a schema

    schema = loads(dumps(schema))
    for _, each in _walk(schema, ""):
        if each.get("additionalProperties") is False:
            each.setdefault(
                "properties", {}
            )  # means the same, and makes the validator name the unknown properties
    try:
        # Formats are not checked, as in the official SDK. The mask keeps long values out of the messages.
        return jsonschema_rs.validator_for(
            schema, validate_formats=False, retriever=_refuse_to_fetch, mask=_MASK
        )
    except jsonschema_rs.ValidationError as error:
        where = format_path(error.instance_path)
        raise DefinitionError(
            f"the JSON schema is not valid{f' at {where}' if where else ''}: {clip(error.message, 300)}"
        ) from error
    except (ValueError, TypeError) as error:
        raise DefinitionError(f"the JSON schema is not valid: {error}") from error


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not inside the schema, and nothing is fetched")


def _find_external_reference(schema: dict[str, Any]) -> str | None:
    """Return the first reference to another document, in schemas only: data may look like one."""
    found = list(_walk(schema, ""))
    inside = {urldefrag(base).url for base, _ in found} | {""}
    for base, each in found:
        for keyword in REFERENCES:
            target = each.get(keyword)
            if isinstance(target, str) and urldefrag(urljoin(base, target)).url not in inside:
                return target
    return None


def _walk(schema: Any, base: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema in the document, with its base URI."""
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
        yield Violation(format_path([*path, kind.value]), REQUIRED)
    elif kind.name in ("additionalProperties", "unevaluatedProperties"):
        for each in kind.value:
            yield Violation(format_path([*path, each]), unknown_argument(() if path else known))
    else:
        yield Violation(format_path(path), got(_describe(error), error.instance))


def _describe(error: "ValidationError") -> str:
    """Describe an error: with our own text for some kinds, else with that of the validator."""
    describe = _DESCRIPTIONS.get(error.kind.name)
    return error.message if describe is None else describe(error)


def _describe_branches(error: "ValidationError") -> str:
    """Describe why no branch of an `anyOf` or `oneOf` fits, or that more than one does."""
    context: list[list[ValidationError]] = error.kind.value
    if not all(context):
        return f"{_MASK} should fit exactly one of the allowed forms, but fits several"
    reasons = [_describe_in_branch(branch[0], len(error.instance_path)) for branch in context[:_MAX_BRANCHES]]
    return f"{_MASK} fits none of the allowed forms ({' | '.join(reasons)})"


def _describe_in_branch(error: "ValidationError", depth: int) -> str:
    """Describe the error of a branch, with the path inside it. The value is shown once, with the whole."""
    path, kind = error.instance_path[depth:], error.kind
    if kind.name == "required":
        return str(Violation(format_path([*path, kind.value]), REQUIRED))
    return str(Violation(format_path(path), _describe(error)))


_DESCRIPTIONS: Final[dict[str, Callable[["ValidationError"], str]]] = {
    "type": lambda error: f"{_MASK} should be of type {' or '.join(error.kind.value)}",
    "enum": lambda error: f"{_MASK} should be one of {', '.join(map(show_value, error.kind.value))}",
    "const": lambda error: f"{_MASK} should be {show_value(error.kind.value)}",
    "falseSchema": lambda _: "Not allowed here",
    "anyOf": _describe_branches,
    "oneOf": _describe_branches,
}
