"""Repairs: schemas as APIs write them become valid schemas, or are refused with the reason."""

import contextlib
import copy
import math

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolwire.catalog.schema_repair.bounds import Unrepairable
from toolwire.catalog.schema_repair.repair import repair_schema
from toolwire.tools.schema.json_schema import from_json_schema


def repair(schema):
    """Return the repaired schema and notes. Checks that the input stays, and that the result needs no repair."""
    before = copy.deepcopy(schema)
    result, notes = repair_schema(schema)
    assert schema == before
    assert all(isinstance(note, str) and note for note in notes)
    from_json_schema(result)
    again, more = repair_schema(result)
    assert (again, more) == (result, ())  # a repaired schema needs no repair
    return result, notes


def properties(**given):
    """Return the repaired properties of an object with these properties."""
    return repair({"type": "object", "properties": given})[0]["properties"]


def test_a_sound_schema_stays_as_it_is():
    """A valid schema is not changed, nested or not."""
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where", "minLength": 1},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "days": {"type": "array", "items": {"$ref": "#/$defs/day"}},
            "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        },
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {"day": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    }
    assert repair(schema) == (schema, ())


@pytest.mark.parametrize("nothing", [None, {}, [], "", True])
def test_no_schema_is_an_object_without_properties(nothing):
    """The tool can be called without arguments."""
    assert repair(nothing)[0] == {"type": "object", "properties": {}}


def test_a_boolean_required_moves_up_to_the_list():
    """At every level, it is added to what the list already has."""
    schema, notes = repair(
        {
            "type": "object",
            "required": ["b"],
            "properties": {
                "a": {"type": "string", "required": True},
                "b": {"type": "string", "required": False},
                "c": {"type": "object", "properties": {"d": {"type": "string", "required": "true"}}},
                "e": {"type": "array", "items": {"type": "string", "required": True}},
            },
        }
    )
    assert schema["required"] == ["b", "a"]
    assert schema["properties"]["c"] == {
        "type": "object",
        "properties": {"d": {"type": "string"}},
        "required": ["d"],
    }
    assert schema["properties"]["e"]["items"] == {"type": "string"}
    assert "c.d: `required` was moved up to the object's list" in notes


def test_a_property_called_required_is_a_property():
    """Only the keyword is moved."""
    assert properties(required={"type": "boolean"}) == {"required": {"type": "boolean"}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "integer", "default": "5"}, {"type": "integer", "default": 5}),
        ({"type": "integer", "default": 5.0}, {"type": "integer", "default": 5}),
        ({"type": "number", "default": "0.5"}, {"type": "number", "default": 0.5}),
        ({"type": "boolean", "default": "false"}, {"type": "boolean", "default": False}),
        ({"type": "boolean", "default": 1}, {"type": "boolean", "default": True}),
        ({"type": "string", "default": 5}, {"type": "string", "default": "5"}),
        ({"type": "string", "default": True}, {"type": "string", "default": "true"}),
        ({"type": "string", "nullable": False, "default": None}, {"type": "string"}),
        ({"type": "integer", "default": "many"}, {"type": "integer"}),
        ({"type": "integer", "default": True}, {"type": "integer"}),
        ({"type": "object", "default": "{}"}, {"type": "object", "default": {}}),
        ({"type": "string", "enum": ["a"], "default": "b"}, {"type": "string", "enum": ["a"]}),
        (
            {"type": "integer", "enum": [1, 2], "default": "2"},
            {"type": "integer", "enum": [1, 2], "default": 2},
        ),
        ({"enum": [1, "a"], "default": True}, {"enum": [1, "a"]}),
        ({"default": "kept"}, {"default": "kept"}),
    ],
)
def test_a_default_is_one_that_the_schema_takes(given, expected):
    """It is converted to the type, or dropped if that fails or it is not in the enum."""
    result = properties(a=given)["a"]
    assert result == expected
    assert orjson.dumps(result) == orjson.dumps(expected)


NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "string"}, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "int", "minimum": 1}, {"type": ["integer", "null"], "minimum": 1}),
        (
            {"type": "array", "items": {"type": "object"}},
            {"type": ["array", "null"], "items": {"type": "object"}},
        ),
        ({"enum": ["a"]}, {"enum": ["a", None]}),
        ({"const": "a"}, {"anyOf": [{"const": "a"}, NULL]}),
        ({"$ref": "#"}, {"anyOf": [{"$ref": "#"}, NULL]}),
        ({"anyOf": [{"type": "string"}, NULL]}, {"anyOf": [{"type": "string"}, NULL]}),
        ({"oneOf": [{"type": "string"}]}, {"anyOf": [{"oneOf": [{"type": "string"}]}, NULL]}),
        ({"allOf": [{"type": "string"}]}, {"anyOf": [{"allOf": [{"type": "string"}]}, NULL]}),
        (
            {"type": "string", "anyOf": [{"type": "string"}], "description": "d"},
            {"description": "d", "anyOf": [{"type": "string", "anyOf": [{"type": "string"}]}, NULL]},
        ),
        ({}, {}),
    ],
)
def test_a_default_of_null_says_that_null_is_allowed(given, expected):
    """The default stays, and the property accepts null."""
    schema, _ = repair({"type": "object", "properties": {"a": {**given, "default": None}}})
    assert schema["properties"]["a"] == {**expected, "default": None}
    from_json_schema(schema).validate({"a": None})


def test_an_example_of_null_is_only_a_hint():
    """An example of null changes nothing."""
    for hint in ({"example": None}, {"examples": [None]}):
        assert properties(a={"type": "string", **hint})["a"] == {"type": "string", **hint}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": ["array", "null"]}, {"type": ["array", "null"], "items": {}}),
        ({"type": "array", "items": None}, {"type": "array", "items": {}}),
        ({"items": {"type": "str"}}, {"type": "array", "items": {"type": "string"}}),
        (
            {"type": "array", "items": [{"type": "int"}]},
            {"type": "array", "prefixItems": [{"type": "integer"}]},
        ),
        ({"properties": {"b": None}}, {"type": "object", "properties": {"b": {}}}),
        ({"type": "any"}, {}),
        ({"type": None}, {}),
        ({"type": ["string", "wat"]}, {}),
        ({"type": "String"}, {"type": "string"}),
        ({"type": ["int", "integer"]}, {"type": "integer"}),
        ({"type": {"type": "string"}}, {}),
        ({"type": []}, {}),
        ({"type": [None]}, {}),
        ({"": {"type": None}}, {"": {"type": None}}),
        ({"patternProperties": {"([": {}}}, {}),
        ("string", {"type": "string"}),
        ("list", {"type": "array", "items": {}}),
        ("false", False),
        (7, {}),
        (None, {}),
        (True, True),
    ],
)
def test_types_and_items_that_are_missing_or_unknown(given, expected):
    """Other spellings are understood; an unknown type accepts anything."""
    assert properties(a=given)["a"] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"enum": ["a", "b", "a"]}, {"enum": ["a", "b"]}),
        ({"type": "integer", "enum": ["1", "2"]}, {"type": "integer", "enum": [1, 2]}),
        ({"type": "integer", "enum": ["one", "two"]}, {"enum": ["one", "two"]}),
        ({"type": "string", "enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"enum": []}, {}),
        ({"enum": "a"}, {}),
        ({"enum": [1, True, 1.0]}, {"enum": [1, True, 1.0]}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "string", "nullable": True, "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"type": "string", "nullable": True, "default": None},
            {"type": ["string", "null"], "default": None},
        ),
        ({"nullable": True}, {}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        (
            {"description": "x", "nullable": True, "oneOf": [{"type": "string"}]},
            {"description": "x", "anyOf": [{"oneOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        (
            {"minimum": "5", "maxLength": "7", "minItems": 2.0},
            {"minimum": 5, "maxLength": 7, "minItems": 2.0},
        ),
        ({"minimum": 5, "exclusiveMinimum": True}, {"exclusiveMinimum": 5}),
        ({"maximum": 5, "exclusiveMaximum": False}, {"maximum": 5}),
        ({"examples": "x", "pattern": "([", "multipleOf": -1, "title": 5}, {}),
        ({"additionalProperties": "false"}, {"additionalProperties": False}),
        ({"anyOf": {"type": "int"}}, {"anyOf": [{"type": "integer"}]}),
        ({"allOf": [], "patternProperties": 3}, {}),
        ({"dependencies": {"a": ["b"]}, "dependentRequired": 1}, {"dependentRequired": {"a": ["b"]}}),
        (
            {"dependencies": {"a": ["b"], "c": {"type": "object"}}},
            {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"type": "object"}}},
        ),
    ],
)
def test_single_keywords(given, expected):
    """Keywords of older drafts and OpenAPI, and plain mistakes, are converted or dropped."""
    assert properties(a=given)["a"] == expected


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        (["a", "gone"], ["a"]),
        (["a", "a"], ["a"]),
        ("a", ["a"]),
        ({"a": True, "b": False}, ["a"]),
        (["gone"], None),
        (True, None),
        (None, None),
        ([1, None], None),
    ],
)
def test_required_names_properties_that_there_are(required, expected):
    """Each property is listed once, and only if it exists."""
    schema, notes = repair({"type": "object", "properties": {"a": {}, "b": {}}, "required": required})
    assert schema.get("required") == expected
    assert notes


