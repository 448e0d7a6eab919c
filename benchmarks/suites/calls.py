"""Tool calls: how long one takes, how many go through when many are open, and what they cost the processor."""

import os
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from benchmarks import tools, typescript
from benchmarks.processes import driven, percentile
from benchmarks.report import number
from benchmarks.results import Bench, Measured

SUITE = "calls"
UNITS = {"p50": "µs", "p99": "µs", "cpu": "µs", "throughput": "calls/s", "peak": "MB"}
NUMBERS = {"a": 40.5, "b": 1.5}
DEPTHS = (8, 64, 512)
OURS, THEIRS = 2_000, 200  # calls in one turn, one at a time; theirs take twenty times as long
FLOOR, MANY = 20_000, 10_000  # the same with many in flight, so that a turn of the fast lasts long enough
TYPED, ONE_CORE = "typed, async", "typed, async, one core"

Turn = Callable[[], dict[str, Measured]]


def step(tool: str, arguments: dict[str, Any], expect: str, count: int, depth: int = 1) -> dict[str, Any]:
    """One step of the peer's plan."""
    more = {"count": max(count, depth), "depth": depth, "warm": max(5, count // 10)}
    return {
        "do": "calls",
        "with": {"server": "calc", "tool": tool, "arguments": arguments, "expect": expect, **more},
    }


def figures(step: dict[str, Any], count: int) -> Measured:
    """What one step comes to, a call."""
    found = {"throughput": count / step["seconds"], "cpu": step["cpu"] / count * 1e6}
    if step["times"]:
        found["p50"] = percentile(step["times"], 0.5) / 1e3
        found["p99"] = percentile(step["times"], 0.99) / 1e3
    return {name: value for name, value in found.items() if value}


def turn(sdk: str, steps: dict[str, dict[str, Any]], **case: Any) -> dict[str, Measured]:
    """Let one SDK go through the steps; a figure for each, by the name of its case."""
    plan = {"servers": ["calc"] if sdk != "floor" else [], "steps": list(steps.values())}
    told = driven(sdk, plan, **case)
    found = {
        name: dict(figures(done, steps[name]["with"]["count"]))
        for name, done in zip(steps, told["steps"], strict=True)
    }
    if "peak" in told["driver"]:
        found[next(iter(steps))]["peak"] = (
            told["driver"]["peak"] / 1024
        )  # of all steps: one process has them all
    return dict(found)


def adding(
    bench: Bench,
    name: str,
    usual: int,
    depths: tuple[int, ...] = (),
    many: int = THEIRS,
    *,
    tool: str = "add",
) -> dict[str, Any]:
    """Steps that add two numbers: `usual` calls one at a time, and `many` with so many in flight."""
    steps = {name: step(tool, NUMBERS, "42.0", bench.count(usual))}
    return steps | {
        f"{name}, {depth} in flight": step(tool, NUMBERS, "42.0", bench.count(many), depth)
        for depth in depths
    }


def typed(bench: Bench, name: str, depths: tuple[int, ...], **where: int) -> dict[str, Turn]:
    """The contenders of the plain case."""
    counts = ((OURS, FLOOR), (OURS, MANY), (THEIRS, THEIRS))
    floor, ours, theirs = (adding(bench, name, usual, depths, many) for usual, many in counts)
    turns: dict[str, Turn] = {
        "floor": partial(turn, "floor", floor, **where),
        "toolwire": partial(turn, "toolwire", ours, tools="typed", **where),
        "toolwire uvloop": partial(turn, "toolwire", ours, tools="typed", loop="uvloop", **where),
        "official": partial(turn, "official", theirs, tools="typed", **where),
    }
    if typescript.available():
        turns["typescript"] = partial(turn, "typescript", ours, tools="typed", **where)
    return turns


def schemas(bench: Bench, usual: int) -> dict[str, Any]:
    """Steps over tools whose schemas differ."""
    count, big = bench.count(usual), bench.count(usual // 10)
    return {
        "raw schema": step("raw_2", NUMBERS, "42.0", count),
        "5 properties, typed": step("typed_5", tools.FORECAST, "Germany: fine for 3 days", count),
        "5 properties, raw": step("raw_5", tools.FORECAST, "Germany: fine for 3 days", count),
        "100 properties, typed": step("typed_100", tools.FILLED, "100 fields", big),
        "100 properties, raw": step("raw_100", tools.FILLED, "100 fields", big),
    }


def run(bench: Bench) -> None:
    """Measure, and judge."""
    theirs = adding(bench, TYPED, THEIRS, (64,))
    beside = {"official uvloop": partial(turn, "official", theirs, tools="typed", loop="uvloop")}
    bench.compare_cases(SUITE, TYPED, typed(bench, TYPED, DEPTHS) | beside, UNITS, rounds=5)
    if hasattr(os, "sched_setaffinity"):
        core = min(os.sched_getaffinity(0))
        bench.compare_cases(SUITE, ONE_CORE, typed(bench, ONE_CORE, (64,), core=core), UNITS, rounds=3)
    sync = adding(bench, "sync, worker thread", OURS, (64,), OURS, tool="thread")
    sync |= adding(bench, "sync, inline", OURS, (64,), MANY, tool="inline")
    bench.compare_cases(
        SUITE, "sync", {"toolwire": partial(turn, "toolwire", sync, tools="sync")}, UNITS, rounds=5
    )
    turns = {
        "toolwire": partial(turn, "toolwire", schemas(bench, 1_500), tools="schemas"),
        "official": partial(turn, "official", schemas(bench, 150), tools="schemas"),
    }
    bench.compare_cases(SUITE, "schemas", turns, UNITS, rounds=3)
    bridged = "bridged mcp server"
    turns = {
        "toolwire": partial(turn, "toolwire", adding(bench, bridged, 1_000), tools="bridged"),
        "official": partial(turn, "official", adding(bench, bridged, THEIRS), tools="bridged"),
    }
    bench.compare_cases(SUITE, bridged, turns, UNITS, rounds=5)
    own = "bridged MCPServer, as it is"
    only = {"toolwire": partial(turn, "toolwire", adding(bench, own, 1_000), tools="mcpserver")}
    bench.compare_cases(SUITE, own, only, UNITS, rounds=3)
    judge(bench, bridged)


def judge(bench: Bench, bridged: str) -> None:
    """The targets that these figures belong to."""
    measures = {row.measure for row in bench.rows}

    def ratio(measure: str, above: str, below: str, case: str = TYPED) -> list[float]:
        return bench.ratios(bench.row(SUITE, case, measure, above), bench.row(SUITE, case, measure, below))

    def processor(case: str) -> str:
        if "cpu" not in measures:
            return ""
        times = number(median(ratio("cpu", "official", "toolwire", case)))
        return f"the official SDK needs {times} times our processor time"

    def uvloop(case: str) -> str:
        if not any(row.case == case and row.contender == "official uvloop" for row in bench.rows):
            return ""
        return f"both on uvloop: {number(median(ratio('p50', 'official uvloop', 'toolwire uvloop', case)))}"

    def call(case: str, where: str, *notes: str) -> None:
        """The three targets of the plain call."""
        ceiling = median(ratio("p50", "official", "floor", case))
        most = f"the floor, which no SDK can beat, is {number(ceiling)} times faster"
        what = f"{where}: times faster than the official SDK"
        note = "; ".join(filter(None, (most, processor(case), *notes, uvloop(case))))
        bench.target(what, "at least", 20, ratio("p50", "official", "toolwire", case), note)
        beside = "; ".join(notes)
        bench.target(
            f"{where}: times the floor", "at most", 6, ratio("p50", "toolwire", "floor", case), beside
        )
        on_uvloop = ratio("p50", "toolwire uvloop", "floor", case)
        bench.target(f"{where}, on uvloop: times the floor", "at most", 3.5, on_uvloop, beside)

    call(TYPED, "call, async typed, p50")
    deep = f"{TYPED}, 64 in flight"
    more = ratio("throughput", "toolwire", "official", deep)
    bench.target(
        "64 calls in flight: times the official SDK's throughput", "at least", 60, more, processor(deep)
    )
    if any(row.contender == "typescript" for row in bench.rows):
        what = "call, async typed, p50: times faster than the TypeScript SDK"
        bench.target(what, "at least", 1, ratio("p50", "typescript", "toolwire"))
        what = "64 calls in flight: times the TypeScript SDK's throughput"
        bench.target(what, "at least", 1, ratio("throughput", "toolwire", "typescript", deep))
        what = "peak of memory after those calls: of the TypeScript SDK's"
        bench.target(what, "at most", 1, ratio("peak", "toolwire", "typescript"))
    what = "call of a bridged mcp server, p50: times faster than the official SDK"
    bench.target(what, "at least", 2, ratio("p50", "official", "toolwire", bridged), processor(bridged))
    if any(row.case == ONE_CORE for row in bench.rows):
        call(
            ONE_CORE,
            "one core: call, async typed, p50",
            "SDK and peer on one core: no waking up across cores",
        )
