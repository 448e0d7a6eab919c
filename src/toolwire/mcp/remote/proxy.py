"""A remote MCP server, as a server object of this process.

Owns which client uses which link: each client of ours has a session of its own with the remote, so that requests of
the remote (elicitation, sampling, roots) reach the right client. Requests and results are passed on unchanged;
nothing is cached, and nothing but the handshake is interpreted. Must not know HTTP.

    client -> _Proxy (a low-level mcp server) -> Link (mcp's ClientSession over streamable HTTP) -> remote
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.abc
import mcp_types as types
from mcp.server import CacheHint, Server
from mcp.shared.exceptions import MCPError

from toolwire._version import __version__
from toolwire.mcp.compat import (
    CACHEABLE_METHODS,
    MODERN_PROTOCOL_VERSIONS,
    CallNext,
    HandlerEntry,
    HandlerResult,
    connection_of,
)
from toolwire.mcp.remote.link import Address, Context, Link
from toolwire.tools.names import wire_name

CONNECT_TIMEOUT: Final = 10.0
"""Seconds that a remote server has to answer the handshake."""

_LINK: Final = "toolwire.proxy"
_OWN: Final = {"ping", "server/discover"}


def proxy(
    url: str, headers: Mapping[str, str] | None = None, *, timeout: float = CONNECT_TIMEOUT
) -> Server[Any]:
    """Return a low-level `mcp` server that passes everything on to the MCP server at `url` (streamable HTTP).

    It connects when a client sends `initialize`; if the remote does not answer within `timeout` seconds, or
    refuses, that client gets the error. `headers` are sent with every request and appear in no message of ours.
    """
    return _Proxy(Address(url, dict(headers or {}), timeout))


def name_of(url: str) -> str:
    """Make a server name from the characteristic part of a URL's host."""
    parts = urlsplit(url)
    host = parts.hostname or "remote"
    if host == "localhost" or ":" in host or host.replace(".", "").isdigit():
        return f"local_{parts.port}" if parts.port else "local"
    labels = [label for label in host.split(".") if label not in {"www", "mcp", "api"}]
    return wire_name(labels[0] if labels else host)


class _Proxy(Server[anyio.abc.TaskGroup]):
    """The server that our clients connect to."""

    def __init__(self, address: Address) -> None:
        # From 2026-07-28 on a result says how long it may be kept. The remote may not say: not at all, then.
        hints: Any = dict.fromkeys(CACHEABLE_METHODS, CacheHint(ttl_ms=0, scope="private"))
        super().__init__(
            name_of(address.url), version=__version__, lifespan=self._run_links, cache_hints=hints
        )
        self._address = address
        self._shared: Link | None = None  # for clients without a session
        self.middleware.append(self._intercept)

    def get_request_handler(self, method: str) -> HandlerEntry[anyio.abc.TaskGroup] | None:
        """Return our own handler for a few methods, and one that forwards for all others, known or not."""
        if method in _OWN:
            return super().get_request_handler(method)
        return HandlerEntry(types.RequestParams, self._handle)

    @asynccontextmanager
    async def _run_links(self, _server: Server[Any]) -> AsyncIterator[anyio.abc.TaskGroup]:
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

    async def _intercept(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            await self._on_notification(ctx)
            return await call_next(ctx)
        if ctx.method in {"initialize", "server/discover"}:
            link = await self._link(ctx)
            result = await call_next(ctx)
            return {**result, **link.server_info(ctx.method)} if isinstance(result, dict) else result
        linked = ctx.method not in _OWN and connection_of(ctx).state.get(_LINK) is not None
        # Not through `call_next`, which would drop what this version of `mcp` does not know.
        return await self._forward(ctx) if linked else await call_next(ctx)

    async def _on_notification(self, ctx: Context) -> None:
        link = connection_of(ctx).state.get(_LINK)
        if ctx.method == "notifications/roots/list_changed" and link is not None and not link.over:
            await link.session.send_notification(types.RootsListChangedNotification())

    async def _link(self, ctx: Context) -> Link:
        """Return the link of the client; a new one if it has none, or its link is over."""
        connection = connection_of(ctx)
        has_session = connection.protocol_version not in MODERN_PROTOCOL_VERSIONS
        link: Link | None = connection.state.get(_LINK) if has_session else self._shared
        if link is not None and not link.over:
            return link
        link = Link(self._address, ctx, _client_params(ctx)) if has_session else Link(self._address)
        await ctx.lifespan_context.start(link.run)
        if has_session:
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
            if not link.session_lost:
                raise
        # The remote was restarted and does not know our session, so it has not handled the request.
        await link.aclose()
        return await (await self._link(ctx)).request(ctx)


def _client_params(ctx: Context) -> types.InitializeRequestParams | None:
    """Return what the client said of itself in `initialize`."""
    if ctx.method == "initialize":
        return types.InitializeRequestParams.model_validate(ctx.params or {}, by_name=False)
    return ctx.session.client_params
