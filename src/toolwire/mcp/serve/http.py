"""MCP over streamable HTTP: an ASGI application around an `mcp` server, and a way to run it here.

Owns the paths, the guard in front of them, the limits of a request's body and the end: open streams are told to
stop, new requests are refused, running calls may finish within `drain` seconds, the rest is cancelled and answered
with an error. The protocol itself is `mcp`'s session manager's, the connections are `connections`'.
"""

import asyncio
import errno
import json
import logging
import math
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc
import mcp_types as types
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolwire._protocol.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, RpcError, id_in_use, make_error
from toolwire._support.log import RepeatLimit, logger_for
from toolwire._support.threads import Workers
from toolwire._support.waiting import Signal
from toolwire.errors import UsageError
from toolwire.mcp.compat import HANDSHAKE_PROTOCOL_VERSIONS
from toolwire.mcp.serve import bodies, json_limits
from toolwire.mcp.serve.access import Guard, Guarded
from toolwire.mcp.serve.connections import Connections, Tracked, authorised, connection_of
from toolwire.mcp.serve.fast_path import FastPath
from toolwire.mcp.serve.http_sessions import HEADER, Exchange, HttpSession, HttpSessions
from toolwire.mcp.serve.limits import HttpLimits
from toolwire.mcp.serve.metrics import CONTENT_TYPE, Metrics
from toolwire.mcp.serve.resumption import Events

logger = logger_for("serving")

HEALTH: Final = "/healthz"
METRICS: Final = "/metrics"
_LOOPBACK_PAGES: Final = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
_RETRY: Final = 1_000  # milliseconds after which a client whose stream was closed comes back
_LARGE: Final = 64 << 10  # a body over this many bytes is looked at in a thread, if one look is not enough
_HEADER: Final = 32 << 10  # bytes of a request's header
_FLUSH: Final = 2.0  # seconds for answers that are ready to get out at the end
STOP: Final = 4.0
"""Seconds in which calls that are cancelled at the end have to stop."""
_VERSION: Final = b"mcp-protocol-version"
_ENDING: Final = RpcError(types.CONNECTION_CLOSED, "the server is shutting down and takes no new requests")
_ENDED: Final = RpcError(types.CONNECTION_CLOSED, "the server has shut down")
_FULL: Final = RpcError(INTERNAL_ERROR, "too many sessions are open, and all are in use: try again later")
_NO_SESSION: Final = RpcError(INVALID_REQUEST, "Session not found")
_GONE: Final = (anyio.ClosedResourceError, anyio.BrokenResourceError)
_DIGITS: Final = 18  # of a declared length: more would only take longer to read


