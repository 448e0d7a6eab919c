"""The interface between a session and whatever carries its bytes.

A process under asyncio, a process under trio and a user's own `Transport` are all used as a `Pipe`, and report to a
`Listener`: the session.
"""

from typing import Any, Final, Protocol

CLOSE_TIMEOUT: Final = 5.0
"""Seconds that the CLI gets to exit by itself when its input has ended; the option `close_timeout`."""


class Listener(Protocol):
    """Gets what the CLI sends. Called on the event loop, never awaited, must not block."""

    def data_received(self, data: bytes) -> None:
        """Take bytes of the CLI's output, cut anywhere."""
        ...

    def frame_received(self, frame: dict[str, Any]) -> None:
        """Take a whole frame, from a pipe that has already decoded it."""
        ...

    def stderr_received(self, data: bytes) -> None:
        """Take bytes of stderr, cut anywhere."""
        ...

    def ended(self, exit_code: int | None, error: Exception | None = None) -> None:
        """Note that nothing more will come, and nothing can be written. Called once."""
        ...

    def reading_ended(self, error: Exception | None) -> None:
        """Note that nothing more will come, from a pipe that can be written to until it has `ended`."""
        ...


class Pipe(Protocol):
    """One connection to a CLI."""

    async def open(self, listener: Listener) -> None:
        """Start it. After an exception nothing is left running."""
        ...

    def write(self, line: bytes) -> None:
        """Send one line, in order, without waiting."""
        ...

    async def drain(self) -> None:
        """Wait until most of what was written has been taken, or the pipe has ended. Raises why writing failed."""
        ...

    def end_input(self) -> None:
        """End the CLI's input. Nothing more will be written."""
        ...

    async def stop(self) -> None:
        """End it in bounded time, gently first."""
        ...

    def kill(self) -> None:
        """End it now, from anywhere, without waiting."""
        ...
