"""An MCP server on the web, as a server object of this process.

Owns who gets which link: each client of ours has a session of its own at the remote, so that what the remote asks
(elicitation, sampling, roots) reaches the client that it is meant for. Requests go out as they came and results
come back as they are; nothing is cached and nothing is understood but the handshake. It must not know HTTP.

    client -> _Proxy (a low-level mcp server) -> Link (mcp's ClientSession over streamable HTTP) -> remote
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.abc
import mcp_types as types
from mcp.server import Server
from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import HandlerEntry
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolwire._version import __version__
from toolwire.mcp.remote.link import Address, Context, Link
from toolwire.tools.names import wire_name

CONNECT: Final = 10.0
"""Seconds that a remote server gets to answer the handshake."""

_LINK: Final = "toolwire.proxy"
_OWN: Final = {"ping", "server/discover"}


def proxy(url: str, headers: Mapping[str, str] | None = None, *, timeout: float = CONNECT) -> Server[Any]:
    """A low-level `mcp` server that passes everything on to the MCP server at `url` (streamable HTTP).

    Nothing is connected before a client says `initialize`; a remote that is not there within `timeout` seconds, or
    refuses, is that client's error. `headers` go with every request and appear in no message of ours.
    """
    return _Proxy(Address(url, dict(headers or {}), timeout))


def name_of(url: str) -> str:
    """A server name for an address: the telling part of its host."""
    parts = urlsplit(url)
    host = parts.hostname or "remote"
    if host == "localhost" or ":" in host or host.replace(".", "").isdigit():
        return f"local_{parts.port}" if parts.port else "local"
    labels = [label for label in host.split(".") if label not in {"www", "mcp", "api"}]
    return wire_name(labels[0] if labels else host)


class _Proxy(Server[anyio.abc.TaskGroup]):
    """The server as its clients see it."""

    def __init__(self, address: Address) -> None:
        # The newer protocol wants to know how long a result holds. The remote may not know: not at all, then.
        unsure: Any = dict.fromkeys(CACHEABLE_METHODS, CacheHint(ttl_ms=0, scope="private"))
        super().__init__(name_of(address.url), version=__version__, lifespan=self._live, cache_hints=unsure)
        self._address = address
        self._shared: Link | None = None  # for requests that have no connection behind them
        self.middleware.append(self._pass)

    def get_request_handler(self, method: str) -> HandlerEntry[anyio.abc.TaskGroup] | None:
        """Ours for a few, the remote's for all others, known or not."""
        if method in _OWN:
            return super().get_request_handler(method)
        return HandlerEntry(types.RequestParams, self._handle)

    @asynccontextmanager
    async def _live(self, _server: Server[Any]) -> AsyncIterator[anyio.abc.TaskGroup]:
        async with anyio.create_task_group() as group:
            try:
                yield group
            finally:
                if self._shared is not None:
                    await self._shared.aclose()
                    self._shared = None
                group.cancel_scope.cancel()

    async def _handle(self, ctx: Context, _params: Any) -> HandlerResult:
        result = await self._forward(ctx)
        newer = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        return {"resultType": "complete", **result} if newer else result

    async def _pass(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            await self._heard(ctx)
            return await call_next(ctx)
        if ctx.method in {"initialize", "server/discover"}:
            link = await self._link(ctx)
            answer = await call_next(ctx)
            return {**answer, **link.introduction(ctx.method)} if isinstance(answer, dict) else answer
        known = ctx.method not in _OWN and _connection(ctx).state.get(_LINK) is not None
        # Not through `call_next`, which would leave out what this version of `mcp` does not know.
        return await self._forward(ctx) if known else await call_next(ctx)

    async def _heard(self, ctx: Context) -> None:
        link = _connection(ctx).state.get(_LINK)
        if ctx.method == "notifications/roots/list_changed" and link is not None and not link.over:
            await link.session.send_notification(types.RootsListChangedNotification())

    async def _link(self, ctx: Context) -> Link:
        """The link for who asks; a new one if there is none, or it has broken."""
        connection = _connection(ctx)
        lasting = connection.protocol_version not in MODERN_PROTOCOL_VERSIONS
        link: Link | None = connection.state.get(_LINK) if lasting else self._shared
        if link is not None and not link.over:
            return link
        link = Link(self._address, ctx, _offer(ctx)) if lasting else Link(self._address)
        await ctx.lifespan_context.start(link.keep)
        if lasting:
            connection.state[_LINK] = link
            connection.exit_stack.push_async_callback(link.aclose)
        else:
            self._shared = link
        return link

    async def _forward(self, ctx: Context) -> dict[str, Any]:
        link = await self._link(ctx)
        try:
            return await link.request(ctx)
        except MCPError:
            if not link.forgotten:
                raise
        # The remote has started anew and knows nothing of our session: it has not done what was asked.
        await link.aclose()
        return await (await self._link(ctx)).request(ctx)


def _connection(ctx: Context) -> Any:
    """The client's connection, whose state and end are not to be had otherwise."""
    return ctx.session._connection  # noqa: SLF001


def _offer(ctx: Context) -> types.InitializeRequestParams | None:
    """What the client has said of itself, or says right now."""
    if ctx.method == "initialize":
        return types.InitializeRequestParams.model_validate(ctx.params or {}, by_name=False)
    return ctx.session.client_params
