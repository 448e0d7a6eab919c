"""The HTTP sessions of clients: how many are kept and for how long, and which request ids are in use in each.

`mcp` keeps the sessions themselves, and ends them when told to. This module knows when each was last used and what
is under way in it. Two requests with one id cannot be told apart inside `mcp`: the answer to the first would go to
the second. So an id is claimed for as long as its request is in flight. It must not know what a request is about.
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
"""Characters of a request id: it is kept for as long as its response may be asked for again."""
_LEAVING: Final = 5.0  # seconds that an answer may take to get out before its id counts as in use
_LOOKS: Final = 10  # how often in the time limit idle sessions are looked for


class HttpSessions:
    """All open sessions, the one that was used longest ago first."""

    def __init__(self, limit: int, timeout: float, end: Callable[["HttpSession"], None]) -> None:
        """`end` begins to end a session; `mcp` closes its connection then. Neither limit is for sessions in use."""
        self._limit = limit
        self._timeout = timeout
        self._end = end
        self._open: OrderedDict[str, HttpSession] = OrderedDict()
        self._ending: set[str] = set()

    def __len__(self) -> int:
        return len(self._open)

    def find(self, session_id: str) -> "HttpSession | None":
        """The open session with that id."""
        return self._open.get(session_id)

    def is_ending(self, session_id: str) -> bool:
        """Whether a session was ended to make room, or because nobody used it, and is not gone yet."""
        return session_id in self._ending

    @property
    def full(self) -> bool:
        """Whether there is no room for another session: all are in use."""
        return len(self._open) >= self._limit and next(self._idle(), None) is None

    async def middleware(self, ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        """Middleware of `mcp`: it sees each session from its first request on, and which requests run."""
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
        with session.working(ctx.request_id):
            return await call_next(ctx)

    async def end_idle(self) -> None:
        """End sessions that have not been used for too long, until cancelled."""
        while True:
            await anyio.sleep(min(self._timeout / _LOOKS, 60.0))
            self.end_idle_at(time.monotonic())

    def end_idle_at(self, now: float) -> None:
        """End those that have not been used for too long at that time."""
        for session in list(self._idle()):
            if now - session.used < self._timeout:
                break
            self._close(session)

    def _make_room(self, new: "HttpSession") -> None:
        while len(self._open) > self._limit:
            longest = next(self._idle(), new)
            if longest is new:  # all others are in use
                return
            logger.info("ending the session that was idle longest: there are more than %d", self._limit)
            self._close(longest)

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
    """A request with its id. It is in flight while its HTTP exchange is open or its handler works."""

    __slots__ = ("answered", "gone", "open", "working")

    def __init__(self) -> None:
        self.open = False
        self.working = False
        self.answered = False
        self.gone: anyio.Event | None = None  # somebody waits until its answer is out


class HttpSession:
    """One session. `user` is whoever opened it, where an application around ours knows its users."""

    def __init__(self, session_id: str, user: Any, touch: Callable[[str], None]) -> None:
        self.id = session_id
        self.user = user
        self.used = time.monotonic()
        """When it was last in use."""
        self._touch = touch
        self._exchanges = 0
        self._requests: dict[int | str, _Request] = {}

    @property
    def busy(self) -> bool:
        """Whether a request is being answered, or a stream is open."""
        return bool(self._exchanges or self._requests)

    def exchange(self) -> "Exchange":
        """Hold this around each HTTP request of the session."""
        return Exchange(self)

    def entered(self) -> None:
        """An HTTP request has come."""
        self._exchanges += 1

    def left(self, key: int | str | None, request: _Request | None) -> None:
        """An HTTP request is over; `request` is what it claimed, under `key`."""
        self._exchanges -= 1
        if key is not None and request is not None:
            request.open = False
            self._drop(key, request)
        self._used_now()

    def take(self, key: int | str) -> _Request | None:
        """Claim an id for an HTTP request. None if a request with it is in flight."""
        if key in self._requests:
            return None
        request = self._requests[key] = _Request()
        request.open = True
        return request

    async def claim(self, key: int | str) -> _Request | None:
        """The same; but wait a while for an earlier request that has its answer, which is on its way out."""
        with anyio.move_on_after(_LEAVING):
            while (request := self._requests.get(key)) is not None:
                if not request.answered:
                    return None
                request.gone = request.gone or anyio.Event()
                await request.gone.wait()
        return self.take(key)

    @contextmanager
    def working(self, request_id: int | str) -> Iterator[None]:
        """Hold this around a request's handler: without its HTTP request, it is in flight as well."""
        key = coerce_request_id(request_id)
        request = self._requests.get(key)
        if request is None:
            request = self._requests[key] = _Request()
        request.working = True
        try:
            yield
        finally:
            request.working, request.answered = False, True
            self._drop(key, request)
            self._used_now()

    def _drop(self, key: int | str, request: _Request) -> None:
        if not request.open and not request.working and self._requests.get(key) is request:
            del self._requests[key]
            if request.gone is not None:
                request.gone.set()

    def _used_now(self) -> None:
        self.used = time.monotonic()
        with suppress(KeyError):  # it is being ended
            self._touch(self.id)


class Exchange:
    """One HTTP request of a session while it is being answered, and the request id that it has claimed."""

    __slots__ = ("_key", "_request", "_session")

    def __init__(self, session: HttpSession) -> None:
        self._session = session
        self._key: int | str | None = None
        self._request: _Request | None = None

    def __enter__(self) -> Self:
        self._session.entered()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.left(self._key, self._request)

    def take(self, request_id: int | str) -> bool:
        """Claim a request id until the request is over. False if another one with it is in flight."""
        self._key = coerce_request_id(request_id)
        self._request = self._session.take(self._key)
        return self._request is not None

    async def claim(self, request_id: int | str) -> bool:
        """The same, once; but wait for an earlier request whose answer is on its way out."""
        if self._request is None:
            self._key = coerce_request_id(request_id)
            self._request = await self._session.claim(self._key)
        return self._request is not None

    def mark_answered(self) -> None:
        """Mark the request as answered: its response is sent next."""
        if self._request is not None:
            self._request.answered = True
