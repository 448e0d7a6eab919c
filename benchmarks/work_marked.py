"""Does the units of hot paths between marks that callgrind sees. Started by `work_callgrind`.

A mark is a call of `getpriority` in the C library, which nothing else here calls: callgrind is told to write down
and reset its counters there. The first stretch is the reference: work not ours, which ours is a multiple of.
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
    os.getpriority(os.PRIO_PROCESS, 0)


class Thing:
    """Something with an attribute and a method."""

    def __init__(self, value: int) -> None:
        self.value = value

    def more(self, by: int) -> int:
        return self.value + by


def reference() -> None:
    """Calls, attributes, dicts and strings in Python, and JSON both ways: what our paths are made of as well."""
    found = {}
    for number in range(20):
        thing = Thing(number)
        found[f"key {number}"] = [thing.more(1), {"text": "lorem", "number": thing.value}]
    orjson.loads(orjson.dumps(found))


async def through(path: HotPath) -> None:
    async with path.opened() as turn:
        await turn(min(WARM, path.units))
        gc.collect()
        gc.freeze()  # so that a collection in between sees little more than what is new
        mark()
        await turn(path.units)
        mark()


def main(names: list[str]) -> None:
    reference()
    mark()
    for _ in range(REFERENCE):
        reference()
    mark()
    for name in names:
        asyncio.run(through(PATHS[name]))


if __name__ == "__main__":
    main(sys.argv[1:])
