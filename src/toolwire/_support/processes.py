"""Finds out whether a process of this machine is running, and since when."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_START: Final = 19  # index of the start time among the fields after the name


def is_running(pid: int) -> bool:
    """Return True if a process with this id exists, whoever owns it, or if that cannot be determined."""
    if sys.platform == "win32":  # on Windows, signal 0 would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def read_state(pid: int) -> tuple[str, str]:
    """Return the state and the start time of a process, as Linux reports them; empty strings if they are unknown.

    Ids are reused, so a process is identified by its id and its start time, which is in clock ticks since the
    machine was started.
    """
    with suppress(OSError, IndexError):
        # The name is in parentheses and may contain some itself, so the other fields follow the last one.
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[_START]
    return "", ""
