"""A server of ours as a low-level server of `mcp`, which speaks every version of the protocol.

Owns what is served now, and how many requests run. `mcp` does the transports, the handshake of
the older versions and the envelopes of 2026-07-28; what a request gets is decided by the server itself, through the
same connection that the CLI would use. One request is one connection: that is all the newest version knows, and for
the older ones it costs next to nothing.
"""

import base64
import os
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolwire._protocol.jsonrpc import (
    CANCELLED,
    METHOD_NOT_FOUND,
    RpcError,
)
from toolwire._support.log import logger_for
from toolwire._support.tasks import spawn
from toolwire.errors import ClaudeSDKError
from toolwire.mcp.serve.channel import RequestChannel
from toolwire.mcp.serve.clients import EVENTS, Audience, Broadcaster, client_key, client_of, session_of
from toolwire.mcp.serve.early_call import taken_over
from toolwire.mcp.serve.low_level_server import Core
from toolwire.mcp.serve.translate import enveloped, greeted, result_of, without_envelope
from toolwire.tools.dispatch.failures import named
from toolwire.tools.dispatch.interface import Connection, Server
from toolwire.tools.dispatch.methods import found
from toolwire.tools.toolset import Toolset

logger = logger_for("serving")

START: Final = 30.0
"""Seconds in which a server has to be ready."""

# What goes to the server as it is. `mcp` checks the parameters against these first.
_SUBSCRIPTIONS: Final = 1_000  # of one session
_LONGEST_URI: Final = 8_192
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


