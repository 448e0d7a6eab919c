"""The hot paths stay within their budgets of counted work, and the check notices when one does not.

`make work` also counts instructions and allocations, which takes minutes.
"""

import asyncio
import sys

import pytest
from benchmarks import work
from benchmarks.work_counts import count_path
from benchmarks.work_paths import PATHS, HotPath, add, make_typed_server, open_calls

recorded_here = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or sys.implementation.name != "cpython",
    reason="the budgets are for CPython 3.11: other versions count otherwise",
)


@recorded_here
def test_the_hot_paths_keep_to_their_budgets():
    """Turns, callbacks, function calls and writes of each unit of work are within what was recorded."""
    assert work.find_violations(work.count_work(), work.read_budgets()) == []


def test_every_path_has_all_its_budgets():
    """A path with no budgets, or with only some, would not be checked."""
    measures = {"turns", "callbacks", "calls", "allocations", "instructions"}
    assert {path for path, budget in work.read_budgets().items() if budget.keys() == measures} == PATHS.keys()


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
    path = HotPath(lambda: open_calls(lambda: make_typed_server(function), depth), units=192)
    name = "tool call" if depth == 1 else "tool call, 64 in flight"
    said = work.find_violations({name: count_path(path)}, work.read_budgets())
    assert any("turns of the event loop" in each for each in said)
    assert any("callbacks on the event loop" in each for each in said)


def test_what_is_over_budget_or_has_none_is_said():
    """A count equal to its budget is fine; a higher count, and one without a budget, are reported."""
    allowed = {"path": {"instructions": 1.1, "turns": 2.0}}
    assert work.find_violations({"path": {"instructions": 1.1, "turns": 2.0}}, allowed) == []
    over, unknown = work.find_violations({"path": {"instructions": 1.2}, "other": {"turns": 0.0}}, allowed)
    assert over == "path: 1.2 instructions, as a multiple of the reference, the budget is 1.1"
    assert "make work ARGS=--update" in unknown


def test_budgets_are_a_little_more_than_the_counts_and_survive_the_file():
    """A tenth, rounded up; nothing stays nothing, so that a first turn is seen."""
    made = work.make_budgets({"tool call": {"turns": 2.0, "calls": 101.0}, "hook": {"turns": 0.0}})
    assert made == {"tool call": {"turns": 2.2, "calls": 112.0}, "hook": {"turns": 0.0}}
    assert work.tomllib.loads(work.to_toml(made)) == made
