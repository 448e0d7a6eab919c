"""The types of options: literals, typed dicts and `AgentDefinition`.

Names, keys and order are those of `claude_agent_sdk`; keys that only the TypeScript SDK has follow them.
Keys in camelCase are sent to the CLI as they are written here. Nothing is checked in this module.
"""
# ruff: noqa: N815 - camelCase names are the CLI's own spelling

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from toolwire._support.record import RecordWithSecrets, record
from toolwire.permissions import PermissionMode
from toolwire.tools.names import McpSdkServerConfig

SettingSource: TypeAlias = Literal["user", "project", "local"]
EffortLevel: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
SdkBeta: TypeAlias = Literal["context-1m-2025-08-07"]
ThinkingDisplay: TypeAlias = Literal["summarized", "omitted"]
SessionStoreFlushMode: TypeAlias = Literal["batched", "eager"]
PermissionPrompts: TypeAlias = Literal["host", "none"]
PluginDelivery: TypeAlias = Literal["argv", "initialize"]

SYSTEM_PROMPT_DYNAMIC_BOUNDARY = "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__"
"""A block of a system prompt given as a list. Blocks before it may be cached across sessions, later ones not."""


class SystemPromptPreset(TypedDict):
    """Claude Code's own system prompt, optionally with an addition."""

    type: Literal["preset"]
    preset: Literal["claude_code"]
    append: NotRequired[str]
    """Text put after the preset."""
    exclude_dynamic_sections: NotRequired[bool]
    """True: move the parts that differ by user (directory, git status, memory) to the first message, so that the
    prompt can be cached."""
    snapshot: NotRequired[bool]
    """False: build the prompt again for each request. Otherwise the session keeps its first prompt."""


class SystemPromptCustom(TypedDict):
    """Your own prompt, in the form that supports `snapshot`."""

    type: Literal["custom"]
    prompt: str | list[str]
    snapshot: NotRequired[bool]
    """As in `SystemPromptPreset`."""


class SystemPromptFile(TypedDict):
    """A prompt that the CLI reads from a file."""

    type: Literal["file"]
    path: str


class ToolsPreset(TypedDict):
    """All the built-in tools that Claude Code has by default."""

    type: Literal["preset"]
    preset: Literal["claude_code"]


class TaskBudget(TypedDict):
    """Token budget of the whole task; the model can see how many tokens are left."""

    total: int


class ThinkingConfigAdaptive(TypedDict):
    """The model decides when and how long to think."""

    type: Literal["adaptive"]
    display: NotRequired[ThinkingDisplay]


class ThinkingConfigEnabled(TypedDict):
    """A fixed budget of thinking tokens, for older models."""

    type: Literal["enabled"]
    budget_tokens: int
    display: NotRequired[ThinkingDisplay]


class ThinkingConfigDisabled(TypedDict):
    """No extended thinking."""

    type: Literal["disabled"]


ThinkingConfig: TypeAlias = ThinkingConfigAdaptive | ThinkingConfigEnabled | ThinkingConfigDisabled


class SdkPluginConfig(TypedDict):
    """A plugin in a local directory."""

    type: Literal["local"]
    path: str
    skipMcpDiscovery: NotRequired[bool]
    """True: load the plugin without its MCP servers."""


class AskUserQuestionConfig(TypedDict, total=False):
    """Settings of the built-in tool that asks the user."""

    previewFormat: Literal["markdown", "html"]


class ToolConfig(TypedDict, total=False):
    """Settings of single built-in tools."""

    askUserQuestion: AskUserQuestionConfig


class SandboxNetworkConfig(TypedDict, total=False):
    """The network access of sandboxed commands."""

    allowedDomains: list[str]
    deniedDomains: list[str]
    """Takes precedence over `allowedDomains`."""
    allowManagedDomainsOnly: bool
    allowUnixSockets: list[str]
    allowAllUnixSockets: bool
    allowLocalBinding: bool
    allowMachLookup: list[str]
    httpProxyPort: int
    socksProxyPort: int
    strictAllowlist: bool
    tlsTerminate: dict[str, str]


