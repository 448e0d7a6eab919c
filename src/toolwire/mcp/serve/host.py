"""Turns one of our servers into a low-level server of `mcp`, which supports every version of the protocol.

Owns the server that is currently served, the number of running requests, and the server's description for `mcp`.
`mcp` implements the transports, the handshake of the older versions and the envelopes of 2026-07-28. The server
itself answers each request, through the same kind of connection that the CLI uses: one connection per request,
since the newest version has no sessions, and it costs little in the older ones. Must not know stdio or HTTP.
"""

import base64
import os
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server import Server as McpServer
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolwire._protocol.jsonrpc import (
    CANCELLED,
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    Interrupted,
    RpcError,
)
from toolwire._support.log import logger_for
from toolwire._support.tasks import spawn
from toolwire._support.tracing import is_tracing_wanted
from toolwire._support.waiting import Signal
from toolwire.errors import ClaudeSDKError
from toolwire.mcp.compat import (
    CACHEABLE_METHODS,
    MODERN_PROTOCOL_VERSIONS,
    RequestStateBoundary,
    RequestStateSecurity,
    connection_of,
    drop_spans,
    forget_server_info,
    set_schema_lookup,
)
from toolwire.mcp.serve.channel import (
    EVENTS,
    Broadcaster,
    ClientRegistry,
    RequestChannel,
    client_key,
    state_of,
)
from toolwire.tools.dispatch.connection import find_resource
from toolwire.tools.dispatch.errors import describe
from toolwire.tools.dispatch.interface import Connection, Pending, Server
from toolwire.tools.results.result import error_result
from toolwire.tools.toolset import Toolset

logger = logger_for("serving")

START_TIMEOUT: Final = 30.0
"""Seconds in which a server has to be ready."""

_MAX_SUBSCRIPTIONS: Final = 1_000  # per session
_MAX_MESSAGE: Final = 2_000  # characters of an error message
_MAX_QUOTE: Final = 500  # characters of the request that the data of an error may repeat
_RESERVED_META: Final = "io.modelcontextprotocol/"

# Requests that are forwarded to the server unchanged. `mcp` first checks their params against these models.
_FORWARDED: Final[Mapping[str, type[Any]]] = {
    "tools/list": types.PaginatedRequestParams,
    "tools/call": types.CallToolRequestParams,
    "resources/list": types.PaginatedRequestParams,
    "resources/templates/list": types.PaginatedRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "prompts/list": types.PaginatedRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "completion/complete": types.CompleteRequestParams,
}

# The fields that results have from 2026-07-28 on. Lists may change at any time, so they must not be cached.
_COMPLETE: Final = {"resultType": "complete"}
_ENVELOPES: Final = {
    method: {**_COMPLETE, "ttlMs": 0, "cacheScope": "private"} for method in CACHEABLE_METHODS
}

Context = ServerRequestContext[Any, Any]


Outcome = Mapping[str, Any] | BaseException
"""How a request ended: its result, or the exception by which it was refused or cancelled."""


class RequestObserver:
    """Is notified of the requests of a server, for its log and its metrics. Here it does nothing."""

    def start(self) -> None:
        """A request starts."""

    def finish(self, method: str, name: str, outcome: Outcome, seconds: float) -> None:
        """A request has ended."""


