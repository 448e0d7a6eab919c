"""Permissions: who may use which tool. Ready-made policies are in `toolwire.permissions.policies`."""

from toolwire.messages import PermissionMode
from toolwire.permissions.types import (
    CanUseTool,
    MatchedAskRule,
    PermissionBehavior,
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionRuleValue,
    PermissionUpdate,
    PermissionUpdateDestination,
    ToolPermissionContext,
)

__all__ = [
    "CanUseTool",
    "MatchedAskRule",
    "PermissionBehavior",
    "PermissionMode",
    "PermissionResult",
    "PermissionResultAllow",
    "PermissionResultDeny",
    "PermissionRuleValue",
    "PermissionUpdate",
    "PermissionUpdateDestination",
    "ToolPermissionContext",
]
