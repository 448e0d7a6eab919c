"""Policies as PreToolUse hooks, so that they see the calls too that an allow rule lets through."""

from collections.abc import Awaitable, Callable
from typing import Any

from toolwire.hooks import HookJSONOutput
from toolwire.permissions.policy import Judge, as_policy, logger
from toolwire.permissions.types import PermissionResultDeny, ToolPermissionContext


def as_hook(policy: Judge) -> Callable[[Any, str | None, Any], Awaitable[HookJSONOutput]]:
    """A callback for `HookMatcher(hooks=[...])` under `PreToolUse`. No opinion leaves it to rules and the mode.

    A yes ends the matter, like the yes of any such hook: `can_use_tool` is not asked. Rule updates are left out.
    """
    inner = as_policy(policy)

    async def hook(hook_input: Any, tool_use_id: str | None, _context: Any) -> HookJSONOutput:
        if hook_input.get("hook_event_name") != "PreToolUse":
            raise TypeError("as_hook() gives a hook for PreToolUse")
        context = ToolPermissionContext(
            tool_use_id=tool_use_id, agent_id=hook_input.get("agent_id"), raw=dict(hook_input)
        )
        given = hook_input.get("tool_input")
        tool_input = given if isinstance(given, dict) else {}
        decision = await inner.decide(str(hook_input.get("tool_name", "")), tool_input, context)
        if decision is None:
            return {}
        result = decision.result
        specific: dict[str, Any] = {"hookEventName": "PreToolUse", "permissionDecision": result.behavior}
        output: dict[str, Any] = {"hookSpecificOutput": specific}
        if isinstance(result, PermissionResultDeny):
            specific["permissionDecisionReason"] = result.message
            if result.interrupt:
                output |= {"continue_": False, "stopReason": result.message}
            return output  # type: ignore[return-value]  # put together piece by piece
        specific["permissionDecisionReason"] = f"allowed by {decision.policy}"
        if result.updated_input is not None:
            specific["updatedInput"] = result.updated_input
        if result.updated_permissions:
            logger.debug("a hook cannot update permission rules: left out")
        return output  # type: ignore[return-value]

    hook.__qualname__ = f"as_hook({inner!r})"
    return hook
