"""Recognises and checks MCP content blocks that are given as dicts.

The CLI discards a whole result if one block in it is invalid or of an unknown type, so every block is checked with
`check_block` before it is sent. That corrects small deviations (`mime_type`, bytes instead of base64, None for a
missing field); for all others it raises `BadResult`, which says which block is wrong and why.

It knows the blocks of MCP, and must not know the Python values that become blocks.
"""

from base64 import b64decode, b64encode
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from toolwire.tools.results.content import sniff
from toolwire.tools.results.to_json import BadResult, clean, plain

__all__ = ["check_block", "has_block_type", "is_block", "to_camel_case"]

_CAMEL: Final = {
    "mime_type": "mimeType",
    "meta": "_meta",
    "last_modified": "lastModified",
    "is_error": "isError",
    "structured_content": "structuredContent",
    "result_type": "resultType",
}
_BYTES: Final = (bytes, bytearray, memoryview)
_ROLES: Final = ("user", "assistant")

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
    """Convert the field names of MCP to to_camel_case case, and leave out fields that are None."""
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
    if not isinstance(audience, list) or any(each not in _ROLES for each in audience):
        raise BadResult(f"{where}: audience must be a list of 'user' and 'assistant'", "dict")
    if not _is_number(priority) or not 0 <= priority <= 1:
        raise BadResult(f"{where}: priority must be a number from 0 to 1", "dict")
    if "lastModified" in notes and not _is_time_with_zone(notes["lastModified"]):
        raise BadResult(f"{where}: lastModified must be an ISO 8601 time with a time zone", "dict")
    return notes


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_time_with_zone(value: Any) -> bool:
    from datetime import datetime  # noqa: PLC0415 - rarely needed

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
