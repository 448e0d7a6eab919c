"""Repairs a copy of a schema, node by node from the outside in.

Owns the repairs of the structure (types, properties, nested schemas, keywords of older drafts), and one function
for each other keyword. Such a function gets a node, which is a copy that it may change, the place of the node,
and a callback for the repairs that it makes. The depth of the schema is limited before this runs.
"""

from collections.abc import Callable
from typing import Any, Final

from toolwire._protocol.json_codec import dumps
from toolwire._support.schema_structure import IN_PLACE, LISTS, ONE, REFERENCES, TABLES
from toolwire.catalog.hidden_text import has_hidden
from toolwire.catalog.schema_repair.bounds import Unrepairable
from toolwire.catalog.values import TYPES, convert, tidy
from toolwire.tools.schema.arguments import clip

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
# Keywords whose schemas may be incomplete, because they apply together with the schema that contains them.
_BESIDE: Final = {*IN_PLACE, "$defs", "definitions"}
_WORDS: Final = {"true": True, "false": False}
Note = Callable[[str, str], None]

_ALIASES: Final = {
    **dict.fromkeys(("str", "text", "char", "varchar", "uuid", "url", "uri", "email"), "string"),
    **dict.fromkeys(("date", "datetime", "date-time", "time", "password"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "long", "short"), "integer"),
    **dict.fromkeys(("float", "double", "decimal", "numeric"), "number"),
    "bool": "boolean",
    **dict.fromkeys(("dict", "map", "struct", "json", "hash"), "object"),
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    **dict.fromkeys(("none", "nil"), "null"),
}
# Keywords that a tool cannot do without; and those with nested schemas, which are repaired themselves.
_NEVER_DROPPED: Final = {"const", "required", "dependentRequired", *REFERENCES, *TABLES, *LISTS, *ONE}
WHOLE: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
# Keywords that may define a name that is not in `properties`.
_ELSEWHERE: Final = {*IN_PLACE, *REFERENCES, *("patternProperties", "unevaluatedProperties")}


def find_kind(word: Any) -> str | None:
    """Return the JSON type that a word means; None if it is unknown."""
    if not isinstance(word, str):
        return None
    plain = word.strip().lower()
    return plain if plain in TYPES else _ALIASES.get(plain)


def get_kinds(node: dict[str, Any]) -> tuple[str, ...]:
    """Return the types that a repaired node allows; empty if it has no type."""
    given = node.get("type")
    return tuple(given) if isinstance(given, list) else (given,) if isinstance(given, str) else ()


def parse_flag(value: Any) -> bool | None:
    """Parse a boolean or its text; None for anything else."""
    if isinstance(value, bool):
        return value
    return _WORDS.get(value.strip().lower()) if isinstance(value, str) else None


def parse_required(required: Any) -> list[str]:
    """Return the names in `required`, whatever form it has."""
    if isinstance(required, str):
        return [] if parse_flag(required) is not None else [required]
    if isinstance(required, dict):
        return [name for name, wanted in required.items() if wanted is True]
    return [each for each in required if isinstance(each, str)] if isinstance(required, list) else []


def repair_numbers(node: dict[str, Any], where: str, note: Note) -> None:
    """Convert limits that are text to numbers. Other text is dropped when the schema is compiled."""
    for keyword in (*WHOLE, *NUMBERS):
        value = node.get(keyword)
        if isinstance(value, (str, float)):
            can, number = convert(value, ("integer",) if keyword in WHOLE else ("number",))
            if can and number != value:
                node[keyword] = number
                note(where, f"`{keyword}` was text and was converted to a number")


def repair_hidden(node: dict[str, Any], where: str, note: Note) -> None:
    """Drop values with invisible characters, if the tool can do without them.

    Values have a meaning for the API and are never cleaned. Dropped are values of an `enum` if others remain,
    defaults, examples, patterns and unknown keywords. Names and constants stay: a schema with such ones is
    rejected later.
    """
    for keyword in [each for each in node if each not in _NEVER_DROPPED and has_hidden([each, node[each]])]:
        if keyword == "enum" and isinstance(node["enum"], list):
            if visible := [each for each in node["enum"] if not has_hidden(each)]:
                node["enum"] = visible
                note(where, "values of `enum` with invisible characters were dropped")
            continue
        del node[keyword]
        note(where, f"`{clip(tidy(keyword), 40)}` had invisible characters and was dropped")


def repair_enum(node: dict[str, Any], where: str, note: Note) -> None:
    """Repair `enum`: distinct values of the right type, or no `enum`."""
    if "enum" not in node:
        return
    given = node["enum"]
    if not isinstance(given, list) or not given:
        del node["enum"]
        note(where, "`enum` was not a list of values and was dropped")
        return
    values = given
    if allowed := get_kinds(node):
        pairs = [(True, None) if each is None else convert(each, allowed) for each in given]
        if not any(can for can, _ in pairs):
            del node["type"]
            note(where, "no value of `enum` had the type, so the type was dropped")
        elif (fixed := [value for can, value in pairs if can]) != given or _types(fixed) != _types(given):
            values = fixed
            note(where, "values of `enum` were converted to the type")
    unique = list({dumps(each): each for each in values}.values())
    if len(unique) < len(values):
        note(where, "duplicate values of `enum` were dropped")
    node["enum"] = unique
    if None in unique and (allowed := get_kinds(node)) and "null" not in allowed:
        node["type"] = [*allowed, "null"]
        note(where, "null was added to the type, because `enum` has it")


