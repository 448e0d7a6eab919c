"""How cost grows: with tools, calls in flight, payload and sessions. Each curve has an order to keep to."""

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from benchmarks.processes import driven, percentile
from benchmarks.results import Bench, Curve, Measured, Order
from benchmarks.suites.calls import NUMBERS, step
from toolwire.tools.search import ToolIndex

SUITE = "growth"
UNITS = {
    "p50": "µs",
    "cpu": "µs",
    "list": "µs",
    "list cpu": "µs",
    "first list cpu": "µs",
    "defining": "µs",
    "first call": "µs",
    "peak": "MB",
    "indexing": "µs",
    "search": "µs",
    "session": "ms",
    "session cpu": "ms",
}
TOOLS = (1, 10, 100, 1_000, 10_000)
FUNCTIONS = (1, 10, 100, 1_000)
DEPTHS = (1, 2, 8, 32, 128, 512)
KB = 1_000
PAYLOADS = (1 * KB, 8 * KB, 64 * KB, 500 * KB, 2_000 * KB, 8_000 * KB)
SESSIONS = (1, 10, 25, 50)
LINE = 256_000 * KB  # the longest line that the official SDK shall take; ours takes it unasked
BOTH = ("toolwire", "official")


def run(bench: Bench) -> None:
    """Measure, and judge."""
    tools(bench)
    in_flight(bench)
    payload(bench)
    sessions(bench)


def tools(bench: Bench) -> None:
    """A call, the list, and the defining, by the number of tools."""
    sizes = TOOLS[:3] if bench.quick else TOOLS
    turns = {f"toolwire/{size}": partial(with_tools, "toolwire", size, bench.count(1_000)) for size in sizes}
    measured(bench, "tools", turns, rounds=5)
    turns = {f"official/{size}": partial(with_tools, "official", size, bench.count(100)) for size in sizes}
    measured(bench, "tools", turns, rounds=2)
    functions = FUNCTIONS[:3] if bench.quick else FUNCTIONS
    turns = {f"toolwire/{size}": partial(with_functions, size) for size in functions}
    measured(bench, "typed functions", turns, rounds=3)
    curve(bench, "tools", sizes, "p50", "µs at the median", name="a call, by tools", expected="constant")
    curve(
        bench, "tools", sizes, "list", "µs for the whole list", name="tools/list, by tools", expected="linear"
    )
    curve(
        bench,
        "tools",
        sizes,
        "defining",
        "µs of processor time for all",
        name="defining raw tools",
        expected="linear",
    )
    curve(
        bench,
        "typed functions",
        functions,
        "defining",
        "µs of processor time for all",
        name="defining typed functions",
        expected="linear",
    )
    if any(row.measure == "peak" for row in bench.rows):
        curve(bench, "tools", sizes, "peak", "MB at the most", name="memory, by raw tools", expected="linear")
    searching(bench, sizes)
    most = sizes[-1]
    one, all_ = (bench.row(SUITE, at("tools", size), "p50", "toolwire") for size in (1, most))
    what = f"{most:,} tools: p50 of a call, times that with one tool"
    bench.target(what, "at most", 1.1, bench.ratios(all_, one))
    if any(row.measure == "list cpu" for row in bench.rows):
        first, again = (
            bench.row(SUITE, at("tools", most), name, "toolwire") for name in ("first list cpu", "list cpu")
        )
        bench.target(
            f"{most:,} tools: processor time of a later tools/list, share of the first",
            "at most",
            0.5,
            bench.ratios(again, first),
            "served from bytes made once: the rest is the pipe",
        )


def searching(bench: Bench, sizes: Sequence[int]) -> None:
    """The first and a later `find_tools`, by the number of tools."""
    measured(
        bench, "find_tools", {f"toolwire/{size}": partial(with_search, size) for size in sizes}, rounds=3
    )
    curve(
        bench,
        "find_tools",
        sizes,
        "indexing",
        "µs of processor time for the index",
        name="the first find_tools",
        expected="linear",
    )


def with_search(size: int) -> Measured:
    """Index so many definitions, and search them."""
    definitions = {
        f"orders_list_{each}": {
            "name": f"orders_list_{each}",
            "description": f"List the orders of region {each}, newest first, with filters and paging.",
            "inputSchema": {"properties": {"customer_id": {}, "since": {}, "limit": {}}},
        }
        for each in range(size)
    }
    index, begun = ToolIndex(), time.process_time_ns()
    index.update(definitions)
    indexed = time.process_time_ns()
    for each in range(20):
        index.search(f"orders of region {each}", 5)
    return {"indexing": (indexed - begun) / 1e3, "search": (time.process_time_ns() - indexed) / 20e3}


def in_flight(bench: Bench) -> None:
    """A call's processor time, by how many are open."""
    usual = {"toolwire": 4_000, "official": 60}
    depths = DEPTHS[:4] if bench.quick else DEPTHS
    turns = {name: partial(at_depths, name, bench.count(count), depths) for name, count in usual.items()}
    bench.compare_cases(SUITE, "calls in flight", turns, UNITS, rounds=3)
    if any(row.case == at("calls in flight", 1) and row.measure == "cpu" for row in bench.rows):
        curve(
            bench,
            "calls in flight",
            depths,
            "cpu",
            "µs of processor time",
            name="a call, by calls in flight",
            expected="constant",
        )


