"""Schema repair: it returns a valid object schema that needs no further repair, or says why it cannot."""

import copy
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import jsonschema

from fuzz.fuzz_targets.json_mutation import dump, load, mutate_json
from toolwire.catalog.schema_repair.bounds import Unrepairable
from toolwire.catalog.schema_repair.repair import repair_schema
from toolwire.tools.schema.arguments import InvalidArguments
from toolwire.tools.schema.json_schema import from_json_schema

_WORDS: Final = (
    *("type", "properties", "items", "required", "enum", "default", "anyOf", "allOf", "oneOf", "not", "$ref"),
    *("nullable", "description", "title", "minimum", "maximum", "exclusiveMinimum", "multipleOf", "pattern"),
    *("additionalProperties", "$defs", "definitions", "patternProperties", "const", "format", "$schema"),
    *("$id", "id", "examples", "dependencies", "if", "then", "else", "minLength", "maxItems", "$anchor"),
    *("prefixItems", "additionalItems", "dependentRequired", "dependentSchemas", "propertyNames", "contains"),
    *("unevaluatedProperties", "uniqueItems", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "x-extra"),
    *("string", "integer", "number", "boolean", "object", "array", "null", "any", "int", "uuid", "dict"),
    *("#", "#/$defs/a", "#/properties/a", "#/default", "#a", "true", "a", "b", "c", "name", "^[a-z]+$", "(["),
)
_NARROWER: Final = (
    *("the missing type", "rejects its name", "merged into one object"),
    *("only the properties", "moved up to the object", "the dialect was changed"),
)
"""Repairs that take less than the schema did, on purpose."""


def check(data: bytes) -> None:
    """Check the repair of one schema."""
    try:
        schema = load(data)
    except ValueError:
        return
    before = copy.deepcopy(schema)
    result, notes = _repair(schema)
    assert repr(schema) == repr(before), "the schema was changed"
    if result is None:
        return
    assert result["type"] == "object"
    assert isinstance(result["properties"], dict)
    assert not {"anyOf", "oneOf", "allOf", "$ref"} & result.keys()
    assert all(isinstance(note, str) and 0 < len(note) < 400 for note in notes)
    _check_valid(result)
    again, more = repair_schema(result)
    assert (again, more) == (result, ()), f"a repaired schema was repaired again: {more}"
    _check_samples(schema, result, notes)


def _repair(schema: Any) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    reason = ""
    try:
        return repair_schema(schema)
    except Unrepairable as error:
        reason = str(error)
    assert 0 < len(reason) < 2_000, "there is no reason, or it quotes its schema in full"
    return None, ()


def _check_valid(result: dict[str, Any]) -> None:
    """Check the schema with two validators: Python's `jsonschema` by its metaschema, ours by compiling it."""
    try:
        jsonschema.Draft202012Validator.check_schema(result)
    except jsonschema.SchemaError as error:
        raise AssertionError(f"not valid JSON Schema: {error.message[:200]}") from None
    from_json_schema(result)


def _check_samples(schema: Any, result: dict[str, Any], notes: tuple[str, ...]) -> None:
    """Check that samples which the schema accepted are accepted by the repaired one."""
    if not isinstance(schema, dict) or any(word in note for note in notes for word in _NARROWER):
        return
    try:
        sound = from_json_schema(copy.deepcopy(schema))
    except Exception:  # noqa: BLE001 - it needed repair, so nobody knows what it accepted
        return
    mended = from_json_schema(result)
    for sample in _samples(schema):
        try:
            sound.validate(copy.deepcopy(sample))
        except InvalidArguments:
            continue
        try:
            mended.validate(copy.deepcopy(sample))
        except InvalidArguments as error:
            raise AssertionError(f"{sample!r} was valid, and is not any more: {error} ({notes})") from None


def _samples(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield objects that are likely to be valid, made of values that occur in the schema."""
    values: list[Any] = [None, True, 0, 7, 0.5, "", "a", [], {}, {"a": 7}, ["a"]]
    values += [each for each in _mentioned(schema) if len(json.dumps(each)) < 200][:20]
    table = schema.get("properties")
    names = list(table)[:4] if isinstance(table, dict) else []
    yield {}
    for value in values:
        if isinstance(value, dict):
            yield value
        yield dict.fromkeys([*names, "other"], value)
        for name in names:
            yield {name: value}
        yield dict.fromkeys(names, value)


def _mentioned(schema: Any) -> Iterator[Any]:
    stack = [schema]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            for key in ("default", "const"):
                if key in each:
                    yield each[key]
            for key in ("enum", "examples"):
                if isinstance(each.get(key), list):
                    yield from each[key]
            stack.extend(each.values())
        elif isinstance(each, list):
            stack.extend(each)


def run(data: bytes) -> None:
    """Repair, and check nothing."""
    with suppress(Unrepairable):
        repair_schema(load(data))


def grow(data: bytes, size: int) -> bytes:
    """Return a schema with this one for many properties, and one that refers to the first."""
    try:
        schema = load(data)
    except ValueError:
        return b"{}"
    many = {f"p{n}": schema for n in range(size // (len(data) + 10))}
    return dump({"type": "object", "properties": {**many, "r": {"$ref": "#/properties/p0"}}})


def mutate(data: bytes, rng: random.Random) -> bytes | None:
    """Make another schema."""
    return mutate_json(data, rng, _WORDS)
