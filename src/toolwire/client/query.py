"""`query()`: one prompt and its messages, with the interface of the official SDK.

Separate from `client`, so that a program that only queries does not load the control requests.
"""

from collections.abc import AsyncIterator
from typing import cast

from toolwire import messages
from toolwire._conversation.wiring import Conversation, Prompt, check_prompt
from toolwire._transport.custom import Transport
from toolwire.options.agent_options import ClaudeAgentOptions


async def query(
    *, prompt: Prompt, options: ClaudeAgentOptions | None = None, transport: Transport | None = None
) -> "AsyncIterator[messages.Message]":  # in quotes: looking it up loads them, which can wait for the CLI
    """Send a prompt and yield the messages as they arrive, the `ResultMessage` last.

    `prompt` is a string, or an async iterable of user-message dicts that are sent as they arrive. Leaving the loop
    in any way ends the CLI process.

    With a custom `transport` no process is started, so options that become command-line flags have no effect.

    Raises `CLINotFoundError`, `CLIConnectionError`, `ProcessError`, and `ResultError` after a failed result.
    """
    check_prompt(prompt)
    conversation = Conversation(options if options is not None else ClaudeAgentOptions(), transport)
    try:
        await conversation.open()
        await conversation.feed(prompt, "", end=True)
        take = conversation.take_message
        while (message := take() or await conversation.next_message()) is not None:
            yield cast("messages.Message", message)
    finally:
        await conversation.aclose()
