"""Serves a server over streamable HTTP: an ASGI application, and a function that runs it with uvicorn.

Owns the paths, the guard in front of them, the limits of a request's body, and the shutdown: open streams are
closed, new requests are refused, running calls may finish within `drain` seconds, the rest is cancelled and gets an
error. The session manager of `mcp` implements the protocol, and `connections` manages the TCP connections.
"""

import asyncio
import errno
import json
import logging
import math
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic_core import from_json, to_json
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolwire._protocol.jsonrpc import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    SHUTTING_DOWN,
    RpcError,
    id_in_use,
    make_error,
)
from toolwire._support.log import RepeatLimit, logger_for
from toolwire._support.threads import Workers
from toolwire._support.waiting import Signal
from toolwire.errors import UsageError
from toolwire.mcp.compat import HANDSHAKE_PROTOCOL_VERSIONS
from toolwire.mcp.serve.access import Guard, GuardMiddleware
from toolwire.mcp.serve.connections import (
    CONNECTION,
    Connection,
    Connections,
    RequestTracker,
    mark_authorised,
)
from toolwire.mcp.serve.fast_path import FastPath
from toolwire.mcp.serve.host import ServerHost
from toolwire.mcp.serve.http_sessions import HEADER, MAX_ID, Exchange, HttpSession, HttpSessions, SessionLogs
from toolwire.mcp.serve.limits import HttpLimits, describe_excess, find_id, is_clearly_within
from toolwire.mcp.serve.metrics import CONTENT_TYPE, Metrics
from toolwire.mcp.serve.page import WelcomePage

logger = logger_for("serving")

HEALTH: Final = "/healthz"
METRICS: Final = "/metrics"
_LOOPBACK_PAGES: Final = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
_RETRY: Final = 1_000  # milliseconds after which a client whose stream was closed resumes it
_LARGE: Final = 64 << 10  # bytes; the JSON of a larger body is checked in a thread
_MAX_HEADER: Final = 32 << 10  # bytes of a request's header
_FLUSH_TIMEOUT: Final = 2.0  # seconds to send finished responses at shutdown
STOP_TIMEOUT: Final = 4.0
"""Seconds that calls have to stop after they are cancelled at shutdown."""
_VERSION: Final = b"mcp-protocol-version"
_SHUT_DOWN: Final = RpcError(CONNECTION_CLOSED, "the server has shut down")
_FULL: Final = RpcError(INTERNAL_ERROR, "too many sessions are open, and all are in use: try again later")
_NO_SESSION: Final = RpcError(INVALID_REQUEST, "Session not found")
_CLIENT_LEFT: Final = (anyio.ClosedResourceError, anyio.BrokenResourceError)
_MAX_DIGITS: Final = 18  # of a Content-Length


