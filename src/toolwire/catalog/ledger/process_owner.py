"""Owners of reservations on one machine: a process, by its id, start time, boot and namespace.

Detects whether such a process still runs. Processes on other machines cannot be observed: ledgers that several
machines share use leases instead (`postgres`).
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
    """True if the process with that name runs, or if that is not known: its reservations are then left alone."""
    number, start, boot, namespace = (owner.split(":") + [""] * 3)[:4]
    if not number.isdecimal():  # a name that the caller chose
        return True
    if boot and boot != _boot():
        return False
    if namespace != _namespace():  # in another container, where it cannot be observed
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
