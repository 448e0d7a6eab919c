"""Walks through a schema and mends a copy of it, from the outside in.

Owns what carries the structure: types, properties, the schemas inside schemas, and the ways of older drafts. Single
keywords are mended in `keywords`. The depth is bounded before it starts.
"""

from typing import Any, Final

from toolwire._support.schema_structure import IN_PLACE, LISTS, ONE, REFERENCES, TABLES
from toolwire.catalog.schema_repair import keywords as _keywords
from toolwire.catalog.schema_repair.bounds import Unrepairable
from toolwire.catalog.schema_repair.keywords import Note, flag, kind_of, listed_names
from toolwire.tools.schema.arguments import clip

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
# Schemas that look at a value beside another one: what they leave out, that one may say.
_BESIDE: Final = {*IN_PLACE, "$defs", "definitions"}
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False}


def mend(schema: Any, note: Note) -> Any:
    """Return a copy of a schema without the usual mistakes. Calls `note` for each."""
    return _Mender(note).schema(schema, "")


def under(where: str, step: object) -> str:
    """Return the place of a property, for a note."""
    return f"{where}.{step}" if where else str(step)


class _Mender:
    """Walks a schema and mends a copy of it."""

    def __init__(self, note: Note) -> None:
        self._note = note

    def schema(self, given: Any, where: str, beside: bool = False) -> Any:
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
        for keyword_mend in _keywords.ALL:
            keyword_mend(node, where, self._note)
        if not beside:
            _keywords.required_of_unknown(node, where, self._note)
        _keywords.nullable(node, where, self._note)
        return node

    def _from_word(self, word: str, where: str) -> Any:
        kind = kind_of(word)
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
            if isinstance(each, dict) and (wants := flag(each.get("required"))) is not None:
                table[name] = {key: value for key, value in each.items() if key != "required"}
                wanted += [name] if wants else []
                self._note(under(where, name), "`required` was moved up to the object's list")
        if wanted:
            node["required"] = [*listed_names(node.get("required")), *wanted]

    def _type(self, node: dict[str, Any], where: str) -> None:
        if "type" not in node:
            return
        given = node["type"]
        listed = given if isinstance(given, list) else [given]
        kinds = [kind_of(each) for each in listed]
        if kinds and all(kinds) and kinds == listed and len(set(kinds)) == len(kinds):
            return
        if kinds and all(kinds):
            kinds = list(dict.fromkeys(kinds))
            node["type"] = kinds[0] if len(kinds) == 1 else kinds
            self._note(where, f"the type is now {' or '.join(map(str, kinds))}")
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
                name: self.schema(each, under(where, name), keyword in _BESIDE)
                for name, each in node[keyword].items()
            }
        for listing in (each for each in LISTS if each in node):
            several = [node[listing]] if isinstance(node[listing], dict) else node[listing]
            if not isinstance(several, list) or not several:
                self._drop(node, listing, where)
                continue
            node[listing] = [self.schema(each, where, listing in _BESIDE) for each in several]
        for single in (each for each in ONE if each in node):
            if node[single] is None:
                self._drop(node, single, where)
                continue
            inner = f"{where}[]" if single == "items" else where
            node[single] = self.schema(node[single], inner, single in _BESIDE)

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
        if "array" in _keywords.kinds(node) and not ({"items", "prefixItems"} & node.keys()):
            node["items"] = {}
            self._note(where, "`items` was missing: anything is taken")