class HttpApp:
    """The ASGI application (`asgi`), and how to shut it down."""

    def __init__(
        self,
        host: ServerHost,
        guard: Guard,
        *,
        path: str = "/mcp",
        sessions: bool = True,
        limits: HttpLimits | None = None,
    ) -> None:
        """Without `sessions` nothing is kept between two requests, so that any process can answer any of them.
        Only the `limits` of bodies and sessions apply here."""
        self.host = host
        self.limits = limits or HttpLimits()
        self.fast_path = FastPath(host)
        """Gets each request before `mcp`."""
        self._metrics = Metrics(host)
        host.observer = self._metrics
        mcp_server = host.mcp_server
        self._json = self.limits.json
        self._readers = Workers(1)
        mcp_server.middleware.append(_refuse_non_json)
        self._logs = SessionLogs() if sessions else None
        self._manager = StreamableHTTPSessionManager(
            mcp_server,
            event_store=self._logs,
            retry_interval=_RETRY if sessions else None,
            stateless=not sessions,
            max_request_body_size=self.limits.max_body,
            session_idle_timeout=None,  # ours also counts requests that `mcp` never sees
            max_sessions=None,
        )
        self.sessions: HttpSessions | None = None
        """The open sessions; None if the server keeps none."""
        if sessions:
            self.sessions = HttpSessions(
                self.limits.max_sessions, self.limits.session_timeout, self._end_session
            )
            mcp_server.middleware.insert(0, self.sessions.middleware)
        if self._logs is not None:
            mcp_server.middleware.insert(0, self._logs.middleware)
        self._tasks: anyio.abc.TaskGroup | None = None  # while it is open
        self._closing = False
        self._idle = Signal()
        self._requests: set[anyio.CancelScope] = set()
        self._streams: set[anyio.CancelScope] = set()
        routes = [
            Route(path, endpoint=_Endpoint(self._serve)),
            Route(HEALTH, endpoint=self._get_health, methods=["GET", "HEAD"]),
            Route(METRICS, endpoint=self._get_metrics, methods=["GET"]),
        ]
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
                Middleware(
                    GuardMiddleware,
                    guard=guard,
                    open_paths=[HEALTH],
                    on_authorised=mark_authorised,
                    find_page=WelcomePage(mcp_server, guard, path).find,
                ),
            ],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        with _filter_logs(_ClientLeftFilter(), "mcp.server.streamable_http"):
            async with self._manager.run(), anyio.create_task_group() as self._tasks:
                if self.sessions is not None:
                    self._tasks.start_soon(self.sessions.end_idle)
                yield
                self._tasks.cancel_scope.cancel()

    def _end_session(self, session: HttpSession) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(self._delete, session)

    async def _delete(self, session: HttpSession) -> None:
        """Have `mcp` end a session, as if its client had sent a DELETE request."""

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
        except Exception:  # the boundary of a background task: the server must continue
            logger.exception("a session could not be ended")

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        request = _HttpRequest(scope, receive, send)
        # A stream of notifications never ends by itself, and a request of a slow client may not either, so both
        # must be cancellable.
        kind = self._streams if request.opens_stream else self._requests
        connection: Connection | None = scope.get(CONNECTION)
        late = False
        with anyio.CancelScope() as cancellable:
            kind.add(cancellable)

            def too_late() -> None:
                nonlocal late
                late = True
                cancellable.cancel()

            try:
                if connection is not None:
                    connection.start_body(too_late)
                refused = await self._read_body(request)
                if connection is not None:
                    connection.finish_body()
                if refused is None:
                    refused = await self._handle(request)
                if refused is not None:
                    await refused(scope, receive, request.send)
            finally:
                kind.discard(cancellable)
                if not self._requests:
                    self._idle.notify()
        if cancellable.cancelled_caught:
            await request.abort(_too_slow() if late else _unavailable(_SHUT_DOWN))

    async def _read_body(self, request: "_HttpRequest") -> Response | None:
        """Read the body of a request and decode it. Returns the response of a request that is refused."""
        limit = self.limits.max_body
        left, body = (False, None)
        if request.declared_length <= limit:
            left, body = await _receive_body(request.receive, limit)
        if left:
            return _invalid("the body is incomplete")  # not received: the client has disconnected
        if body is None:
            # The connection stays open: the rest of the body is skipped, so that the client can read the response.
            return _invalid(f"the body is larger than {limit} bytes (--max-body)", status=413)
        if json.detect_encoding(body) != "utf-8":  # `mcp` would decode it, past the limits
            return _invalid("the body must be UTF-8")
        if not is_clearly_within(body, self._json):
            excess = await self._check_json(body)
            if excess is not None:
                return _invalid(f"{excess}, which is the limit of this server", find_id(body))
        request.body = body
        with suppress(ValueError):  # `mcp` says what is wrong with it
            request.message = from_json(body)
        return None

    async def _check_json(self, body: bytes) -> str | None:
        """Return a description of the limit that the JSON of a body exceeds; None if it exceeds none."""
        if len(body) <= _LARGE:
            return describe_excess(body, self._json)
        return await self._readers.run(partial(describe_excess, body, self._json))

    async def _handle(self, request: "_HttpRequest") -> Response | None:
        """Answer a request. Returns the response of a request that is refused."""
        if self._closing and request.needs_response:
            return _unavailable(SHUTTING_DOWN)
        try:
            request.id = _find_id(request.message) if request.method == "POST" else None
        except RpcError as error:
            return _refuse(error, 400)
        if self.sessions is not None:
            return await self._handle_in_session(request, self.sessions)
        await self._answer(request)
        return None

    async def _handle_in_session(self, request: "_HttpRequest", sessions: HttpSessions) -> Response | None:
        session_id = request.find_header(HEADER)
        session = None if session_id is None else sessions.find(session_id)
        if session is not None:
            with Exchange(session) as exchange:
                if request.id is not None and not await exchange.claim(request.id):
                    return _refuse(id_in_use(request.id), 400, request.id)
                await self._answer(request, exchange)
        elif session_id is not None and sessions.is_ending(session_id):
            return _refuse(_NO_SESSION, 404)
        elif session_id is None and request.may_open_session and sessions.full:
            return _unavailable(_FULL)
        else:
            await self._answer(request)
        return None

    async def _answer(self, request: "_HttpRequest", exchange: Exchange | None = None) -> None:
        """Answer a request, on the fast path or through `mcp`. `exchange` is None outside of a session."""
        answer = None
        if not self._closing:
            answer = await self.fast_path.answer(
                request.scope, request.headers, request.body, request.message
            )
        if isinstance(answer, tuple):
            if exchange is not None:
                exchange.request.answered = True
            await request.send_at_once(*answer)
            return
        receive = _replay(request.body, request.receive)
        request.body, request.message = b"", None  # `mcp` decodes it itself, and its response may take long
        if answer is None:
            await self._pass_to_mcp(request.scope, receive, request.send)
            return
        with answer.put_into_scope(request.scope, lambda: request.is_complete):
            await self._pass_to_mcp(request.scope, receive, request.send)

    async def _pass_to_mcp(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            if self._logs is None:
                await self._manager.handle_request(scope, receive, send)
            else:
                await self._logs.run(self._manager.handle_request, scope, receive, send)
        except _CLIENT_LEFT:
            logger.debug("a session ended while a message for it was being delivered")

    def close(self) -> None:
        """Refuse new requests, and end the streams of notifications."""
        self._closing = True
        for stream in list(self._streams):
            stream.cancel()

    async def cancel_all(self) -> None:
        """Cancel all requests, after a short time for finished responses to be sent."""
        with anyio.move_on_after(_FLUSH_TIMEOUT):
            await self._idle.wait_until(lambda: not self._requests)
        for each in [*self._requests, *self._streams]:
            each.cancel()

    async def _get_health(self, _request: Request) -> Response:
        status, code = ("closing", 503) if self._closing else ("ok", 200)
        name, running = self.host.mcp_server.name, self.host.running
        return JSONResponse({"status": status, "server": name, "running": running}, code)

    async def _get_metrics(self, _request: Request) -> Response:
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)