def repair_default(node: dict[str, Any], where: str, note: Note) -> None:
    """Repair `default`: one that the schema accepts, or none. A default of null means that null is accepted."""
    if "default" not in node:
        return
    value = node["default"]
    if value is None and parse_flag(node.get("nullable")) is not False:
        if not _takes_null(node):
            node["nullable"] = True  # `repair_nullable`, which runs later, adds null
        return
    if allowed := get_kinds(node):
        can, made = convert(value, allowed)
        if not can:
            del node["default"]
            note(where, "`default` had another type and was dropped")
            return
        if type(made) is not type(value) or made != value:
            node["default"] = value = made
            note(where, "`default` was converted to the type")
    choices = node.get("enum")
    if choices and not any(
        each == value and isinstance(each, bool) == isinstance(value, bool) for each in choices
    ):
        del node["default"]
        note(where, "`default` was not in `enum` and was dropped")


def _takes_null(node: Any) -> bool:
    """True if a schema accepts null, as far as can be determined without following references."""
    if not isinstance(node, dict):
        return node is True
    if any(not _takes_null(each) for each in node.get("allOf", ())):
        return False
    choices = [node[each] for each in ("anyOf", "oneOf") if each in node]
    return (
        "null" in (get_kinds(node) or ("null",))
        and None in node.get("enum", (None,))
        and node.get("const") is None
        and not any(each in node for each in REFERENCES)
        and all(any(_takes_null(each) for each in branches) for branches in choices)
    )


def repair_required(node: dict[str, Any], where: str, note: Note) -> None:
    """Repair `required`: a list of distinct names, or no `required`."""
    if "required" not in node:
        return
    names = list(dict.fromkeys(parse_required(node["required"])))
    if names != node["required"]:
        note(where, "`required` was changed to a list of distinct names")
        _set_required(node, names)


def _set_required(node: dict[str, Any], names: list[str]) -> None:
    node["required"] = names
    if not names:
        del node["required"]


def drop_unknown_required(node: dict[str, Any], where: str, note: Note) -> None:
    """Drop required names that are not properties: no caller could pass them."""
    table = node.get("properties")
    if "required" not in node or not isinstance(table, dict) or _ELSEWHERE & node.keys():
        return
    names = [name for name in node["required"] if name in table]
    if names != node["required"]:
        note(where, "names in `required` that are not properties were dropped")
        _set_required(node, names)


def repair_nullable(node: dict[str, Any], where: str, note: Note) -> None:
    """Convert OpenAPI's `nullable` to a type. Runs last, because it may wrap the schema."""
    wanted = parse_flag(node.pop("nullable", None))
    if not wanted or _takes_null(node):
        return
    wider: dict[str, Any] = {}
    if allowed := get_kinds(node):
        wider["type"] = list(dict.fromkeys([*allowed, "null"]))
    if "enum" in node and None not in node["enum"]:
        wider["enum"] = [*node["enum"], None]
    if not _takes_null({**node, **wider}):
        beside = ("description", "title", "default", "$defs")
        wider = {"anyOf": [{key: node.pop(key) for key in list(node) if key not in beside}, {"type": "null"}]}
    node.update(wider)
    note(where, "null was allowed, because of `nullable` or the default")


def repair_texts(node: dict[str, Any], where: str, note: Note) -> None:
    """Clean and shorten the texts that a model reads."""
    for keyword in ("title", "description", "$comment"):
        if keyword not in node:
            continue
        given = node[keyword]
        cleaned = tidy(given)
        if cleaned == given:
            continue
        if cleaned:
            node[keyword] = cleaned
        else:
            del node[keyword]
        if not isinstance(given, str) or cleaned != given.strip():
            note(where, f"`{keyword}` had invisible characters or was too long, and was cleaned")


def _types(values: list[Any]) -> list[type]:
    return [type(each) for each in values]


def under(where: str, step: object) -> str:
    """Return the place of a property, for a note."""
    return f"{where}.{step}" if where else str(step)


def repair_nodes(given: Any, note: Note, where: str = "", beside: bool = False) -> Any:
    """Return a copy of a schema without the usual mistakes. Calls `note` for each repair.

    `where` is its place, and with `beside` it applies together with another schema.
    """
    if isinstance(given, str):
        given = _from_word(given, where, note)
    if isinstance(given, bool):
        return given
    if not isinstance(given, dict):
        note(where, "a value that is not a schema was replaced with a schema that accepts anything")
        return {}
    node = dict(given)
    for repair in (_modernize, _repair_properties, _repair_type):
        repair(node, where, note)
    for reference in REFERENCES:
        target = node.get(reference)
        if isinstance(target, str) and not target.startswith("#"):
            raise Unrepairable(f"the schema refers to {clip(target)!r}, which is outside the schema")
    _repair_inner(node, where, note)
    if not beside:
        _add_implied(node, where, note)
    for repair in (repair_texts, repair_hidden, repair_numbers, repair_enum, repair_default, repair_required):
        repair(node, where, note)
    if not beside:
        drop_unknown_required(node, where, note)
    repair_nullable(node, where, note)
    return node


