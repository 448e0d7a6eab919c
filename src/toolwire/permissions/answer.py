"""Between the CLI's `can_use_tool` request and a user's callback: its context, and the way back.

Pure; who calls the callback, and when, is not known here.
"""

from typing import Any, Final

from toolwire.permissions.types import (
    MatchedAskRule,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
    ToolPermissionContext,
)


def context_from_wire(body: dict[str, Any]) -> ToolPermissionContext:
    """What the callback is told. Never raises: a suggestion that cannot be read is left out, `raw` has it."""
    offered = body.get("permission_suggestions")
    suggestions = map(_suggestion, offered) if isinstance(offered, list) else ()
    return ToolPermissionContext(
        suggestions=[update for update in suggestions if update is not None],
        tool_use_id=body.get("tool_use_id"),
        agent_id=body.get("agent_id"),
        blocked_path=body.get("blocked_path"),
        decision_reason=body.get("decision_reason"),
        title=body.get("title"),
        display_name=body.get("display_name"),
        description=body.get("description"),
        matched_ask_rule=_rule(body.get("matched_ask_rule")),
        raw=body,
        **{name: body.get(name) for name in _AS_SENT},
    )


_AS_SENT: Final = (
    "mcp_server",
    "decision_reason_type",
    "decision_reason_code",
    "decision_reason_rule_source",
    "decision_reason_hook_event",
    "decision_reason_hook_source",
    "decision_reason_hook_plugin_id",
    "server_policy_ask_only",
    "classifier_approvable",
    "requires_user_interaction",
    "default_to_no",
    "suppress_always_allow_rule",
    "tool_kind",
    "plugin",
    "server_prompt",
    "provenance_prompt_line",
    "request_id",
)


def _rule(sent: Any) -> MatchedAskRule | None:
    if not isinstance(sent, dict) or "tool_name" not in sent:
        return None
    return MatchedAskRule(sent.get("source", ""), sent["tool_name"], sent.get("rule_content"))


def _suggestion(offered: Any) -> PermissionUpdate | None:
    try:
        return PermissionUpdate.from_dict(offered)
    except (KeyError, TypeError, AttributeError):
        # A kind of suggestion that a newer CLI invented is no reason to fail the whole request.
        return None


def result_to_wire(result: object, original_input: dict[str, Any]) -> dict[str, Any]:
    """The callback's answer as the CLI wants it; TypeError for anything but a `PermissionResult`."""
    if isinstance(result, PermissionResultAllow):
        updated = original_input if result.updated_input is None else result.updated_input
        allowed: dict[str, Any] = {"behavior": "allow", "updatedInput": updated}
        if result.updated_permissions is not None:
            allowed["updatedPermissions"] = [_update(each) for each in result.updated_permissions]
        return allowed
    if isinstance(result, PermissionResultDeny):
        denied: dict[str, Any] = {"behavior": "deny", "message": result.message}
        if result.interrupt:
            denied["interrupt"] = result.interrupt
        return denied
    kind = type(result)
    raise TypeError(
        "can_use_tool must return PermissionResultAllow or PermissionResultDeny, "
        f"not {kind.__module__}.{kind.__qualname__}"
    )


def _update(update: PermissionUpdate) -> dict[str, Any]:
    """Without the null of a rule for a whole tool: the CLI drops an update that has one, and says nothing."""
    wire = update.to_dict()
    if "rules" in wire:
        wire["rules"] = [{k: v for k, v in rule.items() if v is not None} for rule in wire["rules"]]
    return wire
