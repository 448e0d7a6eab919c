"""The TCP connections of an HTTP server: accepts them, and decides how long each one is kept.

Uvicorn speaks HTTP on them. It has no timeout for a request's header and none for a response that is not read, and
asyncio continues to accept when no file descriptors are left. So clients that only connect could block a server for
all others. Therefore:

- Until a connection has sent a request that the guard accepted, it is a stranger. When the server is full, the
  oldest stranger is closed to make room for a new connection. If there is none, the connection that has been idle
  for longest is closed. If all are busy, the new connection is refused with 503.
- The first byte of a request, the rest of its header and its body must arrive in time, and a response must be read
  in time.

The limit of connections is lower than that of file descriptors, so that accepting does not fail. If it fails
anyway, because tools use the rest, a stranger is closed and accepting pauses. For asyncio only.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire.mcp.serve.limits import HttpLimits, connection_limit

logger = logger_for("serving")

CONNECTION: Final = "toolwire.connection"
"""Key of the connection in the scope of a request, if the ASGI server is ours."""
_BATCH: Final = 16  # connections accepted in one turn of the event loop
_RETRY_DELAY: Final = 0.1  # seconds after accepting has failed
_CHECK_INTERVAL: Final = 1.0  # seconds between two checks of the deadlines, at most
_LOG_INTERVAL: Final = 10.0  # seconds between two lines in the log
_NO_LINGER: Final = struct.pack("ii", 1, 0)  # SO_LINGER: discard what is not sent
_SLICE: Final = 8 << 10  # bytes of input that are parsed in one turn of the event loop
_SKIPPED_DIGITS: Final = 4  # a stranger's body is skipped if its Content-Length has at most so many digits
_MIN_READ: Final = 64 << 10  # bytes of a response that must be read within the write timeout

MakeProtocol = Callable[[dict[str, Any]], asyncio.Protocol]
"""Makes the protocol that speaks HTTP on a connection. It puts the given state into the scope of each request."""


def _make_response(status: str, text: str) -> bytes:
    """Make a complete HTTP response, after which the connection is closed."""
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len(text)}\r\n"
        f"retry-after: 1\r\nconnection: close\r\n\r\n{text}"
    ).encode("ascii")


_TOO_SLOW: Final = _make_response("408 Request Timeout", "The header of the request took too long to arrive")
_FULL: Final = _make_response("503 Service Unavailable", "The server has no free connection")


class Connections:
    """The open connections, and those among them that may be closed for others."""

    def __init__(self, limits: HttpLimits, make_protocol: MakeProtocol) -> None:
        self.limits = limits
        self.limit = connection_limit(limits)
        self._make_protocol = make_protocol
        self._open: set[Connection] = set()
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._strangers: dict[Connection, None] = {}  # oldest first
        self._idle: dict[Connection, None] = {}  # longest idle first
        self._evicted = 0
        self._refused = 0
        self._failure = ""

    def __len__(self) -> int:
        """The number of open connections."""
        return len(self._open)

    async def accept_from(self, listening: socket.socket) -> None:
        """Accept connections until cancelled, which leaves open connections open."""
        listening.setblocking(False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._enforce_limits)
            while True:
                for _ in range(_BATCH):
                    await self._accept_one(listening, tasks)
                await asyncio.sleep(0)  # accepting does not yield while more connections are waiting

    async def _accept_one(self, listening: socket.socket, tasks: Any) -> None:
        try:
            accepted, address = await asyncio.get_running_loop().sock_accept(listening)
        except ConnectionAbortedError:
            return
        except OSError as error:
            if listening.fileno() < 0:
                raise
            self._failure = error.strerror or str(error)
            self._evict(self._strangers)
            await asyncio.sleep(_RETRY_DELAY)
            return
        connection = self._add(address)
        if connection is None:
            self._refused += 1
            _refuse(accepted)
        else:
            tasks.start_soon(self._serve, accepted, connection)

    def _add(self, address: Any) -> "Connection | None":
        """Add a new connection, and close another one for it if necessary; None if none can be closed."""
        host = address[0] if isinstance(address, tuple) and address else ""
        own = self._by_address.get(host, {})
        if self.limits.max_per_address is not None and len(own) >= self.limits.max_per_address:
            strangers, idle = (
                {each: None for each in own if each in kind} for kind in (self._strangers, self._idle)
            )
            if not self._evict(strangers, idle):
                return None
        elif len(self._open) >= self.limit and not self._evict(self._strangers, self._idle):
            return None
        connection = Connection(self, host, self._make_protocol)
        self._open.add(connection)
        self._by_address.setdefault(host, {})[connection] = None
        self._strangers[connection] = None  # so that it is closed before any trusted connection
        return connection

    def _evict(self, *kinds: "dict[Connection, None]") -> bool:
        """Close the first connection of the first kind that has any. False if there is none."""
        for kind in kinds:
            for connection in kind:
                self._evicted += 1
                connection.abort()
                return True
        return False

    async def _serve(self, accepted: socket.socket, connection: "Connection") -> None:
        """Start HTTP on an accepted connection. Returns at once."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
        except BaseException as error:
            accepted.close()
            self.remove(connection)
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, OSError):  # otherwise the client has already disconnected
                logger.exception("a connection could not be served")

    # Called by connections.

    def mark_trusted(self, connection: "Connection") -> None:
        """Mark a connection as trusted: it has sent a request that the guard accepted."""
        self._strangers.pop(connection, None)

    def mark_idle(self, connection: "Connection", idle: bool) -> None:
        """Mark a trusted connection as waiting for its next request, or not."""
        if idle:
            self._idle[connection] = None
        else:
            self._idle.pop(connection, None)

    def mark_closing(self, connection: "Connection") -> None:
        """Mark a connection as being closed. It counts as open until it is closed."""
        self._strangers.pop(connection, None)
        self._idle.pop(connection, None)

    def remove(self, connection: "Connection") -> None:
        """Remove a connection that is closed."""
        self.mark_closing(connection)
        self._open.discard(connection)
        own = self._by_address.get(connection.host, {})
        own.pop(connection, None)
        if not own:
            self._by_address.pop(connection.host, None)

    # Timeouts.

    async def _enforce_limits(self) -> None:
        limits = self.limits
        shortest = min(limits.header_timeout, limits.body_timeout, limits.idle_timeout, limits.write_timeout)
        logged = -_LOG_INTERVAL
        while True:
            await asyncio.sleep(min(_CHECK_INTERVAL, shortest / 4))
            now = asyncio.get_running_loop().time()
            for connection in list(self._open):
                try:
                    connection.enforce_limits(now)
                except Exception:  # the boundary: one connection must not end the server
                    logger.exception("a connection is closed because its limits could not be checked")
                    connection.abort()
            if now - logged >= _LOG_INTERVAL and (self._evicted or self._refused or self._failure):
                logged = now
                self._log()

    def _log(self) -> None:
        if self._failure:
            logger.warning("cannot accept connections: %s; trying again", self._failure)
        if self._evicted or self._refused:
            logger.warning(
                "%d connections are open, which is the limit: %d were closed to make room, %d refused",
                len(self._open),
                self._evicted,
                self._refused,
            )
        self._evicted, self._refused, self._failure = 0, 0, ""


