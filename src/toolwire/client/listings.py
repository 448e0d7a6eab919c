"""What the CLI lists when asked: settings, rules, hooks, what its dialogs show, as typed dicts. See `_answers`."""

from typing import Any, Literal, NotRequired, TypedDict


class SettingsSource(TypedDict):
    """The settings of one place."""

    source: str
    settings: dict[str, Any]


class SettingsResponse(TypedDict):
    """The settings in force, and where each came from."""

    effective: dict[str, Any]
    sources: list[SettingsSource]
    """The weakest first."""
    applied: NotRequired[dict[str, Any]]
    """What the running session uses: model, effort, ..."""
    errors: NotRequired[list[dict[str, Any]]]


class PermissionRule(TypedDict):
    """One rule, and where it came from."""

    behavior: Literal["allow", "ask", "deny"]
    source: str
    rule: str
    description: NotRequired[dict[str, str]]
    editability: NotRequired[str]


class PermissionRules(TypedDict):
    """The rules that decide about tools right now."""

    rules: list[PermissionRule]
    workspaceDirectories: list[dict[str, Any]]
    originalCwd: str
    managedOnly: bool
    errors: NotRequired[list[dict[str, Any]]]


class HookEventInfo(TypedDict):
    """One kind of hook."""

    name: str
    summary: str
    supportsMatcher: bool
    hookCount: NotRequired[int]


class HooksListing(TypedDict):
    """The hooks of settings, plugins and this session."""

    events: list[HookEventInfo]
    """Those with at least one hook."""
    hooks: list[dict[str, Any]]
    """One per hook: event, matcher, source, type, commandText, ..."""
    eventCatalog: list[HookEventInfo]
    """All that there are."""
    policy: NotRequired[dict[str, Any]]


class BinaryVersion(TypedDict):
    """Which CLI answers."""

    version: str
    buildTime: NotRequired[str]


class StatusRow(TypedDict):
    """One line of the status."""

    label: str
    value: Any


class StatusSection(TypedDict):
    """Some lines under a title."""

    title: str
    rows: list[StatusRow]


class StatusResponse(TypedDict):
    """What `/status` shows."""

    sections: list[StatusSection]


class ExportedConversation(TypedDict):
    """The conversation as text, and a name for its file."""

    text: str
    default_filename: str


class MemoryDialog(TypedDict):
    """The files and folders that Claude remembers from."""

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
    """Whether commands run in a sandbox, and what it keeps out."""

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
    """What is missing for it: errors and warnings."""
    restrictions: NotRequired[dict[str, Any]]
    excluded_commands: NotRequired[list[str]]
