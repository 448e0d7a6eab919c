"""The body of an HTTP request, read before somebody else reads it too."""

from typing import Any

from pydantic_core import from_json

from toolwire._protocol.jsonrpc import INVALID_REQUEST, RpcError
from toolwire.mcp.serve.http_sessions import MAX_ID


async def read(receive: Any, most: int) -> tuple[list[Any], bytes | None]:
    """The messages that came, and the body in them; None if it is over `most` bytes or the client left before."""
    came: list[Any] = []
    size = 0
    while size <= most:
        message = await receive()
        came.append(message)
        if message["type"] != "http.request":
            break
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            return came, b"".join(each.get("body", b"") for each in came)
    return came, None


def replayed(came: list[Any], receive: Any) -> Any:
    """A `receive` that gives what has come already, and then goes on."""
    first = came[::-1]

    async def again() -> Any:
        return first.pop() if first else await receive()

    return again


def request_id(body: bytes) -> int | str | None:
    """The id of the JSON-RPC request in a body; None for anything else, such as a notification.

    `RpcError` for a request with an id that is none: `mcp` would take it for a notification, and never answer.
    """
    try:
        message = from_json(body)
    except ValueError:
        return None
    if not isinstance(message, dict) or not {"id", "method"} <= message.keys():
        return None
    given = message["id"]
    if type(given) is int or (type(given) is str and len(given) <= MAX_ID):
        return given
    raise RpcError(
        INVALID_REQUEST,
        f"Invalid Request: the id must be an integer or a string of at most {MAX_ID} characters",
    )
