"""`McpSdkServerConfig`: the entry of a server of this process in `mcp_servers`. Imports nothing of toolwire."""

from typing import Any, Literal, NotRequired, TypedDict


class McpSdkServerConfig(TypedDict):
    """A server in this process. `instance` stays here; the CLI learns only the name and the other keys."""

    type: Literal["sdk"]
    name: str
    instance: Any
    timeout: NotRequired[int]
    alwaysLoad: NotRequired[bool]
