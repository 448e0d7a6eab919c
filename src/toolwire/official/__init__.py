"""Alias mode: `import claude_agent_sdk` imports toolwire, in the whole process.

Owns the table of the official package's modules and names, and the import finder for them. A name is loaded from
toolwire when it is first used. `internals` and `patchable` have what only the official package has; `__main__` is
the command.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import toolwire
from toolwire._transport.find_cli import find_official_folder

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

PACKAGE: Final = "claude_agent_sdk"
API_LEVEL: Final = "0.2.182"
"""The version of the official package whose names, fields and behaviour toolwire matches; tests compare them."""

_TOP_LEVEL: Final = """
    AgentDefinition AssistantMessage BackgroundTaskSummary BaseHookInput CLIConnectionError
    CLIJSONDecodeError CLINotFoundError CanUseTool CanUseToolShadowedWarning ClaudeAgentOptions
    ClaudeSDKClient ClaudeSDKError ContentBlock ContextUsageCategory ContextUsageResponse
    ConversationResetMessage CwdChangedHookSpecificOutput DeferredToolUse EffortLevel
    ElicitationHookSpecificOutput ElicitationResultHookSpecificOutput FastModeDisabledReason
    FastModeState FileChangedHookSpecificOutput ForkSessionResult HookCallback HookContext HookEffort
    HookEventMessage HookInput HookJSONOutput HookMatcher InMemorySessionStore McpSdkServerConfig
    McpServerConfig McpServerConnectionStatus McpServerInfo McpServerStatus McpServerStatusConfig
    McpStatusResponse McpToolAnnotations McpToolInfo Message MessageDisplayHookSpecificOutput
    MessageOrigin MessageOriginKind MirrorErrorMessage ModelUsage NotificationHookInput
    NotificationHookSpecificOutput PermissionDeniedHookSpecificOutput PermissionMode
    PermissionRequestHookInput PermissionRequestHookSpecificOutput PermissionResult
    PermissionResultAllow PermissionResultDeny PermissionUpdate PostModelSwitchHookSpecificOutput
    PostToolBatchHookSpecificOutput PostToolUseFailureHookInput PostToolUseFailureHookSpecificOutput
    PostToolUseHookInput PostToolUseHookSpecificOutput PreCompactHookInput
    PreModelSwitchHookSpecificOutput PreToolUseHookInput PreToolUseHookSpecificOutput ProcessError
    RateLimitEvent RateLimitInfo RateLimitStatus RateLimitType ResultError ResultMessage SDKSessionInfo
    SandboxIgnoreViolations SandboxNetworkConfig SandboxSettings SdkBeta SdkMcpTool SdkPluginConfig
    ServerToolName ServerToolResultBlock ServerToolUseBlock SessionCronSummary SessionKey
    SessionListSubkeysKey SessionMessage SessionStartHookSpecificOutput SessionStore SessionStoreEntry
    SessionStoreFlushMode SessionStoreListEntry SessionSummaryEntry SettingSource StopHookInput
    StopHookSpecificOutput StreamEvent SubagentStartHookInput SubagentStartHookSpecificOutput
    SubagentStopHookInput SubagentStopHookSpecificOutput SystemInitData SystemInitMcpServer
    SystemInitPlugin SystemInitPluginError SystemMessage TERMINAL_TASK_STATUSES TaskBudget
    TaskNotificationMessage TaskNotificationOriginSubkind TaskNotificationStatus TaskProgressMessage
    TaskStartedMessage TaskUpdatedMessage TaskUpdatedStatus TaskUsage TextBlock ThinkingBlock
    ThinkingConfig ThinkingConfigAdaptive ThinkingConfigDisabled ThinkingConfigEnabled ToolAnnotations
    ToolPermissionContext ToolResultBlock ToolUseBlock Transport UserMessage
    UserPromptExpansionHookSpecificOutput UserPromptSubmitHookInput UserPromptSubmitHookSpecificOutput
    WorktreeCreateHookSpecificOutput __version__ create_sdk_mcp_server delete_session
    delete_session_via_store fold_session_summary fork_session fork_session_via_store get_session_info
    get_session_info_from_store get_session_messages get_session_messages_from_store
    get_subagent_messages get_subagent_messages_from_store import_session_to_store list_sessions
    list_sessions_from_store list_subagents list_subagents_from_store project_key_for_directory query
    rename_session rename_session_via_store tag_session tag_session_via_store tool
"""
_ERRORS: Final = """
    CLIConnectionError CLIJSONDecodeError CLINotFoundError ClaudeSDKError MessageParseError ProcessError ResultError
