"""`ProcessTransport`: a CLI process behind the interface of a user's transport.

For code that inspects the frames of a process: recordings, and the class of the official package that libraries
patch. Other conversations use the pipe of the process directly, which is faster.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from toolwire._conversation.session import Stderr
from toolwire._protocol.lines import DEFAULT_LIMIT, Lines
from toolwire._support.waiting import Mailbox
from toolwire._transport.base import Pipe
from toolwire._transport.custom import Transport
from toolwire._transport.find_cli import find_cli
from toolwire._transport.process import Command, process_pipe
from toolwire.errors import CLIConnectionError, ProcessError


class ProcessTransport(Transport):
    """Runs the CLI as a process. `connect()` calls `make_command` for its command."""

    def __init__(
        self,
        make_command: Callable[[], Command],
        *,
        limit: int = DEFAULT_LIMIT,
        on_stderr: Callable[[str], None] | None = None,
    ) -> None:
        self._get_command = make_command
        self._lines = Lines(limit)
        self._stderr = Stderr(on_stderr)
        self._frames: Mailbox[dict[str, Any]] = Mailbox()
        self._pipe: Pipe | None = None
        self._exit: int | None = None
        self._ended = False

    async def connect(self) -> None:
        if self._pipe is None:
            command = self._get_command()
            if command.argv[0] == "claude":  # the options set no path, and the CLI was not searched for yet
                command = replace(command, argv=[find_cli(None), *command.argv[1:]])
            pipe = process_pipe(command)
            await pipe.open(self)
            self._pipe = pipe

    async def write(self, data: str) -> None:
        if self._pipe is None or self._ended:
            raise CLIConnectionError(
                "The CLI is not running: it was not connected, or it has ended. Call connect() first."
            )
        self._pipe.write(data.encode())
        await self._pipe.drain()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async for frame in self._frames:
            yield frame
        if self._exit:
            raise ProcessError("Claude Code failed", exit_code=self._exit, stderr=self._stderr.tail())

    async def close(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            await pipe.stop()

    def is_ready(self) -> bool:
        return self._pipe is not None and not self._ended

    async def end_input(self) -> None:
        if self._pipe is not None:
            self._pipe.end_input()

    # Callbacks of the pipe.

    def data_received(self, data: bytes) -> None:
        for frame in self._lines.feed(data):
            self.frame_received(frame)

    def frame_received(self, frame: dict[str, Any]) -> None:
        self._frames.put(frame)

    def stderr_received(self, data: bytes) -> None:
        self._stderr.feed(data)

    def ended(self, exit_code: int | None, error: Exception | None = None) -> None:  # noqa: ARG002 - only other pipes pass it
        for frame in self._lines.finish():
            self.frame_received(frame)
        self._stderr.finish()
        self._exit, self._ended = exit_code, True
        self._frames.close()

    def reading_ended(self, error: Exception | None) -> None:
        self.ended(None, error)  # only called by other pipes; a process exits
