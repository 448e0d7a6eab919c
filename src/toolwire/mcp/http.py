"""MCP over streamable HTTP: an ASGI application around an `mcp` server, and a way to run it here.

Owns the paths, the guard in front of them and the end: open streams are told to stop, new requests are refused,
running calls may finish within `drain` seconds, the rest is cancelled and answered with an error. The protocol
itself is `mcp`'s session manager's.
"""

import errno
import json
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
import anyio.abc
import mcp_types as types
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolwire._jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, RpcError, id_in_use, refusal
from toolwire._log import logger_for
from toolwire.errors import UsageError
from toolwire.mcp import bodies
from toolwire.mcp.events import Events
from toolwire.mcp.guard import Guard, Guarded
from toolwire.mcp.http_sessions import (
    HEADER,
    MAX_SESSIONS,
    SESSION_TIMEOUT,
    Exchange,
    HttpSession,
    HttpSessions,
)
from toolwire.mcp.metrics import CONTENT_TYPE, Metrics
from toolwire.mcp.quick import Quick

logger = logger_for("serving")

HEALTH: Final = "/healthz"
METRICS: Final = "/metrics"
_LOOPBACK_PAGES: Final = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
_RETRY: Final = 1_000  # milliseconds after which a client whose stream was closed comes back
_BODY: Final = 64 << 20
_FLUSH: Final = 2.0  # seconds for answers that are ready to get out at the end
STOP: Final = 4.0
"""Seconds in which calls that are cancelled at the end have to stop."""
_VERSION: Final = b"mcp-protocol-version"
_ENDING: Final = RpcError(types.CONNECTION_CLOSED, "the server is ending and takes no new requests")
_ENDED: Final = RpcError(types.CONNECTION_CLOSED, "the server has ended")
_FULL: Final = RpcError(INTERNAL_ERROR, "too many sessions are open, and all are in use: try again later")
_NO_SESSION: Final = RpcError(INVALID_REQUEST, "Session not found")


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
        quick: Quick | None = None,
        max_sessions: int = MAX_SESSIONS,
        session_timeout: float = SESSION_TIMEOUT,
    ) -> None:
        """`sessions` False: no client is remembered between two requests, so any process can answer any of them.
        `quick` answers what it can before `mcp` is asked. When there are more than `max_sessions`, the one that was
        idle longest is ended, and so is one that was idle for `session_timeout` seconds."""
        core.middleware.append(_writable)
        self._events = Events() if sessions else None
        self._manager = StreamableHTTPSessionManager(
            core,
            event_store=self._events,
            retry_interval=_RETRY if sessions else None,
            json_response=json_only,
            stateless=not sessions,
            max_request_body_size=_BODY,
            session_idle_timeout=None,  # ours counts what never gets to `mcp` too
            max_sessions=None,
        )
        self.sessions: HttpSessions | None = None
        """The sessions that are open; None if none are kept."""
        if sessions:
            self.sessions = HttpSessions(max_sessions, session_timeout, self._end_session)
            core.middleware.insert(0, self.sessions.middleware)
        self._tasks: anyio.abc.TaskGroup | None = None  # while it is open
        self._metrics = metrics
        self._health = health
        self._quick = quick
        self._closing = False
        self._idle = anyio.Event()
        self._under_way: set[anyio.CancelScope] = set()
        self._listening: set[anyio.CancelScope] = set()
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
        async with self._manager.run(), anyio.create_task_group() as self._tasks:
            if self.sessions is not None:
                self._tasks.start_soon(self.sessions.end_idle)
            yield
            self._tasks.cancel_scope.cancel()

    def _end_session(self, session: HttpSession) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(self._delete, session)

    async def _delete(self, session: HttpSession) -> None:
        """Have `mcp` end a session, as if its client had asked for that."""

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def ignore(message: Any) -> None:
            del message

        scope = {
            "type": "http",
            "method": "DELETE",
            "path": "/",
            "query_string": b"",
            "headers": [(HEADER, session.id.encode("latin-1"))],
            **({} if session.user is None else {"user": session.user}),
        }
        try:
            await self._manager.handle_request(scope, receive, ignore)
        except Exception:  # the boundary of a task that nobody waits for: the server must go on
            logger.exception("a session could not be ended")

    async def _mcp(self, scope: Any, receive: Any, send: Any) -> None:
        reply = _Reply(send)
        # A stream of notices never ends by itself, and a slow client may not either: we must be able to end both.
        kind = self._listening if _only_listens(scope) else self._under_way
        with anyio.CancelScope() as until_told:
            kind.add(until_told)
            try:
                await self._handle(scope, receive, reply)
            finally:
                kind.discard(until_told)
                if not self._under_way:
                    self._idle.set()
        if until_told.cancelled_caught:
            await reply.cut_short(scope, receive)

    async def _handle(self, scope: Any, receive: Any, reply: "_Reply") -> None:
        if self._closing:
            came, body = ([], None) if scope["method"] == "GET" else await bodies.read(receive, _BODY)
            if _only_listens(scope) or (came and (body is None or _is_request(body))):
                await _unavailable(_ENDING)(scope, receive, reply.send)
                return
            receive = bodies.replayed(came, receive)
        if self.sessions is None:
            await self._answer(scope, receive, reply, None)
            return
        name = next((value.decode("latin-1") for key, value in scope["headers"] if key == HEADER), None)
        session = None if name is None else self.sessions.find(name)
        if session is not None:
            with session.exchange() as exchange:
                await self._answer(scope, receive, reply, exchange)
        elif name is not None and self.sessions.is_ending(name):
            await _refused(_NO_SESSION, 404)(scope, receive, reply.send)
        elif name is None and _is_handshake(scope) and self.sessions.full:
            await _unavailable(_FULL)(scope, receive, reply.send)
        else:
            await self._answer(scope, receive, reply, None)

    async def _answer(self, scope: Any, receive: Any, reply: "_Reply", exchange: Exchange | None) -> None:
        """Answer a request, here or by `mcp`. `exchange` is None outside of a session."""
        if self._quick is not None and not self._closing:
            left = await self._quick.answered(scope, receive, reply.send, exchange)
            if left is None:
                return
            receive, begun = left
            if begun is not None:
                reply.request_id = begun.request_id
                with begun.handed_over(reply.is_complete):
                    await self._through_mcp(scope, receive, reply.send)
                return
        if scope["method"] == "POST":
            came, body = await bodies.read(receive, _BODY)
            receive = bodies.replayed(came, receive)
            try:
                given = reply.request_id = None if body is None else bodies.request_id(body)
            except RpcError as error:
                await _refused(error, 400)(scope, receive, reply.send)
                return
            if exchange is not None and given is not None and not await exchange.claim(given):
                await _refused(id_in_use(given), 400, given)(scope, receive, reply.send)
                return
        await self._through_mcp(scope, receive, reply.send)

    async def _through_mcp(self, scope: Any, receive: Any, send: Any) -> None:
        if self._events is None:
            await self._manager.handle_request(scope, receive, send)
        else:
            await self._events.answering(self._manager.handle_request, scope, receive, send)

    def close(self) -> None:
        """Take no new work, and end the streams on which clients only listen."""
        self._closing = True
        for stream in list(self._listening):
            stream.cancel()

    async def cut_off(self) -> None:
        """End what is still under way, when its answer has had the time to get out."""
        with anyio.move_on_after(_FLUSH):
            while self._under_way:
                self._idle = anyio.Event()
                await self._idle.wait()
        for each in [*self._under_way, *self._listening]:
            each.cancel()

    async def _tell_health(self, _request: Request) -> Response:
        health = {"status": "closing" if self._closing else "ok", **self._health()}
        return JSONResponse(health, 503 if self._closing else 200)

    async def _tell_metrics(self, _request: Request) -> Response:
        return Response(self._metrics.text() if self._metrics else b"", media_type=CONTENT_TYPE)


