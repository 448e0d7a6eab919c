"""What the CLI answers to control requests about the session, its settings, files and tasks, as typed dicts.

The dicts are the CLI's own, seen with 2.1.325; nothing here is built or checked by toolwire. A newer CLI may say
more, and what is `NotRequired` an older one may leave out.
"""

from typing import Any, Literal, NotRequired, TypedDict

from toolwire.client.status import McpServerStatus
from toolwire.messages import ModelUsage
from toolwire.permissions import PermissionMode


class SlashCommand(TypedDict):
    """A command or skill that a prompt may begin with."""

    name: str
    """Without the slash."""
    description: str
    argumentHint: str
    aliases: NotRequired[list[str]]
    builtin: NotRequired[bool]
    """True for the CLI's own; absent for those of users, projects, plugins and MCP servers."""


class AgentInfo(TypedDict):
    """A subagent that the model may start."""

    name: str
    description: str
    model: NotRequired[str]
    """A model, or `inherit`."""


class ModelInfo(TypedDict):
    """A model that `set_model` takes."""

    value: str
    """What to give to `set_model`."""
    displayName: str
    description: str
    resolvedModel: NotRequired[str]
    """The full name of it."""
    supportsEffort: NotRequired[bool]
    supportedEffortLevels: NotRequired[list[str]]
    supportsAdaptiveThinking: NotRequired[bool]
    supportsFastMode: NotRequired[bool]
    supportsAutoMode: NotRequired[bool]
    supportsThinkingOff: NotRequired[bool]


class AccountInfo(TypedDict, total=False):
    """Who pays, and through whom."""

    email: str
    organization: str
    subscriptionType: str
    tokenSource: str
    apiKeySource: str
    apiProvider: str
    """`firstParty`, `bedrock`, `vertex`, ..."""


class InitializeResponse(TypedDict):
    """What the CLI says of itself at the start of a session."""

    commands: list[SlashCommand]
    agents: list[AgentInfo]
    models: list[ModelInfo]
    account: AccountInfo
    output_style: str
    available_output_styles: list[str]
    user_output_styles_dir: NotRequired[str]
    pid: NotRequired[int]
    claude_code_version: NotRequired[str]
    current_permission_mode: NotRequired[PermissionMode]
    session_state: NotRequired[str]
    capabilities: NotRequired[list[str]]
    hooks_applied: NotRequired[bool]
    """Only when hooks were sent."""
    hook_on_failure_supported: NotRequired[bool]
    fast_mode_state: NotRequired[str]
    fast_mode_disabled_reason: NotRequired[str]
    sdk_mcp_manifests_parked: NotRequired[dict[str, str]]
    feedback_mode: NotRequired[dict[str, Any]]
    analytics_disabled: NotRequired[bool]
    other_hook_ask_outranks_host: NotRequired[bool]
    remote_control_auto_enable: NotRequired[bool]
    remote_control_auto_connect_default: NotRequired[bool]
    remote_control_available: NotRequired[bool]
    remote_control_auto_on_by_default: NotRequired[bool]
    ide_rc_auto_enable_gate: NotRequired[bool]


class InterruptReceipt(TypedDict, total=False):
    """What an interrupt left, or took along. Empty from CLIs that give no receipt."""

    still_queued: list[str]
    """Uuids of prompts that wait and will still run. Only prompts that were sent with a uuid."""
    cancelled: list[str]
    """Uuids of those that will not; only with `cancel_queued`."""


class RewindFilesResult(TypedDict):
    """What a rewind changed; in a dry run, what it would."""

    canRewind: bool
    error: NotRequired[str]
    filesChanged: NotRequired[list[str]]
    """Dry run only, like the two counts of lines."""
    insertions: NotRequired[int]
    deletions: NotRequired[int]
    skippedLinks: NotRequired[int]
    """Files left alone because a link was in the way. Not in a dry run."""


class RewindConversationResult(TypedDict):
    """Whether the conversation was cut back to before a message."""

    rewound: bool
    targetMessageUuid: NotRequired[str]
    prefillText: NotRequired[str | None]
    """The text of that message, to be edited and sent again."""
    precedingAssistantUuid: NotRequired[str | None]
    error: NotRequired[str]
    reason: NotRequired[str]
    """A word for it: `target_not_found`, ..."""


