"""The messages that a conversation yields, and the unions of all of them.

The classes that `claude_agent_sdk` has are the same here: names, fields, order, defaults. toolwire's own fields
come after them, have defaults, and are ignored by `==` and `repr`. `raw` is the frame as the CLI sent it (the same
dict, not a copy), or None for a message made by hand; a `SystemMessage` has the frame in `data`.

`Message` is the union that users of the official SDK expect. `AnyMessage` also has the types that the official SDK
drops (`EXTRA_MESSAGES`); they are yielded only with `include_all_messages=True`. A new one is a `ParsedRecord` with
its type, whose fields all have defaults, because the CLI guarantees none of them.

Frames are parsed in `toolwire._protocol.parse`; this module knows nothing about that.
"""

from dataclasses import field
from typing import Any, Literal, NotRequired, Required, TypedDict, get_args

from toolwire._support.record import ParsedRecord, Record, record
from toolwire.messages.blocks import ContentBlock, TextBlock
from toolwire.messages.system import FastModeState, SystemMessage


@record
class ToolProgressMessage(ParsedRecord, type="tool_progress"):
    """A tool has been running for a while. In a heartbeat, `parent_tool_use_id` is the id of the call itself."""

    tool_use_id: str = ""
    tool_name: str = ""
    parent_tool_use_id: str | None = None
    elapsed_time_seconds: float = 0
    heartbeat: bool = False
    task_id: str | None = None
    uuid: str | None = None
    session_id: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class AuthStatusMessage(ParsedRecord, type="auth_status"):
    """The state of a login."""

    is_authenticating: bool = field(default=False, metadata={"key": "isAuthenticating"})
    output: list[str] = field(default_factory=list)
    error: str | None = None
    uuid: str | None = None
    session_id: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class ToolUseSummaryMessage(ParsedRecord, type="tool_use_summary"):
    """A sentence about a group of tool calls, for a user interface that folds them."""

    summary: str = ""
    preceding_tool_use_ids: list[str] = field(default_factory=list)
    uuid: str | None = None
    session_id: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class PromptSuggestionMessage(ParsedRecord, type="prompt_suggestion"):
    """A guess at the user's next prompt."""

    suggestion: str = ""
    uuid: str | None = None
    session_id: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class McpProgressMessage(Record):
    """A tool of an in-process server reports its progress. The CLI drops such reports; toolwire does not."""

    server: str
    tool_use_id: str | None = None
    progress: float = 0
    total: float | None = None
    message: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class McpLogMessage(Record):
    """A log record of an in-process server or of one of its tools."""

    server: str
    level: str = "info"
    data: Any = None
    logger: str | None = None
    tool_use_id: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class UnknownMessage(Record):
    """A frame of any other type. `raw` is its only content, so `==` and `repr` include it."""

    type: str
    raw: dict[str, Any] | None = None


AssistantMessageError = Literal[
    "authentication_failed", "billing_error", "rate_limit", "invalid_request", "server_error", "unknown"
]

MessageOriginKind = Literal[
    "human",
    "channel",
    "peer",
    "task-notification",
    "coordinator",
    "unclassified",
    "observer",
    "auto-continuation",
    "observer-activity",
]
"""The sources of a message. An unlisted kind comes from a newer CLI and is never a human."""

TaskNotificationOriginSubkind = Literal["scheduled-trigger", "peer-send-message"]

# Written as a call because one key is the keyword `from`.
MessageOrigin = TypedDict(
    "MessageOrigin",
    {
        "kind": Required[MessageOriginKind],
        "server": str,  # channel: the MCP server
        "from": str,  # peer, observer: what the sender calls itself; no proof of who it is
        "name": str,  # peer: a name to show
        "fromSession": str,  # peer: a session to open
        "senderTaskId": str,  # peer, observer: the background subagent that wrote
        "body": str,  # peer: the text without its envelope
        "verifiedPeerPid": int,  # peer: the process that connected, as the system knows it
        "subkind": TaskNotificationOriginSubkind,  # task-notification
    },
    total=False,
)
"""The source of a user message, or of the turn that a result ends. Your own prompts have none, or kind `human`."""


class ModelUsage(TypedDict):
    """Tokens and cost of one model in a run, with the CLI's own keys."""

    inputTokens: int
    outputTokens: int
    cacheReadInputTokens: int
    cacheCreationInputTokens: int
    webSearchRequests: int
    costUSD: float
    contextWindow: int
    maxOutputTokens: int
    canonicalModel: NotRequired[str]
    provider: NotRequired[str]


def _join_text(content: list[ContentBlock]) -> str:
    return "".join([block.text for block in content if isinstance(block, TextBlock)])


