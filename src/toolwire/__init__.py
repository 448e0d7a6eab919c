"""toolwire: give Claude the functions in your own process.

Owns the list of public names, and where each is defined. A module is loaded when one of its names is first used, so
`import toolwire` costs next to nothing. The packages and `toolwire.types` take their names from the same list, and
`make generate` writes the stubs (`.pyi`) that type checkers read: a new public name is one word in `_NAMES`.
"""

from importlib import import_module

_NAMES = {
    "_conversation.observe": "CallInfo RunInfo RunObserver add_observer remove_observer",
    "_protocol.parse": "typed",
    "_transport.custom": "Transport",
    "_transport.process": "Command",
    "_version": "__version__",
    "client.responses": """
        AccountInfo AgentInfo BinaryVersion ContextUsageCategory ContextUsageResponse ExportedConversation
        FileContents FileSuggestion FileSuggestions ForkConversationResult HookEventInfo HooksListing
        InitializeResponse InterruptReceipt McpCallResult McpClaudeAIProxyServerConfig McpContent
        McpModeOverride McpResource McpSdkServerConfigStatus McpServerConnectionStatus McpServerInfo
        McpServerStatus McpServerStatusConfig McpSetServersResult McpStatusResponse McpToolAnnotations
        McpToolInfo MemoryDialog ModelInfo PermissionRule PermissionRules PlanResponse ProactivityLevel
        ReloadOutputStylesResponse ReloadPluginsResponse ReloadSkillsResponse RepoRoot RewindConversationResult
        RewindFilesResult SandboxDialog SessionModelUsage SessionUsage SetCwdResult SettingsResponse
        SettingsSource SideAnswer SkillsDialog SlashCommand StatusResponse StatusRow StatusSection TaskOutput
        UsageResponse WorkspaceDiff
    """,
    "client.client": "ClaudeSDKClient",
    "client.query": "query",
    "client.reply": "Reply ToolCall run run_sync",
    "client.warm": "WarmPool startup",
    "errors": """
        BatchError CLIConnectionError CLIJSONDecodeError CLINotFoundError CLITimeoutError CanUseToolShadowedWarning
        ClaudeSDKError ControlRequestError LiveStartError McpError MessageParseError NotSupportedError
        OptionsError OutputValidationError ProcessError ResourceNotFoundError ResultError SessionRunningError
        SessionStoreError ToolDefinitionError ToolError ToolwireWarning UnsupportedRequestError
    """,
    "hooks.decorators": "Hooks",
    "hooks.events": """
        AsyncHookJSONOutput BackgroundTaskSummary BaseHookInput CommonHookOutput ConfigChangeHookInput
        CwdChangedHookInput CwdChangedHookSpecificOutput DirectoryAddedHookInput ElicitationHookInput
        ElicitationHookSpecificOutput ElicitationResultHookInput ElicitationResultHookSpecificOutput
        FileChangedHookInput FileChangedHookSpecificOutput HookEffort HookEvent HookInput HookJSONOutput
        HookOutput HookSpecificOutput InstructionsLoadedHookInput MessageDisplayHookInput
        MessageDisplayHookSpecificOutput NotificationHookInput NotificationHookSpecificOutput
        PermissionDeniedHookInput PermissionDeniedHookSpecificOutput PermissionRequestHookInput
        PermissionRequestHookSpecificOutput PostCompactHookInput PostModelSwitchHookInput
        PostModelSwitchHookSpecificOutput PostToolBatchHookInput PostToolBatchHookSpecificOutput
        PostToolBatchToolCall PostToolUseFailureHookInput PostToolUseFailureHookSpecificOutput
        PostToolUseHookInput PostToolUseHookSpecificOutput PreCompactHookInput PreModelSwitchHookInput
        PreModelSwitchHookSpecificOutput PreToolUseHookInput PreToolUseHookSpecificOutput SessionCronSummary
        SessionEndHookInput SessionStartHookInput SessionStartHookSpecificOutput SetupHookInput
        StopFailureHookInput StopHookInput StopHookSpecificOutput SubagentStartHookInput
        SubagentStartHookSpecificOutput SubagentStopHookInput SubagentStopHookSpecificOutput SyncHookJSONOutput
        TaskCompletedHookInput TaskCreatedHookInput TeammateIdleHookInput UserPromptExpansionHookInput
        UserPromptExpansionHookSpecificOutput UserPromptSubmitHookInput UserPromptSubmitHookSpecificOutput
        WorktreeCreateHookInput WorktreeCreateHookSpecificOutput WorktreeRemoveHookInput
    """,
    "hooks.outcomes": "HookOutcome",
    "hooks.registry": "HookCallback HookContext HookMatcher",
    "mcp.sdk_server": "create_sdk_mcp_server",
    "mcp.serve.limits": "HttpLimits",
    "mcp.serve.start": "as_mcp_server http_app serve_http serve_stdio",
    "messages.blocks": """
        ContainerUploadBlock ContentBlock DocumentBlock ImageBlock McpToolResultBlock McpToolUseBlock
        RedactedThinkingBlock SearchResultBlock ServerToolName ServerToolResultBlock ServerToolUseBlock
        TextBlock ThinkingBlock ToolResultBlock ToolUseBlock UnknownBlock
    """,
    "messages.conversation": """
        AnyMessage AssistantMessage AssistantMessageError AuthStatusMessage ConversationResetMessage
        DeferredToolUse McpLogMessage McpProgressMessage Message MessageOrigin MessageOriginKind ModelUsage
        PromptSuggestionMessage RateLimitEvent RateLimitInfo RateLimitStatus RateLimitType ResultMessage
        StreamEvent TaskNotificationOriginSubkind ToolProgressMessage ToolUseSummaryMessage UnknownMessage
        UserMessage
    """,
    "messages.system": """
        ApiRetryMessage BackgroundTasksChangedMessage CommandsChangedMessage CompactBoundaryMessage
        ControlRequestProgressMessage ElicitationCompleteMessage FastModeDisabledReason FastModeState
        FilesPersistedMessage HookEventMessage HookProgressMessage InformationalMessage InitMessage
        LineDroppedMessage LocalCommandOutputMessage MemoryRecallMessage MirrorErrorMessage
        ModelRefusalFallbackMessage ModelRefusalNoFallbackMessage NotificationMessage PermissionDeniedMessage
        PermissionMode PluginInstallMessage SessionKey SessionStateChangedMessage SessionTitleChangedMessage
        SessionWritesLostMessage StatusMessage SystemInitData SystemInitMcpServer SystemInitPlugin
        SystemInitPluginError SystemMessage TERMINAL_TASK_STATUSES TaskNotificationMessage
        TaskNotificationStatus TaskProgressMessage TaskStartedMessage TaskUpdatedMessage TaskUpdatedStatus
        TaskUsage ThinkingTokensMessage WorkerShuttingDownMessage
    """,
    "official": "install_as_official",
    "openapi.security": "ClientCredentials",
    "openapi.server": "OpenAPI",
    "options.agent_options": "ClaudeAgentOptions OnElicitation OnSampling OnUserDialog SpawnProcess",
    "options.types": """
        AgentDefinition AskUserQuestionConfig EffortLevel McpHttpServerConfig McpSSEServerConfig
        McpServerConfig McpStdioServerConfig McpToolPolicy PermissionPrompts PluginDelivery
        SYSTEM_PROMPT_DYNAMIC_BOUNDARY SandboxFilesystemConfig SandboxIgnoreViolations SandboxNetworkConfig
        SandboxSettings SdkBeta SdkPluginConfig SessionStoreFlushMode SettingSource SystemPromptCustom
        SystemPromptFile SystemPromptPreset TaskBudget ThinkingConfig ThinkingConfigAdaptive
        ThinkingConfigDisabled ThinkingConfigEnabled ThinkingDisplay ToolConfig ToolsPreset
    """,
    "permissions.types": """
        CanUseTool MatchedAskRule PermissionBehavior PermissionResult PermissionResultAllow PermissionResultDeny
        PermissionRuleValue PermissionUpdate PermissionUpdateDestination ToolPermissionContext
    """,
    "sessions.cost": """
        CostGroup CostPart CostReport SessionCost TokenUsage cost_report cost_report_from_store session_cost
        session_cost_from_store
    """,
    "sessions.disk": """
        delete_session fork_session get_session_info get_session_messages get_subagent_messages
        iter_session_messages list_sessions list_subagents rename_session search_sessions tag_session
    """,
    "sessions.check": "SessionProblem check_sessions",
    "sessions.entries": "fold_session_summary",
    "sessions.export": "export_session export_session_from_store export_session_to_file",
    "sessions.paths": "project_key_for_directory",
    "sessions.prune": "PrunedSession prune_sessions",
    "sessions.store_functions": """
        delete_session_via_store fork_session_via_store get_session_info_from_store
        get_session_messages_from_store get_subagent_messages_from_store import_session_to_store
        list_sessions_from_store list_subagents_from_store rename_session_via_store tag_session_via_store
    """,
    "sessions.search": "SearchHit",
    "sessions.session": "Session resume_or_create",
    "sessions.stores.memory": "InMemorySessionStore",
    "sessions.stores.postgres": "PostgresSessionStore",
    "sessions.stores.redis": "RedisSessionStore",
    "sessions.stores.sqlite": "SQLiteSessionStore",
    "sessions.stores.wrappers": "RedactingSessionStore ScopedSessionStore",
    "sessions.types": """
        ForkSessionResult SDKSessionInfo SessionListSubkeysKey SessionMessage SessionStore SessionStoreEntry
        SessionStoreListEntry SessionSummaryEntry
    """,
    "tools.annotations": "ToolAnnotations",
    "tools.chain": "Chain Step chain load_chains step",
    "tools.context": "Context Elicited Root Sampled ToolCancelled",
    "tools.elicitation": "ElicitationRequest ElicitationResult SamplingRequest",
    "tools.names": "McpSdkServerConfig",
    "tools.prompts": "ServedPrompt",
    "tools.resources": "ServedResource",
    "tools.results.content": "Audio Image Resource ResourceLink Text",
    "tools.server": "ToolServer",
    "tools.tool": "SdkMcpTool Tool tool",
}


def _find_names(table: dict[str, str], *prefixes: str) -> dict[str, str]:
    """Map each name of a table to its module. With `prefixes`: only names of modules that begin with one."""
    return {
        name: module
        for module, names in table.items()
        if not prefixes or module.startswith(prefixes)
        for name in names.split()
    }


def _load_lazily(namespace: dict[str, object], where: dict[str, str]) -> None:
    """Add names to a module that are loaded from the modules that define them when they are first used.

    `namespace` is the module's `globals()`; it gets `__all__`, `__getattr__` and `__dir__`.
    """

    def __getattr__(name: str) -> object:  # noqa: N807 - the hook of a module
        if name not in where:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(f"toolwire.{where[name]}"), name)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*namespace, *where})

    namespace.update(__all__=sorted(where), __getattr__=__getattr__, __dir__=__dir__, _WHERE=where)


_load_lazily(globals(), _find_names(_NAMES))
