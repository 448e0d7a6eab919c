"""Serve tools to any MCP client, over stdio or HTTP.

Takes whatever `mcp_servers` takes in process: a `ToolServer`, a wrapped one, or an MCP server of another library.
Everything is wired here; the parts are in `serving`, `stdio` and `http`.
"""

import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toolwire.errors import UsageError
from toolwire.mcp.foreign import as_server
from toolwire.mcp.serve.access import Guard, guard_for
from toolwire.mcp.serve.error_texts import shorten_errors
from toolwire.mcp.serve.fast_path import Quick
from toolwire.mcp.serve.host import Serving
from toolwire.mcp.serve.http import HEALTH, METRICS, HttpApp, bound_socket, serve_app
from toolwire.mcp.serve.limits import HttpLimits
from toolwire.mcp.serve.metrics import Metrics
from toolwire.mcp.serve.stdio import Wire, serve_wire
from toolwire.mcp.serve.tool_lists import Lists
from toolwire.tools.toolset import Toolset

DRAIN = 5.0
"""Seconds that running calls get to finish when the server ends."""


@dataclass(frozen=True)
class Listening:
    """Where an HTTP server can be reached."""

    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """The address for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


def serving_of(server: object, *, name: str = "toolwire", secret: str | None = None) -> Serving:
    """A server made ready to be served. `TypeError` for what is none."""
    serving = Serving(as_server(server), name=name, secret=secret)
    serving.core.ready_made = Lists(serving).middleware
    serving.core.middleware.append(shorten_errors)
    return serving


def as_mcp_server(server: object, *, name: str = "toolwire") -> Any:
    """The server as a low-level `mcp.server.Server`, for code that runs such servers itself."""
    return serving_of(server, name=name).core


async def serve_stdio(server: object, *, drain: float = DRAIN) -> None:
    """Serve over this process's stdin and stdout until the client leaves, or SIGINT or SIGTERM.

    What tools print goes to stderr meanwhile.
    """
    await serve_pipe(serving_of(server), Wire(), drain)


async def serve_pipe(serving: Serving, wire: Wire, drain: float) -> None:
    """Serve the one client at the other end of a pipe."""
    serving.request_scope = secrets.token_hex(8)
    await serve_wire(wire, serving.core, drain, closing=serving.hang_up, stop=serving.stop)


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
    are further names that the server is reached by, `allowed_origins` web pages that may use it (those on this
    machine may). Without `sessions` nothing is remembered between requests, so that many processes can serve the
    same clients; clients of MCP 2025-11-25 and older then hear no notices and cannot be asked. `limits` say how
    much clients may take of the server. The process's own limit of descriptors is left as it is, which `toolwire
    serve` raises.
    """
    guard = guard_for(host, token, allowed_hosts, allowed_origins)
    check_path(path)
    serving = serving_of(server)
    with bound_socket(host, port) as listening:
        where = Listening(host, listening.getsockname()[1], path)
        if on_listening is not None and (told := on_listening(where)) is not None:
            await told
        await serve_over(serving, listening, guard, path=path, sessions=sessions, drain=drain, limits=limits)


async def serve_over(
    serving: Serving,
    listening: socket.socket,
    guard: Guard,
    *,
    path: str = "/mcp",
    sessions: bool = True,
    drain: float = DRAIN,
    limits: HttpLimits | None = None,
) -> None:
    """Serve on a socket that is already bound. It is closed at the end."""
    app = _http_app(serving, guard, path, sessions, limits)
    async with serving.opened():
        await serve_app(
            app,
            listening,
            serving.drained,
            stop=serving.stop,
            drain=drain,
            closing=[serving.hang_up],
        )


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
    """The ASGI application of `serve_http()`, for an ASGI server of your own. `host` is where that one listens.

    Of the `limits`, those of bodies and of sessions are kept here. Connections, headers and unread answers are your
    server's to limit.
    """
    guard = guard_for(host, token, allowed_hosts, allowed_origins)
    check_path(path)
    return _http_app(serving_of(server), guard, path, sessions, limits).asgi


def check_path(path: str) -> None:
    """UsageError for a path that cannot be the endpoint."""
    if not path.startswith("/") or path in (HEALTH, METRICS) or any(each in path for each in "{}?#"):
        raise UsageError(
            f"the path {path!r} cannot be used: it begins with /, and is not {HEALTH} or {METRICS}"
        )


def _http_app(
    serving: Serving, guard: Guard, path: str, sessions: bool, limits: HttpLimits | None
) -> HttpApp:
    def knows(tool: str) -> bool:
        return not isinstance(serving.server, Toolset) or tool in serving.server.tools

    metrics = Metrics(knows, lambda: getattr(serving.server, "metrics_registry", None))
    serving.observe = metrics.observe
    return HttpApp(
        serving.core,
        guard,
        path=path,
        sessions=sessions,
        metrics=metrics,
        health=lambda: {"server": serving.core.name, "running": serving.running},
        quick=Quick(serving),
        limits=limits,
    )
