"""Calls and lists over HTTP that are answered at once, in one piece.

For every answer `mcp` opens a stream that could carry more, which costs more than most tools do. Here a call begins
straight away. If its result is there within a moment, and its tool has neither told nor asked anything, it goes out
as it is; lists are kept as bytes. In every other case the request goes `mcp`'s way, with the call that has begun
(`begun`): only `mcp` knows of streams, notices, questions and coming back for an answer.

Its rule: what is odd about a request is not judged here, nor is an error ever sent. Both go `mcp`'s way too.
"""

from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import anyio
import mcp_types as types
import orjson
from mcp.server.connection import Connection as Client
from mcp.shared.inbound import (
    InboundLadderRejection,
    classify_inbound_request,
    validate_mcp_param_headers,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from pydantic import ValidationError
from pydantic_core import from_json

from toolwire._protocol.jsonrpc import CANCELLED, RpcError, make_error
from toolwire.mcp.serve.bodies import LONGEST_ID
from toolwire.mcp.serve.channel import RequestChannel
from toolwire.mcp.serve.clients import client_key, session_of
from toolwire.mcp.serve.early_call import Begun
from toolwire.mcp.serve.host import Serving
from toolwire.mcp.serve.http_sessions import Exchange
from toolwire.mcp.serve.tool_lists import METHOD, Lists, shaped
from toolwire.tools.toolset import Toolset

_MOMENT: Final = 0.25  # seconds that an answer may take to be one at once
_BODY: Final = 1 << 20
_SESSIONS: Final = ("2025-06-18", "2025-11-25")  # older ones have other shapes of results
_IDS: Final = 1 << 53  # larger ones are nobody's
_PARTS: Final = frozenset({"jsonrpc", "id", "method", "params"})
_CANCELLED: Final = RpcError(CANCELLED, "Request cancelled")
_CANCEL: Final = "notifications/cancelled"
_LATER_ROUNDS: Final = frozenset({"requestState", "inputResponses"})
_SESSION, _VERSION = b"mcp-session-id", b"mcp-protocol-version"
_STREAM: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]

Headers = Mapping[bytes, bytes]