"""
_OURS: Final = {  # where the two packages differ
    "InternalClient": "official.internals",
    "Query": "official.patchable",
    "SubprocessCLITransport": "official.patchable",
    "__cli_version__": "official.internals",
    "__version__": "official.internals",
    "_configure_can_use_tool": "official.internals",
    "parse_message": "official.internals",
    "query": "official.internals",
    "run_session_store_conformance": "testing.store_conformance",
}
# Modules without the package's name, and their names; `types` also has all names of `toolwire.types`.
_MODULES: Final = {
    "": _TOP_LEVEL,
    "_cli_version": "__cli_version__",
    "_errors": _ERRORS,
    "_internal": "",
    "_internal.client": "InternalClient SubprocessCLITransport",
    "_internal.message_parser": "parse_message",
    "_internal.query": "Query",
    "_internal.transport": "Transport",
    "_internal.transport.subprocess_cli": "SubprocessCLITransport",
    "_version": "__version__",
    "client": "ClaudeSDKClient",
    "query": "InternalClient query",
    "testing": "run_session_store_conformance",
    "types": "_configure_can_use_tool",
}
_PACKAGES: Final = {"", "_internal", "_internal.transport", "testing"}


def install_as_official() -> None:
    """Make `import claude_agent_sdk` import toolwire, in the whole process. Calling it again does nothing.

    Call it before anything imports the official package; raises RuntimeError if it is imported already.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if PACKAGE in sys.modules:
        raise RuntimeError(
            f"install_as_official() was called too late: the official {PACKAGE} is already imported"
            f"{_name_importers()}. Call it before that import, at the top of the program, or start the program "
            "with `python -m toolwire.official`."
        )
    # Not at the front: libraries that hook imports have finders there, which call the ones behind them.
    sys.meta_path.insert(sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else 0, _Finder())
    vars(toolwire).pop("query", None)
    _names_of(toolwire)["query"] = _OURS["query"]  # so that each query goes through `InternalClient`


def _name_importers() -> str:
    """Name the modules that have imported something of the official package, as far as can be detected."""
    found = []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == PACKAGE or not isinstance(module, ModuleType):
            continue
        held = list(vars(module).values())
        origins = (getattr(each, "__module__" if callable(each) else "__name__", None) for each in held)
        if any(isinstance(each, str) and each.partition(".")[0] == PACKAGE for each in origins):
            found.append(name)
    return f" (by {', '.join(found[:3])})" if found else ""


class _Finder(MetaPathFinder, Loader):
    """Finds and loads the official package's modules, ahead of the package itself.

    A finder, and not only entries in `sys.modules`: after `importlib.reload()`, or when a test has removed the
    modules, the next import looks for them again.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the interface of a finder
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != PACKAGE:
            return None
        if name not in _MODULES:
            # `from claude_agent_sdk import NAME` gets here too when there is no such name. Python shows this text
            # because the exception has no `name`.
            raise ModuleNotFoundError(_explain_missing(fullname))
        folder = find_official_folder()
        origin = f"{folder}/__init__.py" if folder and not name else __file__
        spec = ModuleSpec(fullname, self, origin=origin, is_package=name in _PACKAGES)
        spec.has_location = True
        if folder and not name:
            spec.submodule_search_locations = [folder]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return AliasModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        assert isinstance(module, AliasModule)  # noqa: S101 - from create_module
        module.forget()

    def get_resource_reader(self, fullname: str) -> Any:
        """Read the files of the official distribution, such as its bundled CLI."""
        folder = find_official_folder()
        if folder is None or fullname != PACKAGE:
            return None
        return SourceFileLoader(fullname, f"{folder}/__init__.py").get_resource_reader(fullname)

    def find_distributions(
        self, context: "DistributionFinder.Context | None" = None
    ) -> "Iterable[Distribution]":
        """Provide metadata for the official distribution, with our API level, if it is not installed."""
        from toolwire.official.distribution import find  # noqa: PLC0415 - loads importlib.metadata

        return find(context)


class AliasModule(ModuleType):
    """A module of the official package, with names that are loaded from toolwire when they are first used.

    A name that is set on the package, for example by a tracing library, is set on `toolwire` too.
    """

    def __init__(self, fullname: str) -> None:
        super().__init__(fullname, f"{fullname} of toolwire, which is installed in its place.")
        self.__dict__["_where"] = _find_names(fullname.partition(".")[2])
        self.__dict__["__all__"] = sorted(self.__dict__["_where"])

    def forget(self) -> None:
        """Drop the names that were loaded or set, so that they are loaded again."""
        for name in self._where.keys() & self.__dict__.keys():
            delattr(self, name)

    def __getattr__(self, name: str) -> Any:
        fullname = f"{self.__name__}.{name}"
        if name in self._where:
            value = getattr(import_module(f"toolwire.{self._where[name]}"), name)
        elif not name.startswith("__") and fullname.partition(".")[2] in _MODULES:
            value = import_module(fullname)
        else:
            raise AttributeError(_explain_missing(fullname), name=name, obj=self)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._where and value is sys.modules.get(f"{self.__name__}.{name}"):
            return  # an import would bind the submodule `query`; the function of that name must stay
        super().__setattr__(name, value)
        if self._is_shared(name):
            setattr(toolwire, name, value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if self._is_shared(name):
            vars(toolwire).pop(name, None)

    def _is_shared(self, name: str) -> bool:
        """True for a name of the package itself that `toolwire` has too."""
        return self.__name__ == PACKAGE and name in self._where and name != "__version__"

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._where})


def _find_names(module: str) -> dict[str, str]:
    """Map the names of an official module to our modules."""
    types = _names_of(import_module("toolwire.types"))
    where = {**_names_of(toolwire), **types, **_OURS}
    names = [*(types if module == "types" else ()), *_MODULES[module].split()]
    return {name: where[name] for name in names}


def _names_of(module: ModuleType) -> dict[str, str]:
    """Return the table of a module that loads its names lazily."""
    where: dict[str, str] = module._WHERE  # noqa: SLF001 - this package only
    return where


def _explain_missing(fullname: str) -> str:
    module, _, name = fullname.rpartition(".")
    return (
        f"{module!r} has no {name!r}: toolwire is installed in place of {PACKAGE}, with its public names and a few "
        "of its internals (docs/migrating.md)"
    )
