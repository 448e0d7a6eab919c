"""The hook events of the CLI: the input of each, and the output that a hook may return for it.

Inputs and outputs are plain dicts with the CLI's own keys; inputs are not checked. The types that
`claude_agent_sdk` has are identical here in names, keys, and which keys are required. It has types for ten events;
the others follow the CLI's published declarations.

To add an event, write `<Event>HookInput` and, if the CLI reads a `hookSpecificOutput` after it,
`<Event>HookSpecificOutput` below; list both in `toolwire._NAMES` and run `make generate`. It writes `HookEvent`,
the two unions, and the methods of `Hooks`.

Two keys are written with an underscore in Python, `async_` and `continue_`; `registry.output_to_wire` removes it.
"""

from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar


class HookEffort(TypedDict):
    """The effort level of this turn: low, medium, high, ..."""

    level: str


class BaseHookInput(TypedDict):
    """The input common to all events. `effort` comes with tool events, `prompt_id` after the first prompt."""

    session_id: str
    transcript_path: str
    cwd: str
    permission_mode: NotRequired[str]
    prompt_id: NotRequired[str]
    effort: NotRequired[HookEffort]


# Not part of the base, because two events require these keys, and a TypedDict cannot make an optional key required.
class _InSubagent(TypedDict, total=False):
    """The subagent that a tool event belongs to; without `agent_id` it is the main agent."""

    agent_id: str
    agent_type: str


# Tools.


