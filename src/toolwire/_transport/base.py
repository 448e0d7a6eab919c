"""The interface between a session and whatever carries its bytes.

A process under asyncio, a process under trio and a user's own `Transport` are all used as a `Pipe`, and report to a
`Listener`: the session.
"""

from typing import Any, Final, Protocol

CLOSE_TIMEOUT: Final = 5.0
"""Seconds that the CLI has to exit by itself after its input has ended; the option `close_timeout`."""


class Listener(Protocol):
    """Receives the output of the CLI. Its methods are called on the event loop, and must not block."""

    def data_received(self, data: bytes) -> None:
        """Receive bytes of the CLI's output, cut anywhere."""
        ...

    def frame_received(self, frame: dict[str, Any]) -> None:
        """Receive a whole frame, from a pipe that has already decoded it."""
        ...

    def stderr_received(self, data: bytes) -> None:
        """Receive bytes of stderr, cut anywhere."""
        ...

    def ended(self, exit_code: int | None, error: Exception | None = None) -> None:
        """Note that nothing more can be read or written. Called once."""
        ...

    def reading_ended(self, error: Exception | None) -> None:
        """Note that nothing more can be read, though the pipe can still be written to until it has `ended`."""
        ...


class Pipe(Protocol):
    """One connection to a CLI."""

    async def open(self, listener: Listener) -> None:
        """Start the connection. After an exception nothing is left running."""
        ...

    def write(self, line: bytes) -> None:
        """Send one line, in order, without waiting."""
        ...

    async def drain(self) -> None:
        """Wait until most of the written data was read, or the pipe has ended. Raises the error of a write."""
        ...

    def end_input(self) -> None:
        """End the CLI's input. Nothing more will be written."""
        ...

    async def stop(self) -> None:
        """End the connection in bounded time, gently first."""
        ...

    def kill(self) -> None:
        """End the connection now, without waiting. May be called from anywhere."""
        ...
