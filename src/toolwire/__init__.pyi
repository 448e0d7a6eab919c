from toolwire._transport.custom import (
    Transport as Transport,
)
from toolwire._transport.process import (
    Command as Command,
)
from toolwire._version import (
    __version__ as __version__,
)
from toolwire.client.answers import (
    AccountInfo as AccountInfo,
)
from toolwire.client.answers import (
    AgentInfo as AgentInfo,
)
from toolwire.client.answers import (
    FileContents as FileContents,
)
from toolwire.client.answers import (
    FileSuggestion as FileSuggestion,
)
from toolwire.client.answers import (
    FileSuggestions as FileSuggestions,
)
from toolwire.client.answers import (
    ForkConversationResult as ForkConversationResult,
)
from toolwire.client.answers import (
    InitializeResponse as InitializeResponse,
)
from toolwire.client.answers import (
    InterruptReceipt as InterruptReceipt,
)
from toolwire.client.answers import (
    ModelInfo as ModelInfo,
)
from toolwire.client.answers import (
    PlanResponse as PlanResponse,
)
from toolwire.client.answers import (
    ProactivityLevel as ProactivityLevel,
)
from toolwire.client.answers import (
    ReloadOutputStylesResponse as ReloadOutputStylesResponse,
)
from toolwire.client.answers import (
    ReloadPluginsResponse as ReloadPluginsResponse,
)
from toolwire.client.answers import (
    ReloadSkillsResponse as ReloadSkillsResponse,
)
from toolwire.client.answers import (
    RepoRoot as RepoRoot,
)
from toolwire.client.answers import (
    RewindConversationResult as RewindConversationResult,
)
from toolwire.client.answers import (
    RewindFilesResult as RewindFilesResult,
)
from toolwire.client.answers import (
    SessionModelUsage as SessionModelUsage,
)
from toolwire.client.answers import (
    SessionUsage as SessionUsage,
)
from toolwire.client.answers import (
    SetCwdResult as SetCwdResult,
)
from toolwire.client.answers import (
    SideAnswer as SideAnswer,
)
from toolwire.client.answers import (
    SlashCommand as SlashCommand,
)
from toolwire.client.answers import (
    TaskOutput as TaskOutput,
)
from toolwire.client.answers import (
    UsageResponse as UsageResponse,
)
from toolwire.client.answers import (
    WorkspaceDiff as WorkspaceDiff,
)
from toolwire.client.client import (
    ClaudeSDKClient as ClaudeSDKClient,
)
from toolwire.client.listings import (
    BinaryVersion as BinaryVersion,
)
from toolwire.client.listings import (
    ExportedConversation as ExportedConversation,
)
from toolwire.client.listings import (
    HookEventInfo as HookEventInfo,
)
from toolwire.client.listings import (
    HooksListing as HooksListing,
)
from toolwire.client.listings import (
    MemoryDialog as MemoryDialog,
)
from toolwire.client.listings import (
    PermissionRule as PermissionRule,
)
from toolwire.client.listings import (
    PermissionRules as PermissionRules,
)
from toolwire.client.listings import (
    SandboxDialog as SandboxDialog,
)
from toolwire.client.listings import (
    SettingsResponse as SettingsResponse,
)
from toolwire.client.listings import (
    SettingsSource as SettingsSource,
)
from toolwire.client.listings import (
    SkillsDialog as SkillsDialog,
)
from toolwire.client.listings import (
    StatusResponse as StatusResponse,
)
from toolwire.client.listings import (
    StatusRow as StatusRow,
)
from toolwire.client.listings import (
    StatusSection as StatusSection,
)
from toolwire.client.query import (
    query as query,
)
from toolwire.client.reply import (
    Reply as Reply,
)
from toolwire.client.reply import (
    ToolCall as ToolCall,
)
from toolwire.client.reply import (
    run as run,
)
from toolwire.client.reply import (
    run_sync as run_sync,
)
from toolwire.client.status import (
    ContextUsageCategory as ContextUsageCategory,
)
from toolwire.client.status import (
    ContextUsageResponse as ContextUsageResponse,
)
from toolwire.client.status import (
    McpCallResult as McpCallResult,
)
from toolwire.client.status import (
    McpClaudeAIProxyServerConfig as McpClaudeAIProxyServerConfig,
)
from toolwire.client.status import (
    McpContent as McpContent,
)
from toolwire.client.status import (
    McpModeOverride as McpModeOverride,
)
from toolwire.client.status import (
    McpResource as McpResource,
)
from toolwire.client.status import (
    McpSdkServerConfigStatus as McpSdkServerConfigStatus,
)
from toolwire.client.status import (
    McpServerConnectionStatus as McpServerConnectionStatus,
)
from toolwire.client.status import (
    McpServerInfo as McpServerInfo,
)
from toolwire.client.status import (
    McpServerStatus as McpServerStatus,
)
from toolwire.client.status import (
    McpServerStatusConfig as McpServerStatusConfig,
)
from toolwire.client.status import (
    McpSetServersResult as McpSetServersResult,
)
from toolwire.client.status import (
    McpStatusResponse as McpStatusResponse,
)
from toolwire.client.status import (
    McpToolAnnotations as McpToolAnnotations,
)
from toolwire.client.status import (
    McpToolInfo as McpToolInfo,
)
from toolwire.client.warm import (
    WarmPool as WarmPool,
)
from toolwire.client.warm import (
    startup as startup,
)
from toolwire.errors import (
    CanUseToolShadowedWarning as CanUseToolShadowedWarning,
)
from toolwire.errors import (
    ClaudeSDKError as ClaudeSDKError,
)
from toolwire.errors import (
    CLIConnectionError as CLIConnectionError,
)
from toolwire.errors import (
    CLIJSONDecodeError as CLIJSONDecodeError,
)
from toolwire.errors import (
    CLINotFoundError as CLINotFoundError,
)
from toolwire.errors import (
    CLITimeoutError as CLITimeoutError,
)
from toolwire.errors import (
    ControlRequestError as ControlRequestError,
)
from toolwire.errors import (
    LiveStartError as LiveStartError,
)
from toolwire.errors import (
    McpError as McpError,
)
from toolwire.errors import (
    MessageParseError as MessageParseError,
)
from toolwire.errors import (
    NotSupportedError as NotSupportedError,
)
from toolwire.errors import (
    OptionsError as OptionsError,
)
from toolwire.errors import (
    OutputValidationError as OutputValidationError,
)
from toolwire.errors import (
    ProcessError as ProcessError,
)
from toolwire.errors import (
    ResourceNotFoundError as ResourceNotFoundError,
)
from toolwire.errors import (
    ResultError as ResultError,
)
from toolwire.errors import (
    ToolDefinitionError as ToolDefinitionError,
)
from toolwire.errors import (
    ToolError as ToolError,
)
from toolwire.errors import (
    UnsupportedRequestError as UnsupportedRequestError,
)
from toolwire.hooks import (
    AsyncHookJSONOutput as AsyncHookJSONOutput,
)
from toolwire.hooks import (
    BackgroundTaskSummary as BackgroundTaskSummary,
)
from toolwire.hooks import (
    BaseHookInput as BaseHookInput,
)
from toolwire.hooks import (
    CommonHookOutput as CommonHookOutput,
)
from toolwire.hooks import (
    ConfigChangeHookInput as ConfigChangeHookInput,
)
from toolwire.hooks import (
    CwdChangedHookInput as CwdChangedHookInput,
)
from toolwire.hooks import (
    CwdChangedHookSpecificOutput as CwdChangedHookSpecificOutput,
)
from toolwire.hooks import (
    DirectoryAddedHookInput as DirectoryAddedHookInput,
)
from toolwire.hooks import (
    ElicitationHookInput as ElicitationHookInput,
)
from toolwire.hooks import (
    ElicitationHookSpecificOutput as ElicitationHookSpecificOutput,
)
from toolwire.hooks import (
    ElicitationResultHookInput as ElicitationResultHookInput,
)
from toolwire.hooks import (
    ElicitationResultHookSpecificOutput as ElicitationResultHookSpecificOutput,
)
from toolwire.hooks import (
    FileChangedHookInput as FileChangedHookInput,
)
from toolwire.hooks import (
    FileChangedHookSpecificOutput as FileChangedHookSpecificOutput,
)
from toolwire.hooks import (
    HookCallback as HookCallback,
)
from toolwire.hooks import (
    HookContext as HookContext,
)
from toolwire.hooks import (
    HookEffort as HookEffort,
)
from toolwire.hooks import (
    HookEvent as HookEvent,
)
from toolwire.hooks import (
    HookInput as HookInput,
)
from toolwire.hooks import (
    HookJSONOutput as HookJSONOutput,
)
from toolwire.hooks import (
    HookMatcher as HookMatcher,
)
from toolwire.hooks import (
    HookOutcome as HookOutcome,
)
from toolwire.hooks import (
    HookOutput as HookOutput,
)
from toolwire.hooks import (
    Hooks as Hooks,
)
from toolwire.hooks import (
    HookSpecificOutput as HookSpecificOutput,
)
from toolwire.hooks import (
    InstructionsLoadedHookInput as InstructionsLoadedHookInput,
)
from toolwire.hooks import (
    MessageDisplayHookInput as MessageDisplayHookInput,
)
from toolwire.hooks import (
    MessageDisplayHookSpecificOutput as MessageDisplayHookSpecificOutput,
)
from toolwire.hooks import (
    NotificationHookInput as NotificationHookInput,
)
from toolwire.hooks import (
    NotificationHookSpecificOutput as NotificationHookSpecificOutput,
)
from toolwire.hooks import (
    PermissionDeniedHookInput as PermissionDeniedHookInput,
)
from toolwire.hooks import (
    PermissionDeniedHookSpecificOutput as PermissionDeniedHookSpecificOutput,
)
from toolwire.hooks import (
    PermissionRequestHookInput as PermissionRequestHookInput,
)
from toolwire.hooks import (
    PermissionRequestHookSpecificOutput as PermissionRequestHookSpecificOutput,
)
from toolwire.hooks import (
    PostCompactHookInput as PostCompactHookInput,
)
from toolwire.hooks import (
    PostModelSwitchHookInput as PostModelSwitchHookInput,
)
from toolwire.hooks import (
    PostModelSwitchHookSpecificOutput as PostModelSwitchHookSpecificOutput,
)
from toolwire.hooks import (
    PostToolBatchHookInput as PostToolBatchHookInput,
)
from toolwire.hooks import (
    PostToolBatchHookSpecificOutput as PostToolBatchHookSpecificOutput,
)
from toolwire.hooks import (
    PostToolBatchToolCall as PostToolBatchToolCall,
)
from toolwire.hooks import (
    PostToolUseFailureHookInput as PostToolUseFailureHookInput,
)
from toolwire.hooks import (
    PostToolUseFailureHookSpecificOutput as PostToolUseFailureHookSpecificOutput,
)
from toolwire.hooks import (
    PostToolUseHookInput as PostToolUseHookInput,
)
from toolwire.hooks import (
    PostToolUseHookSpecificOutput as PostToolUseHookSpecificOutput,
)
from toolwire.hooks import (
    PreCompactHookInput as PreCompactHookInput,
)
from toolwire.hooks import (
    PreModelSwitchHookInput as PreModelSwitchHookInput,
)
from toolwire.hooks import (
    PreModelSwitchHookSpecificOutput as PreModelSwitchHookSpecificOutput,
)
from toolwire.hooks import (
    PreToolUseHookInput as PreToolUseHookInput,
)
from toolwire.hooks import (
    PreToolUseHookSpecificOutput as PreToolUseHookSpecificOutput,
)
from toolwire.hooks import (
    SessionCronSummary as SessionCronSummary,
)
from toolwire.hooks import (
    SessionEndHookInput as SessionEndHookInput,
)
from toolwire.hooks import (
    SessionStartHookInput as SessionStartHookInput,
)
from toolwire.hooks import (
    SessionStartHookSpecificOutput as SessionStartHookSpecificOutput,
)
from toolwire.hooks import (
    SetupHookInput as SetupHookInput,
)
from toolwire.hooks import (
    StopFailureHookInput as StopFailureHookInput,
)
from toolwire.hooks import (
    StopHookInput as StopHookInput,
)
from toolwire.hooks import (
    StopHookSpecificOutput as StopHookSpecificOutput,
)
from toolwire.hooks import (
    SubagentStartHookInput as SubagentStartHookInput,
)
from toolwire.hooks import (
    SubagentStartHookSpecificOutput as SubagentStartHookSpecificOutput,
)
from toolwire.hooks import (
    SubagentStopHookInput as SubagentStopHookInput,
)
from toolwire.hooks import (
    SubagentStopHookSpecificOutput as SubagentStopHookSpecificOutput,
)
from toolwire.hooks import (
    SyncHookJSONOutput as SyncHookJSONOutput,
)
from toolwire.hooks import (
    TaskCompletedHookInput as TaskCompletedHookInput,
)
from toolwire.hooks import (
    TaskCreatedHookInput as TaskCreatedHookInput,
)
from toolwire.hooks import (
    TeammateIdleHookInput as TeammateIdleHookInput,
)
from toolwire.hooks import (
    UserPromptExpansionHookInput as UserPromptExpansionHookInput,
)
from toolwire.hooks import (
    UserPromptExpansionHookSpecificOutput as UserPromptExpansionHookSpecificOutput,
)
from toolwire.hooks import (
    UserPromptSubmitHookInput as UserPromptSubmitHookInput,
)
from toolwire.hooks import (
    UserPromptSubmitHookSpecificOutput as UserPromptSubmitHookSpecificOutput,
)
from toolwire.hooks import (
    WorktreeCreateHookInput as WorktreeCreateHookInput,
)
from toolwire.hooks import (
    WorktreeCreateHookSpecificOutput as WorktreeCreateHookSpecificOutput,
)
from toolwire.hooks import (
    WorktreeRemoveHookInput as WorktreeRemoveHookInput,
)
from toolwire.mcp.serve.limits import (
    HttpLimits as HttpLimits,
)
from toolwire.mcp.serve.start import (
    as_mcp_server as as_mcp_server,
)
from toolwire.mcp.serve.start import (
    http_app as http_app,
)
from toolwire.mcp.serve.start import (
    serve_http as serve_http,
)
from toolwire.mcp.serve.start import (
    serve_stdio as serve_stdio,
)
from toolwire.messages import (
    TERMINAL_TASK_STATUSES as TERMINAL_TASK_STATUSES,
)
from toolwire.messages import (
    AnyMessage as AnyMessage,
)
from toolwire.messages import (
    ApiRetryMessage as ApiRetryMessage,
)
from toolwire.messages import (
    AssistantMessage as AssistantMessage,
)
from toolwire.messages import (
    AssistantMessageError as AssistantMessageError,
)
from toolwire.messages import (
    AuthStatusMessage as AuthStatusMessage,
)
from toolwire.messages import (
    BackgroundTasksChangedMessage as BackgroundTasksChangedMessage,
)
from toolwire.messages import (
    CommandsChangedMessage as CommandsChangedMessage,
)
from toolwire.messages import (
    CompactBoundaryMessage as CompactBoundaryMessage,
)
from toolwire.messages import (
    ControlRequestProgressMessage as ControlRequestProgressMessage,
)
from toolwire.messages import (
    ConversationResetMessage as ConversationResetMessage,
)
from toolwire.messages import (
    DeferredToolUse as DeferredToolUse,
)
from toolwire.messages import (
    ElicitationCompleteMessage as ElicitationCompleteMessage,
)
from toolwire.messages import (
    FastModeDisabledReason as FastModeDisabledReason,
)
from toolwire.messages import (
    FastModeState as FastModeState,
)
from toolwire.messages import (
    FilesPersistedMessage as FilesPersistedMessage,
)
from toolwire.messages import (
    HookEventMessage as HookEventMessage,
)
from toolwire.messages import (
    HookProgressMessage as HookProgressMessage,
)
from toolwire.messages import (
    InformationalMessage as InformationalMessage,
)
from toolwire.messages import (
    InitMessage as InitMessage,
)
from toolwire.messages import (
    LineDroppedMessage as LineDroppedMessage,
)
from toolwire.messages import (
    LocalCommandOutputMessage as LocalCommandOutputMessage,
)
from toolwire.messages import (
    McpLogMessage as McpLogMessage,
)
from toolwire.messages import (
    McpProgressMessage as McpProgressMessage,
)
from toolwire.messages import (
    MemoryRecallMessage as MemoryRecallMessage,
)
from toolwire.messages import (
    Message as Message,
)
from toolwire.messages import (
    MessageOrigin as MessageOrigin,
)
from toolwire.messages import (
    MessageOriginKind as MessageOriginKind,
)
from toolwire.messages import (
    MirrorErrorMessage as MirrorErrorMessage,
)
from toolwire.messages import (
    ModelRefusalFallbackMessage as ModelRefusalFallbackMessage,
)
from toolwire.messages import (
    ModelRefusalNoFallbackMessage as ModelRefusalNoFallbackMessage,
)
from toolwire.messages import (
    ModelUsage as ModelUsage,
)
from toolwire.messages import (
    NotificationMessage as NotificationMessage,
)
from toolwire.messages import (
    PermissionDeniedMessage as PermissionDeniedMessage,
)
from toolwire.messages import (
    PluginInstallMessage as PluginInstallMessage,
)
from toolwire.messages import (
    PromptSuggestionMessage as PromptSuggestionMessage,
)
from toolwire.messages import (
    RateLimitEvent as RateLimitEvent,
)
from toolwire.messages import (
    RateLimitInfo as RateLimitInfo,
)
from toolwire.messages import (
    RateLimitStatus as RateLimitStatus,
)
from toolwire.messages import (
    RateLimitType as RateLimitType,
)
from toolwire.messages import (
    ResultMessage as ResultMessage,
)
from toolwire.messages import (
    SessionKey as SessionKey,
)
from toolwire.messages import (
    SessionStateChangedMessage as SessionStateChangedMessage,
)
from toolwire.messages import (
    SessionTitleChangedMessage as SessionTitleChangedMessage,
)
from toolwire.messages import (
    SessionWritesLostMessage as SessionWritesLostMessage,
)
from toolwire.messages import (
    StatusMessage as StatusMessage,
)
from toolwire.messages import (
    StreamEvent as StreamEvent,
)
from toolwire.messages import (
    SystemInitData as SystemInitData,
)
from toolwire.messages import (
    SystemInitMcpServer as SystemInitMcpServer,
)
from toolwire.messages import (
    SystemInitPlugin as SystemInitPlugin,
)
from toolwire.messages import (
    SystemInitPluginError as SystemInitPluginError,
)
from toolwire.messages import (
    SystemMessage as SystemMessage,
)
from toolwire.messages import (
    TaskNotificationMessage as TaskNotificationMessage,
)
from toolwire.messages import (
    TaskNotificationOriginSubkind as TaskNotificationOriginSubkind,
)
from toolwire.messages import (
    TaskNotificationStatus as TaskNotificationStatus,
)
from toolwire.messages import (
    TaskProgressMessage as TaskProgressMessage,
)
from toolwire.messages import (
    TaskStartedMessage as TaskStartedMessage,
)
from toolwire.messages import (
    TaskUpdatedMessage as TaskUpdatedMessage,
)
from toolwire.messages import (
    TaskUpdatedStatus as TaskUpdatedStatus,
)
from toolwire.messages import (
    TaskUsage as TaskUsage,
)
from toolwire.messages import (
    ThinkingTokensMessage as ThinkingTokensMessage,
)
from toolwire.messages import (
    ToolProgressMessage as ToolProgressMessage,
)
from toolwire.messages import (
    ToolUseSummaryMessage as ToolUseSummaryMessage,
)
from toolwire.messages import (
    UnknownMessage as UnknownMessage,
)
from toolwire.messages import (
    UserMessage as UserMessage,
)
from toolwire.messages import (
    WorkerShuttingDownMessage as WorkerShuttingDownMessage,
)
from toolwire.messages.blocks import (
    ContainerUploadBlock as ContainerUploadBlock,
)
from toolwire.messages.blocks import (
    ContentBlock as ContentBlock,
)
from toolwire.messages.blocks import (
    DocumentBlock as DocumentBlock,
)
from toolwire.messages.blocks import (
    ImageBlock as ImageBlock,
)
from toolwire.messages.blocks import (
    McpToolResultBlock as McpToolResultBlock,
)
from toolwire.messages.blocks import (
    McpToolUseBlock as McpToolUseBlock,
)
from toolwire.messages.blocks import (
    RedactedThinkingBlock as RedactedThinkingBlock,
)
from toolwire.messages.blocks import (
    SearchResultBlock as SearchResultBlock,
)
from toolwire.messages.blocks import (
    ServerToolName as ServerToolName,
)
from toolwire.messages.blocks import (
    ServerToolResultBlock as ServerToolResultBlock,
)
from toolwire.messages.blocks import (
    ServerToolUseBlock as ServerToolUseBlock,
)
from toolwire.messages.blocks import (
    TextBlock as TextBlock,
)
from toolwire.messages.blocks import (
    ThinkingBlock as ThinkingBlock,
)
from toolwire.messages.blocks import (
    ToolResultBlock as ToolResultBlock,
)
from toolwire.messages.blocks import (
    ToolUseBlock as ToolUseBlock,
)
from toolwire.messages.blocks import (
    UnknownBlock as UnknownBlock,
)
from toolwire.options.agent_options import (
    SYSTEM_PROMPT_DYNAMIC_BOUNDARY as SYSTEM_PROMPT_DYNAMIC_BOUNDARY,
)
from toolwire.options.agent_options import (
    AgentDefinition as AgentDefinition,
)
from toolwire.options.agent_options import (
    AskUserQuestionConfig as AskUserQuestionConfig,
)
from toolwire.options.agent_options import (
    ClaudeAgentOptions as ClaudeAgentOptions,
)
from toolwire.options.agent_options import (
    EffortLevel as EffortLevel,
)
from toolwire.options.agent_options import (
    McpHttpServerConfig as McpHttpServerConfig,
)
from toolwire.options.agent_options import (
    McpSdkServerConfig as McpSdkServerConfig,
)
from toolwire.options.agent_options import (
    McpServerConfig as McpServerConfig,
)
from toolwire.options.agent_options import (
    McpSSEServerConfig as McpSSEServerConfig,
)
from toolwire.options.agent_options import (
    McpStdioServerConfig as McpStdioServerConfig,
)
from toolwire.options.agent_options import (
    McpToolPolicy as McpToolPolicy,
)
from toolwire.options.agent_options import (
    OnElicitation as OnElicitation,
)
from toolwire.options.agent_options import (
    OnSampling as OnSampling,
)
from toolwire.options.agent_options import (
    OnUserDialog as OnUserDialog,
)
from toolwire.options.agent_options import (
    PermissionPrompts as PermissionPrompts,
)
from toolwire.options.agent_options import (
    PluginDelivery as PluginDelivery,
)
from toolwire.options.agent_options import (
    SandboxFilesystemConfig as SandboxFilesystemConfig,
)
from toolwire.options.agent_options import (
    SandboxIgnoreViolations as SandboxIgnoreViolations,
)
from toolwire.options.agent_options import (
    SandboxNetworkConfig as SandboxNetworkConfig,
)
from toolwire.options.agent_options import (
    SandboxSettings as SandboxSettings,
)
from toolwire.options.agent_options import (
    SdkBeta as SdkBeta,
)
from toolwire.options.agent_options import (
    SdkPluginConfig as SdkPluginConfig,
)
from toolwire.options.agent_options import (
    SessionStoreFlushMode as SessionStoreFlushMode,
)
from toolwire.options.agent_options import (
    SettingSource as SettingSource,
)
from toolwire.options.agent_options import (
    SpawnProcess as SpawnProcess,
)
from toolwire.options.agent_options import (
    SystemPromptCustom as SystemPromptCustom,
)
from toolwire.options.agent_options import (
    SystemPromptFile as SystemPromptFile,
)
from toolwire.options.agent_options import (
    SystemPromptPreset as SystemPromptPreset,
)
from toolwire.options.agent_options import (
    TaskBudget as TaskBudget,
)
from toolwire.options.agent_options import (
    ThinkingConfig as ThinkingConfig,
)
from toolwire.options.agent_options import (
    ThinkingConfigAdaptive as ThinkingConfigAdaptive,
)
from toolwire.options.agent_options import (
    ThinkingConfigDisabled as ThinkingConfigDisabled,
)
from toolwire.options.agent_options import (
    ThinkingConfigEnabled as ThinkingConfigEnabled,
)
from toolwire.options.agent_options import (
    ThinkingDisplay as ThinkingDisplay,
)
from toolwire.options.agent_options import (
    ToolConfig as ToolConfig,
)
from toolwire.options.agent_options import (
    ToolsPreset as ToolsPreset,
)
from toolwire.permissions import (
    CanUseTool as CanUseTool,
)
from toolwire.permissions import (
    MatchedAskRule as MatchedAskRule,
)
from toolwire.permissions import (
    PermissionBehavior as PermissionBehavior,
)
from toolwire.permissions import (
    PermissionMode as PermissionMode,
)
from toolwire.permissions import (
    PermissionResult as PermissionResult,
)
from toolwire.permissions import (
    PermissionResultAllow as PermissionResultAllow,
)
from toolwire.permissions import (
    PermissionResultDeny as PermissionResultDeny,
)
from toolwire.permissions import (
    PermissionRuleValue as PermissionRuleValue,
)
from toolwire.permissions import (
    PermissionUpdate as PermissionUpdate,
)
from toolwire.permissions import (
    PermissionUpdateDestination as PermissionUpdateDestination,
)
from toolwire.permissions import (
    ToolPermissionContext as ToolPermissionContext,
)
from toolwire.tools.annotations import (
    ToolAnnotations as ToolAnnotations,
)
from toolwire.tools.context import (
    Context as Context,
)
from toolwire.tools.context import (
    Elicited as Elicited,
)
from toolwire.tools.context import (
    Root as Root,
)
from toolwire.tools.context import (
    Sampled as Sampled,
)
from toolwire.tools.context import (
    ToolCancelled as ToolCancelled,
)
from toolwire.tools.elicitation import (
    ElicitationRequest as ElicitationRequest,
)
from toolwire.tools.elicitation import (
    ElicitationResult as ElicitationResult,
)
from toolwire.tools.elicitation import (
    SamplingRequest as SamplingRequest,
)
from toolwire.tools.prompts import (
    ServedPrompt as ServedPrompt,
)
from toolwire.tools.resources import (
    ServedResource as ServedResource,
)
from toolwire.tools.results.content import (
    Audio as Audio,
)
from toolwire.tools.results.content import (
    Image as Image,
)
from toolwire.tools.results.content import (
    Resource as Resource,
)
from toolwire.tools.results.content import (
    ResourceLink as ResourceLink,
)
from toolwire.tools.results.content import (
    Text as Text,
)
from toolwire.tools.server import (
    ToolServer as ToolServer,
)
from toolwire.tools.server import (
    create_sdk_mcp_server as create_sdk_mcp_server,
)
from toolwire.tools.tool import (
    SdkMcpTool as SdkMcpTool,
)
from toolwire.tools.tool import (
    Tool as Tool,
)
from toolwire.tools.tool import (
    tool as tool,
)
