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

from toolwire._conversation.wiring import Conversation, Prompt, check_prompt
from toolwire._support.log import logger_for
from toolwire._support.tasks import Task, spawn
from toolwire.client.client import ClaudeSDKClient, client_over
from toolwire.client.reply import Reply, run_on
from toolwire.errors import CLIConnectionError
from toolwire.messages import AnyMessage
from toolwire.options.agent_options import ClaudeAgentOptions

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
        self._ready: deque[Conversation] = deque()
        self._starting: set[Task] = set()
        self._settled: anyio.Event | None = None
        self._open = False

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
        return sum(conversation.session.alive for conversation in self._ready)

    async def wait_ready(self) -> None:
        """Wait until all that are being started have started or failed."""
        while self._starting:
            if self._settled is None:
                self._settled = anyio.Event()
            await self._settled.wait()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ClaudeSDKClient]:
        """A connected client for one conversation."""
        conversation = await self._taken()
        async with client_over(conversation) as client:
            yield client

    async def run(
        self, prompt: Prompt, *, on_message: Callable[[AnyMessage], object] | None = None
    ) -> Reply[Any]:
        """`toolwire.run()` on a warm CLI."""
        check_prompt(prompt)
        conversation = await self._taken()
        try:
            return await run_on(conversation, prompt, on_message)
        finally:
            await conversation.aclose()

    async def aclose(self) -> None:
        """End every waiting CLI. Conversations that are under way end by themselves."""
        self._open = False
        for task in list(self._starting):
            task.cancel()
        with anyio.CancelScope(shield=True):
            await self.wait_ready()
            async with anyio.create_task_group() as group:
                while self._ready:
                    group.start_soon(self._ready.popleft().aclose)

    async def _taken(self) -> Conversation:
        """A conversation that is open: a waiting one, or a new one."""
        if not self._open:
            raise CLIConnectionError("The pool is closed.")
        conversation = None
        while self._ready and conversation is None:
            waiting = self._ready.popleft()
            if waiting.session.alive:
                conversation = waiting
            else:
                logger.warning("a waiting CLI had ended; another takes its place")
                spawn(waiting.aclose)
        self._refill()
        if conversation is None:
            conversation = Conversation(self.options)
            await conversation.open()
        return conversation

    def _refill(self) -> None:
        for _ in range(self.size - len(self._ready) - len(self._starting)):
            self._begin()

    def _begin(self) -> None:
        task = spawn(self._start, on_done=lambda: self._started(task))
        self._starting.add(task)

    async def _start(self) -> None:
        conversation = Conversation(self.options)
        try:
            await conversation.open()
        except Exception as error:  # noqa: BLE001 - the next conversation starts cold and raises what is wrong
            logger.warning("a CLI could not be started ahead of time: %s", error)
            return
        if self._open:
            self._ready.append(conversation)
        else:
            await conversation.aclose()

    def _started(self, task: Task) -> None:
        self._starting.discard(task)
        settled, self._settled = self._settled, None
        if settled is not None:
            settled.set()
