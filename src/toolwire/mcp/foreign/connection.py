"""Connections to MCP servers of other libraries.

Owns the connection as its client sees it: the response to each message, the handshake, a server that stops, and the
lifespan that all sessions of a FastMCP server share. The session itself is in `session`. Must not know the CLI.

The handshake: the capabilities of the channel are added to those of the client. A second `initialize` on a live
session (the CLI sends one whenever its set of servers changes) gets the result of the first one, and its
`notifications/initialized` is not sent to the server again. If its protocol version differs, it is sent to the
server, which renegotiates in place; running calls continue either way. Only versions with a handshake are
supported, up to 2025-11-25. Requests in the stateless form of 2026-07-28 are refused, because a session that one of
them opened would not accept `initialize` any more.

The end: when the server's task has ended, pending calls get an error with the reason. Only `initialize` starts a
new session; until then requests are refused with the same reason and notifications are dropped.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
from anyio.lowlevel import RunVar

from toolwire._protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ClientChannel,
    Notification,
    Request,
    RpcError,
    classify,
    make_error,
    make_response,
)
from toolwire._support.log import logger_for
from toolwire._support.tasks import spawn
from toolwire.mcp.foreign.detect import find_low_level_server, lifespan_of, shares_lifespan
from toolwire.mcp.foreign.session import ForeignSession
from toolwire.tools.dispatch.interface import Connection, Pending, Reply

logger = logger_for("mcp")

CLOSE_TIMEOUT = 5.0
"""Seconds that a server has to end when its connection is closed."""

_STATELESS: Final = "io.modelcontextprotocol/protocolVersion"
_LIFESPAN_TIMEOUT: Final = 5.0  # seconds that a new lifespan waits for the end of the one before it


class ForeignServer:
    """A server of `mcp` or FastMCP that can be connected to. The object itself is never changed or closed.

    Raises `TypeError` for anything else.
    """

    def __init__(self, server: object) -> None:
        self._low_level = find_low_level_server(server)
        self._server = server  # kept alive: FastMCP's low-level server has only a weak reference to it

    def connect(self, channel: ClientChannel) -> Connection:
        """Open a connection. Its session starts with the first message."""
        return ForeignConnection(self, channel)

    def start_session(self, channel: ClientChannel) -> ForeignSession:
        """Start a session. Must be called on an event loop."""
        lifespan = shared_lifespan if shares_lifespan(self._low_level) else nullcontext
        return ForeignSession(self._low_level, channel, lifespan)


@dataclass(slots=True)
class _Handshake:
    """The handshake of the running session."""

    version: Any = None
    result: Any = None
    confirmed: bool = False


class ForeignConnection(Connection):
    """One client of a server of another library."""

    def __init__(self, server: ForeignServer, channel: ClientChannel) -> None:
        self._server = server
        self._channel = channel
        self._session: ForeignSession | None = None
        self._handshake = _Handshake()
        self._closed = False
        self._session_closed: anyio.Event | None = None

    def begin(self, message: Any, *, encoded: bool = False) -> Pending:  # noqa: ARG002 - replies are plain here
        """Return the work that handles a message. Never replies at once, since the server runs in its own task."""
        return Pending(self._handle, message)

    async def _handle(self, message: Any) -> Reply | None:
        try:
            event = classify(message)
            if isinstance(event, Request):
                return make_response(event.id, await self._call(event))
            if isinstance(event, Notification) and event.method:
                self._notify(event)
            else:
                # Responses to requests of the server arrive through the channel, which uses ids of its own.
                logger.debug("dropped a response without a request, or a notification without a method")
        except RpcError as error:
            return make_error(message["id"], error)
        return None

    async def aclose(self) -> None:
        """End the session in bounded time. May be called again. Never raises an exception of the server."""
        self._closed = True
        if self._session is None:
            return
        if self._session_closed is None:
            self._session_closed = anyio.Event()
            self._session.close()
            spawn(self._close, self._session, self._session_closed)
        with anyio.CancelScope(shield=True):
            await self._session_closed.wait()

    async def _close(self, session: ForeignSession, closed: anyio.Event) -> None:
        try:
            await session.wait_closed(CLOSE_TIMEOUT)
        finally:
            closed.set()

    async def _call(self, request: Request) -> Any:
        if request.method == "initialize":
            return await self._initialize(self._session_for(request.method), request)
        meta = request.params.get("_meta")
        if isinstance(meta, dict) and _STATELESS in meta:
            raise RpcError(
                INVALID_REQUEST,
                "Invalid Request: this server needs a protocol version with a handshake (2025-11-25 or older)",
            )
        return await self._session_for(request.method).call(request)

    def _session_for(self, method: str) -> ForeignSession:
        if self._closed:
            raise RpcError(INTERNAL_ERROR, "the connection is closed")
        session = self._session
        if session is None or (session.over and method == "initialize"):
            self._handshake = _Handshake()
            session = self._session = self._server.start_session(self._channel)
        elif session.over:
            raise session.stopped_error()
        return session

    async def _initialize(self, session: ForeignSession, request: Request) -> Any:
        version = request.params.get("protocolVersion")
        known = self._handshake
        if known.result is not None and known.version == version:
            return known.result
        params = request.params
        capabilities = params.get("capabilities")
        if isinstance(capabilities, dict):
            params = {**params, "capabilities": {**capabilities, **self._channel.capabilities}}
        result = await session.call(replace(request, params=params))
        if session is self._session:
            self._handshake = _Handshake(version, result)
        return result

    def _notify(self, notification: Notification) -> None:
        method = notification.method
        try:
            session = self._session_for(method)
        except RpcError as error:
            logger.debug("%r is dropped: %s", method, error.message)
            return
        if method == "notifications/cancelled":
            session.cancel(notification.params)
        elif method != "notifications/initialized":
            session.notify(method, notification.params)
        elif not self._handshake.confirmed:
            self._handshake.confirmed = True
            session.notify(method, notification.params)


# `mcp` runs a server's lifespan once for each session. FastMCP runs one for all sessions, but ties it to the first
# one: when that session ends, the others continue with closed resources, and two that start at the same time both
# run it. Here it is entered in a task of its own before the first session starts, and left after the last one ends.


@asynccontextmanager
async def shared_lifespan(low_level: Any) -> AsyncIterator[None]:
    """Keep the server's lifespan open inside the block. If its start fails, raises that error."""
    table = _lifespan_table()
    lifespan = table.get(id(low_level))
    if lifespan is None or lifespan.is_closing:
        lifespan = table[id(low_level)] = _SharedLifespan(low_level, lifespan)
    lifespan.users += 1
    try:
        await lifespan.started.wait()
        if lifespan.error is not None:
            raise lifespan.error
        yield
    finally:
        lifespan.users -= 1
        if not lifespan.users:
            await lifespan.close()
            if table.get(id(low_level)) is lifespan:
                del table[id(low_level)]


