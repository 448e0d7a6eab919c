"""Converts any Python value to the result of a tool. The model sees all of it, or `BadResult` is raised.

The CLI does not show all parts of a result to the model, so results are adapted to it:
- With `structuredContent` the model sees that JSON and images, but no text. So the text of a tool with an output
  schema is the same JSON, and `loses_text` finds results with more in their text.
- Of an error the model sees only the text blocks, and "Unknown error" if there are none. So an error without text
  gets a text with everything that is known about it.
- If one block is invalid, the CLI discards the whole result. So `BadResult` is raised instead, see `blocks`.

A dict is a whole result if it has a list of blocks in `content`, and either a key that only results have
(`isError`, `is_error`, `structuredContent`) or no key that results do not have. Every other dict is data, and the
model sees all of it: a page with `title` and `content`, an API's message with `role` and `content`.

Does no I/O, and must not know tools or servers.
"""

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Protocol

from toolwire.tools.results.adapters import DATA, dump_model, to_block
from toolwire.tools.results.blocks import check_block, has_block_type, is_block, to_camel_case
from toolwire.tools.results.content import from_bytes
from toolwire.tools.results.to_json import BadResult, clean, plain, spell_float, text, type_name

__all__ = ["BadResult", "OutputSchema", "error_result", "loses_text", "to_result"]

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
    """Convert what a tool returned to a `CallToolResult`, as a dict; `BadResult` if that is not possible.

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
    return [{"type": "text", "text": spell_float(value)}]


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
    return not content or any(_has_block_type(item) for item in content)


def _has_block_type(item: Any) -> bool:
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
