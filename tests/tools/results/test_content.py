"""Content objects: the block that each becomes, and what their constructors refuse."""

from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import mcp.types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from toolwire.tools.results.content import Audio, Image, Resource, ResourceLink, Text, from_bytes, sniff

PNG = b"\x89PNG\r\n\x1a\n...."
WAV = b"RIFF\x04\0\0\0WAVE"
BLOCK = TypeAdapter(mcp.types.ContentBlock)

STARTS = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0JFIF",
    "image/gif": b"GIF89a..",
    "image/webp": b"RIFF\x04\0\0\0WEBP",
    "audio/wav": WAV,
    "audio/mpeg": b"ID3\x04....",
    "audio/ogg": b"OggS....",
    "audio/flac": b"fLaC....",
}


@pytest.mark.parametrize(("mime_type", "data"), STARTS.items())
def test_the_first_bytes_tell_the_type(mime_type, data):
    """Each known format is recognised, and bare bytes become a block of its type."""
    assert sniff(data) == mime_type
    block = from_bytes(data).block()
    assert (block["type"], block["mimeType"]) == (mime_type.partition("/")[0], mime_type)
    assert b64decode(block["data"]) == data


@pytest.mark.parametrize("data", [b"GIF87a..", b"\xff\xfb\x90\x00", b"\xff\xf3\x40\xc0"])
def test_other_starts_of_the_same_formats(data):
    """Older GIF files, and MP3 files without a tag, which start with a frame."""
    assert sniff(data) in ("image/gif", "audio/mpeg")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\xff\xfb",
        b"\xff\xfe\x68\x00",
        b"\xff\xfb\xf0\x00",
        b"\xff\xfb\x9c\x00",
        b"RIFF\x04\0\0\0AVI ",
        b"PNG",
        b"%PDF-1.7",
    ],
)
def test_what_only_looks_alike_is_not_guessed(data):
    """Text in UTF-16, impossible MP3 headers, other RIFF files and truncated headers get no type."""
    assert sniff(data) is None


def test_unknown_bytes_become_a_blob_with_a_stable_address():
    """The same bytes always get the same URI, other bytes another."""
    block = from_bytes(b"\0\1\2").block()
    assert block["type"] == "resource"
    assert block["resource"]["mimeType"] == "application/octet-stream"
    assert b64decode(block["resource"]["blob"]) == b"\0\1\2"
    assert from_bytes(bytearray(b"\0\1\2")).block() == block
    assert from_bytes(b"\0\1\3").block()["resource"]["uri"] != block["resource"]["uri"]


@given(st.binary())
def test_any_bytes_survive(data):
    """Any bytes become a valid block from which they can be decoded again."""
    block = from_bytes(memoryview(data)).block()
    BLOCK.validate_python(block)
    assert b64decode(block.get("data") or block["resource"]["blob"]) == data


def test_an_image_from_a_file(tmp_path):
    """`path` is read at once; the bytes decide the type even if the suffix is wrong."""
    file = tmp_path / "plot.jpg"
    file.write_bytes(PNG)
    image = Image(path=file)
    file.unlink()
    assert image.block() == Image(PNG).block()
    assert image.mime_type == "image/png"


@pytest.mark.parametrize(
    ("make", "name", "mime_type"), [(Image, "a.SVG", "image/svg+xml"), (Audio, "a.m4a", "audio/mp4")]
)
def test_the_name_tells_the_type_when_the_bytes_do_not(tmp_path, make, name, mime_type):
    """A format that the bytes do not show is taken from the suffix."""
    file = tmp_path / name
    file.write_bytes(b"<svg/>")
    assert make(path=str(file)).mime_type == mime_type


def test_a_given_type_wins():
    """A `mime_type` argument overrides what the bytes show."""
    assert Image(PNG, mime_type="image/x-special").block()["mimeType"] == "image/x-special"


