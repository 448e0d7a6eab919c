"""Bare properties: parameters may have any name, and a table of them is recognised by the shape of its values."""

import pytest

from toolwire.catalog.schema_repair.bounds import Unrepairable
from toolwire.catalog.schema_repair.repair import repair_schema
from toolwire.tools.schema.json_schema import from_json_schema

# Every keyword of JSON Schema from draft 4 to 2020-12, and of OpenAPI.
KEYWORDS = [
    *(
        "$id",
        "$schema",
        "$ref",
        "$anchor",
        "$dynamicRef",
        "$dynamicAnchor",
        "$vocabulary",
        "$comment",
        "$defs",
    ),
    *("$recursiveRef", "$recursiveAnchor", "id", "definitions", "dependencies", "type", "enum", "const"),
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "prefixItems", "items"),
    *("additionalItems", "contains", "properties", "patternProperties", "additionalProperties"),
    *("propertyNames", "unevaluatedItems", "unevaluatedProperties", "multipleOf", "maximum"),
    *("exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems"),
    *("minItems", "uniqueItems", "maxContains", "minContains", "maxProperties", "minProperties", "required"),
    *("dependentRequired", "format", "contentEncoding", "contentMediaType", "contentSchema", "title"),
    *("description", "default", "deprecated", "readOnly", "writeOnly", "examples", "example", "nullable"),
    *("discriminator", "xml", "externalDocs"),
]
USABLE = [name for name in KEYWORDS if not name.startswith("$")]  # models can use no others at the top
KINDS = {
    "string": ({"type": "string"}, "x"),
    "integer": ({"type": "int", "default": 50, "minimum": 1}, 7),
    "object": (
        {"type": "object", "properties": {"items": {"type": "string", "required": True}}},
        {"items": "x"},
    ),
    "array": ({"type": "array", "items": {"type": "object"}}, [{}]),
    "choice": ({"type": "string", "enum": ["a", "b"]}, "b"),
}
CITY = {"type": "string", "description": "Where", "required": True}


def accepts(schema, arguments, required):
    """Check that the tool has these parameters, accepts the arguments, and requires what it should."""
    result, _ = repair_schema(schema)
    assert set(result["properties"]) == set(arguments)
    assert set(result.get("required", ())) == required
    parameters = from_json_schema(result)
    parameters.validate(arguments)
    assert repair_schema(result) == (result, ())
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", USABLE)
def test_a_keyword_is_a_name_like_any_other(name, kind):
    """This holds bare or in `properties`, alone or with others, with few or many keywords of its own."""
    schema, value = KINDS[kind]
    full = {**schema, "description": "As published — with words", "required": True}
    accepts({name: full}, {name: value}, {name})
    accepts({name: full, "city": CITY}, {name: value, "city": "Ulm"}, {name, "city"})
    accepts({name: schema, "city": CITY}, {name: value, "city": "Ulm"}, {"city"})
    accepts({name: full, "city": {}}, {name: value, "city": "Ulm"}, {name})
    for table in ({name: full}, {name: full, "city": CITY}):
        arguments = {name: value, "city": "Ulm"} if "city" in table else {name: value}
        accepts({"properties": table}, arguments, set(arguments))
        accepts({"type": "object", "properties": table}, arguments, set(arguments))


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_keyword_is_a_name_inside_of_an_object_too(name):
    """This holds at a nested level, in either form."""
    inner = {"type": "object", "properties": {name: {"type": "array", "required": True, "items": {}}}}
    for schema in ({"at": inner}, {"properties": {"at": inner}}):
        parameters = from_json_schema(repair_schema(schema)[0])
        parameters.validate({"at": {name: [1]}})
        assert parameters.json_schema["properties"]["at"]["required"] == [name]


def test_all_keywords_at_once():
    """A tool can have a parameter for each of them."""
    accepts(dict.fromkeys(USABLE, CITY), dict.fromkeys(USABLE, "x"), set(USABLE))


@pytest.mark.parametrize("name", [each for each in KEYWORDS if each.startswith("$")])
def test_a_name_that_no_model_may_use_costs_the_parameter_only(name):
    """If the parameter is optional, it is dropped, and the tool stays."""
    accepts({name: {"type": "string", "required": False}, "city": CITY}, {"city": "Ulm"}, {"city"})


@pytest.mark.parametrize(
    "around",
    [
        {"type": "object"},
        {
            "description": "What it does",
            "title": "Weather",
            "$schema": "http://json-schema.org/draft-07/schema#",
        },
        {"required": ["city"], "additionalProperties": False, "x-order": {"type": "string"}},
        {"$defs": {"other": {"type": "string"}}, "examples": [{"city": "Ulm"}]},
    ],
)
def test_words_about_the_whole_may_stand_beside_bare_properties(around):
    """Such keywords stay where they are, and the properties are found."""
    result = accepts({**around, "city": CITY}, {"city": "Ulm"}, {"city"})
    assert result.keys() - {"properties", "required"} == ({*around, "type"} - {"$schema", "required"})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"type": {"type": "string"}, "description": {"type": "string"}}},
        {"properties": {"properties": {"type": "string"}, "items": {"type": "array"}}},
        {"properties": {"type": "string", "items": "list"}},
        {
            "properties": {"a": {"type": "string"}},
            "example": {"type": "a"},
            "externalDocs": {"description": "x"},
        },
        {"additionalProperties": {"type": "string"}},
        {"not": {"type": "null"}},
        {"propertyNames": {"pattern": "^a"}},
        {"type": "object", "default": {"type": "x"}},
        {"type": "object", "x-origin": {"type": "x", "description": "y"}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"type": {"type": "string"}}}}},
        {"allOf": [{"properties": {"a": {"type": "string"}}}]},
    ],
)
def test_a_schema_is_not_taken_for_bare_properties(schema):
    """Whatever can be read as a schema is treated as one."""
    _, notes = repair_schema(schema)
    assert not any("only the properties" in note for note in notes)


def test_a_schema_of_a_list_is_still_none():
    """It is refused, because arguments are an object."""
    with pytest.raises(Unrepairable, match="the type array"):
        repair_schema({"type": "array", "items": {"type": "string"}})
