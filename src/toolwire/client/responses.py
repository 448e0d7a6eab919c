"""The CLI's responses to control requests, and control frames, as typed dicts. One section per subject.

The dicts are the CLI's own, as of 2.1.325; toolwire neither builds nor checks them. A newer CLI may add keys, and
keys that are `NotRequired` may be missing from an older one. Types that `claude_agent_sdk` has too have its fields,
followed by what newer CLIs add.
"""

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from toolwire.hooks import HookEvent
from toolwire.messages import ModelUsage
from toolwire.options.types import McpHttpServerConfig, McpSSEServerConfig, McpStdioServerConfig
from toolwire.permissions import PermissionMode

# MCP servers.

McpServerConnectionStatus: TypeAlias = Literal["connected", "failed", "needs-auth", "pending", "disabled"]


class McpSdkServerConfigStatus(TypedDict):
    """An in-process server, as the CLI knows it."""

    type: Literal["sdk"]
    name: str


class McpClaudeAIProxyServerConfig(TypedDict):
    """A server that claude.ai relays. It is reported by the CLI and cannot be configured."""

    type: Literal["claudeai-proxy"]
    url: str
    id: str


McpServerStatusConfig: TypeAlias = (
    McpStdioServerConfig
    | McpSSEServerConfig
    | McpHttpServerConfig
    | McpSdkServerConfigStatus
    | McpClaudeAIProxyServerConfig
)


class McpToolAnnotations(TypedDict, total=False):
    """A tool's own hints about its effects."""

    readOnly: bool
    destructive: bool
    openWorld: bool


class McpToolInfo(TypedDict):
    """One tool of a connected server."""

    name: str
    description: NotRequired[str]
    annotations: NotRequired[McpToolAnnotations]


class McpServerInfo(TypedDict):
    """The server's name and version from the MCP handshake."""

    name: str
    version: str


class McpServerStatus(TypedDict):
    """The state of one MCP server."""

    name: str
    status: McpServerConnectionStatus
    serverInfo: NotRequired[McpServerInfo]
    """Once connected."""
    error: NotRequired[str]
    """The reason, if the server failed."""
    config: NotRequired[McpServerStatusConfig]
    scope: NotRequired[str]
    """Where its configuration came from: project, user, local, ..."""
    tools: NotRequired[list[McpToolInfo]]
    """Once connected."""
    source: NotRequired[str]
    """`sdk` for an in-process server, `plugin`, or the scope."""
    transport: NotRequired[str]


class McpStatusResponse(TypedDict):
    """All servers of the session."""

    mcpServers: list[McpServerStatus]


class McpSetServersResult(TypedDict):
    """The servers that `set_mcp_servers` added and removed, and errors by server name."""

    added: list[str]
    removed: list[str]
    errors: dict[str, str]


class McpContent(TypedDict):
    """One item of a resource."""

    uri: str
    mimeType: NotRequired[str]
    text: NotRequired[str]
    blob: NotRequired[str]
    """Base64, for bytes."""
    _meta: NotRequired[dict[str, Any]]


class McpResource(TypedDict):
    """The contents of a resource."""

    contents: list[McpContent]


class McpCallResult(TypedDict):
    """The result of a tool call."""

    content: Any
    """Content blocks, or a string from old servers."""
    structuredContent: NotRequired[Any]
    _meta: NotRequired[dict[str, Any]]
    isError: NotRequired[bool]


class McpModeOverride(TypedDict):
    """The response to `set_mcp_permission_mode_override`; empty if the server is known."""

    warning: NotRequired[str]
    """Set if there is no server of that name yet."""


# The session: commands, models, usage, files, tasks.


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
    """The name to pass to `set_model`."""
    displayName: str
    description: str
    resolvedModel: NotRequired[str]
    """The full model name."""
    supportsEffort: NotRequired[bool]
    supportedEffortLevels: NotRequired[list[str]]
    supportsAdaptiveThinking: NotRequired[bool]
    supportsFastMode: NotRequired[bool]
    supportsAutoMode: NotRequired[bool]
    supportsThinkingOff: NotRequired[bool]


class AccountInfo(TypedDict, total=False):
    """The account and the kind of credentials in use."""

    email: str
    organization: str
    subscriptionType: str
    tokenSource: str
    apiKeySource: str
    apiProvider: str
    """`firstParty`, `bedrock`, `vertex`, ..."""


class InitializeResponse(TypedDict):
    """The response to `initialize`: commands, agents, models, account, version."""

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
    """The prompts that were waiting at an interrupt. Empty from CLIs that send no receipt."""

    still_queued: list[str]
    """Uuids of prompts that will still run. Lists only prompts that were sent with a uuid."""
    cancelled: list[str]
    """Uuids of prompts that were dropped; only with `cancel_queued`."""


