"""Schemas in the forms of the official SDK, and JSON schemas that are only known at run time."""

import asyncio
import dataclasses
import datetime as dt
import enum
import subprocess
import sys
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import claude_agent_sdk
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, field_validator

from toolwire.tools.schema.arguments import DefinitionError, InvalidArguments, Violation
from toolwire.tools.schema.json_schema import from_json_schema, from_official
from toolwire.tools.schema.pydantic_types import output_schema


class Color(enum.Enum):
    RED = "red"


class Search(TypedDict):
    query: Annotated[str, "What to look for"]
    limit: NotRequired[int]


class Nested(TypedDict):
    search: Search


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Person(BaseModel):
    name: str
    age: int = Field(1, ge=0, alias="years")
    friends: list["Person"] = []

    @field_validator("name")
    @classmethod
    def polite(cls, name: str) -> str:
        if name == "darn":
            raise ValueError("mind your language")
        return name


class Sealed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


def official_schema(given):
    """Return the schema that the official SDK lists for a form."""

    async def handler(args): ...

    made = claude_agent_sdk.tool("t", "d", given)(handler)
    return claude_agent_sdk._build_input_schema(made)


def violations(parameters, arguments):
    with pytest.raises(InvalidArguments) as caught:
        parameters.validate(arguments)
    return caught.value.violations


@pytest.mark.parametrize(
    "given",
    [
        {"a": float, "b": float},
        {"name": str, "tags": list[str], "flag": bool, "size": int},
        {"a": Annotated[str, "a text"]},
        {"either": int | str},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": ["a"],
            "additionalProperties": False,
        },
        {"type": str},
        {"type": str, "properties": int},
        Search,
    ],
    ids=str,
)
def test_what_the_official_sdk_can_say_is_said_alike(given):
    """Where the official schema is right, ours is the same."""
    assert from_official(given).json_schema == official_schema(given)


simple = st.sampled_from([str, int, float, bool, list[str], list[int]])
values = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.just(1.5)
    | st.just("x")
    | st.lists(st.integers() | st.text(), max_size=2)
)


@settings(max_examples=150, deadline=None)
@given(
    form=st.dictionaries(st.sampled_from(["a", "b", "type", "properties"]), simple, min_size=1),
    arguments=st.dictionaries(st.sampled_from(["a", "b", "type", "properties", "extra"]), values),
)
def test_what_the_official_sdk_takes_is_taken_as_it_is(form, arguments):
    """For the types that the official SDK knows, the same arguments are accepted, and not converted."""
    try:
        jsonschema.validate(arguments, official_schema(form))
        official = True
    except jsonschema.ValidationError:
        official = False
    try:
        ours = from_official(form).validate(arguments)
    except InvalidArguments:
        assert not official
    else:
        assert official
        assert ours == arguments


