"""The TCP connections of an HTTP server: accepts them, and decides how long each one is kept.

Uvicorn speaks HTTP on them. It has no time limit for a request's header and none for an answer that nobody reads,
and asyncio's own accepting goes on when no descriptors are left. So a server could be shut for everybody by clients
that only connect. Here each connection must earn its place:

- Until a connection has sent a request that the guard let through, it is a stranger. When the server is full, the
  stranger that came first gives way to a new connection. If there is none, the connection gives way that has been
  idle for longest. If all are busy, the new connection is refused with 503.
- The first byte of a request, the rest of its header and its body must come in time, and an answer must be read in
  time.

The limit of connections is below that of descriptors, so that accepting does not fail. Should it fail all the same,
because tools have taken the rest, a stranger gives way and accepting pauses. For asyncio only.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire.mcp.serve.limits import HttpLimits, connection_limit

logger = logger_for("serving")

_KEY: Final = "toolwire.connection"  # in the state of a request's scope
_BATCH: Final = 16  # connections accepted in one turn of the event loop
_PAUSE: Final = 0.1  # seconds without accepting after accepting has failed
_LOOK: Final = 1.0  # seconds between two looks at the deadlines, at most
_TELL: Final = 10.0  # seconds between two lines in the log
_AT_ONCE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: throw away what is not sent
_SLICE: Final = 8 << 10  # bytes that are looked at in one turn of the event loop
_SKIPPED: Final = 4  # digits of the length of a stranger's body that is skipped
_SOME: Final = 64 << 10  # bytes of an answer that must be read within the write timeout

MakeProtocol = Callable[[dict[str, Any]], asyncio.Protocol]
"""Makes the protocol that speaks HTTP on a connection. It passes the given state on to each request's scope."""


def _answer(status: str, text: str) -> bytes:
    """A whole answer of HTTP, after which the connection is closed."""
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len(text)}\r\n"
        f"retry-after: 1\r\nconnection: close\r\n\r\n{text}"
    ).encode("ascii")


_TOO_SLOW: Final = _answer("408 Request Timeout", "The header of the request took too long to arrive")
_FULL: Final = _answer("503 Service Unavailable", "The server has no free connection")


