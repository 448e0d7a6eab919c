"""Recognises MCP servers of other libraries, and finds the low-level server inside them.

Goes by what an object can do: neither `mcp` nor `fastmcp` is imported. It runs nothing.
"""

from typing import Any, Final

from toolwire.errors import NotSupportedError

LOW_LEVEL_ATTRIBUTES: Final = ("_lowlevel_server", "_mcp_server")
"""Where high-level servers keep their low-level one: `mcp` 2.x; FastMCP, and `mcp` 1.x's class of the same name."""

_ACCEPTED: Final = (
    "Accepted are a low-level server (mcp.server.Server) or a high-level one (mcp.server.MCPServer) of mcp 2.x, "
    "or a FastMCP 4 server (fastmcp.FastMCP)."
)


def find_low_level_server(server: object) -> Any:
    """Return the low-level `mcp` 2.x server inside a server object, or the object itself if it is one.

    Raises `NotSupportedError` for servers built on `mcp` 1.x, `TypeError` for everything else.
    """
    if isinstance(server, type):
        raise TypeError(f"{server.__name__} is a class; pass an instance of it. {_ACCEPTED}")
    for candidate in (server, *(getattr(server, name, None) for name in LOW_LEVEL_ATTRIBUTES)):
        if not _can_run(candidate):
            continue
        if callable(getattr(candidate, "get_request_handler", None)):
            return candidate
        # mcp 1.x kept its handlers in a public dict by request class; 2.x finds them by method name.
        if isinstance(getattr(candidate, "request_handlers", None), dict):
            raise NotSupportedError(_too_old(server))
    raise TypeError(f"{type(server).__name__} is not an MCP server. {_ACCEPTED}")


def shares_lifespan(low_level: Any) -> bool:
    """True if all sessions of this low-level server are to run in one lifespan, as FastMCP's are."""
    return hasattr(type(low_level), "fastmcp")


def _can_run(candidate: object) -> bool:
    return all(callable(getattr(candidate, name, None)) for name in ("run", "create_initialization_options"))


def _too_old(server: object) -> str:
    kind = type(server)
    newer = "fastmcp>=4" if kind.__module__.partition(".")[0] == "fastmcp" else "mcp>=2"
    return (
        f"{kind.__module__}.{kind.__qualname__} is built on mcp 1.x, and toolwire serves servers of mcp 2.x only; "
        f"upgrade with: pip install '{newer}'"
    )
