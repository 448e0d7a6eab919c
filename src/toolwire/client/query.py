"""`query()`: ask once and read what comes, as the official SDK has it.

Apart from `client`, so that who asks once does not load what a client can ask the CLI for.
"""

from collections.abc import AsyncIterator
from typing import cast

from toolwire._conversation.wiring import Conversation, Prompt, check_prompt
from toolwire._transport.custom import Transport
from toolwire.messages import Message
from toolwire.options.agent_options import ClaudeAgentOptions


async def query(
    *, prompt: Prompt, options: ClaudeAgentOptions | None = None, transport: Transport | None = None
) -> AsyncIterator[Message]:
    """Ask once and read what comes.

    `prompt` is a string, or an async iterable of user-message dicts that are sent as they come. Every message is
    yielded as it arrives, the `ResultMessage` last. Leaving the loop in any way ends the CLI process.

    With a `transport` of your own nothing is started: options that become command-line flags have no effect then.

    Raises `CLINotFoundError`, `CLIConnectionError`, `ProcessError`, and `ResultError` after a failed result.
    """
    check_prompt(prompt)
    conversation = Conversation(options if options is not None else ClaudeAgentOptions(), transport)
    try:
        await conversation.open()
        conversation.feed(prompt, "", end=True)
        while (message := await conversation.next_message()) is not None:
            yield cast("Message", message)
    finally:
        await conversation.aclose()
