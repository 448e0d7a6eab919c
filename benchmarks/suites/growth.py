"""How cost grows with tools, calls in flight, payload and sessions, and whether that is as expected."""

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from benchmarks.processes import compute_percentile, drive
from benchmarks.results import Bench, Curve, Figures, Order
from benchmarks.suites.calls import NUMBERS, make_step
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
LINE = 256_000 * KB  # the longest line, to be allowed in the official SDK; toolwire accepts it by default
BOTH = ("toolwire", "official")


def run(bench: Bench) -> None:
    """Measure all curves, and add the targets."""
    measure_tools(bench)
    measure_in_flight(bench)
    measure_payload(bench)
    measure_sessions(bench)


def measure_tools(bench: Bench) -> None:
    """Measure a call, the list, and defining tools, by the number of tools."""
    sizes = TOOLS[:3] if bench.quick else TOOLS
    turns = {
        f"toolwire/{size}": partial(list_and_call, "toolwire", size, bench.scale(1_000)) for size in sizes
    }
    compare_sizes(bench, "tools", turns, rounds=5)
    turns = {f"official/{size}": partial(list_and_call, "official", size, bench.scale(100)) for size in sizes}
    compare_sizes(bench, "tools", turns, rounds=2)
    functions = FUNCTIONS[:3] if bench.quick else FUNCTIONS
    turns = {f"toolwire/{size}": partial(define_functions, size) for size in functions}
    compare_sizes(bench, "typed functions", turns, rounds=3)
    add_curve(bench, "tools", sizes, "p50", "µs at the median", name="a call, by tools", expected="constant")
    add_curve(
        bench, "tools", sizes, "list", "µs for the whole list", name="tools/list, by tools", expected="linear"
    )
    add_curve(
        bench,
        "tools",
        sizes,
        "defining",
        "µs of processor time for all",
        name="defining raw tools",
        expected="linear",
    )
    add_curve(
        bench,
        "typed functions",
        functions,
        "defining",
        "µs of processor time for all",
        name="defining typed functions",
        expected="linear",
    )
    if any(row.measure == "peak" for row in bench.rows):
        add_curve(
            bench, "tools", sizes, "peak", "MB at the most", name="memory, by raw tools", expected="linear"
        )
    measure_search(bench, sizes)
    most = sizes[-1]
    one, all_ = (bench.find_row(SUITE, format_case("tools", size), "p50", "toolwire") for size in (1, most))
    what = f"{most:,} tools: p50 of a call, times that with one tool"
    bench.add_target(what, "at most", 1.1, bench.compute_ratios(all_, one))
    if any(row.measure == "list cpu" for row in bench.rows):
        first, again = (
            bench.find_row(SUITE, format_case("tools", most), name, "toolwire")
            for name in ("first list cpu", "list cpu")
        )
        bench.add_target(
            f"{most:,} tools: processor time of a later tools/list, share of the first",
            "at most",
            0.5,
            bench.compute_ratios(again, first),
            "served from bytes made once: the rest is the pipe",
        )


def measure_search(bench: Bench, sizes: Sequence[int]) -> None:
    """Measure the first and later searches of `find_tools`, by the number of tools."""
    compare_sizes(
        bench, "find_tools", {f"toolwire/{size}": partial(index_and_search, size) for size in sizes}, rounds=3
    )
    add_curve(
        bench,
        "find_tools",
        sizes,
        "indexing",
        "µs of processor time for the index",
        name="the first find_tools",
        expected="linear",
    )


def index_and_search(size: int) -> Figures:
    """Index `size` tool definitions, and search them."""
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


def measure_in_flight(bench: Bench) -> None:
    """Measure the processor time of a call, by the number of calls in flight."""
    usual = {"toolwire": 4_000, "official": 60}
    depths = DEPTHS[:4] if bench.quick else DEPTHS
    turns = {name: partial(call_at_depths, name, bench.scale(count), depths) for name, count in usual.items()}
    bench.compare_cases(SUITE, "calls in flight", turns, UNITS, rounds=3)
    if any(row.case == format_case("calls in flight", 1) and row.measure == "cpu" for row in bench.rows):
        add_curve(
            bench,
            "calls in flight",
            depths,
            "cpu",
            "µs of processor time",
            name="a call, by calls in flight",
            expected="constant",
        )


def measure_payload(bench: Bench) -> None:
    """Measure a call that returns its argument, by the size of the argument."""
    sizes = PAYLOADS[:3] if bench.quick else PAYLOADS
    turns = {name: partial(echo_payloads, name, sizes, bench.scale(200)) for name in BOTH}
    bench.compare_cases(SUITE, "payload", turns, UNITS, rounds=3)
    add_curve(
        bench, "payload", sizes, "p50", "µs at the median", name="a call, by payload", expected="linear"
    )


def measure_sessions(bench: Bench) -> None:
    """Measure a whole conversation, by the number of sessions at once."""
    sizes = SESSIONS[:2] if bench.quick else SESSIONS
    turns = {f"{name}/{size}": partial(run_sessions, name, size) for size in sizes for name in BOTH}
    compare_sizes(bench, "sessions at once", turns, rounds=2)
    add_curve(
        bench,
        "sessions at once",
        sizes,
        "session cpu",
        "ms of processor time",
        name="a session, by sessions at once",
        expected="constant",
    )


