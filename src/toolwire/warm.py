"""Start before the prompt is known.

A cold CLI needs about a second before it can send its first request; one that has already initialized needs a
quarter of that. `startup()` starts one, `WarmPool` keeps a few.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio

from toolwire._log import logger_for
from toolwire._tasks import Task, spawn
from toolwire.client import ClaudeSDKClient
from toolwire.errors import CLIConnectionError
from toolwire.messages import AnyMessage
from toolwire.options import ClaudeAgentOptions
from toolwire.reply import Reply, conclude

logger = logger_for("warm")


async def startup(options: ClaudeAgentOptions | None = None) -> ClaudeSDKClient:
    """A client whose CLI has started and initialized: its first prompt waits for neither.

    client = await startup(options)
    ...
    async with client:  # does not connect again; disconnects at the end
        await client.query("...")
    """
    client = ClaudeSDKClient(options)
    await client.connect()
    return client


class WarmPool:
    """Keeps `size` started CLIs at hand for a service that answers many prompts.

        async with WarmPool(options, size=2) as pool:
            reply = await pool.run("What is 15 + 27?")

    Every conversation gets a CLI of its own and ends it; a fresh one is started in its place at once. When all are
    taken, a cold one is started: nobody waits for another's conversation.
    """

    def __init__(self, options: ClaudeAgentOptions | None = None, *, size: int = 1) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        self.options = options if options is not None else ClaudeAgentOptions()
        self.size = size
        self._ready: deque[ClaudeSDKClient] = deque()
        self._tasks: dict[int, Task] = {}
        self._count = 0
        self._open = False
        self._settled = anyio.Event()

    async def __aenter__(self) -> Self:
        self._open = True
        self._refill()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def ready(self) -> int:
        """How many CLIs are started and waiting."""
        return sum(client.connected for client in self._ready)

    async def wait_ready(self) -> None:
        """Wait until all that are being started have started or failed."""
        while self._tasks:
            await self._settled.wait()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ClaudeSDKClient]:
        """A connected client for one conversation."""
        if not self._open:
            raise CLIConnectionError("The pool is closed.")
        client = self._take() or ClaudeSDKClient(self.options)
        self._refill()
        async with client:
            yield client

    async def run(
        self, prompt: str, *, on_message: Callable[[AnyMessage], object] | None = None
    ) -> Reply[Any]:
        """`toolwire.run()` on a warm CLI."""
        reply: Reply[Any] = Reply()
        async with self.client() as client:
            await client.query(prompt)
            async for message in client.receive_response():
                reply.add(message)
                if on_message is not None:
                    on_message(message)
        return conclude(reply, None)

    async def aclose(self) -> None:
        """End every waiting CLI. Conversations that are under way end by themselves."""
        self._open = False
        with anyio.CancelScope(shield=True):
            for task in self._tasks.values():
                task.cancel()
            await self.wait_ready()
            while self._ready:
                await self._ready.popleft().disconnect()

    def _take(self) -> ClaudeSDKClient | None:
        while self._ready:
            client = self._ready.popleft()
            if client.connected:
                return client
            logger.warning("a waiting CLI had ended; another takes its place")
            spawn(client.disconnect)
        return None

    def _refill(self) -> None:
        for _ in range(self.size - len(self._ready) - len(self._tasks)):
            self._count += 1
            self._tasks[self._count] = spawn(self._start, self._count)

    async def _start(self, number: int) -> None:
        try:
            client = await startup(self.options)
            if self._open:
                self._ready.append(client)
            else:
                await client.disconnect()
        except Exception as error:  # noqa: BLE001 - the next conversation starts cold and raises what is wrong
            logger.warning("a CLI could not be started ahead of time: %s", error)
        finally:
            del self._tasks[number]
            settled, self._settled = self._settled, anyio.Event()
            settled.set()
