"""Repairs JSON schemas as APIs write them, so that tools can use them.

Owns the order of the repairs and the notes on them. `repair_schema` returns an object schema of draft 2020-12 that
compiles offline and refers to nothing outside itself, or raises with the reason. It never changes its argument.

First, a bare table of properties in place of a schema is recognized: `{"city": {"type": "string", "required":
true}}`. A property may have any name, also that of a JSON Schema keyword (`items`, `type`, `properties`), so the
values decide, never the names alone. Then the nodes of the schema are repaired (`nodes`). Finally its top level
becomes one object: if one schema is not an object, the CLI drops all tools of the server, and the model's API
rejects the whole request for an `anyOf`, `oneOf`, `allOf` or an oddly named property at the top level.
"""

import copy
import re
from collections.abc import Callable
from typing import Any, Final

from toolwire._protocol.json_codec import loads
from toolwire._support.schema_structure import LISTS, ONE, REFERENCES, TABLES, resolve
from toolwire.catalog.hidden_text import find_hidden
from toolwire.catalog.schema_repair.bounds import Unrepairable, check_work, measure
from toolwire.catalog.schema_repair.nodes import (
    NUMBERS,
    WHOLE,
    Note,
    drop_unknown_required,
    find_kind,
    parse_flag,
    repair_nodes,
    under,
)
from toolwire.catalog.values import tidy
from toolwire.tools.schema.arguments import DefinitionError, clip
from toolwire.tools.schema.json_schema import from_json_schema

# Keywords with nested schemas, which are not dropped. `patternProperties` may be: its keys may be invalid patterns.
_STRUCTURE: Final = {*TABLES, *LISTS, *ONE} - {"patternProperties"}
_MOST_DROPPED: Final = 20
_MOST_PASSES: Final = 5  # a repair may make another one necessary: a dropped property may be in `required`
_MOST_NOTES: Final = 40
_KEY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}", re.ASCII)
_LONGEST_CHAIN: Final = 10
_FOLDED: Final = ("$ref", "allOf", "anyOf", "oneOf")


