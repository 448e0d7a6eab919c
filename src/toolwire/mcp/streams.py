"""The two ends that an MCP server reads from and writes to, without a task between them.

`Server.run` of `mcp` takes any pair of objects with a handful of methods. Ours never make a writer wait: what goes
in is queued without bound, what comes out is handed over at once. They know nothing of what they carry.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Self

import anyio
import anyio.lowlevel


class Inbox:
    """What the server reads. Putting never waits, and keeps the order.

    It carries no context variables of the sender: handlers run in those of the server's task, with what its
    lifespan has set, as they do over stdio.
    """

    def __init__(self) -> None:
        self.read_from = False
        """Whether the server has begun to read: its lifespan is up."""
        self._items: deque[Any] = deque()
        self._moved: anyio.Event | None = None
        self._closed = False

    @property
    def idle(self) -> bool:
        """Whether the server waits: it has taken up all that was put before."""
        return self._moved is not None

    def put(self, item: Any) -> None:
        """Queue an item; after the end it is dropped."""
        if not self._closed:
            self._items.append(item)
            self._wake()

    def close(self) -> None:
        """The end: the reader gets what is queued, then nothing more."""
        self._closed = True
        self._wake()

    async def receive(self) -> Any:
        self.read_from = True
        while not self._items:
            if self._closed:
                raise anyio.EndOfStream
            moved = self._moved = anyio.Event()
            try:
                await moved.wait()
            finally:
                self._moved = None
        return self._items.popleft()

    async def aclose(self) -> None:
        self.close()

    def _wake(self) -> None:
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Outbox:
    """What the server writes to: each item goes straight to `deliver`.

    `deliver` says whether the writer should let others run first, so that a flood of notifications cannot hold
    the event loop.
    """

    def __init__(self, deliver: Callable[[Any], bool]) -> None:
        self._deliver = deliver
        self._closed = False

    async def send(self, item: Any) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._deliver(item):
            await anyio.lowlevel.checkpoint()

    def close(self) -> None:
        """Nothing more is taken."""
        self._closed = True

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
