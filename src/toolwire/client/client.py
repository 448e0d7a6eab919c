"""`ClaudeSDKClient`: a conversation that stays open, with the interface of the official SDK.

Owns the life of the connection and the reading of messages. The control requests are in `controls` and
`mcp_controls`.
"""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self, cast

from toolwire._conversation.wiring import Conversation, Prompt, check_prompt
from toolwire._transport.custom import Transport
from toolwire.client.controls import Controls
from toolwire.client.mcp_controls import McpControls
from toolwire.errors import CLIConnectionError
from toolwire.messages import Message, ResultMessage
from toolwire.options.agent_options import ClaudeAgentOptions


class ClaudeSDKClient(Controls, McpControls):
    """A conversation that stays open: send prompts, interrupt, and change settings at any time.

        async with ClaudeSDKClient(options) as client:
            await client.query("What is 15 + 27?")
            async for message in client.receive_response():
                print(message)

    It may be used from any task of the event loop that it was connected in. Unread messages stay in memory
    (`unread` counts them) and never delay the response to a control request.

    Every control request of the CLI is a method; docs/control.md lists them. `control_request` sends any other.
    """

    def __init__(self, options: ClaudeAgentOptions | None = None, transport: Transport | None = None) -> None:
        self.options = options if options is not None else ClaudeAgentOptions()
        self._transport = transport
        self._conversation: Conversation | None = None
        self._connecting: Conversation | None = None
        self._closing: Conversation | None = None

    async def connect(self, prompt: Prompt | None = None) -> None:
        """Start the CLI and send the prompt, if there is one. After a streamed prompt the input is closed."""
        if prompt is not None:
            check_prompt(prompt)
        if self._conversation is not None or self._connecting is not None:
            raise CLIConnectionError("Already connected. Call disconnect() first.")
        conversation = self._connecting = Conversation(self.options, self._transport)
        try:
            await conversation.open()
            conversation.feed(prompt, "default", end=False)
            self._conversation = conversation
        except BaseException:
            await conversation.aclose()
            raise
        finally:
            self._connecting = None

    async def disconnect(self) -> None:
        """End the CLI in bounded time, even while it is connecting. Does nothing when not connected.

        Concurrent calls wait for the same end.
        """
        closing = self._closing = self._conversation or self._connecting or self._closing
        self._conversation = None
        if closing is not None:
            await closing.aclose()
            if self._closing is closing:
                self._closing = None

    async def __aenter__(self) -> Self:
        if self._conversation is None:
            await self.connect()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool:
        await self.disconnect()
        return False

    @property
    def connected(self) -> bool:
        """True while prompts and requests can be sent."""
        return self._conversation is not None and self._conversation.session.alive

    @property
    def unread(self) -> int:
        """Number of messages that have arrived and not been read."""
        return self._live.session.unread

    @property
    def skipped_lines(self) -> int:
        """Number of lines of the CLI's output that were not JSON objects."""
        return self._live.session.skipped_lines

    async def query(self, prompt: Prompt, session_id: str = "default") -> None:
        """Send a prompt, or each message of an async iterable."""
        check_prompt(prompt)
        if isinstance(prompt, str):
            self._live.say(prompt, session_id)
            await self._live.session.drain()
        else:
            await self._live.say_all(prompt, session_id)

    def receive_messages(self) -> "Messages":
        """Return an iterator over all messages until the CLI ends."""
        return Messages(self._live, until_result=False)

    def receive_response(self) -> "Messages":
        """Return an iterator over the messages up to and including the next `ResultMessage`.

        It raises `CLIConnectionError` if no result is due: no prompt waits for one, no background task runs, and
        nothing has come for five seconds.
        """
        return Messages(self._live, until_result=True)

    async def get_server_info(self) -> dict[str, Any] | None:
        """Return the CLI's response to `initialize`: commands, models, account, version."""
        return self._live.info


def wrap_conversation(conversation: Conversation) -> ClaudeSDKClient:
    """Return a client for a conversation that is open already."""
    client = ClaudeSDKClient(conversation.options)
    client._conversation = conversation  # noqa: SLF001 - a second constructor, in the same module
    return client


class Messages(AsyncIterator[Message]):
    """The messages of a client as they arrive. After leaving the loop early, the rest stays unread.

    Not an async generator, because there is nothing to clean up, and trio warns about unfinished generators.
    """

    def __init__(self, conversation: Conversation, *, until_result: bool) -> None:
        self._conversation = conversation
        self._until_result = until_result
        self._finished = False

    async def __anext__(self) -> Message:
        message = None
        if not self._finished:
            message = await self._conversation.next_message(of_response=self._until_result)
        if message is None:
            self._finished = True
            raise StopAsyncIteration
        self._finished = self._until_result and isinstance(message, ResultMessage)
        return cast("Message", message)

    async def aclose(self) -> None:
        """Stop iterating. For code that treats the iterator as a generator."""
        self._finished = True
