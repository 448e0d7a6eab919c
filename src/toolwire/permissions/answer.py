"""Between the CLI's `can_use_tool` request and a user's callback: its context, and the way back.

Pure; who calls the callback, and when, is not known here.
"""

from typing import Any

from toolwire.permissions.types import (
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
        mcp_server=body.get("mcp_server"),
        decision_reason_type=body.get("decision_reason_type"),
        raw=body,
    )


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
            allowed["updatedPermissions"] = [update.to_dict() for update in result.updated_permissions]
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
