"""Undocumented forms of `input_schema` that the official SDK accepts."""

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from pydantic import BaseModel

from toolwire import Tool, ToolDefinitionError, ToolwireWarning, tool


class NoSchema:
    """A class that says nothing about JSON."""


class Unfinished(TypedDict):
    a: "NoSuchName"  # type: ignore[name-defined]  # noqa: F821


class Model(BaseModel):
    a: int


async def handler(args: Any) -> dict[str, Any]:
    return {"content": []}


def properties(**given: Any) -> dict[str, Any]:
    return {"type": "object", "properties": given, "required": list(given)}


ANYTHING = {"type": "object", "properties": {}}

TAKEN: list[tuple[Any, dict[str, Any], str]] = [
    # schema, what the model sees, part of the warning
    (
        {"a": "string"},
        properties(a={"type": "string"}),
        "'a' is 'string', which is not a type, and is treated as str",
    ),
    (
        {"a": "integer", "b": float},
        properties(a={"type": "integer"}, b={"type": "number"}),
        "is treated as int",
    ),
    ({"a": "Boolean"}, properties(a={"type": "boolean"}), "is treated as bool"),
    ({"a": "the city"}, properties(a={"type": "string", "description": "the city"}), "is treated as"),
    ({"a": 5}, properties(a={"type": "string"}), "'a' is 5, which is not a type, and is treated as str"),
    ({"a": None}, properties(a={"type": "string"}), "is treated as str"),
    ({"a": [str]}, properties(a={"type": "string"}), "is treated as str"),
    ({"a": NoSchema}, properties(a={"type": "string"}), "is treated as str"),
    ({"a": Callable}, properties(a={"type": "string"}), "is treated as str"),
    (
        {"a": {"type": "integer", "minimum": 1}, "b": {"description": "b"}},
        properties(a={"type": "integer", "minimum": 1}, b={"type": "string", "description": "b"}),
        "is treated as the property of a JSON schema",
    ),
    (
        {"a": {"type": "integer", "description": "n"}, "b": Annotated[str, "text"]},
        properties(a={"type": "integer", "description": "n"}, b={"type": "string", "description": "text"}),
        "'a' is",
    ),
    ({"type": ["object", "null"], "properties": {}}, ANYTHING, 'is treated as "object"'),
    (int, ANYTHING, "is not a schema, so the tool takes any arguments"),
    (NoSchema, ANYTHING, "takes any arguments"),
    (Model(a=1), ANYTHING, "takes any arguments"),
    ([], ANYTHING, "takes any arguments"),
    ("a schema", ANYTHING, "takes any arguments"),
]


@pytest.mark.parametrize(("schema", "seen", "text"), TAKEN)
def test_what_a_schema_plainly_says_counts(schema: Any, seen: dict[str, Any], text: str):
    """The tool is made, and a warning at the user's line says what the schema is treated as."""
    with pytest.warns(ToolwireWarning) as caught:
        made = tool("t", "A tool", schema)(handler)
    assert made.json_schema == seen
    assert text in str(caught[0].message)
    assert [each.filename for each in caught] == [__file__]


def test_no_schema_is_one_without_parameters():
    """With `None` in the official form, the handler gets the dict of arguments, whatever they are."""
    made = tool("t", "A tool", None)(handler)  # type: ignore[arg-type]
    assert made.json_schema == ANYTHING
    assert made.typed is None


@pytest.mark.parametrize(
    "schema",
    [
        {1: str},
        Unfinished,
        {"type": "array", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "strng"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": None},
        {"type": "object", "properties": {"a": str}},
        {"a": {"type": "strng"}},
    ],
)
def test_a_json_schema_with_a_mistake_is_refused(schema: Any):
    """No call of such a tool could succeed, or the CLI would drop it and the others of its server."""
    with pytest.raises(ToolDefinitionError, match="tool 't': "):
        Tool("t", "", schema, handler)