def test_a_dict_of_types_has_the_power_of_typed_functions():
    """Types that the official SDK lists as strings have their real schema; optional ones accept null."""
    parameters = from_official(
        {
            "mode": Literal["a", "b"],
            "color": Color,
            "when": dt.date,
            "maybe": Optional[int],  # noqa: UP045 - as official code has it
            "at": Point,
            "any": Any,
        }
    )
    properties = parameters.json_schema["properties"]
    assert properties["mode"] == {"type": "string", "enum": ["a", "b"]}
    assert properties["when"] == {"type": "string", "format": "date"}
    assert properties["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert parameters.json_schema["required"] == ["mode", "color", "when", "maybe", "at", "any"]
    arguments = {
        "mode": "a",
        "color": "red",
        "when": "2024-01-02",
        "maybe": None,
        "at": {"x": 1, "more": 2},
        "any": 1,
    }
    assert parameters.validate(arguments) == arguments
    bad = {"mode": "c", "color": "blue", "when": 5, "maybe": "x", "at": {}, "any": 1}
    assert {each.path for each in violations(parameters, bad)} == {"mode", "color", "when", "maybe", "at.x"}


def test_the_types_have_their_say_after_the_schema():
    """What only Python can check is checked too: dates, and validators of models."""
    parameters = from_official({"when": dt.date, "who": Person})
    found = violations(parameters, {"when": "someday", "who": {"name": "darn"}})
    assert [each.path for each in found] == ["when", "who.name"]
    assert found[1].message == "mind your language, got 'darn'"


def test_a_number_in_quotes_is_refused_where_the_handler_would_get_the_quotes():
    """Values are not converted in this form, so a string is not accepted as a number."""
    assert violations(from_official({"a": float}), {"a": "1"}) == [
        Violation("a", "Input should be of type number, got '1'")
    ]


def test_unnamed_arguments_are_let_through():
    """Unknown arguments are accepted, as in the official SDK, also in nested TypedDicts."""
    assert from_official({"a": int}).validate({"a": 1, "b": 2}) == {"a": 1, "b": 2}
    arguments = {"search": {"query": "q", "more": 1}, "more": 1}
    assert from_official(Nested).validate(arguments) == arguments


def test_classes_are_schemas():
    """Models and dataclasses, which the official SDK ignores, are used; the handler still gets a plain dict."""
    parameters = from_official(Person)
    assert parameters.json_schema["type"] == "object"
    assert parameters.json_schema["properties"]["friends"]["items"] == {"$ref": "#/$defs/Person"}
    assert parameters.json_schema["required"] == ["name"]
    arguments = {"name": "a", "years": 3, "friends": [{"name": "b"}]}
    assert parameters.validate(arguments) is arguments
    assert violations(parameters, {"years": -1}) == [
        Violation("name", "Field required"),
        Violation("years", "Input is less than the minimum of 0, got -1"),
    ]
    assert from_official(Point).validate({"x": 1}) == {"x": 1}
    assert from_official(dict[str, int]).validate({"a": 1}) == {"a": 1}
    assert violations(from_official(Sealed), {"a": 1, "b": 2}) == [
        Violation("b", "Unknown argument (known: a)")
    ]


def test_an_empty_dict_takes_anything():
    """`{}` lists no parameters, and accepts any arguments."""
    parameters = from_official({})
    assert parameters.json_schema == {"type": "object", "properties": {}}
    assert parameters.validate({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    "given",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": False},
        {"properties": {"a": {"type": "string"}}},
        {"required": ["a"]},
        {"$ref": "#/$defs/x", "$defs": {"x": {"type": "object"}}},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {}},
    ],
    ids=str,
)
def test_a_dict_of_json_with_a_keyword_is_a_json_schema(given):
    """It is listed unchanged, with the `type` that the CLI demands."""
    assert from_official(given).json_schema == {"type": "object", **given}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"a": "string"}, "'a' is 'string', which is not a type"),
        ({"a": 5}, "'a' is 5, which is not a type"),
        ({"a": None}, "'a' is null, which is not a type"),
        ({"a": str, "b": "string"}, "'b' is 'string', which is not a type"),
        ({"a": {"type": "string"}}, 'put it under "properties"'),
        ({"type": str, "properties": {"a": str}}, 'put it under "properties"'),
        ({"description": "a tool"}, "which is not a type"),
        ({"properties": {"a": str}}, "not JSON"),
        ({"type": "string"}, '"type": "object" at the top'),
        ({1: str}, "is not a schema of arguments"),
        ("object", "is not a schema of arguments"),
        (None, "is not a schema of arguments"),
        ([str], "is not a schema of arguments"),
        (str, "str is not an object"),
        (list[int], "is not an object"),
        ({"good": int, "bad": asyncio.Event}, "parameter 'bad': asyncio.locks.Event has no JSON schema"),
        (asyncio.Event, "asyncio.locks.Event has no JSON schema"),
    ],
    ids=str,
)
def test_what_is_neither_is_refused(given, text):
    """The error says what is wrong, and usually what is accepted."""
    with pytest.raises(DefinitionError) as caught:
        from_official(given)
    assert text in str(caught.value)


def test_arguments_come_back_as_they_came():
    """A JSON schema checks the arguments and changes nothing."""
    arguments = {"a": 1.0, "b": {"c": [None]}}
    assert from_json_schema({"type": "object"}).validate(arguments) is arguments


