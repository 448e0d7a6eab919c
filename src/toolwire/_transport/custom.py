"""A user's own way to reach a CLI.

`Transport` is the official abstract class; `TransportPipe` makes one look like any other pipe. Its frames are
decoded already, so they enter behind the framing.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio

from toolwire._support.log import logger_for
from toolwire._support.tasks import Task, cancelled_from_inside, spawn
from toolwire._transport.base import Listener
from toolwire.errors import CLIConnectionError

logger = logger_for("transport")

_STOP: Final = 20.0  # seconds that a user's close() may take
_WIND_DOWN: Final = 5.0  # and its reading and writing, once they are cancelled


class Transport(ABC):
    """Carries lines of JSON to a CLI and frames back."""

    @abstractmethod
    async def connect(self) -> None:
        """Get ready to read and write."""

    @abstractmethod
    async def write(self, data: str) -> None:
        """Send one line, newline included."""

    @abstractmethod
    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The frames that come in, until the end. An exception ends the conversation with it."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything. Must end in bounded time."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it can be written to."""

    @abstractmethod
    async def end_input(self) -> None:
        """Nothing more will be written."""


class TransportPipe:
    """One task reads the transport, one writes to it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._outgoing: deque[bytes | None] = deque()  # None ends the input
        self._unsent = 0
        self._something = anyio.Event()
        self._drained = anyio.Event()
        self._ended = False
        self._tasks: list[Task] = []
        self._running = 0
        self._idle = anyio.Event()

    async def open(self, listener: Listener) -> None:
        self._listener = listener
        await self._transport.connect()
        self._tasks = [spawn(work, on_done=self._task_done) for work in (self._read, self._write)]
        self._running = len(self._tasks)

    def write(self, line: bytes) -> None:
        self._put(line)

    async def drain(self) -> None:
        while self._unsent and not self._ended:
            await self._drained.wait()

    def end_input(self) -> None:
        self._put(None)

    async def stop(self) -> None:
        self.kill()
        with anyio.move_on_after(_WIND_DOWN, shield=True):
            while self._running:
                await self._idle.wait()
        with anyio.move_on_after(_STOP, shield=True) as scope:
            try:
                await self._transport.close()
            except Exception:  # the user's own code, at the end: nothing is left to do but say so
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
            self._outgoing.append(line)
            self._something.set()

    def _task_done(self) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()

    async def _read(self) -> None:
        try:
            frame: Any
            async for frame in self._transport.read_messages():
                if isinstance(frame, dict):
                    self._listener.frame_received(frame)
                else:
                    logger.warning("the transport gave a %s, not a frame: skipped", type(frame).__name__)
        except anyio.get_cancelled_exc_class():
            if not cancelled_from_inside():
                raise
            self._finish(CLIConnectionError("The transport's reading was cancelled from within"))
        except Exception as error:  # noqa: BLE001 - the user's transport: it becomes the end of the session
            self._finish(error)
        else:
            self._finish(None)

    async def _write(self) -> None:
        try:
            while not self._ended:
                while self._outgoing:
                    line = self._outgoing.popleft()
                    if line is None:
                        await self._transport.end_input()
                    else:
                        await self._transport.write(line.decode())
                    self._unsent -= 1
                drained, self._drained = self._drained, anyio.Event()
                drained.set()
                self._something = anyio.Event()
                await self._something.wait()
        except anyio.get_cancelled_exc_class():
            if not cancelled_from_inside():
                raise
            self._finish(CLIConnectionError("The transport's writing was cancelled from within"))
        except Exception as error:  # noqa: BLE001 - as in _read
            self._finish(error)

    def _finish(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended = True
            self._drained.set()
            self._something.set()
            self._listener.ended(None if error else 0, error)
