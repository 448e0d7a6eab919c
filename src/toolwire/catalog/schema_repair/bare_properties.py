"""Properties written where the schema should be: `{"city": {"type": "string", "required": true}}`.

Owns the rule that tells such a table of properties from a schema. A property may have any name, those of the
keywords of JSON Schema included (`items`, `type`, `properties`), so values decide, never words alone.
"""

from collections.abc import Callable
from typing import Any, Final

from toolwire.catalog.schema_repair.keywords import Note, flag, kind_of


def wrap_bare_properties(schema: dict[str, Any], note: Note) -> dict[str, Any]:
    """Put properties that stand where the schema should be into an object schema; return a schema as it is.

    Each value is judged by its shape:

    - it *fits its keyword* when the name is a keyword and the value is what that keyword takes: text for `type`,
      a list for `enum`, a table of schemas for `properties`;
    - it *describes a property* when it is an object with at least one keyword of its own that fits and is no
      object: `{"type": "string"}`, `{"required": true}`, `{"description": "..."}`.

    The schema is bare properties when some value can only be a property, and nothing in it can only be a keyword,
    but for what may stand beside bare properties (`"type": "object"`, `description`, a list of `required` names,
    `$defs`). Where all values could be either (`{"additionalProperties": {"type": "string"}}`), it is a schema,
    unless one of them says `required: true` or `false`, as only a property does. Keywords about arrays (`items`)
    are always names here: arguments are an object.
    """
    names = {name for name, value in schema.items() if _describes_property(value)}
    keywords = {name for name, value in schema.items() if _fits_keyword(name, value)}
    beside = {name for name in keywords - names if _may_stand_beside(name, schema[name])}
    if keywords - names - beside:
        return schema
    if beside:  # then a name that begins with x- is an extension of it, whatever it holds
        beside |= {name for name in schema if name.startswith("x-")}
    names -= beside
    if not names - keywords and not any(flag(schema[name].get("required")) is not None for name in names):
        return schema
    note("", "it was only the properties, and is now an object that has them")
    around = {name: value for name, value in schema.items() if name in beside}
    inside = {name: value for name, value in schema.items() if name not in beside}
    return {**around, "type": "object", "properties": inside}


def _describes_property(value: Any) -> bool:
    return isinstance(value, dict) and any(
        not isinstance(each, dict) and _fits_keyword(name, each, in_property=True)
        for name, each in value.items()
    )


def _may_stand_beside(name: str, value: Any) -> bool:
    return kind_of(value) == "object" if name == "type" else name in _BESIDE


def _fits_keyword(name: str, value: Any, *, in_property: bool = False) -> bool:
    """True if the value is what JSON Schema, or OpenAPI, has under this name."""
    if name == "required" and in_property:
        return flag(value) is not None or isinstance(value, list)
    if name in _ABOUT_ARRAYS and not in_property:
        return not isinstance(value, dict)
    fits = _SHAPES.get(name)
    return fits is not None and fits(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_list(value: Any) -> bool:
    return isinstance(value, (str, list))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, str)) and not isinstance(value, bool)


def _is_flag(value: Any) -> bool:
    return flag(value) is not None


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_names(value: Any) -> bool:
    """True for a list of names, or another way to write `required` that is not a property."""
    return isinstance(value, (list, str, bool)) or (
        isinstance(value, dict) and all(isinstance(each, bool) for each in value.values())
    )


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool, str))


def _is_table(value: Any) -> bool:
    """True for schemas by name: all objects or booleans, or all words such as `"string"`."""
    if not isinstance(value, dict):
        return isinstance(value, list)  # of properties with a `name` each
    inner = list(value.values())
    return all(each is None or isinstance(each, (dict, bool)) for each in inner) or all(
        kind_of(each) for each in inner
    )


def _is_dependencies(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, (dict, bool, list)) for each in value.values())


def _is_anything(_: Any) -> bool:
    return True


_ABOUT_ARRAYS: Final = {
    *("items", "additionalItems", "unevaluatedItems", "contains", "prefixItems", "uniqueItems"),
    *("minItems", "maxItems", "minContains", "maxContains"),
}
_BESIDE: Final = {
    *("$schema", "$id", "id", "$comment", "title", "description", "required", "additionalProperties"),
    *("$defs", "definitions", "example", "examples", "deprecated", "nullable"),
}
_SHAPES: Final[dict[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(
        (
            *("$schema", "$id", "id", "$ref", "$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"),
            *("$comment", "title", "description", "format", "pattern", "contentEncoding", "contentMediaType"),
        ),
        _is_text,
    ),
    "type": _is_text_or_list,
    **dict.fromkeys(
        (
            *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
            *("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"),
            *("minProperties", "maxProperties"),
        ),
        _is_number,
    ),
    **dict.fromkeys(
        ("uniqueItems", "deprecated", "readOnly", "writeOnly", "nullable", "$recursiveAnchor"), _is_flag
    ),
    **dict.fromkeys(("enum", "examples", "allOf", "anyOf", "oneOf", "prefixItems"), _is_list),
    "required": _is_names,
    **dict.fromkeys(
        (
            *("items", "additionalItems", "unevaluatedItems", "contains", "contentSchema"),
            *("additionalProperties", "unevaluatedProperties", "propertyNames", "not", "if", "then", "else"),
        ),
        _is_schema,
    ),
    **dict.fromkeys(
        (
            *("properties", "patternProperties", "$defs", "definitions"),
            *("dependentSchemas", "$vocabulary"),
        ),
        _is_table,
    ),
    **dict.fromkeys(("dependencies", "dependentRequired"), _is_dependencies),
    **dict.fromkeys(("default", "const", "example"), _is_anything),
}
