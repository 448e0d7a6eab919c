"""Converts objects that are content: toolwire's own, those of `mcp` and FastMCP, and PIL images.

Classes of other libraries are recognised by their attributes; none of those libraries is imported. `to_block`
returns the block of such an object, and None for data. It must not know what a whole result is.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from toolwire.tools.results.blocks import check_block, is_block
from toolwire.tools.results.content import Content, Image, from_bytes, sniff
from toolwire.tools.results.to_json import CONTENT, Table, first_fit

__all__ = ["DATA", "dump_model", "to_block"]

DATA: Final = frozenset({str, type(None), bool, int, float, list, tuple, set, frozenset})
"""Types that are never content."""


def to_block(value: Any) -> dict[str, Any] | None:
    """Return the content block of an object that is content, such as an image; None for data."""
    kind: Any = type(value)
    make = _find_converter(kind)
    return None if make is None else make(value)


@lru_cache(maxsize=1024)
def _find_converter(kind: type) -> Callable[[Any], dict[str, Any] | None] | None:
    return None if kind in DATA else first_fit(kind, _OWN_BLOCKS)


def _own_block(value: Content) -> dict[str, Any]:
    return check_block(value.block())


def _dict_block(value: Mapping[str, Any]) -> dict[str, Any] | None:
    return check_block(value) if is_block(value) else None


def _media_block(value: bytes | bytearray | memoryview) -> dict[str, Any] | None:
    return from_bytes(value).block() if sniff(bytes(value)) else None


def _model_block(value: Any) -> dict[str, Any] | None:
    return _dict_block(dump_model(value, mode="json")) if hasattr(value, "type") else None


def _call_and_dump(method: str) -> Callable[[Any], dict[str, Any]]:
    return lambda value: check_block(dump_model(getattr(value, method)(), mode="json"))


def _image_block(value: Any) -> dict[str, Any] | None:
    return _encode_image(value).block() if hasattr(value, "mode") and hasattr(value, "format") else None


_OWN_BLOCKS: Final[Table[Callable[[Any], dict[str, Any] | None]]] = (
    (CONTENT, _own_block),
    ((dict, Mapping), _dict_block),
    ((bytes, bytearray, memoryview), _media_block),
    ("to_image_content", _call_and_dump("to_image_content")),  # these three are helpers of mcp and FastMCP
    ("to_audio_content", _call_and_dump("to_audio_content")),
    ("to_resource_content", _call_and_dump("to_resource_content")),
    ("model_dump", _model_block),
    ("save", _image_block),
)


def dump_model(value: Any, mode: str = "python") -> dict[str, Any]:
    """Return the fields of a Pydantic object under their aliases; mode "json" replaces NaN by None."""
    return dict(value.model_dump(mode=mode, by_alias=True, exclude_none=True))


def _encode_image(value: Any) -> Image:
    """Convert a PIL image: to its own format if the model can see that, else to PNG."""
    from io import BytesIO  # noqa: PLC0415 - only for images

    own = str(value.format or "").upper()
    settings: dict[str, dict[str, Any]] = {
        "JPEG": {"quality": 95},
        "WEBP": {"quality": 95},
        "GIF": {"save_all": True},
    }
    buffer = BytesIO()
    try:
        value.save(buffer, format=own if own in settings else "PNG", **settings.get(own, {}))
    except (OSError, ValueError, KeyError):  # a mode that the format does not have, such as CMYK in PNG
        buffer = BytesIO()
        value.convert("RGB").save(buffer, format="PNG")
    return Image(buffer.getvalue())
