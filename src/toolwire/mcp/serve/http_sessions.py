"""Limits the number of HTTP sessions and their idle time, and knows which request ids are in use in each.

`mcp` owns the sessions themselves, and ends them on request. This module knows when each was last used, and which
requests run in it. `mcp` cannot distinguish two requests with the same id: it would send the response to the first
as that to the second. So an id is claimed for as long as its request is in flight. This module must not know what a
request is about.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

import anyio
from mcp.server import ServerRequestContext

from toolwire._support.log import logger_for
from toolwire.mcp.compat import coerce_request_id, connection_of

logger = logger_for("serving")

HEADER: Final = b"mcp-session-id"
MAX_ID: Final = 1_000
"""Characters of a request id, at most. It is kept for as long as a client may resume the response."""
_SEND_TIMEOUT: Final = 5.0  # seconds that a response may take to be sent before its id counts as in use
_CHECKS: Final = 10  # number of times that idle sessions are looked for within the timeout


class HttpSessions:
    """All open sessions, the one that was used longest ago first."""

    def __init__(self, limit: int, timeout: float, end: Callable[["HttpSession"], None]) -> None:
        """`end` starts to end a session, and `mcp` closes it then. Sessions in use are never ended."""
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
        """True if a session is being ended, to make room or because it was idle for too long."""
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
        """End the sessions that have not been used for too long at the time `now`."""
        for session in list(self._idle()):
            if now - session.used < self._timeout:
                break
            self._close(session)

    def _make_room(self, new: "HttpSession") -> None:
        while len(self._open) > self._limit:
            oldest = next(self._idle(), new)
            if oldest is new:  # all others are in use
                return
            logger.info("ending the session that was idle longest: there are more than %d", self._limit)
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
    """A request that has claimed its id. It is in flight while its HTTP request is open or its handler runs."""

    __slots__ = ("answered", "ended", "open", "running")

    def __init__(self) -> None:
        self.open = False
        self.running = False
        self.answered = False
        self.ended: anyio.Event | None = None  # made by the first task that waits for it


class HttpSession:
    """One session. `user` is the user who opened it, if an application around ours authenticates users."""

    def __init__(self, session_id: str, user: Any, touch: Callable[[str], None]) -> None:
        self.id = session_id
        self.user = user
        self.used = time.monotonic()
        """The time at which it was last in use."""
        self._touch = touch
        self._exchanges = 0
        self._requests: dict[int | str, _Request] = {}

    @property
    def busy(self) -> bool:
        """True while a request is being answered, or a stream is open."""
        return bool(self._exchanges or self._requests)

    def exchange(self) -> "Exchange":
        """Return a context manager to hold around one HTTP request of the session."""
        return Exchange(self)

    def start_exchange(self) -> None:
        """Count an HTTP request that starts."""
        self._exchanges += 1

    def finish_exchange(self, key: int | str | None, request: _Request | None) -> None:
        """Count an HTTP request that has ended, and release the id (`key`) that its `request` has claimed."""
        self._exchanges -= 1
        if key is not None and request is not None:
            request.open = False
            self._drop(key, request)
        self._mark_used()

    def take(self, key: int | str) -> _Request | None:
        """Claim an id for an HTTP request. None if another request with that id is in flight."""
        if key in self._requests:
            return None
        request = self._requests[key] = _Request()
        request.open = True
        return request

    async def claim(self, key: int | str) -> _Request | None:
        """Claim an id like `take`, but first wait for an earlier request whose response is being sent."""
        with anyio.move_on_after(_SEND_TIMEOUT):
            while (request := self._requests.get(key)) is not None:
                if not request.answered:
                    return None
                request.ended = request.ended or anyio.Event()
                await request.ended.wait()
        return self.take(key)

    @contextmanager
    def track(self, request_id: int | str) -> Iterator[None]:
        """Run a request's handler inside the block. It is in flight then, even if its HTTP request has ended."""
        key = coerce_request_id(request_id)
        request = self._requests.get(key)
        if request is None:
            request = self._requests[key] = _Request()
        request.running = True
        try:
            yield
        finally:
            request.running, request.answered = False, True
            self._drop(key, request)
            self._mark_used()

    def _drop(self, key: int | str, request: _Request) -> None:
        if not request.open and not request.running and self._requests.get(key) is request:
            del self._requests[key]
            if request.ended is not None:
                request.ended.set()

    def _mark_used(self) -> None:
        self.used = time.monotonic()
        with suppress(KeyError):  # it is being ended
            self._touch(self.id)


class Exchange:
    """One HTTP request of a session, while it is open, and the request id that it has claimed."""

    __slots__ = ("_key", "_request", "_session")

    def __init__(self, session: HttpSession) -> None:
        self._session = session
        self._key: int | str | None = None
        self._request: _Request | None = None

    def __enter__(self) -> Self:
        self._session.start_exchange()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.finish_exchange(self._key, self._request)

    def take(self, request_id: int | str) -> bool:
        """Claim a request id until the request has ended. False if another request with it is in flight."""
        self._key = coerce_request_id(request_id)
        self._request = self._session.take(self._key)
        return self._request is not None

    async def claim(self, request_id: int | str) -> bool:
        """Claim a request id unless that was done, and wait for an earlier request whose response is being sent."""
        if self._request is None:
            self._key = coerce_request_id(request_id)
            self._request = await self._session.claim(self._key)
        return self._request is not None

    def mark_answered(self) -> None:
        """Mark the request as answered: its response is sent next."""
        if self._request is not None:
            self._request.answered = True
