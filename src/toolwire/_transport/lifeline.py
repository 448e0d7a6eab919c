"""Ends the CLI when this process dies, even by SIGKILL (on Linux only), and even if it has forked children.

The end of its input alone does not stop a CLI in the middle of a turn: it first waits for the model, for minutes if
necessary. On Linux a pipe helps: the child holds the reading end, this process the only writing end. When this
process ends, for whatever reason, the kernel closes the writing end and signals the owner of the reading end: the
child. That takes no thread, no second process and no code between fork and exec, and unlike PR_SET_PDEATHSIG it
does not depend on which thread started the child.

A child made by `os.fork` (multiprocessing's "fork" method, pre-forking servers) gets copies of all descriptors,
which would keep the CLI or a lock alive after the parent has ended. Objects registered with `release_in_children`
close these copies.

Other systems have nothing like it. There a CLI whose parent was killed reads the end of its input, and may finish
its turn first.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """An object that belongs to one process."""

    def forked(self) -> None:
        """Close the copies, in the child. Must change nothing that the parent uses."""
        ...


_owners: WeakSet[Forked] = WeakSet()
FORKING = threading.RLock()
"""Held while the process forks: take it to create and register an object in one step."""


def release_in_children(owner: Forked) -> None:
    """Call `owner.forked()` in every child that is forked from now on."""
    with FORKING:
        _owners.add(owner)


def _release_in_child() -> None:
    FORKING.release()
    for owner in list(_owners):
        _owners.discard(owner)
        with suppress(Exception):  # it cannot be reported, and the other owners must be called too
            owner.forked()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(
        before=FORKING.acquire, after_in_parent=FORKING.release, after_in_child=_release_in_child
    )


class Lifeline:
    """The pipe of one CLI process. Use `inherit` before it starts, `hold` after that, `close` when it has ended."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        if sys.platform == "linux":
            with FORKING:
                self._ends += os.pipe()
                release_in_children(self)

    @property
    def inherit(self) -> Sequence[int]:
        """The descriptors that the child must inherit."""
        return self._ends[:1]

    def hold(self, pid: int) -> None:
        """Have the kernel send SIGTERM to that process when this one ends."""
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
        """Close the copies, in a forked child."""
        self.close()

    def close(self) -> None:
        """Close the pipe."""
        while self._ends:
            os.close(self._ends.pop())
