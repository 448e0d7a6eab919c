"""Answers calls and lists over HTTP with a single plain response, if possible.

For every response `mcp` opens a stream that could carry further messages, which costs more than most tools do. Here
a call starts straight away (`EarlyCall`). If its result is available within a moment, and its tool has sent nothing
to the client, the result is sent at once; lists are kept as bytes (`ToolLists`). Otherwise the request is passed to
`mcp` with the call that has started: only `mcp` handles streams, notifications, requests to the client and
resumption.

Never rejects a request: anything unusual, and every error, is left to `mcp`.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import anyio
import mcp_types as types
import orjson
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from opentelemetry import trace
from pydantic import ValidationError

from toolwire._protocol.jsonrpc import CANCELLED, RpcError, make_error, make_response
from toolwire._support.tasks import spawn
from toolwire.mcp.compat import (
    MODERN_PROTOCOL_VERSIONS,
    ClientConnection,
    InboundLadderRejection,
    classify_inbound_request,
    connection_of,
    serialize_server_result,
    validate_client_request,
    validate_mcp_param_headers,
)
from toolwire.mcp.serve.channel import RequestChannel, client_key, state_of
from toolwire.mcp.serve.host import LowLevelServer, ServerHost, add_envelope
from toolwire.mcp.serve.http_sessions import HEADER, MAX_ID
from toolwire.tools.toolset import Toolset

_CALL: Final = "tools/call"
_LIST: Final = "tools/list"
_CANCEL: Final = "notifications/cancelled"
_ANSWER_TIMEOUT: Final = 0.25  # seconds after which a call that still runs is passed to `mcp`
_TAKEOVER_TIMEOUT: Final = 5.0  # seconds that `mcp` has to take a call over before it is cancelled
_MAX_BODY: Final = 1 << 20
_MAX_INTEGER_ID: Final = 1 << 53
_MAX_PAGES: Final = 64
_SESSION_VERSIONS: Final = ("2025-06-18", "2025-11-25")  # results of older versions have other fields
_FIELDS: Final = frozenset({"jsonrpc", "id", "method", "params"})
_LATER_ROUND: Final = frozenset({"requestState", "inputResponses"})
_CANCELLED: Final = RpcError(CANCELLED, "Request cancelled")
_VERSION: Final = b"mcp-protocol-version"
_JSON: Final = [(b"content-type", b"application/json")]
_STREAM: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]
_EARLY_CALL: Final = "toolwire.early_call"  # in the ASGI scope of a request

Headers = Mapping[bytes, bytes]
Answer = tuple[list[tuple[bytes, bytes]], bytes]
"""The headers and the body of a response."""


class FastPath:
    """Answers those requests that can be answered at once."""

    def __init__(self, host: ServerHost) -> None:
        self._host = host
        self._running: dict[tuple[ClientConnection | None, str], EarlyCall] = {}
        self._lists = ToolLists(host)
        host.clients.on_closed = self._cancel_all
        host.mcp_server.add_request_handler(_CALL, types.CallToolRequestParams, self._take_over)

    async def answer(
        self, scope: Any, headers: Headers, body: bytes, message: Any
    ) -> "Answer | EarlyCall | None":
        """Answer a request, whose body holds `message`, if possible.

        Returns the response to send; or the call that was started, for `mcp` to take over; or None.
        """
        session_id = headers.get(HEADER, b"").decode("latin-1")
        if scope["method"] == "DELETE":
            # From now on the session is not used here, even before `mcp` has ended it.
            self._host.clients.by_session_id.pop(session_id, None)
        if not self._is_eligible(scope, headers, body):
            return None
        request = self._read(scope, headers, message, self._host.clients.by_session_id.get(session_id))
        if request is None:
            return None
        answer = await self._call(request) if request.method == _CALL else self._list(request)
        if not isinstance(answer, bytes):
            return answer
        if request.client is None:
            return _JSON, answer
        # In a session the response is a stream of one event, as `mcp` would send it.
        return [*_STREAM, (HEADER, headers[HEADER])], b"event: message\r\ndata: %b\r\n\r\n" % answer

    async def _take_over(self, ctx: ServerRequestContext[Any, Any], params: Any) -> dict[str, Any]:
        """Handle `tools/call` for `mcp`: wait for the call that has started already, if there is one."""
        early: EarlyCall | None = getattr(ctx.request, "scope", {}).get(_EARLY_CALL)
        return await (self._host.forward(ctx, params) if early is None else early.take_over(ctx))

    # Which requests are answered here.

    def _is_eligible(self, scope: Any, headers: Headers, body: bytes) -> bool:
        """Return True if a request may be answered here: it has the headers that every client sends, each once."""
        return (
            scope["method"] == "POST"
            and self._host.primary_connection is not None
            and not (self._host.traced and _has_provider())
            and "user" not in scope  # `mcp` checks whose session it is
            and isinstance(self._host.server, Toolset)
            and len(headers) == len(scope["headers"])
            and len(body) <= _MAX_BODY
            and _accepts_both(headers.get(b"accept", b""))
            and headers.get(b"content-type", b"").partition(b";")[0].strip() == b"application/json"
        )

    def _read(
        self, scope: Any, headers: Headers, message: Any, client: ClientConnection | None
    ) -> "_Request | None":
        """Return the request in a message if it is complete, valid and can be answered here; else None."""
        version = headers.get(_VERSION, b"").decode("latin-1")
        modern = version in MODERN_PROTOCOL_VERSIONS
        if not modern and (client is None or client.protocol_version != version):
            return None
        if not isinstance(message, dict):
            return None
        if modern:
            client = None
        elif client is not None and message.get("method") == _CANCEL:
            self._cancel(client, message.get("params"))
        if not _is_candidate(message):
            return None
        if not accepts(self._host.mcp_server, message["method"], version, message.get("params")):
            return None
        if not (self._headers_match(message, headers) if client is None else version in _SESSION_VERSIONS):
            return None
        return _Request(message["id"], message["method"], message.get("params") or {}, version, client, scope)

    def _headers_match(self, message: dict[str, Any], headers: Headers) -> bool:
        """Return True if the headers of a request without a session agree with its body."""
        texts = {key.decode("latin-1"): value.decode("latin-1") for key, value in headers.items()}
        if isinstance(classify_inbound_request(message, headers=texts), InboundLadderRejection):
            return False
        if message["method"] != _CALL:
            return True
        params = message["params"]
        schema = self._host.find_schema(params["name"])
        if schema is None:
            return False
        return validate_mcp_param_headers(schema, params.get("arguments") or {}, texts) is None

    def _cancel(self, client: ClientConnection, params: Any) -> None:
        if isinstance(params, dict) and _is_id(params.get("requestId")):
            early = self._running.get((client, str(params["requestId"])))
            if early is not None:
                early.cancel()

    def _cancel_all(self, client: ClientConnection) -> None:
        """Cancel the calls of a session that has ended."""
        for (owner, _), early in list(self._running.items()):
            if owner is client:
                early.cancel()

    # Calls.

    async def _call(self, request: "_Request") -> "bytes | EarlyCall":
        """Run a call. Returns its response; or the call, if it takes long or its result is for `mcp` to handle."""
        client = request.client
        key = (client, str(request.id))

        def forget() -> None:
            if self._running.get(key) is early:
                del self._running[key]

        early = EarlyCall()
        state = None if client is None else state_of(client)
        early.channel = channel = RequestChannel(
            None,
            request.params,
            None if state is None else state.level,
            state,
            request_scope=None if state is None else state.key,
            declared=request.declared,
            on_used=early.over_or_used.set,
            client_key=request.client_key,
        )
        self._running[key] = early  # until it is over: only we can cancel it before `mcp` has it
        work = partial(
            self._host.handle, request.method, request.id, request.params, channel, modern=client is None
        )
        spawn(early.run, work, on_done=forget)
        try:
            with anyio.move_on_after(_ANSWER_TIMEOUT):
                await early.over_or_used.wait()
        except BaseException:
            early.cancel()
            raise
        if early.cancelled:
            return orjson.dumps(make_error(request.id, _CANCELLED))
        result = early.result
        if result is None or result.get("resultType", "complete") != "complete":
            return early
        try:
            shaped = _shape(self._host, _CALL, request.version, result)
            return orjson.dumps(make_response(request.id, shaped))
        except (ValidationError, TypeError, ValueError, RecursionError):
            return early  # `mcp` says what is wrong

    def _list(self, request: "_Request") -> bytes | None:
        """Return the response to `tools/list`; None if `mcp` has to answer."""
        server = self._host.server
        if request.client is not None and isinstance(server, Toolset) and server.lists_per_client:
            return None
        page = self._lists.page(request.version, request.params.get("cursor"))
        return None if page is None else orjson.dumps(make_response(request.id, page))


class EarlyCall:
    """A call that runs before `mcp` has its request.

    If it cannot be answered directly, `mcp` gets the request with this object in the ASGI scope. The handler of
    `mcp` finds it there and waits for it, instead of running the tool a second time.
    """

    def __init__(self) -> None:
        self.over_or_used = anyio.Event()
        """Set when the call is over, or its tool has sent something to the client."""
        self.result: dict[str, Any] | None = None
        """The result, if the call is over and has one."""
        self.cancelled = False
        self._error: BaseException | None = None
        self._over = anyio.Event()
        self._taken = anyio.Event()
        self.channel: RequestChannel | None = None
        """The channel to its client, from its start on."""
        self._scope = anyio.CancelScope()

    async def run(self, work: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        """Run the call, in a task of its own."""
        try:
            with self._scope:
                self.result = await work()
        except Exception as error:  # noqa: BLE001 - raised in `take_over`
            self._error = error
        finally:
            self._over.set()
            self.over_or_used.set()

    def cancel(self) -> None:
        """Cancel the call on behalf of the client. Does nothing once `mcp` has taken it over and can cancel it."""
        if not self._taken.is_set():
            self.cancelled = True
            self._scope.cancel()

    async def take_over(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        """Connect the call to its client, and return its result. If this is cancelled, so is the call."""
        self._taken.set()
        if self.channel is not None:
            self.channel.bind(ctx)
        try:
            await self._over.wait()
        except BaseException:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._over.wait()
            raise
        if self._error is not None:
            raise self._error
        if self.result is None:
            raise MCPError(code=CANCELLED, message="Request cancelled")
        return self.result

    @contextmanager
    def put_into_scope(self, scope: dict[str, Any], is_answered: Callable[[], bool]) -> Iterator[None]:
        """Put the call into the ASGI scope, for the handler of `mcp`.

        If that has not taken it over by the end of the block, the call is cancelled: at once if the client already
        has its response, else after a timeout.
        """
        scope[_EARLY_CALL] = self
        try:
            yield
        finally:
            if not self._taken.is_set() and not self._over.is_set():
                if is_answered():
                    self.cancel()
                else:
                    spawn(self._cancel_unless_taken)

    async def _cancel_unless_taken(self) -> None:
        with anyio.move_on_after(_TAKEOVER_TIMEOUT):
            await self._taken.wait()
            return
        self._scope.cancel()


class ToolLists:
    """The encoded tool list of a server, made once for each page and protocol version.

    `mcp` would check and encode all of it again at each request. A page contains bytes (`orjson.Fragment`), so only
    a transport that encodes with orjson may use it.
    """

    def __init__(self, host: ServerHost) -> None:
        self._host = host
        self._pages: dict[tuple[str, Any], tuple[orjson.Fragment, dict[str, Any]]] = {}

    def page(self, version: str, cursor: Any) -> dict[str, Any] | None:
        """Return the result of `tools/list`; None if `mcp` has to answer."""
        server = self._host.server
        if not isinstance(server, Toolset) or server.before_list() is not None:
            return None
        try:
            plain, mark = server.page(cursor)
        except (KeyError, RpcError):
            return None
        kept = self._pages.get((version, cursor))
        if kept is None or kept[0] is not mark:
            encoded = self._encode(version, plain)
            if encoded is None:
                return None
            if len(self._pages) >= _MAX_PAGES:
                self._pages.clear()
            kept = self._pages[version, cursor] = (mark, encoded)
        began = self._host.start_request()  # only here, because requests that `mcp` answers are counted there
        self._host.finish_request(_LIST, "", kept[1], began)
        return kept[1]

    def _encode(self, version: str, plain: dict[str, Any]) -> dict[str, Any] | None:
        try:
            result = _shape(self._host, _LIST, version, add_envelope(_LIST, plain))
            return {**result, "tools": orjson.Fragment(orjson.dumps(result["tools"]))}
        except (ValidationError, TypeError, ValueError, RecursionError):
            return None

    async def middleware(self, ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        """Middleware of `mcp`: answer `tools/list` from the pages kept here."""
        server = self._host.server
        if (
            ctx.method == _LIST
            and not (isinstance(server, Toolset) and server.lists_per_client)
            and connection_of(ctx).initialize_accepted
            and accepts(self._host.mcp_server, _LIST, ctx.protocol_version, ctx.params)
        ):
            page = self.page(ctx.protocol_version, (ctx.params or {}).get("cursor"))
            if page is not None:
                return page
        return await call_next(ctx)


@dataclass(frozen=True)
class _Request:
    """A request that is answered here. `client` is None for one without a session."""

    id: int | str
    method: str
    params: dict[str, Any]
    version: str
    client: ClientConnection | None
    scope: Any

    def client_key(self) -> Hashable:
        """Identify the client if it has no session."""
        return None if self.client is not None else client_key(self.scope, self.params.get("_meta"))

    def declared(self) -> types.ClientCapabilities | None:
        """Return the capabilities that the client declares."""
        if self.client is not None:
            return self.client.client_capabilities
        try:
            return types.ClientCapabilities.model_validate(
                self.params["_meta"][types.CLIENT_CAPABILITIES_META_KEY]
            )
        except ValidationError:  # `mcp` also treats these as none at all
            return None


def _shape(host: ServerHost, method: str, version: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the fields that `mcp` would send. Raises `ValidationError` if `mcp` would reject it."""
    shaped = serialize_server_result(method, version, result)
    if version in MODERN_PROTOCOL_VERSIONS:
        stamp = {types.SERVER_INFO_META_KEY: host.mcp_server.server_info_stamp}
        shaped["_meta"] = {**stamp, **(shaped.get("_meta") or {})}
    return shaped