class ServerHost:
    """Serves one server, which can be replaced, to all clients. `mcp_server` is the `mcp` server to run."""

    def __init__(
        self, server: Server, *, name: str, secret: str | None = None, start_timeout: float = START_TIMEOUT
    ) -> None:
        """`secret` seals the state that a stateless client keeps between two rounds of a call; processes that serve
        the same clients share one. `name` is used until the server has reported its own."""
        self.server = server
        self.running = 0
        """The number of requests that are being answered."""
        self.request_scope: str | None = None
        """Set if this host has a single client for its whole life (stdio): then no request id may be used twice."""
        self.observer = RequestObserver()
        """Is notified of each request."""
        self.clients = ClientRegistry()
        self._server_info: dict[str, Any] = {}  # the result of `initialize`
        self.primary_connection: Connection | None = None
        """The connection that keeps the server's lifespan open; None while it is not open."""
        self._start_timeout = start_timeout
        self._replacing = anyio.Lock()
        self._stopped = anyio.Event()
        self._connections: set[Connection] = set()
        self._idle = Signal()
        ours = server if isinstance(server, Toolset) else None
        self.mcp_server = LowLevelServer(
            name if ours is None else ours.name,
            self.capabilities,
            version="1.0.0" if ours is None else ours.version,
            title=None if ours is None else ours.title,
            instructions=None if ours is None else ours.instructions,
            lifespan=lambda _server: self.open(),
        )
        self.traced = is_tracing_wanted()
        """True if requests have spans, which `mcp` creates."""
        if not self.traced:
            drop_spans(self.mcp_server)
        if ours is not None:
            set_schema_lookup(self.mcp_server, self.find_schema)
        security = RequestStateSecurity(keys=[secret]) if secret else RequestStateSecurity.ephemeral()
        self.mcp_server.middleware += [
            RequestStateBoundary(security, default_audience=self.mcp_server.name),
            shorten_errors,
        ]
        add = self.mcp_server.add_request_handler
        for method, params in _FORWARDED.items():
            add(method, params, self.forward)
        add("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        add("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        add("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)
        add("subscriptions/listen", types.SubscriptionsListenRequestParams, self._listen)
        self.mcp_server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self.clients.add
        )

    # The server that is served.

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep the server running inside the block. Raises `ClaudeSDKError` if it does not start.

        A nested block does nothing.
        """
        async with self._replacing:
            opened = self.primary_connection is None
            if opened:
                await self._connect(self.server)
        try:
            yield
        finally:
            if opened:
                self.close_subscriptions()
                last, self.primary_connection = self.primary_connection, None
                if last is not None:
                    with anyio.CancelScope(shield=True):
                        await last.aclose()

    async def _connect(self, server: Server) -> None:
        """Open the primary connection, which keeps the server's lifespan open and is notified of every change."""
        channel = Broadcaster(self.clients)
        connection = (
            server.connect(channel, notify_all_updates=True)
            if isinstance(server, Toolset)
            else server.connect(channel)
        )
        name = server.name if isinstance(server, Toolset) else self.mcp_server.name
        ready = False
        try:
            with anyio.move_on_after(self._start_timeout):
                server_info = await _initialize(connection, {})
                if isinstance(server, Toolset):
                    await server.wait_until_ready()
                ready = True
        except Exception as error:
            reason = error.message if isinstance(error, RpcError) else describe(error)
            raise ClaudeSDKError(f"server {name!r} could not start: {reason}") from error
        finally:
            if not ready:
                with anyio.CancelScope(shield=True):
                    await connection.aclose()
        if not ready:
            raise ClaudeSDKError(f"server {name!r} did not start within {self._start_timeout:g} s")
        self.primary_connection, self._server_info = connection, server_info
        self.mcp_server.set_info(server_info)

    async def replace(self, server: Server) -> None:
        """Serve another server from now on. Running requests finish on the old one; all clients are notified.

        Raises `ClaudeSDKError` if the new server does not start; then the old one is kept.
        """
        async with self._replacing:
            kinds = set(self.capabilities())
            before = self.primary_connection
            if before is not None:  # otherwise it starts in `open`
                await self._connect(server)
            self.server = server
            kinds |= set(self.capabilities())
        for method in EVENTS:
            if method.split("/")[1] in kinds:
                self.clients.broadcast({"method": method})
        if before is not None:
            spawn(before.aclose)

    def capabilities(self) -> dict[str, Any]:
        """Return the current capabilities of the server."""
        if isinstance(self.server, Toolset):
            return self.server.capabilities()
        capabilities: dict[str, Any] = self._server_info.get("capabilities", {})
        if "subscribe" in (capabilities.get("resources") or {}):
            # Each request has its own connection, so none of them could keep subscriptions.
            rest = {key: value for key, value in capabilities["resources"].items() if key != "subscribe"}
            capabilities = {**capabilities, "resources": rest}
        return capabilities

    def find_schema(self, tool: str) -> Mapping[str, Any] | None:
        """Return the schema of a tool's arguments; None if it is not known without a request to the server."""
        known = self.server.tools.get(tool) if isinstance(self.server, Toolset) else None
        return None if known is None else known.json_schema

    # The end.

    def close_subscriptions(self) -> None:
        """End the streams on which clients of 2026-07-28 listen for changes."""
        self.clients.listen_handler.close()

    async def stop(self, seconds: float) -> bool:
        """Cancel all requests, running and future. Each gets an error response once its work has stopped.

        Waits at most so many seconds for that. Returns True if all have stopped.
        """
        self._stopped.set()
        for connection in list(self._connections):
            spawn(connection.aclose)
        return await self.wait_until_idle(seconds)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no request is running, for at most so many seconds. Returns True if none is."""
        with anyio.move_on_after(seconds):
            await self._idle.wait_until(lambda: not self.running)
        return not self.running

    # Requests.

    async def forward(self, ctx: Context, _params: Any) -> dict[str, Any]:
        """Handle a request of `mcp` by sending it to the server."""
        params = dict(ctx.params or {})
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        state = state_of(connection_of(ctx))  # from 2026-07-28 on, that of this request alone
        channel = RequestChannel(
            ctx,
            params,
            None if modern else state.level,
            None if modern else state,
            request_scope=self.request_scope or state.key,
            client_key=partial(self._client_key, ctx),
            announce=self._announce_tools if self.request_scope is not None else lambda: None,
        )
        return await self.handle(ctx.method, ctx.request_id or 0, params, channel, modern=modern)

    def _announce_tools(self) -> None:
        self.clients.broadcast({"method": "notifications/tools/list_changed"})

    def _client_key(self, ctx: Context) -> Hashable:
        if connection_of(ctx).session_id is not None:
            return None
        return self.request_scope or client_key(getattr(ctx.request, "scope", None), ctx.meta)

    async def handle(
        self,
        method: str,
        request_id: int | str,
        params: dict[str, Any],
        channel: RequestChannel,
        *,
        modern: bool,
    ) -> dict[str, Any]:
        """Return the result of a request. Raises `MCPError` if it is refused."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        began = self.start_request()
        outcome: Outcome
        try:
            response = await self._send(message, channel)
            result = outcome = _result_of(response, method, modern)
            return add_envelope(method, result) if modern else result
        except BaseException as error:
            outcome = error
            raise
        finally:
            name = str(params.get("name") or params.get("uri") or "")
            self.finish_request(method, name, outcome, began)

    def start_request(self) -> float:
        """Count a request as running. Returns the time, for `finish_request`."""
        self.observer.start()
        self.running += 1
        return time.perf_counter()

    def finish_request(self, method: str, name: str, outcome: Outcome, began: float) -> None:
        """Count a request as finished."""
        self.running -= 1
        if not self.running:
            self._idle.notify()
        self.observer.finish(method, name, outcome, time.perf_counter() - began)

    async def _send(self, message: dict[str, Any], channel: RequestChannel) -> dict[str, Any]:
        """Send a request to the server, and return its response. Raises `MCPError` if this host is stopping."""
        if self._stopped.is_set():
            raise _stopping()
        connection = self.server.connect(channel)
        self._connections.add(connection)
        response = None
        try:
            with channel.scope:
                if not isinstance(self.server, Toolset):
                    await _initialize(connection, channel.capabilities)
                    message = _strip_envelope(message)
                begun = connection.begin(message)
                response = await begun() if isinstance(begun, Pending) else begun
        except (Exception, Interrupted):
            # A request to a stateless client ends the call, whatever the tool raised after it.
            if channel.input_required is None:
                raise
        finally:
            self._connections.discard(connection)
            await connection.aclose()
        await channel.flush()
        if channel.input_required is not None:
            return {"result": channel.input_required}
        if response is None:
            return {}
        if self._stopped.is_set() and response.get("error", {}).get("code") == CANCELLED:
            raise _stopping()
        return response

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> dict[str, Any]:
        state_of(connection_of(ctx)).level = params.level
        return {}

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> dict[str, Any]:
        uri = str(params.uri)
        try:
            find_resource(self._require_toolset(ctx.method), uri, ctx.method)
        except RpcError as error:
            raise MCPError(code=error.code, message=error.message, data=error.data) from None
        subscriptions = state_of(connection_of(ctx)).subscriptions
        if len(subscriptions) >= _MAX_SUBSCRIPTIONS:
            text = f"a session can have at most {_MAX_SUBSCRIPTIONS} subscriptions"
            raise MCPError(code=types.INVALID_PARAMS, message=text)
        subscriptions.add(uri)
        return {}

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> dict[str, Any]:
        self._require_toolset(ctx.method)
        state_of(connection_of(ctx)).subscriptions.discard(str(params.uri))
        return {}

    async def _listen(self, ctx: Context, params: types.SubscriptionsListenRequestParams) -> Any:
        if not isinstance(self.server, Toolset):
            wanted = params.notifications.model_copy(update={"resource_subscriptions": None})
            params = params.model_copy(update={"notifications": wanted})
        return await self.clients.listen_handler(ctx, params)

    def _require_toolset(self, method: str) -> Toolset:
        """Return the server if it can send updates of resources. Raises `MCPError` if it cannot."""
        if isinstance(self.server, Toolset):
            return self.server
        raise MCPError(code=METHOD_NOT_FOUND, message=f"Method not found: {method}")


class LowLevelServer(McpServer[None]):
    """An `mcp` server that reports its current name and capabilities, which may change while it runs."""

    def __init__(self, name: str, capabilities: Callable[[], Mapping[str, Any]], **settings: Any) -> None:
        super().__init__(name, **settings)
        self._capabilities = capabilities

    async def run(
        self,
        read_stream: Any,
        write_stream: Any,
        initialization_options: Any = None,
        raise_exceptions: bool = False,
    ) -> None:
        del initialization_options  # made before the server has started, they lack its capabilities
        await super().run(read_stream, write_stream, None, raise_exceptions)  # type: ignore[arg-type]

    def set_info(self, server_info: Mapping[str, Any]) -> None:
        """Set name, version and instructions to those in a server's result of `initialize`."""
        self.instructions = server_info.get("instructions")
        try:
            info = types.Implementation.model_validate(server_info.get("serverInfo"))
        except ValidationError:
            return
        self.name, self.version, self.title = info.name, info.version, info.title
        self.description, self.website_url, self.icons = info.description, info.website_url, info.icons
        forget_server_info(self)

    def get_capabilities(
        self,
        notification_options: Any = None,
        experimental_capabilities: Any = None,
        extensions: Any = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        del notification_options, experimental_capabilities, extensions
        capabilities = dict(self._capabilities())
        if protocol_version in MODERN_PROTOCOL_VERSIONS:
            capabilities.pop("logging", None)  # in these versions each request has its own level
        return types.ServerCapabilities.model_validate(capabilities)


def new_secret() -> str:
    """Make a secret for several processes to share."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


# Messages between `mcp` and a server.


async def _initialize(connection: Connection, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Do the handshake on a new connection, and return the result of `initialize`."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": dict(capabilities),
        "clientInfo": {"name": "toolwire", "version": "1"},
    }
    response = await connection.answer({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    await connection.answer({"jsonrpc": "2.0", "method": "notifications/initialized"})
    if response is None or "error" in response:
        error = (response or {}).get("error", {})
        message = str(error.get("message", "no response"))
        raise RpcError(error.get("code", INTERNAL_ERROR), message, error.get("data"))
    result: dict[str, Any] = response["result"]
    return result


def _strip_envelope(message: dict[str, Any]) -> dict[str, Any]:
    """Return a request of 2026-07-28 as a client with a session would have sent it."""
    params = message["params"]
    meta = {
        key: value for key, value in params.get("_meta", {}).items() if not key.startswith(_RESERVED_META)
    }
    return {**message, "params": {**params, "_meta": meta}}


def add_envelope(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that a result has from 2026-07-28 on; `mcp` leaves them out for older versions."""
    return {**_ENVELOPES.get(method, _COMPLETE), **result}


def _result_of(response: Mapping[str, Any], method: str, modern: bool) -> dict[str, Any]:
    """Return the result in a response; raise its error as an `MCPError`."""
    error = response.get("error")
    if error is None:
        result: dict[str, Any] = response["result"]
        return result
    data = error.get("data")
    if method == "tools/call" and isinstance(data, dict) and "violations" in data:
        # A model can correct its arguments only if it sees what was wrong, so MCP requires a result.
        return error_result(error["message"])
    code = error["code"]
    if modern and code == RESOURCE_NOT_FOUND:
        code = INVALID_PARAMS
    raise MCPError(code=code, message=error["message"], data=data)


def _stopping() -> MCPError:
    text = "the server is shutting down: the request was cancelled before it was done"
    return MCPError(code=CONNECTION_CLOSED, message=text)


# Errors must not send a request's own data back, whichever library has written them.


async def shorten_errors(ctx: Any, call_next: Any) -> Any:
    """Middleware of `mcp`: cut long error messages, and long quotes of the request in the data of an error."""
    try:
        return await call_next(ctx)
    except MCPError as error:
        error.error.message = _cut(error.error.message, _MAX_MESSAGE)
        if error.error.data is not None:
            long = [each for each in (ctx.method, *_strings(ctx.params)) if len(each) > _MAX_QUOTE]
            if long:
                error.error.data = _cut_quotes(error.error.data, long)
        raise


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit} more characters)"


def _cut_quotes(data: Any, long: list[str]) -> Any:
    """Return error data in which strings that contain one of `long` are cut."""
    if isinstance(data, str):
        return _cut(data, _MAX_QUOTE) if any(each in data for each in long) else data
    if isinstance(data, dict):
        return {_cut_quotes(key, long): _cut_quotes(value, long) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_cut_quotes(each, long) for each in data]
    return data


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            left += each.keys()
            left += each.values()
        elif isinstance(each, list | tuple):
            left += each
