"""What a tool returns, and the result that goes to the CLI, which shows the model only what fits its rules."""

import json
from base64 import b64encode
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple, TypedDict
from uuid import UUID

import mcp.types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from toolwire.tools.results.content import Audio, Image, Resource, ResourceLink, Text
from toolwire.tools.results.result import BadResult, error_result, loses_text, to_result

PNG = b"\x89PNG\r\n\x1a\n...."
WAV = b"RIFF\x04\0\0\0WAVE"
PNG64 = b64encode(PNG).decode()
IMAGE = {"type": "image", "data": PNG64, "mimeType": "image/png"}
HELLO = {"type": "text", "text": "hello"}


class Colour(Enum):
    RED = "red"
    PICTURE = PNG


@dataclass
class Order:
    id: int
    note: str | None = None


class Page(BaseModel):
    content: str
    is_error: bool = False


class Row(TypedDict):
    id: int


class Point(NamedTuple):
    x: int
    y: int


class Totals:
    """An output schema: an object with a number in `total`."""

    def dump(self, value):
        if not isinstance(value, dict) or not isinstance(value.get("total"), int | float):
            raise BadResult("total is missing", type(value))
        return {"total": value["total"]}


def said(value):
    """Return the text of a result that has one text block and nothing else."""
    result = to_result(value)
    assert result.keys() == {"content"}
    (block,) = result["content"]
    assert block.keys() == {"type", "text"}
    return block["text"]


# --- plain values ---


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("", ""),
        ("hello", "hello"),
        ('"quoted"', '"quoted"'),
        ("naïve 日本", "naïve 日本"),
        ("caf\udce9", "caf\\udce9"),
        (True, "true"),
        (False, "false"),
        (42, "42"),
        (-(10**30), "-" + "1" + "0" * 30),
        (3.0, "3.0"),
        (1e300, "1e+300"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (Decimal("1.10"), "1.10"),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00+00:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("a/b"), "a/b"),
        (Colour.RED, "red"),
        ({}, "{}"),
        ([], "[]"),
        ((), "[]"),
        ({"a": [1, None], "é": True}, '{"a":[1,null],"é":true}'),
        ([1, "a", None], '[1,"a",null]'),
        (["a", "b"], '["a","b"]'),
        ((1, 2), "[1,2]"),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({1}), "[1]"),
        (Order(1), '{"id":1,"note":null}'),
        ([Order(1, "x")], '[{"id":1,"note":"x"}]'),
        (Row(id=1), '{"id":1}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        (OrderedDict(b=1), '{"b":1}'),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        ({"raw": b"\xff"}, '{"raw":"/w=="}'),
        ([b"\xff"], '["/w=="]'),
    ],
    ids=lambda value: ascii(value).partition(" at 0x")[0][:40],
)
def test_plain_values_become_text(value, wanted):
    """They become one text block: a string as it is, a scalar's spelling, compact JSON for the rest."""
    assert said(value) == wanted


def test_none_is_an_empty_success():
    """The result has no blocks, and is no error."""
    assert to_result(None) == {"content": []}


@pytest.mark.parametrize(
    "value",
    [
        {"content": "text of a page", "title": "x"},
        {"content": "text of a page"},
        {"content": None},
        {"content": ["a", "b"]},
        {"content": [{"id": 1}, {"id": 2}]},
        {"content": [{"id": 1}], "is_error": False},
        {"content": "boom", "isError": True},
        {"content": [], "total": 0},
        {"content": [HELLO], "role": "assistant", "model": "claude"},
        {"content": [HELLO], "type": "paragraph"},
        {"content": [{"type": "paragraph", "text": "x"}]},
        {"content": [HELLO, {"id": 1}]},
        {"isError": True, "message": "x"},
        {"structuredContent": {"a": 1}},
        {"type": "image", "url": "https://example.com/a.png"},
        {"type": "text", "text": "hi", "author": "me"},
        {"type": "text", "text": 5},
        {"type": "resource", "resource": {"id": 5}},
        {"type": "resource_link", "uri": "a"},
        {"type": ["text"], "text": "a"},
        [{"type": "image", "url": "a"}, {"type": "text", "value": "b"}],
        [{"content": [HELLO], "isError": True}],
    ],
    ids=lambda value: str(value).partition(" at 0x")[0][:60],
)
def test_data_that_resembles_a_result_stays_data(value):
    """A dict that only resembles a result or block of MCP reaches the model as JSON text, complete."""
    assert json.loads(said(value)) == value


def test_a_model_with_content_is_data():
    """A Pydantic model with fields called `content` and `is_error` becomes JSON text."""
    assert json.loads(said(Page(content="text"))) == {"content": "text", "is_error": False}