def accepts(server: LowLevelServer, method: str, version: str, params: Mapping[str, Any] | None) -> bool:
    """Return True if `mcp` would pass these params to the handler of a request.

    Validates them with the models that `mcp` itself uses: that of the protocol version, and that with which the
    handler is registered.
    """
    handler = server.get_request_handler(method)
    if handler is None:
        return False
    try:
        validate_client_request(method, version, params)
        handler.params_type.model_validate({} if params is None else params, by_name=False)
    except (KeyError, ValueError):  # not in that version; not valid
        return False
    return True


def _is_candidate(message: dict[str, Any]) -> bool:
    """Return True for a JSON-RPC request for a call or a list, in the first round. Does not check its params."""
    method, params = message.get("method"), message.get("params")
    return (
        message.keys() <= _FIELDS
        and message.get("jsonrpc") == "2.0"
        and _is_id(message.get("id"))
        and method in (_CALL, _LIST)  # a tuple, since the method may be unhashable
        and isinstance(params, dict | None)
        and (params is None or _LATER_ROUND.isdisjoint(params))
    )


def _has_provider() -> bool:
    """Return True if the program has set up OpenTelemetry, so that `mcp` creates a span for each request."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _is_id(value: Any) -> bool:
    if type(value) is int:
        return -_MAX_INTEGER_ID < value < _MAX_INTEGER_ID
    return type(value) is str and len(value) <= MAX_ID


@lru_cache(maxsize=64)
def _accepts_both(accept: bytes) -> bool:
    kinds = {each.partition(b";")[0].strip().lower() for each in accept.split(b",")}
    return {b"application/json", b"text/event-stream"} <= kinds
