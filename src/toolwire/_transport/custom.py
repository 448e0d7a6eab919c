"""The user's own transport to a CLI.

`Transport` is the official abstract class; `TransportPipe` adapts one to the interface of a pipe. Its frames are
decoded already, so they skip the framing.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import Task, cancelled_from_inside, spawn
from toolwire._support.waiting import Mailbox, Signal, WaitGroup
from toolwire._transport.base import Listener
from toolwire.errors import CLIConnectionError

logger = logger_for("transport")

_STOP: Final = 20.0  # seconds that a user's close() may take
_TASKS_STOP: Final = 5.0  # and its reading and writing, once they are cancelled


class Transport(ABC):
    """Carries lines of JSON to a CLI and frames back."""

    @abstractmethod
    async def connect(self) -> None:
        """Connect, so that it can be read from and written to."""

    @abstractmethod
    async def write(self, data: str) -> None:
        """Send one line, newline included."""

    @abstractmethod
    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the frames that come in, until the end. An exception ends the conversation with it."""

    @abstractmethod
    async def close(self) -> None:
        """Release everything. Must end in bounded time."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return True if it can be written to."""

    @abstractmethod
    async def end_input(self) -> None:
        """End the CLI's input. Nothing more will be written."""


class TransportPipe:
    """A transport as a pipe: one task reads it, one writes to it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._outgoing: Mailbox[bytes | None] = Mailbox()  # None ends the input
        self._unsent = 0
        self._sent = Signal()
        self._ended = False
        self._tasks: list[Task] = []
        self._running = WaitGroup()

    async def open(self, listener: Listener) -> None:
        self._listener = listener
        await self._transport.connect()
        for work in (self._read, self._write):
            self._running.add()
            self._tasks.append(spawn(work, on_done=self._running.done))

    def write(self, line: bytes) -> None:
        self._put(line)

    async def drain(self) -> None:
        await self._sent.wait_until(lambda: self._ended or not self._unsent)

    def end_input(self) -> None:
        self._put(None)

    async def stop(self) -> None:
        self.kill()
        with anyio.move_on_after(_TASKS_STOP, shield=True):
            await self._running.wait()
        with anyio.move_on_after(_STOP, shield=True) as scope:
            try:
                await self._transport.close()
            except Exception:  # the user's own code, at the end: all that can be done is to log it
                logger.exception("closing the transport failed")
        if scope.cancelled_caught:
            logger.error("the transport did not close within %g s: given up", _STOP)

    def kill(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            self._finish(None)

    def _put(self, line: bytes | None) -> None:
        if not self._ended:
            self._unsent += 1
            self._outgoing.put(line)

    async def _read(self) -> None:
        try:
            frame: Any
            async for frame in self._transport.read_messages():
                if isinstance(frame, dict):
                    self._listener.frame_received(frame)
                else:
                    logger.warning("skipped a %s from the transport: frames are dicts", type(frame).__name__)
        except anyio.get_cancelled_exc_class():
            if not cancelled_from_inside():
                raise
            self._finish(CLIConnectionError("read_messages() of the transport cancelled itself"))
        except Exception as error:  # noqa: BLE001 - the user's transport: it becomes the end of the session
            self._finish(error)
        else:
            self._finish(None)

    async def _write(self) -> None:
        try:
            async for line in self._outgoing:
                if line is None:
                    await self._transport.end_input()
                else:
                    await self._transport.write(line.decode())
                self._unsent -= 1
                self._sent.notify()
        except anyio.get_cancelled_exc_class():
            if not cancelled_from_inside():
                raise
            self._finish(CLIConnectionError("write() of the transport cancelled itself"))
        except Exception as error:  # noqa: BLE001 - as in _read
            self._finish(error)

    def _finish(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended = True
            self._outgoing.close()
            self._sent.notify()
            self._listener.ended(None if error else 0, error)
