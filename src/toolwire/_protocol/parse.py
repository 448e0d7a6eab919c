"""A frame of the CLI to a message, by tables: type, system subtype and block type each name a builder.

Its rule: `parse` never raises, whatever dict it is given. Values are passed on as they came; only
containers that we walk ourselves are checked (the message, its content, its blocks, rate limit info, a
deferred tool use, a task's patch). What is missing gets the field's natural empty value, a null in a
class of our own counts as missing, and `raw` (or `data`) keeps the truth. A type that is in no table
becomes an `UnknownMessage` or an `UnknownBlock`.

On a well-formed frame all official fields are as the official parser sets them. This module must not know
who reads the messages, nor anything of control frames.
"""

from collections.abc import Callable
from dataclasses import MISSING
from typing import Any

from toolwire import messages as m
from toolwire.messages import blocks as b

Frame = dict[str, Any]


def parse(frame: Frame) -> m.AnyMessage:
    """The message that a frame holds."""
    kind = frame.get("type")
    if not isinstance(kind, str):
        return m.UnknownMessage("", frame)
    build = _MESSAGES.get(kind)
    return m.UnknownMessage(kind, frame) if build is None else build(frame)


# Blocks. The first three and the assistant's builder are the hot path: positional arguments, no loops.


def _block(block: Any) -> b.ContentBlock:
    if not isinstance(block, dict):
        return b.UnknownBlock("", block)
    kind = block.get("type")
    if not isinstance(kind, str):
        return b.UnknownBlock("", block)
    build = _BLOCKS.get(kind)
    if build is not None:
        return build(block)
    if kind.endswith("_tool_result"):
        return b.ServerToolResultBlock(block.get("tool_use_id", ""), block.get("content", {}), kind, block)
    return b.UnknownBlock(kind, block)


def _text(block: Frame) -> b.TextBlock:
    text = block.get("text")
    # The one string that we touch ourselves: messages join it.
    return b.TextBlock(text if isinstance(text, str) else "", block.get("citations"), block)


def _thinking(block: Frame) -> b.ThinkingBlock:
    return b.ThinkingBlock(block.get("thinking", ""), block.get("signature", ""), block)


def _tool_use(block: Frame) -> b.ToolUseBlock:
    return b.ToolUseBlock(block.get("id", ""), block.get("name", ""), block.get("input", {}), block)


def _tool_result(block: Frame) -> b.ToolResultBlock:
    return b.ToolResultBlock(block.get("tool_use_id", ""), block.get("content"), block.get("is_error"), block)


def _server_tool_use(block: Frame) -> b.ServerToolUseBlock:
    return b.ServerToolUseBlock(block.get("id", ""), block.get("name", ""), block.get("input", {}), block)


def _filled(cls: Callable[..., Any], **renamed: str) -> Callable[[Frame], Any]:
    """A builder for a class of ours: each field from the key of its name, or from the one given here."""
    keys = _keys(cls, renamed)
    return lambda frame: cls(raw=frame, **_present(keys, frame))


def _notice(cls: Callable[..., Any], **renamed: str) -> Callable[[Frame], Any]:
    """The same for a system message of ours."""
    keys = _keys(cls, renamed)
    return lambda frame: cls(frame["subtype"], frame, **_present(keys, frame))


def _keys(cls: Any, renamed: dict[str, str]) -> tuple[tuple[str, str], ...]:
    names = [name for name in cls.__dataclass_fields__ if name not in ("raw", "subtype")]
    if "subtype" in cls.__dataclass_fields__:
        names.remove("data")
    return tuple((name, renamed.get(name, name)) for name in names)


def _present(keys: tuple[tuple[str, str], ...], frame: Frame) -> Frame:
    return {name: value for name, key in keys if (value := frame.get(key)) is not None}


_BLOCKS: dict[str, Callable[[Frame], b.ContentBlock]] = {
    "text": _text,
    "thinking": _thinking,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "server_tool_use": _server_tool_use,
    "image": _filled(b.ImageBlock),
    "document": _filled(b.DocumentBlock),
    "redacted_thinking": _filled(b.RedactedThinkingBlock),
    "search_result": _filled(b.SearchResultBlock),
    "container_upload": _filled(b.ContainerUploadBlock),
    "mcp_tool_use": _filled(b.McpToolUseBlock),
    "mcp_tool_result": _filled(b.McpToolResultBlock),
}


