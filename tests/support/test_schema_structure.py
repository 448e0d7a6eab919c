"""Every walk through a JSON schema enters the same places: those of draft 2020-12, and of older ones."""

import pytest

from toolwire import ToolDefinitionError
from toolwire._support.schema_structure import iter_subschemas, resolve
from toolwire.catalog.schema_repair.bounds import Unrepairable, check_work
from toolwire.catalog.schema_repair.nodes import repair_nodes
from toolwire.tools.schema.json_schema import compile_schema

# All keywords of draft 2020-12 whose value has schemas in it.
ONE = [
    *("items", "contains", "additionalProperties", "propertyNames", "if", "then", "else", "not"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
]
LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"]
TABLES = ["$defs", "properties", "patternProperties", "dependentSchemas"]
OLDER = {
    "additionalItems": lambda inner: inner,
    "definitions": lambda inner: {"a": inner},
    "dependencies": lambda inner: {"a": inner},
}
PLACES = {
    **dict.fromkeys(ONE, lambda inner: inner),
    **dict.fromkeys(LISTS, lambda inner: [inner]),
    **dict.fromkeys(TABLES, lambda inner: {"a": inner}),
}
IN_PLACE = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"]


def holding(keyword, inner):
    """Return an object schema that has another one at a keyword, one property down."""
    place = {**PLACES, **OLDER}[keyword](inner)
    return {"type": "object", "properties": {"p": {keyword: place}}}


@pytest.mark.parametrize("keyword", [*PLACES, *OLDER])
def test_the_table_has_it(keyword):
    """The schema at the keyword is found, and nothing that only looks like a schema."""
    inner = {"type": "string"}
    node = holding(keyword, inner)["properties"]["p"]
    assert list(iter_subschemas({**node, "const": {"type": "x"}, "enum": [{}]})) == [(keyword, inner)]


@pytest.mark.parametrize("keyword", [*PLACES, *OLDER])
def test_the_compiler_enters_it(keyword):
    """A reference to another document is refused wherever it is."""
    with pytest.raises(ToolDefinitionError, match="not inside it"):
        compile_schema(holding(keyword, {"$ref": "https://example.com/other"}))


@pytest.mark.parametrize("keyword", [*PLACES, *OLDER])
def test_the_repair_enters_it(keyword):
    """A misspelt type is repaired wherever it is, and a reference to another document refused."""
    found = repair_nodes(holding(keyword, {"type": "int"}), lambda where, what: None)
    assert '"int"' not in repr(found).replace("'", '"')
    with pytest.raises(Unrepairable, match="outside the schema"):
        repair_nodes(holding(keyword, {"$ref": "https://example.com/other"}), lambda where, what: None)


@pytest.mark.parametrize("keyword", IN_PLACE)
@pytest.mark.parametrize("reference", ["$ref", "$dynamicRef", "$recursiveRef"])
def test_the_bound_on_work_counts_it(keyword, reference):
    """Schemas that refer to each other twice per level are too much, by whatever keyword."""
    twice = {f"{number}": {reference: f"#/$defs/{number + 1}"} for number in range(20)}
    defs = {
        name: {keyword: PLACES[keyword](each), "allOf": [each, each]}
        if keyword != "allOf"
        else {"allOf": [each] * 2}
        for name, each in twice.items()
    }
    with pytest.raises(Unrepairable, match="multiply"):
        check_work({"type": "object", "$defs": {**defs, "20": {}}, reference: "#/$defs/0"})


def test_a_list_of_items_is_entered():
    """Older drafts have `items` as a list."""
    assert [each for _, each in iter_subschemas({"items": [{"a": 1}, True]})] == [{"a": 1}, True]


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", "root"),
        ("#/$defs/a", "a"),
        ("#/$defs/a~1b", "a/b"),
        ("#/$defs/a%20b", "a b"),
        ("#/allOf/1", "second"),
        ("#here", "anchored"),
        ("#/$defs/none", None),
        ("#/allOf/7", None),
        ("#/allOf/x", None),
        ("#nowhere", None),
        ("#data", None),
        ("other.json", None),
    ],
)
def test_a_reference_is_resolved(reference, found):
    """References are resolved by pointer and by anchor, inside the document only; data is no schema."""
    root = {
        "title": "root",
        "$defs": {name: {"title": name} for name in ("a", "a/b", "a b")},
        "allOf": [{}, {"title": "second"}],
        "then": {"$anchor": "here", "title": "anchored"},
        "const": {"$anchor": "data"},
    }
    target = resolve(reference, root)
    assert (None if target is None else target["title"]) == found
