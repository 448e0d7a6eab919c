"""HTTP sessions: their number, their idle time, the request ids in use in each, and the events a client can resume.

`mcp` owns the sessions themselves, and ends them on request. This module knows when each was last used, and which
requests run in it. `mcp` cannot distinguish two requests with the same id: it would send the response to the first
as that to the second. So an id is claimed for as long as its request is in flight. This module must not know what a
request is about.

It also keeps the events that were sent on the streams of the sessions, for clients that resume them. A client whose
stream broke, or was closed by the server on purpose, names the last event that it has received and gets the rest.
`mcp` uses one store for all sessions and identifies a stream by its request's id, which another session may use
too. So each session has its own log here, found by a context variable. A log is bounded, in number and in bytes:
the oldest events are dropped first. A client that resumes too late gets the events that are left, and an error in
place of a response that was dropped.

A client that resumes the stream of a request also gets the following events from here, up to the response. `mcp`
would send them itself after the replay, but it loses a response that is sent between the two, and it ends the
resumed stream at once if it has not yet noticed that the first connection was lost.
"""

import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, Self
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

from toolwire._support.log import logger_for
from toolwire.mcp.compat import GET_STREAM_KEY, coerce_request_id, connection_of
from toolwire.mcp.serve.access import find_header

logger = logger_for("serving")

HEADER: Final = b"mcp-session-id"
MAX_ID: Final = 1_000
"""The most characters of a request id, which is kept for as long as a client may resume the response."""
_SEND_TIMEOUT: Final = 5.0  # seconds to wait for a response that is being sent before its id counts as in use
_CHECKS: Final = 10  # number of checks for idle sessions within the timeout


