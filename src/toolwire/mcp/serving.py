"""A server of ours as a low-level server of `mcp`, which speaks every version of the protocol.

Owns who is connected, who hears of changes, and how many requests run. `mcp` does the transports, the handshake of
the older versions and the envelopes of 2026-07-28; what a request gets is decided by the server itself, through the
same connection that the CLI would use. One request is one connection: that is all the newest version knows, and for
the older ones it costs next to nothing.
"""

import base64
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.connection import Connection as Client
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server as McpServer
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types.methods import CACHEABLE_METHODS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolwire._jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, Connection, RpcError, Server
from toolwire._log import logger_for
from toolwire._tasks import spawn
from toolwire.mcp.asking import RequestOutlet
from toolwire.tools.context import LEVELS
from toolwire.tools.results import error_result
from toolwire.tools.server import ToolServer

logger = logger_for("serving")

_RESERVED: Final = "io.modelcontextprotocol/"
_PATIENCE: Final = 10.0  # seconds that one client may hold up a notice meant for it

_EVENTS: Final[Mapping[str, Callable[[], ServerEvent]]] = {
    "notifications/tools/list_changed": ToolsListChanged,
    "notifications/resources/list_changed": ResourcesListChanged,
    "notifications/prompts/list_changed": PromptsListChanged,
}
_UPDATED: Final = "notifications/resources/updated"

# What results carry from 2026-07-28 on. Lists may change at any time, so a copy of one is stale at once.
_COMPLETE: Final = {"resultType": "complete"}
_ENVELOPES: Final = {
    method: {**_COMPLETE, "ttlMs": 0, "cacheScope": "private"} for method in CACHEABLE_METHODS
}

# What goes to the server as it is. `mcp` checks the parameters against these first.
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


@dataclass
class _Wishes:
    """What a client with a session wants to hear."""

    level: str = LEVELS[0]
    resources: set[str] = field(default_factory=set)


