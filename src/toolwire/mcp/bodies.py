"""The body of an HTTP request, read before somebody else reads it too."""

from typing import Any

from pydantic_core import from_json


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
    """The id of the JSON-RPC request in a body; None for anything else, such as a notification."""
    try:
        message = from_json(body)
    except ValueError:
        return None
    given = message.get("id") if isinstance(message, dict) and "method" in message else None
    return given if type(given) in (int, str) else None