def repair_schema(schema: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a repaired copy of a schema, and notes on the repairs. Raises `Unrepairable` with the reason."""
    notes: list[str] = []

    def note(where: str, what: str) -> None:
        notes.append(f"{clip(tidy(where), 100) or 'the schema'}: {what}")

    measure(schema)
    if isinstance(schema, str) and schema.strip():
        schema = _parse(schema)
        note("", "it was text and was parsed as JSON")
        measure(schema)
    if schema is None or schema is True or schema in ("", [], {}) or not (schema or schema is False):
        if schema != {}:
            note("", "it was missing: an object without properties is used")
        return {"type": "object", "properties": {}}, tuple(notes)
    if not isinstance(schema, dict):
        raise Unrepairable(f"the schema must be an object, got {type(schema).__name__}")
    whole = wrap_bare_properties(schema, note)
    for _ in range(_MOST_PASSES):
        before = len(notes)
        whole = to_object(repair_nodes(whole, note), note)
        _refuse_hidden(whole)
        check_work(whole)
        whole = _compile(whole, note)
        measure(whole)  # repairs may have made it larger
        if len(notes) == before:
            break
    lines = list(dict.fromkeys(notes))
    more = len(lines) - _MOST_NOTES
    return whole, (*lines[:_MOST_NOTES], f"... and {more} more repairs") if more > 0 else tuple(lines)


def _refuse_hidden(schema: Any) -> None:
    """Reject invisible characters in the parts that cannot be dropped: names, constants, all values of an enum."""
    if (found := find_hidden(schema)) is not None:
        raise Unrepairable(f"the schema has invisible characters in {clip(found, 60)!a}")


def _parse(text: str) -> Any:
    try:
        return loads(text.encode())
    except ValueError as error:
        raise Unrepairable("the schema is text that is not JSON") from error


def _compile(schema: dict[str, Any], note: Note) -> dict[str, Any]:
    """Return the schema as it compiles. Keywords are dropped in a copy: parts of it belong to the caller."""
    try:
        return from_json_schema(schema).json_schema
    except DefinitionError:
        return drop_invalid(copy.deepcopy(schema), note)


def drop_invalid(schema: dict[str, Any], note: Note) -> dict[str, Any]:
    """Drop keywords with invalid values, in place, until the schema compiles. `Unrepairable` if it never does.

    Returns the schema as it was compiled.
    """
    for _ in range(_MOST_DROPPED):
        try:
            return from_json_schema(schema).json_schema
        except DefinitionError as error:
            path = getattr(error.__cause__, "instance_path", None)
            if not path or not _drop(schema, path, note):
                raise Unrepairable(str(error)) from error
    raise Unrepairable(f"more than {_MOST_DROPPED} keywords of the schema are invalid")


def _drop(schema: Any, path: list[str | int], note: Note) -> bool:
    """Drop the keyword that an error is about. False if it holds other schemas or is a reference."""
    owner: Any = None
    keyword, steps, where = "", list(path), ""
    try:
        while steps and isinstance(schema, dict):
            owner, keyword = schema, str(steps.pop(0))
            schema = schema[keyword]
            if keyword not in _STRUCTURE:
                break
            if keyword not in ONE and steps:
                step = steps.pop(0)
                where = under(where, step) if keyword == "properties" else where
                schema = schema[step]
    except (LookupError, TypeError):  # the validator omits steps without a name from its paths
        return False
    if owner is None or keyword in _STRUCTURE or keyword in REFERENCES:
        return False
    del owner[keyword]
    note(where, f"`{clip(tidy(keyword), 40)}` was invalid and was dropped")
    return True


def wrap_bare_properties(schema: dict[str, Any], note: Note) -> dict[str, Any]:
    """Wrap a bare table of properties in an object schema; return any other schema unchanged.

    Each value is judged by its shape:

    - it *fits its keyword* if the name is a keyword and the value has the type of that keyword: text for `type`,
      a list for `enum`, an object of schemas for `properties`;
    - it *describes a property* if it is an object with at least one keyword that fits and whose value is not an
      object: `{"type": "string"}`, `{"required": true}`, `{"description": "..."}`.

    The schema is a bare table of properties if some value can only be a property, and nothing in it can only be a
    keyword, except those that may appear beside bare properties (`"type": "object"`, `description`, a list of
    `required` names, `$defs`). If all values could be either (`{"additionalProperties": {"type": "string"}}`), it
    is a schema, unless one of them has `required: true` or `false`, as only a property has. Keywords about arrays
    (`items`) are always names here, because arguments are an object.
    """
    names = {name for name, value in schema.items() if _describes_property(value)}
    keywords = {name for name, value in schema.items() if _fits_keyword(name, value)}
    beside = {name for name in keywords - names if _may_stand_beside(name, schema[name])}
    if keywords - names - beside:
        return schema
    if beside:  # then a name that begins with x- is an extension, whatever its value
        beside |= {name for name in schema if name.startswith("x-")}
    names -= beside
    if not names - keywords and not any(_is_flag(schema[name].get("required")) for name in names):
        return schema
    note("", "it had only the properties and was wrapped in an object schema")
    around = {name: value for name, value in schema.items() if name in beside}
    inside = {name: value for name, value in schema.items() if name not in beside}
    return {**around, "type": "object", "properties": inside}


def _describes_property(value: Any) -> bool:
    return isinstance(value, dict) and any(
        not isinstance(each, dict) and _fits_keyword(name, each, in_property=True)
        for name, each in value.items()
    )


def _may_stand_beside(name: str, value: Any) -> bool:
    return find_kind(value) == "object" if name == "type" else name in _BESIDE


def _fits_keyword(name: str, value: Any, *, in_property: bool = False) -> bool:
    """True if the name is a keyword of JSON Schema or OpenAPI, and the value has the right type for it."""
    if name == "required" and in_property:
        return _is_flag(value) or isinstance(value, list)
    if name in _ABOUT_ARRAYS and not in_property:
        return not isinstance(value, dict)
    fits = _SHAPES.get(name)
    return fits is not None and fits(value)


def _is(*kinds: type) -> Callable[[Any], bool]:
    """Return a check that a value has one of these types."""
    return lambda value: isinstance(value, kinds)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, str)) and not isinstance(value, bool)


def _is_flag(value: Any) -> bool:
    return parse_flag(value) is not None


def _is_names(value: Any) -> bool:
    """True for a list of names, or another form of `required` that does not describe a property."""
    return isinstance(value, (list, str, bool)) or (
        isinstance(value, dict) and all(isinstance(each, bool) for each in value.values())
    )


def _is_table(value: Any) -> bool:
    """True for schemas by name: all objects or booleans, or all type names such as `"string"`."""
    if not isinstance(value, dict):
        return isinstance(value, list)  # of properties, each with a `name`
    inner = list(value.values())
    return all(each is None or isinstance(each, (dict, bool)) for each in inner) or all(
        find_kind(each) for each in inner
    )


def _is_dependencies(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, (dict, bool, list)) for each in value.values())


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
        _is(str),
    ),
    "type": _is(str, list),
    **dict.fromkeys((*NUMBERS, *WHOLE, "minContains", "maxContains"), _is_number),
    **dict.fromkeys(
        ("uniqueItems", "deprecated", "readOnly", "writeOnly", "nullable", "$recursiveAnchor"), _is_flag
    ),
    **dict.fromkeys(("enum", "examples", "allOf", "anyOf", "oneOf", "prefixItems"), _is(list)),
    "required": _is_names,
    **dict.fromkeys(ONE, _is(dict, bool, str)),
    **dict.fromkeys((*TABLES, "$vocabulary"), _is_table),
    **dict.fromkeys(("dependencies", "dependentRequired"), _is_dependencies),
    **dict.fromkeys(("default", "const", "example"), _is(object)),
}


def to_object(schema: Any, note: Note) -> dict[str, Any]:
    """Convert a repaired schema to one object. May change its argument; raises `Unrepairable` if that fails."""
    if not isinstance(schema, dict):
        raise Unrepairable("the schema accepts no value at all")
    root = schema
    top = dict(schema)
    for keyword in _FOLDED:
        if keyword in top:
            branches = top.pop(keyword)
            _fold(top, branches if isinstance(branches, list) else [{keyword: branches}], keyword, root, note)
    top.pop("$id", None)
    if isinstance(top.get("id"), str):
        del top["id"]
    kind = top.get("type", "object")
    if kind != "object":
        if not (isinstance(kind, list) and "object" in kind):
            raise Unrepairable(f"the schema has the type {kind}, but arguments are an object")
        note("", "the type was changed to object alone")
    top["type"] = "object"
    top.setdefault("properties", {})
    for keyword in ("default", "enum", "const"):
        if keyword in top:
            del top[keyword]
            note("", f"`{keyword}` at the top level was dropped")
    drop_unknown_required(top, "", note)
    _drop_illegal_names(top, note)
    return {"type": top.pop("type"), **top}


def _fold(top: dict[str, Any], branches: list[Any], keyword: str, root: dict[str, Any], note: Note) -> None:
    """Merge the properties of branches into the object itself."""
    every = keyword in ("$ref", "allOf")
    found = [_dereference(each, root) for each in branches]
    objects = [each for each in found if each is not None and _is_object(each)]
    if not objects or (every and len(objects) < len(found)):
        raise Unrepairable(f"`{keyword}` at the top level of the schema does not describe an object")
    table: dict[str, Any] = dict(top.get("properties") or {})
    for branch in objects:
        for name, each in branch.get("properties", {}).items():
            if name not in table:
                table[name] = each
            elif table[name] != each:
                table[name] = _combine(table[name], each, "allOf" if every else "anyOf")
        if every or len(objects) == 1:
            for extra, value in branch.items():
                if extra not in ("properties", "required", "type", *_FOLDED):
                    top.setdefault(extra, value)
    lists = [branch.get("required", []) for branch in objects]
    needed = [
        name
        for name in dict.fromkeys(name for each in lists for name in each if isinstance(name, str))
        if every or all(name in each for each in lists)
    ]
    top["properties"] = table
    if wanted := list(dict.fromkeys([*top.get("required", []), *needed])):
        top["required"] = wanted
    note("", f"`{keyword}` at the top level was merged into one object")


def _combine(one: Any, other: Any, keyword: str) -> dict[str, Any]:
    """Combine two schemas of one property."""
    if isinstance(one, dict) and one.keys() == {keyword}:
        return one if other in one[keyword] else {keyword: [*one[keyword], other]}
    return {keyword: [one, other]}


def _dereference(branch: Any, root: dict[str, Any]) -> dict[str, Any] | None:
    """Return a branch, or the target of its reference; None if it is not an object."""
    for _ in range(_LONGEST_CHAIN):
        if not isinstance(branch, dict):
            return None
        if not isinstance(branch.get("$ref"), str):
            return branch
        branch = resolve(branch["$ref"], root)
    return None


def _is_object(branch: dict[str, Any]) -> bool:
    # A reference may lead to a place that is not a schema, and so was not repaired.
    sound = isinstance(branch.get("properties", {}), dict) and isinstance(branch.get("required", []), list)
    return (
        sound and branch.get("type", "object") == "object" and not {"allOf", "anyOf", "oneOf"} & branch.keys()
    )


def _drop_illegal_names(top: dict[str, Any], note: Note) -> None:
    """Drop properties with names that the model's API rejects. `Unrepairable` if one of them is required."""
    for name in [name for name in top["properties"] if not _KEY.fullmatch(name)]:
        if name in top.get("required", []):
            raise Unrepairable(
                f"the required property {clip(name)!r} has a name that the model's API rejects"
            )
        del top["properties"][name]
        note(name, "the property was dropped, because the model's API rejects its name")
