"""What was sent on the streams of HTTP sessions, kept for clients that come back for it.

A client whose stream broke, or was closed by the server on purpose, names the last event that it has seen and gets
the rest. `mcp` hands all sessions to one store and calls a stream by its request's id, which another session may
use too, so each session has a memory of its own here, found by context. Bounded, in number and in bytes: the oldest
events go first. A client that comes too late for some gets what is left, and an error for an answer that is gone.

Whoever comes back for an answer hears all that follows from here too, up to the answer. `mcp` would pass it on by
itself after the replay, but forgets an answer that comes between the two, and ends at once while the connection
that was lost is not known to be.
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
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    EventCallback,
    EventId,
    EventMessage,
    EventStore,
    StreamId,
)
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

from toolwire.mcp.compat import connection_of

MOST: Final = 256
"""Events that are kept of one session."""
BYTES: Final = 16 << 20
"""What the events of one session may take."""
ALL_BYTES: Final = 128 << 20
"""What those of all sessions may take."""
_HEADER: Final = b"mcp-session-id"


@dataclass
class _Stream:
    """One stream of a session. `answer` is the number of the event that ended it, and its request's id."""

    id: StreamId
    kept: int = 0
    answer: tuple[int, RequestId | None] | None = None
    closed: int = 0
    """How often those who came back for it were sent away."""
    moved: anyio.Event | None = None

    async def change(self) -> None:
        """Wait until an event is added, or it is closed."""
        self.moved = self.moved or anyio.Event()
        await self.moved.wait()

    def changed(self) -> None:
        """Wake those who wait for that."""
        if self.moved is not None:
            self.moved.set()
            self.moved = None

    def close(self) -> None:
        """End the streams of those who came back for it. They may come once more."""
        self.closed += 1
        self.changed()


@dataclass(frozen=True)
class _Place:
    """Where an event belongs, and what it takes."""

    stream: int
    size: int


class Memory:
    """The events of one session, in the order in which they were sent."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(4)
        self.count = 0
        self.size = 0
        self.events: OrderedDict[EventId, tuple[_Place, JSONRPCMessage | None]] = OrderedDict()
        self.streams: dict[int, _Stream] = {}
        self.watched = False
        """Whether its session closes it when it ends."""
        self._numbers: dict[StreamId, int] = {}

    def keep(self, stream_id: StreamId, message: JSONRPCMessage | None, size: int) -> EventId:
        """Add an event; its id. What is too large by itself does not stay."""
        self.count += 1
        number = self._numbers.setdefault(stream_id, self.count)
        stream = self.streams.setdefault(number, _Stream(stream_id))
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            stream.answer = (self.count, message.id)
        event_id = self.name(number, self.count)
        if size > BYTES:
            message, size = None, 0
        self.events[event_id] = (_Place(number, size), message)
        self.size += size
        stream.kept += 1
        while len(self.events) > MOST or self.size > BYTES:
            self.drop()
        stream.changed()
        return event_id

    def drop(self) -> None:
        """Forget the oldest event, and the oldest stream that nobody can need, if there are many."""
        _, (place, _) = self.events.popitem(last=False)
        self.size -= place.size
        self.streams[place.stream].kept -= 1
        if len(self.streams) > 2 * MOST:
            bare = [number for number, stream in self.streams.items() if not stream.kept]
            over = next((each for each in bare if self.streams[each].answer is not None), bare[0])
            stream = self.streams.pop(over)
            del self._numbers[stream.id]
            stream.close()

    def close_stream(self, stream_id: StreamId) -> None:
        """End the streams of those who came back for a request's."""
        number = self._numbers.get(stream_id)
        if number is not None:
            self.streams[number].close()

    def close(self) -> None:
        """The session has ended: nothing more will come."""
        for stream in self.streams.values():
            stream.close()

    def name(self, stream: int, count: int) -> EventId:
        """The id of an event: it tells the stream though the event itself be forgotten."""
        return f"{self.mark}-{stream}-{count}"

    def place(self, event_id: EventId) -> tuple[int, int] | None:
        """The stream and the number of an event of this session."""
        mark, *numbers = event_id.split("-")
        if mark != self.mark or len(numbers) != 2 or not all(each.isdecimal() for each in numbers):  # noqa: PLR2004
            return None
        if max(map(len, numbers)) > 18:  # noqa: PLR2004 - made up
            return None
        stream, count = map(int, numbers)
        return (stream, count) if stream in self.streams and count <= self.count else None

    def after(self, stream: int, count: int) -> list[tuple[int, EventMessage]]:
        """What came after an event on its stream, as far as it is left, and the number of each event."""
        left = [
            (int(event_id.rpartition("-")[2]), EventMessage(message, event_id))
            for event_id, (place, message) in self.events.items()
            if place.stream == stream and message is not None
        ]
        answer = self.streams[stream].answer
        if answer is not None and all(number != answer[0] for number, _ in left):
            gone = ErrorData(code=INTERNAL_ERROR, message="the answer came, but is not kept any more")
            error = JSONRPCError(jsonrpc="2.0", id=answer[1], error=gone)
            left.append((answer[0], EventMessage(error, self.name(stream, answer[0]))))
        return [each for each in sorted(left, key=lambda each: each[0]) if each[0] > count]


