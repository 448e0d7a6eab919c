"""Names the process that owns a reservation, so that another one can tell later if it is still running.

4711:83120:1f6c9a52:4026531836      pid : start time : boot : pid namespace; empty where the system does not tell
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_START: Final = 19  # the field of /proc/PID/stat after the name: clock ticks from boot to the start
_ENDED: Final = ("Z", "X")


def this_process() -> str:
    """Return the name of this process."""
    _, start = _stat(os.getpid())
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
    if not _runs(int(number)):
        return False
    state, started = _stat(int(number))
    return state not in _ENDED and (not start or not started or start == started)


def _runs(pid: int) -> bool:
    if sys.platform == "win32":  # there, signal 0 would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _stat(pid: int) -> tuple[str, str]:
    """Return state and start time of a process; two empty texts where they are not known."""
    with suppress(OSError, IndexError):
        # The name is in parentheses and may have some itself, so what counts begins after the last one.
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[_START]
    return "", ""


def _boot() -> str:
    with suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text()[:8]
    return ""


def _namespace() -> str:
    with suppress(OSError):
        return (_PROC / "self/ns/pid").readlink().name.strip("pid:[]")
    return ""
