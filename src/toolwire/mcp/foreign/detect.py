"""Recognises MCP servers of other libraries, and finds the low-level server inside them.

Recognises them by their attributes: neither `mcp` nor `fastmcp` is imported, and nothing is run.
"""

from contextlib import AbstractAsyncContextManager
from typing import Any, Final

LOW_LEVEL_ATTRIBUTES: Final = ("_lowlevel_server", "_mcp_server")
"""Where high-level servers keep their low-level one: in `mcp` 2.x; in FastMCP, and the FastMCP of `mcp` 1.x."""

PRIVATE_ATTRIBUTES: Final = """
    _handle_discover _notification_handlers _request_handlers _server_info_stamp_source _session_manager
"""
"""Undocumented attributes of a low-level server that programs, and `mcp` itself, use when they run one."""

_ACCEPTED: Final = (
    "Accepted are a low-level server of mcp (mcp.server.Server), a high-level one (mcp.server.MCPServer; in mcp "
    "1.x mcp.server.fastmcp.FastMCP), or a FastMCP server (fastmcp.FastMCP)."
)


def find_low_level_server(server: object) -> Any:
    """Return the low-level server of `mcp` inside a server object, or the object itself if it is one.

    Raises `TypeError` for everything else.
    """
    if isinstance(server, type):
        raise TypeError(f"{server.__name__} is a class; pass an instance of it. {_ACCEPTED}")
    for candidate in (server, *(getattr(server, name, None) for name in LOW_LEVEL_ATTRIBUTES)):
        if _can_run(candidate) and _has_handlers(candidate):
            return candidate
    raise TypeError(f"{type(server).__name__} is not an MCP server. {_ACCEPTED}")


def shares_lifespan(low_level: Any) -> bool:
    """Return True if all sessions of this low-level server must share one lifespan, as FastMCP's do."""
    return hasattr(type(low_level), "fastmcp")


def lifespan_of(low_level: Any) -> AbstractAsyncContextManager[Any]:
    """Return the lifespan to run sessions in. With FastMCP 2 and 3, on `mcp` 1.x, it is not the low-level one."""
    if shares_lifespan(low_level) and not _finds_handlers(low_level):
        outer: AbstractAsyncContextManager[Any] = low_level.fastmcp._lifespan_manager()  # noqa: SLF001
        return outer
    lifespan: AbstractAsyncContextManager[Any] = low_level.lifespan(low_level)
    return lifespan


def _can_run(candidate: object) -> bool:
    return all(callable(getattr(candidate, name, None)) for name in ("run", "create_initialization_options"))


def _has_handlers(candidate: object) -> bool:
    # mcp 1.x keeps its handlers in a public dict by request class.
    return _finds_handlers(candidate) or isinstance(getattr(candidate, "request_handlers", None), dict)


def _finds_handlers(candidate: object) -> bool:
    """Return True if the server finds its handlers by method name, as in `mcp` 2.x."""
    return callable(getattr(candidate, "get_request_handler", None))