# --- content ---


def test_content_objects_become_their_blocks():
    """A single content object becomes the only block."""
    for item in (
        Text("a", priority=1),
        Image(PNG),
        Audio(WAV),
        Resource("a:b", text="c"),
        ResourceLink("a:b", "c"),
    ):
        assert to_result(item) == {"content": [item.block()]}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (PNG, "image"),
        (bytearray(PNG), "image"),
        (memoryview(WAV), "audio"),
        (b"\0", "resource"),
        (Colour.PICTURE, "image"),
    ],
)
def test_bytes_become_what_they_are(value, kind):
    """Images and audio are recognised, other bytes become embedded resources."""
    (block,) = to_result(value)["content"]
    assert block["type"] == kind


def test_a_list_with_content_gives_one_block_each():
    """Strings become text, other values JSON text, None no block; the order is kept."""
    result = to_result(["hello", Image(PNG), {"a": 1}, 3.0, None, [1, 2], Order(1), b"\0", WAV, IMAGE])
    kinds = [block["type"] for block in result["content"]]
    assert kinds == ["text", "image", "text", "text", "text", "text", "resource", "audio", "image"]
    texts = [block["text"] for block in result["content"] if block["type"] == "text"]
    assert texts == ["hello", '{"a":1}', "3.0", "[1,2]", '{"id":1,"note":null}']


@pytest.mark.parametrize(
    "item",
    [Image(PNG), PNG, IMAGE, HELLO, mcp.types.TextContent(text="x")],
    ids=lambda item: type(item).__name__,
)
def test_one_piece_of_content_is_enough(item):
    """If a list or tuple has any content in it, each item becomes a block."""
    assert len(to_result([1, item])["content"]) == 2
    assert len(to_result(("a", item))["content"]) == 2


def test_subclasses_are_what_they_derive_from():
    """Subclasses of list and bytes are treated like list and bytes."""

    class Rows(list):
        pass

    class Raw(bytes):
        pass

    assert to_result(Rows(["a", IMAGE])) == {"content": [{"type": "text", "text": "a"}, IMAGE]}
    assert said(Rows([1])) == "[1]"
    assert to_result(Raw(PNG)) == {"content": [IMAGE]}
    assert to_result(Raw(b"\0"))["content"][0]["type"] == "resource"


def test_content_inside_data_is_refused():
    """Nobody would see an image inside data, so the error says where it is and what to do."""
    with pytest.raises(BadResult, match=r"a list of the content and the data \(at chart\)") as caught:
        to_result({"chart": Image(PNG)})
    assert caught.value.type_name == "toolwire.tools.results.content.Image"
    with pytest.raises(BadResult, match=r"at \[1\]\[0\]"):
        to_result([Order(1), [Image(PNG)]])
    with pytest.raises(BadResult, match=r"a list of the content and the data"):
        to_result(["a", Image(PNG), [Image(PNG)]])
    with pytest.raises(BadResult, match=r"at x"):
        to_result(Point(Image(PNG), 1))


MCP_BLOCKS = [
    mcp.types.TextContent(text="a", annotations=mcp.types.Annotations(audience=["user"], priority=1)),
    mcp.types.ImageContent(data=PNG64, mime_type="image/png", _meta={"k": None}),
    mcp.types.AudioContent(data="UklG", mime_type="audio/wav"),
    mcp.types.EmbeddedResource(resource=mcp.types.TextResourceContents(uri="a:b", text="c")),
    mcp.types.EmbeddedResource(
        resource=mcp.types.BlobResourceContents(uri="a:b", blob="YQ==", mime_type="x/y")
    ),
    mcp.types.ResourceLink(uri="a:b", name="c", size=3, title="T"),
]


# --- whole results ---


def test_a_whole_result_passes_with_everything():
    """Blocks, structured content, `_meta`, the error flag and unknown fields are kept."""
    whole = {
        "content": [HELLO, IMAGE],
        "structuredContent": {"a": None, "when": "now"},
        "_meta": {"k": [1]},
        "isError": True,
        "custom": {"x": 1},
    }
    assert to_result(whole) == whole


def test_snake_case_is_what_the_wire_never_sees():
    """`is_error`, as in the official SDK, and mcp's `model_dump()` are translated to MCP's names."""
    assert to_result({"content": [HELLO], "is_error": True}) == {"content": [HELLO], "isError": True}
    assert to_result({"content": [HELLO], "isError": False, "is_error": True})["isError"] is True
    whole = mcp.types.CallToolResult(
        content=MCP_BLOCKS, structured_content={"a": 1}, is_error=True, _meta={"k": 1}
    )
    assert to_result(whole.model_dump()) == to_result(whole.model_dump(by_alias=True)) == to_result(whole)


