"""Clocks that a test moves: processes that follow one file have clocks that run ahead by the number in it."""

import ctypes
import mmap
import time
from pathlib import Path


def _share(path):
    """Map the number in a file into memory: it is read and written in one go, so that no one sees half of it."""
    with Path(path).open("r+b") as file:
        return ctypes.c_double.from_buffer(mmap.mmap(file.fileno(), 0))


class MovedClock:
    """The file, as the test sees it."""

    def __init__(self, path):
        self.path = Path(path)
        self.path.write_bytes(bytes(ctypes.sizeof(ctypes.c_double)))  # 0.0
        self._seconds = _share(path)

    @property
    def ahead(self):
        """The number of seconds by which the clocks run ahead."""
        return self._seconds.value

    def move(self, seconds):
        """Let time pass for all followers, at once."""
        self._seconds.value += seconds


def follow(path):
    """Let `time.time` and `time.monotonic` of this process, and so its event loops, follow a moved clock.

    Call it before other modules are imported, which may keep these functions by `from time import`.
    """
    seconds, real_time, real_monotonic = _share(path), time.time, time.monotonic
    time.time = lambda: real_time() + seconds.value
    time.monotonic = lambda: real_monotonic() + seconds.value