def payload(bench: Bench) -> None:
    """A call whose argument comes back, by its size."""
    sizes = PAYLOADS[:3] if bench.quick else PAYLOADS
    turns = {name: partial(with_payloads, name, sizes, bench.count(200)) for name in BOTH}
    bench.compare_cases(SUITE, "payload", turns, UNITS, rounds=3)
    curve(bench, "payload", sizes, "p50", "µs at the median", name="a call, by payload", expected="linear")


def sessions(bench: Bench) -> None:
    """A whole conversation, by how many run at once."""
    sizes = SESSIONS[:2] if bench.quick else SESSIONS
    turns = {f"{name}/{size}": partial(with_sessions, name, size) for size in sizes for name in BOTH}
    measured(bench, "sessions at once", turns, rounds=2)
    curve(
        bench,
        "sessions at once",
        sizes,
        "session cpu",
        "ms of processor time",
        name="a session, by sessions at once",
        expected="constant",
    )


def at(case: str, size: int) -> str:
    return f"{case}: {size:,}"


def measured(bench: Bench, case: str, turns: dict[str, Any], rounds: int) -> None:
    """Sizes are measured in turn within each round, as contenders are: what the machine did, it did to all."""
    apart = Bench(quick=bench.quick)
    apart.compare(SUITE, case, turns, UNITS, rounds=rounds)
    for row in apart.rows:
        row.contender, size = row.contender.split("/")
        row.case = at(case, int(size))
        bench.rows.append(row)


def curve(
    bench: Bench, case: str, sizes: Iterable[int], measure: str, unit: str, *, name: str, expected: Order
) -> None:
    """Points from the rows."""
    by_size = {at(case, size): size for size in sizes}
    series: dict[str, list[tuple[float, float]]] = {}
    for row in bench.rows:
        if row.case in by_size and row.measure == measure:
            series.setdefault(row.contender, []).append((by_size[row.case], row.median))
    points = {each: sorted(found) for each, found in series.items()}
    x = "characters" if case == "payload" else case
    slack = 0.05 if case == "tools" and expected == "constant" else 0.15
    bench.curves.append(Curve(name, x, unit, expected, points, "toolwire", slack))


def with_tools(sdk: str, size: int, count: int) -> Measured:
    """List so many tools, and call the one in the middle."""
    steps = [
        {"do": "listing", "with": {"server": "calc", "count": max(3, min(100, 10_000 // size))}},
        step(f"add_{size // 2}", NUMBERS, "42.0", count),
    ]
    told = driven(sdk, {"servers": ["calc"], "steps": steps}, tools="many", arguments=[size])
    listing, calls = told["steps"]
    if listing["tools"] != size:
        raise RuntimeError(f"{sdk}: {size} tools were defined, {listing['tools']} listed")
    found = {
        "p50": percentile(calls["times"], 0.5) / 1e3,
        "cpu": calls["cpu"] / count * 1e6,
        "list": listing["again"]["seconds"] * 1e6,
        "list cpu": listing["again"]["cpu"] * 1e6,
        "first list cpu": listing["first"]["cpu"] * 1e6,
        "defining": told["driver"]["defining"] / 1e3,
        "first call": calls["times"][0] / 1e3,
        "peak": told["driver"].get("peak", 0) / 1e3,
    }
    return {name: value for name, value in found.items() if value}


def with_functions(size: int) -> Measured:
    """Define so many typed functions as tools."""
    told = driven("toolwire", {"servers": ["calc"], "steps": []}, tools="functions", arguments=[size])
    return {"defining": told["driver"]["defining"] / 1e3}


def at_depths(sdk: str, count: int, depths: Sequence[int]) -> dict[str, Measured]:
    """The same calls, with more and more of them open."""
    steps = [step("add", NUMBERS, "42.0", count, depth) for depth in depths]
    told = driven(sdk, {"servers": ["calc"], "steps": steps}, tools="typed")
    found = {}
    for depth, planned, done in zip(depths, steps, told["steps"], strict=True):
        found[at("calls in flight", depth)] = {"cpu": done["cpu"] / planned["with"]["count"] * 1e6}
    return {case: figures for case, figures in found.items() if figures["cpu"]}


def with_payloads(sdk: str, sizes: Iterable[int], usual: int) -> dict[str, Measured]:
    """Echoes, longer and longer."""
    counts = {size: max(3, min(usual, 20_000 * KB // size)) for size in sizes}
    texts = {size: "lorem ipsum " * (size // 12) for size in sizes}
    steps = [step("echo", {"text": texts[size]}, texts[size], count) for size, count in counts.items()]
    for each in steps:
        each["with"]["warm"] = max(3, each["with"]["count"] // 5)
    options = {"max_buffer_size": LINE} if sdk == "official" else {}
    told = driven(sdk, {"servers": ["calc"], "steps": steps}, tools="echo", options=options)
    return {
        at("payload", size): {"p50": percentile(done["times"], 0.5) / 1e3}
        for size, done in zip(counts, told["steps"], strict=True)
    }


def with_sessions(sdk: str, size: int) -> Measured:
    """So many conversations at once, each with a peer of its own that calls a tool ten times."""
    plan = {"servers": ["calc"], "steps": [step("add", NUMBERS, "42.0", 10)]}
    seen = driven(sdk, plan, tools="typed", sessions=size)["driver"]
    return {"session": seen["wall"] / size / 1e6, "session cpu": seen["cpu"] / size / 1e6}
