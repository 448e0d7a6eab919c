"""System messages: those that the official SDK has, then one class for each subtype that it leaves untyped.

The first group has the names, fields, order and defaults of `claude_agent_sdk`. Other messages keep their whole
frame in `raw`; here it is `data`. The keys of the dicts inside are the CLI's own. A new subtype is one class here.
"""

from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar, Literal, NotRequired, TypedDict

from toolwire._support.record import Record, record

PermissionMode = Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"]
"""The permission modes. They are here because the CLI reports them in its messages."""

FastModeState = Literal["off", "cooldown", "on"]

FastModeDisabledReason = Literal[
    "free",
    "preference",
    "extra_usage_disabled",
    "network_error",
    "unknown",
    "not_first_party",
    "disabled_by_env",
    "model_not_allowed",
    "sdk_opt_in_required",
    "pending",
]

TaskNotificationStatus = Literal["completed", "failed", "stopped"]

TaskUpdatedStatus = Literal["pending", "running", "paused", "completed", "failed", "killed"]

TERMINAL_TASK_STATUSES: frozenset[str] = frozenset({"completed", "failed", "stopped", "killed"})
"""A task with one of these has ended. A killed task is `killed` in an update, `stopped` in a notification."""


class SystemInitMcpServer(TypedDict):
    """One MCP server in `SystemInitData`."""

    name: str
    status: str
    source: NotRequired[str]


class SystemInitPlugin(TypedDict):
    """One plugin that was loaded, in `SystemInitData`."""

    name: str
    path: str
    version: NotRequired[str]


class SystemInitPluginError(TypedDict):
    """One plugin that could not be loaded, in `SystemInitData`."""

    plugin: str
    type: str
    message: str
    path: NotRequired[str]


class SystemInitData(TypedDict):
    """`SystemMessage.data` of an `init`: what the CLI sends, with its own keys. It is not checked."""

    type: Literal["system"]
    subtype: Literal["init"]
    uuid: str
    session_id: str
    agents: NotRequired[list[str]]
    apiKeySource: str
    betas: NotRequired[list[str]]
    claude_code_version: str
    cwd: str
    tools: list[str]
    mcp_servers: list[SystemInitMcpServer]
    model: str
    permissionMode: PermissionMode
    slash_commands: list[str]
    terminal_slash_commands: NotRequired[list[str]]
    output_style: str
    skills: list[str]
    plugins: list[SystemInitPlugin]
    plugin_errors: NotRequired[list[SystemInitPluginError]]
    fast_mode_state: NotRequired[FastModeState]
    fast_mode_disabled_reason: NotRequired[FastModeDisabledReason]
    capabilities: NotRequired[list[str]]


class TaskUsage(TypedDict):
    """The tokens, tool calls and time of a background task so far."""

    total_tokens: int
    tool_uses: int
    duration_ms: int


class SessionKey(TypedDict):
    """Names one transcript in a session store; `subpath` is there for the transcript of a subagent only."""

    project_key: str
    session_id: str
    subpath: NotRequired[str]


@record
class SystemMessage(Record):
    """Information about the session, not from the model. `data` is the whole frame; subclasses have its fields."""

    subtype: str
    data: dict[str, Any]


@record
class TaskStartedMessage(SystemMessage):
    """A background task or subagent has begun."""

    task_id: str
    description: str
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    task_type: str | None = None


@record
class TaskProgressMessage(SystemMessage):
    """A background task or subagent is running; sent repeatedly."""

    task_id: str
    description: str
    usage: TaskUsage
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    last_tool_name: str | None = None


@record
class TaskNotificationMessage(SystemMessage):
    """A task has ended. Not every task sends this: the end may be reported only by a `TaskUpdatedMessage`."""

    task_id: str
    status: TaskNotificationStatus
    output_file: str
    summary: str
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    usage: TaskUsage | None = None


@record
class TaskUpdatedMessage(SystemMessage):
    """A task's state changed: `patch` has the changed fields, `status` the new status if it is among them."""

    task_id: str
    patch: dict[str, Any]
    status: TaskUpdatedStatus | None = None
    session_id: str | None = None
    uuid: str | None = None


@record
class MirrorErrorMessage(SystemMessage):
    """A session store refused part of the transcript. The run continues, and the file on disk is complete."""

    key: SessionKey | None = None
    error: str = ""


@record
class HookEventMessage(SystemMessage):
    """A hook starts (`hook_started`) or is done (`hook_response`). Only with `include_hook_events`."""

    hook_event_name: str = ""
    session_id: str | None = None
    uuid: str | None = None


