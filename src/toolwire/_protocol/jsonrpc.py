"""JSON-RPC as MCP uses it: the codes, the envelopes, and what an incoming message is.

Both ways to a server (direct and bridged) sort messages by the same rules here, so that they answer alike. It does
no I/O and knows no method.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

from toolwire.errors import McpError

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002
CANCELLED: Final = -32800

Id = int | float | str


RpcError = McpError
"""An error that goes out as a JSON-RPC error, or came in as one."""


class Unanswerable(Exception):  # noqa: N818 - it names the message, not a fault of ours
    """A message that no JSON-RPC reply fits: its carrier must say no instead."""


class Interrupted(BaseException):
    """The call ends here: its carrier has something else to answer.

    A channel raises it out of `request`. It is no `Exception`, so that no handler in a user's function swallows it.
    """


@dataclass(slots=True)
class Request:
    """Wants a reply with its id."""

    id: Id
    method: str
    params: dict[str, Any]


@dataclass(slots=True)
class Notification:
    """Wants no reply, only to be heard."""

    method: str
    params: dict[str, Any]


@dataclass(slots=True)
class Response:
    """The answer to something that the server asked."""

    id: Any
    result: Any = None
    error: Any = None


def classify(message: Any) -> Request | Notification | Response:
    """What a decoded message is.

    In this order: not an object: `Unanswerable`. `result` or `error` and no `method`: a response. No `id`: a
    notification. Then the request's own parts, each wrong one an `RpcError`; with an id that no reply can carry
    (null would hang the CLI) it is `Unanswerable` again.
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
    """A good reply."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def make_error(request_id: Id | None, error: RpcError) -> dict[str, Any]:
    """An error reply."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def id_in_use(request_id: Id) -> RpcError:
    """The error for a request with the id of another one that is still in flight."""
    return RpcError(
        INVALID_REQUEST,
        f"Invalid Request: the id {str(request_id)[:64]!r} is in use by a request that is not answered yet; give "
        "each request an id of its own",
    )


def make_notification(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """A message that wants no reply."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


class ClientChannel:
    """The way from a server's connection to its client. Each carrier overrides the parts that it supports."""

    session: object = None
    """Identifies the client's session (`Context.session`). None: the connection stands for it."""

    request_scope: str | None = None
    """Identifies a client that uses each request id once (`Context.request_key`). None: ids are reused."""

    @property
    def capabilities(self) -> dict[str, Any]:
        """The MCP client capabilities: requests that the client answers (`sampling`, `elicitation`, `roots`)."""
        return {}

    def client_key(self) -> Hashable:
        """Identify the client of a request without a session, as far as that is known."""
        return None

    def notify(self, message: dict[str, Any]) -> None:
        """Send a notification. Never waits."""

    async def request(
        self, method: str, params: dict[str, Any], *, key: str | None = None, repeatable: bool = True
    ) -> dict[str, Any]:
        """Send a request and wait for its result; `RpcError` if it is refused.

        Some carriers can only deliver the result by running the call again. `key` then identifies the request, and
        `repeatable` False forbids that.
        """
        del params, key, repeatable
        raise RpcError(METHOD_NOT_FOUND, f"{method}: there is no client that could answer this request")

    def close_stream(self) -> None:
        """Over HTTP, end the stream that the response would come on; the client can resume it later."""
