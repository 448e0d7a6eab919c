"""What the session needs of the thing that carries its bytes.

Two verbs out (`write`, `end_input`), two ways to stop (`stop` waits, `kill` does not), three calls in. A process
under asyncio, a process under trio and a user's own `Transport` all look like this.
"""

from typing import Any, Protocol


class Listener(Protocol):
    """Who hears what the other side sends. Called from the event loop, never awaited, must not block."""

    def data_received(self, data: bytes) -> None:
        """Bytes of the conversation, cut anywhere."""
        ...

    def frame_received(self, frame: dict[str, Any]) -> None:
        """A whole frame, from a carrier that has already decoded it."""
        ...

    def stderr_received(self, data: bytes) -> None:
        """Bytes of stderr, cut anywhere."""
        ...

    def ended(self, exit_code: int | None, error: Exception | None = None) -> None:
        """Nothing more will come. Called once."""
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
        """Wait until most of what was written has gone, or the pipe has ended."""
        ...

    def end_input(self) -> None:
        """Nothing more will be written."""
        ...

    async def stop(self) -> None:
        """End it in bounded time, gently first."""
        ...

    def kill(self) -> None:
        """End it now, from anywhere, without waiting."""
        ...
