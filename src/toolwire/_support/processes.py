"""Tells whether a process of this machine runs."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_START: Final = 19  # the field after the name


def is_running(pid: int) -> bool:
    """Return True if there is a process with this id, whoever owns it, or if that cannot be told."""
    if sys.platform == "win32":  # there, signal 0 would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def read_state(pid: int) -> tuple[str, str]:
    """Return state and start of a process, as Linux tells them; two empty texts where they are not known.

    The id of a process that has ended is given to another one some time: the start tells them apart. It is in
    clock ticks since the machine was started.
    """
    with suppress(OSError, IndexError):
        # The name is in parentheses and may have some itself, so what counts begins after the last one.
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[_START]
    return "", ""
