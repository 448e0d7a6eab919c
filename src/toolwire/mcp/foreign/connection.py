"""MCP servers of other libraries, served like our own.

Owns the connection as its client sees it: what each message gets, the handshake, and what happens when the server
stops. The session behind it is `session`'s. It must not know the CLI, nor import `mcp` before a session starts.

The handshake. Client capabilities are completed by what the channel can be asked. A second `initialize` on a live
session (the CLI sends one whenever its set of servers changes) is answered from the first one's result, and its
`notifications/initialized` is not repeated to the server. If it asks for another protocol version it goes to the
server, which renegotiates in place: calls in flight go on either way. Only the handshake era of the protocol is
spoken, up to 2025-11-25; requests in the stateless form of 2026-07-28 are refused, because a session that one of
them opened would not accept `initialize` any more.

The end. A server whose task has died answers nothing: open calls get an error that says why. Only `initialize`
starts a new session; until then requests are refused with the same reason and notifications are dropped.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio

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
from toolwire.mcp.foreign.detect import core_of, shares_lifespan
from toolwire.mcp.foreign.lifespans import shared_lifespan
from toolwire.mcp.foreign.session import Session
from toolwire.tools.dispatch.interface import Connection, Pending, Reply, Server

logger = logger_for("mcp")

CLOSE_GRACE = 5.0
"""Seconds that a server gets to wind down when its connection is closed."""

_STATELESS: Final = "io.modelcontextprotocol/protocolVersion"


def bridged(server: object) -> Server:
    """A server object of `mcp` 2.x (low-level or high-level) or FastMCP 4, as something to connect to.

    `NotSupportedError` for servers built on `mcp` 1.x, `TypeError` for anything else.
    """
    return BridgedServer(server)


class BridgedServer:
    """A foreign server. Each connection is a session of its own; the object is never changed or closed."""

    def __init__(self, server: object) -> None:
        self._core = core_of(server)
        self._server = server  # FastMCP's core has only a weak reference to it

    def connect(self, channel: ClientChannel) -> Connection:
        """A new connection. Its session starts with the first message."""
        return BridgedConnection(self, channel)

    def start(self, channel: ClientChannel) -> Session:
        """A new session. On an event loop."""
        lifespan = shared_lifespan if shares_lifespan(self._core) else nullcontext
        return Session(self._core, channel, lifespan)


@dataclass(slots=True)
class _Handshake:
    """What `initialize` asked and got, in the session that runs."""

    version: Any = None
    result: Any = None
    confirmed: bool = False


class BridgedConnection(Connection):
    """One client of a foreign server."""

    def __init__(self, server: BridgedServer, channel: ClientChannel) -> None:
        self._server = server
        self._channel = channel
        self._session: Session | None = None
        self._handshake = _Handshake()
        self._closed = False
        self._gone: anyio.Event | None = None

    def begin(self, message: Any, *, encoded: bool = False) -> Pending:  # noqa: ARG002 - replies are plain here
        """Return the work that answers a message: the server runs in a task of its own, so all of it takes time."""
        return Pending(self._handle, message)

    async def _handle(self, message: Any) -> Reply | None:
        try:
            event = classify(message)
            if isinstance(event, Request):
                return make_response(event.id, await self._call(event))
            if isinstance(event, Notification) and event.method:
                self._hear(event)
            else:
                # What the server asks goes through the channel, which has the answers under ids of its own.
                logger.debug("a response to nothing that was asked, or a notification of nothing: dropped")
        except RpcError as error:
            return make_error(message["id"], error)
        return None

    async def aclose(self) -> None:
        """End the session, in bounded time. Any number of times; never raises for what the server does."""
        self._closed = True
        if self._session is None:
            return
        if self._gone is None:
            self._gone = anyio.Event()
            self._session.end()
            spawn(self._close, self._session, self._gone)
        with anyio.CancelScope(shield=True):
            await self._gone.wait()

    async def _close(self, session: Session, gone: anyio.Event) -> None:
        try:
            await session.ended(CLOSE_GRACE)
        finally:
            gone.set()

    async def _call(self, request: Request) -> Any:
        if request.method == "initialize":
            return await self._initialize(self._session_for(request.method), request)
        meta = request.params.get("_meta")
        if isinstance(meta, dict) and _STATELESS in meta:
            raise RpcError(INVALID_REQUEST, "Invalid Request: only versions with a handshake are spoken here")
        return await self._session_for(request.method).call(request)

    def _session_for(self, method: str) -> Session:
        if self._closed:
            raise RpcError(INTERNAL_ERROR, "the connection is closed")
        session = self._session
        if session is None or (session.over and method == "initialize"):
            self._handshake = _Handshake()
            session = self._session = self._server.start(self._channel)
        elif session.over:
            raise session.stopped()
        return session

    async def _initialize(self, session: Session, request: Request) -> Any:
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

    def _hear(self, notification: Notification) -> None:
        method = notification.method
        try:
            session = self._session_for(method)
        except RpcError as error:
            logger.debug("%r is dropped: %s", method, error.message)
            return
        if method == "notifications/cancelled":
            session.cancel(notification.params)
        elif method != "notifications/initialized":
            session.tell(method, notification.params)
        elif not self._handshake.confirmed:
            self._handshake.confirmed = True
            session.tell(method, notification.params)
