"""Mends a copy of a schema, from the outside in.

Owns what carries the structure (types, properties, the schemas inside schemas, the ways of older drafts), and one
function for each single keyword: it takes a node that it may change (it is a copy), where that is, and a function
that hears of a repair. The depth is bounded before it starts.
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
# Schemas that look at a value beside another one: what they leave out, that one may say.
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
# What these say, the tool cannot do without; and schemas inside are mended for themselves.
_NEVER_DROPPED: Final = {"const", "required", "dependentRequired", *REFERENCES, *TABLES, *LISTS, *ONE}
WHOLE: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
# Where a name may be defined although `properties` does not have it.
_ELSEWHERE: Final = {*IN_PLACE, *REFERENCES, *("patternProperties", "unevaluatedProperties")}


def find_kind(word: Any) -> str | None:
    """Return the JSON type that a word means."""
    if not isinstance(word, str):
        return None
    plain = word.strip().lower()
    return plain if plain in TYPES else _ALIASES.get(plain)


def get_kinds(node: dict[str, Any]) -> tuple[str, ...]:
    """Return the types that a mended node allows; none if it does not say."""
    given = node.get("type")
    return tuple(given) if isinstance(given, list) else (given,) if isinstance(given, str) else ()


def parse_flag(value: Any) -> bool | None:
    """Read a boolean, or the text of one; None for anything else."""
    if isinstance(value, bool):
        return value
    return _WORDS.get(value.strip().lower()) if isinstance(value, str) else None


def parse_required(required: Any) -> list[str]:
    """Return the names that `required` means, in any of the ways that it is written."""
    if isinstance(required, str):
        return [] if parse_flag(required) is not None else [required]
    if isinstance(required, dict):
        return [name for name, wanted in required.items() if wanted is True]
    return [each for each in required if isinstance(each, str)] if isinstance(required, list) else []


def mend_numbers(node: dict[str, Any], where: str, note: Note) -> None:
    """Turn limits that are text into numbers. Other text is dropped when the schema is compiled."""
    for keyword in (*WHOLE, *NUMBERS):
        value = node.get(keyword)
        if isinstance(value, (str, float)):
            can, number = convert(value, ("integer",) if keyword in WHOLE else ("number",))
            if can and number != value:
                node[keyword] = number
                note(where, f"`{keyword}` was text, and is now a number")


def mend_hidden(node: dict[str, Any], where: str, note: Note) -> None:
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


def mend_enum(node: dict[str, Any], where: str, note: Note) -> None:
    """Mend `enum`: different values of the right type, or no `enum`."""
    if "enum" not in node:
        return
    given = node["enum"]
    if not isinstance(given, list) or not given:
        del node["enum"]
        note(where, "`enum` was no list of values and was dropped")
        return
    values = given
    if allowed := get_kinds(node):
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
    if None in unique and (allowed := get_kinds(node)) and "null" not in allowed:
        node["type"] = [*allowed, "null"]
        note(where, "`enum` has null, and so has the type now")


def mend_default(node: dict[str, Any], where: str, note: Note) -> None:
    """Mend `default`: one that the schema accepts, or none. A default of null means that null is accepted."""
    if "default" not in node:
        return
    value = node["default"]
    if value is None and parse_flag(node.get("nullable")) is not False:
        if not _takes_null(node):
            node["nullable"] = True  # `nullable`, which comes later, adds it to what is there
        return
    if allowed := get_kinds(node):
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
        "null" in (get_kinds(node) or ("null",))
        and None in node.get("enum", (None,))
        and node.get("const") is None
        and not any(each in node for each in REFERENCES)
        and all(any(_takes_null(each) for each in branches) for branches in choices)
    )


def mend_required(node: dict[str, Any], where: str, note: Note) -> None:
    """Mend `required`: names, each once, or no `required`."""
    if "required" not in node:
        return
    given = node["required"]
    names = list(dict.fromkeys(parse_required(given)))
    if names == given:
        return
    note(where, "`required` is now a list of names, each once")
    if names:
        node["required"] = names
    else:
        del node["required"]


def drop_unknown_required(node: dict[str, Any], where: str, note: Note) -> None:
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


def mend_nullable(node: dict[str, Any], where: str, note: Note) -> None:
    """Turn OpenAPI's `nullable` into a type. Runs last, since it may wrap the schema."""
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
    note(where, "null is allowed, as `nullable` or the default says")


def mend_texts(node: dict[str, Any], where: str, note: Note) -> None:
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


_KEYWORDS: Final = (mend_texts, mend_hidden, mend_numbers, mend_enum, mend_default, mend_required)


def _types(values: list[Any]) -> list[type]:
    return [type(each) for each in values]


def mend(schema: Any, note: Note) -> Any:
    """Return a copy of a schema without the usual mistakes. Calls `note` for each."""
    return _Mender(note).mend(schema, "")


def under(where: str, step: object) -> str:
    """Return the place of a property, for a note."""
    return f"{where}.{step}" if where else str(step)


