"""Blocks written as dicts: repaired if possible, refused if the CLI would drop the whole result for them."""

from base64 import b64encode
from datetime import UTC, datetime

import mcp.types
import pytest
from pydantic import AnyUrl

from toolwire.tools.results.result import BadResult, to_result

PNG = b"\x89PNG\r\n\x1a\n...."
WAV = b"RIFF\x04\0\0\0WAVE"
PNG64 = b64encode(PNG).decode()
IMAGE = {"type": "image", "data": PNG64, "mimeType": "image/png"}
HELLO = {"type": "text", "text": "hello"}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (HELLO, HELLO),
        ({**HELLO, "annotations": None, "_meta": {"k": 1}}, {**HELLO, "_meta": {"k": 1}}),
        ({"type": "image", "data": PNG, "mime_type": "image/png"}, IMAGE),
        ({"type": "image", "data": PNG}, IMAGE),
        ({"type": "image", "data": PNG64}, IMAGE),
        ({**IMAGE, "data": PNG64[:4] + "\n" + PNG64[4:].rstrip("=")}, IMAGE),
        (
            {"type": "resource", "resource": {"uri": AnyUrl("res://a"), "blob": b"a", "mime_type": "x/y"}},
            {"type": "resource", "resource": {"uri": "res://a", "blob": "YQ==", "mimeType": "x/y"}},
        ),
        (
            {"type": "resource_link", "uri": "res://a", "size": 3},
            {"type": "resource_link", "uri": "res://a", "size": 3, "name": "res://a"},
        ),
        (
            {
                **HELLO,
                "annotations": {"audience": ("user",), "last_modified": datetime(2024, 1, 1, tzinfo=UTC)},
            },
            {**HELLO, "annotations": {"audience": ["user"], "lastModified": "2024-01-01T00:00:00+00:00"}},
        ),
        (
            {**HELLO, "annotations": mcp.types.Annotations(priority=0.5)},
            {**HELLO, "annotations": {"priority": 0.5}},
        ),
        ({**HELLO, "text": "caf\udce9"}, {**HELLO, "text": "caf\\udce9"}),
    ],
)
def test_blocks_are_mended_where_they_can_be(given, wanted):
    """Spelling, bytes instead of base64, and fields that are None are corrected: the CLI would refuse them."""
    assert to_result({"content": [given]}) == {"content": [wanted]}


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"type": "vidoe", "url": "x"}, "unknown type 'vidoe'"),
        ({"type": "text"}, "text is missing"),
        ({"type": "text", "text": 5}, "text must be a string, not int"),
        ({"type": "image", "mimeType": "image/png"}, "data must be bytes or base64"),
        ({"type": "image", "data": "@@@", "mimeType": "image/png"}, "data is not base64"),
        (
            {"type": "image", "data": f"data:image/png;base64,{PNG64}", "mimeType": "image/png"},
            "part after the comma of the data: URL",
        ),
        ({"type": "image", "data": b"????"}, "mimeType is missing"),
        ({"type": "audio", "data": WAV, "mimeType": 5}, "mimeType must be a string"),
        ({"type": "resource"}, "resource must be an object"),
        ({"type": "resource", "resource": {"text": "x"}}, "uri is missing"),
        ({"type": "resource", "resource": {"uri": "a:b"}}, "needs text or blob"),
        ({"type": "resource", "resource": {"uri": "a:b", "blob": "@"}}, "blob is not base64"),
        ({"type": "resource_link", "name": "x"}, "uri is missing"),
        ({"type": "resource_link", "uri": "a:b", "size": "big"}, "size must be a number"),
        ({"type": "resource_link", "uri": "a:b", "size": float("inf")}, "size must be a number"),
        ({"type": "resource_link", "uri": "a:b", "description": 5}, "description must be a string"),
        ({**HELLO, "annotations": {"audience": ["me"]}}, "audience"),
        ({**HELLO, "annotations": {"priority": True}}, "priority"),
        ({**HELLO, "annotations": {"lastModified": "yesterday"}}, "lastModified"),
        ({**HELLO, "annotations": {"lastModified": "2024-01-01T00:00:00"}}, "zone"),
        ({**HELLO, "annotations": {"lastModified": "2024-01-01 00:00:00+00:00"}}, "lastModified"),
        ({**HELLO, "annotations": {"lastModified": 5}}, "lastModified"),
        ({**HELLO, "annotations": "user"}, "annotations must be an object"),
        ({**HELLO, "_meta": [1]}, "_meta must be an object"),
        ({**HELLO, "_meta": {"a": object()}}, "_meta.*object"),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0][:50],
)
def test_a_broken_block_is_refused_with_its_place(block, words):
    """The CLI would drop the whole result; the error says which block is wrong, and why."""
    with pytest.raises(BadResult, match=rf"content\[1\].*{words}"):
        to_result({"content": [HELLO, block], "is_error": False})


def test_a_sound_block_beside_a_broken_one_makes_it_a_result():
    """If one item of `content` is a known block, the others must be blocks too."""
    with pytest.raises(BadResult, match=r"content\[1\].*vidoe"):
        to_result({"content": [HELLO, {"type": "vidoe"}]})


def test_a_block_alone_is_a_block():
    """A dict that can only be a block needs no list around it."""
    assert to_result(IMAGE) == {"content": [IMAGE]}
    with pytest.raises(BadResult, match="not base64"):
        to_result({**IMAGE, "data": "@@@"})
