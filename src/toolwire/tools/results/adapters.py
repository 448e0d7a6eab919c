"""Objects that are content by themselves: toolwire's own, those of `mcp` and FastMCP, pictures of PIL.

Classes of other libraries are known by what they have; none of those libraries is imported. `own_block` gives the
block of such an object, None for everything that is data.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from toolwire.tools.results.blocks import check_block, is_block
from toolwire.tools.results.content import Content, Image, from_bytes, sniff
from toolwire.tools.results.to_json import CONTENT, Table, first_fit

__all__ = ["DATA", "dump_model", "own_block"]

DATA: Final = frozenset({str, type(None), bool, int, float, list, tuple, set, frozenset})
"""Types that are never content, whatever they hold."""


def own_block(value: Any) -> dict[str, Any] | None:
    """The block of something that is content by itself: ours, MCP's, a picture; None for data."""
    kind: Any = type(value)
    make = _block_maker(kind)
    return None if make is None else make(value)


@lru_cache(maxsize=1024)
def _block_maker(kind: type) -> Callable[[Any], dict[str, Any] | None] | None:
    return None if kind in DATA else first_fit(kind, _OWN_BLOCKS)


def _own(value: Content) -> dict[str, Any]:
    return check_block(value.block())


def _dict_block(value: Mapping[str, Any]) -> dict[str, Any] | None:
    return check_block(value) if is_block(value) else None


def _media_block(value: bytes | bytearray | memoryview) -> dict[str, Any] | None:
    return from_bytes(value).block() if sniff(bytes(value)) else None


def _model_block(value: Any) -> dict[str, Any] | None:
    return _dict_block(dump_model(value, mode="json")) if hasattr(value, "type") else None


def _made_by(method: str) -> Callable[[Any], dict[str, Any]]:
    return lambda value: check_block(dump_model(getattr(value, method)(), mode="json"))


def _picture_block(value: Any) -> dict[str, Any] | None:
    return _picture(value).block() if hasattr(value, "mode") and hasattr(value, "format") else None


_OWN_BLOCKS: Final[Table[Callable[[Any], dict[str, Any] | None]]] = (
    (CONTENT, _own),
    ((dict, Mapping), _dict_block),
    ((bytes, bytearray, memoryview), _media_block),
    ("to_image_content", _made_by("to_image_content")),  # these three: the helpers of mcp and FastMCP
    ("to_audio_content", _made_by("to_audio_content")),
    ("to_resource_content", _made_by("to_resource_content")),
    ("model_dump", _model_block),
    ("save", _picture_block),
)


def dump_model(value: Any, mode: str = "python") -> dict[str, Any]:
    """The fields of a Pydantic object by their names on the wire; mode "json" writes null for a NaN."""
    return dict(value.model_dump(mode=mode, by_alias=True, exclude_none=True))


def _picture(value: Any) -> Image:
    """A PIL image, as PNG unless it came from a format that the model can see too."""
    from io import BytesIO  # noqa: PLC0415 - only for pictures

    own = str(value.format or "").upper()
    settings: dict[str, dict[str, Any]] = {
        "JPEG": {"quality": 95},
        "WEBP": {"quality": 95},
        "GIF": {"save_all": True},
    }
    buffer = BytesIO()
    try:
        value.save(buffer, format=own if own in settings else "PNG", **settings.get(own, {}))
    except (OSError, ValueError, KeyError):  # a mode that the format has not, such as CMYK in PNG
        buffer = BytesIO()
        value.convert("RGB").save(buffer, format="PNG")
    return Image(buffer.getvalue())