@dataclass(init=False, repr=False, eq=False)
class TypedSystemMessage(SystemMessage):
    """Base of the system messages that the official SDK leaves untyped: one class for each subtype.

    Every field is read from `data` by its name, or by the key in its metadata, and has a default, because the CLI
    guarantees none of them. With `nested`, the fields are read from that part of `data` too.

    A conversation yields a plain `SystemMessage` for the same frame, as the official SDK does. Typed classes are
    yielded with `include_all_messages`, by `run()`, and returned by `typed(message)`. The two are equal, so that a
    comparison written for the official class still holds. The fields only repeat `data`, so `repr` omits them.

    All subclasses share one `__init__`: compiling two dozen would double the time to import the messages.
    """

    parsed_subtype: ClassVar[str]
    parsed_nested: ClassVar[str | None] = None
    uuid: str | None = None
    session_id: str | None = None

    def __init_subclass__(cls, subtype: str | None = None, nested: str | None = None) -> None:
        super().__init_subclass__()
        if subtype is not None:
            cls.parsed_subtype, cls.parsed_nested = subtype, nested

    def __init__(self, subtype: str, data: dict[str, Any], **fields: Any) -> None:
        self.subtype = subtype
        self.data = data
        for name, spec in self.__dataclass_fields__.items():
            if name in fields:
                setattr(self, name, fields.pop(name))
            elif spec.default_factory is not MISSING:
                setattr(self, name, spec.default_factory())
        if fields:
            raise TypeError(f"{self.__class__.__name__} has no field {', '.join(map(repr, fields))}")

    __hash__ = None  # type: ignore[assignment]  # as in Record: mutable and compared by value, so not hashable

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SystemMessage) or other.__class__ not in (self.__class__, SystemMessage):
            return NotImplemented
        return self.subtype == other.subtype and self.data == other.data

    def __repr__(self) -> str:
        return f"{self.__class__.__qualname__}(subtype={self.subtype!r}, data={self.data!r})"


@dataclass(init=False, repr=False, eq=False)
class InitMessage(TypedSystemMessage, subtype="init"):
    """The tools, servers and settings of the session. Sent at the start of every turn."""

    model: str = ""
    cwd: str = ""
    tools: list[str] = field(default_factory=list)
    mcp_servers: list[SystemInitMcpServer] = field(default_factory=list)
    permission_mode: str = field(default="", metadata={"key": "permissionMode"})
    slash_commands: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    skills: list[str] = field(default_factory=list)
    plugins: list[SystemInitPlugin] = field(default_factory=list)
    plugin_errors: list[SystemInitPluginError] = field(default_factory=list)
    output_style: str = ""
    api_key_source: str = field(default="", metadata={"key": "apiKeySource"})
    claude_code_version: str = ""
    capabilities: list[str] = field(default_factory=list)
    """Names of protocol features that this CLI has. Check these instead of comparing versions."""


@dataclass(init=False, repr=False, eq=False)
class StatusMessage(TypedSystemMessage, subtype="status"):
    """The CLI's current activity (`compacting`, `requesting`, None for neither), or a new permission mode."""

    status: str | None = None
    permission_mode: str | None = field(default=None, metadata={"key": "permissionMode"})
    compact_result: str | None = None
    compact_error: str | None = None


@dataclass(init=False, repr=False, eq=False)
class CompactBoundaryMessage(TypedSystemMessage, subtype="compact_boundary", nested="compact_metadata"):
    """The conversation was summarised; the model no longer sees the messages before this point."""

    trigger: str = ""
    """`manual` or `auto`."""
    pre_tokens: int = 0
    post_tokens: int | None = None
    duration_ms: int | None = None


@dataclass(init=False, repr=False, eq=False)
class ApiRetryMessage(TypedSystemMessage, subtype="api_retry"):
    """A request to the API failed and will be retried after `retry_delay_ms`."""

    attempt: int = 0
    max_retries: int = 0
    retry_delay_ms: float = 0
    error_status: int | None = None
    error: str = ""


@dataclass(init=False, repr=False, eq=False)
class BackgroundTasksChangedMessage(TypedSystemMessage, subtype="background_tasks_changed"):
    """All background tasks that are running now; replaces the list of the previous message."""

    tasks: list[dict[str, Any]] = field(default_factory=list)


@dataclass(init=False, repr=False, eq=False)
class CommandsChangedMessage(TypedSystemMessage, subtype="commands_changed"):
    """All slash commands that exist now; replaces the list of the previous message."""

    commands: list[dict[str, Any]] = field(default_factory=list)


@dataclass(init=False, repr=False, eq=False)
class ControlRequestProgressMessage(TypedSystemMessage, subtype="control_request_progress"):
    """A slow control request has started, or is retrying a request to the API."""

    request_id: str = ""
    status: str = ""
    attempt: int | None = None
    max_retries: int | None = None
    retry_delay_ms: float | None = None
    error_status: int | None = None


