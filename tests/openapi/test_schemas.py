"""The schemas that tools list: small, valid in draft 2020-12, and with the meaning of the document."""

import json

import jsonschema_rs
import pytest

from shared.echo_api import document, operation
from shared.openapi_documents import ordinary
from toolwire import OpenAPI
from toolwire.tools.schema.arguments import InvalidArguments


def load(given, **settings):
    """Read a document and return its server."""
    server = OpenAPI(given, base_url="https://api.example.com", environ={}, **settings)
    server.load()
    return server


def tool_for(schema, version="3.0.3", **schemas):
    """Return the tool of an operation whose body has this schema."""
    body = {"application/json": {"schema": schema}}
    server = load(
        document(
            {"/x": {"post": operation(body=body, operationId="go")}},
            version=version,
            components={"schemas": schemas},
        )
    )
    assert server.status.skipped == (), server.status.skipped
    tool = server.tools["go"]
    jsonschema_rs.validator_for(tool.definition["inputSchema"], retriever=None)
    return tool


def accepts(tool, body):
    """Return True if the tool accepts this body."""
    try:
        tool.parameters.validate({"body": body})
        tool.parameters.validate_whole({"body": body})
    except InvalidArguments:
        return False
    return True


def ref(name):
    return {"$ref": f"#/components/schemas/{name}"}


def test_a_cycle_stays_a_reference():
    """A schema that refers to itself becomes a definition that refers to itself, and is validated at any depth."""
    tool = tool_for(
        ref("Node"), Node={"type": "object", "properties": {"next": ref("Node"), "n": {"type": "integer"}}}
    )
    assert tool.definition["inputSchema"]["$defs"].keys() == {"Node"}
    assert accepts(tool, {"next": {"next": {"n": 1}}})
    assert not accepts(tool, {"next": {"next": {"n": "x"}}})


def test_only_what_is_used_is_listed():
    """Of all schemas in the document, a tool lists only those that it needs."""
    tool = tool_for(ref("A"), A={"properties": {"b": ref("B")}}, B={"type": "string"}, C={"type": "string"})
    assert tool.definition["inputSchema"]["$defs"].keys() == {"A", "B"}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "nullable": True}, [None, "x"], [5]),
        ({"type": "string", "nullable": True, "enum": ["a"]}, [None, "a"], ["b"]),
        ({"nullable": True, "allOf": [ref("Pet")]}, [None, {"name": "x"}], [5]),
        (
            {"$ref": "#/components/schemas/Pet", "nullable": True, "description": "One."},
            [None, {"name": "x"}],
            [{}],
        ),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, [1], [0]),
        ({"type": "integer", "maximum": 5, "exclusiveMaximum": False}, [5], [6]),
        (
            {"type": "object", "properties": {"a": {"type": "string", "default": 5, "example": {"no": 1}}}},
            [{"a": "x"}],
            [{"a": 1}],
        ),
        ({"type": "string", "pattern": r"^[\w-\.]+$"}, ["?"], [5]),
        ({"type": "array", "minItems": 1}, [[1]], [[]]),
        ({"type": "int32"}, [5], ["x"]),
        ({"type": "string", "enum": ["a", "a", "b"]}, ["b"], ["c"]),
        ({"type": "string", "x-secret": {"$ref": "#/nowhere"}, "xml": {}, "externalDocs": {}}, ["a"], [1]),
    ],
)
def test_schemas_of_openapi_3_0_keep_their_meaning(schema, good, bad):
    """With `nullable`, exclusive limits as flags, invalid examples, patterns of other languages, unknown types."""
    tool = tool_for(schema, Pet={"type": "object", "required": ["name"]})
    assert all(accepts(tool, each) for each in good)
    assert not any(accepts(tool, each) for each in bad)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": ["string", "null"]}, [None, "x"], [5]),
        ({"const": "a"}, ["a"], ["b"]),
        ({"$ref": "#/components/schemas/Pet", "maxProperties": 1}, [{"a": 1}], [{"a": 1, "b": 2}]),
        ({"prefixItems": [{"type": "integer"}], "items": False}, [[1]], [[1, 2]]),
        (
            {
                "type": "object",
                "$defs": {"x": {}},
                "properties": {"a": {"$ref": "#/components/schemas/Pet/$defs/In"}},
            },
            [{"a": 1}],
            [{"a": "x"}],
        ),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, ["ab", 1], ["a"]),
        ({"type": "integer", "exclusiveMinimum": 0, "examples": ["wrong"]}, [1], [0]),
    ],
)
def test_schemas_of_openapi_3_1_are_json_schema(schema, good, bad):
    """Lists of types, `const`, keywords next to a `$ref`, definitions inside of schemas."""
    tool = tool_for(schema, version="3.1.0", Pet={"type": "object", "$defs": {"In": {"type": "integer"}}})
    assert all(accepts(tool, each) for each in good)
    assert not any(accepts(tool, each) for each in bad)


def test_read_only_properties_are_not_sent():
    """Nor are they required, at any level of `allOf`."""
    base = {
        "type": "object",
        "required": ["id", "name"],
        "properties": {
            "id": {"type": "string", "readOnly": True},
            "at": ref("Stamp"),
            "name": {"type": "string"},
        },
    }
    tool = tool_for(
        {"allOf": [ref("Base"), {"type": "object", "required": ["id", "at"], "properties": {"n": {}}}]},
        Base=base,
        Stamp={"type": "string", "readOnly": True},
    )
    definitions = tool.definition["inputSchema"]["$defs"]
    assert definitions.keys() == {"Base"}
    assert definitions["Base"]["properties"].keys() == {"name"}
    assert accepts(tool, {"name": "x"})
    assert not accepts(tool, {})


