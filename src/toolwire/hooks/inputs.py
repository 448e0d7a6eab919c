"""What a hook is told: one plain dict for each of the CLI's events, with the CLI's own keys.

The types that `claude_agent_sdk` has are the same here: names, keys, which of them are required. It types ten
events; the rest are ours, after the CLI's published declarations. Nothing is checked when a hook is called.
"""

from typing import Any, Literal, NotRequired, TypedDict

HookEvent = Literal[
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Notification",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "SessionStart",
    "SessionEnd",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "PreModelSwitch",
    "PostModelSwitch",
    "PermissionRequest",
    "PermissionDenied",
    "Setup",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "Elicitation",
    "ElicitationResult",
    "ConfigChange",
    "WorktreeCreate",
    "WorktreeRemove",
    "InstructionsLoaded",
    "CwdChanged",
    "FileChanged",
    "DirectoryAdded",
    "MessageDisplay",
]
"""Every event that the CLI has hooks for."""


class HookEffort(TypedDict):
    """How hard the model thinks in this turn: low, medium, high, ..."""

    level: str


class BaseHookInput(TypedDict):
    """What every hook is told. `effort` comes with tool events, `prompt_id` once there was a prompt."""

    session_id: str
    transcript_path: str
    cwd: str
    permission_mode: NotRequired[str]
    prompt_id: NotRequired[str]
    effort: NotRequired[HookEffort]


# Apart from the base, because two events need the same keys as required ones, and a TypedDict cannot tighten.
class _InSubagent(TypedDict, total=False):
    """Which subagent a tool event belongs to; without `agent_id` it is the main agent's."""

    agent_id: str
    agent_type: str


