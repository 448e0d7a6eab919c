"""Watches processes: their memory, descriptors and threads over time, and whether those stay flat. Linux only."""

import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEGABYTE = 1 << 20
WARM_UP, TAIL = 0.25, 0.75
"""A process has warmed up after the first quarter; its second quarter is compared with its last."""
GROWTH: dict[str, tuple[float, float]] = {
    "memory": (1.25, 32.0 * MEGABYTE),
    "descriptors": (1.5, 16.0),
    "threads": (
        1.5,
        100.0,
    ),  # idle ones stay for ten seconds, so their number goes with the speed of the machine
    "tasks": (1.5, 32.0),
}
"""What counts as flat: at most this many times as much, or this much more, whichever allows more. Generous, since
a load of mixed clients goes up and down; a leak in every request passes any bound in half an hour."""
_FEW = 8


@dataclass
class Watched:
    """One process, and what was seen of it: by measure, points of seconds and value."""

    name: str
    pid: int
    points: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def look(self, at: float) -> None:
        """Take a sample, unless the process has ended."""
        with suppress(OSError, KeyError):
            status = dict(
                line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
            )
            self.note("memory", at, int(status["VmRSS"].split()[0]) * 1024)
            self.note("threads", at, int(status["Threads"]))
            self.note("descriptors", at, len(os.listdir(f"/proc/{self.pid}/fd")))  # noqa: PTH208 - their number

    def note(self, measure: str, at: float, value: float) -> None:
        self.points.setdefault(measure, []).append((at, value))

    def judged(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Each measure with its medians in the second and the last quarter, and whether it is flat.

        A run too short for a handful of samples in each is not judged.
        """
        for measure, points in sorted(self.points.items()):
            early = [value for at, value in points if WARM_UP <= at / seconds < 2 * WARM_UP]
            late = [value for at, value in points if TAIL <= at / seconds <= 1]
            if min(len(early), len(late)) >= _FEW:
                yield {"process": self.name, "measure": measure, **compared(measure, early, late)}


def compared(measure: str, early: Sequence[float], late: Sequence[float]) -> dict[str, Any]:
    """The medians, and whether the second is no more than growth may explain."""
    before, after = statistics.median(early), statistics.median(late)
    times, more = GROWTH[measure]
    return {
        "second quarter": before,
        "last quarter": after,
        "flat": after <= max(before * times, before + more),
    }
