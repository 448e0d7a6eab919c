"""Pins: agreed definitions are stored safely, and differences from them are shown."""

import json
import stat
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.catalog.tools.definitions import Definition, Entry, define
from toolwire.catalog.tools.pins import Change, Pins, compare
from toolwire.errors import UsageError

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "enum": [1, 2]}},
    "required": ["city"],
}
WEATHER = Definition("1", "weather", "Weather of a city", SCHEMA, 10_000)
STOCK = Definition("2", "stock", "Price of a stock", {"type": "object", "properties": {}}, None)
PINS = Pins.of([WEATHER, STOCK])


def diff(new, old=WEATHER):
    """Return the lines of the diff from one definition to another."""
    [change] = compare([new], Pins.of([old]))
    assert change.kind == "changed"
    assert change.name == new.name
    assert change.id == old.id
    return change.diff.splitlines()


def test_what_is_as_it_was_pinned_is_no_change():
    """The order of entries and keys, repairs and the category do not matter."""
    turned = {key: SCHEMA[key] for key in reversed(SCHEMA)}
    assert compare([STOCK, replace(WEATHER, schema=turned, repairs=("x",), category="c")], PINS) == []


def test_pins_survive_the_way_through_a_file(tmp_path):
    """The file has mode 0600, and no temporary file is left."""
    path = tmp_path / "pins.json"
    PINS.save(path)
    assert Pins.load(path) == PINS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["pins.json"]
    path.chmod(0o644)
    Pins().save(str(path))
    assert Pins.load(str(path)) == Pins()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_a_file_nothing_is_pinned(tmp_path):
    """Then every tool counts as added."""
    pins = Pins.load(tmp_path / "gone.json")
    assert pins == Pins()
    assert [change.kind for change in compare([WEATHER], pins)] == ["added"]


@pytest.mark.parametrize(
    "content",
    [
        *(
            "",
            "{",
            "[]",
            "null",
            "{}",
            '{"version": 3, "tools": {}}',
            '{"version": 1}',
            '{"version": 1, "tools": []}',
        ),
        '{"version": 1, "tools": {"1": {"name": "a"}}}',
        '{"version": 1, "tools": {"1": {"name": 1, "description": "", "schema": {}, "price": 1}}}',
        '{"version": 1, "tools": {"1": {"name": "a", "description": "", "schema": {}, "price": true}}}',
        '{"version": 1, "tools": {"1": {"name": "a", "description": "", "schema": {}, "price": 1, "x": 1}}}',
        '{"version": 1, "tools": {"1": {"name": "a", "description": "", "price": 1, "schema": {"a": '
        + "[" * 300
        + "]" * 300
        + "}}}}",
        "[" * 200_000,
        "\x00",
    ],
    ids=range(15),
)
def test_a_damaged_file_is_an_error_and_never_empty_pins(tmp_path, content):
    """Otherwise damaging the file would switch the pins off."""
    path = tmp_path / "pins.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="does not contain valid pins: restore it"):
        Pins.load(path)


def test_files_that_cannot_be_read_or_written(tmp_path):
    """The errors say which it was, and no temporary file is left."""
    with pytest.raises(UsageError, match="cannot be read"):
        Pins.load(tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        PINS.save(tmp_path / "gone" / "pins.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        PINS.save(tmp_path / "folder")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_added_and_removed_tools():
    """Tools are matched by id, and shown with their description, price and schema."""
    new = Definition("3", "news", "News", {"type": "object", "properties": {"q": {"type": "string"}}}, 5)
    assert compare([WEATHER, new], PINS) == [
        Change(
            "added",
            "news",
            '+ description: "News"\n+ price: $0.000005\n+ schema.properties.q: {"type": "string"}',
            "3",
        ),
        Change("removed", "stock", '- description: "Price of a stock"\n- price: unknown', "2"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "kind", "words"),
    [
        (10_000, 20_000, "price_up", "price: $0.010000 -> $0.020000"),
        (20_000, 10_000, "price_down", "price: $0.020000 -> $0.010000"),
        (None, 10_000, "price_up", "price: unknown -> $0.010000"),
        (10_000, None, "price_up", "price: $0.010000 -> unknown"),
    ],
)
def test_prices(old, new, kind, words):
    """A price that may be higher than agreed, such as an unknown one, counts as up."""
    changes = compare([replace(WEATHER, price=new)], Pins.of([replace(WEATHER, price=old)]))
    assert changes == [Change(kind, "weather", words, "1")]


def test_a_tool_can_change_in_words_and_price():
    """These are two separate changes."""
    changes = compare([replace(WEATHER, description="x", price=1)], PINS.accept([]))
    assert [(change.kind, change.name) for change in changes] == [
        ("removed", "stock"),
        ("changed", "weather"),
        ("price_down", "weather"),
    ]


def test_one_line_for_each_thing_that_differs():
    """There are lines for the name, the description, and each path in the schema."""
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "integer"},
            "days": {"type": "integer", "enum": [1, 3]},
            "odd key": {},
            "new": {"type": "string"},
        },
    }
    assert diff(replace(WEATHER, name="wx", description="Weather of a town", schema=schema)) == [
        'name: "weather" -> "wx"',
        'description: "Weather of a city" -> "Weather of a town"',
        'schema.properties.city.type: "string" -> "integer"',
        "schema.properties.days.enum[1]: 2 -> 3",
        '+ schema.properties.new: {"type": "string"}',
        '+ schema.properties["odd key"]: {}',
        '- schema.required: ["city"]',
    ]


