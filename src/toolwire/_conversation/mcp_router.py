"""Routes MCP messages between the CLI and the in-process servers of a session.

Requests of the CLI go to the connection of the named server. Notifications of a server go to the CLI; progress and
logs, which the CLI drops, also go into the message stream. Requests of a server to its client (elicitation,
sampling, roots) are not supported by the CLI: the application's callbacks answer them here.
"""

from collections import Counter
from collections.abc import Awaitable
from typing import Any, Protocol

from toolwire import messages  # its names are loaded when used, which here is while a session runs
from toolwire._protocol.jsonrpc import METHOD_NOT_FOUND, Request, RpcError, classify, make_error
from toolwire._support.log import logger_for
from toolwire._support.tasks import shield, spawn
from toolwire._support.waiting import WaitGroup
from toolwire.mcp.foreign import as_server
from toolwire.tools.dispatch.interface import Connection, Pending, Reply
from toolwire.tools.elicitation import CallbackChannel, ClientCallbacks

logger = logger_for("servers")

_ACKNOWLEDGED = {"mcp_response": {"jsonrpc": "2.0", "result": {}}}


class Stream(Protocol):
    """The part of a session that the router uses."""

    def send(self, body: dict[str, Any]) -> None:
        """Send a control request and ignore its response."""
        ...

    def inject(self, message: Any) -> None:
        """Put a message into the conversation."""
        ...


class McpRouter:
    """Holds one connection for each in-process server, by the name that the CLI knows it under."""

    def __init__(self, callbacks: ClientCallbacks) -> None:
        self._callbacks = callbacks
        self._connections: dict[str, Connection] = {}
        self._removed: list[Connection] = []
        self._running: Counter[int] = Counter()
        self._open_calls: dict[tuple[str, Any], Any] = {}
        self._stream: Stream | None = None

    def attach(self, stream: Stream) -> None:
        """Send notifications of the servers to this stream from now on."""
        self._stream = stream

    def add(self, name: str, instance: object) -> None:
        """Connect a server. Must be called on an event loop."""
        self._connections[name] = as_server(instance).connect(_HostChannel(name, self._callbacks, self))

    @property
    def limits_time(self) -> bool:
        """True if a call to one of the servers may have a time limit."""
        return any(connection.limits_time for connection in self._connections.values())

    def remove(self, name: str) -> None:
        """Remove a server. Its running calls continue, and it is disconnected after the last of them."""
        connection = self._connections.pop(name, None)
        if connection is not None:
            self._removed.append(connection)
            self._close_if_idle(connection)

    def _close_if_idle(self, connection: Connection) -> None:
        if connection in self._removed and not self._running[id(connection)]:
            self._removed.remove(connection)
            spawn(connection.aclose)

    def handle(self, body: dict[str, Any]) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Handle one `mcp_message`, immediately where possible. An exception becomes a control error."""
        name, message = body.get("server_name"), body.get("message")
        if not isinstance(name, str) or not name:
            raise ValueError("mcp_message without a server_name")
        if message is None:
            raise ValueError("mcp_message without a message")
        connection = self._connections.get(name)
        if connection is None:
            return self._no_server(name, message)
        begun = connection.begin(message, encoded=True)
        if not isinstance(begun, Pending):
            return _ACKNOWLEDGED if begun is None else {"mcp_response": begun}
        if not connection.tags_progress:
            begun = Pending(self._tag_progress, begun, name, message)
        return self._await_reply(connection, begun)

    async def _await_reply(self, connection: Connection, pending: Pending) -> dict[str, Any]:
        key = id(connection)
        self._running[key] += 1
        try:
            reply = await pending()
        finally:
            self._running[key] -= 1
            if self._removed:
                self._close_if_idle(connection)
        return _ACKNOWLEDGED if reply is None else {"mcp_response": reply}

    async def _tag_progress(self, pending: Pending, name: str, message: Any) -> Reply | None:
        """Await the reply to a message; meanwhile, remember which tool use its progress belongs to."""
        params = message.get("params") if isinstance(message, dict) else None
        meta = params.get("_meta") if isinstance(params, dict) else None
        key = (name, meta.get("progressToken")) if isinstance(meta, dict) else None
        if key is None or not isinstance(key[1], int | str):
            return await pending()
        self._open_calls[key] = meta.get("claudecode/toolUseId")  # type: ignore[union-attr] # meta is a dict here
        try:
            return await pending()
        finally:
            self._open_calls.pop(key, None)

    def _no_server(self, name: str, message: Any) -> dict[str, Any]:
        known = ", ".join(map(repr, self._connections)) or "none"
        text = f"Server {name!r} not found (in-process servers: {known})"
        try:
            event = classify(message)
        except RpcError:
            event = None
        if isinstance(event, Request):
            return {"mcp_response": make_error(event.id, RpcError(METHOD_NOT_FOUND, text, {"server": name}))}
        raise LookupError(text)

    def emit(self, server: str, message: dict[str, Any]) -> None:
        """Pass a notification of a server to the CLI; progress and logs, which the CLI drops, to the user too."""
        if self._stream is None:
            return
        self._stream.send({"subtype": "mcp_message", "server_name": server, "message": message})
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        method = message.get("method")
        meta = params.get("_meta")
        tool_use_id = meta.get("claudecode/toolUseId") if isinstance(meta, dict) else None
        if method == "notifications/progress":
            token = params.get("progressToken")
            if tool_use_id is None and isinstance(token, int | str):
                tool_use_id = self._open_calls.get((server, token))
            progress, total, text = params.get("progress", 0), params.get("total"), params.get("message")
            self._stream.inject(messages.McpProgressMessage(server, tool_use_id, progress, total, text))
        elif method == "notifications/message":
            level, data, source = params.get("level", "info"), params.get("data"), params.get("logger")
            self._stream.inject(messages.McpLogMessage(server, level, data, source, tool_use_id))

    async def aclose(self) -> None:
        """Disconnect all servers at the same time; an error of one does not keep the others open."""
        connections = [*self._connections.values(), *self._removed]
        self._connections.clear()
        self._removed.clear()
        closing = WaitGroup()
        for connection in connections:
            closing.add()
            spawn(self._close, connection, on_done=closing.done)
        with shield():
            await closing.wait()

    async def _close(self, connection: Connection) -> None:
        try:
            await connection.aclose()
        except Exception:
            logger.exception("closing a server failed")


class _HostChannel(CallbackChannel):
    """The channel to this application, with the CLI behind it."""

    def __init__(self, name: str, callbacks: ClientCallbacks, router: McpRouter) -> None:
        super().__init__(name, callbacks)
        self._router = router

    def notify(self, message: dict[str, Any]) -> None:
        self._router.emit(self._server, message)
