"""`ToolAnnotations`: the hints of MCP in both spellings, and other fields."""

import mcp.types
import pytest

from toolwire import ToolAnnotations, tool


async def handler(args):
    return {"content": []}


def test_hints_are_taken_in_both_spellings():
    """They are listed in MCP's spelling, which wins if a hint is given in both."""
    for given in (
        {"readOnlyHint": True},
        {"read_only_hint": True},
        {"readOnlyHint": True, "read_only_hint": False},
    ):
        assert tool("t", "", {}, ToolAnnotations(**given))(handler).definition["annotations"] == {
            "readOnlyHint": True
        }


@pytest.mark.parametrize("name", ["maxResultSizeChars", "max_result_size_chars"])
def test_the_size_of_a_result_goes_where_the_cli_reads_it(name):
    """This hint is for the CLI, which reads it from `_meta`."""
    definition = tool("t", "", {}, ToolAnnotations(**{name: 5}))(handler).definition
    assert definition["_meta"] == {"anthropic/maxResultSizeChars": 5}
    assert "annotations" not in definition
    assert ToolAnnotations(**{name: 5}).maxResultSizeChars == 5


def test_other_fields_are_kept_to_the_wire():
    """Fields that MCP does not define are listed unchanged."""
    definition = tool("t", "", {}, ToolAnnotations(title="T", own={"a": 1}, snake_name=2))(handler).definition
    assert definition["annotations"] == {"title": "T", "own": {"a": 1}, "snake_name": 2}


def test_they_are_annotations_of_mcp():
    """They are instances of the class of `mcp`, whose own instances are accepted too."""
    assert isinstance(ToolAnnotations(), mcp.types.ToolAnnotations)
    plain = mcp.types.ToolAnnotations(idempotent_hint=True)
    assert tool("t", "", {}, plain)(handler).definition["annotations"] == {"idempotentHint": True}