class RewindFilesResult(TypedDict):
    """The outcome of `rewind_files`; in a dry run, the changes that it would make."""

    canRewind: bool
    error: NotRequired[str]
    filesChanged: NotRequired[list[str]]
    """Only in a dry run, like `insertions` and `deletions`."""
    insertions: NotRequired[int]
    deletions: NotRequired[int]
    skippedLinks: NotRequired[int]
    """Number of files skipped because of a symbolic link. Not in a dry run."""


class RewindConversationResult(TypedDict):
    """The outcome of `rewind_conversation`."""

    rewound: bool
    targetMessageUuid: NotRequired[str]
    prefillText: NotRequired[str | None]
    """The text of that message, to be edited and sent again."""
    precedingAssistantUuid: NotRequired[str | None]
    error: NotRequired[str]
    reason: NotRequired[str]
    """A code such as `target_not_found`."""


class ForkConversationResult(TypedDict):
    """The outcome of `fork_conversation`. Outside a remote session, `reason` is `unsupported`."""

    forked: bool
    error: NotRequired[str]
    reason: NotRequired[str]


class SessionModelUsage(ModelUsage, TypedDict):
    """Tokens and cost of one model in this session."""

    thinkingTokens: NotRequired[int]
    """Part of the output tokens."""
    cacheCreationEphemeral5mInputTokens: NotRequired[int]
    cacheCreationEphemeral1hInputTokens: NotRequired[int]
    costBasis: NotRequired[str]


class SessionUsage(TypedDict):
    """Cost, time and tokens of this session so far."""

    total_cost_usd: float
    total_api_duration_ms: float
    total_duration_ms: float
    total_lines_added: int
    total_lines_removed: int
    model_usage: dict[str, SessionModelUsage]


class UsageResponse(TypedDict):
    """Cost and usage of this session, and the limits of a subscription if there is one."""

    session: SessionUsage
    subscription_type: str | None
    """None with an API key."""
    rate_limits_available: bool
    rate_limits: dict[str, Any] | None
    """By window: `five_hour`, `seven_day`, ..., each with `utilization` (0 to 100) and `resets_at`."""
    behaviors: dict[str, Any] | None


class FileContents(TypedDict):
    """The contents of a file, or its beginning."""

    contents: str
    absPath: str
    requested_path: NotRequired[str]
    truncated: NotRequired[bool]
    encoding: NotRequired[Literal["base64"]]
    """Only if base64 was requested."""
    lossy: NotRequired[bool]
    """True if some bytes were not valid UTF-8 and are lost."""


class FileSuggestion(TypedDict):
    """A path that matches the typed text."""

    path: str


class FileSuggestions(TypedDict):
    """Paths that match the text typed after an @."""

    suggestions: list[FileSuggestion]
    cwd: NotRequired[str]


class WorkspaceDiff(TypedDict):
    """Changes in the working tree since the last commit."""

    diff: dict[str, Any] | None
    """stats, perFileStats, hunks, ...; None if there is nothing to compare."""
    noDiffReason: NotRequired[str]
    """`no-repository`, ..."""


class TaskOutput(TypedDict):
    """The end of a background command's output."""

    output: str
    total_bytes: int
    truncated: bool
    """True if `output` is only the last 8 KiB."""


class PlanResponse(TypedDict):
    """The plan that Claude wrote in plan mode, if it exists."""

    exists: bool
    content: NotRequired[str]
    path: NotRequired[str]


class SideAnswer(TypedDict):
    """The response to `side_question`."""

    response: str | None
    synthetic: NotRequired[bool]
    """True if the CLI, not the model, wrote the response."""
    refusal_fallback: NotRequired[dict[str, Any]]


class ReloadPluginsResponse(TypedDict):
    """Everything that plugins provide after a reload."""

    commands: list[SlashCommand]
    agents: list[AgentInfo]
    plugins: list[dict[str, Any]]
    mcpServers: list[McpServerStatus]
    error_count: int
    held: NotRequired[bool]
    """True if nothing was applied, because of `hold_on_cache_impact`."""
    cache_impact: NotRequired[dict[str, Any]]


class SetCwdResult(TypedDict):
    """The new working directory, or a request to confirm trust in it."""

    status: Literal["ok", "needs_trust"]
    cwd: NotRequired[str]
    changed: NotRequired[bool]
    transcript_relocated: NotRequired[bool]
    directory: NotRequired[str]
    """With `needs_trust`: pass this as `trusted_directory` once the user agrees."""
    trust_root: NotRequired[str]


