"""Supervises the processes of `toolwire serve --workers`: they share a socket, and are replaced and stopped by us.

Why this is not uvicorn's supervisor is in docs/decisions.md.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from toolwire._transport.lifeline import Lifeline
from toolwire.cli.shared.exit_codes import FAILURE

_EARLY: Final = 5.0  # seconds: a worker that exits sooner has failed to start
_EARLY_EXITS: Final = 3  # early exits in a row after which we give up
_INTERVAL: Final = 0.2  # seconds between two checks
_EXIT_TIMEOUT: Final = 8.0  # seconds for a worker to exit after its calls have finished
_METRICS: Final = "toolwire-metrics-"


def supervise(listening: socket.socket, count: int, drain: float, secret_variable: str) -> int:
    """Run this command in `count` processes on the socket until SIGINT or SIGTERM. Returns the exit code."""
    from toolwire.catalog.server import SESSION  # noqa: PLC0415 - heavy
    from toolwire.mcp.serve.host import new_secret  # noqa: PLC0415
    from toolwire.mcp.serve.metrics import FOLDER  # noqa: PLC0415

    # All workers share the key that seals stateless calls, and the session whose budget they spend.
    shared = {secret_variable: new_secret(), SESSION: secrets.token_hex(8)}
    stopping, hurry = threading.Event(), threading.Event()

    def on_signal(*_: object) -> None:
        (hurry if stopping.is_set() else stopping).set()

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        with metrics_folder() as (folder, lock):
            given = {name: value for name, value in os.environ.items() if value or name not in shared}
            environment = {**shared, **given, FOLDER: str(folder)}
            command = worker_command(sys.argv[1:], listening.fileno())

            def start(lifeline: Lifeline) -> subprocess.Popen[bytes]:
                return subprocess.Popen(  # noqa: S603 - our own command
                    command,
                    env=environment,
                    pass_fds=[listening.fileno(), lock, *lifeline.inherit],
                    start_new_session=True,
                )

            group = _Group(start, count, folder)
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: group.send_signal(signal.SIGHUP))
            try:
                while not stopping.is_set() and not group.failed:
                    group.replace_exited()
                    stopping.wait(_INTERVAL)
            finally:
                group.stop(drain + _EXIT_TIMEOUT, hurry)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    return FAILURE if group.failed else 0


def worker_command(arguments: Sequence[str], fd: int) -> list[str]:
    """Return the command line of a worker: ours, with its own options first, since ours may end with `--`."""
    command, *rest = arguments
    return [sys.executable, "-m", "toolwire", command, "--fd", str(fd), "--stateless", *rest]


@contextmanager
def metrics_folder() -> Iterator[tuple[Path, int]]:
    """Create a folder for the metrics of all workers, and a descriptor that holds a lock on it.

    Folders that killed parents left are removed: nobody holds their locks any more.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_METRICS}*"):
        with suppress(OSError):
            if (found := _try_lock(left)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(found)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_METRICS))
        with suppress(FileNotFoundError):
            lock = _try_lock(folder)
            if lock is not None and folder.exists():  # else another process took it for a left one
                break
    try:
        yield folder, lock
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _try_lock(folder: Path) -> int | None:
    """Lock a folder and return the descriptor that holds the lock; None if another process holds it."""
    import fcntl  # noqa: PLC0415 - not on Windows

    found = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(found)
        return None
    return found


class _Worker:
    """A worker process. On Linux it gets SIGTERM when this process ends, even by SIGKILL."""

    def __init__(self, start: Callable[[Lifeline], subprocess.Popen[bytes]]) -> None:
        self._lifeline = Lifeline()
        try:
            self.process = start(self._lifeline)
        except BaseException:
            self._lifeline.close()
            raise
        self._lifeline.hold(self.process.pid)
        self.started = time.monotonic()

    def has_exited(self) -> bool:
        """True if the process has exited; its lifeline is then closed."""
        if self.process.poll() is None:
            return False
        self._lifeline.close()
        return True


class _Group:
    """The workers of a server."""

    def __init__(
        self, start: Callable[[Lifeline], subprocess.Popen[bytes]], count: int, folder: Path
    ) -> None:
        self._start = start
        self._folder = folder
        self._early_exits = 0
        self._workers = [_Worker(start) for _ in range(count)]

    @property
    def failed(self) -> bool:
        """True if workers exit as soon as they are started."""
        return self._early_exits >= _EARLY_EXITS

    def replace_exited(self) -> None:
        """Start a new worker for each that has exited."""
        from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - heavy

        for place, worker in enumerate(self._workers):
            if not worker.has_exited():
                continue
            early = time.monotonic() - worker.started < _EARLY
            self._early_exits = self._early_exits + 1 if early else 0
            process = worker.process
            mark_process_dead(process.pid, str(self._folder))  # type: ignore[no-untyped-call]
            if not self.failed:
                sys.stderr.write(f"worker {process.pid} exited ({process.returncode}); starting another\n")
                self._workers[place] = _Worker(self._start)

    def stop(self, seconds: float, hurry: threading.Event) -> None:
        """Stop all workers: by SIGTERM, by SIGINT too once `hurry` is set, and by SIGKILL after `seconds`."""
        self.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        hurried = False
        while (left := self._running()) and time.monotonic() < deadline:
            if hurry.is_set() and not hurried:
                hurried = True
                deadline = min(deadline, time.monotonic() + 3)
                self.send_signal(signal.SIGINT)  # a second SIGTERM could be merged with the first
            with suppress(subprocess.TimeoutExpired):
                left[0].process.wait(_INTERVAL)
        for worker in left:
            worker.process.kill()
            worker.process.wait()
            worker.has_exited()

    def send_signal(self, number: int) -> None:
        """Send a signal to all workers."""
        for worker in self._running():
            worker.process.send_signal(number)

    def _running(self) -> list[_Worker]:
        return [worker for worker in self._workers if not worker.has_exited()]
