"""The names that people import from `claude_agent_sdk.types`, and ours of the same kind.

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
_ROOMS = ("client.responses", "hooks", "messages", "options", "permissions", "sessions.types", "tools.names")

_load_lazily(globals(), _find_names(_NAMES, *_ROOMS) | _find_names(_MORE))