class _SharedLifespan:
    """A lifespan that is open for as long as it has users."""

    def __init__(self, low_level: Any, before: "_SharedLifespan | None") -> None:
        self.users = 0
        self.started = anyio.Event()
        self.closed = anyio.Event()
        self.error: Exception | None = None
        self._low_level = low_level
        self._before = before
        self._begun = False
        self._unused = anyio.Event()
        self._task = spawn(self._run)

    @property
    def is_closing(self) -> bool:
        """True if it cannot get any more users."""
        return self._unused.is_set() or self.closed.is_set()

    async def close(self) -> None:
        """End it, and wait until it has ended. If the caller is cancelled meanwhile, so is the lifespan."""
        self._unused.set()
        if self._begun and not self.started.is_set():
            self._task.cancel()
        try:
            await self.closed.wait()
        finally:
            if not self.closed.is_set():
                self._task.cancel()

    async def _run(self) -> None:
        self._begun = True
        try:
            if self._before is not None:
                with anyio.move_on_after(_LIFESPAN_TIMEOUT):
                    await self._before.closed.wait()
                self._before = None
            if not self._unused.is_set():
                async with lifespan_of(self._low_level):
                    self.started.set()
                    await self._unused.wait()
        except Exception as error:  # the boundary of the lifespan's task: its sessions raise it
            self.error = error
            if self.started.is_set():
                logger.exception("leaving the lifespan of an MCP server failed")
        finally:
            self.started.set()
            self.closed.set()


_lifespan_tables: RunVar[dict[int, _SharedLifespan]] = RunVar("toolwire_mcp_lifespans")


def _lifespan_table() -> dict[int, _SharedLifespan]:
    """Return the lifespans of this event loop, by the identity of their server, which their users keep alive."""
    table = _lifespan_tables.get(None)
    if table is None:
        table = {}
        _lifespan_tables.set(table)
    return table
