"""The user's own transport to a CLI.

`Transport` is the official abstract class; `TransportPipe` adapts one to the interface of a pipe. Its frames are
decoded already, so they skip the framing.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import Task, Work, cancelled_from_inside, spawn
from toolwire._support.waiting import Mailbox, Signal, WaitGroup
from toolwire._transport.base import Listener
from toolwire.errors import CLIConnectionError

logger = logger_for("transport")

_MAX_REFORMATTED: Final = 65_536  # bytes
_CLOSE_TIMEOUT: Final = 20.0  # seconds that a user's close() may take
_TASKS_TIMEOUT: Final = 5.0  # seconds that its reading and writing may take to stop once they are cancelled


class Transport(ABC):
    """Carries lines of JSON to a CLI and frames back."""

    @abstractmethod
    async def connect(self) -> None:
        """Connect, so that the transport can be read from and written to."""

    @abstractmethod
    async def write(self, data: str) -> None:
        """Send one line, newline included."""

    @abstractmethod
    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the received frames until the end. The conversation ends with any exception raised here."""

    @abstractmethod
    async def close(self) -> None:
        """Release all resources. Must end in bounded time."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return True if the transport can be written to."""

    @abstractmethod
    async def end_input(self) -> None:
        """End the CLI's input. Nothing more will be written."""


def _reformat(line: bytes) -> str:
    """Return a line as the official SDK writes it, with the same spaces and escapes: some transports search it.

    Long lines are left as they are: no transport searches them, and converting them would take long.
    """
    return json.dumps(json.loads(line)) + "\n" if len(line) <= _MAX_REFORMATTED else line.decode()


class TransportPipe:
    """A transport as a pipe: one task reads from it, one writes to it.

    Its methods are called in the order of the official SDK, because transports that replay a recording rely on it:
    reading starts after the first write has started, and writing continues after the end of reading. With `exits`,
    the end of reading is the exit of a CLI, and nothing is written after it. `patience` is the number of seconds
    for which `stop()` lets it end by itself after the end of its input, so that its last frames are read.
    """

    def __init__(self, transport: Transport, *, exits: bool = False, patience: float = 0) -> None:
        self._transport = transport
        self._exits = exits
        self._patience = patience
        self._reading_ended = False
        self._write_error: Exception | None = None
        self._outgoing: Mailbox[bytes | None] = Mailbox()  # None ends the input
        self._queued = 0  # number of lines for the transport
        self._written = 0  # number of those that it has written
        self._sent = Signal()
        self._ended = False
        self._tasks: list[Task] = []
        self._running = WaitGroup()

    async def open(self, listener: Listener) -> None:
        self._listener = listener
        await self._transport.connect()
        self._start(self._write)

    def _start(self, work: Work) -> None:
        self._running.add()
        self._tasks.append(spawn(work, on_done=self._running.done))

    def write(self, line: bytes) -> None:
        self._put(line)

    async def drain(self) -> None:
        queued = self._queued  # lines that are added later do not concern this caller
        await self._sent.wait_until(lambda: self._ended or self._written >= queued)
        if self._write_error is not None and self._written < queued:
            raise self._write_error

    def end_input(self) -> None:
        self._put(None)

    async def stop(self) -> None:
        if self._patience and len(self._tasks) > 1:
            self.end_input()
            with anyio.move_on_after(self._patience, shield=True):
                await self._sent.wait_until(lambda: self._ended or self._reading_ended)
        if self._reading_ended:  # a transport that replays a recording may finish reading before writing
            with anyio.move_on_after(_TASKS_TIMEOUT, shield=True):
                await self._sent.wait_until(lambda: self._ended or self._written == self._queued)
        self.kill()
        with anyio.move_on_after(_TASKS_TIMEOUT, shield=True):
            await self._running.wait()
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True) as scope:
            try:
                await self._transport.close()
            except Exception:  # the user's own code, at the end: it can only be logged
                logger.exception("closing the transport failed")
        if scope.cancelled_caught:
            logger.error("the transport did not close within %g s: its close() was cancelled", _CLOSE_TIMEOUT)

    def kill(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            self._finish(None)

    def _put(self, line: bytes | None) -> None:
        if not self._ended:
            self._queued += 1
            self._outgoing.put(line)

    async def _read(self) -> None:
        if self._ended:  # the first write has failed already
            return
        try:
            frame: Any
            async for frame in self._transport.read_messages():
                if isinstance(frame, dict):
                    self._listener.frame_received(frame)
                else:
                    logger.warning(
                        "skipped a %s from the transport: frames must be dicts", type(frame).__name__
                    )
        except anyio.get_cancelled_exc_class():
            if not cancelled_from_inside():
                raise
            self._finish_reading(CLIConnectionError("read_messages() of the transport cancelled itself"))
        except Exception as error:  # noqa: BLE001 - the user's transport: it becomes the end of the session
            self._finish_reading(error)
        else:
            self._finish_reading(None)

    def _finish_reading(self, error: Exception | None) -> None:
        if self._exits:
            self._finish(error)
        elif not self._ended:
            self._reading_ended = True
            self._sent.notify()
            self._listener.reading_ended(error)

    async def _write(self) -> None:
        try:
            async for line in self._outgoing:
                if len(self._tasks) == 1:
                    self._start(self._read)  # it runs when this task first waits: in the write, or after it
                if line is None:
                    await self._transport.end_input()
                else:
                    await self._transport.write(line.decode() if self._exits else _reformat(line))
                self._written += 1
                self._sent.notify()
        except anyio.get_cancelled_exc_class():
            if not cancelled_from_inside():
                raise
            self._fail_writing(CLIConnectionError("write() of the transport cancelled itself"))
        except Exception as error:  # noqa: BLE001 - as in _read
            self._fail_writing(error)

    def _fail_writing(self, error: Exception) -> None:
        self._write_error = error
        self._finish(error)

    def _finish(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended = True
            self._outgoing.close()
            self._sent.notify()
            self._listener.ended(None if error else 0, error)