class ProactivityLevel(TypedDict):
    """How much Claude does on its own initiative."""

    level: Literal["ask", "default", "proactive"]
    permissionMode: NotRequired[PermissionMode]


class RepoRoot(TypedDict):
    """A working directory that was added."""

    directory: str
    staged_path: NotRequired[str]
    """Only for a directory attached to a remote session."""


class ReloadSkillsResponse(TypedDict):
    """The skills after a reload."""

    skills: list[SlashCommand]


class ReloadOutputStylesResponse(TypedDict):
    """The output styles after a reload."""

    available_output_styles: list[str]


class ContextUsageCategory(TypedDict):
    """Tokens taken by one part of the context."""

    name: str
    tokens: int
    color: str
    isDeferred: NotRequired[bool]
    id: NotRequired[str]
    """A stable id, unlike `name`: `system_prompt`, `mcp_tools`, `messages`, `free_space`, ..."""
    kind: NotRequired[Literal["used", "free", "buffer", "deferred"]]


class ContextUsageResponse(TypedDict):
    """The contents of the context window, in tokens."""

    categories: list[ContextUsageCategory]
    totalTokens: int
    """Tokens in use."""
    maxTokens: int
    """Usable tokens: the window less the reserve for compaction."""
    rawMaxTokens: int
    """The model's own window."""
    percentage: float
    """0 to 100."""
    model: str
    isAutoCompactEnabled: bool
    memoryFiles: list[dict[str, Any]]
    """CLAUDE.md and memory files: path, type, tokens."""
    mcpTools: list[dict[str, Any]]
    """MCP tools: name, serverName, tokens, isLoaded."""
    agents: list[dict[str, Any]]
    gridRows: list[list[dict[str, Any]]]
    """The grid that the CLI's `/context` draws."""
    autoCompactThreshold: NotRequired[int]
    """Tokens at which the conversation is compacted."""
    deferredBuiltinTools: NotRequired[list[dict[str, Any]]]
    systemTools: NotRequired[list[dict[str, Any]]]
    systemPromptSections: NotRequired[list[dict[str, Any]]]
    slashCommands: NotRequired[dict[str, Any]]
    skills: NotRequired[dict[str, Any]]
    messageBreakdown: NotRequired[dict[str, Any]]
    apiUsage: NotRequired[dict[str, Any] | None]
    mcpInstructions: NotRequired[list[dict[str, Any]]]
    """Instructions of MCP servers: serverName, tokens."""
    autocompactSource: NotRequired[str]


# Settings, rules, hooks and dialogs.


class SettingsSource(TypedDict):
    """The settings from one source."""

    source: str
    settings: dict[str, Any]


class SettingsResponse(TypedDict):
    """The settings in force and their sources."""

    effective: dict[str, Any]
    sources: list[SettingsSource]
    """In rising order of precedence."""
    applied: NotRequired[dict[str, Any]]
    """Values that the running session uses: model, effort, ..."""
    errors: NotRequired[list[dict[str, Any]]]


class PermissionRule(TypedDict):
    """One permission rule and its source."""

    behavior: Literal["allow", "ask", "deny"]
    source: str
    rule: str
    description: NotRequired[dict[str, str]]
    editability: NotRequired[str]


class PermissionRules(TypedDict):
    """The permission rules in force."""

    rules: list[PermissionRule]
    workspaceDirectories: list[dict[str, Any]]
    originalCwd: str
    managedOnly: bool
    errors: NotRequired[list[dict[str, Any]]]


class HookEventInfo(TypedDict):
    """One hook event of the CLI."""

    name: str
    summary: str
    supportsMatcher: bool
    hookCount: NotRequired[int]


class HooksListing(TypedDict):
    """The hooks of settings, plugins and this session."""

    events: list[HookEventInfo]
    """Events with at least one hook."""
    hooks: list[dict[str, Any]]
    """One per hook: event, matcher, source, type, commandText, ..."""
    eventCatalog: list[HookEventInfo]
    """All events that the CLI knows."""
    policy: NotRequired[dict[str, Any]]


class BinaryVersion(TypedDict):
    """The version of the CLI."""

    version: str
    buildTime: NotRequired[str]


class StatusRow(TypedDict):
    """One line of the status."""

    label: str
    value: Any


class StatusSection(TypedDict):
    """A titled group of lines."""

    title: str
    rows: list[StatusRow]


class StatusResponse(TypedDict):
    """The contents of `/status`."""

    sections: list[StatusSection]


