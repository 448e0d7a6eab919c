"""Repairs JSON schemas as APIs write them, so that tools can use them.

Owns the order of the repairs and the notes on them. `repair_schema` returns an object schema of draft 2020-12 that
compiles offline and refers to nothing outside itself, or raises with the reason. It never changes its argument.
"""

from typing import Any, Final

from toolwire._protocol.json_codec import loads
from toolwire._support.schema_structure import LISTS, ONE, REFERENCES, TABLES
from toolwire.catalog.hidden_text import find_hidden
from toolwire.catalog.schema_repair.bare_properties import wrap_bare_properties
from toolwire.catalog.schema_repair.bounds import Unrepairable, check_work, measure
from toolwire.catalog.schema_repair.top_level import to_object
from toolwire.catalog.schema_repair.walk import mend, under
from toolwire.catalog.values import tidy
from toolwire.tools.schema.arguments import DefinitionError, clip
from toolwire.tools.schema.official import from_json_schema

__all__ = ["Unrepairable", "repair_schema"]

_EMPTY: Final = {"type": "object", "properties": {}}
# Keywords that hold other schemas. A key of `patternProperties` may be no valid pattern: that keyword is dropped.
_STRUCTURE: Final = {*TABLES, *LISTS, *ONE} - {"patternProperties"}
_MOST_DROPPED: Final = 20
_MOST_PASSES: Final = 5  # a repair may make another one necessary: a property is dropped that was required
_MOST_NOTES: Final = 40


def repair_schema(schema: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a repaired copy of a schema, and the repairs in sentences. Raises `Unrepairable` with the reason."""
    notes = _Notes()
    measure(schema)
    if isinstance(schema, str) and schema.strip():
        schema = _parse(schema)
        notes.add("", "it was text, and is read as JSON")
        measure(schema)
    if schema is None or schema is True or schema in ("", [], {}) or not (schema or schema is False):
        if schema != {}:
            notes.add("", "there was none, and it is an object without properties")
        return dict(_EMPTY, properties={}), notes.lines()
    if not isinstance(schema, dict):
        raise Unrepairable(f"the schema must be an object, got {type(schema).__name__}")
    whole = wrap_bare_properties(schema, notes.add)
    for _ in range(_MOST_PASSES):
        before = notes.count
        whole = to_object(mend(whole, notes.add), notes.add)
        _refuse_hidden(whole)
        check_work(whole)
        whole = _drop_until_valid(whole, notes)
        measure(whole)  # what was added may have made it larger
        if notes.count == before:
            break
    return whole, notes.lines()


def _refuse_hidden(schema: Any) -> None:
    """Reject invisible characters in what is left: names, constants, all values of an enum."""
    if (found := find_hidden(schema)) is not None:
        raise Unrepairable(f"the schema has invisible characters, in {clip(found, 60)!a}")


class _Notes:
    """The notes on repairs, each with its place in the schema."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def count(self) -> int:
        return len(self._lines)

    def add(self, where: str, what: str) -> None:
        self._lines.append(f"{clip(tidy(where), 100) or 'the schema'}: {what}")

    def lines(self) -> tuple[str, ...]:
        lines = list(dict.fromkeys(self._lines))
        more = len(lines) - _MOST_NOTES
        return (*lines[:_MOST_NOTES], f"... and {more} more repairs") if more > 0 else tuple(lines)


def _parse(text: str) -> Any:
    try:
        return loads(text.encode())
    except ValueError as error:
        raise Unrepairable("the schema is text that is not JSON") from error


def _drop_until_valid(schema: dict[str, Any], notes: _Notes) -> dict[str, Any]:
    """Drop keywords with invalid values until the schema compiles, and return it."""
    for _ in range(_MOST_DROPPED):
        try:
            return from_json_schema(schema).json_schema
        except DefinitionError as error:
            path = getattr(error.__cause__, "instance_path", None)
            if not path or not _drop(schema, path, notes):
                raise Unrepairable(str(error)) from error
    raise Unrepairable(f"more than {_MOST_DROPPED} keywords of the schema make no sense")


def _drop(schema: Any, path: list[str | int], notes: _Notes) -> bool:
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
    except (LookupError, TypeError):  # the validator leaves steps without a name out of its paths
        return False
    if owner is None or keyword in _STRUCTURE or keyword in REFERENCES:
        return False
    del owner[keyword]
    notes.add(where, f"`{clip(tidy(keyword), 40)}` made no sense and was dropped")
    return True
