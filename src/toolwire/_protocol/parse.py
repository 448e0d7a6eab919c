"""Parses a frame of the CLI into a message: type, system subtype and block type each select a builder.

`parse` never raises, whatever dict it is given. Values are passed on unchanged; only containers that we walk
ourselves are checked (the message, its content, its blocks, rate limit info, a deferred tool use, a task's patch).
A missing value gets the field's natural empty value, a null in a class of our own counts as missing, and `raw` (or
`data`) keeps the original. Any other type becomes an `UnknownMessage` or an `UnknownBlock`.

Our own classes declare what they are parsed from (`ParsedRecord`, `TypedSystemMessage`), so a new one needs no edit
here. On a well-formed frame the class and all official fields are as the official parser sets them; `typed` gives a
system message our own class. This module must not know who reads the messages, nor anything about control frames.
"""

from collections.abc import Callable
from dataclasses import MISSING
from typing import Any, get_args

from toolwire._support.record import ParsedRecord, Record
from toolwire.messages import blocks as b
from toolwire.messages import conversation as c
from toolwire.messages import system as s

Frame = dict[str, Any]


def parse(frame: Frame) -> c.AnyMessage:
    """Return the message that a frame holds."""
    try:
        build = _MESSAGES[frame["type"]]
    except (KeyError, TypeError):  # TypeError: a type that is a list or an object
        kind = frame.get("type")
        return c.UnknownMessage(kind if isinstance(kind, str) else "", frame)
    return build(frame)


# Blocks. The first three and the assistant's builder are the hot path: positional arguments, no loops.


def _parse_blocks(content: list[Any]) -> list[b.ContentBlock]:
    blocks: list[b.ContentBlock] = []
    for block in content:
        try:
            build = _BLOCKS[block["type"]]
        except (KeyError, TypeError):
            build = _parse_other_block
        blocks.append(build(block))
    return blocks


def _parse_other_block(block: Any) -> b.ContentBlock:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        return b.UnknownBlock("", block)
    if kind.endswith("_tool_result"):
        return b.ServerToolResultBlock(block.get("tool_use_id", ""), block.get("content", {}), kind, block)
    return b.UnknownBlock(kind, block)


def _parse_text(block: Frame) -> b.TextBlock:
    text = block.get("text")
    # Checked because messages join it.
    return b.TextBlock(text if isinstance(text, str) else "", block.get("citations"), block)


def _parse_thinking(block: Frame) -> b.ThinkingBlock:
    return b.ThinkingBlock(block.get("thinking", ""), block.get("signature", ""), block)


def _parse_tool_use(block: Frame) -> b.ToolUseBlock:
    return b.ToolUseBlock(block.get("id", ""), block.get("name", ""), block.get("input", {}), block)


def _parse_tool_result(block: Frame) -> b.ToolResultBlock:
    return b.ToolResultBlock(block.get("tool_use_id", ""), block.get("content"), block.get("is_error"), block)


def _parse_server_tool_use(block: Frame) -> b.ServerToolUseBlock:
    return b.ServerToolUseBlock(block.get("id", ""), block.get("name", ""), block.get("input", {}), block)


def _fill(cls: Any) -> Callable[[Frame], Any]:
    """Return a builder that fills a record by its fields."""
    keys = _list_keys(cls, "raw")
    return lambda frame: cls(raw=frame, **_pick_present(keys, frame))


