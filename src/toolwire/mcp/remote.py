"""A remote MCP server, as a server object of this process.

Owns the mapping of clients to links: each of our clients has its own session with the remote, so that requests of
the remote (elicitation, sampling, roots) reach the right client. Requests and results are passed on unchanged;
nothing is cached, and only the handshake is interpreted. `mcp` implements HTTP, sessions and the protocol; the
error messages for everything that can be wrong with an address are made here.

    client -> _Proxy (a low-level mcp server) -> Link (mcp's ClientSession over streamable HTTP) -> remote
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import anyio
import anyio.abc
import httpx2
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import listen
from mcp.server import CacheHint, Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from toolwire._protocol.jsonrpc import INTERNAL_ERROR
from toolwire._support.log import logger_for
from toolwire._version import __version__
from toolwire.mcp.compat import (
    CACHEABLE_METHODS,
    CLIENT_HTTP_ERRORS,
    MODERN_PROTOCOL_VERSIONS,
    CallNext,
    HandlerEntry,
    HandlerResult,
    ServerMessageMetadata,
    connection_of,
    event_limit,
)
from toolwire.tools.names import wire_name

logger = logger_for("mcp.remote")

CONNECT_TIMEOUT: Final = 10.0
"""Seconds in which a remote server has to complete the handshake."""

_LINK: Final = "toolwire.proxy"
_OWN_METHODS: Final = {"ping", "server/discover"}  # not forwarded
_CLOSE_TIMEOUT: Final = 2.0  # seconds to notify the remote of the end of the session
# Seconds to wait for the stream of notifications: some servers open it only with the first notification.
_STREAM_TIMEOUT: Final = 0.5
_MAX_EVENT: Final = 256 * 1024 * 1024  # bytes, the same limit as for a line of the CLI
# A client of 2026-07-28 describes itself in each request; our session with the remote has its own description.
_ENVELOPE: Final = {
    types.PROTOCOL_VERSION_META_KEY,
    types.CLIENT_INFO_META_KEY,
    types.CLIENT_CAPABILITIES_META_KEY,
}
_ANY_RESULT: Final[Any] = TypeAdapter(dict[str, Any])
_REASONS: Final[dict[int, str]] = {
    401: 'the server requires authentication (HTTP 401); use --header "Authorization: Bearer ..."',
    403: "the server refuses access (HTTP 403); check the header with your credentials",
    404: "there is nothing at this path (HTTP 404); most servers are at /mcp",
    405: "this path accepts no MCP messages (HTTP 405); most servers are at /mcp",
}

Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True)
class Address:
    """The URL of a remote server, the headers to send, and the timeout for connecting."""

    url: str
    headers: dict[str, str] = field(repr=False)
    timeout: float

    @property
    def public(self) -> str:
        """The URL without the parts that may be secret: user, password, query."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def error(self, reason: str, status: int | None = None) -> MCPError:
        """Make an error that names the address."""
        data = {"url": self.public} | ({} if status is None else {"status": status})
        return MCPError(INTERNAL_ERROR, f"{self.public}: {reason}", data)


