"""Compiles JSON Schema to parameters, with `jsonschema_rs`, and the official SDK's other forms of `input_schema`.

Owns the compilation, which is done once and never fetches anything (a `$ref` to another document is refused), the
texts of the validator's errors, and the rules that recognise the form (see `from_official`). A handler of these
forms always gets one dict of plain JSON values: types are only used for validation and for the schema, which
`pydantic_types` makes. Libraries are loaded when they are first needed.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, is_typeddict
from urllib.parse import urldefrag, urljoin

from toolwire._protocol.json_codec import SHAPES, dumps, loads
from toolwire._support.schema_structure import REFERENCES, iter_subschemas
from toolwire.tools.schema.arguments import (
    REQUIRED,
    TOO_LARGE_TO_NAME,
    DefinitionError,
    InvalidArguments,
    Parameters,
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
# The most values in arguments whose errors are all described: each takes up to half a millisecond.
_MAX_NAMED: Final = 300
# Errors that a list may have because it was cut.
_OF_WHOLE_LISTS: Final = {"minItems", "contains", "minContains"}
_MASK: Final = "Input"
_REFERENCES: Final = tuple(f'"{keyword}"'.encode() for keyword in REFERENCES)  # as they stand in JSON
_EXACT: Final = 1 << 53  # a float holds every integer up to here
_LONG: Final = b"0" * 16  # the digits that every larger integer has at least
_TOO_CLOSE: Final = "Too many integers over 2**53 are too close to one another to check that they are unique"
# The most comparisons of integers that are equal as floats: each takes up to 50 microseconds.
_MAX_COMPARISONS: Final = 2_000


class RawParameters:
    """Parameters defined by a JSON schema. The values are the arguments, unchanged.

    The schema is compiled here, so that a bad one is refused at once. The validator is not kept, but compiled again
    for the first arguments: it is several times as large as its schema, and of ten thousand tools few are called.
    """

    def __init__(self, json_schema: dict[str, Any]) -> None:
        self.json_schema = json_schema
        raw = dumps(json_schema)
        _compile(json_schema, raw)
        # A property may have this name too; then numbers are checked in vain.
        self._unique = b"uniqueItems" in raw
        self._is_valid: Callable[[Any], bool] = self._is_first_valid

    @cached_property
    def _validator(self) -> "Validator":
        return _compile(self.json_schema, dumps(self.json_schema))

    def _is_first_valid(self, arguments: Any) -> bool:
        self._is_valid = self._validator.is_valid
        return self._is_valid(arguments)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        raw = to_json(arguments)  # the validator treats NaN as null, and does not limit the digits of numbers
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

    It compares integers as floats first, and then all those with the same float with one another.
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
        raw = dumps(schema)
        copy: dict[str, Any] = loads(raw)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"the JSON schema contains a value that is not JSON: {error}") from error
    kind = copy.get("type", "object")
    if kind != "object":
        raise DefinitionError(
            f'the JSON schema must have "type": "object" at the top, got {show_value(kind)}: arguments have names, '
            "and the CLI drops all tools of a server if one has another type"
        )
    if (
        any(keyword in raw for keyword in _REFERENCES)
        and (external := _find_external_reference(copy)) is not None
    ):
        raise DefinitionError(
            f"the JSON schema refers to {external!r}, which is not inside it: copy what it refers to into $defs"
        )
    return RawParameters({"type": "object", **copy})


def _compile(schema: dict[str, Any], raw: bytes) -> "Validator":
    """Compile a schema; `raw` is its JSON."""
    import jsonschema_rs  # noqa: PLC0415 - only needed to compile a schema

    if b"additionalProperties" in raw:
        schema = loads(raw)
        for _, each in _walk(schema, ""):
            if each.get("additionalProperties") is False:
                # Means the same, but now the validator names the unknown properties.
                each.setdefault("properties", {})
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
    raise ValueError(f"{uri} is not inside the schema; references are not fetched")


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
    """Describe an error, with our own text for some kinds, otherwise with that of the validator."""
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


# Any of these makes a dict without types a JSON schema.
_KEYWORDS: Final = {
    *("$schema", "$id", "$ref", "$defs", "definitions", "type", "properties", "patternProperties"),
    *(
        "additionalProperties",
        "required",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "if",
        "minProperties",
        "maxProperties",
    ),
    *("dependentRequired", "dependentSchemas", "propertyNames", "unevaluatedProperties", "enum", "const"),
}
_ACCEPTED: Final = (
    'give a dict of names to types such as {"a": float}, a JSON schema such as {"type": "object", '
    '"properties": {...}}, or a TypedDict, dataclass or Pydantic model'
)
_JSON: Final = (str, int, float, list, tuple, dict, type(None))


def from_json_schema(schema: dict[str, Any]) -> Parameters:
    """Compile a JSON schema. Does no network access.

    The draft is that of its `$schema`, or 2020-12. A missing `type` is added; any other than "object" is refused,
    and so is a reference to another document. The schema is copied: later changes to the dict have no effect.
    """
    return compile_schema(schema)


def from_official(schema: Any) -> Parameters:
    """Compile any `input_schema` that `tool(name, description, input_schema)` of `claude_agent_sdk` accepts.

    1. `{}` accepts anything.
    2. A dict whose values are all types is `{parameter: type}`, whatever the keys: `{"type": str}` has a parameter
       called type. All are required, `X | None` may be null; other arguments are accepted.
    3. A dict without any type, with at least one keyword of JSON Schema, is a JSON schema: `{"type": "object"}`,
       `{"properties": {...}}`, `{"$ref": "#/$defs/x", "$defs": {...}}`.
    4. A class: TypedDict, dataclass, Pydantic model, or any other type that is an object in JSON.

    Anything else is refused: type names (`{"a": "string"}`), values (`{"a": 5}`), bare properties
    (`{"a": {"type": "string"}}`), a mixture.
    """
    if schema == {}:
        return compile_schema({"type": "object", "properties": {}})
    if not isinstance(schema, _JSON):
        return _TypedForm(schema)
    if not isinstance(schema, dict) or not all(isinstance(name, str) for name in schema):
        raise DefinitionError(f"{show_value(schema)} is not a schema of arguments; {_ACCEPTED}")
    values = {name: value for name, value in schema.items() if isinstance(value, _JSON)}
    if not values:
        return _TypedForm(schema)
    if len(values) == len(schema) and _KEYWORDS & schema.keys():
        return compile_schema(schema)
    raise DefinitionError(f"{_not_a_type(*next(iter(values.items())))}; {_ACCEPTED}")


class _TypedForm:
    """Parameters defined by Python types, for a handler that takes a dict.

    Arguments must fit the JSON schema strictly, because the handler gets them unchanged: a number in quotes would
    be a string there. Then the types check what a schema cannot express, such as dates and validators of their own.
    """

    def __init__(self, given: Any) -> None:
        from toolwire.tools.schema.pydantic_types import open_form  # noqa: PLC0415 - loads Pydantic

        self._typed = open_form(given)
        self._raw = RawParameters(self._typed.json_schema)
        self.json_schema = self._raw.json_schema

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._raw.validate(arguments)
        self._typed.validate(arguments)
        return arguments


def _not_a_type(name: str, value: Any) -> str:
    """Describe an entry of a dict that is neither types nor a JSON schema."""
    if isinstance(value, dict):
        return f'{name!r} is a dict: put it under "properties" of a JSON schema'
    return f"{name!r} is {show_value(value)}, which is not a type"


# --- forms that are not documented, but accepted by `claude_agent_sdk` ---

# It treats an unknown value as a string, and an unknown schema as one without parameters. Here the evident meaning
# of such a schema is used instead: `{"n": "integer"}` is an integer.
_TYPES: Final[dict[str, type]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "dict": dict,
}
_TYPE_KEYWORDS: Final = {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}


def read_other_form(schema: Any) -> tuple[Any, str] | None:
    """Convert a schema of an undocumented form to a documented one; None if that is not possible.

    Returns it with a text that says how the schema was understood.
    """
    if not isinstance(schema, dict):
        note = f"{show_value(schema)} is not a schema, so the tool takes any arguments"
        return None if is_typeddict(schema) else ({}, note)
    kind = schema.get("type")
    if "properties" in schema and isinstance(kind, list) and "object" in kind:
        return {**schema, "type": "object"}, f'its "type" is {show_value(kind)} and is treated as "object"'
    is_json_schema = "properties" in schema and isinstance(kind, str)  # with a mistake in it
    if is_json_schema or not all(isinstance(name, str) for name in schema):
        return None
    return _read_parameters(schema)


def _read_parameters(schema: dict[str, Any]) -> tuple[Any, str] | None:
    undocumented = [name for name, given in schema.items() if not _is_documented(name, given)]
    if not undocumented:
        return None
    first = undocumented[0]
    note = f"{first!r} is {show_value(schema[first])}, which is not a type"
    if all(isinstance(given, dict) for given in schema.values()):
        properties = {
            name: given if _TYPE_KEYWORDS & given.keys() else {"type": "string", **given}
            for name, given in schema.items()
        }
        form = {"type": "object", "properties": properties, "required": list(properties)}
        return form, f"{note}, and is treated as the property of a JSON schema"
    read = {name: _read_type(given) if name in undocumented else given for name, given in schema.items()}
    return read, f"{note}, and is treated as {getattr(read[first], '__name__', 'str')}"


def _is_documented(name: str, given: Any) -> bool:
    try:
        from_official({name: given})
    except DefinitionError:
        return False
    return not isinstance(given, str | int | float | list | tuple | dict | None)


def _read_type(given: Any) -> Any:
    """Return the type that a value means: by its name, as a property of a JSON schema, or else a string."""
    if isinstance(given, dict):
        kind = _TYPES.get(str(given.get("type")), str)
        about = given.get("description")
        return Annotated[kind, about] if isinstance(about, str) else kind
    if isinstance(given, str):
        return _TYPES.get(given.lower()) or Annotated[str, given]
    return str