class PreToolUseHookInput(BaseHookInput, _InSubagent):
    """A tool is about to run."""

    hook_event_name: Literal["PreToolUse"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str


class PostToolUseHookInput(BaseHookInput, _InSubagent):
    """A tool has run; `duration_ms` is the tool alone, without hooks and questions."""

    hook_event_name: Literal["PostToolUse"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_response: Any
    tool_use_id: str
    duration_ms: NotRequired[int]


class PostToolUseFailureHookInput(BaseHookInput, _InSubagent):
    """A tool has failed, or was interrupted."""

    hook_event_name: Literal["PostToolUseFailure"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    error: str
    is_interrupt: NotRequired[bool]
    duration_ms: NotRequired[int]


class UserPromptSubmitHookInput(BaseHookInput):
    """A prompt is about to go to the model."""

    hook_event_name: Literal["UserPromptSubmit"]
    prompt: str


class BackgroundTaskSummary(TypedDict):
    """A background task that is still running as the model stops.

    `command` is there for shells, `agent_type` for subagents, `server` and `tool` for MCP, `name` for
    workflows. Long texts are cut by the CLI.
    """

    id: str
    type: str
    status: str
    description: str
    command: NotRequired[str]
    agent_type: NotRequired[str]
    server: NotRequired[str]
    tool: NotRequired[str]
    name: NotRequired[str]


class SessionCronSummary(TypedDict):
    """A prompt that this session will send itself later; `schedule` is a cron expression."""

    id: str
    schedule: str
    recurring: bool
    prompt: str


class StopHookInput(BaseHookInput):
    """The model wants to stop. `stop_hook_active`: it is going on only because a Stop hook said so before."""

    hook_event_name: Literal["Stop"]
    stop_hook_active: bool
    last_assistant_message: NotRequired[str]
    background_tasks: NotRequired[list[BackgroundTaskSummary]]
    session_crons: NotRequired[list[SessionCronSummary]]


class SubagentStopHookInput(BaseHookInput):
    """A subagent wants to stop. Tasks and crons are those of the whole session."""

    hook_event_name: Literal["SubagentStop"]
    stop_hook_active: bool
    agent_id: str
    agent_transcript_path: str
    agent_type: str
    last_assistant_message: NotRequired[str]
    background_tasks: NotRequired[list[BackgroundTaskSummary]]
    session_crons: NotRequired[list[SessionCronSummary]]


class PreCompactHookInput(BaseHookInput):
    """The conversation is about to be summarised."""

    hook_event_name: Literal["PreCompact"]
    trigger: Literal["manual", "auto"]
    custom_instructions: str | None


class NotificationHookInput(BaseHookInput):
    """The CLI has something to tell the user."""

    hook_event_name: Literal["Notification"]
    message: str
    title: NotRequired[str]
    notification_type: str


class SubagentStartHookInput(BaseHookInput):
    """A subagent starts."""

    hook_event_name: Literal["SubagentStart"]
    agent_id: str
    agent_type: str


class PermissionRequestHookInput(BaseHookInput, _InSubagent):
    """Somebody is about to be asked whether a tool may run."""

    hook_event_name: Literal["PermissionRequest"]
    tool_name: str
    tool_input: dict[str, Any]
    permission_suggestions: NotRequired[list[Any]]


# From here on, events that the official SDK passes on without a type.


class PostToolBatchToolCall(TypedDict):
    """One of the calls in a `PostToolBatch`."""

    tool_name: str
    tool_input: Any
    tool_use_id: str
    tool_response: NotRequired[Any]


class PostToolBatchHookInput(BaseHookInput, _InSubagent):
    """All tool calls of one answer are done."""

    hook_event_name: Literal["PostToolBatch"]
    tool_calls: list[PostToolBatchToolCall]


class UserPromptExpansionHookInput(BaseHookInput):
    """A slash command or MCP prompt is about to be expanded."""

    hook_event_name: Literal["UserPromptExpansion"]
    expansion_type: Literal["slash_command", "mcp_prompt"]
    command_name: str
    command_args: str
    command_source: NotRequired[str]
    prompt: str


class SessionStartHookInput(BaseHookInput):
    """A session starts, is resumed, cleared, compacted or forked."""

    hook_event_name: Literal["SessionStart"]
    source: Literal["startup", "resume", "clear", "compact", "fork"]
    agent_type: NotRequired[str]
    model: NotRequired[str]
    session_title: NotRequired[str]
    seconds_since_last_response: NotRequired[float]
    context_tokens: NotRequired[int]
    prompt_cache_likely_expired: NotRequired[bool]
    estimated_cache_write_usd: NotRequired[float]


class SessionEndHookInput(BaseHookInput):
    """A session ends."""

    hook_event_name: Literal["SessionEnd"]
    reason: Literal["clear", "resume", "logout", "prompt_input_exit", "other"]


class StopFailureHookInput(BaseHookInput):
    """A turn ended because the API failed."""

    hook_event_name: Literal["StopFailure"]
    error: str
    error_details: NotRequired[str]
    last_assistant_message: NotRequired[str]


class PostCompactHookInput(BaseHookInput):
    """The conversation was summarised."""

    hook_event_name: Literal["PostCompact"]
    trigger: Literal["manual", "auto"]
    compact_summary: str


class _ModelSwitch(TypedDict):
    """From which model to which, and what it costs to fill the new one's cache."""

    from_model: str
    to_model: str
    requested_model: str | None
    context_tokens: int
    prompt_cache_warm: bool
    cache_ttl: Literal["5m", "1h"]
    estimated_cache_write_usd: float
    pricing: Literal["configured", "catalog", "default"]


class PreModelSwitchHookInput(BaseHookInput, _ModelSwitch):
    """The model is about to be changed."""

    hook_event_name: Literal["PreModelSwitch"]
    source: Literal["command", "picker", "sdk"]


class PostModelSwitchHookInput(BaseHookInput, _ModelSwitch):
    """The model was changed."""

    hook_event_name: Literal["PostModelSwitch"]
    source: Literal["command", "picker", "sdk", "auto", "resume"]


class PermissionDeniedHookInput(BaseHookInput, _InSubagent):
    """Auto mode refused a tool call."""

    hook_event_name: Literal["PermissionDenied"]
    tool_name: str
    tool_input: Any
    tool_use_id: str
    reason: str
    mcp_server: NotRequired[dict[str, str]]


class SetupHookInput(BaseHookInput):
    """The CLI sets up a project, or looks after one."""

    hook_event_name: Literal["Setup"]
    trigger: Literal["init", "maintenance"]


class TeammateIdleHookInput(BaseHookInput):
    """A member of an agent team has nothing to do."""

    hook_event_name: Literal["TeammateIdle"]
    teammate_name: str
    team_name: str


class _TeamTask(TypedDict):
    """A task on the list of an agent team."""

    task_id: str
    task_subject: str
    task_description: NotRequired[str]
    teammate_name: NotRequired[str]
    team_name: NotRequired[str]


class TaskCreatedHookInput(BaseHookInput, _TeamTask):
    """A task was put on the list."""

    hook_event_name: Literal["TaskCreated"]


class TaskCompletedHookInput(BaseHookInput, _TeamTask):
    """A task is about to be ticked off."""

    hook_event_name: Literal["TaskCompleted"]


class ElicitationHookInput(BaseHookInput):
    """An MCP server asks the user something."""

    hook_event_name: Literal["Elicitation"]
    mcp_server_name: str
    message: str
    mode: NotRequired[Literal["form", "url"]]
    url: NotRequired[str]
    elicitation_id: NotRequired[str]
    requested_schema: NotRequired[dict[str, Any]]


class ElicitationResultHookInput(BaseHookInput):
    """The user has answered an MCP server."""

    hook_event_name: Literal["ElicitationResult"]
    mcp_server_name: str
    elicitation_id: NotRequired[str]
    mode: NotRequired[Literal["form", "url"]]
    action: Literal["accept", "decline", "cancel"]
    content: NotRequired[dict[str, Any]]


class ConfigChangeHookInput(BaseHookInput):
    """Settings or skills changed on disk."""

    hook_event_name: Literal["ConfigChange"]
    source: Literal["user_settings", "project_settings", "local_settings", "policy_settings", "skills"]
    file_path: NotRequired[str]


class WorktreeCreateHookInput(BaseHookInput):
    """A worktree is wanted; the hook makes it."""

    hook_event_name: Literal["WorktreeCreate"]
    name: str


class WorktreeRemoveHookInput(BaseHookInput):
    """A worktree is no longer wanted; the hook removes it."""

    hook_event_name: Literal["WorktreeRemove"]
    worktree_path: str


class InstructionsLoadedHookInput(BaseHookInput):
    """A file of instructions (CLAUDE.md) was read."""

    hook_event_name: Literal["InstructionsLoaded"]
    file_path: str
    memory_type: Literal["User", "Project", "Local", "Managed"]
    load_reason: Literal["session_start", "nested_traversal", "path_glob_match", "include", "compact"]
    globs: NotRequired[list[str]]
    trigger_file_path: NotRequired[str]
    parent_file_path: NotRequired[str]


class CwdChangedHookInput(BaseHookInput):
    """The working directory changed."""

    hook_event_name: Literal["CwdChanged"]
    old_cwd: str
    new_cwd: str


class FileChangedHookInput(BaseHookInput):
    """A watched file changed."""

    hook_event_name: Literal["FileChanged"]
    file_path: str
    event: Literal["change", "add", "unlink"]


class DirectoryAddedHookInput(BaseHookInput):
    """A directory was added to the workspace."""

    hook_event_name: Literal["DirectoryAdded"]
    directory: str
    source: Literal["slash_command", "register_repo_root"]


class MessageDisplayHookInput(BaseHookInput):
    """A piece of an answer is about to be shown."""

    hook_event_name: Literal["MessageDisplay"]
    turn_id: str
    message_id: str
    index: int
    final: bool
    delta: str


HookInput = (
    PreToolUseHookInput
    | PostToolUseHookInput
    | PostToolUseFailureHookInput
    | UserPromptSubmitHookInput
    | StopHookInput
    | SubagentStopHookInput
    | PreCompactHookInput
    | NotificationHookInput
    | SubagentStartHookInput
    | PermissionRequestHookInput
    | PostToolBatchHookInput
    | UserPromptExpansionHookInput
    | SessionStartHookInput
    | SessionEndHookInput
    | StopFailureHookInput
    | PostCompactHookInput
    | PreModelSwitchHookInput
    | PostModelSwitchHookInput
    | PermissionDeniedHookInput
    | SetupHookInput
    | TeammateIdleHookInput
    | TaskCreatedHookInput
    | TaskCompletedHookInput
    | ElicitationHookInput
    | ElicitationResultHookInput
    | ConfigChangeHookInput
    | WorktreeCreateHookInput
    | WorktreeRemoveHookInput
    | InstructionsLoadedHookInput
    | CwdChangedHookInput
    | FileChangedHookInput
    | DirectoryAddedHookInput
    | MessageDisplayHookInput
)
"""Told apart by `hook_event_name`."""
