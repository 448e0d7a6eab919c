"""Mends single keywords of a schema, one function for each.

Each function takes a node that it may change (it is a copy), where that is, and a function that hears of a repair.
"""

from collections.abc import Callable
from typing import Any, Final

from toolwire._protocol.json_codec import dumps
from toolwire._support.schema_structure import IN_PLACE, LISTS, ONE, REFERENCES, TABLES
from toolwire.catalog.hidden_text import has_hidden
from toolwire.catalog.values import TYPES, convert, tidy
from toolwire.tools.schema.arguments import clip

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
# What these say, the tool cannot do without; and schemas inside are mended for themselves.
_NEVER_DROPPED: Final = {"const", "required", "dependentRequired", *REFERENCES, *TABLES, *LISTS, *ONE}
_WHOLE: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
# Where a name may be defined although `properties` does not have it.
_ELSEWHERE: Final = {
    *IN_PLACE,
    *REFERENCES,
    *("patternProperties", "unevaluatedProperties"),
}


def kind_of(word: Any) -> str | None:
    """Return the JSON type that a word means."""
    if not isinstance(word, str):
        return None
    plain = word.strip().lower()
    return plain if plain in TYPES else _ALIASES.get(plain)


def kinds(node: dict[str, Any]) -> tuple[str, ...]:
    """Return the types that a mended node allows; none if it does not say."""
    given = node.get("type")
    return tuple(given) if isinstance(given, list) else (given,) if isinstance(given, str) else ()


def flag(value: Any) -> bool | None:
    """Read a boolean, or the text of one; None for anything else."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else None


def listed_names(required: Any) -> list[str]:
    """Return the names that `required` means, in any of the ways that it is written."""
    if isinstance(required, str):
        return [] if flag(required) is not None else [required]
    if isinstance(required, dict):
        return [name for name, wanted in required.items() if wanted is True]
    return [each for each in required if isinstance(each, str)] if isinstance(required, list) else []


def numbers(node: dict[str, Any], where: str, note: Note) -> None:
    """Turn limits that are text into numbers. Other text is dropped when the schema is compiled."""
    for keyword in (*_WHOLE, *_NUMBERS):
        value = node.get(keyword)
        if isinstance(value, (str, float)):
            can, number = convert(value, ("integer",) if keyword in _WHOLE else ("number",))
            if can and number != value:
                node[keyword] = number
                note(where, f"`{keyword}` was text, and is now a number")


def hidden(node: dict[str, Any], where: str, note: Note) -> None:
    """Drop values with invisible characters, where the tool can do without them.

    Values mean something to the API and are never cleaned: a value of an `enum` goes if others stay, and so do
    defaults, examples, patterns and what is no keyword. Names and constants are left, for whoever refuses them.
    """
    for keyword in [each for each in node if each not in _NEVER_DROPPED and has_hidden([each, node[each]])]:
        if keyword == "enum" and isinstance(node["enum"], list):
            if seen := [each for each in node["enum"] if not has_hidden(each)]:
                node["enum"] = seen
                note(where, "values of `enum` with invisible characters were dropped")
            continue
        del node[keyword]
        note(where, f"`{clip(tidy(keyword), 40)}` had invisible characters and was dropped")


def enum(node: dict[str, Any], where: str, note: Note) -> None:
    """Mend `enum`: different values of the right type, or no `enum`."""
    if "enum" not in node:
        return
    given = node["enum"]
    if not isinstance(given, list) or not given:
        del node["enum"]
        note(where, "`enum` was no list of values and was dropped")
        return
    values = given
    if allowed := kinds(node):
        pairs = [(True, None) if each is None else convert(each, allowed) for each in given]
        if not any(can for can, _ in pairs):
            del node["type"]
            note(where, "no value of `enum` is of the type, and the type was dropped")
        elif (mended := [value for can, value in pairs if can]) != given or _types(mended) != _types(given):
            values = mended
            note(where, "values of `enum` were brought to the type")
    unique = list({dumps(each): each for each in values}.values())
    if len(unique) < len(values):
        note(where, "`enum` had values twice")
    node["enum"] = unique
    if None in unique and (allowed := kinds(node)) and "null" not in allowed:
        node["type"] = [*allowed, "null"]
        note(where, "`enum` has null, and so has the type now")


def default(node: dict[str, Any], where: str, note: Note) -> None:
    """Mend `default`: one that the schema accepts, or none. A default of null means that null is accepted."""
    if "default" not in node:
        return
    value = node["default"]
    if value is None and flag(node.get("nullable")) is not False:
        if not _takes_null(node):
            node["nullable"] = True  # `nullable`, which comes later, adds it to what is there
        return
    if allowed := kinds(node):
        can, made = convert(value, allowed)
        if not can:
            del node["default"]
            note(where, "`default` was of another type and was dropped")
            return
        if type(made) is not type(value) or made != value:
            node["default"] = value = made
            note(where, "`default` was brought to the type")
    choices = node.get("enum")
    if choices and not any(
        each == value and isinstance(each, bool) == isinstance(value, bool) for each in choices
    ):
        del node["default"]
        note(where, "`default` is not in `enum` and was dropped")


def _takes_null(node: Any) -> bool:
    """True if a schema, as far as can be seen, accepts null."""
    if not isinstance(node, dict):
        return node is True
    if any(not _takes_null(each) for each in node.get("allOf", ())):
        return False
    choices = [node[each] for each in ("anyOf", "oneOf") if each in node]
    return (
        "null" in (kinds(node) or ("null",))
        and None in node.get("enum", (None,))
        and node.get("const") is None
        and not any(each in node for each in REFERENCES)
        and all(any(_takes_null(each) for each in branches) for branches in choices)
    )


def required(node: dict[str, Any], where: str, note: Note) -> None:
    """Mend `required`: names, each once, or no `required`."""
    if "required" not in node:
        return
    given = node["required"]
    names = list(dict.fromkeys(listed_names(given)))
    if names == given:
        return
    note(where, "`required` is now a list of names, each once")
    if names:
        node["required"] = names
    else:
        del node["required"]


def required_of_unknown(node: dict[str, Any], where: str, note: Note) -> None:
    """Drop required names that no property has: they cannot be given."""
    table = node.get("properties")
    if "required" not in node or not isinstance(table, dict) or _ELSEWHERE & node.keys():
        return
    names = [name for name in node["required"] if name in table]
    if names == node["required"]:
        return
    note(where, "`required` named properties that there are not")
    node["required"] = names
    if not names:
        del node["required"]


def nullable(node: dict[str, Any], where: str, note: Note) -> None:
    """Turn OpenAPI's `nullable` into a type. Runs last, since it may wrap the schema."""
    wanted = flag(node.pop("nullable", None))
    if not wanted or _takes_null(node):
        return
    wider: dict[str, Any] = {}
    if allowed := kinds(node):
        wider["type"] = list(dict.fromkeys([*allowed, "null"]))
    if "enum" in node and None not in node["enum"]:
        wider["enum"] = [*node["enum"], None]
    if not _takes_null({**node, **wider}):
        beside = ("description", "title", "default", "$defs")
        wider = {"anyOf": [{key: node.pop(key) for key in list(node) if key not in beside}, {"type": "null"}]}
    node.update(wider)
    note(where, "null is allowed, as `nullable` or the default says")


def texts(node: dict[str, Any], where: str, note: Note) -> None:
    """Clean and cut the texts that a model reads."""
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
            note(where, f"`{keyword}` was cleaned of what cannot be seen, or cut")


ALL: Final = (texts, hidden, numbers, enum, default, required)


def _types(values: list[Any]) -> list[type]:
    return [type(each) for each in values]