def test_a_discriminator_chooses_among_the_variants():
    """A variant is chosen by the mapping or by the name of its schema; a value may match several variants."""
    cat = {"type": "object", "properties": {"kind": {"type": "string"}, "lives": {"type": "integer"}}}
    tool = tool_for(
        {
            "oneOf": [ref("Cat"), ref("Dog")],
            "discriminator": {
                "propertyName": "kind",
                "mapping": {"cat": "#/components/schemas/Cat", "tom": "Cat"},
            },
        },
        Cat=cat,
        Dog={"type": "object", "properties": {"kind": {"type": "string"}}},
    )
    assert accepts(tool, {"kind": "cat", "lives": 9})
    assert accepts(tool, {"kind": "tom"})
    assert accepts(tool, {"kind": "Dog", "lives": "many"})
    assert not accepts(tool, {"kind": "cat", "lives": "many"})
    assert not accepts(tool, {"kind": "fish"})
    assert not accepts(tool, {})


def test_a_base_with_a_discriminator_names_its_kinds():
    """The base does not show that other schemas inherit from it by `allOf`, so its description says so."""
    pet = {
        "type": "object",
        "discriminator": {"propertyName": "kind", "mapping": {"cat": "Cat"}},
        "properties": {"kind": {"type": "string"}},
    }
    tool = tool_for(ref("Pet"), Pet=pet, Cat={"allOf": [ref("Pet"), {"type": "object"}]})
    assert "`kind` selects the kind: cat" in tool.definition["inputSchema"]["$defs"]["Pet"]["description"]
    assert accepts(tool, {"kind": "cat", "lives": 9})


def test_variants_that_inherit_from_their_union_do_not_loop():
    """In many documents, `Pet` is a union with `Cat`, and `Cat` inherits from `Pet`."""
    tool = tool_for(
        ref("Pet"),
        Pet={"oneOf": [ref("Cat")], "discriminator": {"propertyName": "kind"}},
        Cat={"allOf": [ref("Pet"), {"type": "object", "properties": {"n": {"type": "integer"}}}]},
    )
    assert accepts(tool, {"kind": "Cat", "n": 1})
    assert not accepts(tool, {"kind": "Cat", "n": "x"})


def test_a_schema_that_doubles_with_each_level_skips_only_its_operation():
    """Validating such a schema would take exponential time."""
    schemas = {f"S{level}": {"allOf": [ref(f"S{level + 1}")] * 2} for level in range(40)} | {
        "S40": {"type": "object"}
    }
    body = {"application/json": {"schema": ref("S0")}}
    server = load(
        document(
            {
                "/bad": {"post": operation(body=body)},
                "/good": {"post": operation(body={"application/json": {"schema": ref("S40")}})},
            },
            components={"schemas": schemas},
        )
    )
    assert [each.label for each in server.operations.values()] == ["POST /good"]
    assert "multiply" in server.status.skipped[0].reason


def test_invisible_characters_are_removed_or_skip_the_operation():
    """Descriptions are cleaned; an operation with hidden text in a name is not offered to a model."""
    hidden = "pay\u200b\U000e0041 now\x07"
    body = {
        "application/json": {
            "schema": {"type": "object", "description": hidden, "properties": {"a": {"type": "string"}}}
        }
    }
    bad = {"application/json": {"schema": {"type": "object", "properties": {hidden: {}}}}}
    server = load(
        document({"/a": {"post": operation(body=body, summary=hidden)}, "/b": {"post": operation(body=bad)}})
    )
    told = json.dumps(server.tools["post_a"].definition)
    assert "pay now" in told
    assert "200b" not in told
    assert [each.name for each in server.status.skipped] == ["POST /b"]


def test_a_large_schema_is_shortened_in_the_list_but_not_in_validation():
    """Parts too large for a model are left out of the list; calls are still validated against the whole schema."""
    given = ordinary(50, tangled=True)
    whole, short = load(given, max_schema_bytes=10**6), load(given, max_schema_bytes=4_000)
    name = "createInvoice"
    long = len(json.dumps(whole.tools[name].definition["inputSchema"]))
    listed = short.tools[name].definition["inputSchema"]
    assert long > 8_000 > len(json.dumps(listed))
    jsonschema_rs.validator_for(listed)
    assert any("the others were cut" in note for note in short.notes[name])
    wrong = {"name": "x", "status": "open"}
    for _ in range(9):
        wrong = {"name": "x", "status": "open", "next": wrong}
    wrong["next"]["next"]["next"]["next"]["next"]["next"]["next"]["next"]["count"] = "no number"
    for server in (whole, short):
        assert not accepts(server.tools[name], wrong)


@pytest.mark.parametrize("operations", [100, 1_000])
def test_a_list_of_ordinary_operations_is_small(operations):
    """The limit is a kilobyte for each tool."""
    server = load(ordinary(operations))
    size = len(json.dumps([tool.definition for tool in server.tools.values()], separators=(",", ":")))
    assert len(server.tools) == operations
    assert size < 1_000 * operations


def test_output_schemas_are_listed_only_on_request():
    """They would make the list much larger."""
    given = ordinary(5)
    assert not any("outputSchema" in tool.definition for tool in load(given).tools.values())
    tools = load(given, output_schemas=True).tools
    schema = tools["getInvoice"].definition["outputSchema"]
    assert schema["properties"]["result"] == {"$ref": "#/$defs/Invoice"}
    assert "id" in schema["$defs"]["Invoice"]["allOf"][1]["properties"]
    jsonschema_rs.validator_for(schema)