def test_the_schema_is_copied():
    """Changing the given dict later has no effect."""
    given: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    parameters = from_json_schema(given)
    given["properties"]["a"]["type"] = "string"
    given["required"] = ["b"]
    assert parameters.json_schema == {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert parameters.validate({"a": 1}) == {"a": 1}


SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "number", "minimum": 3},
        "b": {"type": ["string", "null"], "minLength": 3, "pattern": "^x"},
        "c": {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["k"]}]},
        "e": {"enum": ["p", 1, None]},
        "l": {"items": {"properties": {"p": True}, "required": ["p"], "additionalProperties": False}},
        "k": {"const": 4},
        "o": {"oneOf": [{"type": "integer"}, {"minimum": 3}]},
        "n": False,
    },
    "required": ["a", "z"],
    "additionalProperties": False,
}


def test_violations_of_a_schema_in_words():
    """Every violation is listed, with its path and value, in words that say what to send."""
    arguments = {
        "a": 1,
        "b": "yy",
        "c": "s",
        "e": "q",
        "l": [{"p": 1}, {"q": 2}],
        "k": 5,
        "o": 3,
        "n": 0,
        "f": 1,
        "g": 2,
    }
    found = violations(from_json_schema(SCHEMA), arguments)
    branches = "Input should be of type integer | Input should be of type object"
    known = "Unknown argument (known: a, b, c, e, l, k, o, n)"
    assert sorted(map(str, found)) == sorted(
        [
            "a: Input is less than the minimum of 3, got 1",
            "b: Input is shorter than 3 characters, got 'yy'",
            "b: Input does not match \"^x\", got 'yy'",
            f"c: Input fits none of the allowed forms ({branches}), got 's'",
            "e: Input should be one of 'p', 1, null, got 'q'",
            "l[1].p: Field required",
            "l[1].q: Unknown argument",
            "k: Input should be 4, got 5",
            "o: Input should fit exactly one of the allowed forms, but fits several, got 3",
            "n: Not allowed here, got 0",
            "z: Field required",
            f"f: {known}",
            f"g: {known}",
        ]
    )


def test_an_object_without_properties_names_what_is_too_much():
    """With `additionalProperties: false` alone, the error still has the argument's name."""
    parameters = from_json_schema({"type": "object", "additionalProperties": False})
    assert violations(parameters, {"a": 1, "b": 2}) == [
        Violation("a", "Unknown argument"),
        Violation("b", "Unknown argument"),
    ]
    assert parameters.json_schema == {"type": "object", "additionalProperties": False}


def test_branches_say_what_is_missing():
    """If no branch of `anyOf` fits, the error says for each why."""
    schema = {"type": "object", "properties": {"c": SCHEMA["properties"]["c"]}}
    assert (
        "(Input should be of type integer | k: Field required)"
        in violations(from_json_schema(schema), {"c": {}})[0].message
    )


def test_long_values_are_cut():
    """A value of a megabyte is shortened in the error."""
    (found,) = violations(
        from_json_schema({"properties": {"a": {"type": "integer"}}}), {"a": ["x" * 1_000_000]}
    )
    assert len(found.message) < 200


@pytest.mark.parametrize("value", [object(), "\ud800", {1: 2}], ids=["object", "surrogate", "key"])
def test_what_is_not_json_breaks_any_schema(value):
    """A value that JSON cannot hold is a violation, not a crash."""
    with pytest.raises(InvalidArguments):
        from_json_schema({"properties": {"a": {"type": "integer"}}}).validate({"a": value})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "must be a dict"),
        (True, "must be a dict"),
        ({"type": "string"}, '"type": "object" at the top'),
        ({"type": ["object", "null"]}, '"type": "object" at the top'),
        ({"type": "object", "properties": {"a": {"type": "strnig"}}}, "at properties.a.type"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "at properties.a.pattern"),
        ({"type": "object", "properties": []}, "at properties"),
        ({"type": "object", "required": "a"}, "at required"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "/$defs/none"),
        ({"type": "object", "$schema": "https://example.invalid/own"}, "meta-schema"),
        ({"type": "object", "properties": {"a": int}}, "not JSON"),
        ({"type": "object", "enum": [{1: 2}]}, "not JSON"),
    ],
    ids=str,
)
def test_a_schema_that_cannot_work_is_refused(given, text):
    """The error says where the schema is wrong."""
    with pytest.raises(DefinitionError) as caught:
        from_json_schema(given)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "reference",
    [
        "http://127.0.0.1:9/schema.json",
        "https://example.invalid/schema.json#/a",
        "file:///etc/hostname",
        "other.json",
        "//example.invalid/x",
        "urn:example:other",
        "https://json-schema.org/draft/2020-12/schema",
    ],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize("place", ["properties", "items", "anyOf", "$defs", "not", "top"])
