"""Objects of other libraries that become content: images of PIL, blocks and helper classes of `mcp` and FastMCP."""

from base64 import b64encode
from typing import Any, Literal

import mcp.types
import pytest
from fastmcp.utilities.types import File as FastFile
from mcp.server.mcpserver import Audio as McpAudio
from mcp.server.mcpserver import Image as McpImage
from pydantic import AnyUrl, BaseModel

from toolwire.tools.results.result import BadResult, to_result

PNG = b"\x89PNG\r\n\x1a\n...."
WAV = b"RIFF\x04\0\0\0WAVE"
PNG64 = b64encode(PNG).decode()


class Picture:
    """The part of a PIL image that the code uses. In mode CMYK it cannot be saved."""

    def __init__(self, format=None, mode="RGB"):
        self.format = format
        self.mode = mode
        self.calls: list[dict[str, Any]] = []

    def save(self, file, format, **settings):
        self.calls.append({"format": format, **settings})
        if self.mode == "CMYK":
            raise OSError(f"cannot write mode {self.mode} as {format}")
        file.write(
            {"PNG": PNG, "JPEG": b"\xff\xd8\xff\xe0", "WEBP": b"RIFF....WEBP", "GIF": b"GIF89a"}[format]
        )

    def convert(self, mode):
        return Picture(mode=mode)


@pytest.mark.parametrize(
    ("format", "mime_type"),
    [
        (None, "image/png"),
        ("PNG", "image/png"),
        ("jpeg", "image/jpeg"),
        ("WEBP", "image/webp"),
        ("GIF", "image/gif"),
        ("TIFF", "image/png"),
    ],
)
def test_a_pil_image_becomes_a_picture(format, mime_type):
    """It keeps its format if the model can see that, else it becomes PNG."""
    assert to_result(Picture(format))["content"][0]["mimeType"] == mime_type


def test_a_pil_image_stands_in_a_list():
    """In a list it becomes an image block beside text, like other content."""
    assert [block["type"] for block in to_result(["A plot", Picture()])["content"]] == ["text", "image"]


def test_a_moving_picture_keeps_its_frames():
    """PIL writes only the first frame unless told otherwise."""
    picture = Picture("GIF")
    to_result(picture)
    assert picture.calls == [{"format": "GIF", "save_all": True}]


def test_a_pil_image_of_a_mode_that_png_has_not():
    """It is converted instead of refused."""
    assert to_result(Picture("TIFF", mode="CMYK"))["content"][0]["mimeType"] == "image/png"


def test_a_picture_that_cannot_be_saved_is_a_bad_result():
    """Whatever the library raises becomes `BadResult`."""

    class Lost(Picture):
        def save(self, file, format, **settings):
            raise RuntimeError("gone")

    with pytest.raises(BadResult, match="gone") as caught:
        to_result(Lost())
    assert caught.value.type_name.endswith("Lost")


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


@pytest.mark.parametrize("block", MCP_BLOCKS, ids=lambda block: block.type)
def test_blocks_of_mcp_are_taken_as_they_are(block):
    """Alone, in a list or in a result, the block is the one that `mcp` would send."""
    wanted = block.model_dump(by_alias=True, mode="json", exclude_none=True)
    assert to_result(block) == {"content": [wanted]}
    assert to_result(["a", block])["content"][1] == wanted
    assert to_result({"content": [block]}) == {"content": [wanted]}


@pytest.mark.parametrize(
    ("helper", "kind"),
    [
        (McpImage(data=PNG, format="png"), "image"),
        (McpAudio(data=WAV, format="wav"), "audio"),
        (FastFile(data=b"a", format="pdf"), "resource"),
    ],
)
def test_helpers_of_mcp_and_fastmcp_are_taken(helper, kind):
    """Tools that were written for those libraries keep their return values."""
    assert to_result(helper)["content"][0]["type"] == kind


def test_an_address_may_be_an_object():
    """Older classes of `mcp` hold URLs as objects, which become strings."""

    class Link(BaseModel):
        type: Literal["resource_link"] = "resource_link"
        uri: AnyUrl
        name: str

    link = Link(uri="https://example.com/a", name="a")
    assert to_result(link) == {
        "content": [{"type": "resource_link", "uri": "https://example.com/a", "name": "a"}]
    }


def test_a_model_with_a_type_is_data():
    """A model does not become a block just because it has a field called `type`."""

    class Car(BaseModel):
        type: str = "text"
        wheels: int = 4

    assert to_result([Car()])["content"] == [{"type": "text", "text": '[{"type":"text","wheels":4}]'}]


def test_what_can_be_saved_is_not_yet_a_picture():
    """An object with a `save` method is not taken for an image; here it has no JSON form and is refused."""

    class Record:
        def save(self):
            """Would write to a database."""

    with pytest.raises(BadResult, match="Record"):
        to_result(Record())
