"""Compiles the forms of `input_schema` that the official SDK accepts: JSON schemas, dicts of types, classes.

Owns the rules that decide which form is given (see `from_official`). A handler of these forms always gets one dict
of plain JSON values: types are only used for validation and for the schema. `json_schema` and `pydantic_types` make
the schemas, and load their libraries only when needed.
"""

from typing import Any, Final

from toolwire.tools.schema.arguments import DefinitionError, Parameters, show_value
from toolwire.tools.schema.json_schema import RawParameters, compile_schema

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


def output_type(given: Any) -> tuple[Any, dict[str, Any]]:
    """Return the Pydantic adapter and JSON schema of a result type. `DefinitionError` unless it is an object."""
    from toolwire.tools.schema.pydantic_types import output_schema  # noqa: PLC0415 - loads Pydantic

    return output_schema(given)


class _TypedForm:
    """Parameters defined by Python types, for a handler that takes a dict.

    Arguments must fit the JSON schema strictly, because the handler gets them unchanged: a number in quotes would
    be a string there. Then the types check what a schema cannot express, such as dates and own validators.
    """

    def __init__(self, given: Any) -> None:
        from toolwire.tools.schema import pydantic_types as _typed  # noqa: PLC0415 - loads Pydantic

        self._typed = _typed.open_form(given)
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