class Serving:
    """What is served now, and to whom. `core` is the `mcp` server to run."""

    def __init__(
        self, server: Server, *, name: str, secret: str | None = None, start_within: float = START
    ) -> None:
        """`secret` seals what a stateless client carries between two rounds of a call: several processes that
        serve the same clients share one. `name` is that of the served thing, until the server tells its own.
        `start_within` are the seconds that the server has to get ready."""
        self.server = server
        self.running = 0
        """Requests that are being answered."""
        self.request_scope: str | None = None
        """Stands for the only client there is, over stdio: it must not use a request id twice, in any version."""
        self.observe: Callable[[str, str], Any] = lambda _method, _name: nullcontext()
        """Gives a context manager around each request, by method and name; for metrics."""
        self._hello: dict[str, Any] = {}
        self._keeper: Connection | None = None
        self._start_within = start_within
        self._changing = anyio.Lock()
        self._stopped = anyio.Event()
        self._connections: set[Connection] = set()
        self.audience = Audience()
        self._idle = anyio.Event()
        info = server if isinstance(server, Toolset) else None
        self.core = Core(
            name if info is None else info.name,
            self.capabilities,
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
            "subscriptions/listen", types.SubscriptionsListenRequestParams, self._listen
        )
        self.core.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self.audience.joined
        )

    # The server behind it.

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Inside, the server is up. `ClaudeSDKError` says what keeps it from that; an inner one does nothing."""
        async with self._changing:
            inner = self._keeper is not None
            if not inner:
                self._keeper, self._hello = await self._kept(self.server)
                self.core.introduce(self._hello)
        if inner:
            yield
            return
        try:
            yield
        finally:
            self.audience.listening.close()
            last, self._keeper = self._keeper, None
            if last is not None:
                with anyio.CancelScope(shield=True):
                    await last.aclose()

    async def _kept(self, server: Server) -> tuple[Connection, dict[str, Any]]:
        """Hold one connection open: it keeps the server's lifespan, and hears of every change. And its hello."""
        channel = Broadcaster(self.audience)
        keeper = (
            server.connect(channel, notify_all_updates=True)
            if isinstance(server, Toolset)
            else server.connect(channel)
        )
        ready = False
        try:
            with anyio.move_on_after(self._start_within):
                hello = await greeted(keeper, {})
                if isinstance(server, Toolset):
                    await server.wait_until_ready()
                ready = True
        except Exception as error:
            what = error.message if isinstance(error, RpcError) else named(error)
            raise ClaudeSDKError(f"server {self._name(server)!r} could not start: {what}") from error
        finally:
            if not ready:
                with anyio.CancelScope(shield=True):
                    await keeper.aclose()
        if not ready:
            text = f"server {self._name(server)!r} did not start within {self._start_within:g} s"
            raise ClaudeSDKError(text)
        return keeper, hello

    async def replace(self, server: Server) -> None:
        """Serve another server from now on. Requests that run finish on the old one; everybody is told.

        `ClaudeSDKError` if it does not start: the old one then stays.
        """
        async with self._changing:
            kinds = set(self.capabilities())
            before = self._keeper
            if before is not None:  # else it starts when it is opened
                self._keeper, self._hello = await self._kept(server)
                self.core.introduce(self._hello)
            self.server = server
            kinds |= set(self.capabilities())
        for method in EVENTS:
            if method.split("/")[1] in kinds:
                self.audience.announce({"method": method})
        if before is not None:
            spawn(before.aclose)

    def capabilities(self) -> dict[str, Any]:
        """What the server can do now."""
        if isinstance(self.server, Toolset):
            return self.server.capabilities()
        told: dict[str, Any] = self._hello.get("capabilities", {})
        if "subscribe" in (told.get("resources") or {}):
            # Each request has a connection of its own, so there is none that could hold its subscriptions.
            rest = {key: value for key, value in told["resources"].items() if key != "subscribe"}
            told = {**told, "resources": rest}
        return told

    @property
    def up(self) -> bool:
        """Whether the server is open."""
        return self._keeper is not None

    def hang_up(self) -> None:
        """End the streams on which clients of the newest version listen for changes."""
        self.audience.listening.close()

    def _schema(self, tool: str) -> Mapping[str, Any] | None:
        known = self.server.tools.get(tool) if isinstance(self.server, Toolset) else None
        return None if known is None else known.json_schema

    async def stop(self, seconds: float) -> bool:
        """Cancel what runs, for good: each request gets an error for an answer, once its work has stopped.

        Waits for that, but not longer than so many seconds; whether all have stopped.
        """
        self._stopped.set()
        for connection in list(self._connections):
            spawn(connection.aclose)
        return await self.drained(seconds)

    async def drained(self, seconds: float) -> bool:
        """Wait until no request runs, but not longer than that; whether it came true."""
        with anyio.move_on_after(seconds):
            while self.running:
                self._idle = anyio.Event()
                await self._idle.wait()
        return not self.running

    # Requests.

    async def _forward(self, ctx: ServerRequestContext[Any, Any], _params: Any) -> dict[str, Any]:
        if (begun := taken_over(ctx.request_id)) is not None:
            return await begun.outcome(ctx)
        params = dict(ctx.params or {})
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        client = session_of(client_of(ctx))  # of the newest version, that of this request alone
        session = None if modern else client
        level = None if session is None else session.level
        scope = self.request_scope or client.key
        channel = RequestChannel(
            ctx, params, level, session, request_scope=scope, client_key=partial(self._client_key, ctx)
        )
        return await self.result(ctx.method, ctx.request_id or 0, params, channel, modern=modern)

    def _client_key(self, ctx: ServerRequestContext[Any, Any]) -> Hashable:
        if client_of(ctx).session_id is not None:
            return None
        return self.request_scope or client_key(getattr(ctx.request, "scope", None), ctx.meta)

    async def result(
        self,
        method: str,
        request_id: int | str,
        params: dict[str, Any],
        channel: RequestChannel,
        *,
        modern: bool,
    ) -> dict[str, Any]:
        """The result of a request; `MCPError` if it is refused."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        with self.counted(method, str(params.get("name") or params.get("uri") or "")) as seen:
            if self._stopped.is_set():
                raise _stopped()
            reply = await self._answered(message, channel)
            if self._stopped.is_set() and reply.get("error", {}).get("code") == CANCELLED:
                raise _stopped()
            result = result_of(reply, method, modern)
            if modern:
                result = enveloped(method, result)
            if seen is not None:
                seen.result(result)
            return result

    @contextmanager
    def counted(self, method: str, name: str) -> Iterator[Any]:
        """Hold this around each request."""
        self.running += 1
        try:
            with self.observe(method, name) as seen:
                yield seen
        finally:
            self.running -= 1
            if not self.running:
                self._idle.set()

    async def _answered(self, message: dict[str, Any], channel: RequestChannel) -> dict[str, Any]:
        connection = self.server.connect(channel)
        self._connections.add(connection)
        reply = None
        try:
            with channel.scope:
                if not isinstance(self.server, Toolset):
                    await greeted(connection, channel.capabilities)
                    message = without_envelope(message)
                reply = await connection.answer(message)
        except BaseException:
            # Whatever the tool made of it, a question to a stateless client ends the call.
            if channel.questions is None:
                raise
        finally:
            self._connections.discard(connection)
            await connection.aclose()
        await channel.flushed()
        if channel.questions is not None:
            return {"result": channel.questions}
        return reply or {}

    async def _set_level(
        self, ctx: ServerRequestContext[Any, Any], params: types.SetLevelRequestParams
    ) -> dict[str, Any]:
        session_of(client_of(ctx)).level = params.level
        return {}

    async def _subscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscribeRequestParams
    ) -> dict[str, Any]:
        uri = str(params.uri)
        try:
            found(self._subscribable(ctx.method), uri, ctx.method)
        except RpcError as error:
            raise MCPError(code=error.code, message=error.message, data=error.data) from None
        subscribed = session_of(client_of(ctx)).resources
        if len(uri) > _LONGEST_URI or len(subscribed) >= _SUBSCRIPTIONS:
            text = (
                f"a session can have {_SUBSCRIPTIONS} subscriptions, each of up to {_LONGEST_URI} characters"
            )
            raise MCPError(code=types.INVALID_PARAMS, message=text)
        subscribed.add(uri)
        return {}

    async def _unsubscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.UnsubscribeRequestParams
    ) -> dict[str, Any]:
        self._subscribable(ctx.method)
        session_of(client_of(ctx)).resources.discard(str(params.uri))
        return {}

    async def _listen(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> Any:
        if not isinstance(self.server, Toolset):
            wanted = params.notifications.model_copy(update={"resource_subscriptions": None})
            params = params.model_copy(update={"notifications": wanted})
        return await self.audience.listening(ctx, params)

    def _subscribable(self, method: str) -> Toolset:
        """The server, if it can tell of updates."""
        if isinstance(self.server, Toolset):
            return self.server
        raise MCPError(code=METHOD_NOT_FOUND, message=f"Method not found: {method}")

    def _name(self, server: Server) -> str:
        return server.name if isinstance(server, Toolset) else self.core.name


def _stopped() -> MCPError:
    text = "the server is ending: the request was cancelled before it was done"
    return MCPError(code=types.CONNECTION_CLOSED, message=text)


def new_secret() -> str:
    """A secret for several processes to share."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()
