"""Every name of `mcp` that we use and that is not part of its documented API, each with the feature that needs it.

No other module may use such a name; `tests/mcp/test_compat.py` checks that, and has a test for each name here. The
differences between the supported versions of `mcp` are handled here too. With 1.x only the names that servers of
other libraries need are defined: `versions.check_mcp` is called before any other is used. Importing this module
loads `mcp`. The attributes by which a high-level server is recognised are in `foreign.detect`, which must not load
it.
"""

import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Final

from mcp.server import Server

from mcp import types
from toolwire.mcp.versions import SERVING, TESTED, installed

try:
    # Everywhere: the messages on `mcp`'s streams, and the request to which a message of the server belongs.
    from mcp.shared.message import ServerMessageMetadata, SessionMessage

    if installed() >= SERVING:
        # Serving: the user of a request, if an application around ours has authenticated one.
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context

        # Serving: a client's state, which outlives its requests (session id, log level, subscriptions, cleanup).
        from mcp.server.connection import Connection as ClientConnection

        # The proxy: the type of its middleware.
        from mcp.server.context import CallNext, HandlerResult

        # The proxy: returns a handler for every method, even an unknown one.
        from mcp.server.lowlevel.server import HandlerEntry

        # Serving 2026-07-28: seals the state that a client keeps between two rounds of a call.
        from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

        # Servers of other libraries: their handlers are called directly, without the queues of `Server.run`.
        from mcp.server.runner import ServerRunner, aclose_shielded

        # Serving: the id, in the event store, of the stream on which a session gets notifications.
        from mcp.server.streamable_http import GET_STREAM_KEY

        # Serving: "7" and 7 are one request id.
        from mcp.shared.dispatcher import as_request_id, coerce_request_id

        # Serving: a request to a client that has no stream to send it on.
        from mcp.shared.exceptions import NoBackChannelError

        # The fast path: whether the headers of a request of 2026-07-28 agree with its body.
        from mcp.shared.inbound import (
            InboundLadderRejection,
            classify_inbound_request,
            validate_mcp_param_headers,
        )

        # Servers of other libraries: their session, and the error that an exception of a handler becomes.
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher, handler_exception_to_error_data

        # Servers of other libraries: describes to a handler the transport of its request.
        from mcp.shared.transport_context import TransportContext

        # The fast path: checks params and shapes results exactly as `mcp` does.
        from mcp_types.methods import CACHEABLE_METHODS, serialize_server_result, validate_client_request

        # Everywhere: versions with a handshake and a session, and those without.
        from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
except ImportError as error:
    raise ImportError(
        f"toolwire does not know this version of mcp ({version('mcp')}): {error}. Install one that it was tested "
        f"with: pip install '{TESTED}'"
    ) from error

__all__ = [
    "CACHEABLE_METHODS",
    "CLIENT_HTTP_ERRORS",
    "GET_STREAM_KEY",
    "HANDSHAKE_PROTOCOL_VERSIONS",
    "MODERN_PROTOCOL_VERSIONS",
    "AuthenticatedUser",
    "CallNext",
    "ClientConnection",
    "HandlerEntry",
    "HandlerResult",
    "InboundLadderRejection",
    "JSONRPCDispatcher",
    "NoBackChannelError",
    "RequestStateBoundary",
    "RequestStateSecurity",
    "ServerMessageMetadata",
    "ServerRunner",
    "SessionMessage",
    "TransportContext",
    "aclose_shielded",
    "as_request_id",
    "authorization_context",
    "classify_inbound_request",
    "coerce_request_id",
    "connection_of",
    "drop_spans",
    "event_limit",
    "forget_server_info",
    "handler_exception_to_error_data",
    "make_message",
    "serialize_server_result",
    "set_schema_lookup",
    "uses_standard_run",
    "validate_client_request",
    "validate_mcp_param_headers",
]

CLIENT_HTTP_ERRORS: Final = frozenset({"Server returned an error response", "Not Found"})
"""Messages that `mcp`'s HTTP client makes up for an HTTP error without a JSON-RPC error."""


# Differences between the supported versions.

_WRAPPED: Final[Any] = None if installed() >= SERVING else types.JSONRPCMessage


def make_message(kind: Any, **fields: Any) -> SessionMessage:
    """Make a message for the streams, without validating it. In 1.x it is wrapped in another object."""
    message = kind.model_construct(jsonrpc="2.0", **fields)
    return SessionMessage(message if _WRAPPED is None else _WRAPPED.model_construct(root=message))


def event_limit(client: Callable[..., Any], size: int) -> dict[str, Any]:
    """Return the argument that lets mcp's HTTP `client` accept events of `size` bytes.

    Before 2.3 there is none, and `httpx2` limits events to 1 MiB.
    """
    keyword = "max_sse_event_size"
    return {keyword: size} if keyword in inspect.signature(client).parameters else {}


def set_schema_lookup(server: Server[Any], find: Callable[[str], Mapping[str, Any] | None]) -> None:
    """Let a server find the schema of a tool by name. Before 2.3 it lists its tools at each call instead."""
    server.get_tool_input_schema = find


def connection_of(ctx: Any) -> "ClientConnection":
    """Return the connection of the client whose request is handled. `mcp` has no public way to get it yet."""
    connection: ClientConnection = ctx.session._connection  # noqa: SLF001
    return connection


def drop_spans(server: Server[Any]) -> None:
    """Remove the middleware, if there is one, that makes `mcp` create a span for every request."""
    server.middleware[:] = [
        each for each in server.middleware if type(each).__name__ != "OpenTelemetryMiddleware"
    ]


def forget_server_info(server: Server[Any]) -> None:
    """Drop the copy that `mcp` keeps of a server's name, version and icons, after one of them has changed."""
    vars(server).pop("_server_info_stamp_source", None)


def uses_standard_run(server: Any) -> bool:
    """Return True if a low-level server has the standard `run` of `mcp` 2.x, which can be replaced by its parts."""
    return installed() >= SERVING and getattr(server.run, "__func__", None) is Server.run
