"""Internal classes of the official package that libraries wrap or subclass, and a conversation that uses them.

Loaded when a program first uses one of them. A conversation goes through `Query` and `SubprocessCLITransport` only
while one of their methods is patched, and otherwise takes the usual path, which is faster.
"""

import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, cast

from toolwire._conversation.process_transport import ProcessTransport
from toolwire._conversation.reading import Reader
from toolwire._conversation.wiring import Conversation, Prompt, make_command
from toolwire._protocol.control import Handler
from toolwire._protocol.lines import DEFAULT_LIMIT
from toolwire._support.tasks import maybe_await
from toolwire._transport.custom import Transport
from toolwire._transport.private_files import PrivateFiles
from toolwire._transport.process import Command
from toolwire._version import __version__
from toolwire.client.client import ClaudeSDKClient
from toolwire.messages.conversation import AnyMessage
from toolwire.official import PACKAGE
from toolwire.options.agent_options import ClaudeAgentOptions
from toolwire.options.command_line import build_environment


class SubprocessCLITransport(ProcessTransport):
    """Runs the CLI as a process. Libraries wrap it, subclass it, or put another transport around it."""

    def __init__(self, prompt: Prompt, options: ClaudeAgentOptions) -> None:
        limit = options.max_buffer_size or DEFAULT_LIMIT
        super().__init__(self._make_command, limit=limit, on_stderr=options.stderr)
        self._prompt = prompt
        self._options = options
        self._cli_path = None if options.cli_path is None else os.fspath(options.cli_path)
        self._files: PrivateFiles | None = None

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            if self._files is not None:
                self._files.remove()

    def _build_command(self) -> list[str]:
        """Return the command line, which programs check in their tests."""
        return list(self._make_command().argv)

    def _make_command(self) -> Command:
        self._files = self._files or PrivateFiles(self._options.user)
        env = build_environment(self._options, os.environ, __version__)
        command = make_command(self._options, env, self._files.add)
        self._cli_path = command.argv[0]
        return command


class Query:
    """The official package's internal view of a conversation. Libraries wrap its methods."""

    def __init__(self, conversation: "PatchableConversation") -> None:
        self._conversation = conversation

    @property
    def transport(self) -> Transport | None:
        """The transport of the conversation; None if it is a process of toolwire's own."""
        return self._conversation.transport

    async def receive_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the frames of messages as they arrive."""
        session = self._conversation.session
        while (frame := await session.next_frame()) is not None:
            yield frame

    async def _handle_control_request(self, request: dict[str, Any]) -> Any:
        """Return the response to a request of the CLI."""
        body = request["request"]
        if body.get("subtype") != "mcp_message":
            return await self._conversation.call_handler(body)
        reply = await self._handle_sdk_mcp_request(body.get("server_name"), body.get("message"))
        return {"mcp_response": reply}

    async def _handle_sdk_mcp_request(self, server_name: Any, message: Any) -> Any:
        """Return the response of an in-process server to a JSON-RPC message."""
        body = {"subtype": "mcp_message", "server_name": server_name, "message": message}
        return (await self._conversation.call_handler(body)).get("mcp_response")


class PatchableConversation(Conversation):
    """A conversation that uses those of the classes above that are patched when it starts."""

    def __init__(self, options: ClaudeAgentOptions, transport: Transport | None = None) -> None:
        if transport is None:
            transport = make_patched_transport("_internal.transport.subprocess_cli", "", options)
        super().__init__(options, transport)
        self.transport = transport
        self.query = Query(self)
        self._own_handlers: dict[str, Handler] = {}

    async def open(self) -> None:
        await super().open()
        if _is_patched(Query, "receive_messages"):
            self._reader = _QueryReader(self)

    async def call_handler(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the response of the conversation's own handler to a request of the CLI."""
        return cast("dict[str, Any]", await maybe_await(self._own_handlers[body["subtype"]](body)))

    def _add_handler(self, subtype: str, handler: Handler) -> None:
        super()._add_handler(subtype, handler)
        if _is_patched(Query, "_handle_control_request", "_handle_sdk_mcp_request"):
            self._own_handlers[subtype] = self._handlers[subtype]
            self._handlers[subtype] = self._handle_through_query

    async def _handle_through_query(self, body: dict[str, Any]) -> dict[str, Any]:
        request = {"type": "control_request", "request_id": "", "request": body}
        return cast("dict[str, Any]", await self.query._handle_control_request(request))  # noqa: SLF001 - its purpose


class _QueryReader(Reader):
    """Reads the messages of a conversation through `Query.receive_messages`."""

    def __init__(self, conversation: PatchableConversation) -> None:
        super().__init__(conversation.session, everything=conversation.options.include_all_messages)
        self._inbox = deque()
        self._frames = aiter(conversation.query.receive_messages())

    async def wait(self, *, of_response: bool = False) -> AnyMessage | None:  # noqa: ARG002 - the official SDK waits too
        async for frame in self._frames:
            self._inbox.append(frame)
            if (message := self.take()) is not None:
                return message
        return None


def make_patched_transport(module: str, prompt: Prompt, options: ClaudeAgentOptions) -> Transport | None:
    """Return a transport if a library replaced or patched the class in an official module; None otherwise."""
    chosen: Any = vars(sys.modules.get(f"{PACKAGE}.{module}", os)).get("SubprocessCLITransport")
    if chosen is None or options.spawn_claude_code_process is not None:
        return None
    if chosen is SubprocessCLITransport and not _is_patched(
        chosen, "__init__", *Transport.__abstractmethods__
    ):
        return None
    return cast("Transport", chosen(prompt=prompt, options=options))


_ORIGINAL: dict[type, dict[str, Any]] = {
    kind: {name: getattr(kind, name) for name in dir(kind)} for kind in (Query, SubprocessCLITransport)
}


def _is_patched(kind: type, *methods: str) -> bool:
    return any(getattr(kind, name, None) is not _ORIGINAL[kind][name] for name in methods)


def _get_query(client: ClaudeSDKClient) -> Any:
    return getattr(client._conversation or client._connecting, "query", None)  # noqa: SLF001 - as the next ones


def _get_transport(client: ClaudeSDKClient) -> Any:
    given = vars(client).get("_transport")
    return given or getattr(client._conversation or client._connecting, "transport", None)  # noqa: SLF001


def _set_transport(client: ClaudeSDKClient, transport: Transport | None) -> None:
    vars(client)["_transport"] = transport


Conversation.replacement = PatchableConversation
# Attributes of the official client that libraries read.
setattr(ClaudeSDKClient, "_query", property(_get_query))  # noqa: B010 - not a name of our class
setattr(ClaudeSDKClient, "_transport", property(_get_transport, _set_transport))  # noqa: B010
