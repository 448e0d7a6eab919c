"""`ClaudeSDKClient`: a conversation that stays open, with the interface of the official SDK.

Owns the life of the connection and the reading of messages. The control requests are in `controls`.
"""

from collections.abc import AsyncIterator
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from toolwire._conversation.wiring import Conversation, Prompt, check_prompt
from toolwire._transport.custom import Transport
from toolwire.client.controls import Controls
from toolwire.errors import CLIConnectionError
from toolwire.messages import Message, ResultMessage
from toolwire.options.agent_options import ClaudeAgentOptions

if TYPE_CHECKING:
    from toolwire.sessions.session import Session as PastSession


class ClaudeSDKClient(Controls):
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
        self._reported_id: str | None = None

    async def connect(self, prompt: Prompt | None = None) -> None:
        """Start the CLI and send the prompt, if there is one. After a streamed prompt the input is closed.

        Called again before any prompt was sent, for example inside of `async with`, it does nothing.
        """
        if prompt is not None:
            check_prompt(prompt)
        elif self.connected and not self._live.session.prompt_sent:
            return
        if self._conversation is not None or self._connecting is not None:
            raise CLIConnectionError("Already connected. Call disconnect() first.")
        conversation = self._connecting = Conversation(self.options, self._transport)
        try:
            await conversation.open()
            await conversation.feed(prompt, "default", end=False)
            self._conversation, self._reported_id = conversation, None
        except BaseException:
            await conversation.aclose()
            raise
        finally:
            self._connecting = None

    async def disconnect(self) -> None:
        """End the CLI in bounded time, even while it is connecting. Does nothing when not connected.

        Concurrent calls all wait until it has ended. Called from a tool, hook or callback of this conversation, it
        returns at once, because closing waits for those too: they are cancelled at their next `await`.
        """
        closing = self._closing = self._conversation or self._connecting or self._closing
        if self._conversation is not None:
            self._reported_id = self._conversation.session.session_id
        self._conversation = None
        if closing is not None:
            ended = await closing.aclose()
            if ended and self._closing is closing:
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

    def get_session(self) -> "PastSession":
        """Return this conversation as a `Session`: its id, messages and cost; to rename, tag, fork or export it.

        The id is the one that the CLI reported in its first turn, or that of the options (`session_id`, `resume`).
        Raises `CLIConnectionError` while neither is known; `Session().options()` creates options with a known id.
        """
        from toolwire.sessions.entries import is_session_id  # noqa: PLC0415 - loaded only when used
        from toolwire.sessions.paths import find_config_dir  # noqa: PLC0415 - as above
        from toolwire.sessions.session import Session  # noqa: PLC0415 - as above

        if self._conversation is not None:
            self._reported_id = self._conversation.session.session_id or self._reported_id
        options = self.options
        known = options.session_id or (None if options.fork_session else options.resume)
        session_id = self._reported_id or known
        if not is_session_id(session_id):
            raise CLIConnectionError(
                "The session id is not known before the first turn. To choose it in advance, connect with the "
                "options of a Session: await Session().options(options)"
            )
        return Session(
            session_id,
            options.cwd if options.session_store is not None else None,
            store=options.session_store,
            config_dir=find_config_dir(options.env),
        )

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
            self._live.send_prompt(prompt, session_id)
            await self._live.session.drain()
        else:
            await self._live.send_stream(prompt, session_id)

    async def receive_messages(self) -> AsyncIterator[Message]:
        """Yield all messages until the CLI ends. After leaving the loop early, the rest stays unread."""
        conversation = self._live
        take = conversation.take_message
        while (message := take() or await conversation.next_message()) is not None:
            yield cast("Message", message)

    async def receive_response(self) -> AsyncIterator[Message]:
        """Yield the messages up to and including the next `ResultMessage`.

        If a subclass or a patch overrides `receive_messages()`, its messages are yielded. Otherwise
        `CLIConnectionError` is raised when no result is due: no prompt is waiting for one, no background task is
        running, and nothing has arrived for five seconds.
        """
        receive = self.receive_messages
        # The type is checked first: a tracing library's proxy has the `__func__` of the method that it wraps.
        if type(receive) is MethodType and receive.__func__ is _RECEIVE_MESSAGES:
            conversation = self._live
            take = conversation.take_message
            while (message := take() or await conversation.next_message(of_response=True)) is not None:
                yield cast("Message", message)
                if isinstance(message, ResultMessage):
                    return
        else:
            async for each in receive():
                yield each
                if isinstance(each, ResultMessage):
                    return

    async def get_server_info(self) -> dict[str, Any] | None:
        """Return the CLI's response to `initialize`: commands, models, account, version."""
        return self._live.info


_RECEIVE_MESSAGES: Final[object] = ClaudeSDKClient.receive_messages  # to detect an override


def wrap_conversation(conversation: Conversation) -> ClaudeSDKClient:
    """Return a client for a conversation that is open already."""
    client = ClaudeSDKClient(conversation.options)
    client._conversation = conversation  # noqa: SLF001 - a second constructor, in the same module
    return client
