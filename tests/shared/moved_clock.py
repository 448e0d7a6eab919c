"""Clocks that a test moves: those of the processes that follow one file run ahead by what the test says."""

import ctypes
import mmap
import time
from pathlib import Path


def _share(path):
    """Return the number in a file, in memory: read and written in one go, so that no one sees half of it."""
    with Path(path).open("r+b") as file:
        return ctypes.c_double.from_buffer(mmap.mmap(file.fileno(), 0))


class MovedClock:
    """The file, as the test has it."""

    def __init__(self, path):
        self.path = Path(path)
        self.path.write_bytes(bytes(ctypes.sizeof(ctypes.c_double)))  # 0.0
        self._seconds = _share(path)

    @property
    def ahead(self):
        """By how many seconds it is ahead."""
        return self._seconds.value

    def move(self, seconds):
        """Let time pass for all who follow, at once."""
        self._seconds.value += seconds


def follow(path):
    """Let `time.time` and `time.monotonic` of this process, and so its event loops, follow a moved clock.

    To be called before other modules are imported, which take these functions for themselves.
    """
    seconds, real_time, real_monotonic = _share(path), time.time, time.monotonic
    time.time = lambda: real_time() + seconds.value
    time.monotonic = lambda: real_monotonic() + seconds.value