def _from_word(word: str, where: str, note: Note) -> Any:
    kind = find_kind(word)
    note(where, f"{'a type name' if kind else 'an unknown word'} was replaced with a schema")
    return _WORDS.get(word.strip().lower(), {"type": kind} if kind else {})


def _modernize(node: dict[str, Any], where: str, note: Note) -> None:
    """Translate keywords of older drafts and OpenAPI."""
    if (dialect := node.pop("$schema", None)) is not None and str(dialect).rstrip("#") != _DIALECT:
        note(where, "the dialect was changed to draft 2020-12")
    if isinstance(node.get("items"), list):
        node["prefixItems"] = node.pop("items")
        if "additionalItems" in node:
            node["items"] = node.pop("additionalItems")
        note(where, "a list of `items` was changed to `prefixItems`")
    for plain, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(node.get(strict), bool):
            if node.pop(strict) and plain in node:
                node[strict] = node.pop(plain)
            note(where, f"`{strict}` was changed from true or false to the limit")
    if isinstance(needs := node.pop("dependencies", None), dict):
        for name, need in needs.items():
            keyword = "dependentRequired" if isinstance(need, list) else "dependentSchemas"
            has = node.get(keyword)
            node[keyword] = {**(has if isinstance(has, dict) else {}), name: need}
        note(where, "`dependencies` was split into the keywords of draft 2020-12")


def _repair_properties(node: dict[str, Any], where: str, note: Note) -> None:
    if "properties" not in node:
        return
    table = node["properties"]
    if isinstance(table, list) and all(isinstance(p, dict) and isinstance(p.get("name"), str) for p in table):
        note(where, "`properties` was a list and was changed to an object")
        table = {p["name"]: {key: value for key, value in p.items() if key != "name"} for p in table}
    elif not isinstance(table, dict):
        note(where, "`properties` was not an object and was replaced with an empty one")
        table = {}
    node["properties"] = table = dict(table)
    wanted = []
    for name, each in table.items():
        if isinstance(each, dict) and (wants := parse_flag(each.get("required"))) is not None:
            table[name] = {key: value for key, value in each.items() if key != "required"}
            wanted += [name] if wants else []
            note(under(where, name), "`required` was moved up to the object's list")
    if wanted:
        node["required"] = [*parse_required(node.get("required")), *wanted]


def _repair_type(node: dict[str, Any], where: str, note: Note) -> None:
    if "type" not in node:
        return
    given = node["type"]
    listed = given if isinstance(given, list) else [given]
    known = [find_kind(each) for each in listed]
    if known and all(known) and known == listed and len(set(known)) == len(known):
        return
    if known and all(known):
        known = list(dict.fromkeys(known))
        node["type"] = known[0] if len(known) == 1 else known
        note(where, f"the type was changed to {' or '.join(map(str, known))}")
    else:
        del node["type"]
        note(where, "the type was unknown and was dropped: anything is accepted")


def _repair_inner(node: dict[str, Any], where: str, note: Note) -> None:
    """Repair every schema inside this one."""
    for keyword in [each for each in (*TABLES, *LISTS, *ONE) if each in node]:
        given, beside = node[keyword], keyword in _BESIDE
        if keyword in LISTS and isinstance(given, dict):
            given = [given]
        if keyword in TABLES and isinstance(given, dict):
            node[keyword] = {
                name: repair_nodes(each, note, under(where, name), beside) for name, each in given.items()
            }
        elif keyword in LISTS and isinstance(given, list) and given:
            node[keyword] = [repair_nodes(each, note, where, beside) for each in given]
        elif keyword in ONE and given is not None:
            inner = f"{where}[]" if keyword == "items" else where
            node[keyword] = repair_nodes(given, note, inner, beside)
        else:
            del node[keyword]
            note(where, f"`{keyword}` was invalid and was dropped")


def _add_implied(node: dict[str, Any], where: str, note: Note) -> None:
    """Add keywords that are implied, because some clients require them."""
    # An `enum` is sufficient, and its values may have other types.
    listed = isinstance(node.get("enum"), list) and node["enum"]
    if "type" not in node and "$ref" not in node and not listed:
        if "properties" in node:
            node["type"] = "object"
            note(where, "the missing type object was added")
        elif "items" in node or "prefixItems" in node:
            node["type"] = "array"
            note(where, "the missing type array was added")
    if "array" in get_kinds(node) and not ({"items", "prefixItems"} & node.keys()):
        node["items"] = {}
        note(where, "missing `items` was added: anything is accepted")