def test_a_result_that_is_no_error_does_not_say_so():
    """`isError: false` and fields that are None are left out."""
    assert to_result({"content": [HELLO], "is_error": False, "structuredContent": None}) == {
        "content": [HELLO]
    }
    assert to_result({"content": []}) == {"content": []}
    assert to_result({"content": (HELLO,), "_meta": {}}) == {"content": [HELLO], "_meta": {}}


def test_an_object_of_mcp_passes():
    """All of a CallToolResult is kept, even a NaN, except its default `resultType`."""
    whole = mcp.types.CallToolResult(
        content=MCP_BLOCKS, structured_content={"a": None, "b": float("nan")}, _meta={"k": None}
    )
    assert to_result(whole) == {
        "content": [block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in MCP_BLOCKS],
        "structuredContent": {"a": None, "b": "NaN"},
        "_meta": {"k": None},
    }


def test_a_whole_result_may_hold_our_content():
    """In `content`, our content objects, strings and bytes may stand beside blocks."""
    result = to_result({"content": ["hello", Image(PNG), PNG, HELLO], "structuredContent": Order(1)})
    assert result == {"content": [HELLO, IMAGE, IMAGE, HELLO], "structuredContent": {"id": 1, "note": None}}


@pytest.mark.parametrize("structured", [[1], "x", 5])
def test_structured_content_must_be_an_object(structured):
    """The CLI would refuse the whole result."""
    with pytest.raises(BadResult, match="structuredContent must be an object") as caught:
        to_result({"content": [HELLO], "structuredContent": structured})
    assert caught.value.type_name == type(structured).__name__


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        ({"content": [], "isError": True}, "gave no reason"),
        ({"content": [{"type": "text", "text": " "}], "isError": True}, "failed"),
        ({"content": [], "isError": True, "structuredContent": {"code": 7}}, '{"code":7}'),
        ({"content": [IMAGE], "isError": True}, "image/png"),
        ({"content": [Resource("a:b", text="why")], "isError": True}, "why"),
        ({"content": [ResourceLink("a:b", "c")], "isError": True}, "a:b"),
    ],
)
def test_an_error_always_has_text(whole, words):
    """The CLI shows only the text of an error, and "Unknown error" if there is none: one is added."""
    result = to_result(whole)
    assert result["content"][-1]["type"] == "text"
    assert words in result["content"][-1]["text"]
    assert len(result["content"]) == len(whole["content"]) + 1


def test_an_error_with_text_is_left_alone():
    """Nothing is added to the tool's own text."""
    assert to_result({"content": [HELLO, IMAGE], "isError": True})["content"] == [HELLO, IMAGE]


@pytest.mark.parametrize(
    ("given", "wanted"), [("boom", "boom"), ("", "no reason"), (" \n", "no reason"), ("\udce9", "\\udce9")]
)
def test_error_result(given, wanted):
    """An error result always has text, even for an empty message."""
    result = error_result(given)
    assert result["isError"] is True
    assert wanted in result["content"][0]["text"]


# --- with an output schema ---


def test_structured_output_is_also_the_text():
    """The text is the same JSON, so that the model sees it whichever of the two the client shows."""
    result = to_result({"total": 3, "extra": 1}, output=Totals())
    assert result == {"content": [{"type": "text", "text": '{"total":3}'}], "structuredContent": {"total": 3}}
    assert not loses_text(result)


def test_structured_output_is_strict_json():
    """A NaN becomes the same string in the text and in the structured content."""
    result = to_result({"total": float("nan")}, output=Totals())
    assert result["structuredContent"] == {"total": "NaN"}
    assert result["content"][0]["text"] == '{"total":"NaN"}'


def test_a_value_that_does_not_fit_is_refused():
    """The error has the schema's own message."""
    with pytest.raises(BadResult, match="total is missing") as caught:
        to_result(None, output=Totals())
    assert caught.value.type_name == "NoneType"


def test_data_with_content_is_data_where_output_is_declared():
    """With an output schema, a field may be called `content` and hold blocks."""
    assert to_result({"total": 1, "content": [HELLO]}, output=Totals())["structuredContent"] == {"total": 1}


def test_a_dict_that_does_not_say_to_be_a_result_is_data_there():
    """With an output schema, even a dict that has only blocks is data."""

    class Document:
        def dump(self, value):
            return {"document": value}

    value = {"content": [HELLO]}
    assert to_result(value, output=Document())["structuredContent"] == {"document": value}


