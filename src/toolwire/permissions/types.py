"""The vocabulary of permissions: what a `can_use_tool` callback is told and what it may answer.

Class names, fields, order and defaults are those of `claude_agent_sdk`; fields of ours come last and take no
part in `==` and `repr`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from toolwire._support.record import Record
from toolwire.messages import PermissionMode

PermissionUpdateDestination = Literal["userSettings", "projectSettings", "localSettings", "session"]

PermissionBehavior = Literal["allow", "deny", "ask"]


@dataclass(repr=False, eq=False)
class PermissionRuleValue(Record):
    """A tool, or those of its calls that `rule_content` describes: `Bash` and `npm test:*`."""

    tool_name: str
    rule_content: str | None = None


@dataclass(repr=False, eq=False)
class PermissionUpdate(Record):
    """A change to the permission rules. Which fields count depends on `type`; `to_dict` sends only those."""

    type: Literal["addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"]
    rules: list[PermissionRuleValue] | None = None
    behavior: PermissionBehavior | None = None
    mode: PermissionMode | None = None
    directories: list[str] | None = None
    destination: PermissionUpdateDestination | None = None

    def to_dict(self) -> dict[str, Any]:
        """The update in the CLI's spelling."""
        rules = None
        if self.rules is not None:
            rules = [{"toolName": rule.tool_name, "ruleContent": rule.rule_content} for rule in self.rules]
        values = {
            "destination": self.destination,
            "rules": rules,
            "behavior": self.behavior,
            "mode": self.mode,
            "directories": self.directories,
        }
        update: dict[str, Any] = {"type": self.type}
        for name in ("destination", *_FIELDS.get(self.type, ())):
            if values[name] is not None:
                update[name] = values[name]
        return update

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PermissionUpdate":
        """What `to_dict` gave. KeyError without a `type`, or for a rule without a `toolName`."""
        rules = data.get("rules")
        if rules is not None:
            rules = [PermissionRuleValue(rule["toolName"], rule.get("ruleContent")) for rule in rules]
        return cls(
            type=data["type"],
            rules=rules,
            behavior=data.get("behavior"),
            mode=data.get("mode"),
            directories=data.get("directories"),
            destination=data.get("destination"),
        )


_FIELDS: dict[str, tuple[str, ...]] = {
    "addRules": ("rules", "behavior"),
    "replaceRules": ("rules", "behavior"),
    "removeRules": ("rules", "behavior"),
    "setMode": ("mode",),
    "addDirectories": ("directories",),
    "removeDirectories": ("directories",),
}


@dataclass(repr=False, eq=False)
class MatchedAskRule(Record):
    """A rule that says: ask. `source` tells which settings it is in."""

    source: str
    tool_name: str
    rule_content: str | None = None


@dataclass(repr=False, eq=False)
class ToolPermissionContext(Record):
    """All that the CLI tells about a tool call that waits for permission, apart from its name and input."""

    signal: Any | None = None
    """Always None; it is there for the sake of the official class."""
    suggestions: list[PermissionUpdate] = field(default_factory=list)
    """Rules that would settle this question for good; return them in `updated_permissions` to say so."""
    tool_use_id: str | None = None
    agent_id: str | None = None
    """The subagent that wants to call the tool, None for the main agent."""
    blocked_path: str | None = None
    """The path that caused the question, if one did."""
    decision_reason: str | None = None
    """Why there is a question; a hook that answered `ask` may have written it."""
    title: str | None = None
    """The whole question as a sentence, to be shown."""
    display_name: str | None = None
    """A short name of the tool, to be shown."""
    description: str | None = None
    mcp_server: dict[str, Any] | None = field(default=None, compare=False, repr=False)
    """`name` and `source` of the MCP server whose tool it is. Trust goes by `source`: `sdk` is this program."""
    decision_reason_type: str | None = field(default=None, compare=False, repr=False)
    """The kind of `decision_reason`: rule, hook, safetyCheck, ..."""
    decision_reason_code: str | None = field(default=None, compare=False, repr=False)
    """A fixed word for a reason that a program can act on, such as `outside_reads_blocked`."""
    decision_reason_rule_source: str | None = field(default=None, compare=False, repr=False)
    """With the kind `rule`: where that rule is from. For logs."""
    decision_reason_hook_event: str | None = field(default=None, compare=False, repr=False)
    """With the kind `hook`: the event of the hook that asked. For display."""
    decision_reason_hook_source: str | None = field(default=None, compare=False, repr=False)
    """With the kind `hook`: `settings`, `plugin:<name>`, `skill:<name>`. For display."""
    decision_reason_hook_plugin_id: str | None = field(default=None, compare=False, repr=False)
    matched_ask_rule: MatchedAskRule | None = field(default=None, compare=False, repr=False)
    """A rule of the user that wants a person asked, whatever else the reason says."""
    server_policy_ask_only: bool | None = field(default=None, compare=False, repr=False)
    """True: only the default question, or a policy that this program set itself, is behind this."""
    classifier_approvable: bool | None = field(default=None, compare=False, repr=False)
    """With a safety check as the reason: whether it may be answered without a person."""
    requires_user_interaction: bool | None = field(default=None, compare=False, repr=False)
    """The tool is a talk with the user: answering for them makes little sense."""
    default_to_no: bool | None = field(default=None, compare=False, repr=False)
    """The question must open on its no, with no single key for yes."""
    suppress_always_allow_rule: bool | None = field(default=None, compare=False, repr=False)
    """Offer no `always`: its rule would grant more than this call."""
    tool_kind: str | None = field(default=None, compare=False, repr=False)
    plugin: str | None = field(default=None, compare=False, repr=False)
    """The plugin that started the call."""
    server_prompt: str | None = field(default=None, compare=False, repr=False)
    provenance_prompt_line: str | None = field(default=None, compare=False, repr=False)
    """A line to show about where the call comes from."""
    request_id: str | None = field(default=None, compare=False, repr=False)
    """The id of the question itself, where the session passes it on."""
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)
    """The request as the CLI sent it."""


@dataclass(repr=False, eq=False)
class PermissionResultAllow(Record):
    """The tool may run: with the input it had, or with `updated_input`."""

    behavior: Literal["allow"] = "allow"
    updated_input: dict[str, Any] | None = None
    updated_permissions: list[PermissionUpdate] | None = None


@dataclass(repr=False, eq=False)
class PermissionResultDeny(Record):
    """The tool may not run. The model reads `message`; with `interrupt` the turn ends here."""

    behavior: Literal["deny"] = "deny"
    message: str = ""
    interrupt: bool = False


PermissionResult = PermissionResultAllow | PermissionResultDeny

CanUseTool = Callable[[str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResult]]
