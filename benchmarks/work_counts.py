"""Counts work that is the same in every run: turns of the event loop, scheduled callbacks, Python function calls.

Runs as a separate process, so that nothing of the caller (a test runner, its plugins) is counted.
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
"""The counts of one unit of work, by measure."""
WARM = 64  # units that run before counting starts, so that one-time setup is done by then
# Not counted: how often the loop compares its timers depends on the time.
_TIMER_COMPARISON = asyncio.TimerHandle.__lt__.__code__


class CountingLoop(asyncio.SelectorEventLoop):
    """The plain asyncio event loop, which counts its turns and the callbacks that are scheduled."""

    turns = 0
    callbacks = 0

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc] # there is no public hook for a turn

    def call_soon(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
        self.callbacks += 1
        return super().call_soon(*args, **kwargs)

    def call_at(self, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        self.callbacks += 1
        return super().call_at(*args, **kwargs)

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
        self.callbacks += 1
        return super().call_soon_threadsafe(*args, **kwargs)


def count_path(path: HotPath) -> Counts:
    """Count the work that one unit of a hot path takes."""
    gc.disable()  # when a collection runs depends on all that was allocated before
    try:
        with asyncio.Runner(loop_factory=CountingLoop) as runner:
            loop: Any = runner.get_loop()
            seen = runner.run(
                _measure_per_unit(path, lambda: {"turns": loop.turns, "callbacks": loop.callbacks})
            )
        return seen | _count_calls(path)
    finally:
        gc.enable()


def _count_calls(path: HotPath) -> Counts:
    """Count the Python functions that one unit enters, in all threads."""
    numbers = itertools.count()  # next() is atomic, so that worker threads can count too

    def count_call(frame: Any, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code is not _TIMER_COMPARISON:
            next(numbers)

    before, before_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(count_call)
    try:
        with asyncio.Runner() as runner:
            sys.setprofile(count_call)
            return runner.run(_measure_per_unit(path, lambda: {"calls": next(numbers)}))
    finally:
        sys.setprofile(before)
        threading.setprofile(before_threads)  # type: ignore[arg-type] # it may have been None


async def _measure_per_unit(path: HotPath, read: Callable[[], Counts]) -> Counts:
    """Return counts per unit: the difference of two runs, one twice as long, so that work per run cancels out."""
    async with path.open() as turn:
        await turn(min(WARM, path.units))
        one, two = (
            await _measure_increase(turn, path.units, read),
            await _measure_increase(turn, 2 * path.units, read),
        )
    return {name: round((two[name] - one[name]) / path.units, 3) for name in one}


async def _measure_increase(turn: Turn, units: int, read: Callable[[], Counts]) -> Counts:
    """Return by how much the counters grow while `units` units are done."""
    before = read()
    await turn(units)
    return {name: value - before[name] for name, value in read().items()}


def main(names: Sequence[str]) -> None:
    """Write the counts of these paths, or of all, as JSON."""
    found = {name: count_path(PATHS[name]) for name in names or PATHS}
    if not names:
        found[work_pipe.NAME] = work_pipe.measure_writes()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