class Connections:
    """The connections that are open, and those among them that may give way."""

    def __init__(self, limits: HttpLimits, make_protocol: MakeProtocol) -> None:
        self.limits = limits
        self.most = connection_limit(limits)
        self._make_protocol = make_protocol
        self._open: set[Connection] = set()
        self._by_address: dict[str, dict[Connection, None]] = {}
        # In the order of their coming, and of their last request:
        self._strangers: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}
        self._gave_way = 0
        self._refused = 0
        self._failure = ""

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    async def accept_from(self, listening: socket.socket) -> None:
        """Accept connections until cancelled. Those that are open then stay open."""
        listening.setblocking(False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_limits)
            while True:
                for _ in range(_BATCH):
                    await self._accept_one(listening, tasks)
                await asyncio.sleep(0)  # accepting does not wait while there are more

    async def _accept_one(self, listening: socket.socket, tasks: Any) -> None:
        try:
            accepted, address = await asyncio.get_running_loop().sock_accept(listening)
        except ConnectionAbortedError:
            return
        except OSError as error:
            if listening.fileno() < 0:
                raise
            self._failure = error.strerror or str(error)
            self._give_way(self._strangers)
            await asyncio.sleep(_PAUSE)
            return
        place = self._place(address)
        if place is None:
            self._refused += 1
            _refuse(accepted)
        else:
            tasks.start_soon(self._serve, accepted, place)

    def _place(self, address: Any) -> "Connection | None":
        """A new connection that counts from now on, with another one giving way if need be; None if none can."""
        host = address[0] if isinstance(address, tuple) and address else ""
        own = self._by_address.get(host, {})
        if self.limits.max_per_address is not None and len(own) >= self.limits.max_per_address:
            strangers, idle = (
                {each: None for each in own if each in kind} for kind in (self._strangers, self._idle)
            )
            if not self._give_way(strangers, idle):
                return None
        elif len(self._open) >= self.most and not self._give_way(self._strangers, self._idle):
            return None
        connection = Connection(self, host, self._make_protocol)
        self._open.add(connection)
        self._by_address.setdefault(host, {})[connection] = None
        self._strangers[connection] = None  # from now on, so that it gives way before any client does
        return connection

    def _give_way(self, *kinds: "dict[Connection, None]") -> bool:
        """Close the first connection of the first kind that has any. False if there is none."""
        for kind in kinds:
            for connection in kind:
                self._gave_way += 1
                connection.abort()
                return True
        return False

    async def _serve(self, accepted: socket.socket, connection: "Connection") -> None:
        """Have HTTP spoken on an accepted connection. Returns at once."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
        except BaseException as error:
            accepted.close()
            self.forget(connection)
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, OSError):  # else the client has left already
                logger.exception("a connection could not be served")

    # What connections tell.

    def trusted(self, connection: "Connection") -> None:
        """A connection has sent a request that the guard let through."""
        self._strangers.pop(connection, None)

    def idle(self, connection: "Connection", now_idle: bool) -> None:
        """A trusted connection waits for its next request, or does not any more."""
        if now_idle:
            self._idle[connection] = None
        else:
            self._idle.pop(connection, None)

    def leaving(self, connection: "Connection") -> None:
        """A connection is being closed. It counts until it is."""
        self._strangers.pop(connection, None)
        self._idle.pop(connection, None)

    def forget(self, connection: "Connection") -> None:
        """A connection is closed."""
        self.leaving(connection)
        self._open.discard(connection)
        own = self._by_address.get(connection.host, {})
        own.pop(connection, None)
        if not own:
            self._by_address.pop(connection.host, None)

    # Time.

    async def _keep_limits(self) -> None:
        limits = self.limits
        shortest = min(limits.header_timeout, limits.body_timeout, limits.idle_timeout, limits.write_timeout)
        told = -_TELL
        while True:
            await asyncio.sleep(min(_LOOK, shortest / 4))
            now = asyncio.get_running_loop().time()
            for connection in list(self._open):
                try:
                    connection.keep_limits(now)
                except Exception:  # the boundary: one connection must not end the server
                    logger.exception("a connection is closed, since its limits could not be kept")
                    connection.abort()
            if now - told >= _TELL and (self._gave_way or self._refused or self._failure):
                told = now
                self._tell()

    def _tell(self) -> None:
        if self._failure:
            logger.warning("cannot accept connections: %s; trying again", self._failure)
        if self._gave_way or self._refused:
            logger.warning(
                "%d connections are open, which is the limit: %d were closed to make room, %d refused",
                len(self._open),
                self._gave_way,
                self._refused,
            )
        self._gave_way, self._refused, self._failure = 0, 0, ""


class Connection(asyncio.Protocol):
    """One connection: passes everything on to the protocol that speaks HTTP, and knows what it is waiting for."""

    def __init__(self, connections: Connections, host: str, make_protocol: MakeProtocol) -> None:
        self.host = host
        self._connections = connections
        self._limits = connections.limits
        self._protocol = make_protocol({_KEY: self})
        self._transport: asyncio.Transport | None = None
        self._now = asyncio.get_running_loop().time
        self._input = bytearray()  # what the protocol has not been given yet
        self._feeding = False
        self.input_paused = False  # by the protocol
        self._trusted = False
        self._running = 0
        self._between = True  # requests: nothing of the next one has come yet
        self._closing = False
        self._deadline: float | None = None
        self._too_late: Callable[[], None] | None = None  # called at the deadline, instead of closing
        self._unread_since: float | None = None
        self._unread = 0

    # From the transport.

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._deadline = self._now() + self._limits.header_timeout
        held: Any = _Held(self, transport)
        self._protocol.connection_made(held)
        if self._closing:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._between:  # the next request begins
            self._between = False
            self._deadline = self._now() + self._limits.header_timeout
            self._connections.idle(self, False)
        if self._input or len(data) > _SLICE:
            self._input += data
            self.feed()
        else:
            self._protocol.data_received(data)

    def feed(self) -> None:
        """Pass on a slice of the input, unless the protocol wants none now; the rest in the next turns of the loop.

        One read brings up to 256 KB, and in pieces of a byte each that is a second of work.
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
        asyncio.get_running_loop().call_soon(self._feed_on)

    def _feed_on(self) -> None:
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
        self._closing = True  # its requests may go on for a while
        self._transport = None
        self._input.clear()
        self._connections.forget(self)
        self._protocol.connection_lost(exc)

    # From the application.

    def request_started(self) -> None:
        """A request's header is complete."""
        self._running += 1
        self._between = False
        self._deadline = None
        self._connections.idle(self, False)

    def request_authorised(self) -> None:
        """The guard has let a request through."""
        if not self._trusted:
            self._trusted = True
            self._connections.trusted(self)

    def body_awaited(self, too_late: Callable[[], None]) -> None:
        """A request's body is being read. `too_late` is called when that has taken too long."""
        self._too_late = too_late
        self._deadline = self._now() + self._limits.body_timeout

    def body_received(self) -> None:
        """A request's body has been read."""
        self._deadline = self._too_late = None

    def request_ended(self, *, much_to_come: bool = False) -> None:
        """A request is done with, and its answer written. A stranger's large body is not skipped."""
        self._running -= 1
        if self._running or self._closing:  # the next one may have begun before this one's answer was out
            return
        self._too_late = None
        if much_to_come and not self._trusted:
            self._close()
            return
        self._between = True
        limits = self._limits
        self._deadline = self._now() + (limits.idle_timeout if self._trusted else limits.header_timeout)
        if self._trusted:
            self._connections.idle(self, True)

    # The limits.

    def keep_limits(self, now: float) -> None:
        """Close the connection if it takes too long over something."""
        if self._transport is None or self._closing:
            return
        if self._unread_since is not None and now >= self._unread_since + self._limits.write_timeout:
            left = self._in_buffer()
            if self._unread - left < _SOME:
                self.abort()
            self._unread_since, self._unread = now, left
        elif self._deadline is None or now < self._deadline:
            return
        elif self._too_late is not None:
            self._too_late()
            self.body_received()
        else:
            if not self._between and not self._in_buffer():
                self._transport.write(_TOO_SLOW)
            self._close()

    def _close(self) -> None:
        """Close the connection, with what was written last, unless the client does not read."""
        if self._in_buffer():
            self.abort()
            return
        self._closing = True
        self._connections.leaving(self)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, whatever it is doing."""
        self._closing = True
        self._connections.leaving(self)
        if self._transport is None:
            return
        if self._in_buffer():
            # Or the kernel would go on offering what it has to a client that does not read.
            wire = self._transport.get_extra_info("socket")
            with suppress(OSError):
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._transport.abort()

    def _in_buffer(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()


class _Held:
    """A transport as the protocol sees it, whose reading is paused and resumed with the connection's own."""

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


class Tracked:
    """An ASGI application that tells each request's connection when the request begins and ends."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        connection = connection_of(scope)
        if connection is None:
            await self._app(scope, receive, send)
            return
        connection.request_started()
        try:
            await self._app(scope, receive, send)
        finally:
            connection.request_ended(much_to_come=_has_large_body(scope))


def authorised(scope: MutableMapping[str, Any]) -> None:
    """Tell the connection of a request that the guard let the request through."""
    connection = connection_of(scope)
    if connection is not None:
        connection.request_authorised()


def connection_of(scope: MutableMapping[str, Any]) -> Connection | None:
    """The connection that a request came on. None in a server that is not ours."""
    state = scope.get("state")
    return None if state is None else state.get(_KEY)


def _has_large_body(scope: MutableMapping[str, Any]) -> bool:
    """Whether a request has a body that may not have come whole with its header."""
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or len(headers.get(b"content-length", b"")) > _SKIPPED


def _refuse(accepted: socket.socket) -> None:
    """Tell a client that there is no place for it."""
    with accepted:
        try:
            accepted.setblocking(False)
            accepted.send(_FULL)
        except OSError:
            pass