def test_every_block_as_it_goes_out():
    """The five kinds of block have the names of MCP, and no fields that were not given."""
    assert Text("hi").block() == {"type": "text", "text": "hi"}
    assert Audio(WAV).block() == {"type": "audio", "data": "UklGRgQAAABXQVZF", "mimeType": "audio/wav"}
    assert Resource("res://a", text="body").block() == {
        "type": "resource",
        "resource": {"uri": "res://a", "text": "body"},
    }
    assert Resource("res://a", blob=PNG).block()["resource"]["mimeType"] == "image/png"
    assert ResourceLink("file:///a", "a").block() == {
        "type": "resource_link",
        "uri": "file:///a",
        "name": "a",
    }
    full = ResourceLink("file:///a", "a", "What", "text/plain", 0, "A").block()
    assert full == {
        "type": "resource_link",
        "uri": "file:///a",
        "name": "a",
        "title": "A",
        "description": "What",
        "mimeType": "text/plain",
        "size": 0,
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda **notes: Text("hi", **notes),
        lambda **notes: Image(PNG, **notes),
        lambda **notes: Audio(WAV, **notes),
        lambda **notes: Resource("res://a", text="", **notes),
        lambda **notes: ResourceLink("res://a", "a", **notes),
    ],
)
def test_every_block_takes_annotations_and_meta(make):
    """Annotations and `_meta` are in the block, and `mcp` reads them back."""
    block = make(audience=("user",), priority=0.5, meta={"k": 1}).block()
    assert block["annotations"] == {"audience": ["user"], "priority": 0.5}
    assert block["_meta"] == {"k": 1}
    read = BLOCK.validate_python(block)
    assert (read.annotations.priority, read.meta) == (0.5, {"k": 1})
    BLOCK.validate_python(make().block())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Image(), "data or path"),  # noqa: PLW0108 - the call is what is tested
        (lambda: Image(PNG, "a.png"), "needs either data or path"),
        (lambda: Image(b""), "no bytes"),
        (lambda: Image("text"), "needs bytes, not str"),
        (lambda: Image(b"????"), "give mime_type"),
        (lambda: Image(WAV), "cannot be audio/wav"),
        (lambda: Audio(PNG), "cannot be image/png"),
        (lambda: Image(PNG, mime_type="text/plain"), "cannot be text/plain"),
        (lambda: Image(path="no/such/file.png"), "cannot be read.*file.png"),
        (lambda: Image(path=Path(__file__).parent), "cannot be read"),
        (lambda: Text(5), "needs a str"),
        (lambda: Resource("res://a"), "text or blob"),
        (lambda: Resource("res://a", text="a", blob=b"b"), "needs either text or blob"),
        (lambda: Resource("res://a", text=b"a"), "bytes go to blob"),
        (lambda: Resource("res://a", blob="a"), "needs bytes"),
        (lambda: Resource("", text="a"), "needs a uri"),
        (lambda: ResourceLink("res://a", ""), "needs a name"),
        (lambda: ResourceLink("", "a"), "needs a uri"),
        (lambda: ResourceLink("res://a", "a", size=-1), "size"),
        (lambda: Text("a", audience="user"), "audience"),
        (lambda: Text("a", audience=["model"]), "audience"),
        (lambda: Text("a", priority=2), "priority"),
        (lambda: Text("a", priority=True), "priority"),
        (lambda: Text("a", priority=float("nan")), "priority"),
    ],
)
def test_wrong_construction_is_said_at_once(make, words):
    """The constructor raises a ValueError with the reason."""
    with pytest.raises(ValueError, match=words):
        make()


def test_an_empty_file_is_named(tmp_path):
    """The error has the name of the empty file."""
    file = tmp_path / "empty.png"
    file.touch()
    with pytest.raises(ValueError, match=r"empty\.png"):
        Image(path=file)


def test_content_compares_and_copies():
    """Equal content is equal, `replace` works, and the repr leaves out the bytes."""
    image = Image(PNG)
    assert image == Image(bytearray(PNG))
    assert replace(image, priority=1).block()["annotations"] == {"priority": 1}
    assert "PNG" not in repr(image)
    assert "image/png" in repr(image)
