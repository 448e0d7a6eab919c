"""Reads forms of `input_schema` that are not documented, and that `claude_agent_sdk` takes all the same.

Its rule: a value that it does not know is a string, and a schema that it does not know has no parameters. What such
a schema plainly says counts more here: `{"n": "integer"}` is an integer. Loaded when a schema would be refused.
"""

from typing import Annotated, Any, Final, is_typeddict

from toolwire.tools.schema.arguments import DefinitionError, show_value
from toolwire.tools.schema.json_schema import from_official

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
_SAYS_ITS_TYPE: Final = {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}


def read_other_form(schema: Any) -> tuple[Any, str] | None:
    """Return the schema in a documented form, and what it was taken for; None if it has none."""
    if not isinstance(schema, dict):
        told = f"{show_value(schema)} is not a schema, so the tool takes any arguments"
        return None if is_typeddict(schema) else ({}, told)
    kind = schema.get("type")
    if "properties" in schema and isinstance(kind, list) and "object" in kind:
        return {**schema, "type": "object"}, f'its "type" is {show_value(kind)} and counts as "object"'
    has_mistake = "properties" in schema and isinstance(kind, str)  # it is a JSON schema
    if has_mistake or not all(isinstance(name, str) for name in schema):
        return None
    return _read_parameters(schema)


def _read_parameters(schema: dict[str, Any]) -> tuple[Any, str] | None:
    odd = [name for name, given in schema.items() if not _is_documented(name, given)]
    if not odd:
        return None
    told = f"{odd[0]!r} is {show_value(schema[odd[0]])}, which is not a type"
    if all(isinstance(given, dict) for given in schema.values()):
        properties = {
            name: given if _SAYS_ITS_TYPE & given.keys() else {"type": "string", **given}
            for name, given in schema.items()
        }
        form = {"type": "object", "properties": properties, "required": list(properties)}
        return form, f"{told}, and counts as the property of a JSON schema"
    read = {name: _read_type(given) if name in odd else given for name, given in schema.items()}
    return read, f"{told}, and counts as {getattr(read[odd[0]], '__name__', 'str')}"


def _is_documented(name: str, given: Any) -> bool:
    try:
        from_official({name: given})
    except DefinitionError:
        return False
    return not isinstance(given, str | int | float | list | tuple | dict | None)


def _read_type(given: Any) -> Any:
    """The type that a value says: by its name, by a property of a JSON schema, or else a string."""
    if isinstance(given, dict):
        kind = _TYPES.get(str(given.get("type")), str)
        about = given.get("description")
        return Annotated[kind, about] if isinstance(about, str) else kind
    if isinstance(given, str):
        return _TYPES.get(given.lower()) or Annotated[str, given]
    return str