class Link:
    """One session with the remote, in a task of its own. `over` is True when it cannot be used any more."""

    def __init__(
        self,
        address: Address,
        client: Context | None = None,
        client_params: types.InitializeRequestParams | None = None,
    ) -> None:
        self.over = False
        self.session_lost = False
        """True if the remote no longer knows our session."""
        self._address = address
        self._client = client  # the request that opened this link: reaches the client outside of calls
        self._client_params = client_params
        self._session: ClientSession | None = None
        self._calls: list[Context] = []
        self._status: int | None = None
        self._stateful = False
        self._stream_open = anyio.Event()
        self._error: MCPError | None = None
        self._closing = anyio.Event()
        self._closed = anyio.Event()

    @property
    def session(self) -> ClientSession:
        """The session with the remote."""
        if self._session is None:
            raise RuntimeError("the link is not open")
        return self._session

    # Opening and closing.

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Connect, and stay connected until `aclose()`. Raises an exception only if connecting fails."""
        try:
            async with (
                self._http() as http,
                streamable_http_client(
                    self._address.url, http_client=http, **event_limit(streamable_http_client, _MAX_EVENT)
                ) as streams,
                self._make_session(*streams) as session,
            ):
                with anyio.fail_after(self._address.timeout):
                    await _initialize(session)
                await self._serve(session, task_status)
        except Exception as error:  # the boundary of this task: pending requests get the reason
            self._error = self._explain(error)
            logger.debug("the link to %s ended", self._address.public, exc_info=error)
            if self._session is None:
                raise self._error from error
        finally:
            self.over = True
            self._closed.set()

    async def aclose(self) -> None:
        """End the link, in bounded time."""
        self.over = True
        self._closing.set()
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            await self._closed.wait()

    async def _serve(self, session: ClientSession, task_status: anyio.abc.TaskStatus[None]) -> None:
        newer = session.discover_result is not None
        async with anyio.create_task_group() as group:
            if newer:
                group.start_soon(self._listen, session)
            if newer or self._stateful:  # notifications are sent on a separate stream: wait until it is open
                with anyio.move_on_after(_STREAM_TIMEOUT):
                    await self._stream_open.wait()
            self._session = session
            task_status.started()
            await self._closing.wait()
            group.cancel_scope.cancel()

    async def _listen(self, session: ClientSession) -> None:
        """Subscribe to changes, as the newer protocol requires."""
        with suppress(Exception):  # the remote may not support it
            async with listen(
                session, tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
            ) as events:
                self._stream_open.set()
                async for _ in events:  # each also arrives as a notification
                    pass
        self._stream_open.set()

    def _http(self) -> httpx2.AsyncClient:
        # A tool may take as long as its client waits for it, so reading has no timeout.
        limits = httpx2.Timeout(30.0, connect=self._address.timeout, read=None)
        hooks: dict[str, list[Any]] = {"response": [self._on_response]}
        return httpx2.AsyncClient(headers=self._address.headers, timeout=limits, event_hooks=hooks)

    def _make_session(self, read: Any, write: Any) -> ClientSession:
        """Make the session, with exactly the capabilities that our client has."""
        params = self._client_params
        capabilities = params.capabilities if params else types.ClientCapabilities()
        own = types.Implementation(name="toolwire", version=__version__)
        return ClientSession(
            read,
            write,
            client_info=params.client_info if params else own,
            elicitation_callback=self._elicit if capabilities.elicitation is not None else None,
            sampling_callback=self._sample if capabilities.sampling is not None else None,
            sampling_capabilities=capabilities.sampling,
            list_roots_callback=self._roots if capabilities.roots is not None else None,
            message_handler=self._on_message,
        )

    # Requests of our client.

    def server_info(self, method: str) -> dict[str, Any]:
        """Return the remote's description of itself, for the result of `initialize` or `server/discover`."""
        session = self.session
        info: dict[str, Any] = {
            "capabilities": session.server_capabilities,
            "instructions": session.instructions,
        }
        if method == "initialize":
            info["serverInfo"] = session.server_info
        return {key: _to_json(value) for key, value in info.items() if value is not None}

    async def request(self, ctx: Context) -> dict[str, Any]:
        """Return the remote's result. Errors of the remote are raised unchanged, ours with the address."""
        progress = partial(_report_progress, ctx) if ctx.meta and "progress_token" in ctx.meta else None
        request = types.Request[dict[str, Any], str](method=ctx.method, params=_strip_envelope(ctx.params))
        self._calls.append(ctx)
        try:
            result: dict[str, Any] = await self.session.send_request(
                request, _ANY_RESULT, progress_callback=progress
            )
        except MCPError as error:
            raise await self._translate(error) from error
        except ValidationError as error:
            raise self._address.error(
                f"its response to {ctx.method} is not valid MCP: {_first_line(error)}"
            ) from error
        else:
            return result
        finally:
            self._calls.remove(ctx)

    async def _translate(self, error: MCPError) -> MCPError:
        """Return the error itself, or the reason if it was the connection that failed."""
        if error.code == types.CONNECTION_CLOSED:
            with anyio.move_on_after(_CLOSE_TIMEOUT):
                await self._closed.wait()
            return self._error or self._address.error("the connection was lost")
        if self._status in _REASONS and error.code in {INTERNAL_ERROR, types.METHOD_NOT_FOUND}:
            status, self._status = self._status, None
            if error.message in CLIENT_HTTP_ERRORS:
                return self._address.error(_REASONS[status or 0], status)
        return error

    # Messages of the remote to our client.

    async def _elicit(self, context: Any, params: types.ElicitRequestParams) -> Any:  # noqa: ARG002
        return await self._request_client(types.ElicitRequest(params=params), types.ElicitResult)

    async def _sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:  # noqa: ARG002
        kind = types.CreateMessageResultWithTools if params.tools else types.CreateMessageResult
        return await self._request_client(types.CreateMessageRequest(params=params), kind)

    async def _roots(self, context: Any) -> Any:  # noqa: ARG002 - mcp names it
        return await self._request_client(types.ListRootsRequest(), types.ListRootsResult)

    async def _request_client(self, request: Any, kind: Any) -> Any:
        """Send a request to our client, on the channel of the newest call, which it most likely belongs to."""
        if self._calls:
            ctx = self._calls[-1]
            related = ServerMessageMetadata(related_request_id=ctx.request_id)
            return await ctx.session.send_request(request, kind, metadata=related)
        if self._client is None:
            raise MCPError(types.METHOD_NOT_FOUND, "there is no client that could answer this request")
        return await self._client.session.send_request(request, kind)

    async def _on_message(self, message: Any) -> None:
        """Pass a notification on. Progress was already passed to its call; logs belong to the newest call."""
        if isinstance(message, Exception | types.ProgressNotification):
            return
        logs = isinstance(message, types.LoggingMessageNotification) and self._calls
        ctx = self._calls[-1] if logs else self._client
        if ctx is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await ctx.session.send_notification(message, ctx.request_id if logs else None)

    # Errors.

    async def _on_response(self, response: httpx2.Response) -> None:
        if response.request.method == "GET":
            self._stream_open.set()
        self._stateful = self._stateful or "mcp-session-id" in response.headers
        if response.request.method == "POST" and response.is_error:
            self._status = response.status_code
            self.session_lost = response.status_code == httpx2.codes.NOT_FOUND and (
                "mcp-session-id" in response.request.headers
            )

    def _explain(self, error: BaseException) -> MCPError:
        """Convert the exception that ended the connection to an error for the user."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        make = self._address.error
        if self._status is not None and self._session is None and not _is_from_remote(error):
            reason = _REASONS.get(
                self._status, f"the server responded with HTTP {self._status}, not with MCP"
            )
            return make(reason, self._status)
        if isinstance(error, TimeoutError | httpx2.TimeoutException):
            return make(f"no response within {self._address.timeout:g} seconds: is it an MCP server?")
        if isinstance(error, httpx2.ConnectError):
            return make(f"cannot connect ({_first_line(error)}): is the server running?")
        if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
            return make(f"this is not a valid URL ({_first_line(error)})")
        if isinstance(error, MCPError) and error.code not in {types.INVALID_REQUEST, types.PARSE_ERROR}:
            return error
        return make(f"this is not an MCP server, or it failed: {_first_line(error)}")


async def _initialize(session: ClientSession) -> None:
    """Do the handshake, after which both sides can send requests, unless the remote only supports `discover`."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


