"""Counts what a case leaves behind: tasks, processes, threads, descriptors, temporary files.

Everything is compared with what was there before, and has some seconds to disappear by itself.
"""

import asyncio
import gc
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import anyio

MARK = "TOOLWIRE_FAULT_CASE"
"""The environment variable by which the processes of a case are known, whoever their parent is."""
SETTLE = 15.0
"""Seconds that things get to go away. Nothing waits that long unless it stays."""
_POOLED = ("toolwire worker", "Trio thread", "AnyIO worker", "asyncio_", "pytest")
"""Threads that are kept for the next who needs one, by the start of their names."""


def tasks():
    """Return all tasks of the running event loop, except this one."""
    if "trio" in sys.modules:
        import trio  # noqa: PLC0415

        if trio.lowlevel.in_trio_run():
            found, stack = set(), [trio.lowlevel.current_root_task()]
            while stack:
                each = stack.pop()
                found.add(each)
                stack += [inner for nursery in each.child_nurseries for inner in nursery.child_tasks]
            return found - {trio.lowlevel.current_task()}
    return asyncio.all_tasks() - {asyncio.current_task()}


async def settled_tasks(before):
    """Wait until all tasks that were not there before have ended; return those that stay."""
    ends = time.monotonic() + SETTLE
    while (left := tasks() - before) and time.monotonic() < ends:
        await anyio.sleep(0.002)
    return left


def processes(mark):
    """Return the processes with that mark in their environment, without zombies."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = Path(entry.path, "cmdline").read_bytes().split(b"\0")[:3]
    return found


def zombies():
    """Return the children of this process that have ended and were not waited for."""
    found = set()
    for task in os.scandir("/proc/self/task"):
        with suppress(OSError):
            for pid in Path(task.path, "children").read_text().split():
                with suppress(OSError):
                    if Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                        found.add(int(pid))
    return found


def threads():
    """Return the threads that do not belong to a pool."""
    return {each for each in threading.enumerate() if not each.name.startswith(_POOLED)}


def descriptors():
    """Return the open descriptors, and what they refer to."""
    found = {}
    for each in os.scandir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor that lists them
            found[int(each.name)] = str(Path(each.path).readlink())
    return found


class Watch:
    """Remembers what there is; `left` returns what is there in addition, after a while."""

    def __init__(self, mark, folder):
        self._mark = mark
        self._folder = Path(folder)
        self._threads, self._descriptors, self._zombies = threads(), descriptors(), zombies()

    def left(self):
        """Wait until nothing is left, and return what stays by kind."""
        ends = time.monotonic() + SETTLE
        while found := self._found():
            if time.monotonic() > ends:
                return found
            gc.collect()
            time.sleep(0.005)
        return {}

    def _found(self):
        now = descriptors()
        found = {
            "threads": [each.name for each in threads() - self._threads],
            "descriptors": [f"{n} {now[n]}" for n in now if now[n] != self._descriptors.get(n)],
            "files": sorted(map(str, self._folder.rglob("*"))),
            "zombies": sorted(zombies() - self._zombies),
        }
        if not any(found.values()):  # last, since it looks at every process of the machine
            found["processes"] = processes(self._mark)
        return {kind: each for kind, each in found.items() if each}
