"""`ToolAnnotations`: MCP's hints in both spellings, and others."""

import mcp.types
import pytest

from toolwire import ToolAnnotations, tool


async def handler(args):
    return {"content": []}


def test_hints_are_taken_in_both_spellings():
    """The wire has MCP's spelling; of a hint that is given in both, that one counts."""
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
    """It is a hint for the CLI, which reads it in `_meta`."""
    definition = tool("t", "", {}, ToolAnnotations(**{name: 5}))(handler).definition
    assert definition["_meta"] == {"anthropic/maxResultSizeChars": 5}
    assert "annotations" not in definition
    assert ToolAnnotations(**{name: 5}).maxResultSizeChars == 5


def test_other_fields_are_kept_to_the_wire():
    """What MCP does not define is sent as it was given."""
    definition = tool("t", "", {}, ToolAnnotations(title="T", own={"a": 1}, snake_name=2))(handler).definition
    assert definition["annotations"] == {"title": "T", "own": {"a": 1}, "snake_name": 2}


def test_they_are_annotations_of_mcp():
    """Code that checks for the class of `mcp` finds it."""
    assert isinstance(ToolAnnotations(), mcp.types.ToolAnnotations)
    plain = mcp.types.ToolAnnotations(idempotent_hint=True)
    assert tool("t", "", {}, plain)(handler).definition["annotations"] == {"idempotentHint": True}