async def _report_progress(ctx: Context, progress: float, total: float | None, message: str | None) -> None:
    await ctx.session.report_progress(progress, total, message)


def _strip_envelope(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the params for the remote, without progress token and description: our session adds its own."""
    stripped = dict(params or {})
    meta = stripped.pop("_meta", None)
    if isinstance(meta, Mapping):
        kept = {key: value for key, value in meta.items() if key not in _ENVELOPE | {"progressToken"}}
        stripped |= {"_meta": kept} if kept else {}
    return stripped


def _to_json(value: Any) -> Any:
    return (
        value.model_dump(mode="json", by_alias=True, exclude_none=True)
        if hasattr(value, "model_dump")
        else value
    )


def _is_from_remote(error: BaseException) -> bool:
    """Return True if the remote sent a JSON-RPC error with the HTTP status."""
    return isinstance(error, MCPError) and error.message not in CLIENT_HTTP_ERRORS


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def proxy(
    url: str, headers: Mapping[str, str] | None = None, *, timeout: float = CONNECT_TIMEOUT
) -> Server[Any]:
    """Return a low-level `mcp` server that passes everything on to the MCP server at `url` (streamable HTTP).

    It connects when a client sends `initialize`; if the remote does not respond within `timeout` seconds, or
    refuses, that client gets the error. `headers` are sent with every request and appear in none of our messages.
    """
    return _Proxy(Address(url, dict(headers or {}), timeout))


def name_of(url: str) -> str:
    """Derive a server name from the distinctive part of a URL's host."""
    parts = urlsplit(url)
    host = parts.hostname or "remote"
    if host == "localhost" or ":" in host or host.replace(".", "").isdigit():
        return f"local_{parts.port}" if parts.port else "local"
    labels = [label for label in host.split(".") if label not in {"www", "mcp", "api"}]
    return wire_name(labels[0] if labels else host)


class _Proxy(Server[anyio.abc.TaskGroup]):
    """The server that our clients connect to."""

    def __init__(self, address: Address) -> None:
        # From 2026-07-28 on a result says how long it may be cached. If the remote does not say so: not at all.
        hints: Any = dict.fromkeys(CACHEABLE_METHODS, CacheHint(ttl_ms=0, scope="private"))
        super().__init__(
            name_of(address.url), version=__version__, lifespan=self._run_links, cache_hints=hints
        )
        self._address = address
        self._shared: Link | None = None  # for clients without a session
        self.middleware.append(self._intercept)

    def get_request_handler(self, method: str) -> HandlerEntry[anyio.abc.TaskGroup] | None:
        """Return our own handler for a few methods, and one that forwards for all others, known or not."""
        if method in _OWN_METHODS:
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
        linked = ctx.method not in _OWN_METHODS and connection_of(ctx).state.get(_LINK) is not None
        # Not through `call_next`, which would drop fields that this version of `mcp` does not know.
        return await self._forward(ctx) if linked else await call_next(ctx)

    async def _on_notification(self, ctx: Context) -> None:
        link = connection_of(ctx).state.get(_LINK)
        if ctx.method == "notifications/roots/list_changed" and link is not None and not link.over:
            await link.session.send_notification(types.RootsListChangedNotification())

    async def _link(self, ctx: Context) -> Link:
        """Return the link of the client. Makes a new one if it has none, or its link is over."""
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
        # The remote was restarted and no longer knows our session, so it has not handled the request.
        await link.aclose()
        return await (await self._link(ctx)).request(ctx)


def _client_params(ctx: Context) -> types.InitializeRequestParams | None:
    """Return the client's description of itself in `initialize`."""
    if ctx.method == "initialize":
        return types.InitializeRequestParams.model_validate(ctx.params or {}, by_name=False)
    return ctx.session.client_params