class Serving:
    """What is served now, and to whom. `core` is the `mcp` server to run."""

    def __init__(self, server: Server, *, name: str, secret: str | None = None) -> None:
        """`secret` seals what a stateless client carries between two rounds of a call: several processes that
        serve the same clients share one. `name` is that of the served thing, when the server tells none."""
        self.server = server
        self.running = 0
        """Requests that are being answered."""
        self.observe: Callable[[str, str], Any] = lambda _method, _name: nullcontext()
        """Gives a context manager around each request, by method and name; for metrics."""
        self._hello: dict[str, Any] = {}
        self._keeper: Connection | None = None
        self._clients: set[Client] = set()
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        self._idle = anyio.Event()
        info = server if isinstance(server, ToolServer) else None
        self.core = _Core(
            self,
            name if info is None else info.name,
            version="1.0.0" if info is None else info.version,
            title=None if info is None else info.title,
            instructions=None if info is None else info.instructions,
            lifespan=lambda _core: self.opened(),
            get_tool_input_schema=self._schema if info is not None else None,
        )
        security = RequestStateSecurity(keys=[secret]) if secret else RequestStateSecurity.ephemeral()
        self.core.middleware.append(RequestStateBoundary(security, default_audience=self.core.name))
        for method, params in _FORWARDED.items():
            self.core.add_request_handler(method, params, self._forward)
        self.core.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        self.core.add_request_handler("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        self.core.add_request_handler(
            "resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe
        )
        self.core.add_request_handler(
            "subscriptions/listen", types.SubscriptionsListenRequestParams, self._listening
        )
        self.core.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._initialized
        )

    # The server behind it.

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Inside, the server is up. Raises what keeps it from that; an inner one does nothing."""
        if self._keeper is not None:
            yield
            return
        self._keeper = await self._kept(self.server)
        try:
            yield
        finally:
            self._listening.close()
            last, self._keeper = self._keeper, None
            with anyio.CancelScope(shield=True):
                await last.aclose()

    async def _kept(self, server: Server) -> Connection:
        """Hold one connection open: it keeps the server's lifespan, and hears of every change."""
        outlet = _Announcer(self)
        keeper = (
            server.connect(outlet, every_update=True)
            if isinstance(server, ToolServer)
            else server.connect(outlet)
        )
        try:
            self._hello = await _greeted(keeper, {})
        except BaseException:
            with anyio.CancelScope(shield=True):
                await keeper.aclose()
            raise
        return keeper

    async def replace(self, server: Server) -> None:
        """Serve another server from now on. Requests that run finish on the old one; everybody is told."""
        kinds = set(self.capabilities())
        before, self._keeper = self._keeper, await self._kept(server)
        self.server = server
        kinds |= set(self.capabilities())
        for method in _EVENTS:
            if method.split("/")[1] in kinds:
                self.announce({"method": method})
        if before is not None:
            spawn(before.aclose)

    def capabilities(self) -> dict[str, Any]:
        """What the server can do now."""
        if isinstance(self.server, ToolServer):
            return self.server.capabilities()
        found: dict[str, Any] = self._hello.get("capabilities", {})
        return found

    def hang_up(self) -> None:
        """End the streams on which clients of the newest version listen for changes."""
        self._listening.close()

    def _schema(self, tool: str) -> Mapping[str, Any] | None:
        found = self.server.tools.get(tool) if isinstance(self.server, ToolServer) else None
        return None if found is None else found.json_schema

    async def drained(self, seconds: float) -> bool:
        """Wait until no request runs, but not longer than that; whether it came true."""
        with anyio.move_on_after(seconds):
            while self.running:
                self._idle = anyio.Event()
                await self._idle.wait()
        return not self.running

    # Requests.

    async def _forward(self, ctx: ServerRequestContext[Any, Any], _params: Any) -> dict[str, Any]:
        params = dict(ctx.params or {})
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        outlet = RequestOutlet(ctx, params, None if modern else self._wishes(ctx).level)
        message = {"jsonrpc": "2.0", "id": ctx.request_id or 0, "method": ctx.method, "params": params}
        self.running += 1
        try:
            with self.observe(ctx.method, str(params.get("name") or params.get("uri") or "")) as seen:
                reply = await self._answered(message, outlet)
                result = _result(reply, ctx.method, modern)
                if modern:
                    result = {**_ENVELOPES.get(ctx.method, _COMPLETE), **result}
                if seen is not None:
                    seen.result(result)
                return result
        finally:
            self.running -= 1
            if not self.running:
                self._idle.set()

    async def _answered(self, message: dict[str, Any], outlet: RequestOutlet) -> dict[str, Any]:
        connection = self.server.connect(outlet)
        try:
            if not isinstance(self.server, ToolServer):
                await _greeted(connection, outlet.capabilities)
                message = _without_envelope(message)
            reply = await connection.answer(message)
        except BaseException:
            # Whatever the tool made of it, a question to a stateless client ends the call.
            if outlet.questions is None:
                raise
            reply = None
        finally:
            await connection.aclose()
        await outlet.flushed()
        if outlet.questions is not None:
            return {"result": outlet.questions}
        return reply or {}

    async def _set_level(
        self, ctx: ServerRequestContext[Any, Any], params: types.SetLevelRequestParams
    ) -> dict[str, Any]:
        self._wishes(ctx).level = params.level
        return {}

    async def _subscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscribeRequestParams
    ) -> dict[str, Any]:
        self._wishes(ctx).resources.add(str(params.uri))
        return {}

    async def _unsubscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.UnsubscribeRequestParams
    ) -> dict[str, Any]:
        self._wishes(ctx).resources.discard(str(params.uri))
        return {}

    # Notices.

    async def _initialized(self, ctx: ServerRequestContext[Any, Any], _params: Any) -> None:
        client = _client(ctx)
        if client.has_standalone_channel and client not in self._clients:
            self._clients.add(client)
            client.exit_stack.callback(self._clients.discard, client)

    def _wishes(self, ctx: ServerRequestContext[Any, Any]) -> _Wishes:
        wishes: _Wishes = _client(ctx).state.setdefault("toolwire", _Wishes())
        return wishes

    def announce(self, message: Mapping[str, Any]) -> None:
        """Pass a notice of the server on to everybody whom it concerns."""
        method, params = message["method"], message.get("params")
        if (event := _EVENTS.get(method)) is not None:
            spawn(self._bus.publish, event())
            clients = list(self._clients)
        elif method == _UPDATED:
            uri = str((params or {}).get("uri"))
            spawn(self._bus.publish, ResourceUpdated(uri))
            clients = [each for each in self._clients if uri in _wanted(each)]
        else:
            return
        for client in clients:
            spawn(_told, client, method, params)


