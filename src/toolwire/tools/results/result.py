"""Converts any Python value to the result of a tool. The model sees all of it, or `BadResult` is raised.

The CLI does not show all parts of a result to the model, so results are adapted to it:
- With `structuredContent` the model sees that JSON and images, but no text. So the text of a tool with an output
  schema is the same JSON, and `loses_text` finds results with more in their text.
- Of an error the model sees only the text blocks, and "Unknown error" if there are none. So an error without text
  gets a text with everything that is known about it.
- If one block is invalid or of an unknown type, the CLI discards the whole result. So every block is checked with
  `check_block`, which corrects small deviations (`mime_type`, bytes instead of base64, None for a missing field).
  For all others it raises `BadResult`, which says which block is wrong and why.

A dict is a whole result if it has a list of blocks in `content`, and either a key that only results have
(`isError`, `is_error`, `structuredContent`) or no key that results do not have. Every other dict is data, and the
model sees all of it: a page with `title` and `content`, an API's message with `role` and `content`.

Objects that are content (toolwire's own, those of `mcp` and FastMCP, PIL images) are recognised by their
attributes: none of those libraries is imported. Does no I/O, and must not know tools or servers.
"""

import json
from base64 import b64decode, b64encode
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from functools import lru_cache
from io import BytesIO
from math import isfinite
from typing import Any, Final, Protocol

from toolwire.tools.results.content import ROLES, Content, Image, from_bytes, sniff
from toolwire.tools.results.to_json import (
    CONTENT,
    BadResult,
    Table,
    clean,
    first_fit,
    plain,
    spell_non_finite,
    text,
    type_name,
)

__all__ = ["BadResult", "OutputSchema", "check_block", "error_result", "loses_text", "to_block", "to_result"]

_CAMEL: Final = {
    "mime_type": "mimeType",
    "meta": "_meta",
    "last_modified": "lastModified",
    "is_error": "isError",
    "structured_content": "structuredContent",
    "result_type": "resultType",
}
_BYTES: Final = (bytes, bytearray, memoryview)

# A dict is a block if it has these fields, of these types, and no others except the common ones.
_NEEDED: Final[dict[str, dict[str, Any]]] = {
    "text": {"text": str},
    "image": {"data": (str, *_BYTES), "mimeType": str},
    "audio": {"data": (str, *_BYTES), "mimeType": str},
    "resource": {"resource": Mapping},
    "resource_link": {"uri": str, "name": str},
}
_COMMON: Final = {"type", "annotations", "_meta"}
_LINK_ONLY: Final = {"title", "description", "mimeType", "size", "icons"}
_OPTIONAL: Final = {"resource_link": _COMMON | _LINK_ONLY}