class Quick:
    """Answers what can be answered at once."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._running: dict[tuple[Client | None, str], Begun] = {}
        self._lists = Lists(serving)
        serving.audience.left = self._left

    async def answered(
        self, scope: Any, body: bytes, send: Any, exchange: Exchange | None
    ) -> tuple[bool, Begun | None]:
        """Whether the request has its answer. If it has not, also the call that has begun for it, if any.

        What begins here has claimed its id, in a session (`exchange`).
        """
        headers = dict(scope["headers"])
        name = headers.get(_SESSION, b"").decode("latin-1")
        if scope["method"] == "DELETE":
            self._serving.audience.named.pop(name, None)  # from now on, not when `mcp` is done with it
        if not self._usual(scope, body, headers):
            return False, None
        asked = self._asked(scope, body, headers, self._serving.audience.named.get(name))
        # An id that is in use is not judged here either.
        if asked is not None and (asked.client is None or exchange is None or exchange.take(asked.id)):
            reply = _Reply(send, asked.id, headers.get(_SESSION) if asked.client is not None else None)
            if asked.method == METHOD:
                page = self._lists.page(asked.version, asked.params.get("cursor"))
                if page is not None:
                    await reply.result(orjson.dumps(page))
                    return True, None
            else:
                begun = await self._called(asked, reply, exchange)
                return begun is None, begun
        return False, None

    # What may be answered here.

    def _usual(self, scope: Any, body: bytes, headers: Headers) -> bool:
        """Whether it may be a request for us, with the headers that every client sends, each once."""
        return (
            scope["method"] == "POST"
            and self._serving.up
            and "user" not in scope  # whose session it is, `mcp` knows
            and isinstance(self._serving.server, Toolset)
            and len(headers) == len(scope["headers"])
            and len(body) <= _BODY
            and _takes_both(headers.get(b"accept", b""))
            and headers.get(b"content-type", b"").partition(b";")[0].strip() == b"application/json"
        )

    def _asked(self, scope: Any, body: bytes, headers: Headers, client: Client | None) -> "_Asked | None":
        """The request in a body, if it is a whole and usual one that we have the answer to."""
        version = headers.get(_VERSION, b"").decode("latin-1")
        modern = version in MODERN_PROTOCOL_VERSIONS
        if not modern and (client is None or client.protocol_version != version):
            return None
        message = _message(body)
        if message is None:
            return None
        if modern:
            client = None
        elif client is not None and message.get("method") == _CANCEL:
            self._cancel(client, message.get("params"))
        if not _fits(message) or not self._serving.core.accepts(
            message["method"], version, message.get("params")
        ):
            return None
        if not (self._routed(message, headers) if client is None else version in _SESSIONS):
            return None
        return _Asked(message["id"], message["method"], message.get("params") or {}, version, client, scope)

    def _routed(self, message: dict[str, Any], headers: Headers) -> bool:
        """Whether the headers of a request without a session say what its body does."""
        texts = {key.decode("latin-1"): value.decode("latin-1") for key, value in headers.items()}
        if isinstance(classify_inbound_request(message, headers=texts), InboundLadderRejection):
            return False
        if message["method"] != "tools/call":
            return True
        params, lookup = message["params"], self._serving.core.get_tool_input_schema
        schema = None if lookup is None else lookup(params["name"])
        if schema is None:
            return False
        return validate_mcp_param_headers(schema, params.get("arguments") or {}, texts) is None

    def _cancel(self, client: Client, params: Any) -> None:
        if isinstance(params, dict) and _is_id(params.get("requestId")):
            begun = self._running.get((client, str(params["requestId"])))
            if begun is not None:
                begun.cancel()

    def _left(self, client: Client) -> None:
        """With a session ends what has begun in it."""
        for place, begun in list(self._running.items()):
            if place[0] is client:
                begun.cancel()

    # Calls.

    async def _called(self, asked: "_Asked", reply: "_Reply", exchange: Exchange | None) -> Begun | None:
        """None if it has its answer, else what has begun."""
        begun, client = Begun(asked.id), asked.client
        session = None if client is None else session_of(client)
        channel = RequestChannel(
            None,
            asked.params,
            None if session is None else session.level,
            session,
            request_scope=None if session is None else session.key,
            declared=asked.declared,
            wanted=begun.turned.set,
            client_key=asked.client_key,
        )
        work = partial(self._serving.result, asked.method, asked.id, asked.params, modern=client is None)
        place = (client, str(asked.id))
        self._running[place] = begun  # until it is over: before `mcp` has it, only we can cancel it

        def over() -> None:
            if self._running.get(place) is begun:
                del self._running[place]

        begun.start(channel, work, over)
        try:
            with anyio.move_on_after(_MOMENT):
                await begun.turned.wait()
        except BaseException:
            begun.cancel()
            raise
        result = None
        if not begun.cancelled:
            result = None if begun.result is None else self._shaped(asked, begun.result)
            if result is None:
                return begun
        if exchange is not None:
            exchange.answered()
        await (reply.error(_CANCELLED) if result is None else reply.result(result))
        return None

    def _shaped(self, asked: "_Asked", result: dict[str, Any]) -> bytes | None:
        """A result as `mcp` would send it. None if it would not, or has more to do with it."""
        if result.get("resultType", "complete") != "complete":
            return None
        try:
            return orjson.dumps(shaped(self._serving, asked.method, asked.version, result))
        except (ValidationError, TypeError, ValueError, RecursionError):
            return None


@dataclass(frozen=True)
class _Asked:
    """A request that is answered here. `client` None: one without a session."""

    id: int | str
    method: str
    params: dict[str, Any]
    version: str
    client: Client | None
    scope: Any

    def client_key(self) -> Hashable:
        """Who its client is, if it has no session."""
        return None if self.client is not None else client_key(self.scope, self.params.get("_meta"))

    def declared(self) -> types.ClientCapabilities | None:
        """What its client can be asked."""
        if self.client is not None:
            return self.client.client_capabilities
        try:
            return types.ClientCapabilities.model_validate(
                self.params["_meta"][types.CLIENT_CAPABILITIES_META_KEY]
            )
        except ValidationError:  # `mcp` too takes these for none at all
            return None


class _Reply:
    """The way back to the client of one request. In a session that is a stream, as ever there; of one event."""

    def __init__(self, send: Any, request_id: int | str, session: bytes | None) -> None:
        self._send = send
        self._id = request_id
        self._session = session

    async def result(self, result: bytes) -> None:
        await self._message(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (orjson.dumps(self._id), result))

    async def error(self, error: RpcError) -> None:
        await self._message(orjson.dumps(make_error(self._id, error)))

    async def _message(self, body: bytes) -> None:
        headers = [(b"content-type", b"application/json")]
        if self._session is not None:
            body = b"event: message\r\ndata: %b\r\n\r\n" % body
            headers = [*_STREAM, (_SESSION, self._session)]
        headers.append((b"content-length", b"%d" % len(body)))
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _fits(message: dict[str, Any]) -> bool:
    """Whether it is a JSON-RPC request for a call or a list, in the first round. Its params are not checked yet."""
    method, params = message.get("method"), message.get("params")
    return (
        message.keys() <= _PARTS
        and message.get("jsonrpc") == "2.0"
        and _is_id(message.get("id"))
        and method in ("tools/call", METHOD)  # a tuple: it may be anything, also what cannot be hashed
        and isinstance(params, dict | None)
        and (params is None or _LATER_ROUNDS.isdisjoint(params))
        # With somebody who wants to see them, requests have spans, which `mcp` makes.
        and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    )


def _is_id(given: Any) -> bool:
    return (type(given) is str and len(given) <= LONGEST_ID) or (type(given) is int and -_IDS < given < _IDS)


@lru_cache(maxsize=64)
def _takes_both(accept: bytes) -> bool:
    kinds = {each.partition(b";")[0].strip().lower() for each in accept.split(b",")}
    return {b"application/json", b"text/event-stream"} <= kinds


def _message(body: bytes) -> dict[str, Any] | None:
    with suppress(ValueError):
        message = from_json(body)
        if isinstance(message, dict):
            return message
    return None