class SandboxFilesystemConfig(TypedDict, total=False):
    """The files that sandboxed commands may read and write."""

    allowWrite: list[str]
    denyWrite: list[str]
    denyRead: list[str]
    allowRead: list[str]
    allowManagedReadPathsOnly: bool
    disabled: bool


SandboxIgnoreViolations: TypeAlias = dict[str, list[str]]
"""Violations not to report: part of a command (`"*"` for any) -> parts of the violation's text."""


class SandboxSettings(TypedDict, total=False):
    """The sandbox in which the CLI runs shell commands (macOS and Linux)."""

    enabled: bool
    autoAllowBashIfSandboxed: bool
    """Sandboxed commands need no permission. The default is True."""
    excludedCommands: list[str]
    """Commands that run outside the sandbox."""
    allowUnsandboxedCommands: bool
    """The model may request to run a command outside the sandbox. The default is True."""
    network: SandboxNetworkConfig
    ignoreViolations: SandboxIgnoreViolations
    enableWeakerNestedSandbox: bool
    failIfUnavailable: bool
    """True: fail if the sandbox is unavailable."""
    filesystem: SandboxFilesystemConfig
    credentials: dict[str, Any]


class McpToolPolicy(TypedDict):
    """The permission policy of one tool of a server."""

    name: str
    permission_policy: NotRequired[Literal["always_allow", "always_ask", "always_deny"]]


class McpStdioServerConfig(TypedDict):
    """A server that the CLI starts as a program."""

    type: NotRequired[Literal["stdio"]]
    command: str
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]
    timeout: NotRequired[int]
    """Timeout of one tool call in milliseconds (at least 1000)."""
    alwaysLoad: NotRequired[bool]
    """True: its tools are never hidden behind tool search."""


class McpSSEServerConfig(TypedDict):
    """A server reached over server-sent events."""

    type: Literal["sse"]
    url: str
    headers: NotRequired[dict[str, str]]
    timeout: NotRequired[int]
    alwaysLoad: NotRequired[bool]
    tools: NotRequired[list[McpToolPolicy]]


class McpHttpServerConfig(TypedDict):
    """A server reached over streamable HTTP."""

    type: Literal["http"]
    url: str
    headers: NotRequired[dict[str, str]]
    timeout: NotRequired[int]
    alwaysLoad: NotRequired[bool]
    tools: NotRequired[list[McpToolPolicy]]


McpServerConfig: TypeAlias = (
    McpStdioServerConfig | McpSSEServerConfig | McpHttpServerConfig | McpSdkServerConfig
)


@record
class AgentDefinition(RecordWithSecrets):
    """A subagent that the model may call, or that leads the session (`ClaudeAgentOptions.agent`)."""

    description: str
    """When to use this agent, in words for the model."""
    prompt: str
    """Its system prompt."""
    tools: list[str] | None = None
    """Tools that it has. None: those of its parent."""
    disallowedTools: list[str] | None = None
    """Tools that it may not use; `mcp__server` means all tools of a server."""
    model: str | None = None
    """An alias such as `haiku`, a full model name, or `inherit`."""
    skills: list[str] | None = None
    """Skills loaded into its context from the start."""
    memory: Literal["user", "project", "local"] | None = None
    """The place of its memory files."""
    mcpServers: list[str | dict[str, Any]] | None = None
    """Names of the session's servers, or `{name: config}` for its own servers."""
    initialPrompt: str | None = None
    """Sent first when the agent leads the session."""
    maxTurns: int | None = None
    """It stops after this number of requests to the model."""
    background: bool | None = None
    """True: it runs in the background, and the conversation does not wait for it."""
    effort: EffortLevel | int | None = None
    """How much effort it spends on a response."""
    permissionMode: PermissionMode | None = None
    """Its own permission mode."""
    criticalSystemReminder_EXPERIMENTAL: str | None = None
    """A reminder added to its system prompt. Experimental in the CLI."""
    autoCompactWindow: int | None = None
    """Number of tokens after which it compacts its conversation, if that is less than the inherited number."""
    omitClaudeMd: bool | None = None
    """True: as a subagent it does not read the CLAUDE.md files, except managed ones."""
    observer: str | None = None
    """Agents (up to four, separated by commas) that observe it and report."""
    observerMessage: str | None = None
    """Text added to each digest that the observers get."""