def test_a_whole_result_keeps_its_content_and_is_checked():
    """It may have an image too, but its structured content must fit the schema."""
    whole = {"content": [IMAGE], "structuredContent": {"total": 1, "more": 2}, "_meta": {"k": 1}}
    assert to_result(whole, output=Totals()) == {**whole, "structuredContent": {"total": 1}}
    with pytest.raises(BadResult, match="total is missing"):
        to_result({"content": [], "structuredContent": {}}, output=Totals())
    with pytest.raises(BadResult, match="but its result has no structuredContent"):
        to_result(mcp.types.CallToolResult(content=[]), output=Totals())


def test_an_error_needs_no_structured_output():
    """An error result with only text is accepted."""
    whole = {"content": [HELLO], "isError": True}
    assert to_result({"content": [HELLO], "is_error": True}, output=Totals()) == whole


# --- text that the CLI hides ---


@pytest.mark.parametrize(
    ("result", "lost"),
    [
        ({"content": [HELLO]}, False),
        ({"content": [HELLO], "structuredContent": {"a": 1}}, True),
        ({"content": [{"type": "text", "text": '{ "a": 1.0 }'}], "structuredContent": {"a": 1}}, False),
        ({"content": [{"type": "text", "text": '{"a":1,"b":2}'}], "structuredContent": {"a": 1}}, True),
        ({"content": [{"type": "text", "text": " "}], "structuredContent": {"a": 1}}, False),
        ({"content": [IMAGE], "structuredContent": {"a": 1}}, False),
        ({"content": [], "structuredContent": {"a": 1}}, False),
        ({"content": [HELLO], "structuredContent": {"a": 1}, "isError": True}, False),
        ({"content": [HELLO], "structuredContent": {}}, True),
    ],
)
def test_hidden_text_is_noticed(result, lost):
    """The model never sees text that differs from the structured content beside it."""
    assert loses_text(result) is lost


# --- mistakes, and random values ---


async def coroutine():
    """Return a coroutine, which no test awaits."""


def test_slips_are_refused_with_a_hint():
    """For a generator, a coroutine, a function or a class, the error says what the author forgot."""
    slip = coroutine()
    for value, name, words in (
        ((i for i in "ab"), "generator", "list"),
        (slip, "coroutine", "not awaited"),
        (said, "function", "call it"),
        (Order, "type", "instance"),
        (json, "module", "module"),
        (iter([1]), "list_iterator", "list"),
        (object(), "object", "JSON"),
        (10**5000, "int", "digits"),
    ):
        with pytest.raises(BadResult, match=words) as caught:
            to_result(value)
        assert caught.value.type_name == name
    slip.close()


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters()),
    st.binary(max_size=12),
    st.decimals(),
    st.datetimes(),
    st.sampled_from(
        [
            Image(PNG),
            Text("a"),
            PNG,
            WAV,
            HELLO,
            IMAGE,
            Order(1),
            Point(1, 2),
            len,
            object(),
            Colour.RED,
        ]
    ),
    st.sampled_from(MCP_BLOCKS),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text() | st.integers(), inner, max_size=3),
        st.fixed_dictionaries(
            {"content": st.lists(inner, max_size=3)},
            optional={"isError": st.booleans(), "structuredContent": inner, "_meta": inner, "title": inner},
        ),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["text", "image", "audio", "resource", "resource_link", "other"])},
            optional=dict.fromkeys(
                ("text", "data", "mimeType", "uri", "name", "resource", "annotations"), inner
            ),
        ),
    ),
    max_leaves=8,
)


@given(values, st.booleans())
def test_mcp_takes_every_result(value, has_output):
    """Any value becomes a result that `mcp` reads and JSON can hold, or raises `BadResult`."""
    try:
        result = to_result(value, output=Totals() if has_output else None)
    except BadResult:
        return
    mcp.types.CallToolResult.model_validate_json(
        json.dumps(result, allow_nan=False), by_alias=True, by_name=False
    )
    assert isinstance(loses_text(result), bool)
    if result.get("isError"):
        assert any(block["type"] == "text" and block["text"].strip() for block in result["content"])


@pytest.mark.parametrize(
    "value",
    [
        "",
        None,
        3.0,
        {"a": 1},
        [Order(1)],
        PNG,
        [b"\0", Image(PNG), "x"],
        Audio(WAV),
        Resource("a:b", blob=b"x"),
        *MCP_BLOCKS,
    ],
    ids=lambda value: type(value).__name__,
)
def test_mcp_reads_what_was_meant(value):
    """The classes of `mcp` read exactly the same blocks."""
    result = to_result(value)
    read = mcp.types.CallToolResult.model_validate(result)
    again = read.model_dump(by_alias=True, mode="json", exclude_none=True)
    assert again["content"] == result["content"]
