"""The names of `claude_agent_sdk.types`, and toolwire's own names of the same kind.

Each is loaded when it is first used. `types.pyi` is generated from the same list.
"""

from toolwire import _NAMES, _find_names, _load_lazily

_MORE = {
    "client.responses": """
        ControlErrorResponse ControlResponse SDKControlInitializeRequest SDKControlInterruptRequest
        SDKControlMcpMessageRequest SDKControlMcpReconnectRequest SDKControlMcpToggleRequest
        SDKControlPermissionRequest SDKControlRequest SDKControlResponse SDKControlRewindFilesRequest
        SDKControlSetPermissionModeRequest SDKControlStopTaskRequest SDKHookCallbackRequest
    """,
    "errors": "CanUseToolShadowedWarning",
}
_PARTS = ("client.responses", "hooks", "messages", "options", "permissions", "sessions.types", "tools.names")

_load_lazily(globals(), _find_names(_NAMES, *_PARTS) | _find_names(_MORE))
