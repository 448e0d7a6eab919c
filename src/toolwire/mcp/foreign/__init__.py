"""MCP servers of other libraries, used in this process like our own."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwire.tools.dispatch.interface import Server


def as_server(instance: Any) -> "Server":
    """Return a server that can be connected to: one of ours unchanged, one of another library inside an adapter.

    Raises `TypeError` for an object that is not a server, and `NotSupportedError` if the installed version of `mcp`
    is not supported.
    """
    if callable(getattr(instance, "connect", None)):
        ours: Server = instance
        return ours
    from toolwire.mcp.versions import check_mcp  # noqa: PLC0415 - few programs have such a server

    check_mcp("an MCP server of another library")
    from toolwire.mcp.foreign.connection import ForeignServer  # noqa: PLC0415 - it loads mcp

    return ForeignServer(instance)
