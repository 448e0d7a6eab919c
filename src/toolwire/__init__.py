"""toolwire: give Claude the functions in your own process.

The public names, and where they live. Each module is loaded when one of its names is first used, so that
`import toolwire` itself costs next to nothing. `__init__.pyi` is the same list for type checkers.
"""

from importlib import import_module

_NAMES: dict[str, str] = {
    "client.answers": """
        AccountInfo AgentInfo FileContents FileSuggestion FileSuggestions ForkConversationResult
        InitializeResponse InterruptReceipt ModelInfo PlanResponse ProactivityLevel
        ReloadOutputStylesResponse ReloadPluginsResponse ReloadSkillsResponse RepoRoot
        RewindConversationResult RewindFilesResult SessionModelUsage SessionUsage SetCwdResult SideAnswer
        SlashCommand TaskOutput UsageResponse WorkspaceDiff
    """,
    "client.listings": """
        BinaryVersion ExportedConversation HookEventInfo HooksListing MemoryDialog PermissionRule
        PermissionRules SandboxDialog SettingsResponse SettingsSource SkillsDialog StatusResponse
        StatusRow StatusSection
    """,
    "_transport.process": """
        Command
    """,
    "client.query": """
        query
    """,
    "client.status": """
        ContextUsageCategory ContextUsageResponse McpCallResult McpClaudeAIProxyServerConfig McpContent
        McpModeOverride McpResource McpSdkServerConfigStatus McpServerConnectionStatus McpServerInfo
        McpServerStatus McpServerStatusConfig McpSetServersResult McpStatusResponse McpToolAnnotations
        McpToolInfo
    """,
    "_transport.custom": """
        Transport
    """,
    "_version": """
        __version__
    """,
    "messages.blocks": """
        ContainerUploadBlock ContentBlock DocumentBlock ImageBlock McpToolResultBlock McpToolUseBlock
        RedactedThinkingBlock SearchResultBlock ServerToolName ServerToolResultBlock ServerToolUseBlock
        TextBlock ThinkingBlock ToolResultBlock ToolUseBlock UnknownBlock
    """,
    "client.client": """
        ClaudeSDKClient
    """,
    "tools.elicitation": """
        ElicitationRequest ElicitationResult SamplingRequest
    """,
    "errors": """
        CLIConnectionError CLIJSONDecodeError CLINotFoundError CLITimeoutError CanUseToolShadowedWarning
        ClaudeSDKError ControlRequestError LiveStartError McpError MessageParseError NotSupportedError
        OptionsError OutputValidationError ProcessError ResourceNotFoundError ResultError ToolDefinitionError
        ToolError UnsupportedRequestError
    """,
    "hooks": """
        AsyncHookJSONOutput BackgroundTaskSummary BaseHookInput CommonHookOutput ConfigChangeHookInput
        CwdChangedHookInput CwdChangedHookSpecificOutput DirectoryAddedHookInput ElicitationHookInput
        ElicitationHookSpecificOutput ElicitationResultHookInput ElicitationResultHookSpecificOutput
        FileChangedHookInput FileChangedHookSpecificOutput HookCallback HookContext HookEffort HookEvent
        HookInput HookJSONOutput HookMatcher HookOutcome HookOutput HookSpecificOutput Hooks
        InstructionsLoadedHookInput
        MessageDisplayHookInput MessageDisplayHookSpecificOutput NotificationHookInput
        NotificationHookSpecificOutput PermissionDeniedHookInput PermissionDeniedHookSpecificOutput
        PermissionRequestHookInput PermissionRequestHookSpecificOutput PostCompactHookInput
        PostModelSwitchHookInput PostModelSwitchHookSpecificOutput PostToolBatchHookInput
        PostToolBatchHookSpecificOutput PostToolBatchToolCall PostToolUseFailureHookInput
        PostToolUseFailureHookSpecificOutput PostToolUseHookInput PostToolUseHookSpecificOutput
        PreCompactHookInput PreModelSwitchHookInput PreModelSwitchHookSpecificOutput PreToolUseHookInput
        PreToolUseHookSpecificOutput SessionCronSummary SessionEndHookInput SessionStartHookInput
        SessionStartHookSpecificOutput SetupHookInput StopFailureHookInput StopHookInput
        StopHookSpecificOutput SubagentStartHookInput SubagentStartHookSpecificOutput SubagentStopHookInput
        SubagentStopHookSpecificOutput SyncHookJSONOutput TaskCompletedHookInput TaskCreatedHookInput
        TeammateIdleHookInput UserPromptExpansionHookInput UserPromptExpansionHookSpecificOutput
        UserPromptSubmitHookInput UserPromptSubmitHookSpecificOutput WorktreeCreateHookInput
        WorktreeCreateHookSpecificOutput WorktreeRemoveHookInput
    """,
    "mcp.serve.limits": """
        HttpLimits
    """,
    "mcp.serve.start": """
        as_mcp_server http_app serve_http serve_stdio
    """,
    "messages": """
        AnyMessage ApiRetryMessage AssistantMessage AssistantMessageError AuthStatusMessage
        BackgroundTasksChangedMessage CommandsChangedMessage CompactBoundaryMessage
        ControlRequestProgressMessage ConversationResetMessage DeferredToolUse ElicitationCompleteMessage
        FastModeDisabledReason FastModeState FilesPersistedMessage HookEventMessage HookProgressMessage
        InformationalMessage InitMessage LineDroppedMessage LocalCommandOutputMessage McpLogMessage
        McpProgressMessage MemoryRecallMessage Message MessageOrigin MessageOriginKind MirrorErrorMessage
        ModelRefusalFallbackMessage ModelRefusalNoFallbackMessage ModelUsage NotificationMessage
        PermissionDeniedMessage PluginInstallMessage PromptSuggestionMessage RateLimitEvent RateLimitInfo
        RateLimitStatus RateLimitType ResultMessage SessionKey SessionStateChangedMessage
        SessionTitleChangedMessage SessionWritesLostMessage StatusMessage StreamEvent SystemInitData
        SystemInitMcpServer SystemInitPlugin SystemInitPluginError SystemMessage TERMINAL_TASK_STATUSES
        TaskNotificationMessage TaskNotificationOriginSubkind TaskNotificationStatus TaskProgressMessage
        TaskStartedMessage TaskUpdatedMessage TaskUpdatedStatus TaskUsage ThinkingTokensMessage
        ToolProgressMessage ToolUseSummaryMessage UnknownMessage UserMessage WorkerShuttingDownMessage
    """,
    "options.agent_options": """
        AgentDefinition AskUserQuestionConfig ClaudeAgentOptions EffortLevel McpHttpServerConfig
        McpSSEServerConfig McpSdkServerConfig McpServerConfig McpStdioServerConfig McpToolPolicy
        OnElicitation OnSampling OnUserDialog PermissionPrompts PluginDelivery
        SYSTEM_PROMPT_DYNAMIC_BOUNDARY SandboxFilesystemConfig SandboxIgnoreViolations SandboxNetworkConfig
        SandboxSettings SdkBeta SdkPluginConfig SessionStoreFlushMode SettingSource SpawnProcess
        SystemPromptCustom SystemPromptFile SystemPromptPreset TaskBudget ThinkingConfig
        ThinkingConfigAdaptive ThinkingConfigDisabled ThinkingConfigEnabled ThinkingDisplay ToolConfig
        ToolsPreset
    """,
    "permissions": """
        CanUseTool MatchedAskRule PermissionBehavior PermissionMode PermissionResult PermissionResultAllow
        PermissionResultDeny PermissionRuleValue PermissionUpdate PermissionUpdateDestination
        ToolPermissionContext
    """,
    "client.reply": """
        Reply ToolCall run run_sync
    """,
    "tools.annotations": """
        ToolAnnotations
    """,
    "tools.results.content": """
        Audio Image Resource ResourceLink Text
    """,
    "tools.context": """
        Context Elicited Root Sampled ToolCancelled
    """,
    "tools.prompts": """
        ServedPrompt
    """,
    "tools.resources": """
        ServedResource
    """,
    "tools.server": """
        ToolServer create_sdk_mcp_server
    """,
    "tools.tool": """
        SdkMcpTool Tool tool
    """,
    "client.warm": """
        WarmPool startup
    """,
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_WHERE)  # noqa: PLE0605 - the list for type checkers is in the stub


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