def test_a_reference_away_is_refused_and_never_followed(reference, keyword, place):
    """A reference that leads out of the schema is refused wherever it stands, and nothing is fetched."""
    away = {keyword: reference}
    held = {
        "properties": {"properties": {"a": away}},
        "items": {"properties": {"a": {"items": [away] if keyword == "$ref" else away}}},
        "anyOf": {"anyOf": [{"type": "object"}, away]},
        "$defs": {"$defs": {"a": {"additionalProperties": away}}},
        "not": {"not": away},
        "top": away,
    }[place]
    with pytest.raises(DefinitionError, match="which is not inside it"):
        from_json_schema({"type": "object", **held})


def test_a_reference_away_that_is_reached_by_a_detour_is_refused():
    """Also if it stands in a place that is only a schema because another reference leads there."""
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/components/x"}},
        "components": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}},
    }
    with pytest.raises(DefinitionError, match="references are not fetched"):
        from_json_schema(schema)


@pytest.mark.parametrize(
    "given",
    [
        {"properties": {"$ref": {"type": "string"}}},
        {"properties": {"a": {"const": {"$ref": "http://127.0.0.1:9/x"}}}},
        {"properties": {"a": {"default": {"$ref": "http://127.0.0.1:9/x"}}}},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/properties/b"}}, "x": 1}
        | {"properties": {"a": {"$ref": "#"}, "b": {"type": "integer"}}},
        {
            "$id": "http://x.invalid/root",
            "properties": {"a": {"$ref": "item"}},
            "$defs": {"i": {"$id": "item"}},
        },
        {"properties": {"a": {"$ref": "#anchor"}}, "$defs": {"i": {"$anchor": "anchor", "type": "string"}}},
        {"properties": {"a": {"$dynamicRef": "#node"}}, "$defs": {"i": {"$dynamicAnchor": "node"}}},
    ],
    ids=["named", "const", "default", "recursive", "id", "anchor", "dynamic"],
)
def test_references_inside_and_data_that_looks_like_one_are_fine(given):
    """References within the schema work, and data with a key `$ref` is not taken for one."""
    assert from_json_schema(given).validate({}) == {}


def test_drafts_by_their_schema_keyword():
    """`$schema` selects the rules of an older draft."""
    draft4 = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"a": {"type": "number", "minimum": 1, "exclusiveMinimum": True}},
    }
    assert [each.path for each in violations(from_json_schema(draft4), {"a": 1})] == ["a"]


def test_formats_are_notes():
    """As in the official SDK, `format` is not checked."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"format": "date"}}}
    assert from_json_schema(schema).validate({"a": "someday"}) == {"a": "someday"}


def test_output_types():
    """A result type has an adapter and a schema; a type that is not an object is refused."""
    adapter, schema = output_schema(Point)
    assert list(schema["properties"]) == ["x", "y"]
    assert adapter.dump_python(Point(1)) == {"x": 1, "y": 0}
    with pytest.raises(DefinitionError, match="int is not an object"):
        output_schema(int)
    with pytest.raises(DefinitionError, match="no JSON schema"):
        output_schema(asyncio.Event)


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import toolwire.tools.schema.json_schema", {"pydantic", "jsonschema_rs", "docstring_parser"}),
        (
            "import toolwire.tools.schema.json_schema as f; f.from_json_schema({'type': 'object'})",
            {"pydantic", "docstring_parser"},
        ),
        ("import toolwire.tools.schema", {"jsonschema_rs", "docstring_parser", "mcp"}),
    ],
)
def test_libraries_load_when_they_are_used(code, absent):
    """A JSON schema needs no Pydantic, a typed function no JSON Schema library."""
    show = "import sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) & absent == set()
