"""Owners of reservations on one machine: a process, by its id, start time, boot and namespace.

Tells whether such a process still runs. Processes of other machines cannot be seen from here: ledgers that several
machines share have leases instead (`postgres`).
"""

import os
from contextlib import suppress
from typing import Final

from toolwire._support.processes import PROC, is_running, read_state

_ENDED: Final = ("Z", "X")


def this_process() -> str:
    """Return the name of this process."""
    _, start = read_state(os.getpid())
    return f"{os.getpid()}:{start}:{_boot()}:{_namespace()}"


def owner_alive(owner: str) -> bool:
    """True if the process of that name runs, or if that cannot be told: its reservations are then left alone."""
    number, start, boot, namespace = (owner.split(":") + [""] * 3)[:4]
    if not number.isdecimal():  # a name that somebody chose
        return True
    if boot and boot != _boot():
        return False
    if namespace != _namespace():  # in another container: not to be seen from here
        return True
    if not is_running(int(number)):
        return False
    state, started = read_state(int(number))
    return state not in _ENDED and (not start or not started or start == started)


def _boot() -> str:
    with suppress(OSError):
        return (PROC / "sys/kernel/random/boot_id").read_text()[:8]
    return ""


def _namespace() -> str:
    with suppress(OSError):
        return (PROC / "self/ns/pid").readlink().name.strip("pid:[]")
    return ""
