"""Starts, reads, writes and stops the CLI process.

Contains the part that asyncio and trio share, and the implementation on asyncio, which is driven by callbacks; the
one on trio is `process_trio`. Both pass the same contract tests. Knows signals and file descriptors; must not know
what the bytes mean.

`stop()` ends the process on every system. If the parent dies without stopping it, on Linux the kernel ends it
(`lifeline`); elsewhere it reads the end of its input, and gets SIGTERM if Python exits normally.
"""

import asyncio
import atexit
import errno
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from toolwire._support.log import logger_for
from toolwire._support.record import Record
from toolwire._support.secrets import hide
from toolwire._support.tasks import on_trio, shield, spawn
from toolwire._support.waiting import Future
from toolwire._transport.base import CLOSE_TIMEOUT, Listener, Pipe
from toolwire._transport.lifeline import FORKING, Lifeline, release_in_children
from toolwire.errors import CLIConnectionError, CLINotFoundError

logger = logger_for("session")

TERMINATE_TIMEOUT: Final = 2.0
"""Seconds from SIGTERM to SIGKILL."""
LINGER: Final = 1.0  # a grandchild may hold stdout open after the CLI is gone
READ_SIZE: Final = 64 * 1024
"""Bytes to read at once: the capacity of a pipe. A larger buffer is allocated by the kernel each time, at 10 µs."""


