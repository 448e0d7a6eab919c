"""Several processes that serve one socket: started, started again when one dies, ended together."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Final

from toolwire.cli._failing import FAILURE

_YOUNG: Final = 5.0  # a process that dies sooner never really served
_CHANCES: Final = 3  # young deaths in a row before it is given up


def supervise(listening: socket.socket, count: int, drain: float, secret_variable: str) -> int:
    """Run this very command `count` times on the socket until SIGINT or SIGTERM; the exit code."""
    from toolwire.mcp.metrics import FOLDER  # noqa: PLC0415 - heavy
    from toolwire.mcp.serving import new_secret  # noqa: PLC0415

    listening.set_inheritable(True)
    folder = tempfile.mkdtemp(prefix="toolwire-metrics-")
    environment = {
        **os.environ,
        FOLDER: folder,
        secret_variable: os.environ.get(secret_variable) or new_secret(),
    }
    command = [
        sys.executable,
        "-m",
        "toolwire",
        *sys.argv[1:],
        "--fd",
        str(listening.fileno()),
        "--stateless",
    ]
    told = threading.Event()
    before = {each: signal.signal(each, lambda *_: told.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    group = _Group(command, environment, listening.fileno(), count)
    try:
        while not told.is_set() and not group.hopeless:
            group.tend()
            told.wait(0.2)
    finally:
        group.end(drain + 3)
        for each, handler in before.items():
            signal.signal(each, handler)
        shutil.rmtree(folder, ignore_errors=True)
    return FAILURE if group.hopeless else 0


class _Group:
    def __init__(self, command: list[str], environment: dict[str, str], fd: int, count: int) -> None:
        from toolwire.mcp.metrics import FOLDER  # noqa: PLC0415 - heavy

        self._folder = environment[FOLDER]
        self._start: Any = lambda: (
            subprocess.Popen(command, env=environment, pass_fds=[fd], start_new_session=True),  # noqa: S603 - our own command
            time.monotonic(),
        )
        self._young_deaths = 0
        self._members = [self._start() for _ in range(count)]

    @property
    def hopeless(self) -> bool:
        """Whether they die as fast as they are started."""
        return self._young_deaths >= _CHANCES

    def tend(self) -> None:
        """Replace those that have died."""
        from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - heavy

        for place, (process, since) in enumerate(self._members):
            if process.poll() is None:
                continue
            self._young_deaths = self._young_deaths + 1 if time.monotonic() - since < _YOUNG else 0
            mark_process_dead(process.pid, self._folder)  # type: ignore[no-untyped-call]
            if not self.hopeless:
                print(f"worker {process.pid} ended ({process.returncode}); another starts", file=sys.stderr)  # noqa: T201
                self._members[place] = self._start()

    def end(self, seconds: float) -> None:
        """End them all: asked first, killed when they take longer than that."""
        alive = [process for process, _ in self._members if process.poll() is None]
        for process in alive:
            process.terminate()
        deadline = time.monotonic() + seconds
        for process in alive:
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
