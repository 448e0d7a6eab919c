"""Samples the memory, descriptors and threads of processes, and checks that they do not grow. Linux only."""

import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEGABYTE = 1 << 20
WARM_UP, TAIL = 0.25, 0.75
"""A process is warmed up after the first quarter of the time; its second quarter is compared with its last."""
GROWTH: dict[str, tuple[float, float]] = {
    "memory": (1.25, 32.0 * MEGABYTE),
    "descriptors": (1.5, 16.0),
    # Idle threads stay for ten seconds, so that their number depends on the speed of the machine.
    "threads": (1.5, 100.0),
    "tasks": (1.5, 32.0),
}
"""The growth that is allowed: at most by this factor, or by this amount, whichever allows more.

The limits are generous, since a load of mixed clients varies; a leak in every request exceeds any limit within half
an hour.
"""
_FEW = 8


@dataclass
class Watched:
    """A process and its samples: for each measure, points of seconds and value."""

    name: str
    pid: int
    points: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def sample(self, at: float) -> None:
        """Take a sample, unless the process has ended."""
        with suppress(OSError, KeyError):
            status = dict(
                line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
            )
            self.add("memory", at, int(status["VmRSS"].split()[0]) * 1024)
            self.add("threads", at, int(status["Threads"]))
            self.add("descriptors", at, len(os.listdir(f"/proc/{self.pid}/fd")))  # noqa: PTH208 - their number

    def add(self, measure: str, at: float, value: float) -> None:
        """Add a sample that was taken elsewhere."""
        self.points.setdefault(measure, []).append((at, value))

    def judge(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Yield each measure with its medians in the second and the last quarter, and whether it is flat.

        A measure with fewer than eight samples in one of these quarters is left out.
        """
        for measure, points in sorted(self.points.items()):
            early = [value for at, value in points if WARM_UP <= at / seconds < 2 * WARM_UP]
            late = [value for at, value in points if TAIL <= at / seconds <= 1]
            if min(len(early), len(late)) >= _FEW:
                yield {"process": self.name, "measure": measure, **compare(measure, early, late)}


def compare(measure: str, early: Sequence[float], late: Sequence[float]) -> dict[str, Any]:
    """Return both medians, and whether the growth between them is allowed."""
    before, after = statistics.median(early), statistics.median(late)
    times, more = GROWTH[measure]
    return {
        "second quarter": before,
        "last quarter": after,
        "flat": after <= max(before * times, before + more),
    }