class ExportedConversation(TypedDict):
    """The conversation as plain text, and a suggested file name."""

    text: str
    default_filename: str


class MemoryDialog(TypedDict):
    """The files and folders that hold instructions and memories."""

    files: list[dict[str, Any]]
    """kind, path, label, description, exists."""
    folders: list[dict[str, Any]]
    memories: list[dict[str, Any]]
    auto_memory: NotRequired[dict[str, Any]]
    auto_dream: NotRequired[dict[str, Any]]


class SkillsDialog(TypedDict):
    """The skills that can be switched on and off."""

    skills: list[dict[str, Any]]


class SandboxDialog(TypedDict):
    """The state of the command sandbox and its restrictions."""

    supported: bool
    enabled: bool
    mode: str
    enabled_in_settings: NotRequired[bool]
    locked: NotRequired[bool]
    overrides_locked: NotRequired[bool]
    policy_origins: NotRequired[list[Any]]
    auto_allow_available: NotRequired[bool]
    no_sandbox_allowed: NotRequired[bool]
    unsandboxed_fallback: NotRequired[bool]
    dependencies: NotRequired[dict[str, list[str]]]
    """Missing dependencies, as errors and warnings."""
    restrictions: NotRequired[dict[str, Any]]
    excluded_commands: NotRequired[list[str]]


# Control frames, for code that imports them from `claude_agent_sdk.types`. toolwire reads frames in
# `_protocol.control`, which accepts any.


class SDKControlInterruptRequest(TypedDict):
    """Interrupt the turn."""

    subtype: Literal["interrupt"]


class SDKControlPermissionRequest(TypedDict):
    """Ask for permission to run a tool."""

    subtype: Literal["can_use_tool"]
    tool_name: str
    input: dict[str, Any]
    permission_suggestions: list[dict[str, Any]] | None
    blocked_path: str | None
    decision_reason: NotRequired[str]
    title: NotRequired[str]
    display_name: NotRequired[str]
    description: NotRequired[str]
    tool_use_id: str
    agent_id: NotRequired[str]


class SDKControlInitializeRequest(TypedDict):
    """The first request of a session."""

    subtype: Literal["initialize"]
    hooks: dict[HookEvent, Any] | None
    agents: NotRequired[dict[str, dict[str, Any]]]
    excludeDynamicSections: NotRequired[bool]
    systemPromptSnapshot: NotRequired[bool]
    skills: NotRequired[list[str]]
    forwardSubagentText: NotRequired[bool]


class SDKControlSetPermissionModeRequest(TypedDict):
    """Change the permission mode."""

    subtype: Literal["set_permission_mode"]
    mode: PermissionMode


class SDKHookCallbackRequest(TypedDict):
    """Call a hook."""

    subtype: Literal["hook_callback"]
    callback_id: str
    input: Any
    tool_use_id: str | None


class SDKControlMcpMessageRequest(TypedDict):
    """Deliver a JSON-RPC message to an in-process server."""

    subtype: Literal["mcp_message"]
    server_name: str
    message: Any


class SDKControlRewindFilesRequest(TypedDict):
    """Restore files."""

    subtype: Literal["rewind_files"]
    user_message_id: str


class SDKControlMcpReconnectRequest(TypedDict):
    """Reconnect an MCP server."""

    subtype: Literal["mcp_reconnect"]
    serverName: str


class SDKControlMcpToggleRequest(TypedDict):
    """Enable or disable an MCP server."""

    subtype: Literal["mcp_toggle"]
    serverName: str
    enabled: bool


class SDKControlStopTaskRequest(TypedDict):
    """Stop a background task."""

    subtype: Literal["stop_task"]
    task_id: str


class SDKControlRequest(TypedDict):
    """The envelope of every request."""

    type: Literal["control_request"]
    request_id: str
    request: (
        SDKControlInterruptRequest
        | SDKControlPermissionRequest
        | SDKControlInitializeRequest
        | SDKControlSetPermissionModeRequest
        | SDKHookCallbackRequest
        | SDKControlMcpMessageRequest
        | SDKControlRewindFilesRequest
        | SDKControlMcpReconnectRequest
        | SDKControlMcpToggleRequest
        | SDKControlStopTaskRequest
    )


class ControlResponse(TypedDict):
    """A successful response."""

    subtype: Literal["success"]
    request_id: str
    response: dict[str, Any] | None


class ControlErrorResponse(TypedDict):
    """An error response."""

    subtype: Literal["error"]
    request_id: str
    error: str


class SDKControlResponse(TypedDict):
    """The envelope of every response."""

    type: Literal["control_response"]
    response: ControlResponse | ControlErrorResponse
