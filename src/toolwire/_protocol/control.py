"""The control protocol: requests, responses and cancellation between the CLI and us, in both directions.

Owns request ids and the envelopes. Turns each frame into an event. Must not know what any request means, nor how
bytes are transported.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Any

from toolwire._protocol.lines import encode
from toolwire._support.record import Record, record

Handler = Callable[[dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]]
"""Handles one kind of request, synchronously or not. An exception is sent to the CLI as an error."""


class Requested:
    """The CLI sent a request, to be answered with `respond` or `respond_error`. Equal only to itself: ids recur."""

    __slots__ = ("body", "request_id", "subtype")

    def __init__(self, request_id: str, subtype: str, body: dict[str, Any]) -> None:
        self.request_id = request_id
        self.subtype = subtype
        self.body = body


@record
class Malformed(Record):
    """The CLI sent an incomplete request; `reply` is the line with the error response."""

    reply: bytes
    reason: str


@record
class Cancelled(Record):
    """The CLI cancelled its request: it no longer expects a response."""

    request_id: str


@record
class Responded(Record):
    """The CLI responded to one of our requests: `error` is None on success."""

    request_id: str
    response: dict[str, Any]
    error: str | None = None
    error_code: str | None = None


@record
class Unmatched(Record):
    """A response without a pending request: late, repeated, or an echo of our own (`--replay-user-messages`)."""

    request_id: Any


Event = Requested | Malformed | Cancelled | Responded | Unmatched


class Control:
    """Matches requests and responses of one connection."""

    def __init__(self) -> None:
        self._count = 0
        self._pending: set[str] = set()
        self._nonce = os.urandom(4).hex()  # distinguishes the ids from those of other connections in a log

    def request(self, body: dict[str, Any]) -> tuple[str, bytes]:
        """Make a request, and return its new id and its line."""
        self._count += 1
        request_id = f"req_{self._count}_{self._nonce}"
        line = encode({"type": "control_request", "request_id": request_id, "request": body})
        self._pending.add(request_id)
        return request_id, line

    def forget(self, request_id: str) -> None:
        """Stop waiting for a response: if one still comes, it is `Unmatched`."""
        self._pending.discard(request_id)

    def respond(self, request_id: str, response: dict[str, Any]) -> bytes:
        """Make the line that answers a request. Raises TypeError if the response is not JSON."""
        body = {"subtype": "success", "request_id": request_id, "response": response}
        return encode({"type": "control_response", "response": body})

    def respond_error(self, request_id: str | None, error: str) -> bytes:
        """Make the line that answers a request with an error."""
        body = {"subtype": "error", "request_id": request_id, "error": error}
        return encode({"type": "control_response", "response": body})

    def receive(self, frame: dict[str, Any]) -> Event | None:
        """Return the event of one frame from the CLI; None for a message of the conversation, as most are."""
        kind = frame.get("type")
        route = _ROUTES.get(kind) if isinstance(kind, str) else None
        return None if route is None else route(self, frame)

    def _on_request(self, frame: dict[str, Any]) -> Event:
        request_id, body = frame.get("request_id"), frame.get("request")
        if not isinstance(request_id, str) or not request_id:
            return self._refuse(None, "control request without a request_id")
        if not isinstance(body, dict):
            return self._refuse(request_id, "control request without a request object")
        subtype = body.get("subtype")
        if not isinstance(subtype, str):
            return self._refuse(request_id, "control request without a subtype")
        return Requested(request_id, subtype, body)

    def _refuse(self, request_id: str | None, reason: str) -> Malformed:
        return Malformed(self.respond_error(request_id, reason), reason)

    def _on_cancel(self, frame: dict[str, Any]) -> Event:
        request_id = frame.get("request_id")
        return Cancelled(request_id) if isinstance(request_id, str) else Unmatched(request_id)

    def _on_response(self, frame: dict[str, Any]) -> Event:
        body = frame.get("response")
        body = body if isinstance(body, dict) else {}
        request_id = body.get("request_id")
        if not isinstance(request_id, str) or request_id not in self._pending:
            return Unmatched(request_id)
        self._pending.discard(request_id)
        if body.get("subtype") == "error":
            text, code = body.get("error"), body.get("error_code")
            return Responded(
                request_id, {}, str(text) if text else "no reason given", str(code) if code else None
            )
        response = body.get("response")
        return Responded(request_id, response if isinstance(response, dict) else {})


_ROUTES = {
    "control_request": Control._on_request,  # noqa: SLF001 - the table of this class
    "control_response": Control._on_response,  # noqa: SLF001
    "control_cancel_request": Control._on_cancel,  # noqa: SLF001
}
