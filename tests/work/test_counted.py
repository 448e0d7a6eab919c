"""The hot paths keep to their budgets of counted work, and the guard sees it when one does not.

`make work` also counts instructions and allocations, which takes minutes.
"""

import asyncio
import sys

import pytest
from benchmarks import work
from benchmarks.work_counts import counted
from benchmarks.work_paths import PATHS, HotPath, add, calls, typed

recorded_here = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or sys.implementation.name != "cpython",
    reason="the budgets are for CPython 3.11: other versions count otherwise",
)


@recorded_here
def test_the_hot_paths_keep_to_their_budgets():
    """Turns, callbacks, function calls and writes of each unit of work are within what was recorded."""
    assert work.objections(work.counts(), work.budgets()) == []


def test_every_path_has_all_its_budgets():
    """A path that is not in the file, or only half, would not be guarded."""
    measures = {"turns", "callbacks", "calls", "allocations", "instructions"}
    assert {path for path, budget in work.budgets().items() if budget.keys() == measures} == PATHS.keys()


async def add_slowly(a: float, b: float) -> float:
    """A tool that takes one more turn of the event loop."""
    await asyncio.sleep(0)
    return await add(a, b)


async def add_beside(a: float, b: float) -> float:
    """A tool that starts one more task."""
    return await asyncio.get_running_loop().create_task(add(a, b))


@recorded_here
@pytest.mark.parametrize("function", [add_slowly, add_beside])
@pytest.mark.parametrize("depth", [1, 64])
def test_the_guard_sees_added_work(function, depth):
    """One more turn, or one more task, is over the budget."""
    path = HotPath(lambda: calls(lambda: typed(function), depth), units=192)
    name = "tool call" if depth == 1 else "tool call, 64 in flight"
    said = work.objections({name: counted(path)}, work.budgets())
    assert any("turns of the event loop" in each for each in said)
    assert any("callbacks on the event loop" in each for each in said)


def test_what_is_over_budget_or_has_none_is_said():
    """A count at its budget is fine; one above, and one without, are not."""
    allowed = {"path": {"instructions": 1.1, "turns": 2.0}}
    assert work.objections({"path": {"instructions": 1.1, "turns": 2.0}}, allowed) == []
    over, unknown = work.objections({"path": {"instructions": 1.2}, "other": {"turns": 0.0}}, allowed)
    assert over == "path: 1.2 instructions, as a multiple of the reference, the budget is 1.1"
    assert "make work ARGS=--update" in unknown


def test_budgets_are_a_little_more_than_the_counts_and_survive_the_file():
    """A tenth, rounded up; nothing stays nothing, so that a first turn is seen."""
    made = work.recorded({"tool call": {"turns": 2.0, "calls": 101.0}, "hook": {"turns": 0.0}})
    assert made == {"tool call": {"turns": 2.2, "calls": 112.0}, "hook": {"turns": 0.0}}
    assert work.tomllib.loads(work.as_toml(made)) == made
