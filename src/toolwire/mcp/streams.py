"""The two streams that an MCP server reads from and writes to, without a task between them.

`Server.run` of `mcp` accepts any pair of objects with a handful of methods. Ours never make a writer wait: input is
queued without bound, and output is delivered at once. They must not know what the messages mean.
"""

from collections.abc import Callable
from typing import Any, Self

import anyio
import anyio.lowlevel

from toolwire._support.waiting import Mailbox


class Inbox(Mailbox[Any]):
    """The stream that the server reads. `put` never waits, and the order is kept.

    Context variables of the sender are not passed on: handlers get those of the server's task, which its lifespan
    has set, as over stdio.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_reader = False
        """True once the server has started to read: then its lifespan has started too."""

    @property
    def idle(self) -> bool:
        """True if the server has read all items and waits for the next one."""
        return self._filled.has_waiting

    async def receive(self) -> Any:
        self.has_reader = True
        return await self.get()

    async def aclose(self) -> None:
        self.close()

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    def __bool__(self) -> bool:
        return True  # a stream, and not a container

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Outbox:
    """The stream that the server writes to: each item is given to `deliver` at once.

    `deliver` returns True if the writer should let other tasks run, so that very many notifications cannot block
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
        """End the stream. `send` raises `ClosedResourceError` from now on."""
        self._closed = True

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