class PreToolUseHookInput(BaseHookInput, _InSubagent):
    """A tool is about to run."""

    hook_event_name: Literal["PreToolUse"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str


class PreToolUseHookSpecificOutput(TypedDict):
    """Allow, deny, ask about or defer the call, change its input, add context for the model."""

    hookEventName: Literal["PreToolUse"]
    permissionDecision: NotRequired[Literal["allow", "deny", "ask", "defer"]]
    permissionDecisionReason: NotRequired[str]
    updatedInput: NotRequired[dict[str, Any]]
    additionalContext: NotRequired[str]


class PostToolUseHookInput(BaseHookInput, _InSubagent):
    """A tool has run. `duration_ms` is its own time, without hooks and permission requests."""

    hook_event_name: Literal["PostToolUse"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_response: Any
    tool_use_id: str
    duration_ms: NotRequired[int]


class PostToolUseHookSpecificOutput(TypedDict):
    """Add context for the model, or replace the tool's output.

    `updatedToolOutput` must have the shape of the tool's own output, or the CLI ignores it. `updatedMCPToolOutput`
    is the older key and works for MCP tools only.
    """

    hookEventName: Literal["PostToolUse"]
    additionalContext: NotRequired[str]
    updatedToolOutput: NotRequired[Any]
    updatedMCPToolOutput: NotRequired[Any]


class PostToolUseFailureHookInput(BaseHookInput, _InSubagent):
    """A tool has failed, or was interrupted."""

    hook_event_name: Literal["PostToolUseFailure"]
    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    error: str
    is_interrupt: NotRequired[bool]
    duration_ms: NotRequired[int]


class PostToolUseFailureHookSpecificOutput(TypedDict):
    """Add context for the model."""

    hookEventName: Literal["PostToolUseFailure"]
    additionalContext: NotRequired[str]


class PostToolBatchToolCall(TypedDict):
    """One call of a `PostToolBatch`."""

    tool_name: str
    tool_input: Any
    tool_use_id: str
    tool_response: NotRequired[Any]


class PostToolBatchHookInput(BaseHookInput, _InSubagent):
    """All tool calls of one assistant message have finished."""

    hook_event_name: Literal["PostToolBatch"]
    tool_calls: list[PostToolBatchToolCall]


class PostToolBatchHookSpecificOutput(TypedDict):
    """Add context for the model."""

    hookEventName: Literal["PostToolBatch"]
    additionalContext: NotRequired[str]


class PermissionRequestHookInput(BaseHookInput, _InSubagent):
    """The CLI is about to ask for permission to run a tool."""

    hook_event_name: Literal["PermissionRequest"]
    tool_name: str
    tool_input: dict[str, Any]
    permission_suggestions: NotRequired[list[Any]]


class PermissionRequestHookSpecificOutput(TypedDict):
    """Decide instead of the user: `decision` has `behavior` (allow or deny) and its fields."""

    hookEventName: Literal["PermissionRequest"]
    decision: dict[str, Any]


class PermissionDeniedHookInput(BaseHookInput, _InSubagent):
    """Auto mode denied a tool call."""

    hook_event_name: Literal["PermissionDenied"]
    tool_name: str
    tool_input: Any
    tool_use_id: str
    reason: str
    mcp_server: NotRequired[dict[str, str]]


class PermissionDeniedHookSpecificOutput(TypedDict):
    """With `retry` the model may try once more."""

    hookEventName: Literal["PermissionDenied"]
    retry: NotRequired[bool]


# Prompts and responses.


class UserPromptSubmitHookInput(BaseHookInput):
    """A prompt is about to be sent to the model."""

    hook_event_name: Literal["UserPromptSubmit"]
    prompt: str


class UserPromptSubmitHookSpecificOutput(TypedDict):
    """Add context, set the session title, or leave the text of a blocked prompt out of the report."""

    hookEventName: Literal["UserPromptSubmit"]
    additionalContext: NotRequired[str]
    sessionTitle: NotRequired[str]
    suppressOriginalPrompt: NotRequired[bool]


class UserPromptExpansionHookInput(BaseHookInput):
    """A slash command or MCP prompt is about to be expanded."""

    hook_event_name: Literal["UserPromptExpansion"]
    expansion_type: Literal["slash_command", "mcp_prompt"]
    command_name: str
    command_args: str
    command_source: NotRequired[str]
    prompt: str


class UserPromptExpansionHookSpecificOutput(TypedDict):
    """Add context, or leave the text of a blocked prompt out of the report."""

    hookEventName: Literal["UserPromptExpansion"]
    additionalContext: NotRequired[str]
    suppressOriginalPrompt: NotRequired[bool]


class MessageDisplayHookInput(BaseHookInput):
    """A part of an assistant message is about to be displayed."""

    hook_event_name: Literal["MessageDisplay"]
    turn_id: str
    message_id: str
    index: int
    final: bool
    delta: str


class MessageDisplayHookSpecificOutput(TypedDict):
    """Display other text for this part; the stored message does not change."""

    hookEventName: Literal["MessageDisplay"]
    displayContent: NotRequired[str]


class NotificationHookInput(BaseHookInput):
    """The CLI notifies the user."""

    hook_event_name: Literal["Notification"]
    message: str
    title: NotRequired[str]
    notification_type: str


class NotificationHookSpecificOutput(TypedDict):
    """Add context for the model."""

    hookEventName: Literal["Notification"]
    additionalContext: NotRequired[str]


class BackgroundTaskSummary(TypedDict):
    """A background task that is still running when the model stops.

    `command` is present for shells, `agent_type` for subagents, `server` and `tool` for MCP, `name` for
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
    """The model wants to stop. `stop_hook_active` is True if it continued because of a Stop hook before."""

    hook_event_name: Literal["Stop"]
    stop_hook_active: bool
    last_assistant_message: NotRequired[str]
    background_tasks: NotRequired[list[BackgroundTaskSummary]]
    session_crons: NotRequired[list[SessionCronSummary]]


class StopHookSpecificOutput(TypedDict):
    """With `additionalContext` the model continues and acts on it."""

    hookEventName: Literal["Stop"]
    additionalContext: NotRequired[str]


class StopFailureHookInput(BaseHookInput):
    """A turn ended because the API failed."""

    hook_event_name: Literal["StopFailure"]
    error: str
    error_details: NotRequired[str]
    last_assistant_message: NotRequired[str]


# Subagents and teams.


class SubagentStartHookInput(BaseHookInput):
    """A subagent starts."""

    hook_event_name: Literal["SubagentStart"]
    agent_id: str
    agent_type: str


class SubagentStartHookSpecificOutput(TypedDict):
    """Add context for the subagent."""

    hookEventName: Literal["SubagentStart"]
    additionalContext: NotRequired[str]


class SubagentStopHookInput(BaseHookInput):
    """A subagent wants to stop. Background tasks and crons are those of the whole session."""

    hook_event_name: Literal["SubagentStop"]
    stop_hook_active: bool
    agent_id: str
    agent_transcript_path: str
    agent_type: str
    last_assistant_message: NotRequired[str]
    background_tasks: NotRequired[list[BackgroundTaskSummary]]
    session_crons: NotRequired[list[SessionCronSummary]]


class SubagentStopHookSpecificOutput(TypedDict):
    """With `additionalContext` the subagent continues and acts on it."""

    hookEventName: Literal["SubagentStop"]
    additionalContext: NotRequired[str]


class TeammateIdleHookInput(BaseHookInput):
    """A member of an agent team is idle."""

    hook_event_name: Literal["TeammateIdle"]
    teammate_name: str
    team_name: str


class _TeamTask(TypedDict):
    """A task of an agent team."""

    task_id: str
    task_subject: str
    task_description: NotRequired[str]
    teammate_name: NotRequired[str]
    team_name: NotRequired[str]


class TaskCreatedHookInput(BaseHookInput, _TeamTask):
    """A task was created."""

    hook_event_name: Literal["TaskCreated"]


class TaskCompletedHookInput(BaseHookInput, _TeamTask):
    """A task is about to be marked as completed."""

    hook_event_name: Literal["TaskCompleted"]


# The session.


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


class SessionStartHookSpecificOutput(TypedDict):
    """Add context, a first message, a title, paths to watch, or reload skills."""

    hookEventName: Literal["SessionStart"]
    additionalContext: NotRequired[str]
    initialUserMessage: NotRequired[str]
    sessionTitle: NotRequired[str]
    watchPaths: NotRequired[list[str]]
    reloadSkills: NotRequired[bool]


class SessionEndHookInput(BaseHookInput):
    """A session ends."""

    hook_event_name: Literal["SessionEnd"]
    reason: Literal["clear", "resume", "logout", "prompt_input_exit", "other"]


class SetupHookInput(BaseHookInput):
    """The CLI sets up or maintains a project."""

    hook_event_name: Literal["Setup"]
    trigger: Literal["init", "maintenance"]


class PreCompactHookInput(BaseHookInput):
    """The conversation is about to be summarised."""

    hook_event_name: Literal["PreCompact"]
    trigger: Literal["manual", "auto"]
    custom_instructions: str | None


class PostCompactHookInput(BaseHookInput):
    """The conversation was summarised."""

    hook_event_name: Literal["PostCompact"]
    trigger: Literal["manual", "auto"]
    compact_summary: str


class _ModelSwitch(TypedDict):
    """The old and new model, and the cost of filling the new model's cache."""

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


class PreModelSwitchHookSpecificOutput(TypedDict):
    """Allow or deny the change. Without a terminal, `ask` denies."""

    hookEventName: Literal["PreModelSwitch"]
    permissionDecision: NotRequired[Literal["allow", "deny", "ask"]]
    permissionDecisionReason: NotRequired[str]


class PostModelSwitchHookInput(BaseHookInput, _ModelSwitch):
    """The model was changed."""

    hook_event_name: Literal["PostModelSwitch"]
    source: Literal["command", "picker", "sdk", "auto", "resume"]


class PostModelSwitchHookSpecificOutput(TypedDict):
    """Add context to the first request to the new model."""

    hookEventName: Literal["PostModelSwitch"]
    additionalContext: NotRequired[str]


class ConfigChangeHookInput(BaseHookInput):
    """Settings or skills changed on disk."""

    hook_event_name: Literal["ConfigChange"]
    source: Literal["user_settings", "project_settings", "local_settings", "policy_settings", "skills"]
    file_path: NotRequired[str]


class InstructionsLoadedHookInput(BaseHookInput):
    """An instruction file (CLAUDE.md) was loaded."""

    hook_event_name: Literal["InstructionsLoaded"]
    file_path: str
    memory_type: Literal["User", "Project", "Local", "Managed"]
    load_reason: Literal["session_start", "nested_traversal", "path_glob_match", "include", "compact"]
    globs: NotRequired[list[str]]
    trigger_file_path: NotRequired[str]
    parent_file_path: NotRequired[str]


# Requests of MCP servers to the user.


class ElicitationHookInput(BaseHookInput):
    """An MCP server requests input from the user."""

    hook_event_name: Literal["Elicitation"]
    mcp_server_name: str
    message: str
    mode: NotRequired[Literal["form", "url"]]
    url: NotRequired[str]
    elicitation_id: NotRequired[str]
    requested_schema: NotRequired[dict[str, Any]]


class ElicitationHookSpecificOutput(TypedDict):
    """Respond instead of the user; `content` is used with the action `accept`."""

    hookEventName: Literal["Elicitation"]
    action: NotRequired[Literal["accept", "decline", "cancel"]]
    content: NotRequired[dict[str, Any]]


class ElicitationResultHookInput(BaseHookInput):
    """The user has responded to an MCP server."""

    hook_event_name: Literal["ElicitationResult"]
    mcp_server_name: str
    elicitation_id: NotRequired[str]
    mode: NotRequired[Literal["form", "url"]]
    action: Literal["accept", "decline", "cancel"]
    content: NotRequired[dict[str, Any]]


class ElicitationResultHookSpecificOutput(TypedDict):
    """Change the response before the MCP server gets it."""

    hookEventName: Literal["ElicitationResult"]
    action: NotRequired[Literal["accept", "decline", "cancel"]]
    content: NotRequired[dict[str, Any]]


# Files and directories.


class WorktreeCreateHookInput(BaseHookInput):
    """A worktree is needed; the hook creates it."""

    hook_event_name: Literal["WorktreeCreate"]
    name: str


class WorktreeCreateHookSpecificOutput(TypedDict):
    """The absolute path of the worktree that the hook created."""

    hookEventName: Literal["WorktreeCreate"]
    worktreePath: str


class WorktreeRemoveHookInput(BaseHookInput):
    """A worktree is no longer needed; the hook removes it."""

    hook_event_name: Literal["WorktreeRemove"]
    worktree_path: str


class CwdChangedHookInput(BaseHookInput):
    """The working directory changed."""

    hook_event_name: Literal["CwdChanged"]
    old_cwd: str
    new_cwd: str


class CwdChangedHookSpecificOutput(TypedDict):
    """Set the paths to watch."""

    hookEventName: Literal["CwdChanged"]
    watchPaths: NotRequired[list[str]]


class FileChangedHookInput(BaseHookInput):
    """A watched file changed."""

    hook_event_name: Literal["FileChanged"]
    file_path: str
    event: Literal["change", "add", "unlink"]


class FileChangedHookSpecificOutput(TypedDict):
    """Set the paths to watch."""

    hookEventName: Literal["FileChanged"]
    watchPaths: NotRequired[list[str]]


class DirectoryAddedHookInput(BaseHookInput):
    """A directory was added to the workspace."""

    hook_event_name: Literal["DirectoryAdded"]
    directory: str
    source: Literal["slash_command", "register_repo_root"]


# Lists of the above.

# generated from the classes above: begin
HookEvent = Literal[
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "PermissionRequest",
    "PermissionDenied",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "MessageDisplay",
    "Notification",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "SessionStart",
    "SessionEnd",
    "Setup",
    "PreCompact",
    "PostCompact",
    "PreModelSwitch",
    "PostModelSwitch",
    "ConfigChange",
    "InstructionsLoaded",
    "Elicitation",
    "ElicitationResult",
    "WorktreeCreate",
    "WorktreeRemove",
    "CwdChanged",
    "FileChanged",
    "DirectoryAdded",
]
"""The name of a hook event."""

HookInput = (
    PreToolUseHookInput
    | PostToolUseHookInput
    | PostToolUseFailureHookInput
    | PostToolBatchHookInput
    | PermissionRequestHookInput
    | PermissionDeniedHookInput
    | UserPromptSubmitHookInput
    | UserPromptExpansionHookInput
    | MessageDisplayHookInput
    | NotificationHookInput
    | StopHookInput
    | StopFailureHookInput
    | SubagentStartHookInput
    | SubagentStopHookInput
    | TeammateIdleHookInput
    | TaskCreatedHookInput
    | TaskCompletedHookInput
    | SessionStartHookInput
    | SessionEndHookInput
    | SetupHookInput
    | PreCompactHookInput
    | PostCompactHookInput
    | PreModelSwitchHookInput
    | PostModelSwitchHookInput
    | ConfigChangeHookInput
    | InstructionsLoadedHookInput
    | ElicitationHookInput
    | ElicitationResultHookInput
    | WorktreeCreateHookInput
    | WorktreeRemoveHookInput
    | CwdChangedHookInput
    | FileChangedHookInput
    | DirectoryAddedHookInput
)
"""The input of any event; `hook_event_name` identifies the event."""

HookSpecificOutput = (
    PreToolUseHookSpecificOutput
    | PostToolUseHookSpecificOutput
    | PostToolUseFailureHookSpecificOutput
    | PostToolBatchHookSpecificOutput
    | PermissionRequestHookSpecificOutput
    | PermissionDeniedHookSpecificOutput
    | UserPromptSubmitHookSpecificOutput
    | UserPromptExpansionHookSpecificOutput
    | MessageDisplayHookSpecificOutput
    | NotificationHookSpecificOutput
    | StopHookSpecificOutput
    | SubagentStartHookSpecificOutput
    | SubagentStopHookSpecificOutput
    | SessionStartHookSpecificOutput
    | PreModelSwitchHookSpecificOutput
    | PostModelSwitchHookSpecificOutput
    | ElicitationHookSpecificOutput
    | ElicitationResultHookSpecificOutput
    | WorktreeCreateHookSpecificOutput
    | CwdChangedHookSpecificOutput
    | FileChangedHookSpecificOutput
)
# generated: end

SPECIFIC_OUTPUTS: dict[str, Any] = {
    kind.__name__.removesuffix("HookSpecificOutput"): kind for kind in HookSpecificOutput.__args__
}
"""Event -> the TypedDict of its `hookSpecificOutput`, for the events that have one."""


# Outputs of any event.


class CommonHookOutput(TypedDict):
    """The keys that a hook of any event may return. `{}` means no opinion.

    `continue_` False stops the run with `stopReason`; `decision` blocks with a `reason` for the model;
    `systemMessage` is a warning to the user; `suppressOutput` keeps output out of the transcript.
    """

    continue_: NotRequired[bool]
    suppressOutput: NotRequired[bool]
    stopReason: NotRequired[str]
    decision: NotRequired[Literal["block"]]
    systemMessage: NotRequired[str]
    reason: NotRequired[str]


class SyncHookJSONOutput(CommonHookOutput):
    """The output of a hook of any event."""

    hookSpecificOutput: NotRequired[HookSpecificOutput]


class AsyncHookJSONOutput(TypedDict):
    """The hook continues in the background and the CLI does not wait; `asyncTimeout` is in milliseconds."""

    async_: Literal[True]
    asyncTimeout: NotRequired[int]


HookJSONOutput = AsyncHookJSONOutput | SyncHookJSONOutput

Specific = TypeVar("Specific")


class HookOutput(CommonHookOutput, Generic[Specific]):
    """The output of a hook of one event, as in `HookOutput[PreToolUseHookSpecificOutput]`."""

    hookSpecificOutput: NotRequired[Specific]