# Messages.


def _dict(value: Any) -> Frame:
    return value if isinstance(value, dict) else {}


def _assistant(frame: Frame) -> m.AssistantMessage:
    message = _dict(frame.get("message"))
    content = message.get("content")
    if isinstance(content, list):
        content = [_block(block) for block in content]
    else:
        content = [b.TextBlock(content)] if isinstance(content, str) else []
    get = frame.get
    return m.AssistantMessage(
        content,
        message.get("model", ""),
        get("parent_tool_use_id"),
        get("error"),
        message.get("usage"),
        message.get("id"),
        message.get("stop_reason"),
        get("session_id"),
        get("uuid"),
        get("request_id"),
        get("tool_use_meta"),
        frame,
    )


def _user(frame: Frame) -> m.UserMessage:
    content = _dict(frame.get("message")).get("content")
    if isinstance(content, list):
        content = [_block(block) for block in content]
    elif not isinstance(content, str):
        content = ""
    return m.UserMessage(
        content,
        uuid=frame.get("uuid"),
        parent_tool_use_id=frame.get("parent_tool_use_id"),
        tool_use_result=frame.get("tool_use_result"),
        origin=_origin(frame),
        session_id=frame.get("session_id"),
        is_replay=frame.get("isReplay", False),
        is_synthetic=frame.get("isSynthetic", False),
        tool_result_meta=frame.get("tool_result_meta"),
        raw=frame,
    )


def _origin(frame: Frame) -> Any:
    origin = frame.get("origin")
    return origin if isinstance(origin, dict) and isinstance(origin.get("kind"), str) else None


def _result(frame: Frame) -> m.ResultMessage:
    get = frame.get
    deferred = get("deferred_tool_use")
    return m.ResultMessage(
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
        deferred_tool_use=_deferred(deferred) if deferred and isinstance(deferred, dict) else None,
        errors=get("errors"),
        api_error_status=get("api_error_status"),
        uuid=get("uuid"),
        terminal_reason=get("terminal_reason"),
        origin=_origin(frame),
        user_message_uuid=get("user_message_uuid"),
        ttft_ms=get("ttft_ms"),
        fast_mode_state=get("fast_mode_state"),
        raw=frame,
    )


def _deferred(call: Frame) -> m.DeferredToolUse:
    return m.DeferredToolUse(call.get("id", ""), call.get("name", ""), call.get("input", {}))


def _stream_event(frame: Frame) -> m.StreamEvent:
    get = frame.get
    return m.StreamEvent(
        get("uuid", ""), get("session_id", ""), get("event", {}), get("parent_tool_use_id"), frame
    )


