"""Internals of the official package that other libraries patch and that toolwire does not have otherwise.

Only alias mode uses them. Every `query()` goes through `InternalClient.process_query`, as in the official package,
so that a library that wraps that method sees each of them.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from toolwire._conversation.wiring import Prompt
from toolwire._protocol.parse import parse
from toolwire._transport.custom import Transport
from toolwire._transport.find_cli import TESTED
from toolwire.client import query as ours
from toolwire.messages import EXTRA_MESSAGES, Message
from toolwire.official import API_LEVEL, PACKAGE, AliasModule
from toolwire.options.agent_options import ClaudeAgentOptions

__version__ = API_LEVEL
__cli_version__ = TESTED


class InternalClient:
    """Runs one query. Libraries wrap `process_query`."""

    async def process_query(
        self, prompt: Prompt, options: ClaudeAgentOptions, transport: Transport | None = None
    ) -> AsyncIterator[Message]:
        """Yield the messages of one query."""
        patchable = sys.modules.get("toolwire.official.patchable")  # nothing is patched if it is not loaded
        if transport is None and patchable is not None:
            transport = patchable.make_patched_transport("_internal.client", prompt, options)
        async with aclosing(ours.query(prompt=prompt, options=options, transport=transport)) as messages:  # type: ignore[type-var]
            async for message in messages:
                yield message


async def query(
    *, prompt: Prompt, options: ClaudeAgentOptions | None = None, transport: Transport | None = None
) -> AsyncIterator[Message]:
    # Looked up for each query: a library may have replaced the class.
    module = sys.modules.get(f"{PACKAGE}.query")
    client: Any = (module.InternalClient if isinstance(module, AliasModule) else InternalClient)()
    given = options if options is not None else ClaudeAgentOptions()
    messages = client.process_query(prompt=prompt, options=given, transport=transport)
    try:
        async for message in messages:
            yield message
    finally:
        if hasattr(messages, "aclose"):  # a wrapper may return any async iterator
            await messages.aclose()


query.__doc__ = ours.query.__doc__


def _configure_can_use_tool(options: ClaudeAgentOptions) -> ClaudeAgentOptions:
    """Return the options unchanged: `SubprocessCLITransport` sends permission requests to `can_use_tool` itself."""
    return options


def parse_message(data: dict[str, Any]) -> Message | None:
    """Parse a frame into a message; None if the official package has no class for it."""
    message = parse(data)
    return None if isinstance(message, EXTRA_MESSAGES) else cast("Message", message)