class _Core(McpServer[None]):
    """An `mcp` server that says what it can do at the moment it is asked."""

    def __init__(self, serving: Serving, name: str, **settings: Any) -> None:
        super().__init__(name, **settings)
        self._serving = serving

    def get_capabilities(
        self,
        notification_options: Any = None,
        experimental_capabilities: Any = None,
        extensions: Any = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        del notification_options, experimental_capabilities, extensions
        found = dict(self._serving.capabilities())
        if protocol_version in MODERN_PROTOCOL_VERSIONS:
            found.pop("logging", None)  # a level comes with each request there
        return types.ServerCapabilities.model_validate(found)


class _Announcer:
    """The outlet of the connection that is always open: it takes notices and answers nothing."""

    def __init__(self, serving: Serving) -> None:
        self.capabilities: dict[str, Any] = {}
        self._serving = serving

    def notify(self, message: dict[str, Any]) -> None:
        """Pass it on."""
        self._serving.announce(message)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Nobody is there to be asked."""
        del params
        raise RpcError(INVALID_PARAMS, f"{method}: there is no client to ask")


def _client(ctx: ServerRequestContext[Any, Any]) -> Client:
    """What `mcp` knows of the client; it means to give it to handlers one day, and has it here until then."""
    client: Client = ctx.session._connection  # noqa: SLF001
    return client


def _wanted(client: Client) -> set[str]:
    wishes = client.state.get("toolwire")
    return wishes.resources if isinstance(wishes, _Wishes) else set()


async def _told(client: Client, method: str, params: Mapping[str, Any] | None) -> None:
    with anyio.move_on_after(_PATIENCE) as limit:
        await client.notify(method, params)
    if limit.cancelled_caught:
        logger.warning("a client did not take %s within %g s", method, _PATIENCE)


async def _greeted(connection: Connection, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": dict(capabilities),
        "clientInfo": {"name": "toolwire", "version": "1"},
    }
    reply = await connection.answer({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    await connection.answer({"jsonrpc": "2.0", "method": "notifications/initialized"})
    if reply is None or "error" in reply:
        error = (reply or {}).get("error", {})
        raise RpcError(
            error.get("code", INTERNAL_ERROR), str(error.get("message", "no answer")), error.get("data")
        )
    result: dict[str, Any] = reply["result"]
    return result


def _without_envelope(message: dict[str, Any]) -> dict[str, Any]:
    """As a client with a session would have sent it."""
    params = message["params"]
    meta = {key: value for key, value in params.get("_meta", {}).items() if not key.startswith(_RESERVED)}
    return {**message, "params": {**params, "_meta": meta}}


def _result(reply: Mapping[str, Any], method: str, modern: bool) -> dict[str, Any]:
    """The result in a reply; its error raised as `mcp` wants it."""
    error = reply.get("error")
    if error is None:
        result: dict[str, Any] = reply["result"]
        return result
    data = error.get("data")
    if method == "tools/call" and isinstance(data, dict) and "violations" in data:
        # A model can mend its arguments only if it sees what was wrong: MCP wants them as a result.
        return error_result(error["message"])
    code = error["code"]
    if modern and code == RESOURCE_NOT_FOUND:
        code = INVALID_PARAMS
    raise MCPError(code=code, message=error["message"], data=data)


def new_secret() -> str:
    """A secret for several processes to share."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()
