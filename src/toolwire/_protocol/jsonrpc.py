"""JSON-RPC as MCP uses it: error codes, envelopes, and the classification of incoming messages.

Connections to our own servers and to those of other libraries classify messages by these rules, so that they
respond alike. Does no I/O, and must not know any method.
"""

from collections.abc import Hashable
from typing import Any, Final

from toolwire._support.record import Record, record
from toolwire.errors import McpError

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
CONNECTION_CLOSED: Final = -32000
RESOURCE_NOT_FOUND: Final = -32002
CANCELLED: Final = -32800

Id = int | float | str


RpcError = McpError
"""An error that is sent, or was received, as a JSON-RPC error."""

SHUTTING_DOWN: Final = RpcError(CONNECTION_CLOSED, "the server is shutting down and accepts no new requests")


class Unanswerable(Exception):  # noqa: N818 - it names the message, not a fault of ours
    """A message that cannot get a JSON-RPC response: the transport must report the error instead."""


class Interrupted(BaseException):
    """Ends a call whose response is sent by other means: `request()` of a channel raises it.

    It is not an `Exception`, so that no `except` in a user's function swallows it.
    """


@record
class Request(Record):
    """A request: its sender waits for a response with its id."""

    id: Id
    method: str
    params: dict[str, Any]


@record
class Notification(Record):
    """A notification: there is no response."""

    method: str
    params: dict[str, Any]


@record
class Response(Record):
    """The response to a request of the server."""

    id: Any
    result: Any = None
    error: Any = None


def classify(message: Any) -> Request | Notification | Response:
    """Classify a decoded message.

    In this order: not an object raises `Unanswerable`; `result` or `error` without `method` is a response; no `id`
    is a notification; the rest are requests. A wrong part of a request raises `RpcError`, but an id that cannot be
    sent back (null would hang the CLI) raises `Unanswerable`.
    """
    if not isinstance(message, dict):
        raise Unanswerable(f"a JSON-RPC message must be an object, got {type(message).__name__}")
    method = message.get("method")
    if method is None and "method" not in message and ("result" in message or "error" in message):
        return Response(message.get("id"), message.get("result"), message.get("error"))
    params = message.get("params", {})
    if "id" not in message:
        return Notification(
            method if isinstance(method, str) else "", params if isinstance(params, dict) else {}
        )
    request_id = message["id"]
    if isinstance(request_id, bool) or not isinstance(request_id, int | float | str):
        raise Unanswerable("Invalid Request: the id must be a string or a number")
    if message.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'Invalid Request: jsonrpc must be "2.0"')
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "Invalid Request: no method")
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, f"Invalid params: an object is needed, got {type(params).__name__}")
    return Request(request_id, method, params)


def make_response(request_id: Id, result: Any) -> dict[str, Any]:
    """Make a response with a result."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def make_error(request_id: Id | None, error: RpcError) -> dict[str, Any]:
    """Make a response with an error."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def id_in_use(request_id: Id) -> RpcError:
    """Return the error for a request with the id of another one that is still pending."""
    return RpcError(
        INVALID_REQUEST,
        f"Invalid Request: the id {str(request_id)[:64]!r} is in use by a pending request; give each request an id "
        "of its own",
    )


def make_notification(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Make a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


class ClientChannel:
    """The channel from a server's connection to its client. Each transport overrides the parts that it supports."""

    session: object = None
    """Identifies the client's session (`Context.session`). None: the connection is the session."""

    request_scope: str | None = None
    """Identifies a client that uses each request id once (`Context.request_key`). None: ids are reused."""

    server_wide: bool = True
    """False if the client gets what belongs to no request (changes, log messages) on another channel."""

    @property
    def capabilities(self) -> dict[str, Any]:
        """The MCP client capabilities: requests that the client answers (`sampling`, `elicitation`, `roots`)."""
        return {}

    def client_key(self) -> Hashable:
        """Return an identifier for the client of a request without a session; None if it is unknown."""
        return None

    def notify(self, message: dict[str, Any]) -> None:
        """Send a notification. Never waits."""

    def own_list_changed(self) -> bool:
        """Notify only this client that its list of tools has changed. Never waits.

        Returns True if the client may request the list while its call is running.
        """
        self.notify(make_notification("notifications/tools/list_changed"))
        return True

    async def request(
        self, method: str, params: dict[str, Any], *, key: str | None = None, repeatable: bool = True
    ) -> dict[str, Any]:
        """Send a request and wait for its result. Raises `RpcError` if it is refused.

        Some transports can only deliver the result by running the whole call again: then `key` identifies the
        request, and `repeatable=False` forbids a second run.
        """
        del params, key, repeatable
        raise RpcError(METHOD_NOT_FOUND, f"{method}: there is no client that could answer this request")

    def close_stream(self) -> None:
        """Over HTTP, end the stream on which the response would be sent; the client can resume it later."""
