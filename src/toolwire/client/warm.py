"""CLIs started before the prompt is known: `startup()` starts one, `WarmPool` keeps several.

A cold CLI needs about a second before it can send its first request; one that has initialized already needs a
quarter of that.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import anyio

from toolwire._conversation.wiring import Conversation, Prompt, check_prompt
from toolwire._support.log import logger_for
from toolwire._support.tasks import Task, spawn
from toolwire._support.waiting import Signal
from toolwire.client.client import ClaudeSDKClient, wrap_conversation
from toolwire.client.reply import OutputType, Reply, run, run_on
from toolwire.errors import CLIConnectionError
from toolwire.messages import AnyMessage
from toolwire.options.agent_options import ClaudeAgentOptions

logger = logger_for("warm")
T = TypeVar("T")


async def startup(options: ClaudeAgentOptions | None = None) -> ClaudeSDKClient:
    """Return a client whose CLI has started and initialized, so that its first prompt does not wait for that.

    client = await startup(options)
    ...
    async with client:  # does not connect again; disconnects at the end
        await client.query("...")
    """
    client = ClaudeSDKClient(options)
    await client.connect()
    return client


class WarmPool:
    """Keeps `size` started CLIs ready, for a service that answers many prompts.

        async with WarmPool(options, size=2) as pool:
            reply = await pool.run("What is 15 + 27?")

    With `output_type` every reply has an output of that type, as in `run()`. Each CLI is started with it.

    Each conversation gets its own CLI and ends it; a replacement is started at once. If none is ready, a cold one
    is started: no conversation waits for another.
    """

    def __init__(
        self, options: ClaudeAgentOptions | None = None, *, size: int = 1, output_type: Any = None
    ) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        self._base = options if options is not None else ClaudeAgentOptions()  # without an output type
        self.output_type = output_type
        self._expected = None if output_type is None else OutputType(output_type)
        self.options = self._base if self._expected is None else self._expected.add_to(self._base)
        self.size = size
        self._ready: deque[Conversation] = deque()
        self._starting: set[Task] = set()
        self._started = Signal()
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
        """Number of CLIs that are started and waiting."""
        return sum(conversation.session.alive for conversation in self._ready)

    async def wait_ready(self) -> None:
        """Wait until every CLI that is starting has started or failed."""
        await self._started.wait_until(lambda: not self._starting)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ClaudeSDKClient]:
        """Provide a connected client for one conversation."""
        conversation = await self.take()
        async with wrap_conversation(conversation) as client:
            yield client

    @overload
    async def run(
        self,
        prompt: Prompt,
        *,
        output_type: type[T],
        on_message: Callable[[AnyMessage], object] | None = None,
    ) -> Reply[T]: ...
    @overload
    async def run(
        self,
        prompt: Prompt,
        *,
        output_type: Any = None,
        on_message: Callable[[AnyMessage], object] | None = None,
    ) -> Reply[Any]: ...
    async def run(
        self,
        prompt: Prompt,
        *,
        output_type: Any = None,
        on_message: Callable[[AnyMessage], object] | None = None,
    ) -> Reply[Any]:
        """Like `toolwire.run()`, on a warm CLI.

        An `output_type` other than the pool's needs a CLI of its own, which is started now.
        """
        check_prompt(prompt)
        if output_type is not None and output_type != self.output_type:
            self._check_open()
            return await run(prompt, options=self._base, output_type=output_type, on_message=on_message)
        conversation = await self.take()
        try:
            reply = await run_on(conversation, prompt, on_message)
        finally:
            await conversation.aclose()
        if self._expected is not None:
            reply.output = self._expected.validate(reply.output, reply)
        return reply

    async def aclose(self) -> None:
        """End every waiting CLI. Conversations in progress continue and end their own."""
        self._open = False
        for task in list(self._starting):
            task.cancel()
        with anyio.CancelScope(shield=True):
            await self.wait_ready()
            async with anyio.create_task_group() as group:
                while self._ready:
                    group.start_soon(self._ready.popleft().aclose)

    def _check_open(self) -> None:
        if not self._open:
            raise CLIConnectionError(
                "The WarmPool is not open. Use it inside `async with WarmPool(...) as pool:`."
            )

    async def take(self) -> Conversation:
        """Return an open conversation: a waiting one, or a new one if none is ready. The caller must close it."""
        self._check_open()
        conversation = None
        while self._ready and conversation is None:
            waiting = self._ready.popleft()
            if waiting.session.alive:
                conversation = waiting
            else:
                logger.warning("a waiting CLI had ended; starting another one")
                spawn(waiting.aclose)
        self._refill()
        if conversation is None:
            conversation = Conversation(self.options)
            await conversation.open()
        return conversation

    def _refill(self) -> None:
        for _ in range(self.size - len(self._ready) - len(self._starting)):
            self._start_in_background()

    def _start_in_background(self) -> None:
        task = spawn(self._start, on_done=lambda: self._on_started(task))
        self._starting.add(task)

    async def _start(self) -> None:
        conversation = Conversation(self.options)
        try:
            await conversation.open()
        except Exception as error:  # noqa: BLE001 - the next conversation starts cold and raises the error
            logger.warning("a CLI could not be started ahead of time: %s", error)
            return
        if self._open:
            self._ready.append(conversation)
        else:
            await conversation.aclose()

    def _on_started(self, task: Task) -> None:
        self._starting.discard(task)
        self._started.notify()