def format_case(case: str, size: int) -> str:
    """Return the name of a case of one size."""
    return f"{case}: {size:,}"


def compare_sizes(bench: Bench, case: str, turns: dict[str, Any], rounds: int) -> None:
    """Measure all sizes within each round, as contenders are, so that other load affects all.

    The keys of `turns` are `CONTENDER/SIZE`; each becomes a row of its contender and the case of its size.
    """
    apart = Bench(quick=bench.quick)
    apart.compare(SUITE, case, turns, UNITS, rounds=rounds)
    for row in apart.rows:
        row.contender, size = row.contender.split("/")
        row.case = format_case(case, int(size))
        bench.rows.append(row)


def add_curve(
    bench: Bench, case: str, sizes: Iterable[int], measure: str, unit: str, *, name: str, expected: Order
) -> None:
    """Add a curve whose points are the medians of a measure over the sizes of a case."""
    by_size = {format_case(case, size): size for size in sizes}
    series: dict[str, list[tuple[float, float]]] = {}
    for row in bench.rows:
        if row.case in by_size and row.measure == measure:
            series.setdefault(row.contender, []).append((by_size[row.case], row.median))
    points = {each: sorted(found) for each, found in series.items()}
    x = "characters" if case == "payload" else case
    slack = 0.05 if case == "tools" and expected == "constant" else 0.15
    bench.curves.append(Curve(name, x, unit, expected, points, "toolwire", slack))


def list_and_call(sdk: str, size: int, count: int) -> Figures:
    """List `size` tools, and call the one in the middle."""
    steps = [
        {"do": "listing", "with": {"server": "calc", "count": max(3, min(100, 10_000 // size))}},
        make_step(f"add_{size // 2}", NUMBERS, "42.0", count),
    ]
    reported = drive(sdk, {"servers": ["calc"], "steps": steps}, tools="many", arguments=[size])
    listing, calls = reported["steps"]
    if listing["tools"] != size:
        raise RuntimeError(f"{sdk}: {size} tools were defined, {listing['tools']} listed")
    found = {
        "p50": compute_percentile(calls["times"], 0.5) / 1e3,
        "cpu": calls["cpu"] / count * 1e6,
        "list": listing["again"]["seconds"] * 1e6,
        "list cpu": listing["again"]["cpu"] * 1e6,
        "first list cpu": listing["first"]["cpu"] * 1e6,
        "defining": reported["driver"]["defining"] / 1e3,
        "first call": calls["times"][0] / 1e3,
        "peak": reported["driver"].get("peak", 0) / 1e3,
    }
    return {name: value for name, value in found.items() if value}


def define_functions(size: int) -> Figures:
    """Define `size` typed functions as tools."""
    reported = drive("toolwire", {"servers": ["calc"], "steps": []}, tools="functions", arguments=[size])
    return {"defining": reported["driver"]["defining"] / 1e3}


def call_at_depths(sdk: str, count: int, depths: Sequence[int]) -> dict[str, Figures]:
    """Make the same calls at each depth, with more and more of them in flight."""
    steps = [make_step("add", NUMBERS, "42.0", count, depth) for depth in depths]
    reported = drive(sdk, {"servers": ["calc"], "steps": steps}, tools="typed")
    found = {}
    for depth, planned, done in zip(depths, steps, reported["steps"], strict=True):
        found[format_case("calls in flight", depth)] = {"cpu": done["cpu"] / planned["with"]["count"] * 1e6}
    return {case: figures for case, figures in found.items() if figures["cpu"]}


def echo_payloads(sdk: str, sizes: Iterable[int], usual: int) -> dict[str, Figures]:
    """Call a tool that returns its argument, with larger and larger texts."""
    counts = {size: max(3, min(usual, 20_000 * KB // size)) for size in sizes}
    texts = {size: "lorem ipsum " * (size // 12) for size in sizes}
    steps = [make_step("echo", {"text": texts[size]}, texts[size], count) for size, count in counts.items()]
    for each in steps:
        each["with"]["warm"] = max(3, each["with"]["count"] // 5)
    options = {"max_buffer_size": LINE} if sdk == "official" else {}
    reported = drive(sdk, {"servers": ["calc"], "steps": steps}, tools="echo", options=options)
    return {
        format_case("payload", size): {"p50": compute_percentile(done["times"], 0.5) / 1e3}
        for size, done in zip(counts, reported["steps"], strict=True)
    }


def run_sessions(sdk: str, size: int) -> Figures:
    """Run `size` conversations at once, each with its own peer, which calls a tool ten times."""
    plan = {"servers": ["calc"], "steps": [make_step("add", NUMBERS, "42.0", 10)]}
    seen = drive(sdk, plan, tools="typed", sessions=size)["driver"]
    return {"session": seen["wall"] / size / 1e6, "session cpu": seen["cpu"] / size / 1e6}