class _Mender:
    """Walks a schema and mends a copy of it."""

    def __init__(self, note: Note) -> None:
        self._note = note

    def mend(self, given: Any, where: str, beside: bool = False) -> Any:
        """Mend the value where a schema should be, step by step, each on its own copy."""
        if isinstance(given, str):
            given = self._from_word(given, where)
        if isinstance(given, bool):
            return given
        if not isinstance(given, dict):
            self._note(where, "a value that is not a schema was replaced by a schema for anything")
            return {}
        node = dict(given)
        for mend in (self._modernize, self._properties, self._type):
            mend(node, where)
        for reference in REFERENCES:
            target = node.get(reference)
            if isinstance(target, str) and not target.startswith("#"):
                raise Unrepairable(f"the schema refers to {clip(target)!r}, which is not inside it")
        self._mend_inner(node, where)
        if not beside:
            self._add_implied(node, where)
        for keyword_mend in _KEYWORDS:
            keyword_mend(node, where, self._note)
        if not beside:
            drop_unknown_required(node, where, self._note)
        mend_nullable(node, where, self._note)
        return node

    def _from_word(self, word: str, where: str) -> Any:
        kind = find_kind(word)
        self._note(where, "a word stood for a schema" if kind else "an unknown word stood for a schema")
        return _WORDS.get(word.strip().lower(), {"type": kind} if kind else {})

    def _modernize(self, node: dict[str, Any], where: str) -> None:
        """Translate keywords of older drafts and OpenAPI."""
        if (dialect := node.pop("$schema", None)) is not None and str(dialect).rstrip("#") != _DIALECT:
            self._note(where, "the dialect was changed to draft 2020-12")
        if isinstance(node.get("items"), list):
            node["prefixItems"] = node.pop("items")
            if "additionalItems" in node:
                node["items"] = node.pop("additionalItems")
            self._note(where, "a list of `items` was changed to `prefixItems`")
        for plain, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(node.get(strict), bool):
                if node.pop(strict) and plain in node:
                    node[strict] = node.pop(plain)
                self._note(where, f"`{strict}` was changed from true or false to the limit")
        if isinstance(needs := node.pop("dependencies", None), dict):
            for name, need in needs.items():
                keyword = "dependentRequired" if isinstance(need, list) else "dependentSchemas"
                has = node.get(keyword)
                node[keyword] = {**(has if isinstance(has, dict) else {}), name: need}
            self._note(where, "`dependencies` was split as draft 2020-12 has it")

    def _properties(self, node: dict[str, Any], where: str) -> None:
        if "properties" not in node:
            return
        table = node["properties"]
        if isinstance(table, list) and all(
            isinstance(p, dict) and isinstance(p.get("name"), str) for p in table
        ):
            self._note(where, "`properties` was a list, and is now a table by name")
            table = {p["name"]: {key: value for key, value in p.items() if key != "name"} for p in table}
        elif not isinstance(table, dict):
            self._note(where, "`properties` was not a table, and is empty now")
            table = {}
        node["properties"] = table = dict(table)
        wanted = []
        for name, each in table.items():
            if isinstance(each, dict) and (wants := parse_flag(each.get("required"))) is not None:
                table[name] = {key: value for key, value in each.items() if key != "required"}
                wanted += [name] if wants else []
                self._note(under(where, name), "`required` was moved up to the object's list")
        if wanted:
            node["required"] = [*parse_required(node.get("required")), *wanted]

    def _type(self, node: dict[str, Any], where: str) -> None:
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
            self._note(where, f"the type is now {' or '.join(map(str, known))}")
        else:
            del node["type"]
            self._note(where, "the type is unknown, and anything is taken")

    def _mend_inner(self, node: dict[str, Any], where: str) -> None:
        """Mend every schema inside this one."""
        for keyword in (each for each in TABLES if each in node):
            if not isinstance(node[keyword], dict):
                self._drop(node, keyword, where)
                continue
            node[keyword] = {
                name: self.mend(each, under(where, name), keyword in _BESIDE)
                for name, each in node[keyword].items()
            }
        for listing in (each for each in LISTS if each in node):
            several = [node[listing]] if isinstance(node[listing], dict) else node[listing]
            if not isinstance(several, list) or not several:
                self._drop(node, listing, where)
                continue
            node[listing] = [self.mend(each, where, listing in _BESIDE) for each in several]
        for single in (each for each in ONE if each in node):
            if node[single] is None:
                self._drop(node, single, where)
                continue
            inner = f"{where}[]" if single == "items" else where
            node[single] = self.mend(node[single], inner, single in _BESIDE)

    def _drop(self, node: dict[str, Any], keyword: str, where: str) -> None:
        del node[keyword]
        self._note(where, f"`{keyword}` made no sense and was dropped")

    def _add_implied(self, node: dict[str, Any], where: str) -> None:
        """Add keywords that are implied: some clients insist on them."""
        # Values that are listed say it all, and may be of other types.
        listed = isinstance(node.get("enum"), list) and node["enum"]
        if "type" not in node and "$ref" not in node and not listed:
            if "properties" in node:
                node["type"] = "object"
                self._note(where, "the type was missing: object")
            elif "items" in node or "prefixItems" in node:
                node["type"] = "array"
                self._note(where, "the type was missing: array")
        if "array" in get_kinds(node) and not ({"items", "prefixItems"} & node.keys()):
            node["items"] = {}
            self._note(where, "`items` was missing: anything is taken")
