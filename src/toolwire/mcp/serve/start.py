"""Serves tools to any MCP client, over stdio or HTTP.

Accepts every in-process server that `mcp_servers` accepts: a `Toolset`, a wrapped one, or an MCP server of another
library. The parts are in `host`, `stdio` and `http`; this module puts them together.
"""

import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolwire.errors import UsageError
from toolwire.mcp.foreign import as_server
from toolwire.mcp.serve.access import Guard, guard_for
from toolwire.mcp.serve.limits import HttpLimits
from toolwire.mcp.versions import SERVING, SERVING_HTTP, can_use, check_mcp

if TYPE_CHECKING or can_use(SERVING):  # if not, each function here raises an error when it is called
    from toolwire.mcp.serve.fast_path import ToolLists
    from toolwire.mcp.serve.host import ServerHost
    from toolwire.mcp.serve.http import HEALTH, METRICS, HttpApp, bound_socket, serve_app
    from toolwire.mcp.serve.stdio import Wire, serve_wire

DRAIN = 5.0
"""Seconds that running calls have to finish when the server shuts down."""


@dataclass(frozen=True)
class Listening:
    """The address at which an HTTP server can be reached."""

    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """The address for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


def host_for(server: object, *, name: str = "toolwire", secret: str | None = None) -> "ServerHost":
    """Make a host for a server. Raises `TypeError` if it is not a server."""
    check_mcp("serving", SERVING)
    return ServerHost(as_server(server), name=name, secret=secret)


def as_mcp_server(server: object, *, name: str = "toolwire") -> Any:
    """Return the server as a low-level `mcp.server.Server`, for code that runs such servers itself."""
    return host_for(server, name=name).mcp_server


async def serve_stdio(server: object, *, drain: float = DRAIN) -> None:
    """Serve over this process's stdin and stdout until the client disconnects, or SIGINT or SIGTERM arrives.

    Meanwhile everything that tools print is written to stderr.
    """
    await serve_pipe(host_for(server), Wire(), drain)


async def serve_pipe(served: "ServerHost", wire: "Wire", drain: float) -> None:
    """Serve the one client at the other end of a pipe. Call it only once per host, which it changes."""
    served.request_scope = secrets.token_hex(8)
    served.mcp_server.middleware.append(ToolLists(served).middleware)
    await serve_wire(wire, served.mcp_server, drain, closing=served.close_subscriptions, stop=served.stop)


async def serve_http(
    server: object,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    path: str = "/mcp",
    token: str | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    sessions: bool = True,
    drain: float = DRAIN,
    limits: HttpLimits | None = None,
    on_listening: Callable[[Listening], Awaitable[None] | None] | None = None,
) -> None:
    """Serve over streamable HTTP until SIGINT or SIGTERM. For asyncio only.

    Addresses other than loopback need a `token`, which clients send as `Authorization: Bearer ...`. `allowed_hosts`
    are further host names of the server, `allowed_origins` the origins of web pages that may use it (pages on this
    machine always may). Without `sessions` nothing is kept between requests, so that many processes can serve the
    same clients; clients of MCP 2025-11-25 and older then get no notifications and no requests. `limits` protect
    the server from its clients. The process's limit of file descriptors is not changed; `toolwire serve` raises it.
    """
    check_mcp("serving over HTTP", SERVING_HTTP)
    guard = guard_for(host, token, allowed_hosts, allowed_origins)
    check_path(path)
    served = host_for(server)
    with bound_socket(host, port) as listening:
        where = Listening(host, listening.getsockname()[1], path)

        async def announce() -> None:
            if on_listening is not None and (waiting := on_listening(where)) is not None:
                await waiting

        await serve_over(
            served,
            listening,
            guard,
            path=path,
            sessions=sessions,
            drain=drain,
            limits=limits,
            announce=announce,
        )


async def serve_over(
    served: "ServerHost",
    listening: socket.socket,
    guard: Guard,
    *,
    path: str = "/mcp",
    sessions: bool = True,
    drain: float = DRAIN,
    limits: HttpLimits | None = None,
    announce: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve on a socket that is already bound, and close it at the end. For `announce` see `serve_app`."""
    app = HttpApp(served, guard, path=path, sessions=sessions, limits=limits)
    async with served.open():
        await serve_app(app, listening, drain=drain, announce=announce)


def http_app(
    server: object,
    *,
    host: str = "127.0.0.1",
    path: str = "/mcp",
    token: str | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    sessions: bool = True,
    limits: HttpLimits | None = None,
) -> Any:
    """Return the ASGI application of `serve_http()`, for an ASGI server of your own that listens on `host`.

    Only the `limits` of bodies and sessions apply. Your server has to limit connections, headers and unread
    responses.
    """
    check_mcp("serving over HTTP", SERVING_HTTP)
    guard = guard_for(host, token, allowed_hosts, allowed_origins)
    check_path(path)
    return HttpApp(host_for(server), guard, path=path, sessions=sessions, limits=limits).asgi


def check_path(path: str) -> None:
    """Raise UsageError for a path that cannot be the endpoint."""
    if not path.startswith("/") or path in (HEALTH, METRICS) or any(each in path for each in "{}?#"):
        raise UsageError(
            f"the path {path!r} cannot be used: it must begin with /, contain none of {{}}?#, and not be {HEALTH} "
            f"or {METRICS}"
        )
