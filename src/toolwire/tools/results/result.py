"""Any Python value as the result of a tool: what is returned is what the model sees, or it is refused aloud.

The CLI hides some of what a result may hold, so results are made to fit it:
- with `structuredContent` the model sees that JSON and pictures, and no text: a tool with an output schema gets the
  same JSON as its text, and `loses_text` tells of results that say more in text.
- of an error it sees the text blocks and nothing else, and "Unknown error" if there are none: an error without text
  gets one that tells what is known of it.
- one broken block makes it throw the whole result away: `BadResult` instead, see `block`.

A dict is a whole result when it has a list of blocks in `content`, and either says so (`isError`, `is_error`,
`structuredContent`) or has no key that a result has not. Every other dict is data, and the model sees all of it: a
page with `title` and `content`, an API's message with `role` and `content`.

No I/O, nothing async. It knows no tool and no server.
"""

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Protocol

from toolwire.tools.results.adapters import DATA, dump_model, own_block
from toolwire.tools.results.blocks import camel, check_block, is_block, is_known
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
        """The value as a JSON object that fits the schema; `BadResult` with what is wrong."""
        ...


def to_result(value: Any, *, output: OutputSchema | None = None) -> dict[str, Any]:
    """The `CallToolResult` for what a tool returned, as a dict for the wire.

    `BadResult` for what cannot be one. With `output`, the value becomes structured content, and text for clients
    that know no other; only a result that is whole already (an error above all) keeps its own content.
    """
    try:
        if output is not None:
            return _structured(value, output)
        kind = type(value)
        make = _BLOCKS.get(kind)
        if make is not None and (kind is not dict or "content" not in value):
            return {"content": make(value)}
        whole = _whole(value)
        return {"content": _blocks(value)} if whole is None else _result(whole)
    except BadResult:
        raise
    except Exception as error:  # the value's own code runs here: properties, serializers, `save` of a picture
        kind = type(value)
        what = f"{type_name(kind)} failed while it was read: {type(error).__name__}: {error}"
        raise BadResult(what, kind) from error


def error_result(text: str) -> dict[str, Any]:
    """A result that tells the model what went wrong."""
    said = clean(text) if text.strip() else _UNKNOWN_FAILURE
    return {"content": [{"type": "text", "text": said}], "isError": True}


def loses_text(result: dict[str, Any]) -> bool:
    """Return whether the CLI would keep text of this result from the model."""
    structured = result.get("structuredContent")
    if structured is None or result.get("isError"):
        return False
    return any(
        block["type"] == "text" and block["text"].strip() and not _says(block["text"], structured)
        for block in result["content"]
    )


def _says(text: str, structured: Any) -> bool:
    try:
        return bool(json.loads(text) == structured)
    except (ValueError, RecursionError):
        return False


# --- values that are blocks, or become some ---


def _blocks(value: Any) -> Blocks:
    """The blocks for any value but a whole result."""
    make = _BLOCKS.get(type(value))
    if make is not None:
        return make(value)
    if isinstance(value, Enum):
        return _blocks(value.value)
    if isinstance(value, list) or (isinstance(value, tuple) and not hasattr(value, "_asdict")):
        return _list(value)
    if isinstance(value, bytes | bytearray):
        return _bytes(value)
    block = own_block(value)
    return _json(value) if block is None else [block]


def _string(value: str) -> Blocks:
    return [{"type": "text", "text": value if value.isascii() else clean(value)}]


def _nothing(_value: None) -> Blocks:
    return []


def _bool(value: bool) -> Blocks:
    return [{"type": "text", "text": "true" if value else "false"}]


def _int(value: int) -> Blocks:
    return [{"type": "text", "text": int.__repr__(value)}]


def _float(value: float) -> Blocks:
    return [{"type": "text", "text": spell_float(value)}]


def _json(value: Any) -> Blocks:
    spelled = text(value)
    # What is a string in JSON (a date, a Decimal) is shown without quotes when it is the whole value.
    return [{"type": "text", "text": json.loads(spelled) if spelled.startswith('"') else spelled}]


