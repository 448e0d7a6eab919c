"""Answers of the scripted model in the shapes of the Messages API.

Owns the JSON of a whole message, of its stream of events and of an error. All pure: names and
numbers come in, values come out. Must not know of sockets, scripts or who asks.
"""

import json
from collections.abc import Iterator
from typing import Any, assert_never

from toolwire.testing.script import Block, Call, Text, Thinking, Turn

Event = dict[str, Any]

# Characters in one piece when a turn does not say: a text of any usual length goes whole, and one of
# 20 MB takes the CLI half the time that it takes in one piece.
_LARGEST = 1_000_000


def message(turn: Turn, *, id: str, model: str, call_ids: list[str]) -> dict[str, Any]:
    """The turn as one message, the answer to a request that does not stream."""
    ids = iter(call_ids)
    return {
        **_envelope(turn, id, model),
        "content": [_whole(block, ids) for block in turn.blocks],
        "stop_reason": _stop_reason(turn),
    }


def events(turn: Turn, *, id: str, model: str, call_ids: list[str]) -> Iterator[Event]:
    """The turn as the events of a stream."""
    ids = iter(call_ids)
    yield {"type": "message_start", "message": _envelope(turn, id, model)}
    for index, block in enumerate(turn.blocks):
        start, deltas = _pieces(block, ids, turn.chunk_size)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": _stop_reason(turn), "stop_sequence": None},
        "usage": {"output_tokens": turn.output_tokens},
    }
    yield {"type": "message_stop"}


def error(type: str, text: str) -> dict[str, Any]:
    """The body of an HTTP error."""
    return {"type": "error", "error": {"type": type, "message": text}}


def encode(event: Event) -> bytes:
    """One event as it stands in the stream."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), to_json(event))


def to_json(value: Any) -> bytes:
    """JSON in UTF-8, as the API sends it; escaped only where a text has no UTF-8 (half a surrogate pair)."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _envelope(turn: Turn, id: str, model: str) -> dict[str, Any]:
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": turn.model or model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": turn.input_tokens,
            "output_tokens": turn.output_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def _stop_reason(turn: Turn) -> str:
    calls = any(isinstance(block, Call) for block in turn.blocks)
    return turn.stop_reason or ("tool_use" if calls else "end_turn")


def _whole(block: Block, ids: Iterator[str]) -> dict[str, Any]:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(text, signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Call(name, input):
            return {"type": "tool_use", "id": next(ids), "name": name, "input": dict(input)}
        case _:
            assert_never(block)


def _pieces(
    block: Block, ids: Iterator[str], size: int | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """How a block opens, and what is then added to it."""
    match block:
        case Text(text):
            return {"type": "text", "text": ""}, [
                {"type": "text_delta", "text": piece} for piece in _cut(text, size)
            ]
        case Thinking(text, signature):
            return {"type": "thinking", "thinking": "", "signature": ""}, [
                *({"type": "thinking_delta", "thinking": piece} for piece in _cut(text, size)),
                {"type": "signature_delta", "signature": signature},
            ]
        case Call(name, input):
            return {"type": "tool_use", "id": next(ids), "name": name, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in _cut(json.dumps(dict(input)), size)
            ]
        case _:
            assert_never(block)


def _cut(text: str, size: int | None) -> list[str]:
    size = size or _LARGEST
    if len(text) <= size:
        return [text]
    return [text[at : at + size] for at in range(0, len(text), size)]