def test_required_without_any_properties_names_nothing():
    """Nobody could know what to give; an empty list is not a mistake."""
    assert repair({"required": "a"})[0] == {"type": "object", "properties": {}}
    sound = {"type": "object", "properties": {}, "required": []}
    assert repair(sound) == (sound, ())


def test_required_in_a_branch_may_name_what_the_object_defines():
    """This is a common way to require one of two properties, and not a mistake."""
    either = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    assert properties(x=either) == {"x": either}


def test_repairs_reach_everywhere():
    """Properties, items, branches and definitions are repaired."""
    broken, sound = {"type": "int", "default": "3"}, {"type": "integer", "default": 3}
    schema = repair(
        {
            "type": "object",
            "properties": {
                "a": {"type": "array", "items": broken},
                "b": {"anyOf": [broken, {"type": "null"}]},
                "c": {"type": "object", "additionalProperties": broken},
            },
            "$defs": {"d": broken},
        }
    )[0]
    assert schema["properties"]["a"]["items"] == sound
    assert schema["properties"]["b"]["anyOf"][0] == sound
    assert schema["properties"]["c"]["additionalProperties"] == sound
    assert schema["$defs"]["d"] == sound


@pytest.mark.parametrize(
    "given",
    [
        {"properties": {"a": {"type": "string"}}},
        {"a": {"type": "string"}},
        {"type": ["object", "null"], "properties": {"a": {"type": "string"}}},
        {"type": "dict", "properties": [{"name": "a", "type": "string"}]},
        '{"properties": {"a": {"type": "string"}}}',
        {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"type": "string"}}},
        {"$schema": "http://evil.example/meta", "$id": "http://x/y", "properties": {"a": {"type": "string"}}},
        {"type": "object", "nullable": True, "properties": {"a": {"type": "string"}}, "default": {}},
    ],
)
def test_the_top_is_an_object_in_the_end(given):
    """Any way to describe an object becomes `type: object` with properties."""
    schema, notes = repair(given)
    assert schema == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert notes


def test_branches_at_the_top_are_folded_into_one_object():
    """The model's API refuses branches there, and with them every other tool."""
    first = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "k": {"const": 1}},
        "required": ["a", "k"],
    }
    second = {"type": "object", "properties": {"b": {"type": "string"}, "k": {"const": 2}}, "required": ["k"]}
    table = {"a": {"type": "string"}, "b": {"type": "string"}}
    assert repair({"oneOf": [first, {"$ref": "#/$defs/s"}], "$defs": {"s": second}})[0] == {
        "type": "object",
        "properties": {**table, "k": {"anyOf": [{"const": 1}, {"const": 2}]}},
        "required": ["k"],
        "$defs": {"s": second},
    }
    every = repair({"allOf": [first, second]})[0]
    assert every["required"] == ["a", "k"]
    assert every["properties"]["k"] == {"allOf": [{"const": 1}, {"const": 2}]}
    referred = repair({"$ref": "#/$defs/s", "$defs": {"s": second}})[0]
    assert referred["properties"] == second["properties"]


