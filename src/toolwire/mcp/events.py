"""What was sent on the streams of HTTP sessions, kept for clients that come back for it.

A client whose stream broke, or was closed by the server on purpose, names the last event that it has seen and gets
the rest. `mcp` hands all sessions to one store and calls a stream by its request's id, which another session may
use too, so each session has a memory of its own here, found by context. Bounded: the oldest events go first.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakValueDictionary

from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage

MOST: Final = 256
"""Events that are kept of one session."""
_HEADER: Final = b"mcp-session-id"


class Memory:
    """The events of one session, in the order in which they were sent."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(4)
        self.count = 0
        self.events: OrderedDict[EventId, tuple[StreamId, JSONRPCMessage | None]] = OrderedDict()


_current: ContextVar[Memory | None] = ContextVar("toolwire_session", default=None)


class Events(EventStore):
    """The store that `mcp` asks for: each session sees only its own."""

    def __init__(self) -> None:
        # The tasks of a session hold its memory, in their context; with them it goes.
        self._memories: WeakValueDictionary[str, Memory] = WeakValueDictionary()

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

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep an event; its id."""
        memory = _current.get() or Memory()
        memory.count += 1
        event_id = f"{memory.mark}-{memory.count}"
        memory.events[event_id] = (stream_id, message)
        while len(memory.events) > MOST:
            memory.events.popitem(last=False)
        return event_id

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        """Send what came after that event on the same stream; None if this session does not have it."""
        memory = _current.get()
        if memory is None or last_event_id not in memory.events:
            return None
        stream_id, _ = memory.events[last_event_id]
        after = False
        for event_id, (stream, message) in list(memory.events.items()):
            if after and stream == stream_id and message is not None:
                await send_callback(EventMessage(message, event_id))
            after = after or event_id == last_event_id
        return stream_id
