"""The CLI process on trio. Imported only if trio is already running, since it is an optional dependency."""

import subprocess
from contextlib import suppress
from typing import Any, cast

import trio

from toolwire._support.tasks import spawn
from toolwire._support.waiting import Mailbox, Signal
from toolwire._transport.base import Listener
from toolwire._transport.process import (
    LINGER,
    READ_SIZE,
    TERMINATE_TIMEOUT,
    Command,
    ProcessPipe,
    start_error,
)


class TrioPipe(ProcessPipe):
    """A process on trio: one system task reads, writes and waits."""

    def __init__(self, command: Command) -> None:
        super().__init__(command)
        self._outgoing: Mailbox[bytes] = Mailbox()
        self._sent = Signal()

    async def open(self, listener: Listener) -> None:
        self._listener = listener
        pipe = subprocess.PIPE
        try:
            arguments = self._arguments()
            with trio.CancelScope(shield=True):  # a started process must have an owner
                self._process = await trio.lowlevel.open_process(
                    list(self._command.argv), stdin=pipe, stdout=pipe, stderr=pipe, **arguments
                )
        except Exception as error:
            self._on_gone()
            raise start_error(self._command, error) from error
        self._on_started(self._process.pid)
        spawn(self._carry)

    def write(self, line: bytes) -> None:
        self._outgoing.put(line)

    async def drain(self) -> None:
        await self._sent.wait_until(lambda: not self._outgoing or self._gone.is_set)

    def _close_input(self) -> None:
        self._outgoing.close()

    def _input_descriptor(self) -> int | None:
        return None if self._process.stdin is None else cast("int", self._process.stdin.fileno())  # type: ignore[attr-defined]

    async def _carry(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_all)
                nursery.start_soon(self._read_until_exit, nursery.cancel_scope)
        finally:
            if self._process.returncode is None:  # cancelled: the event loop is shutting down
                self.kill()
                with trio.move_on_after(TERMINATE_TIMEOUT, shield=True):
                    await self._process.wait()
            self._on_gone()
            self._sent.notify()
            self._listener.ended(None if self._stopped_silent else self._process.returncode)

    async def _read_until_exit(self, everything: Any) -> None:
        async with trio.open_nursery() as readers:
            readers.start_soon(self._read_output)
            readers.start_soon(self._read, self._process.stderr, self._listener.stderr_received)
            await self._process.wait()
            readers.cancel_scope.deadline = trio.current_time() + LINGER
        everything.cancel()

    async def _read_output(self) -> None:
        await self._read(self._process.stdout, self._listener.data_received)
        with trio.move_on_after(LINGER):
            await self._process.wait()
            return
        self._stop_silent()

    async def _read(self, stream: Any, take: Any) -> None:
        async with stream:
            while data := await stream.receive_some(READ_SIZE):
                take(data)

    async def _write_all(self) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with cast("trio.abc.SendStream", self._process.stdin) as stdin:
                async for line in self._outgoing:
                    await stdin.send_all(line)
                    self._sent.notify()
        self._outgoing.close()
        self._outgoing.clear()
        self._sent.notify()