def _rate_limit_event(frame: Frame) -> m.RateLimitEvent:
    info = _dict(frame.get("rate_limit_info"))
    return m.RateLimitEvent(
        m.RateLimitInfo(
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


def _conversation_reset(frame: Frame) -> m.ConversationResetMessage:
    return m.ConversationResetMessage(
        new_conversation_id=frame.get("new_conversation_id", ""),
        uuid=frame.get("uuid", ""),
        session_id=frame.get("session_id", ""),
        trigger=frame.get("trigger"),
        raw=frame,
    )


# System messages.


def _system(frame: Frame) -> m.SystemMessage:
    subtype = frame.get("subtype", "")
    build = _SYSTEM.get(subtype) if isinstance(subtype, str) else None
    return m.SystemMessage(subtype, frame) if build is None else build(frame)


def _reported(cls: Any, **empty: Callable[[], Any]) -> Callable[[Frame], Any]:
    """A builder for an official system message that takes its fields as they are called.

    A missing one is empty in the manner of its default, or of a string where it has none.
    """
    fields = [
        (name, empty.get(name, str if spec.default is MISSING else type(spec.default)))
        for name, spec in cls.__dataclass_fields__.items()
        if name not in ("subtype", "data")
    ]
    return lambda frame: cls(
        frame["subtype"], frame, *[frame[name] if name in frame else make() for name, make in fields]
    )


def _task_updated(frame: Frame) -> m.TaskUpdatedMessage:
    patch = _dict(frame.get("patch"))
    return m.TaskUpdatedMessage(
        frame["subtype"],
        frame,
        task_id=frame.get("task_id", ""),
        patch=patch,
        status=patch.get("status"),
        session_id=frame.get("session_id"),
        uuid=frame.get("uuid"),
    )


def _hook_event(frame: Frame) -> m.HookEventMessage:
    # Three spellings in three generations of the CLI.
    name = frame.get("hook_event") or frame.get("hook_name") or frame.get("hook_event_name") or ""
    return m.HookEventMessage(
        frame["subtype"],
        frame,
        hook_event_name=name,
        session_id=frame.get("session_id"),
        uuid=frame.get("uuid"),
    )


def _compact_boundary(frame: Frame) -> m.CompactBoundaryMessage:
    """The one notice whose fields lie a level deeper."""
    found = _present(_COMPACT_KEYS, {**_dict(frame.get("compact_metadata")), **frame})
    return m.CompactBoundaryMessage(frame["subtype"], frame, **found)


_COMPACT_KEYS = _keys(m.CompactBoundaryMessage, {})

_SYSTEM: dict[str, Callable[[Frame], m.SystemMessage]] = {
    "api_retry": _notice(m.ApiRetryMessage),
    "background_tasks_changed": _notice(m.BackgroundTasksChangedMessage),
    "commands_changed": _notice(m.CommandsChangedMessage),
    "compact_boundary": _compact_boundary,
    "control_request_progress": _notice(m.ControlRequestProgressMessage),
    "elicitation_complete": _notice(m.ElicitationCompleteMessage),
    "files_persisted": _notice(m.FilesPersistedMessage),
    "hook_progress": _notice(m.HookProgressMessage, hook_event_name="hook_event"),
    "hook_response": _hook_event,
    "hook_started": _hook_event,
    "informational": _notice(m.InformationalMessage),
    "init": _notice(m.InitMessage, permission_mode="permissionMode", api_key_source="apiKeySource"),
    "line_dropped": _notice(m.LineDroppedMessage),
    "local_command_output": _notice(m.LocalCommandOutputMessage),
    "memory_recall": _notice(m.MemoryRecallMessage),
    "mirror_error": _reported(m.MirrorErrorMessage),
    "model_refusal_fallback": _notice(m.ModelRefusalFallbackMessage),
    "model_refusal_no_fallback": _notice(m.ModelRefusalNoFallbackMessage),
    "notification": _notice(m.NotificationMessage),
    "permission_denied": _notice(m.PermissionDeniedMessage),
    "plugin_install": _notice(m.PluginInstallMessage),
    "session_state_changed": _notice(m.SessionStateChangedMessage),
    "session_title_changed": _notice(m.SessionTitleChangedMessage),
    "session_writes_lost": _notice(m.SessionWritesLostMessage),
    "status": _notice(m.StatusMessage, permission_mode="permissionMode"),
    "task_notification": _reported(m.TaskNotificationMessage),
    "task_progress": _reported(m.TaskProgressMessage, usage=dict),
    "task_started": _reported(m.TaskStartedMessage),
    "task_updated": _task_updated,
    "thinking_tokens": _notice(m.ThinkingTokensMessage),
    "worker_shutting_down": _notice(m.WorkerShuttingDownMessage),
}

_MESSAGES: dict[str, Callable[[Frame], m.AnyMessage]] = {
    "assistant": _assistant,
    "auth_status": _filled(m.AuthStatusMessage, is_authenticating="isAuthenticating"),
    "conversation_reset": _conversation_reset,
    "prompt_suggestion": _filled(m.PromptSuggestionMessage),
    "rate_limit_event": _rate_limit_event,
    "result": _result,
    "stream_event": _stream_event,
    "system": _system,
    "tool_progress": _filled(m.ToolProgressMessage),
    "tool_use_summary": _filled(m.ToolUseSummaryMessage),
    "user": _user,
}