class ForkConversationResult(TypedDict):
    """Whether the conversation was forked. Outside a remote session it is `unsupported`."""

    forked: bool
    error: NotRequired[str]
    reason: NotRequired[str]


class SessionModelUsage(ModelUsage, TypedDict):
    """What one model was used for in this session."""

    thinkingTokens: NotRequired[int]
    """Part of the output tokens."""
    cacheCreationEphemeral5mInputTokens: NotRequired[int]
    cacheCreationEphemeral1hInputTokens: NotRequired[int]
    costBasis: NotRequired[str]


class SessionUsage(TypedDict):
    """What this session has used so far."""

    total_cost_usd: float
    total_api_duration_ms: float
    total_duration_ms: float
    total_lines_added: int
    total_lines_removed: int
    model_usage: dict[str, SessionModelUsage]


class UsageResponse(TypedDict):
    """Cost and use of this session, and the limits of a plan if there is one."""

    session: SessionUsage
    subscription_type: str | None
    """None with an API key."""
    rate_limits_available: bool
    rate_limits: dict[str, Any] | None
    """By window: `five_hour`, `seven_day`, ..., each with `utilization` (0 to 100) and `resets_at`."""
    behaviors: dict[str, Any] | None


class FileContents(TypedDict):
    """A file, or the beginning of it."""

    contents: str
    absPath: str
    requested_path: NotRequired[str]
    truncated: NotRequired[bool]
    encoding: NotRequired[Literal["base64"]]
    """Only when base64 was asked for."""
    lossy: NotRequired[bool]
    """True when some bytes were no UTF-8 and are lost."""


class FileSuggestion(TypedDict):
    """A path that may be meant."""

    path: str


class FileSuggestions(TypedDict):
    """Paths that fit what was typed after an @."""

    suggestions: list[FileSuggestion]
    cwd: NotRequired[str]


class WorkspaceDiff(TypedDict):
    """What has changed in the working tree since the last commit."""

    diff: dict[str, Any] | None
    """stats, perFileStats, hunks, ...; None if there is nothing to compare with."""
    noDiffReason: NotRequired[str]
    """`no-repository`, ..."""


class TaskOutput(TypedDict):
    """The end of what a background command wrote."""

    output: str
    total_bytes: int
    truncated: bool
    """True when `output` is only the last 8 KiB."""


class PlanResponse(TypedDict):
    """The plan of plan mode, once there is one."""

    exists: bool
    content: NotRequired[str]
    path: NotRequired[str]


class SideAnswer(TypedDict):
    """The answer to a question beside the conversation."""

    response: str | None
    synthetic: NotRequired[bool]
    """True when the CLI, not the model, wrote it."""
    refusal_fallback: NotRequired[dict[str, Any]]


class ReloadPluginsResponse(TypedDict):
    """What there is after plugins were read again."""

    commands: list[SlashCommand]
    agents: list[AgentInfo]
    plugins: list[dict[str, Any]]
    mcpServers: list[McpServerStatus]
    error_count: int
    held: NotRequired[bool]
    """True when nothing was applied, because of `hold_on_cache_impact`."""
    cache_impact: NotRequired[dict[str, Any]]


class SetCwdResult(TypedDict):
    """The new working directory, or a question to the user."""

    status: Literal["ok", "needs_trust"]
    cwd: NotRequired[str]
    changed: NotRequired[bool]
    transcript_relocated: NotRequired[bool]
    directory: NotRequired[str]
    """With `needs_trust`: what to give back as `trusted_directory` once the user agrees."""
    trust_root: NotRequired[str]


class ProactivityLevel(TypedDict):
    """How much Claude does of its own accord."""

    level: Literal["ask", "default", "proactive"]
    permissionMode: NotRequired[PermissionMode]


class RepoRoot(TypedDict):
    """A working directory that was added."""

    directory: str
    staged_path: NotRequired[str]
    """For an attached folder of a remote session."""


class ReloadSkillsResponse(TypedDict):
    """The skills after they were read again."""

    skills: list[SlashCommand]


class ReloadOutputStylesResponse(TypedDict):
    """The output styles after they were read again."""

    available_output_styles: list[str]
