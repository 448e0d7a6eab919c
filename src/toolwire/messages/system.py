"""System messages as the official SDK has them, and the plain dicts that they carry.

Imported through `toolwire.messages`. Class names, fields, order and defaults are those of
`claude_agent_sdk`. There is no `raw` on these classes: `data` is the whole frame.
"""

from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

from toolwire._support.record import Record

PermissionMode = Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"]
"""How freely tools may run. It is here because the CLI reports it in its messages."""

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
"""A task with one of these is over. A killed task is `killed` in an update, `stopped` in a notification."""


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
    """`SystemMessage.data` of an `init`: what the CLI sends, with its own keys. Nobody checks it."""

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
    """What a background task has used so far."""

    total_tokens: int
    tool_uses: int
    duration_ms: int


class SessionKey(TypedDict):
    """Names one transcript in a session store; `subpath` is there for the transcript of a subagent only."""

    project_key: str
    session_id: str
    subpath: NotRequired[str]


@dataclass(repr=False, eq=False)
class SystemMessage(Record):
    """News about the session, not from the model. `data` is the whole frame; subclasses read it out."""

    subtype: str
    data: dict[str, Any]


@dataclass(repr=False, eq=False)
class TaskStartedMessage(SystemMessage):
    """A background task or subagent has begun."""

    task_id: str
    description: str
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    task_type: str | None = None


@dataclass(repr=False, eq=False)
class TaskProgressMessage(SystemMessage):
    """A background task or subagent is at work; comes again and again."""

    task_id: str
    description: str
    usage: TaskUsage
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    last_tool_name: str | None = None


@dataclass(repr=False, eq=False)
class TaskNotificationMessage(SystemMessage):
    """A task is over. Not every task sends this: the end may show in a `TaskUpdatedMessage` alone."""

    task_id: str
    status: TaskNotificationStatus
    output_file: str
    summary: str
    uuid: str
    session_id: str
    tool_use_id: str | None = None
    usage: TaskUsage | None = None


@dataclass(repr=False, eq=False)
class TaskUpdatedMessage(SystemMessage):
    """A task's state changed: `patch` has what did, `status` is the new status if that is among it."""

    task_id: str
    patch: dict[str, Any]
    status: TaskUpdatedStatus | None = None
    session_id: str | None = None
    uuid: str | None = None


@dataclass(repr=False, eq=False)
class MirrorErrorMessage(SystemMessage):
    """A session store refused part of the transcript. The run goes on, and the file on disk is whole."""

    key: SessionKey | None = None
    error: str = ""


@dataclass(repr=False, eq=False)
class HookEventMessage(SystemMessage):
    """A hook starts (`hook_started`) or is done (`hook_response`). Only with `include_hook_events`."""

    hook_event_name: str = ""
    session_id: str | None = None
    uuid: str | None = None