@dataclass(frozen=True, repr=False, eq=False)
class Command(Record):
    """The command line, environment and user to start a CLI with. Its repr shows no secrets."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    user: str | int | None = None
    close_timeout: float | None = None
    """Seconds from the end of its input to SIGTERM. None means 5."""

    def __repr__(self) -> str:
        argv, env = hide(list(self.argv)), hide({"env": self.env})["env"]
        return f"Command(argv={argv!r}, env={env!r}, cwd={self.cwd!r}, user={self.user!r})"

    def popen_arguments(self, inherit: Sequence[int]) -> dict[str, Any]:
        """Return the keyword arguments for subprocess.Popen and functions like it."""
        arguments: dict[str, Any] = {"env": dict(self.env), "cwd": self.cwd}
        if inherit:
            arguments["pass_fds"] = inherit
        if self.user is not None:
            arguments["user"] = self.user
        return arguments


def process_pipe(command: Command) -> Pipe:
    """Make a pipe for the running event loop."""
    if not on_trio():
        return _AsyncioPipe(command)
    from toolwire._transport.process_trio import TrioPipe  # noqa: PLC0415 - trio is optional

    return TrioPipe(command)


_alive: set["ProcessPipe"] = set()


@atexit.register
def _terminate_all() -> None:
    """Terminate the processes that were not stopped, when Python exits."""
    for pipe in list(_alive):
        if pipe.owner == os.getpid():  # a forked child has the same list
            pipe.terminate()


class ProcessPipe(ABC):
    """The common part of both implementations: how a process is stopped."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._close_timeout = CLOSE_TIMEOUT if command.close_timeout is None else command.close_timeout
        self._input_ended_at: float | None = None
        self.owner = os.getpid()
        self._gone: Future[None] = Future()
        self._pid: int | None = None  # until it is known to have ended
        self._pidfd: int | None = None
        self._lifeline: Lifeline | None = None
        self._stopped_silent = False  # see `_stop_silent`

    async def stop(self) -> None:
        """End the input, then send SIGTERM, then SIGKILL, with a timeout for each.

        If the input has ended earlier, the first timeout counts from then. If this is cancelled, because the event
        loop is shutting down, SIGKILL is sent at once.
        """
        try:
            self.end_input()
            waited = 0.0 if self._input_ended_at is None else time.monotonic() - self._input_ended_at
            await self._gone.wait(max(0.0, self._close_timeout - waited))
            if not self._gone.is_set:
                self.terminate()
                await self._gone.wait(TERMINATE_TIMEOUT)
        finally:
            if not self._gone.is_set:
                self.kill()
                with shield():
                    await self._gone.wait(TERMINATE_TIMEOUT)

    def end_input(self) -> None:
        if self._input_ended_at is None:
            self._input_ended_at = time.monotonic()
        self._close_input()

    @abstractmethod
    def _close_input(self) -> None: ...

    @abstractmethod
    def _input_descriptor(self) -> int | None:
        """Return the descriptor of the CLI's input while it is open."""

    def forked(self) -> None:
        """Leave the CLI to the parent: no signals from a forked child, and no copy of its input."""
        with suppress(OSError):
            if (descriptor := self._input_descriptor()) is not None and descriptor >= 0:
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, descriptor, inheritable=False)  # not closed: its owner may still close it
                os.close(nothing)
        _alive.discard(self)
        self._pid = None
        self._close_pidfd()

    def _close_pidfd(self) -> None:
        with FORKING:  # otherwise a forked child could close a descriptor that was reused meanwhile
            if self._pidfd is not None:
                os.close(self._pidfd)
                self._pidfd = None

    def kill(self) -> None:
        self._signal(signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, but never to another one that has reused its id."""
        with suppress(ProcessLookupError):
            if sys.platform == "linux" and self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, number)
            elif self._pid is not None:
                os.kill(self._pid, number)

    def _on_started(self, pid: int) -> None:
        self._pid = pid
        if self._lifeline is not None:
            self._lifeline.hold(pid)
        if sys.platform == "linux":
            with suppress(OSError):  # an old kernel, or it has already ended
                self._pidfd = os.pidfd_open(pid)
        _alive.add(self)
        release_in_children(self)

    def _stop_silent(self) -> None:
        """Stop a CLI that has closed its output but does not exit. Its exit code is not reported: we caused it."""
        if self._pid is not None and not self._gone.is_set:
            logger.warning("the CLI closed its output but did not exit: stopping it")
            self._stopped_silent = True
            spawn(self.stop)

    def _arguments(self) -> dict[str, Any]:
        self._lifeline = Lifeline()
        return self._command.popen_arguments(self._lifeline.inherit)

    def _on_gone(self) -> None:
        _alive.discard(self)
        if self._lifeline is not None:
            self._lifeline.close()
        self._close_pidfd()
        self._pid = None
        self._gone.set(None)


class _AsyncioPipe(ProcessPipe, asyncio.SubprocessProtocol):
    """A process on asyncio: it is read by callbacks and written to directly, without a stream or a task.

    The first line in a turn of the event loop is written at once, and all further ones in that turn together: many
    calls that end at the same time cost one system call.
    """

    def __init__(self, command: Command) -> None:
        super().__init__(command)
        self._listener: Listener | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._loop = asyncio.get_running_loop()
        self._held: list[bytes] | None = None  # None: nothing was written in this turn
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = False

    async def open(self, listener: Listener) -> None:
        # After `task.cancel()` during the start, asyncio itself reaps the child. A cancelled scope would interrupt
        # even that, so it is shielded; once the child has started, it is ours to stop.
        try:
            arguments = self._arguments()
            self._listener = listener
            with shield():
                await self._loop.subprocess_exec(lambda: self, *self._command.argv, **arguments)
        except Exception as error:
            self._on_gone()
            raise start_error(self._command, error) from error
        except BaseException:
            self._listener = None
            self._on_gone()
            raise

    def write(self, line: bytes) -> None:
        if self._stdin is None or self._ended or self._stdin.is_closing():
            return
        if self._held is not None:
            self._held.append(line)
            return
        self._stdin.write(line)
        self._held = []
        self._loop.call_soon(self._write_held)

    def _write_held(self) -> None:
        held, self._held = self._held, None
        if held and self._stdin is not None:
            self._stdin.write(b"".join(held))

    async def drain(self) -> None:
        self._write_held()
        await self._writable.wait()

    def _close_input(self) -> None:
        self._write_held()
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.close()

    def _input_descriptor(self) -> int | None:
        if self._stdin is None:
            return None
        get = self._stdin.get_extra_info
        pipe = get("pipe") or get("socket")  # the latter on uvloop
        return None if pipe is None or getattr(pipe, "closed", False) else pipe.fileno()

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        # Two turns later, because by then all data that was read before has been delivered through the process.
        self._loop.call_soon(self._loop.call_soon, self._read_directly)
        self._on_started(self._transport.get_pid() or 0)

    def _read_directly(self) -> None:
        output = None if self._transport is None else self._transport.get_pipe_transport(1)
        if output is not None and not output.is_closing():
            if hasattr(output, "max_size"):  # asyncio's own pipes would read four times as much
                output.max_size = READ_SIZE
            output.set_protocol(_Output(self.data_received, cast("asyncio.Protocol", output.get_protocol())))

    def data_received(self, data: bytes) -> None:
        if self._listener is not None and not self._ended:
            self._listener.data_received(data)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.data_received(data)
        elif self._listener is not None and not self._ended:
            self._listener.stderr_received(data)

    def pipe_connection_lost(self, fd: int, _exc: Exception | None) -> None:
        if fd == 0:
            self._stdin = None
            self._writable.set()
        elif fd == 1:
            self._loop.call_later(LINGER, self._stop_silent)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def process_exited(self) -> None:
        self._pid = None
        self._writable.set()
        self._loop.call_later(LINGER, self._finish)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._finish()

    def _finish(self) -> None:
        if self._ended or self._transport is None:
            return
        self._ended = True
        if self._stdin is not None:
            self._stdin.abort()  # a grandchild may hold the other end and never read
        self._transport.close()
        self._on_gone()
        if self._listener is not None:
            self._listener.ended(None if self._stopped_silent else self._transport.get_returncode())


class _Output(asyncio.Protocol):
    """Reads the CLI's output directly from its pipe: through the process each chunk would arrive a turn later.

    The process must still be notified of the end of the pipe, which it waits for.
    """

    def __init__(self, received: Callable[[bytes], None], process: asyncio.Protocol) -> None:
        self._received = received
        self._process = process

    def data_received(self, data: bytes) -> None:
        try:
            self._received(data)
        except Exception as error:  # noqa: BLE001 - uvloop would close the pipe
            context = {"message": "the output of the CLI could not be handled", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def connection_lost(self, exc: Exception | None) -> None:
        self._process.connection_lost(exc)


def start_error(command: Command, error: Exception) -> CLIConnectionError:
    """Return the error for a process that did not start, with the reason and a hint what to do."""
    cli, cwd = command.argv[0], command.cwd
    text = f"Failed to start Claude Code at {cli}: {error} ({sys.platform})"
    if isinstance(error, NotImplementedError):
        text = (
            "This asyncio event loop cannot start processes. On Windows use the default ProactorEventLoop, "
            "and leave the `user` option unset."
        )
    elif isinstance(error, FileNotFoundError):
        if cwd is not None and not os.path.isdir(cwd):  # noqa: PTH112 - sync, one stat
            text = f"Working directory does not exist: {cwd}"
        elif os.path.isfile(cli):  # noqa: PTH113
            text = f"{cli} exists, but the interpreter named in its first line does not"
        else:
            return CLINotFoundError("Claude Code not found at", cli)
    elif isinstance(error, PermissionError):
        text = f"No permission to execute Claude Code at {cli}: {error.strerror or error}"
        if cwd is not None and not os.access(cwd, os.X_OK):
            text = f"No permission to enter the working directory: {cwd}"
    elif isinstance(error, OSError) and error.errno == errno.E2BIG:
        size = sum(len(os.fsencode(part)) for part in command.argv)
        text = (
            f"The command line and environment are too large for this system ({size} bytes of arguments): "
            "shorten the lists in the options (allowed_tools, add_dirs, extra_args, ...)."
        )
    return CLIConnectionError(text)
