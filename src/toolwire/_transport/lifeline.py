"""The CLI must not outlive us, even when we are killed.

The end of its input alone does not stop a CLI in mid-turn: it waits for the model first, minutes if need be. On
Linux a pipe helps: the child holds the reading end, we the only writing end. When we are gone, however it came,
the kernel closes ours and signals the owner of the other: the child. No thread, no second process, no code
between fork and exec; and unlike PR_SET_PDEATHSIG it does not depend on which thread started the child.

A child that is forked from us would hold a copy of the writing end, and with it the CLI: it gives it up at once.

Elsewhere there is no such thing, and the end of input has to do.
"""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from toolwire._support.forks import FORKING, give_up_in_children


class Lifeline:
    """One for each process. `inherit` before the start, `hold` after it, `close` when the process is gone."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        if sys.platform == "linux":
            with FORKING:
                self._ends += os.pipe()
                give_up_in_children(self)

    @property
    def inherit(self) -> Sequence[int]:
        """The descriptors that the child must get."""
        return self._ends[:1]

    def hold(self, pid: int) -> None:
        """From now on the end of this process is a SIGTERM to that one."""
        if sys.platform != "linux" or not self._ends:
            return
        import fcntl  # noqa: PLC0415 - not on Windows

        reading = self._ends.pop(0)
        with suppress(ProcessLookupError):  # it has already ended
            fcntl.fcntl(reading, fcntl.F_SETOWN, pid)
            fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGTERM)
            fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)
        os.close(reading)

    def forked(self) -> None:
        """Leave it to the parent."""
        self.close()

    def close(self) -> None:
        """Let go of what is held."""
        while self._ends:
            os.close(self._ends.pop())
