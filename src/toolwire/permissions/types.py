"""The types of `can_use_tool`: the context of a request, the results, and both in the CLI's wire format.

Class names, fields, order and defaults are those of `claude_agent_sdk`; our own fields come last and take no part
in `==` and `repr`. To add a field of the CLI's request, add it to `ToolPermissionContext`. Pure.
"""

from collections.abc import Awaitable, Callable
from dataclasses import field, fields
from typing import Any, Final, Literal

from toolwire._support.record import Record, record
from toolwire.messages import PermissionMode

PermissionUpdateDestination = Literal["userSettings", "projectSettings", "localSettings", "session"]

PermissionBehavior = Literal["allow", "deny", "ask"]


@record
class PermissionRuleValue(Record):
    """A tool, or those of its calls that `rule_content` describes: `Bash` and `npm test:*`."""

    tool_name: str
    rule_content: str | None = None


@record
class PermissionUpdate(Record):
    """A change to the permission rules. `type` says which fields apply; `to_dict` includes only those.

    Without a destination, it applies to this session.
    """

    type: Literal["addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "removeDirectories"]
    rules: list[PermissionRuleValue] | None = None
    behavior: PermissionBehavior | None = None
    mode: PermissionMode | None = None
    directories: list[str] | None = None
    destination: PermissionUpdateDestination | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the update in wire format."""
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
        """Build an update from wire format; raises KeyError without `type`, or for a rule without `toolName`."""
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


@record
class MatchedAskRule(Record):
    """A rule with the behaviour `ask`. `source` says which settings it is in."""

    source: str
    tool_name: str
    rule_content: str | None = None


@record
class ToolPermissionContext(Record):
    """Information of the CLI about a tool call that needs permission, besides its name and input."""

    signal: Any | None = None
    """Always None, as in the official class."""
    suggestions: list[PermissionUpdate] = field(default_factory=list)
    """Rules that would allow such calls in future; return them in `updated_permissions` to apply them."""
    tool_use_id: str | None = None
    agent_id: str | None = None
    """The subagent that calls the tool; None for the main agent."""
    blocked_path: str | None = None
    """The path that caused the request, if one did."""
    decision_reason: str | None = None
    """Why the CLI asks; a hook that returned `ask` may have written it."""
    title: str | None = None
    """The request as a sentence, for display."""
    display_name: str | None = None
    """A short name of the tool, for display."""
    description: str | None = None
    mcp_server: dict[str, Any] | None = field(default=None, compare=False, repr=False)
    """`name` and `source` of the tool's MCP server. Base trust on `source`: `sdk` means this program."""
    decision_reason_type: str | None = field(default=None, compare=False, repr=False)
    """The kind of `decision_reason`: rule, hook, safetyCheck, ..."""
    decision_reason_code: str | None = field(default=None, compare=False, repr=False)
    """A code for reasons that a program can act on, such as `outside_reads_blocked`."""
    decision_reason_rule_source: str | None = field(default=None, compare=False, repr=False)
    """With the kind `rule`: the source of that rule. For logs."""
    decision_reason_hook_event: str | None = field(default=None, compare=False, repr=False)
    """With the kind `hook`: the event of the hook that asked. For display."""
    decision_reason_hook_source: str | None = field(default=None, compare=False, repr=False)
    """With the kind `hook`: `settings`, `plugin:<name>`, `skill:<name>`. For display."""
    decision_reason_hook_plugin_id: str | None = field(default=None, compare=False, repr=False)
    matched_ask_rule: MatchedAskRule | None = field(default=None, compare=False, repr=False)
    """A rule of the user that requires asking a person, whatever `decision_reason` says."""
    server_policy_ask_only: bool | None = field(default=None, compare=False, repr=False)
    """True if only the default behaviour, or a policy that this program set itself, caused the request."""
    classifier_approvable: bool | None = field(default=None, compare=False, repr=False)
    """With the kind `safetyCheck`: True if it may be answered without a person."""
    requires_user_interaction: bool | None = field(default=None, compare=False, repr=False)
    """True if the tool is a dialog with the user, so that answering for them makes little sense."""
    default_to_no: bool | None = field(default=None, compare=False, repr=False)
    """True if a dialog must default to no, and must not accept a single key for yes."""
    suppress_always_allow_rule: bool | None = field(default=None, compare=False, repr=False)
    """True if `always` must not be offered, because its rule would allow more than this call."""
    tool_kind: str | None = field(default=None, compare=False, repr=False)
    plugin: str | None = field(default=None, compare=False, repr=False)
    """The plugin that started the call."""
    server_prompt: str | None = field(default=None, compare=False, repr=False)
    provenance_prompt_line: str | None = field(default=None, compare=False, repr=False)
    """A line about the origin of the call, for display."""
    request_id: str | None = field(default=None, compare=False, repr=False)
    """The id of the request itself, if the session passes it on."""
    raw: dict[str, Any] | None = field(default=None, compare=False, repr=False)
    """The request as the CLI sent it."""


@record
class PermissionResultAllow(Record):
    """Allows the tool call, with its own input or with `updated_input`."""

    behavior: Literal["allow"] = "allow"
    updated_input: dict[str, Any] | None = None
    updated_permissions: list[PermissionUpdate] | None = None


@record
class PermissionResultDeny(Record):
    """Denies the tool call. The model sees `message`; with `interrupt` the turn ends."""

    behavior: Literal["deny"] = "deny"
    message: str = ""
    interrupt: bool = False


PermissionResult = PermissionResultAllow | PermissionResultDeny

CanUseTool = Callable[[str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResult]]


def context_from_wire(body: dict[str, Any]) -> ToolPermissionContext:
    """Build the callback's context from the body of a `can_use_tool` request.

    Never raises: a suggestion that cannot be parsed is left out, and is still in `raw`.
    """
    sent = body.get("permission_suggestions")
    suggestions = map(_parse_suggestion, sent) if isinstance(sent, list) else ()
    return ToolPermissionContext(
        suggestions=[update for update in suggestions if update is not None],
        matched_ask_rule=_parse_rule(body.get("matched_ask_rule")),
        raw=body,
        **{name: body.get(name) for name in _AS_SENT},
    )


_AS_SENT: Final = tuple(
    each.name
    for each in fields(ToolPermissionContext)
    if each.name not in ("signal", "suggestions", "matched_ask_rule", "raw")
)


def _parse_rule(sent: Any) -> MatchedAskRule | None:
    if not isinstance(sent, dict) or "tool_name" not in sent:
        return None
    return MatchedAskRule(sent.get("source", ""), sent["tool_name"], sent.get("rule_content"))


def _parse_suggestion(sent: Any) -> PermissionUpdate | None:
    try:
        return PermissionUpdate.from_dict(sent)
    except (KeyError, TypeError, AttributeError):
        # A new kind of suggestion of a newer CLI must not fail the whole request.
        return None


def result_to_wire(result: Any, original_input: dict[str, Any]) -> dict[str, Any]:
    """Return the callback's result in wire format; raises TypeError for anything but a `PermissionResult`.

    Results of the official classes are accepted as well: a library may return those.
    """
    if isinstance(result, PermissionResultAllow) or _is_like(result, PermissionResultAllow):
        updated = original_input if result.updated_input is None else result.updated_input
        allowed: dict[str, Any] = {"behavior": "allow", "updatedInput": updated}
        if result.updated_permissions is not None:
            allowed["updatedPermissions"] = [_update_to_wire(each) for each in result.updated_permissions]
        return allowed
    if isinstance(result, PermissionResultDeny) or _is_like(result, PermissionResultDeny):
        denied: dict[str, Any] = {"behavior": "deny", "message": result.message}
        if result.interrupt:
            denied["interrupt"] = result.interrupt
        return denied
    kind = type(result)
    raise TypeError(
        "can_use_tool must return PermissionResultAllow or PermissionResultDeny, "
        f"not {kind.__module__}.{kind.__qualname__}"
    )


def _is_like(result: Any, known: type[PermissionResultAllow | PermissionResultDeny]) -> bool:
    """True if a result of another class has the same fields and the same behavior as ours."""
    ours = PermissionResultAllow, PermissionResultDeny
    return (
        not isinstance(result, (type, *ours))
        and all(hasattr(result, each.name) for each in fields(known))
        and result.behavior == known.behavior
    )


def _update_to_wire(update: PermissionUpdate) -> dict[str, Any]:
    """Return an update as the CLI needs it: it silently drops one with null in a rule or without a destination."""
    wire = {"destination": "session", **update.to_dict()}
    if "rules" in wire:
        wire["rules"] = [{k: v for k, v in rule.items() if v is not None} for rule in wire["rules"]]
    return wire