class Connection(asyncio.Protocol):
    """One connection: passes everything on to the protocol that speaks HTTP, and enforces its deadlines."""

    def __init__(self, connections: Connections, host: str, make_protocol: MakeProtocol) -> None:
        self.host = host
        self._connections = connections
        self._limits = connections.limits
        self._protocol = make_protocol({CONNECTION: self})
        self._transport: asyncio.Transport | None = None
        self._now = asyncio.get_running_loop().time
        self._input = bytearray()  # not yet passed to the protocol
        self._feeding = False
        self.input_paused = False  # by the protocol
        self._trusted = False
        self._running = 0
        self._between_requests = True  # no byte of the next request has arrived yet
        self._closing = False
        self._deadline: float | None = None
        self._on_timeout: Callable[[], None] | None = None  # called at the deadline, instead of closing
        self._unread_since: float | None = None
        self._unread = 0

    # From the transport.

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._deadline = self._now() + self._limits.header_timeout
        wrapped: Any = _Transport(self, transport)
        self._protocol.connection_made(wrapped)
        if self._closing:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._between_requests:
            self._between_requests = False
            self._deadline = self._now() + self._limits.header_timeout
            self._connections.mark_idle(self, False)
        if self._input or len(data) > _SLICE:
            self._input += data
            self.feed()
        else:
            self._protocol.data_received(data)

    def feed(self) -> None:
        """Pass a slice of the input on, unless the protocol has paused; the rest in the next turns of the loop.

        One read returns up to 256 KB, which take a second to parse if they are chunks of one byte.
        """
        if self._transport is None or self._transport.is_closing() or self._feeding or self.input_paused:
            return
        if not self._input:
            self._transport.resume_reading()
            return
        self._transport.pause_reading()
        piece = bytes(self._input[:_SLICE])
        del self._input[:_SLICE]
        self._feeding = True
        self._protocol.data_received(piece)
        asyncio.get_running_loop().call_soon(self._feed_next)

    def _feed_next(self) -> None:
        self._feeding = False
        self.feed()

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._unread_since = self._now()
        self._unread = self._in_buffer()
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True  # its requests may still run for a while
        self._transport = None
        self._input.clear()
        self._connections.remove(self)
        self._protocol.connection_lost(exc)

    # From the application.

    def start_request(self) -> None:
        """Start a request: its header is complete."""
        self._running += 1
        self._between_requests = False
        self._deadline = None
        self._connections.mark_idle(self, False)

    def authorise(self) -> None:
        """Mark the connection as trusted: the guard has accepted a request."""
        if not self._trusted:
            self._trusted = True
            self._connections.mark_trusted(self)

    def start_body(self, on_timeout: Callable[[], None]) -> None:
        """Start to read a request's body. `on_timeout` is called when that takes too long."""
        self._on_timeout = on_timeout
        self._deadline = self._now() + self._limits.body_timeout

    def finish_body(self) -> None:
        """Finish reading a request's body."""
        self._deadline = self._on_timeout = None

    def finish_request(self, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Finish a request with these headers: its response was written."""
        self._running -= 1
        if self._running or self._closing:  # the next one may have started before this response was sent
            return
        self._on_timeout = None
        if self._trusted:
            self._deadline = self._now() + self._limits.idle_timeout
            self._connections.mark_idle(self, True)
        elif _has_large_body(headers):  # of a stranger, it is not skipped
            self._close()
            return
        else:
            self._deadline = self._now() + self._limits.header_timeout
        self._between_requests = True

    # The limits.

    def enforce_limits(self, now: float) -> None:
        """Close the connection if a deadline has passed."""
        if self._transport is None or self._closing:
            return
        if self._unread_since is not None and now >= self._unread_since + self._limits.write_timeout:
            left = self._in_buffer()
            if self._unread - left < _MIN_READ:
                self.abort()
            self._unread_since, self._unread = now, left
        elif self._deadline is None or now < self._deadline:
            return
        elif self._on_timeout is not None:
            self._on_timeout()
            self.finish_body()
        else:
            if not self._between_requests and not self._in_buffer():
                self._transport.write(_TOO_SLOW)
            self._close()

    def _close(self) -> None:
        """Close the connection after sending what was written, unless the client does not read."""
        if self._in_buffer():
            self.abort()
            return
        self._closing = True
        self._connections.mark_closing(self)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, whatever it is doing."""
        self._closing = True
        self._connections.mark_closing(self)
        if self._transport is None:
            return
        if self._in_buffer():
            # Otherwise the kernel would keep sending to a client that does not read.
            sock = self._transport.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    def _in_buffer(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()


class _Transport:
    """The transport that the protocol gets: it pauses and resumes reading through the connection."""

    def __init__(self, connection: Connection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport
        self.write = transport.write

    def pause_reading(self) -> None:
        self._connection.input_paused = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._connection.input_paused = False
        self._connection.feed()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class RequestTracker:
    """An ASGI application that notifies each request's connection when the request starts and ends."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        connection: Connection | None = (scope.get("state") or {}).get(CONNECTION)
        if connection is None:
            await self._app(scope, receive, send)
            return
        scope[CONNECTION] = connection
        connection.start_request()
        try:
            await self._app(scope, receive, send)
        finally:
            connection.finish_request(scope["headers"])


def mark_authorised(scope: MutableMapping[str, Any]) -> None:
    """Mark the connection of a request as trusted: the guard has accepted the request."""
    connection: Connection | None = scope.get(CONNECTION)
    if connection is not None:
        connection.authorise()


def _has_large_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return True if a request has a body that may not have arrived with its header."""
    found = dict(headers)
    return b"transfer-encoding" in found or len(found.get(b"content-length", b"")) > _SKIPPED_DIGITS


def _refuse(accepted: socket.socket) -> None:
    """Tell a client that the server is full, and close its connection."""
    with accepted:
        try:
            accepted.setblocking(False)
            accepted.send(_FULL)
        except OSError:
            pass
