"""Runs units of the hot paths between marks that callgrind recognises. Started by `work_callgrind`.

A mark is a call of `getpriority` in the C library, which nothing else here calls: callgrind is configured to dump
and reset its counters there. The first marked section is the reference: work without toolwire, by which the
instructions of the hot paths are divided.
"""

import asyncio
import gc
import os
import sys

import orjson

from benchmarks.work_counts import WARM
from benchmarks.work_paths import PATHS, HotPath

MARK = "getpriority"
REFERENCE = 100  # units of the reference


def mark() -> None:
    """Have callgrind dump and reset its counters."""
    os.getpriority(os.PRIO_PROCESS, 0)


class Thing:
    """An object with an attribute and a method, for the reference."""

    def __init__(self, value: int) -> None:
        self.value = value

    def add(self, by: int) -> int:
        return self.value + by


def run_reference() -> None:
    """Do the reference work: calls, attributes, dicts, strings and JSON, of which the hot paths consist too."""
    found = {}
    for number in range(20):
        thing = Thing(number)
        found[f"key {number}"] = [thing.add(1), {"text": "lorem", "number": thing.value}]
    orjson.loads(orjson.dumps(found))


async def run_path(path: HotPath) -> None:
    """Run a hot path once between two marks, after a warm-up."""
    async with path.open() as turn:
        await turn(min(WARM, path.units))
        gc.collect()
        gc.freeze()  # so that a collection between the marks examines little but new objects
        mark()
        await turn(path.units)
        mark()


def main(names: list[str]) -> None:
    """Run the reference, then the named paths, each between two marks."""
    run_reference()
    mark()
    for _ in range(REFERENCE):
        run_reference()
    mark()
    for name in names:
        asyncio.run(run_path(PATHS[name]))


if __name__ == "__main__":
    main(sys.argv[1:])