@record
class UserMessage(Record):
    """A message to the model in the user's name: mostly tool results, and prompts that the CLI replays."""

    content: str | list[ContentBlock]
    uuid: str | None = None
    parent_tool_use_id: str | None = None
    tool_use_result: Any = None
    """The tool's result before its conversion to text: a dict for most tools, a list or a string for some."""
    origin: MessageOrigin | None = None
    session_id: str | None = field(default=None, compare=False, repr=False)
    is_replay: bool = field(default=False, compare=False, repr=False)
    """True: the CLI repeats a message that it was sent."""
    is_synthetic: bool = field(default=False, compare=False, repr=False)
    """True: the CLI wrote it, not the user."""
    tool_result_meta: list[dict[str, Any]] | None = field(default=None, compare=False, repr=False)
    """For each tool result: who allowed the call, or why it did not run."""
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The text of all its text blocks, joined."""
        return self.content if isinstance(self.content, str) else _join_text(self.content)


@record
class AssistantMessage(Record):
    """Text, thinking and tool calls of the model. One response of the model may arrive as several of these."""

    content: list[ContentBlock]
    model: str
    parent_tool_use_id: str | None = None
    error: AssistantMessageError | None = None
    usage: dict[str, Any] | None = None
    message_id: str | None = None
    stop_reason: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    request_id: str | None = field(default=None, compare=False, repr=False)
    """The API's id of the request, for support."""
    tool_use_meta: list[dict[str, Any]] | None = field(default=None, compare=False, repr=False)
    """For each tool use: display names of the tool and its server."""
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The text of all its text blocks, joined."""
        return _join_text(self.content)


@record
class DeferredToolUse(Record):
    """The tool call at which a run stopped because a PreToolUse hook said `defer`."""

    id: str
    name: str
    input: dict[str, Any]


@record
class ResultMessage(Record):
    """The end of a turn: its outcome, output and cost; `errors` says why it failed."""

    subtype: str
    duration_ms: int
    duration_api_ms: int
    is_error: bool
    num_turns: int
    session_id: str
    stop_reason: str | None = None
    total_cost_usd: float | None = None
    usage: dict[str, Any] | None = None
    result: str | None = None
    structured_output: Any = None
    model_usage: dict[str, ModelUsage] | None = None
    permission_denials: list[Any] | None = None
    deferred_tool_use: DeferredToolUse | None = None
    errors: list[str] | None = None
    api_error_status: int | None = None
    uuid: str | None = None
    terminal_reason: str | None = None
    origin: MessageOrigin | None = None
    user_message_uuid: str | None = field(default=None, compare=False, repr=False)
    """The prompt that this result answers."""
    ttft_ms: float | None = field(default=None, compare=False, repr=False)
    """Milliseconds to the first token of the model."""
    fast_mode_state: FastModeState | None = field(default=None, compare=False, repr=False)
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class StreamEvent(Record):
    """A part of a response while the model writes it: one event of the API. With `include_partial_messages`."""

    uuid: str
    session_id: str
    event: dict[str, Any]
    parent_tool_use_id: str | None = None
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


RateLimitStatus = Literal["allowed", "allowed_warning", "rejected"]
RateLimitType = Literal["five_hour", "seven_day", "seven_day_opus", "seven_day_sonnet", "overage"]


@record
class RateLimitInfo(Record):
    """The state of a usage limit. Times are Unix seconds, `utilization` is a fraction, `raw` has all fields."""

    status: RateLimitStatus
    resets_at: int | None = None
    rate_limit_type: RateLimitType | None = None
    utilization: float | None = None
    overage_status: RateLimitStatus | None = None
    overage_resets_at: int | None = None
    overage_disabled_reason: str | None = None
    raw: dict[str, Any] = field(default_factory=dict)


@record
class RateLimitEvent(Record):
    """A usage limit is near, was reached, or is no longer near."""

    rate_limit_info: RateLimitInfo
    uuid: str
    session_id: str
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


@record
class ConversationResetMessage(Record):
    """The conversation was discarded (`/clear`) while the connection stays open; costs restart at zero.

    `session_id` is the session that ended; later messages have another one.
    """

    new_conversation_id: str
    uuid: str
    session_id: str
    trigger: str | None = field(default=None, compare=False, repr=False)
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)


Message = (
    UserMessage
    | AssistantMessage
    | SystemMessage
    | ResultMessage
    | StreamEvent
    | RateLimitEvent
    | ConversationResetMessage
)

AnyMessage = (
    Message
    | ToolProgressMessage
    | AuthStatusMessage
    | ToolUseSummaryMessage
    | PromptSuggestionMessage
    | McpProgressMessage
    | McpLogMessage
    | UnknownMessage
)

EXTRA_MESSAGES: tuple[type, ...] = tuple(cls for cls in get_args(AnyMessage) if cls not in get_args(Message))
"""The classes of `AnyMessage` that `Message` lacks, as a tuple for `isinstance`."""
