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

_RESPELLED: Final = 65_536  # bytes
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


def _respell(line: bytes) -> str:
    """Return a line in the spelling of the official SDK, spaces and escapes too: some transports search it.

    Not a long one: nobody searches that, and it would take long.
    """
    return json.dumps(json.loads(line)) + "\n" if len(line) <= _RESPELLED else line.decode()


class TransportPipe:
    """A transport as a pipe: one task reads it, one writes to it.

    Its calls come in the order of the official SDK, because transports that replay a recording count on it: reading
    begins when the first write has, and what is sent after the end of reading is still written. With `exits`, the
    end of reading is the exit of a CLI: nothing is written after it. `patience`: seconds that `stop()` lets it end
    by itself after the end of its input, so that its last frames are read.
    """

    def __init__(self, transport: Transport, *, exits: bool = False, patience: float = 0) -> None:
        self._transport = transport
        self._exits = exits
        self._patience = patience
        self._reading_ended = False
        self._write_error: Exception | None = None
        self._outgoing: Mailbox[bytes | None] = Mailbox()  # None ends the input
        self._put_in = 0  # lines for the transport, and how many of them it has taken
        self._taken = 0
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
        present = self._put_in  # what others put in behind it is no concern of this caller
        await self._sent.wait_until(lambda: self._ended or self._taken >= present)
        if self._write_error is not None and self._taken < present:
            raise self._write_error

    def end_input(self) -> None:
        self._put(None)

    async def stop(self) -> None:
        if self._patience and len(self._tasks) > 1:
            self.end_input()
            with anyio.move_on_after(self._patience, shield=True):
                await self._sent.wait_until(lambda: self._ended or self._reading_ended)
        if self._reading_ended:  # a reader that found everything there may be quicker than the writing
            with anyio.move_on_after(_TASKS_STOP, shield=True):
                await self._sent.wait_until(lambda: self._ended or self._taken == self._put_in)
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
            self._put_in += 1
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
                    logger.warning("skipped a %s from the transport: frames are dicts", type(frame).__name__)
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
                    self._start(self._read)  # begins where this task first waits: in the write, or after it
                if line is None:
                    await self._transport.end_input()
                else:
                    await self._transport.write(line.decode() if self._exits else _respell(line))
                self._taken += 1
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
