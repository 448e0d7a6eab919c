"""The form of a JSON schema: fields, typed text, arguments, and errors assigned to fields."""

import base64
import json
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, given, settings
from pydantic import Base64Bytes, BaseModel, Field

from shared.openapi_documents import ordinary
from toolwire import OpenAPI, ToolServer, tool
from toolwire._support.schema_structure import resolve
from toolwire.studio.forms import MISSING, Form
from toolwire.testing import connect
from toolwire.tools.schema.arguments import InvalidArguments, Violation
from toolwire.tools.schema.json_schema import compile_schema

EXAMPLES = Path(__file__).parents[2] / "examples"

# Values are drawn without a schema's limits and patterns; those that do not fit it are discarded.
FILTERED = [HealthCheck.too_slow, HealthCheck.filter_too_much]


def of(**properties: Any) -> dict[str, Any]:
    """Return a schema of arguments with these properties, none of them required."""
    return {"type": "object", "properties": properties}


def kind(schema: Any) -> str:
    return Form(of(a=schema)).field(("a",)).kind


def errors_in(call: Any) -> list[str]:
    with pytest.raises(InvalidArguments) as caught:
        call()
    return [str(each) for each in caught.value.violations]


# Simulates a user who sees one form and fills in another like it, with the inputs that a page has.


def copy_as_user(seen: Form, typed: Form, path: Any = ()) -> None:
    """Copy the values that a form shows into another form, field by field."""
    field = seen.field(path)
    if seen.value(path) is None and field.nullable:
        typed.set_value(path, None)
        return
    if field.kind == "variant":
        chosen = seen.chosen(path)
        if chosen is None:
            typed.set_value(path, seen.value(path))
            return
        typed.choose(path, chosen)
    shown, here = seen.shape(path), typed.shape(path)
    assert shown is not None
    assert here is not None
    if shown.kind == "object":
        fill_object(seen, typed, path)
    elif shown.kind == "map":
        typed.set_value(path, {})
        for each in seen.fields(path):
            copy_as_user(seen, typed, typed.add_entry(path, each.name))
    elif shown.kind == "list" and here.kind == "list":
        typed.set_value(path, [])
        for _ in seen.fields(path):
            copy_as_user(seen, typed, typed.add_item(path))
    elif shown.kind in ("boolean", "choice", "choices"):
        typed.set_value(path, seen.value(path))
    elif shown.kind == "file" and (content := decode(seen.text(path))) is not None:
        typed.set_file(path, content)
    elif shown.kind.removeprefix("long_") == here.kind.removeprefix("long_"):
        typed.set_text(path, seen.text(path))
    else:  # an odd value, such as any text where a date is expected
        typed.set_value(path, seen.value(path))


def decode(text: str) -> bytes | None:
    """Return the contents of an uploaded file; None for base64 that no upload produces, so that it is pasted."""
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return content if base64.b64encode(content).decode() == text else None


def fill_object(seen: Form, typed: Form, path: Any) -> None:
    typed.give(path)
    given = [each for each in seen.fields(path) if seen.is_given(each.path)]
    for each in typed.fields(path):
        if each.path not in [one.path for one in given]:
            typed.clear(each.path)
    for each in given:
        if each.path not in [one.path for one in typed.fields(path)]:
            typed.add_entry(path, each.name)
        copy_as_user(seen, typed, each.path)