def test_a_property_that_no_model_may_name():
    """If it is optional, it is dropped; if it is required, the tool is refused."""
    schema, notes = repair({"properties": {"a b": {}, "ok": {}}})
    assert list(schema["properties"]) == ["ok"]
    assert any("a b" in note for note in notes)
    with pytest.raises(Unrepairable, match="required property"):
        repair_schema({"properties": {"a b": {}}, "required": ["a b"]})


def test_hidden_text_is_taken_out_of_descriptions():
    """Zero-width, bidi, tag and control characters go, at every level; long descriptions are shortened."""
    tagged = "".join(chr(0xE0000 + ord(each)) for each in "ignore all")
    result = properties(
        a={"type": "string", "description": f"Where\u200b you\u202e live{tagged}\x1b[31m\ufe01\u3164"},
        b={"type": "object", "properties": {"c": {"description": "x" * 5000}}},
    )
    assert result["a"]["description"] == "Where you live[31m"
    assert len(result["b"]["properties"]["c"]["description"]) == 2000
    assert result["b"]["properties"]["c"]["description"].endswith("x…")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"default": "a\u200b"}, {}),
        ({"default": {"deep": ["\u202e"]}}, {}),
        ({"examples": ["fine", "a\u200b"]}, {}),
        ({"example": "a\u200b"}, {}),
        ({"pattern": "a\u200b"}, {}),
        ({"format": "a\u200b"}, {}),
        ({"x-note\u200b": 1}, {}),
        ({"enum": ["a", "b\u200b"], "default": "b\u200b"}, {"enum": ["a"]}),
        ({"enum": ["❤️", "👩🏽‍💻", "می‌خواهم"], "default": "❤️"}, None),
        ({"pattern": "^👍🏽$", "examples": ["1️⃣"], "example": "co\u00adoperate"}, None),
        ({"const": "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"}, None),
        ({"enum": ["\n", "\r\n", "\t"], "default": "\r\n"}, None),
    ],
)
def test_hidden_text_costs_a_value_and_not_the_tool(given, expected):
    """What could carry an instruction is dropped, with a note; emoji and joiners are allowed in values."""
    schema, notes = repair({"type": "object", "properties": {"a": given}})
    assert schema["properties"]["a"] == (given if expected is None else expected)
    assert bool(notes) == (expected is not None)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"const": "a\u200b"}}},
        {"properties": {"a": {"enum": ["a\u200b", "b\u200b"]}}},
        {"properties": {"a": {"properties": {"b\u200b": {}}}}},
        {"properties": {"a": {"properties": {"b": {}}, "required": ["b", "c\u200b"], "anyOf": [{}]}}},
        {"properties": {"a": {"$ref": "#/$defs/d\u200b"}}, "$defs": {"d\u200b": {}}},
    ],
)
def test_hidden_text_in_a_name_or_constant_costs_the_tool(schema):
    """The API needs the exact text, so it can neither be cleaned nor dropped."""
    with pytest.raises(Unrepairable, match="invisible characters"):
        repair_schema(schema)


def nested(levels, leaf=None):
    """Return a schema of objects in objects."""
    schema = leaf or {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def bomb(levels):
    """Return definitions that each refer twice to the next."""
    table = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2, "title": str(level)}
        for level in range(levels)
    }
    return {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**table, f"d{levels}": {"type": "string"}}}