def _bytes(value: bytes | bytearray | memoryview) -> Blocks:
    return [from_bytes(value).block()]


def _dict(value: dict[str, Any]) -> Blocks:
    return [check_block(value)] if "type" in value and is_block(value) else _json(value)


def _list(items: list[Any] | tuple[Any, ...]) -> Blocks:
    """One block each if any of the items is content, else all of them as one JSON array."""
    if DATA.issuperset(map(type, items)):
        return _json(items)
    own = [own_block(item) for item in items]
    if not any(own):
        return _json(items)
    blocks: Blocks = []
    for item, block in zip(items, own, strict=True):
        if block is not None:
            blocks.append(block)
        else:
            blocks += _json(item) if isinstance(item, list | tuple) else _blocks(item)
    return blocks


_BLOCKS: Final[dict[type, Callable[[Any], Blocks]]] = {
    str: _string,
    type(None): _nothing,
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


def _whole(value: Any) -> dict[str, Any] | None:
    """The dict of a value that is a whole result; None if it is anything else."""
    if isinstance(value, dict | Mapping):
        return dict(value) if "content" in value and _is_whole(value) else None
    kind = type(value)
    if not hasattr(kind, "model_dump") or not hasattr(value, "content"):
        return None
    found = dump_model(value) if hasattr(value, "is_error") or hasattr(value, "isError") else {}
    return found if _is_whole(found) else None


def _is_whole(value: Mapping[str, Any]) -> bool:
    content = value.get("content")
    if not isinstance(content, list | tuple) or not all(map(_like_block, content)):
        return False
    if any(mark in value for mark in _MARKS):
        return True
    if not value.keys() <= _RESULT_KEYS:
        return False
    return not content or any(_is_known(item) for item in content)


def _is_known(item: Any) -> bool:
    return is_known(item) if isinstance(item, Mapping) else not isinstance(item, str)


def _like_block(item: Any) -> bool:
    if isinstance(item, Mapping):
        return isinstance(item.get("type"), str)
    return isinstance(item, str) or own_block(item) is not None


def _result(whole: dict[str, Any]) -> dict[str, Any]:
    fields = camel(whole)
    error = bool(whole.get("isError") or whole.get("is_error"))
    result: dict[str, Any] = {"content": [_given(item, at) for at, item in enumerate(fields.pop("content"))]}
    fields.pop("isError", None)
    if fields.get("resultType") == "complete":  # what its absence means, to clients that do not know it
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
            result["content"].append({"type": "text", "text": _known_of(result)})
    return result


def _given(item: Any, at: int) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return check_block(item, f"content[{at}]")
    return _blocks(item)[0]


def _known_of(result: dict[str, Any]) -> str:
    """Return a text for an error whose content the model would not see."""
    said = [text(result["structuredContent"])] if result.get("structuredContent") else []
    for block in result["content"]:
        inner = block.get("resource", block)
        said.append(inner.get("text") or inner.get("uri") or f"[{block['type']}: {block.get('mimeType')}]")
    shown = "\n".join(part for part in said if part.strip())
    return f"The tool failed. It returned: {shown}" if shown else _UNKNOWN_FAILURE


def _structured(value: Any, output: OutputSchema) -> dict[str, Any]:
    # A dict that does not say to be a result is the data itself, whatever its `content` looks like.
    is_data = isinstance(value, dict | Mapping) and not any(mark in value for mark in _MARKS)
    whole = None if is_data else _whole(value)
    if whole is None:
        data, spelled = plain(output.dump(value))
        return {"content": [{"type": "text", "text": spelled}], "structuredContent": data}
    result = _result(whole)
    if not result.get("isError"):
        if "structuredContent" not in result:
            raise BadResult("the tool declares structured output and its result has none", type(value))
        result["structuredContent"] = plain(output.dump(result["structuredContent"]))[0]
    return result