@dataclass(init=False, repr=False, eq=False)
class ElicitationCompleteMessage(TypedSystemMessage, subtype="elicitation_complete"):
    """The user has completed what an MCP server requested at a URL."""

    mcp_server_name: str = ""
    elicitation_id: str = ""


@dataclass(init=False, repr=False, eq=False)
class FilesPersistedMessage(TypedSystemMessage, subtype="files_persisted"):
    """Files of the session were stored by the host, or could not be."""

    files: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    processed_at: str = ""


@dataclass(init=False, repr=False, eq=False)
class HookProgressMessage(TypedSystemMessage, subtype="hook_progress"):
    """Output of a hook that is still running."""

    hook_id: str = ""
    hook_name: str = ""
    hook_event_name: str = field(default="", metadata={"key": "hook_event"})
    stdout: str = ""
    stderr: str = ""
    output: str = ""


@dataclass(init=False, repr=False, eq=False)
class InformationalMessage(TypedSystemMessage, subtype="informational"):
    """A line of text for the user, with a level: info, notice, suggestion or warning."""

    content: str = ""
    level: str = ""
    tool_use_id: str | None = None
    prevent_continuation: bool = False


@dataclass(init=False, repr=False, eq=False)
class LineDroppedMessage(TypedSystemMessage, subtype="line_dropped"):
    """Made by toolwire: the CLI wrote a line longer than the limit, and the line was discarded."""

    bytes: int = 0
    limit: int = 0


@dataclass(init=False, repr=False, eq=False)
class LocalCommandOutputMessage(TypedSystemMessage, subtype="local_command_output"):
    """The output of a slash command that ran without the model."""

    content: str = ""


@dataclass(init=False, repr=False, eq=False)
class MemoryRecallMessage(TypedSystemMessage, subtype="memory_recall"):
    """Memories were given to the model for this turn."""

    mode: str = ""
    memories: list[dict[str, Any]] = field(default_factory=list)


@dataclass(init=False, repr=False, eq=False)
class ModelRefusalFallbackMessage(TypedSystemMessage, subtype="model_refusal_fallback"):
    """A model refused, and another one takes over, or hands back to it."""

    direction: str = ""
    """`retry`, `revert` or `sticky`."""
    original_model: str = ""
    fallback_model: str = ""
    content: str = ""
    request_id: str | None = None
    retracted_message_uuids: list[str] = field(default_factory=list)


@dataclass(init=False, repr=False, eq=False)
class ModelRefusalNoFallbackMessage(TypedSystemMessage, subtype="model_refusal_no_fallback"):
    """A model refused, and there is no other to take over."""

    original_model: str = ""
    content: str = ""
    request_id: str | None = None


@dataclass(init=False, repr=False, eq=False)
class NotificationMessage(TypedSystemMessage, subtype="notification"):
    """A short notice that a terminal would show for a while. A later one with the same `key` replaces it."""

    key: str = ""
    text: str = ""
    priority: str = ""
    color: str | None = None
    timeout_ms: float | None = None


@dataclass(init=False, repr=False, eq=False)
class PermissionDeniedMessage(TypedSystemMessage, subtype="permission_denied"):
    """A tool call was denied without a permission request."""

    tool_name: str = ""
    tool_use_id: str = ""
    message: str = ""
    agent_id: str | None = None
    decision_reason_type: str | None = None
    decision_reason: str | None = None


@dataclass(init=False, repr=False, eq=False)
class PluginInstallMessage(TypedSystemMessage, subtype="plugin_install"):
    """A step of installing plugins: started, installed, failed, completed."""

    status: str = ""
    name: str | None = None
    error: str | None = None


@dataclass(init=False, repr=False, eq=False)
class SessionStateChangedMessage(TypedSystemMessage, subtype="session_state_changed"):
    """The session is now `idle`, `running` or waiting for the user (`requires_action`)."""

    state: str = ""


@dataclass(init=False, repr=False, eq=False)
class SessionTitleChangedMessage(TypedSystemMessage, subtype="session_title_changed"):
    """The session has a new name."""

    title: str = ""


@dataclass(init=False, repr=False, eq=False)
class SessionWritesLostMessage(TypedSystemMessage, subtype="session_writes_lost"):
    """The disk is full: part of the transcript or of the settings is not saved."""

    error_code: str = ""
    lost: list[str] = field(default_factory=list)
    transcript_session_ids: list[str] = field(default_factory=list)


@dataclass(init=False, repr=False, eq=False)
class ThinkingTokensMessage(TypedSystemMessage, subtype="thinking_tokens"):
    """An estimate of the tokens that the model has used for thinking so far."""

    estimated_tokens: int = 0
    estimated_tokens_delta: int = 0


@dataclass(init=False, repr=False, eq=False)
class WorkerShuttingDownMessage(TypedSystemMessage, subtype="worker_shutting_down"):
    """The CLI is about to exit for the given reason."""

    reason: str = ""
