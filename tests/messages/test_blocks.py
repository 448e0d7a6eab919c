"""Blocks as values: which fields `==` and `repr` use."""

import dataclasses
import pickle
from typing import get_args

import pytest

from toolwire.messages.blocks import (
    ContentBlock,
    ImageBlock,
    ServerToolResultBlock,
    TextBlock,
    ToolResultBlock,
    UnknownBlock,
)


def test_raw_and_citations_stay_out_of_comparison_and_repr():
    """A block from the wire equals the same block made by hand, and shows as it would in the official SDK."""
    parsed = TextBlock("hi", citations=[{"url": "x"}], raw={"type": "text", "text": "hi"})
    assert parsed == TextBlock("hi")
    assert repr(parsed) == "TextBlock(text='hi')"


def test_different_values_or_classes_are_not_equal():
    """Equality needs the same class and the same fields."""
    assert TextBlock("hi") != TextBlock("ho")
    assert TextBlock("hi") != "hi"
    assert ImageBlock({"a": 1}) != UnknownBlock("image", {"a": 1})


def test_unknown_blocks_are_told_apart_by_what_they_hold():
    """`raw` is the only content of an unknown block, so `==` uses it."""
    assert UnknownBlock("new", {"a": 1}) != UnknownBlock("new", {"a": 2})
    assert repr(UnknownBlock("new", {"a": 1})) == "UnknownBlock(type='new', raw={'a': 1})"


def test_a_server_tool_result_says_which_tool_it_is_from():
    """Without a type it is a result of the advisor, the only one that the official class represents."""
    assert ServerToolResultBlock("id", {}).type == "advisor_tool_result"
    assert ServerToolResultBlock("id", []) != ServerToolResultBlock("id", [], "web_search_tool_result")


def test_a_block_that_contains_itself_can_be_shown():
    """A cycle made by hand does not end in a RecursionError."""
    block = ImageBlock()
    block.source["self"] = block
    assert repr(block) == "ImageBlock(source={'self': ...})"


def test_blocks_are_ordinary_dataclasses():
    """They can be changed, replaced, made into dicts and pickled."""
    block = ToolResultBlock("toolu_1", "42")
    block.is_error = True
    assert dataclasses.replace(block, content="43") == ToolResultBlock("toolu_1", "43", is_error=True)
    assert dataclasses.asdict(block)["content"] == "42"
    assert pickle.loads(pickle.dumps(block)) == block  # noqa: S301


@pytest.mark.parametrize("cls", get_args(ContentBlock))
def test_every_block_has_raw(cls):
    """A parsed block of any class shows what the CLI sent."""
    assert dataclasses.fields(cls)[-1].name == "raw"
