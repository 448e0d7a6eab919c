"""The scripted model's answers in the shapes of the Messages API.

Owns the JSON of a whole message, of its stream of events and of an error. Pure. Must not know of sockets, of the
progress through a script or of the request.
"""

import json
from collections.abc import Iterator
from typing import Any, assert_never

from toolwire.testing.script import Block, Call, Text, Thinking, Turn

Event = dict[str, Any]

# Characters in one chunk if the turn does not say. A usual text is one chunk; one of 20 MB takes the CLI half
# the time that it would take whole.
_LARGEST = 1_000_000


def build_message(turn: Turn, *, id: str, model: str, call_ids: list[str]) -> dict[str, Any]:
    """Return the turn as one message, for a request that does not stream."""
    ids = iter(call_ids)
    return {
        **_envelope(turn, id, model),
        "content": [_to_json_block(block, ids) for block in turn.blocks],
        "stop_reason": _stop_reason(turn),
    }


def build_events(turn: Turn, *, id: str, model: str, call_ids: list[str]) -> Iterator[Event]:
    """Yield the turn as the events of a stream."""
    ids = iter(call_ids)
    yield {"type": "message_start", "message": _envelope(turn, id, model)}
    for index, block in enumerate(turn.blocks):
        start, deltas = _to_deltas(block, ids, turn.chunk_size)
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


def build_error(type: str, text: str) -> dict[str, Any]:
    """Return the body of an HTTP error."""
    return {"type": "error", "error": {"type": type, "message": text}}


def encode_event(event: Event) -> bytes:
    """Encode one event of a stream."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), to_json(event))


def to_json(value: Any) -> bytes:
    """Encode as JSON in UTF-8, as the API does; all escaped if a text has half a surrogate pair."""
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


def _to_json_block(block: Block, ids: Iterator[str]) -> dict[str, Any]:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(text, signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Call(name, input):
            return {"type": "tool_use", "id": next(ids), "name": name, "input": dict(input)}
        case _:
            assert_never(block)


def _to_deltas(
    block: Block, ids: Iterator[str], size: int | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the block as it begins in a stream, and its deltas."""
    match block:
        case Text(text):
            return {"type": "text", "text": ""}, [
                {"type": "text_delta", "text": chunk} for chunk in _split(text, size)
            ]
        case Thinking(text, signature):
            return {"type": "thinking", "thinking": "", "signature": ""}, [
                *({"type": "thinking_delta", "thinking": chunk} for chunk in _split(text, size)),
                {"type": "signature_delta", "signature": signature},
            ]
        case Call(name, input):
            return {"type": "tool_use", "id": next(ids), "name": name, "input": {}}, [
                {"type": "input_json_delta", "partial_json": chunk}
                for chunk in _split(json.dumps(dict(input)), size)
            ]
        case _:
            assert_never(block)


def _split(text: str, size: int | None) -> list[str]:
    size = size or _LARGEST
    if len(text) <= size:
        return [text]
    return [text[at : at + size] for at in range(0, len(text), size)]
