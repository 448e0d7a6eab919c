"""Hypothesis strategies for frames that no CLI would send: wrong types, and the words that readers look for."""

from hypothesis import strategies as st

WORDS = (
    *(
        "control_request",
        "control_response",
        "control_cancel_request",
        "user",
        "assistant",
        "system",
        "result",
    ),
    *("stream_event", "tool_progress", "api-request", "message_start", "message_delta", "message_stop"),
    *("init", "status", "requesting", "session_state_changed", "idle", "api_retry", "permission_denied"),
    *("task_started", "task_progress", "task_updated", "task_notification", "hook_started", "hook_response"),
    *("initialize", "mcp_message", "hook_callback", "can_use_tool", "elicitation", "interrupt", "tools/call"),
    *("notifications/cancelled", "success", "error", "deny", "completed", "failed", "local_agent", "text"),
    *("tool_use", "tool_result", "t1", "t2", "PreToolUse", "UserPromptSubmit", "human", "task-notification"),
)
KEYS = (
    *(
        "type",
        "subtype",
        "request_id",
        "request",
        "response",
        "message",
        "content",
        "id",
        "name",
        "input",
        "usage",
    ),
    *(
        "tool_use_id",
        "parent_tool_use_id",
        "is_error",
        "event",
        "status",
        "state",
        "task_id",
        "task_type",
        "patch",
    ),
    *(
        "hook_id",
        "hook_event",
        "hook_event_name",
        "method",
        "params",
        "_meta",
        "claudecode/toolUseId",
        "behavior",
    ),
    *(
        "mcp_response",
        "result",
        "error",
        "requestId",
        "server_name",
        "tool_name",
        "agent_id",
        "origin",
        "kind",
    ),
    *(
        "mcp_servers",
        "modelUsage",
        "total_cost_usd",
        "output_tokens",
        "input_tokens",
        "retry_delay_ms",
        "attempt",
    ),
    *(
        "error_status",
        "tool_result_meta",
        "permission_decision",
        "tool_use_result",
        "isAsync",
        "model",
        "text",
    ),
    *(
        "errors",
        "terminal_reason",
        "delta",
        "stop_reason",
        "exit_code",
        "session_id",
        "subagent_type",
        "prompt",
    ),
)
LEAVES = (
    st.sampled_from(WORDS)
    | st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.text(max_size=4)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)
FRAMES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)
TYPED = st.builds(lambda kind, rest: {**rest, "type": kind}, st.sampled_from(WORDS), FRAMES)
MOMENTS = st.floats() | st.integers() | st.none()
