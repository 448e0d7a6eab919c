"""One session with an MCP server on the web, kept on behalf of one client.

Owns the connection and its end, what goes out and comes back, what the remote asks of the client, and the words for
everything that can be wrong with an address. HTTP, session and protocol are `mcp`'s. It knows of the client only
what a request of it carries.
"""

from collections.abc import Mapping
from contextlib import suppress
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
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import TypeAdapter, ValidationError

from toolwire._protocol.jsonrpc import INTERNAL_ERROR
from toolwire._support.log import logger_for
from toolwire._version import __version__

logger = logger_for("mcp.remote")

_LEAVE: Final = 2.0  # seconds to tell the remote that we are gone
_HEARING: Final = (
    0.5  # seconds for the stream of what the remote tells: some open it with the first word only
)
_LARGEST: Final = 256 * 1024 * 1024  # bytes in one event, as a line of the CLI may have
# What a client of the newer protocol says of itself in each request: our session over there has words of its own.
_ENVELOPE: Final = {
    types.PROTOCOL_VERSION_META_KEY,
    types.CLIENT_INFO_META_KEY,
    types.CLIENT_CAPABILITIES_META_KEY,
}
_ANYTHING: Final[Any] = TypeAdapter(dict[str, Any])
_REASONS: Final[dict[int, str]] = {
    401: 'it wants to know who you are (HTTP 401): send a header, as in --header "Authorization: Bearer ..."',
    403: "it does not let you in (HTTP 403): is the header with your credentials right?",
    404: "there is nothing at this path (HTTP 404): most servers are at /mcp",
    405: "this path takes no MCP messages (HTTP 405): most servers are at /mcp",
}

Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True)
class Address:
    """Where a remote server is, and how to get in."""

    url: str
    headers: dict[str, str] = field(repr=False)
    timeout: float

    @property
    def shown(self) -> str:
        """Without what may be secret: user, password, query."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def failed(self, reason: str, status: int | None = None) -> MCPError:
        """An error that names the address."""
        data = {"url": self.shown} | ({} if status is None else {"status": status})
        return MCPError(INTERNAL_ERROR, f"{self.shown}: {reason}", data)


class Link:
    """One session with the remote, in a task of its own. `over` once it cannot be used any more."""

    def __init__(
        self,
        address: Address,
        client: Context | None = None,
        offer: types.InitializeRequestParams | None = None,
    ) -> None:
        self.over = False
        self.forgotten = False
        self._address = address
        self._client = client  # the request that opened it: its session reaches the client outside of calls
        self._offer = offer
        self._session: ClientSession | None = None
        self._calls: list[Context] = []
        self._status: int | None = None
        self._stateful = False
        self._hearing = anyio.Event()
        self._problem: MCPError | None = None
        self._leaving = anyio.Event()
        self._gone = anyio.Event()

    @property
    def session(self) -> ClientSession:
        """The session with the remote."""
        if self._session is None:
            raise RuntimeError("the link is not open")
        return self._session

    # Its life.

    async def keep(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Connect, and stay so until `aclose`. Raises only before it has started."""
        try:
            async with (
                self._http() as http,
                streamable_http_client(
                    self._address.url, http_client=http, max_sse_event_size=_LARGEST
                ) as streams,
                self._speaking(*streams) as session,
            ):
                with anyio.fail_after(self._address.timeout):
                    await _greet(session)
                await self._stay(session, task_status)
        except Exception as error:  # the boundary of this task: whoever waits for an answer gets the reason
            self._problem = self._explained(error)
            logger.debug("the link to %s ended", self._address.shown, exc_info=error)
            if self._session is None:
                raise self._problem from error
        finally:
            self.over = True
            self._gone.set()

    async def aclose(self) -> None:
        """End it, in bounded time."""
        self.over = True
        self._leaving.set()
        with anyio.move_on_after(_LEAVE, shield=True):
            await self._gone.wait()

    async def _stay(self, session: ClientSession, task_status: anyio.abc.TaskStatus[None]) -> None:
        newer = session.discover_result is not None
        async with anyio.create_task_group() as group:
            if newer:
                group.start_soon(self._listen, session)
            if newer or self._stateful:  # what it tells comes on a stream of its own: be there to hear it
                with anyio.move_on_after(_HEARING):
                    await self._hearing.wait()
            self._session = session
            task_status.started()
            await self._leaving.wait()
            group.cancel_scope.cancel()

    async def _listen(self, session: ClientSession) -> None:
        """The newer protocol tells changes only to who listens for them."""
        with suppress(Exception):  # a remote without it has nothing to tell
            async with listen(
                session, tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
            ) as events:
                self._hearing.set()
                async for _ in events:  # each has come as a notification too
                    pass
        self._hearing.set()

    def _http(self) -> httpx2.AsyncClient:
        # A tool may take as long as its client waits for it, so reading has no limit of its own.
        limits = httpx2.Timeout(30.0, connect=self._address.timeout, read=None)
        hooks: dict[str, list[Any]] = {"response": [self._seen]}
        return httpx2.AsyncClient(headers=self._address.headers, timeout=limits, event_hooks=hooks)

    def _speaking(self, read: Any, write: Any) -> ClientSession:
        """The session, able to be asked exactly what our client can be asked."""
        offer = self._offer
        able = offer.capabilities if offer else types.ClientCapabilities()
        return ClientSession(
            read,
            write,
            client_info=offer.client_info
            if offer
            else types.Implementation(name="toolwire", version=__version__),
            elicitation_callback=self._elicit if able.elicitation is not None else None,
            sampling_callback=self._sample if able.sampling is not None else None,
            sampling_capabilities=able.sampling,
            list_roots_callback=self._roots if able.roots is not None else None,
            message_handler=self._told,
        )

    # What our client wants.

    def introduction(self, method: str) -> dict[str, Any]:
        """What the remote says of itself, for the answer to `initialize` or `server/discover`."""
        session = self.session
        told: dict[str, Any] = {
            "capabilities": session.server_capabilities,
            "instructions": session.instructions,
        }
        if method == "initialize":
            told["serverInfo"] = session.server_info
        return {key: _plain(value) for key, value in told.items() if value is not None}

    async def request(self, ctx: Context) -> dict[str, Any]:
        """The remote's result; its errors as they are, ours with the address."""
        progress = partial(_report, ctx) if ctx.meta and "progress_token" in ctx.meta else None
        asked = types.Request[dict[str, Any], str](method=ctx.method, params=_outward(ctx.params))
        self._calls.append(ctx)
        try:
            result: dict[str, Any] = await self.session.send_request(
                asked, _ANYTHING, progress_callback=progress
            )
        except MCPError as error:
            raise await self._reason(error) from error
        except ValidationError as error:
            raise self._address.failed(f"its answer to {ctx.method} is not MCP: {_first(error)}") from error
        else:
            return result
        finally:
            self._calls.remove(ctx)

    async def _reason(self, error: MCPError) -> MCPError:
        """The error itself, unless the way there is what has failed."""
        if error.code == types.CONNECTION_CLOSED:
            with anyio.move_on_after(_LEAVE):
                await self._gone.wait()
            return self._problem or self._address.failed("the connection was lost")
        if self._status in _REASONS and error.code in {INTERNAL_ERROR, types.METHOD_NOT_FOUND}:
            status, self._status = self._status, None
            if error.message in {"Server returned an error response", "Not Found"}:
                return self._address.failed(_REASONS[status or 0], status)
        return error

    # What the remote wants of our client.

    async def _elicit(self, context: Any, params: types.ElicitRequestParams) -> Any:  # noqa: ARG002
        return await self._ask(types.ElicitRequest(params=params), types.ElicitResult)

    async def _sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:  # noqa: ARG002
        kind = types.CreateMessageResultWithTools if params.tools else types.CreateMessageResult
        return await self._ask(types.CreateMessageRequest(params=params), kind)

    async def _roots(self, context: Any) -> Any:  # noqa: ARG002 - mcp names it
        return await self._ask(types.ListRootsRequest(), types.ListRootsResult)

    async def _ask(self, request: Any, kind: Any) -> Any:
        """Ask on the channel of the newest call, which is what the question is about."""
        if self._calls:
            ctx = self._calls[-1]
            related = ServerMessageMetadata(related_request_id=ctx.request_id)
            return await ctx.session.send_request(request, kind, metadata=related)
        if self._client is None:
            raise MCPError(types.METHOD_NOT_FOUND, "there is no client to ask")
        return await self._client.session.send_request(request, kind)

    async def _told(self, message: Any) -> None:
        """A notification. Progress has gone to its call already; logs belong to the newest call."""
        if isinstance(message, Exception | types.ProgressNotification):
            return
        logs = isinstance(message, types.LoggingMessageNotification) and self._calls
        ctx = self._calls[-1] if logs else self._client
        if ctx is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await ctx.session.send_notification(message, ctx.request_id if logs else None)

    # What went wrong.

    async def _seen(self, response: httpx2.Response) -> None:
        if response.request.method == "GET":
            self._hearing.set()
        self._stateful = self._stateful or "mcp-session-id" in response.headers
        if response.request.method == "POST" and response.is_error:
            self._status = response.status_code
            self.forgotten = response.status_code == httpx2.codes.NOT_FOUND and (
                "mcp-session-id" in response.request.headers
            )

    def _explained(self, error: BaseException) -> MCPError:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        failed = self._address.failed
        if self._status is not None and self._session is None and not _spoke(error):
            return failed(
                _REASONS.get(self._status, f"it answers HTTP {self._status}, not MCP"), self._status
            )
        if isinstance(error, TimeoutError | httpx2.TimeoutException):
            return failed(f"no answer within {self._address.timeout:g} seconds: is it an MCP server?")
        if isinstance(error, httpx2.ConnectError):
            return failed(f"cannot connect ({_first(error)}): is the server running?")
        if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
            return failed(f"this is no address ({_first(error)})")
        if isinstance(error, MCPError) and error.code not in {types.INVALID_REQUEST, types.PARSE_ERROR}:
            return error
        return failed(f"this is no MCP server, or it failed: {_first(error)}")


async def _greet(session: ClientSession) -> None:
    """The handshake, in which both sides can ask; for a remote that has left it behind, the newer protocol."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


async def _report(ctx: Context, progress: float, total: float | None, message: str | None) -> None:
    await ctx.session.report_progress(progress, total, message)


def _outward(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The params as the remote gets them: the progress token is replaced on the way by one of our session."""
    outward = dict(params or {})
    meta = outward.pop("_meta", None)
    if isinstance(meta, Mapping):
        kept = {key: value for key, value in meta.items() if key not in _ENVELOPE | {"progressToken"}}
        outward |= {"_meta": kept} if kept else {}
    return outward


def _plain(value: Any) -> Any:
    return (
        value.model_dump(mode="json", by_alias=True, exclude_none=True)
        if hasattr(value, "model_dump")
        else value
    )


def _spoke(error: BaseException) -> bool:
    """Whether the remote's own words came with the status."""
    return isinstance(error, MCPError) and error.message not in {
        "Server returned an error response",
        "Not Found",
    }


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