class _Endpoint:
    """Makes a plain ASGI function an endpoint for all HTTP methods."""

    def __init__(self, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        self._app = app

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        return self._app(scope, receive, send)


class _HttpRequest:
    """One HTTP request to the path of MCP, and how much of its response was sent."""

    def __init__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        """The headers. Of a repeated one, the first counts, as in `mcp`."""
        self.body = b""
        self.message: Any = None
        """The decoded body; None if it is not JSON."""
        self.id: int | str | None = None
        """The id of the JSON-RPC request, once it is known."""
        self.opens_stream = self.method == "GET" and b"last-event-id" not in self.headers
        """True for a GET that opens a stream of notifications, rather than one that resumes a response."""
        self.is_complete = False
        """True if all of the response was sent."""
        self._send = send
        self._started = False
        self._is_event_stream = False

    def find_header(self, name: bytes) -> str | None:
        """Return the value of a header; None if there is none."""
        return self.headers[name].decode("latin-1") if name in self.headers else None

    @property
    def declared_length(self) -> int:
        """The Content-Length; 0 if there is none."""
        length = self.headers.get(b"content-length", b"")
        return int(length[:_MAX_DIGITS]) if length.isdigit() else 0

    @property
    def may_open_session(self) -> bool:
        """True if a request without a session may open one. Those of 2026-07-28 never do."""
        version = self.find_header(_VERSION)
        return self.method == "POST" and (version is None or version in HANDSHAKE_PROTOCOL_VERSIONS)

    @property
    def needs_response(self) -> bool:
        """True for a JSON-RPC request, an invalid message, or a stream; False for a response or notification."""
        if self.method == "GET":
            return self.opens_stream
        return not isinstance(self.message, dict) or {"id", "method"} <= self.message.keys()

    async def send(self, message: Any) -> None:
        """Send one ASGI message of the response."""
        if self.is_complete:  # `mcp` responds once more when a session ends after its 202
            return
        if message["type"] == "http.response.start":
            self._started = True
            self._is_event_stream = any(
                key.lower() == b"content-type" and value.startswith(b"text/event-stream")
                for key, value in message.get("headers", ())
            )
        elif not message.get("more_body"):
            self.is_complete = True
        await self._send(message)

    async def send_at_once(self, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send the whole response."""
        headers = [*headers, (b"content-length", b"%d" % len(body))]
        self._started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self.is_complete = True
        await self._send({"type": "http.response.body", "body": body})

    async def abort(self, instead: Response) -> None:
        """Complete a response that was cancelled. If nothing of it was sent yet, `instead` is sent."""
        with anyio.move_on_after(_FLUSH_TIMEOUT):
            if not self._started:
                await instead(self.scope, self.receive, self._send)
            elif not self.is_complete:
                body = b""
                if self._is_event_stream and self.id is not None:
                    body = b"event: message\r\ndata: %b\r\n\r\n" % to_json(make_error(self.id, _SHUT_DOWN))
                await self._send({"type": "http.response.body", "body": body})


async def _receive_body(receive: Any, limit: int) -> tuple[bool, bytes | None]:
    """Return whether the client has disconnected, and the body; None if it has, or sent more than `limit` bytes."""
    parts: list[bytes] = []
    size = 0
    while size <= limit:
        message = await receive()
        if message["type"] != "http.request":
            return True, None
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if not message.get("more_body"):
            return False, b"".join(parts)
    return False, None


def _replay(body: bytes, receive: Any) -> Any:
    """Return a `receive` that first returns a body that was already read, and then continues."""
    first = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return first.pop() if first else await receive()

    return replay


def _find_id(message: Any) -> int | str | None:
    """Return the id of a JSON-RPC request; None for anything else, such as a notification.

    Raises `RpcError` for a request with an invalid id: `mcp` would take it for a notification and never respond.
    """
    if not isinstance(message, dict) or not {"id", "method"} <= message.keys():
        return None
    request_id = message["id"]
    if type(request_id) is int or (type(request_id) is str and len(request_id) <= MAX_ID):
        return request_id
    raise RpcError(
        INVALID_REQUEST,
        f"Invalid Request: the id must be an integer or a string of at most {MAX_ID} characters",
    )


def _invalid(reason: str, request_id: Any = None, status: int = 400, **headers: str) -> Response:
    error = RpcError(INVALID_REQUEST, f"Invalid Request: {reason}")
    return JSONResponse(make_error(request_id, error), status, headers)


def _too_slow() -> Response:
    return _invalid("the body took too long to arrive", status=408, connection="close")


def _unavailable(reason: RpcError) -> Response:
    return JSONResponse(make_error(None, reason), 503, {"retry-after": "1", "connection": "close"})


def _refuse(reason: RpcError, status: int, request_id: int | str | None = None) -> Response:
    return JSONResponse(make_error(request_id, reason), status)


async def _refuse_non_json(ctx: Any, call_next: Any) -> Any:
    """Middleware of `mcp`: replace a result or error that is not JSON by an error that is."""
    try:
        result = await call_next(ctx)
    except Exception as error:
        if _is_json(error.error.model_dump() if isinstance(error, MCPError) else str(error)):
            raise
    else:
        if _is_json(result):
            return result
    raise MCPError(code=INTERNAL_ERROR, message="the result cannot be written as JSON")


def _is_json(result: Any) -> bool:
    try:
        to_json(result)
    except (ValueError, RecursionError) as error:
        logger.warning("a result cannot be written as JSON: %s", error)
        return False
    return True


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `UsageError` if the address cannot be used."""
    host = host.removeprefix("[").removesuffix("]")
    if not host:
        raise UsageError(
            "the host is empty: use 127.0.0.1 for this machine only, 0.0.0.0 for all its addresses"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
        # asyncio sets TCP_NODELAY only if the socket's protocol is TCP. Without it each response would wait 40 ms.
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listening.detach())
    except OSError as error:
        taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        reason = str(error.strerror or error).partition(" (while ")[0]  # the rest repeats the address
        hint = "; choose another with --port, or 0 for any free one" if taken else ""
        raise UsageError(f"cannot listen on {host}:{port}: {reason}{hint}") from None
    except UnicodeError:  # an invalid host name
        raise UsageError(f"cannot listen on {host}:{port}: no such name") from None
    except OverflowError:
        raise UsageError(f"port {port} is out of range: 0 to 65535") from None


async def serve_app(
    app: HttpApp,
    listening: socket.socket,
    *,
    drain: float,
    announce: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then let running requests finish within `drain` seconds.

    Requests that still run after that are cancelled. Their clients get an error only when they have stopped, so
    that nothing continues that a client believes to be over. `announce` is called when the signal handlers are
    installed and clients can connect.
    """
    config = uvicorn.Config(
        RequestTracker(app.asgi),
        http="h11",  # httptools, if it is installed, would accept a header of any size
        h11_max_incomplete_event_size=_MAX_HEADER,
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

    async def shut_down_on(signals: AsyncIterator[signal.Signals]) -> None:
        await anext(signals)
        app.host.close_subscriptions()
        app.close()
        with anyio.CancelScope() as waiting:
            async with anyio.create_task_group() as either:

                async def again() -> None:
                    await anext(signals)
                    waiting.cancel()

                either.start_soon(again)
                await app.host.wait_until_idle(drain)
                either.cancel_scope.cancel()
        await app.host.stop(STOP_TIMEOUT)
        await app.cancel_all()
        accepting.cancel()
        server.should_exit = True

    with (
        _filter_logs(RepeatLimit(), "uvicorn.error", "asyncio"),  # clients must not fill the disk
        # Until the end, so that further signals are ignored.
        anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received,
    ):
        if announce is not None:
            await announce()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shut_down_on, aiter(received))
            tasks.start_soon(accept)
            await server.serve(sockets=[])
            tasks.cancel_scope.cancel()


@contextmanager
def _filter_logs(each: logging.Filter, *names: str) -> Iterator[None]:
    """Add a filter to these loggers inside the block."""
    loggers = [logging.getLogger(name) for name in names]
    for logger_ in loggers:
        logger_.addFilter(each)
    try:
        yield
    finally:
        for logger_ in loggers:
            logger_.removeFilter(each)


class _ClientLeftFilter(logging.Filter):
    """Replaces a traceback that only says that a client has disconnected, or ended its session, by a debug line."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        others = error.split(_CLIENT_LEFT)[1] if isinstance(error, BaseExceptionGroup) else error
        if error is None or not (others is None or isinstance(others, _CLIENT_LEFT)):
            return True
        logger.debug("%s: the client has disconnected", record.getMessage())
        return False


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handling (ours drains first), and without accepting connections itself."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    def make_protocol(self, state: dict[str, Any]) -> asyncio.Protocol:
        """Make the protocol that speaks HTTP on a connection, with `state` in the scope of its requests."""
        make: Any = self.config.http_protocol_class  # with the arguments that uvicorn itself gives it
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state={**self.lifespan.state, **state}
        )
        return protocol

    @contextmanager
    def capture_signals(self) -> Any:
        yield