_current: ContextVar[Memory | None] = ContextVar("toolwire_session", default=None)


class Events(EventStore):
    """The store that `mcp` asks for: each session sees only its own."""

    def __init__(self) -> None:
        # The tasks of a session hold its memory, in their context; with them it goes.
        self._memories: WeakValueDictionary[str, Memory] = WeakValueDictionary()
        self._size = 0  # at most: what went with its session is still counted

    async def answering(self, app: Callable[..., Any], scope: Any, receive: Any, send: Any) -> None:
        """Run an ASGI application for one request with its session's memory in reach."""
        named = next((value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER), None)
        memory = (self._memories.get(named) if named else None) or Memory()

        async def watched(message: Any) -> None:
            if named is None and message["type"] == "http.response.start":
                for name, value in message.get("headers", ()):
                    if name.lower() == _HEADER:
                        self._memories[value.decode("latin-1")] = memory
            await send(message)

        token = _current.set(memory)
        try:
            await app(scope, receive, watched)
        finally:
            _current.reset(token)

    async def middleware(self, ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        """Middleware of `mcp`: whoever came back leaves with the session, and when the tool closes its stream."""
        memory, close = _current.get(), ctx.close_sse_stream
        if memory is None:
            return await call_next(ctx)
        if not memory.watched:
            memory.watched = True
            connection_of(ctx).exit_stack.callback(memory.close)
        if close is None:
            return await call_next(ctx)

        async def close_all() -> None:
            memory.close_stream(str(ctx.request_id))
            await close()

        return await call_next(replace(ctx, close_sse_stream=close_all))

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep an event; its id."""
        size = 0 if message is None else _size(message)
        event_id = (_current.get() or Memory()).keep(stream_id, message, size)
        self._size += size
        if self._size > ALL_BYTES:
            self._make_room()
        return event_id

    def _make_room(self) -> None:
        """Let the sessions that hold most forget, until a quarter is free."""
        memories = sorted(self._memories.values(), key=lambda memory: memory.size)
        self._size = sum(memory.size for memory in memories)
        while memories and self._size > ALL_BYTES * 3 // 4:
            memory = memories.pop()
            self._size -= memory.size
            while memory.size:
                memory.drop()

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        """Send what came after that event on the same stream, and what comes, up to the answer.

        A stream of notices has no answer: then its name is returned, and `mcp` passes on what comes.
        """
        memory = _current.get()
        place = None if memory is None else memory.place(last_event_id)
        if memory is None or place is None:
            return None
        number, seen = place
        stream = memory.streams[number]
        closed = stream.closed
        if stream.answer is not None and stream.answer[0] == seen:
            return None
        while stream.closed == closed:
            missed = memory.after(number, seen)
            for seen, event in missed:  # noqa: B007 - the last one is where to go on
                await send_callback(event)
                if isinstance(event.message, JSONRPCResponse | JSONRPCError):
                    return None
            if missed:
                continue  # more may have come meanwhile
            if stream.id == GET_STREAM_KEY:
                return stream.id
            await stream.change()
        return None


def _size(message: JSONRPCMessage) -> int:
    """The bytes of a message. One that JSON cannot hold is mended first, or it would end its stream."""
    try:
        return len(message.model_dump_json())
    except (ValueError, RecursionError):
        if isinstance(message, JSONRPCNotification | JSONRPCRequest):
            with suppress(ValueError, RecursionError):  # of what holds itself
                text = json.dumps(message.params, ensure_ascii=False, default=str, skipkeys=True)
                message.params = json.loads(text.encode(errors="replace"))
        return 0
