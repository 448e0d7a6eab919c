"""Several processes that serve one socket: started, started again when one dies, ended together."""

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

_YOUNG: Final = 5.0  # a process that dies sooner never really served
_CHANCES: Final = 3  # young deaths in a row before it is given up
_LOOK: Final = 0.2  # seconds between two looks at them
_ENDING: Final = 8.0  # seconds that a process has to end after its drain
_METRICS: Final = "toolwire-metrics-"


def supervise(listening: socket.socket, count: int, drain: float, secret_variable: str) -> int:
    """Run this very command `count` times on the socket until SIGINT or SIGTERM; the exit code."""
    from toolwire.catalog.server import SESSION  # noqa: PLC0415 - heavy
    from toolwire.mcp.serve.host import new_secret  # noqa: PLC0415
    from toolwire.mcp.serve.metrics import FOLDER  # noqa: PLC0415

    # What all of them must agree on: the seal of stateless calls, and whose budget it is.
    shared = {secret_variable: new_secret(), SESSION: secrets.token_hex(8)}
    told, hurry = threading.Event(), threading.Event()

    def tell(*_: object) -> None:
        (hurry if told.is_set() else told).set()

    before = {each: signal.signal(each, tell) for each in (signal.SIGINT, signal.SIGTERM)}
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
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: group.pass_on(signal.SIGHUP))
            try:
                while not told.is_set() and not group.hopeless:
                    group.tend()
                    told.wait(_LOOK)
            finally:
                group.end(drain + _ENDING, hurry)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    return FAILURE if group.hopeless else 0


def worker_command(arguments: Sequence[str], fd: int) -> list[str]:
    """The command line of a worker: ours, with the socket. Options go first: behind a `--` they would be none."""
    command, *rest = arguments
    return [sys.executable, "-m", "toolwire", command, "--fd", str(fd), "--stateless", *rest]


@contextmanager
def metrics_folder() -> Iterator[tuple[Path, int]]:
    """A folder for the counts of all workers, and the descriptor whose holders keep it from being swept up.

    Those of parents that were killed are removed here: nobody holds a lock on them any more.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_METRICS}*"):
        with suppress(OSError):
            if (found := _locked(left)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(found)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_METRICS))
        with suppress(FileNotFoundError):
            lock = _locked(folder)
            if lock is not None and folder.exists():  # else another was faster, and took it for a left one
                break
    try:
        yield folder, lock
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the lock on a folder; None if somebody else does."""
    import fcntl  # noqa: PLC0415 - not on Windows, where there are no workers

    found = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(found)
        return None
    return found


class _Member:
    """One process. It is told to end when we are gone, however that came."""

    def __init__(self, start: Callable[[Lifeline], subprocess.Popen[bytes]]) -> None:
        self._lifeline = Lifeline()
        try:
            self.process = start(self._lifeline)
        except BaseException:
            self._lifeline.close()
            raise
        self._lifeline.hold(self.process.pid)
        self.since = time.monotonic()

    def ended(self) -> bool:
        """Whether it has."""
        if self.process.poll() is None:
            return False
        self._lifeline.close()
        return True


class _Group:
    def __init__(
        self, start: Callable[[Lifeline], subprocess.Popen[bytes]], count: int, folder: Path
    ) -> None:
        self._start = start
        self._folder = folder
        self._young_deaths = 0
        self._members = [_Member(start) for _ in range(count)]

    @property
    def hopeless(self) -> bool:
        """Whether they die as fast as they are started."""
        return self._young_deaths >= _CHANCES

    def tend(self) -> None:
        """Replace those that have died."""
        from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - heavy

        for place, member in enumerate(self._members):
            if not member.ended():
                continue
            young = time.monotonic() - member.since < _YOUNG
            self._young_deaths = self._young_deaths + 1 if young else 0
            process = member.process
            mark_process_dead(process.pid, str(self._folder))  # type: ignore[no-untyped-call]
            if not self.hopeless:
                sys.stderr.write(f"worker {process.pid} ended ({process.returncode}); another starts\n")
                self._members[place] = _Member(self._start)

    def end(self, seconds: float, hurry: threading.Event) -> None:
        """End them all: asked first, once more when there is a hurry, killed when they take longer than that."""
        self.pass_on(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        asked_again = False
        while (left := self._alive()) and time.monotonic() < deadline:
            if hurry.is_set() and not asked_again:
                asked_again = True
                deadline = min(deadline, time.monotonic() + 3)
                self.pass_on(signal.SIGINT)  # another one: two of a kind may come as one
            with suppress(subprocess.TimeoutExpired):
                left[0].process.wait(_LOOK)
        for member in left:
            member.process.kill()
            member.process.wait()
            member.ended()

    def pass_on(self, number: int) -> None:
        """Send a signal to all of them."""
        for member in self._alive():
            member.process.send_signal(number)

    def _alive(self) -> list[_Member]:
        return [member for member in self._members if not member.ended()]