def cyclic():
    """Return a Python object that contains itself."""
    schema = {"type": "object", "properties": {}}
    schema["properties"]["a"] = schema
    return schema


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "string"}, "the type string"),
        ({"type": "array", "items": {}}, "the type array"),
        ("no json", "text that is not JSON"),
        (5, "must be an object"),
        (False, "must be an object"),
        ([{"type": "string"}], "must be an object"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1/x"}}}, "outside the schema"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "outside the schema"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "outside the schema"),
        ({"$defs": {"d": {"items": {"$ref": "//evil/x"}}}}, "outside the schema"),
        ({"properties": {"a": {"$ref": "#/$defs/gone"}}}, "gone"),
        ({"properties": {"a": {"properties": {"": {"minLength": -1}}}}}, "not valid"),
        ({"$ref": "#"}, "does not describe an object"),
        ({"allOf": [{"anyOf": [{"type": "object"}]}]}, "does not describe an object"),
        ({"anyOf": [{"type": "string"}]}, "does not describe an object"),
        ({"$ref": "#/x/y", "x": {"y": {"properties": [1]}}}, "does not describe an object"),
        ({"$ref": "#/x/y", "x": {"y": {"required": 5}}}, "does not describe an object"),
        (nested(100_000), "nested more than 64"),
        (cyclic(), "nested more than 64"),
        ({"enum": [list(range(30_000))]}, "20,000 parts"),
        ({"properties": {str(each): {"type": "string"} for each in range(12_000)}}, "20,000 parts"),
        ({"description": "x" * 300_000}, "256 KiB"),
        ({"x-" + "y" * 300_000: 1}, "256 KiB"),
        ({"maximum": math.inf}, "not JSON"),
        ({"properties": {1: {}}}, "not JSON"),
        ({"x": {1, 2}}, "not JSON"),
        ({"x": "\ud800"}, "not JSON"),
        ({"maximum": 10**4300}, "not JSON"),
        (bomb(40), "multiply"),
        ({"$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(500)}}, "chain"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else None,
)
def test_what_cannot_be_repaired_is_refused_with_the_reason(schema, reason):
    """Nothing outside is fetched, nothing too large is traversed, and nothing too costly is kept."""
    with pytest.raises(Unrepairable, match=reason):
        repair_schema(schema)


def test_a_recursive_schema_is_no_bomb():
    """A tree that refers to itself is valid."""
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "all": {"type": "array", "items": {"$ref": "#"}}},
    }
    assert repair(tree) == (tree, ())


def test_many_repairs_are_counted_not_listed():
    """After 40 notes, the other repairs are only counted."""
    _, notes = repair({"properties": {f"p{n}": {"type": "int"} for n in range(100)}})
    assert len(notes) == 41
    assert "more repairs" in notes[-1]


KEYWORDS = st.sampled_from(
    [
        *(
            "type",
            "properties",
            "items",
            "required",
            "enum",
            "default",
            "anyOf",
            "allOf",
            "oneOf",
            "not",
            "$ref",
        ),
        *(
            "nullable",
            "description",
            "title",
            "minimum",
            "exclusiveMinimum",
            "pattern",
            "additionalProperties",
        ),
        *(
            "$defs",
            "patternProperties",
            "const",
            "format",
            "$schema",
            "$id",
            "id",
            "examples",
            "dependencies",
        ),
        *("if", "then", "minLength", "$anchor", "prefixItems", "additionalItems", "dependentRequired"),
    ]
)
WORDS = st.sampled_from(
    [
        "string",
        "integer",
        "object",
        "array",
        "any",
        "int",
        "#",
        "#/$defs/a",
        "#/properties/a",
        "#/default",
        "true",
        "a",
        "b",
        "^[a-z]+$",
        "5",
    ]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS, st.text(max_size=8))
SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(KEYWORDS, st.sampled_from("abc"), st.text(max_size=4)), inner, max_size=5),
    ),
    max_leaves=30,
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.one_of(SCHEMAS, st.dictionaries(KEYWORDS, SCHEMAS, max_size=6)))
def test_any_json_is_repaired_or_refused(schema):
    """There is no other exception and the input stays; the result is an object schema that compiles."""
    before = copy.deepcopy(schema)
    with contextlib.suppress(Unrepairable):
        result, _ = repair_schema(schema)
        assert from_json_schema(result).json_schema["type"] == "object"
        assert not {"anyOf", "oneOf", "allOf", "$ref"} & result.keys()
        assert repair_schema(schema)[0] == result
    assert repr(schema) == repr(before)
