"""Tool calls: how long one takes, how many go through when many are open, and what they cost the processor."""

import os
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from benchmarks import tools, typescript
from benchmarks.processes import compute_percentile, drive
from benchmarks.report import format_number
from benchmarks.results import Bench, Figures

SUITE = "calls"
UNITS = {"p50": "µs", "p99": "µs", "cpu": "µs", "throughput": "calls/s", "peak": "MB"}
NUMBERS = {"a": 40.5, "b": 1.5}
DEPTHS = (8, 64, 512)
OURS, THEIRS = 2_000, 200
"""Calls in one turn, one at a time; those of the official SDK take twenty times as long."""
FLOOR, MANY = 20_000, 10_000
"""The same with many in flight, so that a turn of a fast contender lasts long enough."""
TYPED, ONE_CORE = "typed, async", "typed, async, one core"

Turn = Callable[[], dict[str, Figures]]


def make_step(
    tool: str, arguments: dict[str, Any], expect: str, count: int, depth: int = 1
) -> dict[str, Any]:
    """Return a step of the peer's plan: `count` calls of a tool, after some warm-up calls."""
    more = {"count": max(count, depth), "depth": depth, "warm": max(5, count // 10)}
    return {
        "do": "calls",
        "with": {"server": "calc", "tool": tool, "arguments": arguments, "expect": expect, **more},
    }


def compute_figures(step: dict[str, Any], count: int) -> Figures:
    """Return the figures of one step, per call."""
    found = {"throughput": count / step["seconds"], "cpu": step["cpu"] / count * 1e6}
    if step["times"]:
        found["p50"] = compute_percentile(step["times"], 0.5) / 1e3
        found["p99"] = compute_percentile(step["times"], 0.99) / 1e3
    return {name: value for name, value in found.items() if value}


def run_turn(sdk: str, steps: dict[str, dict[str, Any]], **case: Any) -> dict[str, Figures]:
    """Have one SDK go through the steps. Returns the figures of each, by the name of its case."""
    plan = {"servers": ["calc"] if sdk != "floor" else [], "steps": list(steps.values())}
    reported = drive(sdk, plan, **case)
    found = {
        name: dict(compute_figures(done, steps[name]["with"]["count"]))
        for name, done in zip(steps, reported["steps"], strict=True)
    }
    if "peak" in reported["driver"]:
        # The peak after all steps, because one process runs them all.
        found[next(iter(steps))]["peak"] = reported["driver"]["peak"] / 1024
    return dict(found)


def make_steps(
    bench: Bench,
    name: str,
    usual: int,
    depths: tuple[int, ...] = (),
    many: int = THEIRS,
    *,
    tool: str = "add",
) -> dict[str, Any]:
    """Return steps that add two numbers: `usual` calls one at a time, and `many` calls at each of the depths."""
    steps = {name: make_step(tool, NUMBERS, "42.0", bench.scale(usual))}
    return steps | {
        f"{name}, {depth} in flight": make_step(tool, NUMBERS, "42.0", bench.scale(many), depth)
        for depth in depths
    }


def make_typed_turns(bench: Bench, name: str, depths: tuple[int, ...], **where: int) -> dict[str, Turn]:
    """Return a turn for each contender of the plain case."""
    counts = ((OURS, FLOOR), (OURS, MANY), (THEIRS, THEIRS))
    floor, ours, theirs = (make_steps(bench, name, usual, depths, many) for usual, many in counts)
    turns: dict[str, Turn] = {
        "floor": partial(run_turn, "floor", floor, **where),
        "toolwire": partial(run_turn, "toolwire", ours, tools="typed", **where),
        "toolwire uvloop": partial(run_turn, "toolwire", ours, tools="typed", loop="uvloop", **where),
        "official": partial(run_turn, "official", theirs, tools="typed", **where),
    }
    if typescript.is_available():
        turns["typescript"] = partial(run_turn, "typescript", ours, tools="typed", **where)
    return turns


def make_schema_steps(bench: Bench, usual: int) -> dict[str, Any]:
    """Return steps that call tools with different schemas."""
    count, big = bench.scale(usual), bench.scale(usual // 10)
    return {
        "raw schema": make_step("raw_2", NUMBERS, "42.0", count),
        "5 properties, typed": make_step("typed_5", tools.FORECAST, "Germany: fine for 3 days", count),
        "5 properties, raw": make_step("raw_5", tools.FORECAST, "Germany: fine for 3 days", count),
        "100 properties, typed": make_step("typed_100", tools.FILLED, "100 fields", big),
        "100 properties, raw": make_step("raw_100", tools.FILLED, "100 fields", big),
    }


def run(bench: Bench) -> None:
    """Measure all kinds of tools, and add the targets."""
    theirs = make_steps(bench, TYPED, THEIRS, (64,))
    beside = {"official uvloop": partial(run_turn, "official", theirs, tools="typed", loop="uvloop")}
    bench.compare_cases(SUITE, TYPED, make_typed_turns(bench, TYPED, DEPTHS) | beside, UNITS, rounds=5)
    if hasattr(os, "sched_setaffinity"):
        core = min(os.sched_getaffinity(0))
        bench.compare_cases(
            SUITE, ONE_CORE, make_typed_turns(bench, ONE_CORE, (64,), core=core), UNITS, rounds=3
        )
    sync = make_steps(bench, "sync, worker thread", OURS, (64,), OURS, tool="thread")
    sync |= make_steps(bench, "sync, inline", OURS, (64,), MANY, tool="inline")
    bench.compare_cases(
        SUITE, "sync", {"toolwire": partial(run_turn, "toolwire", sync, tools="sync")}, UNITS, rounds=5
    )
    turns = {
        "toolwire": partial(run_turn, "toolwire", make_schema_steps(bench, 1_500), tools="schemas"),
        "official": partial(run_turn, "official", make_schema_steps(bench, 150), tools="schemas"),
    }
    bench.compare_cases(SUITE, "schemas", turns, UNITS, rounds=3)
    bridged = "bridged mcp server"
    turns = {
        "toolwire": partial(run_turn, "toolwire", make_steps(bench, bridged, 1_000), tools="bridged"),
        "official": partial(run_turn, "official", make_steps(bench, bridged, THEIRS), tools="bridged"),
    }
    bench.compare_cases(SUITE, bridged, turns, UNITS, rounds=5)
    own = "bridged MCPServer, as it is"
    only = {"toolwire": partial(run_turn, "toolwire", make_steps(bench, own, 1_000), tools="mcpserver")}
    bench.compare_cases(SUITE, own, only, UNITS, rounds=3)
    add_targets(bench, bridged)


def add_targets(bench: Bench, bridged: str) -> None:
    """Add the targets, with the measured ratios."""
    measures = {row.measure for row in bench.rows}

    def find_ratios(measure: str, above: str, below: str, case: str = TYPED) -> list[float]:
        """Return the ratio of two contenders in each round."""
        return bench.compute_ratios(
            bench.find_row(SUITE, case, measure, above), bench.find_row(SUITE, case, measure, below)
        )

    def describe_processor_time(case: str) -> str:
        """Return a note on the processor time of the SDKs; empty if it was not measured."""
        if "cpu" not in measures:
            return ""
        times = format_number(median(find_ratios("cpu", "official", "toolwire", case)))
        return f"the official SDK needs {times} times our processor time"

    def describe_uvloop(case: str) -> str:
        """Return a note on the ratio with both SDKs on uvloop; empty if it was not measured."""
        if not any(row.case == case and row.contender == "official uvloop" for row in bench.rows):
            return ""
        times = format_number(median(find_ratios("p50", "official uvloop", "toolwire uvloop", case)))
        return f"both on uvloop: {times}"

    def add_call_targets(case: str, where: str, *notes: str) -> None:
        """Add the three targets of the plain call."""
        ceiling = median(find_ratios("p50", "official", "floor", case))
        most = f"the floor, which no SDK can beat, is {format_number(ceiling)} times faster"
        what = f"{where}: times faster than the official SDK"
        note = "; ".join(filter(None, (most, describe_processor_time(case), *notes, describe_uvloop(case))))
        bench.add_target(what, "at least", 20, find_ratios("p50", "official", "toolwire", case), note)
        beside = "; ".join(notes)
        bench.add_target(
            f"{where}: times the floor", "at most", 6, find_ratios("p50", "toolwire", "floor", case), beside
        )
        on_uvloop = find_ratios("p50", "toolwire uvloop", "floor", case)
        bench.add_target(f"{where}, on uvloop: times the floor", "at most", 3.5, on_uvloop, beside)

    add_call_targets(TYPED, "call, async typed, p50")
    deep = f"{TYPED}, 64 in flight"
    more = find_ratios("throughput", "toolwire", "official", deep)
    bench.add_target(
        "64 calls in flight: times the official SDK's throughput",
        "at least",
        60,
        more,
        describe_processor_time(deep),
    )
    if any(row.contender == "typescript" for row in bench.rows):
        what = "call, async typed, p50: times faster than the TypeScript SDK"
        bench.add_target(what, "at least", 1, find_ratios("p50", "typescript", "toolwire"))
        what = "64 calls in flight: times the TypeScript SDK's throughput"
        bench.add_target(what, "at least", 1, find_ratios("throughput", "toolwire", "typescript", deep))
        what = "peak of memory after those calls: of the TypeScript SDK's"
        bench.add_target(what, "at most", 1, find_ratios("peak", "toolwire", "typescript"))
    what = "call of a bridged mcp server, p50: times faster than the official SDK"
    bench.add_target(
        what,
        "at least",
        2,
        find_ratios("p50", "official", "toolwire", bridged),
        describe_processor_time(bridged),
    )
    if any(row.case == ONE_CORE for row in bench.rows):
        add_call_targets(
            ONE_CORE,
            "one core: call, async typed, p50",
            "SDK and peer on one core: no waking up across cores",
        )