class _Endpoint:
    """A plain ASGI function as an endpoint for all methods."""

    def __init__(self, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


class _Reply:
    """The way back to the client of one request, and how far it got."""

    def __init__(self, send: Any) -> None:
        self.request_id: int | str | None = None
        """The id of the JSON-RPC request, once it is known."""
        self._send = send
        self._started = False
        self._streams = False
        self._complete = False

    def is_complete(self) -> bool:
        """Whether all of it was sent."""
        return self._complete

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            self._streams = any(
                key.lower() == b"content-type" and value.startswith(b"text/event-stream")
                for key, value in message.get("headers", ())
            )
        elif not message.get("more_body"):
            self._complete = True
        await self._send(message)

    async def cut_short(self, scope: Any, receive: Any) -> None:
        """End it as HTTP wants it, if it is not."""
        with anyio.move_on_after(_FLUSH):
            if not self._started:
                await _unavailable(_ENDED)(scope, receive, self._send)
            elif not self._complete:
                body = b""
                if self._streams and self.request_id is not None:
                    body = b"event: message\r\ndata: %b\r\n\r\n" % to_json(refusal(self.request_id, _ENDED))
                await self._send({"type": "http.response.body", "body": body})


def _only_listens(scope: Any) -> bool:
    """Whether it is a stream of notices, and not the rest of an answer."""
    return scope["method"] == "GET" and all(name != b"last-event-id" for name, _ in scope["headers"])


def _is_handshake(scope: Any) -> bool:
    """Whether a request without a session may open one: those of 2026-07-28 never do."""
    version = next((value.decode("latin-1") for name, value in scope["headers"] if name == _VERSION), None)
    return scope["method"] == "POST" and (version is None or version in HANDSHAKE_PROTOCOL_VERSIONS)


def _is_request(body: bytes) -> bool:
    """Whether it is new work. The answer to a question of ours, or a cancellation, is not."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return True
    return not isinstance(message, dict) or {"id", "method"} <= message.keys()


def _unavailable(reason: RpcError) -> Response:
    return JSONResponse(refusal(None, reason), 503, {"retry-after": "1", "connection": "close"})


def _refused(reason: RpcError, status: int, request_id: int | str | None = None) -> Response:
    return JSONResponse(refusal(request_id, reason), status)


async def _writable(ctx: Any, call_next: Any) -> Any:
    """Middleware of `mcp`: an answer that JSON cannot hold becomes an error, or there would be none at all."""
    try:
        result = await call_next(ctx)
    except Exception as error:
        if _fits(error.error.model_dump() if isinstance(error, MCPError) else str(error)):
            raise
    else:
        if _fits(result):
            return result
    raise MCPError(code=INTERNAL_ERROR, message="the answer cannot be written as JSON")


def _fits(answer: Any) -> bool:
    try:
        to_json(answer)
    except (ValueError, RecursionError) as error:
        logger.warning("an answer cannot be written as JSON: %s", error)
        return False
    return True


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket; UsageError in words if the address cannot be had."""
    host = host.removeprefix("[").removesuffix("]")
    if not host:
        raise UsageError("the host is empty: 127.0.0.1 is this machine alone, 0.0.0.0 every address of it")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
        # Of a socket that does not say that it is TCP, asyncio takes no care: each answer would wait 40 ms.
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listening.detach())
    except OSError as error:
        taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        reason = str(error.strerror or error).partition(" (while ")[
            0
        ]  # what follows is what we say ourselves
        hint = "; choose another with --port, or 0 for any free one" if taken else ""
        raise UsageError(f"cannot listen on {host}:{port}: {reason}{hint}") from None
    except UnicodeError:  # of a name that can be none
        raise UsageError(f"cannot listen on {host}:{port}: no such name") from None
    except OverflowError:
        raise UsageError(f"port {port} is out of range: 0 to 65535") from None


async def serve_app(
    app: HttpApp,
    listening: socket.socket,
    drained: Callable[[float], Awaitable[Any]],
    *,
    stop: Callable[[float], Awaitable[Any]],
    drain: float = 5.0,
    closing: Iterable[Callable[[], None]] = (),
) -> None:
    """Serve until SIGINT or SIGTERM, then let what runs finish within `drain` seconds.

    `drained(seconds)` waits for that. `stop(seconds)` cancels what still runs, and waits until it has stopped: only
    then are clients told, so that nothing goes on that they believe to be over.
    """
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
            for close in (*closing, app.close):
                close()
            with anyio.CancelScope() as waiting:
                async with anyio.create_task_group() as either:

                    async def again() -> None:
                        await anext(aiter(signals))
                        waiting.cancel()

                    either.start_soon(again)
                    await drained(drain)
                    either.cancel_scope.cancel()
            await stop(STOP)
            await app.cut_off()
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
