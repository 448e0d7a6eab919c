"""The message parser and all other readers of frames: no JSON object makes them fail, and nothing is lost."""

import copy
import random
from typing import Any, Final

from fuzz.fuzz_targets.json_mutation import dump, load, mutate_json
from toolwire._protocol.control import Control
from toolwire._protocol.parse import parse
from toolwire._protocol.run import Run
from toolwire._support.record import Record
from toolwire.messages import SystemMessage

_WORDS: Final = (
    *("type", "subtype", "message", "content", "text", "thinking", "signature", "tool_use", "tool_result"),
    *("id", "name", "input", "tool_use_id", "is_error", "image", "document", "citations", "source", "usage"),
    *("server_tool_use", "web_search_tool_result", "mcp_tool_use", "mcp_tool_result", "redacted_thinking"),
    *("assistant", "user", "system", "result", "stream_event", "rate_limit_event", "auth_status", "event"),
    *("conversation_reset", "prompt_suggestion", "tool_progress", "tool_use_summary", "origin", "kind"),
    *("human", "deferred_tool_use", "rate_limit_info", "resetsAt", "parent_tool_use_id", "session_id"),
    *("uuid", "init", "status", "compact_boundary", "compact_metadata", "trigger", "hook_started"),
    *("hook_response", "hook_progress", "hook_event", "hook_name", "task_started", "task_updated", "patch"),
    *("task_notification", "task_progress", "task_id", "task_type", "local_agent", "api_retry", "state"),
    *("background_tasks_changed", "commands_changed", "session_state_changed", "idle", "running"),
    *(
        "mirror_error",
        "notification",
        "permission_denied",
        "line_dropped",
        "memory_recall",
        "files_persisted",
    ),
    *("control_request", "control_response", "control_cancel_request", "request_id", "request", "response"),
    *("error", "error_code", "success", "tool_result_meta", "isReplay", "modelUsage", "errors", "completed"),
)


def check(data: bytes) -> None:
    """Check each object of a document as a frame."""
    try:
        document = load(data)
    except ValueError:
        return
    control, run = Control(), Run()
    asked = [control.request({"subtype": "a"})[0] for _ in range(2)]
    for frame in document if isinstance(document, list) else [document]:
        if isinstance(frame, dict):
            _check_frame(frame)
            _check_control(control, frame, asked)
            run.feed(frame, 1.0)
            assert isinstance(run.over_at(), float | None)
            assert isinstance(run.busy, bool)


def run(data: bytes) -> None:
    """Parse only."""
    document = load(data)
    for frame in document if isinstance(document, list) else [document]:
        if isinstance(frame, dict):
            parse(frame)


def grow(data: bytes, size: int) -> bytes:
    """Repeat the blocks of a message, or the whole document."""
    try:
        document = load(data)
    except ValueError:
        return b"{}"
    times = size // max(1, len(data))
    message = document.get("message") if isinstance(document, dict) else None
    if isinstance(message, dict) and isinstance(message.get("content"), list):
        message["content"] *= times
        return dump(document)
    return dump([document] * times)


def mutate(data: bytes, rng: random.Random) -> bytes | None:
    """Make another frame."""
    return mutate_json(data, rng, _WORDS)


def _check_frame(frame: dict[str, Any]) -> None:
    before = copy.deepcopy(frame)
    message: Any = parse(frame)
    assert frame == before, "the frame was changed"
    kept = message.data if isinstance(message, SystemMessage) else message.raw
    assert kept is frame, "the truth was not kept"
    assert parse(before) == message, "two readings differ"
    _look_at(message)
    for block in getattr(message, "content", None) or ():
        if isinstance(block, Record):
            _look_at(block)


def _look_at(record: Any) -> None:
    """Read every public property, and the repr."""
    assert repr(record)
    for name in dir(type(record)):
        if not name.startswith("_") and isinstance(getattr(type(record), name), property):
            getattr(record, name)


def _check_control(control: Control, frame: dict[str, Any], asked: list[str]) -> None:
    event = control.receive(frame)
    routed = frame.get("type") in ("control_request", "control_response", "control_cancel_request")
    assert (event is not None) == routed
    reply = getattr(event, "reply", None)
    assert reply is None or reply.endswith(b"\n")
    assert getattr(event, "request_id", None) not in asked, (
        "an answer to a request that this frame cannot know"
    )
