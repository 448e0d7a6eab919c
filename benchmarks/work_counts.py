"""Counts that are the same at every run: turns of the event loop, callbacks put on it, Python functions entered.

Started as a process of its own, so that nothing of the caller (a test runner, its plugins) is counted.
"""

import asyncio
import gc
import itertools
import json
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import work_pipe
from benchmarks.work_paths import PATHS, HotPath
from benchmarks.work_wires import Turn

Counts = dict[str, float]
"""By measure, for one unit of work."""
WARM = 64  # units before anything is counted: what is made once is made by then
_COMPARED = asyncio.TimerHandle.__lt__.__code__  # how often the loop sorts its timers depends on the time


class CountingLoop(asyncio.SelectorEventLoop):
    """Plain asyncio that counts its turns, and what is put on it."""

    turns = 0
    callbacks = 0

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc] # there is no public place to see a turn

    def call_soon(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
        self.callbacks += 1
        return super().call_soon(*args, **kwargs)

    def call_at(self, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        self.callbacks += 1
        return super().call_at(*args, **kwargs)

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
        self.callbacks += 1
        return super().call_soon_threadsafe(*args, **kwargs)


def counted(path: HotPath) -> Counts:
    """What one unit of a path takes."""
    gc.disable()  # when it runs depends on all that came before
    try:
        with asyncio.Runner(loop_factory=CountingLoop) as runner:
            loop: Any = runner.get_loop()
            seen = runner.run(_per_unit(path, lambda: {"turns": loop.turns, "callbacks": loop.callbacks}))
        return seen | _calls(path)
    finally:
        gc.enable()


def _calls(path: HotPath) -> Counts:
    numbers = itertools.count()  # its next is atomic: worker threads count too

    def see(frame: Any, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code is not _COMPARED:
            next(numbers)

    before, before_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(see)
    try:
        with asyncio.Runner() as runner:
            sys.setprofile(see)
            return runner.run(_per_unit(path, lambda: {"calls": next(numbers)}))
    finally:
        sys.setprofile(before)
        threading.setprofile(before_threads)  # type: ignore[arg-type] # None is what it was


async def _per_unit(path: HotPath, read: Callable[[], Counts]) -> Counts:
    """The difference of two runs, one twice as long as the other: what is done once a run falls out."""
    async with path.opened() as turn:
        await turn(min(WARM, path.units))
        one, two = await _grown(turn, path.units, read), await _grown(turn, 2 * path.units, read)
    return {name: round((two[name] - one[name]) / path.units, 3) for name in one}


async def _grown(turn: Turn, units: int, read: Callable[[], Counts]) -> Counts:
    before = read()
    await turn(units)
    return {name: value - before[name] for name, value in read().items()}


def main(names: Sequence[str]) -> None:
    """Write the counts of these paths, or of all, as JSON."""
    found = {name: counted(PATHS[name]) for name in names or PATHS}
    if not names:
        found[work_pipe.NAME] = work_pipe.counted()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
