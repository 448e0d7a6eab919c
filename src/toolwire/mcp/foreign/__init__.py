"""MCP servers of other libraries, used in this process like our own."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwire.tools.dispatch.interface import Server


def as_server(instance: Any) -> "Server":
    """Return a server that can be connected to: ours as it is, one of another library with an adapter around it.

    `TypeError` for what is no server, `NotSupportedError` if the `mcp` that is installed is not known.
    """
    if callable(getattr(instance, "connect", None)):
        ours: Server = instance
        return ours
    from toolwire.mcp.versions import check_mcp  # noqa: PLC0415 - few programs have such a server

    check_mcp("an MCP server of another library")
    from toolwire.mcp.foreign.connection import ForeignServer  # noqa: PLC0415 - it loads mcp

    return ForeignServer(instance)
