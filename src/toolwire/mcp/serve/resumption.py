"""Keeps what was sent on the streams of HTTP sessions, for clients that resume them.

A client whose stream broke, or was closed by the server on purpose, names the last event that it has seen and gets
the rest. `mcp` gives all sessions one store and identifies a stream by its request's id, which another session may
use too, so each session has a log of its own here, found by a context variable. Bounded, in number and in bytes:
the oldest events are dropped first. A client that comes too late for some gets those that are left, and an error in
place of a response that was dropped.

A client that resumes the stream of a request also gets the following events from here, up to the response. `mcp`
would send them itself after the replay, but it loses a response that comes between the two, and it ends at once as
long as it has not noticed that the first connection was lost.
"""

import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakValueDictionary

import anyio
from mcp.server import ServerRequestContext
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from toolwire.mcp.compat import GET_STREAM_KEY, connection_of
from toolwire.mcp.serve.http_sessions import HEADER

MAX_EVENTS: Final = 256
"""Events that are kept of one session."""
MAX_BYTES: Final = 16 << 20
"""Bytes that the events of one session may take."""
MAX_TOTAL_BYTES: Final = 128 << 20
"""Bytes that the events of all sessions may take."""
_MAX_DIGITS: Final = 18  # of a number in an event id


@dataclass
class _Stream:
    """One stream of a session. `response` is the number of the event that ended it, and its request's id."""

    id: StreamId
    kept: int = 0
    response: tuple[int, RequestId | None] | None = None
    closed: int = 0
    """The number of times that resumed streams were closed."""
    changed: anyio.Event | None = None

    async def wait_for_change(self) -> None:
        """Wait until an event is added, or the stream is closed."""
        self.changed = self.changed or anyio.Event()
        await self.changed.wait()

    def notify_change(self) -> None:
        """Wake those who wait for a change."""
        if self.changed is not None:
            self.changed.set()
            self.changed = None

    def close(self) -> None:
        """Close the streams of clients that have resumed it. They may resume it again."""
        self.closed += 1
        self.notify_change()


