"""MCP servers of other libraries, used in this process like our own."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwire.tools.dispatch.interface import Server


def as_server(instance: Any) -> "Server":
    """Return a server that can be connected to: ours as it is, one of another library with an adapter around it.

    `NotSupportedError` for servers built on `mcp` 1.x, `TypeError` for what is no server.
    """
    if callable(getattr(instance, "connect", None)):
        ours: Server = instance
        return ours
    from toolwire.mcp.foreign.connection import ForeignServer  # noqa: PLC0415 - it loads mcp

    return ForeignServer(instance)
