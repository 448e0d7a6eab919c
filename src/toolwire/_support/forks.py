"""Lets objects release, in a forked child, what only the parent may hold.

A child made by `os.fork` (multiprocessing's "fork" method, pre-forking servers) gets copies of all descriptors.
They would keep a lock or a pipe alive after the parent is gone. Must not know what is released.
"""

import os
import threading
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


def give_up_in_children(owner: Forked) -> None:
    """Call `owner.forked()` in every child that is forked from now on."""
    with FORKING:
        _owners.add(owner)


def _release_in_child() -> None:
    FORKING.release()
    for owner in list(_owners):
        _owners.discard(owner)
        with suppress(Exception):  # it cannot be reported, and the others must follow
            owner.forked()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(
        before=FORKING.acquire, after_in_parent=FORKING.release, after_in_child=_release_in_child
    )