def to_camel_case(value: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the field names of MCP to camel case, and leave out fields that are None."""
    return {_CAMEL.get(key, key): item for key, item in value.items() if item is not None}


def has_block_type(value: Mapping[str, Any]) -> bool:
    """True if a value has the type of a block, valid or not."""
    kind = value.get("type")
    return isinstance(kind, str) and kind in _NEEDED


def is_block(value: Mapping[str, Any]) -> bool:
    """True if a value can only be meant as a block.

    Data has a `type` too: `{"type": "image", "url": ...}` and `{"type": "text", "text": ..., "author": ...}` stay
    data, of which the model then sees every field.
    """
    if not has_block_type(value):
        return False
    block = to_camel_case(value)
    needed = _NEEDED[block["type"]]
    if not all(isinstance(block.get(key), kinds) for key, kinds in needed.items()):
        return False
    if block["type"] == "resource" and not (
        "uri" in block["resource"] and block["resource"].keys() & {"text", "blob"}
    ):
        return False
    return block.keys() <= needed.keys() | _OPTIONAL.get(block["type"], _COMMON)


def check_block(value: Mapping[str, Any], where: str = "the block") -> dict[str, Any]:
    """Return a block that clients accept: a new dict of plain JSON. `BadResult` if it is invalid."""
    if len(value) == 2 and value.get("type") == "text" and type(value.get("text")) is str:  # noqa: PLR2004 - most are
        return {"type": "text", "text": clean(value["text"])}
    block = to_camel_case(value)
    check = _CHECKS.get(block["type"]) if has_block_type(block) else None
    if check is None:
        known = ", ".join(_CHECKS)
        raise BadResult(f"{where} has the unknown type {block.get('type')!r}; MCP has {known}", "dict")
    where = f"{where} ({block['type']})"
    check(block, where)
    if "annotations" in block:
        block["annotations"] = _check_annotations(block["annotations"], where)
    return _plain_fields(block, where)


def _plain_fields(block: dict[str, Any], where: str) -> dict[str, Any]:
    for key, item in block.items():
        block[key] = clean(item) if type(item) is str else _to_plain(item, f"{where}: {key}")
    if not isinstance(block.get("_meta", {}), dict):
        raise BadResult(f"{where}: _meta must be an object", "dict")
    return block


def _to_plain(value: Any, where: str) -> Any:
    try:
        return plain(value)[0]
    except BadResult as error:
        raise BadResult(f"{where}: {error}", error.type_name) from error


def _check_text(block: dict[str, Any], where: str) -> None:
    _check_string(block, "text", where)


def _check_media(block: dict[str, Any], where: str) -> None:
    block["data"] = _to_base64(block.get("data"), f"{where}: data")
    if "mimeType" not in block and (seen := sniff(b64decode(block["data"][:64]))):
        block["mimeType"] = seen
    _check_string(block, "mimeType", where)


def _check_resource(block: dict[str, Any], where: str) -> None:
    inner = _to_mapping(block.get("resource"), f"{where}: resource")
    where = f"{where}: resource"
    _check_string(inner, "uri", where)
    if "mimeType" in inner:
        _check_string(inner, "mimeType", where)
    if "blob" in inner:
        inner["blob"] = _to_base64(inner["blob"], f"{where}: blob")
    elif "text" in inner:
        _check_string(inner, "text", where)
    else:
        raise BadResult(f"{where} needs text or blob", "dict")
    block["resource"] = _plain_fields(inner, where)


def _check_resource_link(block: dict[str, Any], where: str) -> None:
    _check_string(block, "uri", where)
    block.setdefault("name", block["uri"])  # the official SDK takes links without one
    for key in ("name", "title", "description", "mimeType"):
        if key in block:
            _check_string(block, key, where)
    if not _is_number(block.get("size", 0)):
        raise BadResult(f"{where}: size must be a number, not {block['size']!r}", type(block["size"]))


_CHECKS: Final[dict[str, Callable[[dict[str, Any], str], None]]] = {
    "text": _check_text,
    "image": _check_media,
    "audio": _check_media,
    "resource": _check_resource,
    "resource_link": _check_resource_link,
}


def _check_annotations(value: Any, where: str) -> dict[str, Any]:
    where = f"{where}: annotations"
    notes = _plain_fields(_to_mapping(value, where), where)
    audience, priority = notes.get("audience", []), notes.get("priority", 0)
    if not isinstance(audience, list) or any(each not in ROLES for each in audience):
        raise BadResult(f"{where}: audience must be a list of 'user' and 'assistant'", "dict")
    if not _is_number(priority) or not 0 <= priority <= 1:
        raise BadResult(f"{where}: priority must be a number from 0 to 1", "dict")
    if "lastModified" in notes and not _is_time_with_zone(notes["lastModified"]):
        raise BadResult(f"{where}: lastModified must be an ISO 8601 time with a time zone", "dict")
    return notes


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_time_with_zone(value: Any) -> bool:
    try:
        return "T" in value and datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _to_mapping(value: Any, where: str) -> dict[str, Any]:
    if hasattr(value, "model_dump"):
        value = value.model_dump(by_alias=True, exclude_none=True)
    if not isinstance(value, Mapping):
        raise BadResult(f"{where} must be an object, not {type(value).__name__}", type(value))
    return to_camel_case(value)


def _check_string(block: dict[str, Any], key: str, where: str) -> None:
    """Check that a field is a string. Objects that are strings in JSON (a URL, a path) are converted."""
    value = block.get(key)
    if type(value) is not str:
        block[key] = None if value is None else _to_plain(value, f"{where}: {key}")
    if not isinstance(block[key], str):
        problem = "is missing" if value is None else f"must be a string, not {type(value).__name__}"
        raise BadResult(f"{where}: {key} {problem}", "dict" if value is None else type(value))


def _to_base64(value: Any, where: str) -> str:
    if isinstance(value, _BYTES):
        return b64encode(value).decode()
    if not isinstance(value, str):
        raise BadResult(f"{where} must be bytes or base64, not {type(value).__name__}", type(value))
    for spelled in (value, _normalize_base64(value)):
        try:
            a2b_base64(spelled, strict_mode=True)
        except ValueError:
            continue
        return spelled
    hint = "; give only the part after the comma of the data: URL" if value.startswith("data:") else ""
    raise BadResult(f"{where} is not base64{hint}", str)


def _normalize_base64(value: str) -> str:
    """Remove line breaks from base64 and add missing padding, since encoders differ in both."""
    joined = "".join(value.split())
    return joined + "=" * (-len(joined) % 4)


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


Blocks = list[dict[str, Any]]

_MARKS: Final = ("isError", "is_error", "structuredContent", "structured_content")
_RESULT_KEYS: Final = frozenset({*_MARKS, "content", "_meta", "resultType"})
_UNKNOWN_FAILURE: Final = "The tool failed and gave no reason."


class OutputSchema(Protocol):
    """The structured output that a tool has declared."""

    def dump(self, value: Any) -> dict[str, Any]:
        """Convert a value to a JSON object that fits the schema; `BadResult` if that is not possible."""
        ...


def to_result(value: Any, *, output: OutputSchema | None = None) -> dict[str, Any]:
    """Convert the return value of a tool to a `CallToolResult`, as a dict; `BadResult` if that is not possible.

    With `output`, the value becomes structured content, and text for clients that do not know structured content. A
    value that is a whole result, such as an error, keeps its own content.
    """
    try:
        if output is not None:
            return _convert_structured(value, output)
        kind = type(value)
        make = _BLOCKS.get(kind)
        if make is not None and (kind is not dict or "content" not in value):
            return {"content": make(value)}
        whole = _find_whole_result(value)
        return {"content": _to_blocks(value)} if whole is None else _convert_whole_result(whole)
    except BadResult:
        raise
    except Exception as error:  # the value's own code runs here: properties, serializers, `save` of an image
        kind = type(value)
        what = f"{type_name(kind)} raised an error while it was converted: {type(error).__name__}: {error}"
        raise BadResult(what, kind) from error


def error_result(text: str) -> dict[str, Any]:
    """Make an error result with a text for the model."""
    shown = clean(text) if text.strip() else _UNKNOWN_FAILURE
    return {"content": [{"type": "text", "text": shown}], "isError": True}


def loses_text(result: dict[str, Any]) -> bool:
    """True if the model would not see some text of this result in the CLI."""
    structured = result.get("structuredContent")
    if structured is None or result.get("isError"):
        return False
    return any(
        block["type"] == "text" and block["text"].strip() and not _is_same_json(block["text"], structured)
        for block in result["content"]
    )


def _is_same_json(text: str, structured: Any) -> bool:
    try:
        return bool(json.loads(text) == structured)
    except (ValueError, RecursionError):
        return False


# --- values that are blocks, or become blocks ---


def _to_blocks(value: Any) -> Blocks:
    """Convert any value except a whole result to blocks."""
    make = _BLOCKS.get(type(value))
    if make is not None:
        return make(value)
    if isinstance(value, Enum):
        return _to_blocks(value.value)
    if isinstance(value, list) or (isinstance(value, tuple) and not hasattr(value, "_asdict")):
        return _list(value)
    if isinstance(value, bytes | bytearray):
        return _bytes(value)
    block = to_block(value)
    return _json(value) if block is None else [block]


def _string(value: str) -> Blocks:
    return [{"type": "text", "text": value if value.isascii() else clean(value)}]


def _none(_value: None) -> Blocks:
    return []


def _bool(value: bool) -> Blocks:
    return [{"type": "text", "text": "true" if value else "false"}]


def _int(value: int) -> Blocks:
    return [{"type": "text", "text": int.__repr__(value)}]


def _float(value: float) -> Blocks:
    spelled = float.__repr__(value) if isfinite(value) else spell_non_finite(value)
    return [{"type": "text", "text": spelled}]


def _json(value: Any) -> Blocks:
    spelled = text(value)
    # A value that is a string in JSON (a date, a Decimal) is shown without quotes.
    return [{"type": "text", "text": json.loads(spelled) if spelled.startswith('"') else spelled}]


def _bytes(value: bytes | bytearray | memoryview) -> Blocks:
    return [from_bytes(value).block()]


def _dict(value: dict[str, Any]) -> Blocks:
    return [check_block(value)] if "type" in value and is_block(value) else _json(value)


def _list(items: list[Any] | tuple[Any, ...]) -> Blocks:
    """Convert a list: each item to a block if any of them is content, else all to one JSON array."""
    if DATA.issuperset(map(type, items)):
        return _json(items)
    own = [to_block(item) for item in items]
    if not any(own):
        return _json(items)
    blocks: Blocks = []
    for item, block in zip(items, own, strict=True):
        if block is not None:
            blocks.append(block)
        else:
            blocks += _json(item) if isinstance(item, list | tuple) else _to_blocks(item)
    return blocks


_BLOCKS: Final[dict[type, Callable[[Any], Blocks]]] = {
    str: _string,
    type(None): _none,
    bool: _bool,
    int: _int,
    float: _float,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    list: _list,
    tuple: _list,
    set: _json,
    frozenset: _json,
    dict: _dict,
}


# --- whole results ---


def _find_whole_result(value: Any) -> dict[str, Any] | None:
    """Return the fields of a value that is a whole result; None if it is not."""
    if isinstance(value, dict | Mapping):
        return dict(value) if "content" in value and _is_whole_result(value) else None
    kind = type(value)
    if not hasattr(kind, "model_dump") or not hasattr(value, "content"):
        return None
    found = dump_model(value) if hasattr(value, "is_error") or hasattr(value, "isError") else {}
    return found if _is_whole_result(found) else None


def _is_whole_result(value: Mapping[str, Any]) -> bool:
    content = value.get("content")
    if not isinstance(content, list | tuple) or not all(map(_is_like_block, content)):
        return False
    if any(mark in value for mark in _MARKS):
        return True
    if not value.keys() <= _RESULT_KEYS:
        return False
    return not content or any(_is_certainly_block(item) for item in content)


def _is_certainly_block(item: Any) -> bool:
    """True for an item that cannot be data: strings and dicts of unknown types can be."""
    return has_block_type(item) if isinstance(item, Mapping) else not isinstance(item, str)


def _is_like_block(item: Any) -> bool:
    if isinstance(item, Mapping):
        return isinstance(item.get("type"), str)
    return isinstance(item, str) or to_block(item) is not None


def _convert_whole_result(whole: dict[str, Any]) -> dict[str, Any]:
    fields = to_camel_case(whole)
    error = bool(whole.get("isError") or whole.get("is_error"))
    result: dict[str, Any] = {
        "content": [_convert_item(item, at) for at, item in enumerate(fields.pop("content"))]
    }
    fields.pop("isError", None)
    if fields.get("resultType") == "complete":  # the default, left out for clients that do not know the field
        del fields["resultType"]
    if fields:
        result |= plain(fields)[0]
    for key in ("structuredContent", "_meta"):
        if not isinstance(result.get(key, {}), dict):
            hint = ', such as {"result": ...}' if key == "structuredContent" else ""
            raise BadResult(
                f"{key} must be an object{hint}, not {type(fields[key]).__name__}", type(fields[key])
            )
    if error:
        result["isError"] = True
        if not any(block["type"] == "text" and block["text"].strip() for block in result["content"]):
            result["content"].append({"type": "text", "text": _describe_failure(result)})
    return result


def _convert_item(item: Any, at: int) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return check_block(item, f"content[{at}]")
    return _to_blocks(item)[0]


def _describe_failure(result: dict[str, Any]) -> str:
    """Return a text for an error whose content the model would not see."""
    parts = [text(result["structuredContent"])] if result.get("structuredContent") else []
    for block in result["content"]:
        inner = block.get("resource", block)
        parts.append(inner.get("text") or inner.get("uri") or f"[{block['type']}: {block.get('mimeType')}]")
    shown = "\n".join(part for part in parts if part.strip())
    return f"The tool failed. It returned: {shown}" if shown else _UNKNOWN_FAILURE


def _convert_structured(value: Any, output: OutputSchema) -> dict[str, Any]:
    # A dict without a key that only results have is the data itself, whatever its `content` looks like.
    is_data = isinstance(value, dict | Mapping) and not any(mark in value for mark in _MARKS)
    whole = None if is_data else _find_whole_result(value)
    if whole is None:
        data, spelled = plain(output.dump(value))
        return {"content": [{"type": "text", "text": spelled}], "structuredContent": data}
    result = _convert_whole_result(whole)
    if not result.get("isError"):
        if "structuredContent" not in result:
            raise BadResult(
                "the tool declares structured output, but its result has no structuredContent", type(value)
            )
        result["structuredContent"] = plain(output.dump(result["structuredContent"]))[0]
    return result
