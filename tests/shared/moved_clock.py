"""Clocks that a test moves: those of the processes that follow one file run ahead by what the test says."""

import mmap
import struct
import time
from pathlib import Path

_FORMAT = "d"


class MovedClock:
    """The file, as the test has it."""

    def __init__(self, path):
        self.path = Path(path)
        self.path.write_bytes(struct.pack(_FORMAT, 0.0))
        self.ahead = 0.0
        with self.path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 0)

    def move(self, seconds):
        """Let time pass for all who follow, at once."""
        self.ahead += seconds
        struct.pack_into(_FORMAT, self._shared, 0, self.ahead)


def follow(path):
    """Let `time.time` and `time.monotonic` of this process, and so its event loops, follow a moved clock.

    To be called before other modules are imported, which take these functions for themselves.
    """
    with Path(path).open("r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
    real_time, real_monotonic = time.time, time.monotonic

    def ahead():
        return struct.unpack_from(_FORMAT, shared)[0]

    time.time = lambda: real_time() + ahead()
    time.monotonic = lambda: real_monotonic() + ahead()