class SessionLog:
    """The events of one session, in the order in which they were sent."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(4)
        self.count = 0
        self.size = 0
        self.events: OrderedDict[EventId, tuple[int, int, JSONRPCMessage | None]] = OrderedDict()
        """By id: the number of the stream, the size in bytes, the message."""
        self.streams: dict[int, _Stream] = {}
        self.closes_with_session = False
        self._numbers: dict[StreamId, int] = {}

    def append(self, stream_id: StreamId, message: JSONRPCMessage | None, size: int) -> EventId:
        """Add an event and return its id. One that is too large by itself is not kept."""
        self.count += 1
        number = self._numbers.setdefault(stream_id, self.count)
        stream = self.streams.setdefault(number, _Stream(stream_id))
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            stream.response = (self.count, message.id)
        event_id = self.format_id(number, self.count)
        if size > MAX_BYTES:
            message, size = None, 0
        self.events[event_id] = (number, size, message)
        self.size += size
        stream.kept += 1
        while len(self.events) > MAX_EVENTS or self.size > MAX_BYTES:
            self.drop_oldest()
        stream.notify_change()
        return event_id

    def drop_oldest(self) -> None:
        """Drop the oldest event, and if there are many streams, the oldest one that has no events."""
        _, (number, size, _) = self.events.popitem(last=False)
        self.size -= size
        self.streams[number].kept -= 1
        if len(self.streams) > 2 * MAX_EVENTS:
            empty = [number for number, stream in self.streams.items() if not stream.kept]
            ended = next((each for each in empty if self.streams[each].response is not None), empty[0])
            stream = self.streams.pop(ended)
            del self._numbers[stream.id]
            stream.close()

    def close_stream(self, stream_id: StreamId) -> None:
        """Close the streams of clients that have resumed that of a request."""
        number = self._numbers.get(stream_id)
        if number is not None:
            self.streams[number].close()

    def close(self) -> None:
        """Close all resumed streams: the session has ended."""
        for stream in self.streams.values():
            stream.close()

    def format_id(self, stream: int, count: int) -> EventId:
        """Make the id of an event. It names the stream, so that this is known when the event was dropped."""
        return f"{self.mark}-{stream}-{count}"

    def parse_id(self, event_id: EventId) -> tuple[int, int] | None:
        """Return the stream and the number of an event; None if it is not of this session."""
        mark, *numbers = event_id.split("-")
        if mark != self.mark or len(numbers) != 2 or not all(each.isdecimal() for each in numbers):  # noqa: PLR2004
            return None
        if max(map(len, numbers)) > _MAX_DIGITS:
            return None
        stream, count = map(int, numbers)
        return (stream, count) if stream in self.streams and count <= self.count else None

    def after(self, stream: int, count: int) -> list[tuple[int, EventMessage]]:
        """Return the events after that number on its stream, as far as they are kept, each with its number."""
        kept = [
            (int(event_id.rpartition("-")[2]), EventMessage(message, event_id))
            for event_id, (number, _, message) in self.events.items()
            if number == stream and message is not None
        ]
        response = self.streams[stream].response
        if response is not None and all(number != response[0] for number, _ in kept):
            dropped = ErrorData(
                code=INTERNAL_ERROR, message="the response was sent, and is not kept any more"
            )
            error = JSONRPCError(jsonrpc="2.0", id=response[1], error=dropped)
            kept.append((response[0], EventMessage(error, self.format_id(stream, response[0]))))
        return [each for each in sorted(kept, key=lambda each: each[0]) if each[0] > count]


_current: ContextVar[SessionLog | None] = ContextVar("toolwire_session", default=None)


class SessionLogs(EventStore):
    """The event store that `mcp` asks for. Each session sees only its own events."""

    def __init__(self) -> None:
        # The tasks of a session hold its log, in their context, and it is freed with them.
        self._logs: WeakValueDictionary[str, SessionLog] = WeakValueDictionary()
        self._size = 0  # at most: events of sessions that have ended are still counted

    async def run(self, app: Callable[..., Any], scope: Any, receive: Any, send: Any) -> None:
        """Run an ASGI application for one request, with the log of its session as the current one."""
        session_id = next(
            (value.decode("latin-1") for name, value in scope["headers"] if name == HEADER), None
        )
        log = (self._logs.get(session_id) if session_id else None) or SessionLog()

        async def watch(message: Any) -> None:
            if session_id is None and message["type"] == "http.response.start":
                for name, value in message.get("headers", ()):
                    if name.lower() == HEADER:
                        self._logs[value.decode("latin-1")] = log
            await send(message)

        token = _current.set(log)
        try:
            await app(scope, receive, watch)
        finally:
            _current.reset(token)

    async def middleware(self, ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        """Middleware of `mcp`: close resumed streams with the session, and when the tool closes its stream."""
        log, close = _current.get(), ctx.close_sse_stream
        if log is None:
            return await call_next(ctx)
        if not log.closes_with_session:
            log.closes_with_session = True
            connection_of(ctx).exit_stack.callback(log.close)
        if close is None:
            return await call_next(ctx)

        async def close_all() -> None:
            log.close_stream(str(ctx.request_id))
            await close()

        return await call_next(replace(ctx, close_sse_stream=close_all))

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep an event and return its id."""
        size = 0 if message is None else _measure(message)
        event_id = (_current.get() or SessionLog()).append(stream_id, message, size)
        self._size += size
        if self._size > MAX_TOTAL_BYTES:
            self._make_room()
        return event_id

    def _make_room(self) -> None:
        """Drop the events of the sessions with the largest logs, until a quarter is free."""
        logs = sorted(self._logs.values(), key=lambda log: log.size)
        self._size = sum(log.size for log in logs)
        while logs and self._size > MAX_TOTAL_BYTES * 3 // 4:
            log = logs.pop()
            self._size -= log.size
            while log.size:
                log.drop_oldest()

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        """Send the events after that one on the same stream, and the following ones up to the response.

        A stream of notifications has no response: then its id is returned, and `mcp` sends the following ones.
        """
        log = _current.get()
        place = None if log is None else log.parse_id(last_event_id)
        if log is None or place is None:
            return None
        number, seen = place
        stream = log.streams[number]
        closed = stream.closed
        if stream.response is not None and stream.response[0] == seen:
            return None
        while stream.closed == closed:
            missed = log.after(number, seen)
            for seen, event in missed:  # noqa: B007 - the loop continues after the last one
                await send_callback(event)
                if isinstance(event.message, JSONRPCResponse | JSONRPCError):
                    return None
            if missed:
                continue  # more may have come meanwhile
            if stream.id == GET_STREAM_KEY:
                return stream.id
            await stream.wait_for_change()
        return None


def _measure(message: JSONRPCMessage) -> int:
    """Return the size of a message in bytes. Repairs one that is not JSON, which would end its stream."""
    try:
        return len(message.model_dump_json())
    except (ValueError, RecursionError):
        if isinstance(message, JSONRPCNotification | JSONRPCRequest):
            with suppress(ValueError, RecursionError):  # of a value that contains itself
                text = json.dumps(message.params, ensure_ascii=False, default=str, skipkeys=True)
                message.params = json.loads(text.encode(errors="replace"))
        return 0