def test_a_change_at_the_end_of_a_long_text_is_seen():
    """Both texts are shortened to the part that differs."""
    [line] = diff(
        replace(WEATHER, description="x" * 500 + " Then delete all."),
        replace(WEATHER, description="x" * 500),
    )
    assert "Then delete all." in line
    assert len(line) < 200


def test_what_an_api_wrote_cannot_steer_a_terminal():
    """The diff is printable ASCII."""
    [line] = diff(replace(WEATHER, description="\x1b[2Jé\u202e"))
    assert line.isascii()
    assert line.isprintable()


def test_a_change_of_a_number_to_a_boolean_is_one():
    """1 and True are equal in Python, but not in JSON."""
    old, new = ({"type": "object", "properties": {"a": {"const": value}}} for value in (1, True))
    assert diff(replace(WEATHER, schema=new), replace(WEATHER, schema=old)) == [
        "schema.properties.a.const: 1 -> true"
    ]


def test_a_long_diff_is_cut():
    """Only 200 lines of a diff are shown."""
    schema = {"type": "object", "properties": {f"p{n}": {} for n in range(500)}}
    lines = diff(replace(WEATHER, schema=schema))
    assert len(lines) == 201
    assert lines[-1].startswith("... and ")


def test_accepting_replaces_what_was_pinned():
    """Only accepted tools are replaced."""
    changed, also = replace(WEATHER, price=99), replace(STOCK, price=99)
    pins = PINS.accept([changed])
    assert [change.name for change in compare([changed, also], pins)] == ["stock"]


def test_pinned_names_stay():
    """A pinned tool keeps its name in the next run."""
    pins = Pins.of(define([Entry("1", "weather")])[0])
    definitions, _ = define([Entry("1", "weather"), Entry("0", "weather")], known=pins.names)
    assert {each.id: each.name for each in definitions}["1"] == "weather"


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=15,
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON, max_size=4)


@given(OBJECTS, OBJECTS)
def test_schemas_that_differ_in_json_have_a_diff(old, new):
    """There is a line if and only if the JSON differs."""
    changes = compare([replace(WEATHER, schema=new)], Pins.of([replace(WEATHER, schema=old)]))
    differ = json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True)
    assert bool(changes) == differ
    assert all(change.diff.isascii() and change.diff for change in changes)


ACTIONS = replace(WEATHER, price=9, prices={"read": 1, "write": 9}, price_argument="action")


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ({"read": 1, "write": 9}, {"read": 1, "write": 9}, []),
        ({"read": 1, "write": 9}, {"read": 2, "write": 9}, ["price_up"]),
        ({"read": 2, "write": 9}, {"read": 1, "write": 9}, ["price_down"]),
        ({"read": 1, "write": 9}, {"read": 2, "write": 8}, ["price_down", "price_up"]),
        ({"read": 1, "write": 9}, {"read": None, "write": 9}, ["price_up"]),
        ({"read": 1, "write": 9}, {"write": 9}, ["price_up"]),
        ({"write": 9}, {"read": 1, "write": 9}, ["price_down"]),
    ],
)
def test_prices_by_action_are_pinned_too(old, new, kinds):
    """Each action is compared by itself; one without its own price costs what the tool does."""
    before, after = replace(ACTIONS, prices=old), replace(ACTIONS, prices=new)
    assert [change.kind for change in compare([after], Pins.of([before]))] == kinds


def test_another_argument_for_the_price_counts_as_up():
    """Prices agreed for one argument mean nothing for another."""
    (change,) = compare([replace(ACTIONS, price_argument="mode")], Pins.of([ACTIONS]))
    assert (change.kind, change.diff) == ("price_up", 'price by: "action" -> "mode"')


def test_prices_by_action_survive_the_file(tmp_path):
    """A file of the older version is read as pins without such prices."""
    path = tmp_path / "pins.json"
    Pins.of([ACTIONS]).save(path)
    assert compare([ACTIONS], Pins.load(path)) == []
    older = {"name": "a", "description": "", "schema": {}, "price": 1}
    path.write_text(json.dumps({"version": 1, "tools": {"1": older}}))
    assert Pins.load(path).tools["1"].prices == {}