class HttpSessions:
    """All open sessions, least recently used first."""

    def __init__(self, limit: int, timeout: float, end: Callable[["HttpSession"], None]) -> None:
        """`end` is called to end a session, which `mcp` then closes. Sessions in use are never ended."""
        self._limit = limit
        self._timeout = timeout
        self._end = end
        self._open: OrderedDict[str, HttpSession] = OrderedDict()
        self._ending: set[str] = set()

    def __len__(self) -> int:
        return len(self._open)

    def find(self, session_id: str) -> "HttpSession | None":
        """Return the open session with that id."""
        return self._open.get(session_id)

    def is_ending(self, session_id: str) -> bool:
        """Return True if a session is being ended, to make room or because it was idle for too long."""
        return session_id in self._ending

    @property
    def full(self) -> bool:
        """True if there is no room for another session, and all are in use."""
        return len(self._open) >= self._limit and next(self._idle(), None) is None

    async def middleware(self, ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        """Middleware of `mcp`: add each session at its first request, and track the requests that run."""
        client = connection_of(ctx)
        session_id = client.session_id
        if session_id is None or session_id in self._ending:
            return await call_next(ctx)
        session = self._open.get(session_id)
        if session is None:
            user = getattr(ctx.request, "scope", {}).get("user")
            session = self._open[session_id] = HttpSession(session_id, user, self._open.move_to_end)
            client.exit_stack.callback(self._forget, session_id)
            self._make_room(session)
        if ctx.request_id is None:
            return await call_next(ctx)
        with session.track(ctx.request_id):
            return await call_next(ctx)

    async def end_idle(self) -> None:
        """End sessions that have not been used for too long, until cancelled."""
        while True:
            await anyio.sleep(min(self._timeout / _CHECKS, 60.0))
            self.end_idle_at(time.monotonic())

    def end_idle_at(self, now: float) -> None:
        """End the sessions that, at the time `now`, have not been used for too long."""
        for session in list(self._idle()):
            if now - session.used < self._timeout:
                break
            self._close(session)

    def _make_room(self, new: "HttpSession") -> None:
        while len(self._open) > self._limit:
            oldest = next(self._idle(), new)
            if oldest is new:  # all others are in use
                return
            logger.info("ending the session that was idle longest: more than %d are open", self._limit)
            self._close(oldest)

    def _idle(self) -> Iterator["HttpSession"]:
        return (session for session in self._open.values() if not session.busy)

    def _close(self, session: "HttpSession") -> None:
        del self._open[session.id]
        self._ending.add(session.id)
        self._end(session)

    def _forget(self, session_id: str) -> None:
        self._open.pop(session_id, None)
        self._ending.discard(session_id)


class _Request:
    """A request, which may have claimed its id. It is in flight while its HTTP request is open or its handler runs.

    It is `answered` once its response is known, which may still have to be sent.
    """

    __slots__ = ("answered", "ended", "open", "running")

    def __init__(self) -> None:
        self.open = False
        self.running = False
        self.answered = False
        self.ended: anyio.Event | None = None  # made by the first task that waits for it


class HttpSession:
    """One session. `user` is the user who opened it, if an application around ours has authenticated one."""

    def __init__(self, session_id: str, user: Any, touch: Callable[[str], None]) -> None:
        self.id = session_id
        self.user = user
        self.used = time.monotonic()
        """The time at which the session was last in use."""
        self._touch = touch
        self.exchanges = 0
        """The number of HTTP requests that are open."""
        self.requests: dict[int | str, _Request] = {}
        """The requests in flight, by id."""

    @property
    def busy(self) -> bool:
        """True while a request is being answered, or a stream is open."""
        return bool(self.exchanges or self.requests)

    @contextmanager
    def track(self, request_id: int | str) -> Iterator[None]:
        """Count a request as in flight inside the block, in which its handler runs.

        It is in flight even if its HTTP request has ended.
        """
        key = coerce_request_id(request_id)
        request = self.requests.get(key)
        if request is None:
            request = self.requests[key] = _Request()
        request.running = True
        try:
            yield
        finally:
            request.running, request.answered = False, True
            self.drop(key, request)
            self.mark_used()

    def drop(self, key: int | str, request: _Request) -> None:
        """Release the id of a request that is not in flight any more."""
        if not request.open and not request.running and self.requests.get(key) is request:
            del self.requests[key]
            if request.ended is not None:
                request.ended.set()

    def mark_used(self) -> None:
        """Note that the session was in use until now."""
        self.used = time.monotonic()
        with suppress(KeyError):  # it is being ended
            self._touch(self.id)


class Exchange:
    """One HTTP request of a session, while it is open, and the request id that it has claimed."""

    __slots__ = ("_key", "_session", "request")

    def __init__(self, session: HttpSession) -> None:
        self.request = _Request()
        self._session = session
        self._key: int | str = ""

    def __enter__(self) -> Self:
        self._session.exchanges += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._session.exchanges -= 1
        self.request.open = False
        self._session.drop(self._key, self.request)
        self._session.mark_used()

    def claim_nowait(self, request_id: int | str) -> bool:
        """Claim a request id until the request has ended. False if another request with it is in flight."""
        self._key, requests = coerce_request_id(request_id), self._session.requests
        if self._key in requests:
            return False
        requests[self._key] = self.request
        self.request.open = True
        return True

    async def claim(self, request_id: int | str) -> bool:
        """Claim an id like `claim_nowait`, but first wait for an earlier request whose response is being sent."""
        if self.claim_nowait(request_id):
            return True
        with anyio.move_on_after(_SEND_TIMEOUT):
            while (request := self._session.requests.get(self._key)) is not None and request.answered:
                request.ended = request.ended or anyio.Event()
                await request.ended.wait()
        return self.claim_nowait(request_id)


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
    """How often the streams of clients that have resumed it were closed."""
    changed: anyio.Event | None = None

    async def wait_for_change(self) -> None:
        """Wait until an event is added, or the stream is closed."""
        self.changed = self.changed or anyio.Event()
        await self.changed.wait()

    def notify_change(self) -> None:
        """Wake the tasks that wait for a change."""
        if self.changed is not None:
            self.changed.set()
            self.changed = None

    def close(self) -> None:
        """Close the streams of clients that have resumed this one. They may resume it again."""
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
        """Add an event and return its id. The message of one that is too large by itself is not kept."""
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
        """Close the streams of clients that have resumed this stream."""
        number = self._numbers.get(stream_id)
        if number is not None:
            self.streams[number].close()

    def close(self) -> None:
        """Close all resumed streams: the session has ended."""
        for stream in self.streams.values():
            stream.close()

    def format_id(self, stream: int, count: int) -> EventId:
        """Make the id of an event. It includes the stream, so that this is known even if the event was dropped."""
        return f"{self.mark}-{stream}-{count}"

    def parse_id(self, event_id: EventId) -> tuple[int, int] | None:
        """Return the stream and the number of an event; None if it does not belong to this session."""
        mark, *numbers = event_id.split("-")
        if mark != self.mark or len(numbers) != 2 or not all(each.isdecimal() for each in numbers):  # noqa: PLR2004
            return None
        if max(map(len, numbers)) > _MAX_DIGITS:
            return None
        stream, count = map(int, numbers)
        return (stream, count) if stream in self.streams and count <= self.count else None

    def after(self, stream: int, count: int) -> list[tuple[int, EventMessage]]:
        """Return the events after number `count` on a stream, as far as they are kept, each with its number."""
        kept = [
            (int(event_id.rpartition("-")[2]), EventMessage(message, event_id))
            for event_id, (number, _, message) in self.events.items()
            if number == stream and message is not None
        ]
        response = self.streams[stream].response
        if response is not None and all(number != response[0] for number, _ in kept):
            dropped = ErrorData(
                code=INTERNAL_ERROR, message="the response was sent before, and is no longer available"
            )
            error = JSONRPCError(jsonrpc="2.0", id=response[1], error=dropped)
            kept.append((response[0], EventMessage(error, self.format_id(stream, response[0]))))
        return [each for each in sorted(kept, key=lambda each: each[0]) if each[0] > count]


_current: ContextVar[SessionLog | None] = ContextVar("toolwire_session", default=None)


class SessionLogs(EventStore):
    """The event store that `mcp` needs. Each session gets only its own events."""

    def __init__(self) -> None:
        # The tasks of a session keep its log alive, in their context, and it is freed with them.
        self._logs: WeakValueDictionary[str, SessionLog] = WeakValueDictionary()
        self._size = 0  # an upper bound: events of sessions that have ended are still counted

    async def run(self, app: Callable[..., Any], scope: Any, receive: Any, send: Any) -> None:
        """Run an ASGI application for one request, with the log of its session as the current one."""
        session_id = find_header(scope, HEADER)
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
        """Middleware of `mcp`: close resumed streams when the session ends, and when the tool closes its stream."""
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
        """Store an event and return its id."""
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
        """Send the stored events after that one on the same stream, and all following ones up to the response.

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
                continue  # more may have been stored meanwhile
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
            with suppress(ValueError, RecursionError):  # a value that contains itself
                text = json.dumps(message.params, ensure_ascii=False, default=str, skipkeys=True)
                message.params = json.loads(text.encode(errors="replace"))
        return 0
