"""What the CLI says about MCP servers, what it gets from them, and about the context window, as typed dicts.

The dicts are the CLI's own; nothing here is built or checked by toolwire. Fields are those of
`claude_agent_sdk`, with what newer CLIs add after them.
"""

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from toolwire.options.types import McpHttpServerConfig, McpSSEServerConfig, McpStdioServerConfig

McpServerConnectionStatus: TypeAlias = Literal["connected", "failed", "needs-auth", "pending", "disabled"]


class McpSdkServerConfigStatus(TypedDict):
    """An in-process server, as the CLI knows it."""

    type: Literal["sdk"]
    name: str


class McpClaudeAIProxyServerConfig(TypedDict):
    """A server that claude.ai relays. Only ever reported, never configured."""

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
    """What a tool says of itself."""

    readOnly: bool
    destructive: bool
    openWorld: bool


class McpToolInfo(TypedDict):
    """One tool of a connected server."""

    name: str
    description: NotRequired[str]
    annotations: NotRequired[McpToolAnnotations]


class McpServerInfo(TypedDict):
    """What the server called itself in the handshake."""

    name: str
    version: str


class McpServerStatus(TypedDict):
    """One server: what it is called and how it is."""

    name: str
    status: McpServerConnectionStatus
    serverInfo: NotRequired[McpServerInfo]
    """Once connected."""
    error: NotRequired[str]
    """Why it failed, if it did."""
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


class ContextUsageCategory(TypedDict):
    """Tokens taken by one part of the context."""

    name: str
    tokens: int
    color: str
    isDeferred: NotRequired[bool]
    id: NotRequired[str]
    """Which row it is, whatever its name: `system_prompt`, `mcp_tools`, `messages`, `free_space`, ..."""
    kind: NotRequired[Literal["used", "free", "buffer", "deferred"]]


class ContextUsageResponse(TypedDict):
    """How full the context window is, and with what."""

    categories: list[ContextUsageCategory]
    totalTokens: int
    """Tokens in use."""
    maxTokens: int
    """Tokens that may be used, less what compaction keeps free."""
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
    """The picture that the CLI draws of all this."""
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


class McpSetServersResult(TypedDict):
    """What a change of servers in a running session did."""

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
    """A resource that a server gave."""

    contents: list[McpContent]


class McpCallResult(TypedDict):
    """What a tool gave."""

    content: Any
    """Content blocks; text from old servers."""
    structuredContent: NotRequired[Any]
    _meta: NotRequired[dict[str, Any]]
    isError: NotRequired[bool]


class McpModeOverride(TypedDict):
    """Whether the mode of one server was set."""

    warning: NotRequired[str]
    """There is no server of that name, as yet."""
