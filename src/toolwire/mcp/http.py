"""MCP over streamable HTTP: an ASGI application around an `mcp` server, and a way to run it here.

Owns the paths, the guard in front of them and the end: open streams are told to stop, running calls may finish
within `drain` seconds. The protocol itself is `mcp`'s session manager's.
"""

import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolwire._log import logger_for
from toolwire.errors import UsageError
from toolwire.mcp.events import Events
from toolwire.mcp.guard import Guard, Guarded
from toolwire.mcp.metrics import CONTENT_TYPE, Metrics

logger = logger_for("serving")

HEALTH: Final = "/healthz"
METRICS: Final = "/metrics"
_LOOPBACK_PAGES: Final = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
_RETRY: Final = 1_000  # milliseconds after which a client whose stream was closed comes back
_BODY: Final = 64 << 20


class HttpApp:
    """The application, and how to end it."""

    def __init__(
        self,
        core: Any,
        guard: Guard,
        *,
        path: str = "/mcp",
        sessions: bool = True,
        json_only: bool = False,
        metrics: Metrics | None = None,
        health: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """`sessions` False: no client is remembered between two requests, so any process can answer any of them."""
        self._events = Events() if sessions else None
        self._manager = StreamableHTTPSessionManager(
            core,
            event_store=self._events,
            retry_interval=_RETRY if sessions else None,
            json_response=json_only,
            stateless=not sessions,
            max_request_body_size=_BODY,
        )
        self._metrics = metrics
        self._health = health
        self._streams: set[anyio.CancelScope] = set()
        routes = [
            Route(path, endpoint=_Endpoint(self._mcp)),
            Route(HEALTH, endpoint=self._tell_health, methods=["GET", "HEAD"]),
        ]
        if metrics is not None:
            routes.append(Route(METRICS, endpoint=self._tell_metrics, methods=["GET"]))
        pages = Middleware(
            CORSMiddleware,
            allow_origins=sorted(guard.origins),
            allow_origin_regex=_LOOPBACK_PAGES if guard.hosts is not None else None,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["mcp-session-id", "mcp-protocol-version"],
        )
        self.asgi = Starlette(
            routes=routes,
            middleware=[pages, Middleware(Guarded, guard=guard, open_paths=[HEALTH])],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    async def _mcp(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] != "GET":
            await self._handle(scope, receive, send)
            return
        # A stream of notices never ends by itself, so it must be possible to end it.
        with anyio.CancelScope() as stream:
            self._streams.add(stream)
            try:
                await self._handle(scope, receive, send)
            finally:
                self._streams.discard(stream)

    async def _handle(self, scope: Any, receive: Any, send: Any) -> None:
        if self._events is None:
            await self._manager.handle_request(scope, receive, send)
        else:
            await self._events.answering(self._manager.handle_request, scope, receive, send)

    def close_streams(self) -> None:
        """End the streams on which clients only listen."""
        for stream in list(self._streams):
            stream.cancel()

    async def _tell_health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok", **self._health()})

    async def _tell_metrics(self, _request: Request) -> Response:
        return Response(self._metrics.text() if self._metrics else b"", media_type=CONTENT_TYPE)


class _Endpoint:
    """A plain ASGI function as an endpoint for all methods."""

    def __init__(self, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket; UsageError in words if the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = "; choose another with --port, or 0 for any free one" if port else ""
        raise UsageError(f"cannot listen on {host}:{port}: {reason}{hint}") from None
    except OverflowError:
        raise UsageError(f"port {port} is out of range: 0 to 65535") from None


async def serve_app(
    app: HttpApp,
    listening: socket.socket,
    drained: Callable[[float], Awaitable[Any]],
    *,
    drain: float = 5.0,
    closing: Iterable[Callable[[], None]] = (),
) -> None:
    """Serve until SIGINT or SIGTERM, then let what runs finish within `drain` seconds."""
    config = uvicorn.Config(
        app.asgi,
        log_level="warning",
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    server = _Server(config)

    async def until_told() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            await anext(aiter(signals))
            for close in (*closing, app.close_streams):
                close()
            with anyio.CancelScope() as waiting:
                async with anyio.create_task_group() as either:

                    async def again() -> None:
                        await anext(aiter(signals))
                        waiting.cancel()

                    either.start_soon(again)
                    await drained(drain)
                    either.cancel_scope.cancel()
            server.should_exit = True
            await anyio.sleep_forever()  # with signals still caught: the end is under way

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(until_told)
        await server.serve(sockets=[listening])
        tasks.cancel_scope.cancel()


class _Server(uvicorn.Server):
    """Uvicorn without its own handling of signals: ours drains first."""

    @contextmanager
    def capture_signals(self) -> Any:
        yield