class HttpApp:
    """The application, and how to end it."""

    def __init__(
        self,
        core: Any,
        guard: Guard,
        *,
        path: str = "/mcp",
        sessions: bool = True,
        metrics: Metrics | None = None,
        health: Callable[[], dict[str, Any]] = dict,
        fast_path: FastPath | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        """`sessions` False: no client is remembered between two requests, so any process can answer any of them.
        `fast_path` gets each request before `mcp`. Of the `limits`, those of bodies and sessions apply here."""
        self.limits = limits or HttpLimits()
        self._json = self.limits.json
        self._readers = Workers(1)
        core.middleware.append(_writable)
        self._events = Events() if sessions else None
        self._manager = StreamableHTTPSessionManager(
            core,
            event_store=self._events,
            retry_interval=_RETRY if sessions else None,
            stateless=not sessions,
            max_request_body_size=self.limits.max_body,
            session_idle_timeout=None,  # ours counts what never gets to `mcp` too
            max_sessions=None,
        )
        self.sessions: HttpSessions | None = None
        """The sessions that are open; None if none are kept."""
        if sessions:
            self.sessions = HttpSessions(
                self.limits.max_sessions, self.limits.session_timeout, self._end_session
            )
            core.middleware.insert(0, self.sessions.middleware)
        if self._events is not None:
            core.middleware.insert(0, self._events.middleware)
        self._tasks: anyio.abc.TaskGroup | None = None  # while it is open
        self._metrics = metrics
        self._health = health
        self._fast_path = fast_path
        self._closing = False
        self._idle = Signal()
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
            middleware=[
                pages,
                Middleware(Guarded, guard=guard, open_paths=[HEALTH], authorised=authorised),
            ],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        with _filtered(_Departures(), "mcp.server.streamable_http"):
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
        connection = connection_of(scope)
        late = False
        with anyio.CancelScope() as until_told:
            kind.add(until_told)

            def too_late() -> None:
                nonlocal late
                late = True
                until_told.cancel()

            try:
                if connection is not None:
                    connection.body_awaited(too_late)
                body = await self._body(scope, receive, reply.send)
                if connection is not None:
                    connection.body_received()
                if body is not None:
                    await self._handle(scope, body, receive, reply)
            finally:
                kind.discard(until_told)
                if not self._under_way:
                    self._idle.notify()
        if until_told.cancelled_caught:
            await reply.cut_short(scope, receive, _too_slow() if late else _unavailable(_ENDED))

    async def _body(self, scope: Any, receive: Any, send: Any) -> bytes | None:
        """The body of a request. None if it was refused."""
        most = self.limits.max_body
        came, body = ([], None) if _declared_length(scope) > most else await bodies.read(receive, most)
        if body is not None:
            if json.detect_encoding(body) != "utf-8":  # `mcp` would decode it, past the limits
                await _invalid("the body must be UTF-8")(scope, receive, send)
                return None
            if json_limits.surely_within(body, self._json):
                return body
            reason = await self._exceeded(body)
            if reason is None:
                return body
            refused = _invalid(f"{reason}, which is the limit of this server", json_limits.find_id(body))
        elif came and came[-1]["type"] != "http.request":
            refused = _invalid("the body broke off")  # for nobody: the client has left
        else:
            # The connection stays open: the rest of the body is skipped, so that its sender gets to read this.
            refused = _invalid(f"the body is larger than {most} bytes (--max-body)", status=413)
        await refused(scope, receive, send)
        return None

    async def _exceeded(self, body: bytes) -> str | None:
        """Which limit the JSON of a body exceeds."""
        if len(body) <= _LARGE:
            return json_limits.exceeded(body, self._json)
        return await self._readers.run(partial(json_limits.exceeded, body, self._json))

    async def _handle(self, scope: Any, body: bytes, receive: Any, reply: "_Reply") -> None:
        if self._closing and (_only_listens(scope) or (scope["method"] != "GET" and _is_request(body))):
            await _unavailable(_ENDING)(scope, receive, reply.send)
            return
        if self.sessions is None:
            await self._answer(scope, body, receive, reply, None)
            return
        name = next((value.decode("latin-1") for key, value in scope["headers"] if key == HEADER), None)
        session = None if name is None else self.sessions.find(name)
        if session is not None:
            with session.exchange() as exchange:
                await self._answer(scope, body, receive, reply, exchange)
        elif name is not None and self.sessions.is_ending(name):
            await _refused(_NO_SESSION, 404)(scope, receive, reply.send)
        elif name is None and _is_handshake(scope) and self.sessions.full:
            await _unavailable(_FULL)(scope, receive, reply.send)
        else:
            await self._answer(scope, body, receive, reply, None)

    async def _answer(
        self, scope: Any, body: bytes, receive: Any, reply: "_Reply", exchange: Exchange | None
    ) -> None:
        """Answer a request, here or by `mcp`. `exchange` is None outside of a session."""
        early = None
        if self._fast_path is not None and not self._closing:
            answered, early = await self._fast_path.answer(scope, body, reply.send, exchange)
            if answered:
                return
        if early is None and scope["method"] == "POST":
            try:
                given = reply.request_id = bodies.request_id(body)
            except RpcError as error:
                await _refused(error, 400)(scope, receive, reply.send)
                return
            if exchange is not None and given is not None and not await exchange.claim(given):
                await _refused(id_in_use(given), 400, given)(scope, receive, reply.send)
                return
        receive = bodies.replayed([{"type": "http.request", "body": body, "more_body": False}], receive)
        if early is None:
            await self._through_mcp(scope, receive, reply.send)
            return
        reply.request_id = early.request_id
        with early.offered(scope, reply.is_complete):
            await self._through_mcp(scope, receive, reply.send)

    async def _through_mcp(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            if self._events is None:
                await self._manager.handle_request(scope, receive, send)
            else:
                await self._events.answering(self._manager.handle_request, scope, receive, send)
        except _GONE:
            logger.debug("a session has ended while a message for it was on its way")

    def close(self) -> None:
        """Take no new work, and end the streams on which clients only listen."""
        self._closing = True
        for stream in list(self._listening):
            stream.cancel()

    async def cut_off(self) -> None:
        """End what is still under way, when its answer has had the time to get out."""
        with anyio.move_on_after(_FLUSH):
            await self._idle.wait_until(lambda: not self._under_way)
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
        if self._complete:  # `mcp` answers once more when a session ends after its 202
            return
        if message["type"] == "http.response.start":
            self._started = True
            self._streams = any(
                key.lower() == b"content-type" and value.startswith(b"text/event-stream")
                for key, value in message.get("headers", ())
            )
        elif not message.get("more_body"):
            self._complete = True
        await self._send(message)

    async def cut_short(self, scope: Any, receive: Any, answer: Response) -> None:
        """End it as HTTP wants it, if it is not."""
        with anyio.move_on_after(_FLUSH):
            if not self._started:
                await answer(scope, receive, self._send)
            elif not self._complete:
                body = b""
                if self._streams and self.request_id is not None:
                    body = b"event: message\r\ndata: %b\r\n\r\n" % to_json(
                        make_error(self.request_id, _ENDED)
                    )
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


def _declared_length(scope: Any) -> int:
    """The length that a request says its body has. 0 if it does not say."""
    length = dict(scope["headers"]).get(b"content-length", b"")
    return int(length[:_DIGITS]) if length.isdigit() else 0


def _invalid(reason: str, request_id: Any = None, status: int = 400, **headers: str) -> Response:
    error = RpcError(INVALID_REQUEST, f"Invalid Request: {reason}")
    return JSONResponse(make_error(request_id, error), status, headers)


def _too_slow() -> Response:
    return _invalid("the body took too long to arrive", status=408, connection="close")


def _unavailable(reason: RpcError) -> Response:
    return JSONResponse(make_error(None, reason), 503, {"retry-after": "1", "connection": "close"})


def _refused(reason: RpcError, status: int, request_id: int | str | None = None) -> Response:
    return JSONResponse(make_error(request_id, reason), status)


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
        Tracked(app.asgi),
        http="h11",  # httptools, where it is installed, would hold a header of any size
        h11_max_incomplete_event_size=_HEADER,
        ws="none",
        log_level="warning",
        access_log=False,
        lifespan="on",
        timeout_keep_alive=math.ceil(app.limits.idle_timeout),
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    server = _Server(config)
    connections = Connections(app.limits, server.make_protocol)
    accepting = anyio.CancelScope()

    async def accept() -> None:
        await server.ready.wait()
        with listening, accepting:
            await connections.accept_from(listening)

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
            accepting.cancel()
            server.should_exit = True
            await anyio.sleep_forever()  # with signals still caught: the end is under way

    with _filtered(RepeatLimit(), "uvicorn.error", "asyncio"):  # strangers must not fill a disk
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(until_told)
            tasks.start_soon(accept)
            await server.serve(sockets=[])
            tasks.cancel_scope.cancel()


@contextmanager
def _filtered(each: logging.Filter, *names: str) -> Iterator[None]:
    """Have a filter on these loggers."""
    loggers = [logging.getLogger(name) for name in names]
    for logger_ in loggers:
        logger_.addFilter(each)
    try:
        yield
    finally:
        for logger_ in loggers:
            logger_.removeFilter(each)


class _Departures(logging.Filter):
    """Makes a debug line of a traceback that only says that a client has left, or has ended its session."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        others = error.split(_GONE)[1] if isinstance(error, BaseExceptionGroup) else error
        if error is None or not (others is None or isinstance(others, _GONE)):
            return True
        logger.debug("%s: the client has left", record.getMessage())
        return False


class _Server(uvicorn.Server):
    """Uvicorn without its own handling of signals (ours drains first) and without its own accepting."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    def make_protocol(self, state: dict[str, Any]) -> asyncio.Protocol:
        """The protocol that speaks HTTP on a connection, with `state` in the scope of its requests."""
        make: Any = self.config.http_protocol_class  # with the arguments that uvicorn itself gives it
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state={**self.lifespan.state, **state}
        )
        return protocol

    @contextmanager
    def capture_signals(self) -> Any:
        yield