def same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def check_round_trip(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Check that valid arguments are shown without errors and that a user can fill them in."""
    seen = Form(schema, arguments)
    assert same(seen.arguments(), arguments)
    assert seen.check() == {}
    typed = Form(schema)
    copy_as_user(seen, typed)
    assert same(typed.arguments(), arguments)
    assert typed.check() == {}


# Schemas, and values that fit them.

NAMES = st.sampled_from(["a", "b.c", "d[0]", "x y", "type", "", "\x1b[31m", "ü", "kind"])
TEXTS = st.text(max_size=8) | st.sampled_from(["", "null", "1", "a\nb", "yes", '"', " "])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)
LEAVES = st.one_of(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "string", "maxLength": 500},
            {"type": "string", "format": "date"},
            {"type": "string", "format": "date-time"},
            {"type": "string", "contentEncoding": "base64"},
            {"type": "integer"},
            {"type": "integer", "minimum": 0},
            {"type": "number"},
            {"type": "boolean"},
            {"type": "null"},
            {"type": ["string", "null"]},
            {"type": ["integer", "string", "boolean"]},
            {"type": "object"},
            {"type": "array"},
            {},
            True,
            {"$ref": "#/$defs/tree"},
        ]
    ),
    st.lists(SCALARS, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    SCALARS.map(lambda value: {"const": value}),
)


def nest(inner: Any) -> Any:
    tables = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda items: {
                "type": "array",
                "prefixItems": items,
                "minItems": len(items),
                "maxItems": len(items),
            }
        ),
        inner.map(lambda each: {"type": "object", "additionalProperties": each}),
        tables.map(lambda table: {"type": "object", "properties": table, "required": sorted(table)[:1]}),
        tables.map(lambda table: {"properties": table, "type": "object", "additionalProperties": False}),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options}),
        inner.map(lambda each: {"anyOf": [each, {"type": "null"}]}),
        inner.map(lambda each: {"allOf": [each], "description": "d"}),
    )


TREE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
    },
    "required": ["name"],
}
SCHEMAS = st.dictionaries(NAMES, st.recursive(LEAVES, nest, max_leaves=6), max_size=4).map(
    lambda table: {"type": "object", "properties": table, "$defs": {"tree": TREE}}
)


@st.composite
def fitting(draw: Any, schema: Any, root: dict[str, Any], depth: int = 5) -> Any:  # noqa: PLR0911
    """Draw a value that usually fits the schema."""
    if not isinstance(schema, dict) or depth == 0:
        return draw(ANYTHING if depth else SCALARS)
    schema = {key: value for key, value in schema.items() if value is not None}
    if "$ref" in schema:
        return draw(fitting(resolve(schema["$ref"], root), root, depth - 1))
    for union in ("anyOf", "oneOf"):
        if union in schema:
            base = {key: value for key, value in schema.items() if key not in (union, "description", "title")}
            branch = draw(st.sampled_from(schema[union]))
            return draw(fitting({**base, **branch} if isinstance(branch, dict) else base, root, depth))
    if schema.get("allOf"):
        parts = [each for each in schema["allOf"] if isinstance(each, dict)]
        first, *others = [resolve(each["$ref"], root) if "$ref" in each else each for each in parts] or [{}]
        merged = {**first}
        for each in others:
            merged["properties"] = {**merged.get("properties", {}), **each.get("properties", {})}
            merged["required"] = [*merged.get("required", ()), *each.get("required", ())]
        return draw(fitting(merged, root, depth))
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if "const" in schema:
        return schema["const"]
    type_name = schema.get("type")
    if isinstance(type_name, list):
        type_name = draw(st.sampled_from(type_name))
    if type_name == "object" or (type_name is None and "properties" in schema):
        known, required = schema.get("properties", {}), schema.get("required", ())
        chosen = [each for each in known if each in required or (depth > 1 and draw(st.booleans()))]
        value = {each: draw(fitting(known[each], root, depth - 1)) for each in chosen}
        if schema.get("additionalProperties") is not False and draw(st.booleans()):
            others = schema.get("additionalProperties", True)
            for name in draw(st.sets(NAMES, max_size=2)) - known.keys():
                value[name] = draw(fitting(others, root, depth - 1))
        return value
    if type_name == "array":
        first = [draw(fitting(each, root, depth - 1)) for each in schema.get("prefixItems", ())]
        if first or depth == 1:
            return first
        return draw(st.lists(fitting(schema.get("items", True), root, depth - 1), max_size=3))
    if type_name == "string":
        known = {
            "date": st.dates().map(str),
            "date-time": st.datetimes().map(datetime.isoformat),
            "base64": st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode()),
        }
        form = schema.get("format") or schema.get("contentEncoding")
        return draw(known.get(form, TEXTS) if draw(st.booleans()) else TEXTS)
    numbers = {"integer": st.integers(-3, 2**70), "number": st.floats(-1e9, 1e9) | st.integers(0, 9)}
    return draw({**numbers, "boolean": st.booleans(), "null": st.none()}.get(type_name, ANYTHING))


@settings(max_examples=300, suppress_health_check=FILTERED)
@given(st.data())
def test_valid_arguments_survive_the_form(data):
    """Arguments that fit their schema are shown and read back unchanged, and a user can fill them in."""
    schema = data.draw(SCHEMAS)
    arguments = data.draw(fitting(schema, schema))
    try:
        compile_schema(schema).validate(arguments)
    except InvalidArguments:
        assume(False)
    check_round_trip(schema, arguments)


@settings(max_examples=100)
@given(SCHEMAS, st.dictionaries(NAMES, ANYTHING, max_size=4))
def test_any_arguments_survive_the_form(schema, arguments):
    """Arguments that do not fit are shown unchanged too, because a recorded call may be wrong."""
    form = Form(schema, arguments)
    assert same(form.arguments(), arguments)
    typed = Form(schema)
    copy_as_user(form, typed)
    assert same(typed.arguments(), arguments)


class Colour(IntEnum):
    RED = 1
    BLUE = 2


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"] = "cat"
    lives: Annotated[int, Field(ge=1, le=9)]


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Tree(BaseModel):
    label: str
    children: list["Tree"] = []


@dataclass
class Stop:
    place: str
    at: datetime | None = None


@tool
def travel(
    *,
    stops: list[Stop],
    pet: Annotated[Cat | Dog, Field(discriminator="kind")],
    other: Cat | Dog | None,
    first: date,
    colour: Colour,
    modes: list[Literal["bus", "train"]],
    picture: Base64Bytes,
    size: tuple[int, str],
    tree: Tree,
    prices: dict[str, float] | None = None,
    anything: Any = None,
    count: int | None = 3,
    words: str | list[str] = "",
) -> str:
    """Takes one of each."""
    return ""


def example_schemas() -> dict[str, dict[str, Any]]:
    found = {"travel": travel.json_schema}
    sys.path.insert(0, str(EXAMPLES))  # they import one of their own
    try:
        for name, server in each_example():
            found |= {f"{name}.{one.name}": one.json_schema for one in server.tools.values()}
    finally:
        sys.path.remove(str(EXAMPLES))
    return found


def each_example() -> Iterator[tuple[str, ToolServer[Any]]]:
    for name in ("calculator", "email_agent", "everything", "greeter", "guarded", "integration", "weather"):
        for each in runpy.run_path(str(EXAMPLES / f"{name}.py")).values():
            if isinstance(each, ToolServer):
                yield name, each


REAL = {
    name: schema
    for name, schema in example_schemas().items()
    if schema.get("properties") and "if" not in schema  # values for conditions are not drawn here
}


@settings(max_examples=25, suppress_health_check=FILTERED)
@given(st.data())
@pytest.mark.parametrize("name", REAL)
def test_arguments_of_real_tools_survive_the_form(name, data):
    """Typed functions and the tools of the examples."""
    schema = REAL[name]
    arguments = data.draw(fitting(schema, schema))
    try:
        compile_schema(schema).validate(arguments)
    except InvalidArguments:
        assume(False)
    check_round_trip(schema, arguments)


@pytest.mark.anyio
@pytest.mark.parametrize("tangled", [False, True])
async def test_arguments_of_openapi_operations_survive_the_form(tangled):
    """Schemas of operations refer to each other in cycles."""
    server = OpenAPI(ordinary(10, tangled=tangled), base_url="http://127.0.0.1:9", environ={})
    async with connect(server) as client:
        await server.loaded()
        tools = await client.list_tools()
    assert len(tools) == 10
    for each in tools:
        schema = each.input_schema
        form = Form(schema)
        assert all(one.kind != "json" for one in form.fields())
        check_arguments_of(schema)


def check_arguments_of(schema: dict[str, Any]) -> None:
    @settings(max_examples=10, database=None, suppress_health_check=FILTERED)
    @given(fitting(schema, schema))
    def check(arguments):
        try:
            compile_schema(schema).validate(arguments)
        except InvalidArguments:
            return
        check_round_trip(schema, arguments)

    check()


# Kinds.


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "maxLength": 5_000}, "long_text"),
        ({"type": "string", "contentMediaType": "text/markdown"}, "long_text"),
        ({"type": "string", "contentMediaType": "image/png"}, "file"),
        ({"type": "string", "contentEncoding": "base64", "contentMediaType": "text/plain"}, "file"),
        ({"type": "string", "format": "binary"}, "file"),
        ({"type": "string", "format": "byte"}, "file"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "date-time"),
        ({"type": "string", "format": "email"}, "text"),
        ({"type": "integer"}, "integer"),
        ({"type": "number"}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"enum": [1, "1", None, {"a": 1}]}, "choice"),
        ({"const": 5}, "choice"),
        ({"type": "null"}, "choice"),
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}, "choice"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "choices"),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b"}]}}, "choices"),
        ({"type": "array", "items": {"type": "string"}}, "list"),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "list"),
        ({"type": "array", "items": [{"type": "string"}]}, "list"),
        ({"type": "array"}, "json"),
        ({"type": "object", "properties": {"x": {}}}, "object"),
        ({"properties": {"x": {}}, "oneOf": [{"required": ["x"]}, {"required": ["y"]}]}, "object"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map"),
        ({"type": "object", "patternProperties": {"^x": {"type": "integer"}}}, "map"),
        ({"type": "object"}, "json"),
        ({"type": ["string", "integer"]}, "variant"),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "variant"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer"),
        ({"type": ["integer", "null"]}, "integer"),
        ({}, "json"),
        ({"not": {"type": "string"}}, "json"),
        (False, "json"),
    ],
)
def test_a_schema_becomes_a_field_of_its_kind(schema, expected):
    """Each schema becomes one of the kinds that a page can draw, or JSON."""
    assert kind(schema) == expected


def test_a_field_tells_what_the_schema_tells():
    """Title, description, default, examples, limits, and whether it must be given or may be null."""
    schema = of(
        age={
            "anyOf": [{"type": "integer", "minimum": 0, "exclusiveMaximum": 150}, {"type": "null"}],
            "title": "Age",
            "description": "In years.",
            "default": None,
            "examples": [7],
        },
        zip={"type": "string", "pattern": "^[0-9]{5}$", "minLength": 5, "format": "zip"},
    )
    schema["required"] = ["zip"]
    age, code = Form(schema).fields()
    assert (age.name, age.title, age.description) == ("age", "Age", "In years.")
    assert (age.required, age.nullable, age.default, age.examples) == (False, True, None, (7,))
    assert age.limits == ("at least 0", "less than 150")
    assert (code.title, code.required, code.nullable, code.default) == ("zip", True, False, MISSING)
    assert code.limits == ("at least 5 characters", "must match ^[0-9]{5}$", "format zip")


def test_a_field_has_its_own_title_and_not_that_of_its_model():
    """Two addresses are distinguished by their names."""
    schema = of(home={"$ref": "#/$defs/A"}, work={"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]})
    schema["$defs"] = {"A": {"title": "Address", "description": "Where.", **of(street={"type": "string"})}}
    assert [(each.title, each.description, each.kind) for each in Form(schema).fields()] == [
        ("home", "Where.", "object"),
        ("work", "Where.", "object"),
    ]


def test_choices_have_distinct_labels():
    """1 and "1" are two choices; null among other values makes the field nullable."""
    field = Form(of(a={"enum": [1, "1", True, "", None, 1]})).field(("a",))
    assert field.choices == (1, "1", True, "")
    assert field.labels == ("1", "1 (2)", "true", '""')
    assert field.nullable
    titled = {"oneOf": [{"const": "r", "title": "Red"}, {"const": "b"}]}
    assert Form(of(a=titled)).field(("a",)).labels == ("Red", "b")
    assert Form(of(a={"enum": ["r", "b"], "enumNames": ["Red", "Blue"]})).field(("a",)).labels == (
        "Red",
        "Blue",
    )


def test_a_choice_is_made_by_value_or_label():
    """This also holds for values that are equal in Python, such as 1 and True."""
    form = Form(of(a={"enum": [1, True]}))
    form.set_text(("a",), "true")
    assert form.value(("a",)) is True
    form.set_value(("a",), 1)
    assert form.text(("a",)) == "1"
    form.set_text(("a",), "2")
    assert form.check() == {("a",): ["'2' is not one of the choices"]}


# What is typed.


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "", ""),
        ({"type": "string"}, " null ", " null "),
        ({"type": "integer"}, " 36 ", 36),
        ({"type": "integer"}, "9" * 30, int("9" * 30)),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "boolean"}, "yes", True),
        ({"type": "string", "format": "date"}, "2026-01-31", "2026-01-31"),
        ({}, '{"a": [1]}', {"a": [1]}),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
    ],
)
def test_typed_text_is_read_by_kind(schema, text, value):
    """It is read as text, number, yes or no, date or JSON."""
    form = Form(of(a=schema))
    form.set_text(("a",), text)
    assert same(form.arguments(), {"a": value})


@pytest.mark.parametrize(
    ("schema", "text", "reason"),
    [
        ({"type": "integer"}, "abc", "not of type"),
        ({"type": "integer"}, "1.5", "not of type"),
        ({"type": "number"}, "1,5", "not of type"),
        ({"type": "number"}, "NaN", "not of type"),
        ({"type": "boolean"}, "maybe", "yes or no"),
        ({"type": "string", "format": "date"}, "tomorrow", "not a date"),
        ({"type": "string", "format": "date-time"}, "noon", "not a date and time"),
        ({"type": "string", "format": "byte"}, "ab$=", "not base64"),
        ({"type": "string", "format": "byte"}, "ü", "not base64"),
        ({}, "{", "not JSON"),
        ({}, "[" * 5_000, "not JSON"),
        ({}, "\ud800", "not JSON"),
    ],
)
def test_text_that_cannot_be_read_is_an_error_at_its_field(schema, text, reason):
    """The text stays in the input and the arguments are refused, until the text is corrected or removed."""
    form = Form(of(a=schema, b={"type": "string"}))
    form.set_text(("b",), "x")
    form.set_text(("a",), text)
    assert form.text(("a",)) == text
    assert list(form.check()) == [("a",)]
    assert reason in form.check()["a",][0]
    assert not form.is_given(("a",))
    assert len(errors_in(form.arguments)) == 1
    form.clear(("a",))
    assert form.arguments() == {"b": "x"}


def test_null_empty_and_not_given_are_three_things():
    """An optional text may be null, empty or missing."""
    form = Form(of(a={"type": ["string", "null"]}))
    assert (form.arguments(), form.is_given(("a",))) == ({}, False)
    form.set_text(("a",), "")
    assert form.arguments() == {"a": ""}
    form.set_value(("a",), None)
    assert form.arguments() == {"a": None}
    assert form.field(("a",)).kind == "text"
    form.clear(("a",))
    assert form.arguments() == {}


def test_a_number_that_is_emptied_is_not_given():
    """The input of a number has no other way to remove it."""
    form = Form(of(a={"type": "integer"}), {"a": 5})
    form.set_text(("a",), "")
    assert form.arguments() == {}


def test_a_file_becomes_base64():
    """The base64 alphabet is that of the schema."""
    form = Form(
        of(a={"type": "string", "format": "byte"}, b={"type": "string", "contentEncoding": "base64url"})
    )
    form.set_file(("a",), b"\xfb\xff")
    form.set_file(("b",), b"\xfb\xff")
    assert form.arguments() == {"a": "+/8=", "b": "-_8="}
    assert [each.kind for each in form.fields()] == ["file", "file"]


def test_nested_values_make_the_objects_around_them():
    """A street that is filled in also makes the address around it."""
    form = Form(of(home=of(address=of(street={"type": "string"}))))
    form.set_text(("home", "address", "street"), "Main St")
    assert form.arguments() == {"home": {"address": {"street": "Main St"}}}


def test_changing_the_result_changes_nothing_in_the_form():
    """Nor do later changes of the values that were passed in."""
    given_list = [1]
    form = Form(of(a={}), {"a": given_list})
    given_list.append(2)
    form.arguments()["a"].append(3)
    assert form.arguments() == {"a": [1]}


def test_values_that_are_not_json_are_refused():
    """They are refused at once, and nothing changes."""
    form = Form(of(a={}), {"a": 1})
    errors_in(lambda: form.set_value(("a",), float("nan")))
    errors_in(lambda: form.set_arguments({"a": object()}))
    assert form.arguments() == {"a": 1}


@pytest.mark.parametrize("path", [("a", "b"), ("a", 0), (0,)])
def test_a_path_that_leads_nowhere_is_a_key_error(path):
    """A number has no members, and the arguments have no indexes."""
    form = Form(of(a={"type": "integer"}))
    for change in (form.field, form.clear, lambda path: form.set_value(path, 1), form.add_item):
        with pytest.raises(KeyError):
            change(path)


# Lists, maps, variants.


def test_list_items_are_added_moved_and_removed():
    """Text that could not be read moves with its item."""
    form = Form(of(a={"type": "array", "items": {"type": "integer"}}))
    for text in ("1", "x", "3"):
        form.set_text(form.add_item(("a",)), text)
    assert [form.text(each.path) for each in form.fields(("a",))] == ["1", "x", "3"]
    assert form.move_item(("a", 1), 0) == ("a", 0)
    assert [form.text(each.path) for each in form.fields(("a",))] == ["x", "1", "3"]
    assert list(form.errors()) == [("a", 0)]
    form.remove(("a", 0))
    assert form.arguments() == {"a": [1, 3]}
    assert form.errors() == {}
    form.remove(("a", 0))
    form.remove(("a", 0))
    assert form.arguments() == {"a": []}


def test_an_item_that_is_not_filled_in_is_an_error():
    """It has a place in the list, so it cannot be left out."""
    form = Form(of(a={"type": "array", "items": {"type": "integer"}}))
    added = form.add_item(("a",))
    assert form.check() == {added: ["Field required"]}
    form.set_text(added, "5")
    form.set_text(added, "")
    assert form.check() == {added: ["Field required"]}


def test_a_list_of_fixed_length_has_its_items_at_once():
    """Each item has its own kind."""
    pair = {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "integer"}],
        "minItems": 2,
        "maxItems": 2,
    }
    form = Form(of(a=pair))
    assert form.field(("a",)).is_fixed
    form.give(("a",))
    assert [each.kind for each in form.fields(("a",))] == ["text", "integer"]
    form.set_text(("a", 1), "7")
    assert form.arguments() == {"a": ["", 7]}


def test_a_choice_that_python_takes_for_another_is_not_picked():
    """True is not 1, neither in a single choice nor in a multiple one."""
    form = Form(of(one={"enum": [1, True]}, many={"type": "array", "items": {"enum": [0, False, 1, True]}}))
    assert (form.picked(("one",)), form.picked(("many",))) == ([], [])
    form.set_value(("one",), True)
    form.set_value(("many",), [True, 0])
    assert (form.picked(("one",)), form.picked(("many",))) == ([1], [0, 3])


def test_entries_of_a_map_are_added_and_removed():
    """A name that exists already is refused."""
    form = Form(of(a={"type": "object", "additionalProperties": {"type": "integer"}}))
    form.set_text(form.add_entry(("a",), "x"), "1")
    form.set_text(form.add_entry(("a",), "y"), "no")
    with pytest.raises(ValueError, match="already an entry named 'y'"):
        form.add_entry(("a",), "y")
    assert form.text(("a", "y")) == "no"
    form.set_text(("a", "y"), "2")
    assert form.arguments() == {"a": {"x": 1, "y": 2}}
    form.remove(("a", "x"))
    assert form.arguments() == {"a": {"y": 2}}


PETS = {
    "type": "object",
    "properties": {"pet": {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}, {"type": "null"}]}},
    "$defs": {
        "Cat": {
            "title": "A cat",
            "type": "object",
            "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
            "required": ["lives"],
        },
        "Dog": {
            "type": "object",
            "properties": {"kind": {"const": "dog"}, "name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["kind", "name"],
        },
    },
}


def test_a_variant_is_chosen_by_its_title_and_begins_with_what_tells_it_apart():
    """The user need not type the constant of a discriminator."""
    form = Form(PETS)
    pet = form.field(("pet",))
    assert (pet.kind, pet.labels, pet.nullable) == ("variant", ("A cat", "Dog"), True)
    assert form.shape(("pet",)) is None
    form.choose(("pet",), 1)
    assert form.arguments() == {"pet": {"kind": "dog"}}
    assert [each.name for each in form.fields(("pet",))] == ["kind", "name", "age"]
    form.choose(("pet",), 0)
    assert form.arguments() == {"pet": {"kind": "cat"}}
    form.set_value(("pet",), None)
    assert form.chosen(("pet",)) is None
    assert form.arguments() == {"pet": None}


def test_the_variant_of_given_arguments_is_the_one_that_they_fit():
    """The variant is found by constants, required names and types; a value that fits none is shown as JSON."""
    assert Form(PETS, {"pet": {"kind": "dog", "name": "Rex"}}).chosen(("pet",)) == 1
    assert Form(PETS, {"pet": {"lives": 9}}).chosen(("pet",)) == 0
    odd = Form(PETS, {"pet": 5})
    assert odd.chosen(("pet",)) is None
    assert odd.shape(("pet",)).kind == "json"
    assert odd.text(("pet",)) == "5"


def test_a_chosen_variant_stays_while_the_user_types():
    """Text that would also fit an earlier variant does not change the field under the user's hands."""
    form = Form(
        of(a={"anyOf": [{"type": "string"}, {"type": "string", "format": "date"}, {"type": "integer"}]})
    )
    form.choose(("a",), 2)
    form.set_text(("a",), "x")
    assert (form.chosen(("a",)), form.shape(("a",)).kind) == (2, "integer")
    form.set_text(("a",), "5")
    assert form.arguments() == {"a": 5}
    form.choose(("a",), 1)
    form.set_text(("a",), "2026-01-31")
    assert form.chosen(("a",)) == 1


def test_a_recursive_schema_is_opened_level_by_level():
    """Fields are made when they are asked for."""
    form = Form({"type": "object", "properties": {"tree": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": TREE}})
    path: Any = ("tree",)
    for _ in range(5):
        path = form.add_item((*path, "children"))
        form.set_text((*path, "name"), "n")
    assert form.field(path).kind == "object"
    assert len(form.fields(())) == 1


# Errors at their fields.


def test_errors_of_validation_stand_at_their_fields():
    """Values may be missing, of the wrong type, out of range or unknown, also in nested objects and lists."""
    schema = {
        **of(
            who=of(age={"type": "integer", "minimum": 0}),
            tags={"type": "array", "items": {"type": "string", "maxLength": 2}},
            name={"type": "string"},
        ),
        "required": ["name"],
        "additionalProperties": False,
    }
    form = Form(schema, {"who": {"age": -1}, "tags": ["a", "bcd"], "more": 1})
    found = form.check()
    assert found.keys() == {("who", "age"), ("tags", 1), ("name",), ("more",)}
    assert found["name",] == ["Field required"]
    assert found["more",][0].startswith("Unknown argument")


def test_an_error_in_a_variant_stands_at_the_field_inside_it():
    """The error is not one of the union with the reasons why each branch does not fit."""
    form = Form(PETS, {"pet": {"kind": "dog", "name": "Rex", "age": "old"}})
    assert form.chosen(("pet",)) == 1
    assert form.check() == {("pet", "age"): ["Input should be of type integer, got 'old'"]}
    form = Form(PETS)
    form.choose(("pet",), 0)
    assert form.check() == {("pet", "lives"): ["Field required"]}


def test_an_error_in_a_form_of_variants_names_its_field_as_the_server_does():
    """This includes a missing name that has no field."""
    cat = {**of(kind={"const": "cat"}), "required": ["kind", "lives"]}
    form = Form({"anyOf": [cat, {**of(size={"const": 1}), "required": ["size"]}]}, {"kind": "cat"})
    assert form.check() == {(): ["lives: Field required"]}


def test_an_error_in_an_optional_list_of_models_stands_at_its_field():
    """It is found through several levels of unions."""
    inner = of(n={"type": "integer"})
    optional = {"anyOf": [{"type": "array", "items": {"anyOf": [inner, {"type": "null"}]}}, {"type": "null"}]}
    form = Form(of(a=optional), {"a": [{"n": 1}, None, {"n": "x"}]})
    assert list(form.check()) == [("a", 2, "n")]


def test_what_cannot_be_read_has_one_error_and_not_two():
    """A value that cannot be read is not also reported as missing, and the object around it is not reported."""
    form = Form({**of(a={"type": "integer"}, b={"type": "integer"}), "required": ["a", "b"]})
    form.set_text(("a",), "x")
    assert form.check().keys() == {("a",), ("b",)}
    assert len(form.check()["a",]) == 1
    nested = Form(of(a={"anyOf": [of(n={"type": "integer"}), {"type": "null"}]}))
    nested.set_text(("a", "n"), "x")
    assert nested.check().keys() == {("a", "n")}


@pytest.mark.parametrize(
    ("path", "field", "message"),
    [
        ("", (), "no"),
        ("who.age", ("who", "age"), "no"),
        ("tags[1]", ("tags", 1), "no"),
        ("tags[7]", ("tags",), "[7]: no"),
        ("a.b", ("a.b",), "no"),
        ("a.b.c", ("a.b", "c"), "no"),
        ("raw[0].x", ("raw",), "[0].x: no"),
        ("who.nobody", ("who",), "nobody: no"),
        ("nobody.else", (), "nobody.else: no"),
        ("whole", (), "whole: no"),
        ("z" * 77 + "...", ("z" * 90,), "no"),
    ],
)
def test_a_violation_is_found_by_its_path(path, field, message):
    """Names may contain dots. Errors inside a field without fields belong to that field, any others to the form."""
    schema = of(
        **{"who": of(age={}), "a": of(b={}), "a.b": of(c={}), "raw": {}, "z" * 90: {}},
        tags={"type": "array", "items": {"type": "string"}},
    )
    form = Form(schema, {"tags": ["a", "b"], "raw": [{"x": 1}]})
    assert form.locate([Violation(path, "no")]) == {field: [message]}


def test_the_text_of_a_server_is_taken_apart():
    """The text has toolwire's wording, and a message may contain semicolons and colons itself."""
    schema = of(a={"type": "integer"}, b=of(c={"type": "string", "pattern": "x; y: z"}))
    form = Form(schema, {"a": "1", "b": {"c": ""}})
    with pytest.raises(InvalidArguments) as caught:
        compile_schema(schema).validate(form.arguments())
    expected = form.locate(caught.value.violations)
    assert expected.keys() == {("a",), ("b", "c")}
    assert form.locate(str(caught.value)) == expected
    assert form.locate(f"Error: {caught.value}; ... and 3 more") == {**expected, (): ["... and 3 more"]}
    assert form.locate("It broke") == {(): ["It broke"]}


# Schemas that are hostile, or make no sense.


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = of(a=schema)
    return schema


LOOP = {"$ref": "#/$defs/a"}
HOSTILE: dict[str, Any] = {
    "deep": nested(1_000),
    "deep lists": of(a=json.loads('{"items":' * 300 + "{}" + "}" * 300)),
    "many properties": of(**{f"p{number}": {"type": "string"} for number in range(10_000)}),
    "properties are a list": {"type": "object", "properties": ["a"]},
    "properties are not schemas": of(a=5, b=None, c=[], d="x"),
    "required is not a list": {**of(a={}), "required": 5},
    "required has odd names": {**of(a={}), "required": [{}, ["x"], 5, "a"]},
    "a large enum": of(a={"enum": [f"v{number}" for number in range(5_000)]}, b={"enum": list(range(5_000))}),
    "an odd enum": of(a={"enum": 5}, b={"enum": []}, c={"enum": [[], {}, [[]], 1.0, 1, True]}),
    "odd types": of(a={"type": 5}, b={"type": {}}, c={"type": [5, {}]}, d={"type": "no such"}),
    "odd texts": of(a={"title": 5, "description": [], "examples": "x", "pattern": 7, "minimum": "z"}),
    "control characters": of(**{"\x1b[31m\r\n\0": {"type": "string", "title": "\x1b]0;x\x07\u202e"}}),
    "a reference to itself": {**of(a=LOOP), "$defs": {"a": LOOP}},
    "all of itself": {**of(a=LOOP), "$defs": {"a": {"allOf": [LOOP] * 10}}},
    "any of itself": {**of(a=LOOP), "$defs": {"a": {"anyOf": [LOOP, LOOP, {"type": "string"}]}}},
    "a list of itself": {**of(a=LOOP), "$defs": {"a": {"type": "array", "items": LOOP}}},
    "an item is the list": {**of(a=LOOP), "$defs": {"a": {"type": "array", "items": {"anyOf": [LOOP] * 9}}}},
    "references nowhere": of(
        a={"$ref": "#/no"}, b={"$ref": "http://x.invalid/y"}, c={"$ref": 5}, d={"$ref": "#x"}
    ),
    "odd unions": of(a={"anyOf": 5}, b={"anyOf": []}, c={"oneOf": [5, None, False]}, d={"allOf": {"x": 1}}),
    "many branches": of(a={"anyOf": [of(**{f"x{number}": {}}) for number in range(1_000)]}),
    "odd items": of(a={"type": "array", "items": 5}, b={"type": "array", "prefixItems": [5, None]}),
    "odd tables": of(a={"type": "object", "additionalProperties": 5, "patternProperties": []}),
    "a slow pattern": of(a={"type": "object", "patternProperties": {"(a+)+$": {}, "(b+)+$": {}}}),
    "an odd default": of(a={"type": "integer", "default": [object()]}),
    "not an object": {"type": "string"},
    "nothing": None,
    "a list": [1],
    "true": True,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_schema_breaks_the_form(name):
    """Every field can be drawn, filled in, cleared and checked, and there are few enough for a page."""
    form = Form(HOSTILE[name])
    form.set_arguments({"a": {"a": [{"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"}]}, "p1": "x"})
    for values in (form.arguments(), {}, {"a": ["x"]}, {"a": "v1"}):
        form.set_arguments(values)
        left, drawn = [form.root], 0
        while left and drawn < 200:
            each, drawn = left.pop(), drawn + 1
            assert each.title.isprintable()
            form.text(each.path)
            form.shape(each.path)
            left += form.fields(each.path)
            assert len(left) <= 1_000
        assert same(form.arguments(), values)
        form.check()
    for each in form.fields():
        form.set_text(each.path, "1")
        form.give(each.path)
        form.clear(each.path)
    form.locate([Violation(".".join(["a"] * 500), "x"), Violation("[" * 100, "x")])
    form.locate("Validation failed: " + "a: x; " * 10_000)


@pytest.mark.parametrize("name", ["many properties", "properties are a list"])
def test_what_is_too_much_for_a_page_is_one_field_of_json(name):
    """It can still be filled in, as JSON."""
    form = Form(HOSTILE[name])
    assert form.root.kind == "json"
    form.set_text((), '{"p1": "x"}')
    assert form.arguments() == {"p1": "x"}
    form.set_text((), "[1]")
    assert errors_in(form.arguments) == ["The arguments must be an object, with a name for each value"]


def test_many_choices_are_typed():
    """They are typed as text if they are strings, and the form shows how many there are."""
    form = Form(HOSTILE["a large enum"])
    assert [(each.kind, each.limits) for each in form.fields()] == [
        ("text", ("one of 5000 values",)),
        ("json", ("one of 5000 values",)),
    ]
    form.set_text(("a",), "nope")
    assert list(form.check()) == [("a",)]


def test_a_schema_that_cannot_be_compiled_is_left_to_the_server():
    """The form then does not check, and says why."""
    form = Form(of(a={"type": "no such"}), {"a": 1})
    assert form.check() == {}
    assert "not valid" in form.schema_error
    assert Form(of(a={"type": "string"})).schema_error is None


def test_names_that_look_like_paths_do_not_take_for_ever():
    """The readings of a path are tried up to a limit."""
    schema = {"$ref": "#/$defs/a", "$defs": {"a": of(**{"x": LOOP, "x.x": LOOP, "x.x.x": LOOP})}}
    form = Form(schema)
    found = form.locate([Violation("x" + ".x" * 400 + ".y", "no")])
    assert len(found) == 1


@pytest.mark.parametrize(
    ("schema", "text"), [({"format": "base64"}, "+/8="), ({"format": "base64url"}, "-_8=")]
)
def test_pydantics_own_formats_of_base64_are_files(schema, text):
    """`Base64Bytes` and `Base64UrlBytes` are uploaded, each in its alphabet."""
    form = Form({"type": "object", "properties": {"file": {"type": "string", **schema}}})
    assert form.field(("file",)).kind == "file"
    form.set_file(("file",), b"\xfb\xff")
    assert form.arguments() == {"file": text}