def _list_keys(cls: type[Record], *left_out: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of field name and JSON key, for all fields of a record that are read from a frame."""
    return tuple(
        (name, field.metadata.get("key", name))
        for name, field in cls.__dataclass_fields__.items()
        if name not in left_out
    )


def _pick_present(keys: tuple[tuple[str, str], ...], frame: Frame) -> Frame:
    """Return the fields whose key is present and not null."""
    return {name: value for name, key in keys if (value := frame.get(key)) is not None}


_BLOCKS: dict[str, Callable[[Frame], b.ContentBlock]] = {
    "text": _parse_text,
    "thinking": _parse_thinking,
    "tool_use": _parse_tool_use,
    "tool_result": _parse_tool_result,
    "server_tool_use": _parse_server_tool_use,
    **{cls.parsed_type: _fill(cls) for cls in get_args(b.ContentBlock) if issubclass(cls, ParsedRecord)},
}


# Messages.


def _as_dict(value: Any) -> Frame:
    return value if isinstance(value, dict) else {}


def _parse_assistant(frame: Frame) -> c.AssistantMessage:
    get = frame.get
    message = get("message")
    if not isinstance(message, dict):
        message = {}
    get_inner = message.get
    content = get_inner("content")
    if isinstance(content, list):
        content = _parse_blocks(content)
    else:
        content = [b.TextBlock(content)] if isinstance(content, str) else []
    return c.AssistantMessage(
        content,
        get_inner("model", ""),
        get("parent_tool_use_id"),
        get("error"),
        get_inner("usage"),
        get_inner("id"),
        get_inner("stop_reason"),
        get("session_id"),
        get("uuid"),
        get("request_id"),
        get("tool_use_meta"),
        frame,
    )


def _parse_user(frame: Frame) -> c.UserMessage:
    content = _as_dict(frame.get("message")).get("content")
    if isinstance(content, list):
        content = _parse_blocks(content)
    elif not isinstance(content, str):
        content = ""
    return c.UserMessage(
        content,
        uuid=frame.get("uuid"),
        parent_tool_use_id=frame.get("parent_tool_use_id"),
        tool_use_result=frame.get("tool_use_result"),
        origin=_parse_origin(frame),
        session_id=frame.get("session_id"),
        is_replay=frame.get("isReplay", False),
        is_synthetic=frame.get("isSynthetic", False),
        tool_result_meta=frame.get("tool_result_meta"),
        raw=frame,
    )


def _parse_origin(frame: Frame) -> Any:
    origin = frame.get("origin")
    return origin if isinstance(origin, dict) and isinstance(origin.get("kind"), str) else None


def _parse_result(frame: Frame) -> c.ResultMessage:
    get = frame.get
    deferred = get("deferred_tool_use")
    return c.ResultMessage(
        subtype=get("subtype", ""),
        duration_ms=get("duration_ms", 0),
        duration_api_ms=get("duration_api_ms", 0),
        is_error=get("is_error", False),
        num_turns=get("num_turns", 0),
        session_id=get("session_id", ""),
        stop_reason=get("stop_reason"),
        total_cost_usd=get("total_cost_usd"),
        usage=get("usage"),
        result=get("result"),
        structured_output=get("structured_output"),
        model_usage=get("modelUsage"),
        permission_denials=get("permission_denials"),
        deferred_tool_use=_parse_deferred(deferred) if deferred and isinstance(deferred, dict) else None,
        errors=get("errors"),
        api_error_status=get("api_error_status"),
        uuid=get("uuid"),
        terminal_reason=get("terminal_reason"),
        origin=_parse_origin(frame),
        user_message_uuid=get("user_message_uuid"),
        ttft_ms=get("ttft_ms"),
        fast_mode_state=get("fast_mode_state"),
        raw=frame,
    )


def _parse_deferred(call: Frame) -> c.DeferredToolUse:
    return c.DeferredToolUse(call.get("id", ""), call.get("name", ""), call.get("input", {}))


def _parse_stream_event(frame: Frame) -> c.StreamEvent:
    get = frame.get
    return c.StreamEvent(
        get("uuid", ""), get("session_id", ""), get("event", {}), get("parent_tool_use_id"), frame
    )


def _parse_rate_limit_event(frame: Frame) -> c.RateLimitEvent:
    info = _as_dict(frame.get("rate_limit_info"))
    return c.RateLimitEvent(
        c.RateLimitInfo(
            status=info.get("status", ""),
            resets_at=info.get("resetsAt"),
            rate_limit_type=info.get("rateLimitType"),
            utilization=info.get("utilization"),
            overage_status=info.get("overageStatus"),
            overage_resets_at=info.get("overageResetsAt"),
            overage_disabled_reason=info.get("overageDisabledReason"),
            raw=info,
        ),
        uuid=frame.get("uuid", ""),
        session_id=frame.get("session_id", ""),
        raw=frame,
    )


def _parse_conversation_reset(frame: Frame) -> c.ConversationResetMessage:
    return c.ConversationResetMessage(
        new_conversation_id=frame.get("new_conversation_id", ""),
        uuid=frame.get("uuid", ""),
        session_id=frame.get("session_id", ""),
        trigger=frame.get("trigger"),
        raw=frame,
    )


# System messages.


def _parse_system(frame: Frame) -> s.SystemMessage:
    subtype = frame.get("subtype", "")
    build = _SYSTEM.get(subtype) if isinstance(subtype, str) else None
    return s.SystemMessage(subtype, frame) if build is None else build(frame)


def _fill_official(cls: Any, **empty: Callable[[], Any]) -> Callable[[Frame], Any]:
    """Return a builder for an official system message, whose fields have the same names in the frame.

    A missing field gets an empty value of the type of its default, or an empty string if it has no default.
    """
    fields = [
        (name, empty.get(name, str if spec.default is MISSING else type(spec.default)))
        for name, spec in cls.__dataclass_fields__.items()
        if name not in ("subtype", "data")
    ]
    return lambda frame: cls(
        frame["subtype"], frame, *[frame[name] if name in frame else make() for name, make in fields]
    )


def _parse_task_updated(frame: Frame) -> s.TaskUpdatedMessage:
    patch = _as_dict(frame.get("patch"))
    return s.TaskUpdatedMessage(
        frame["subtype"],
        frame,
        task_id=frame.get("task_id", ""),
        patch=patch,
        status=patch.get("status"),
        session_id=frame.get("session_id"),
        uuid=frame.get("uuid"),
    )


def _parse_hook_event(frame: Frame) -> s.HookEventMessage:
    # Three spellings in three generations of the CLI.
    name = frame.get("hook_event") or frame.get("hook_name") or frame.get("hook_event_name") or ""
    return s.HookEventMessage(
        frame["subtype"],
        frame,
        hook_event_name=name,
        session_id=frame.get("session_id"),
        uuid=frame.get("uuid"),
    )


def typed(message: c.AnyMessage) -> c.AnyMessage:
    """Return the message in the class of its subtype: `InitMessage`, `StatusMessage`, ... for a `SystemMessage`.

    A message that already has its own class, and one whose subtype has no class, is returned unchanged.
    """
    if type(message) is not s.SystemMessage:  # not a subclass: those are typed, or a user's own
        return message
    subtype: Any = message.subtype  # the message may have been made with values of other types
    data: Any = message.data
    build = _TYPED.get(subtype) if isinstance(subtype, str) else None
    return message if build is None or not isinstance(data, dict) else build(subtype, data)


def _fill_system(cls: type[s.TypedSystemMessage]) -> Callable[[str, Frame], s.TypedSystemMessage]:
    """Return a builder that fills a system message by its fields."""
    keys = _list_keys(cls, "subtype", "data")
    nested = cls.parsed_nested
    if nested is None:
        return lambda subtype, frame: cls(subtype, frame, **_pick_present(keys, frame))
    return lambda subtype, frame: cls(
        subtype, frame, **_pick_present(keys, {**_as_dict(frame.get(nested)), **frame})
    )


# The subtypes for which the official SDK has a class. Any other is a plain SystemMessage, as in that SDK, because
# programs compare the names of classes; `typed` gives it our own class.
_SYSTEM: dict[str, Callable[[Frame], s.SystemMessage]] = {
    "hook_response": _parse_hook_event,
    "hook_started": _parse_hook_event,
    "mirror_error": _fill_official(s.MirrorErrorMessage),
    "task_notification": _fill_official(s.TaskNotificationMessage),
    "task_progress": _fill_official(s.TaskProgressMessage, usage=dict),
    "task_started": _fill_official(s.TaskStartedMessage),
    "task_updated": _parse_task_updated,
}

_TYPED: dict[str, Callable[[str, Frame], s.TypedSystemMessage]] = {
    cls.parsed_subtype: _fill_system(cls) for cls in s.TypedSystemMessage.__subclasses__()
}

_MESSAGES: dict[str, Callable[[Frame], c.AnyMessage]] = {
    "assistant": _parse_assistant,
    "conversation_reset": _parse_conversation_reset,
    "rate_limit_event": _parse_rate_limit_event,
    "result": _parse_result,
    "stream_event": _parse_stream_event,
    "system": _parse_system,
    "user": _parse_user,
    **{cls.parsed_type: _fill(cls) for cls in get_args(c.AnyMessage) if issubclass(cls, ParsedRecord)},
}
