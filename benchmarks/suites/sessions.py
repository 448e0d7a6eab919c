"""The cost of many sessions at once in one process: memory, threads, files, processes, time.

Each session starts a process: the peer, or the real CLI where there is only one session.
"""

import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import SDKS, run_python, write_peer
from benchmarks.results import Bench, Curve, Figures
from benchmarks.scripted import NUMBERS, run_tool_call
from toolwire._transport.find_cli import bundled_cli

SUITE = "sessions"
UNITS = {
    "memory": "MB",
    "memory a session": "kB",
    "own CPU a session": "ms",
    "threads": "",
    "processes": "",
    "files": "",
    "open all": "ms",
    "close all": "ms",
}
SIZES = (1, 10, 50)
ROUNDS = 3


def compute_figures(seen: dict[str, Any], count: int) -> Figures:
    """Convert what a driver measured to the units of the table."""
    before, during = seen["before"], seen["during"]
    return {
        "memory": during["rss"] / 1024,
        "memory a session": max(0, during["rss"] - before["rss"]) / count,
        "own CPU a session": seen["cpu"] * 1e3 / count,
        "threads": during["threads"],
        "processes": during["children"],
        "files": during["files"],
        "open all": seen["open"] * 1e3,
        "close all": seen["close"] * 1e3,
    }


def measure_with_peer(sdk: str, count: int) -> Figures:
    """Run `count` sessions with the peer, with one tool call in each."""
    call = {"server": "calc", "tool": "add", "arguments": NUMBERS, "count": 1, "expect": "42.0"}
    plan = {"servers": ["calc"], "steps": [{"do": "calls", "with": call}]}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        program, report = write_peer(plan, folder)
        what = {"sdk": SDKS[sdk], "cli": str(program), "cwd": name, "sessions": count, "warm": True}
        done = run_python(["-m", "benchmarks.drive_sessions", json.dumps(what)], folder)
        if done.returncode or "error" in report.read_text():
            raise RuntimeError(f"{sdk}, {count} sessions: exit code {done.returncode}\n{done.stderr[-2000:]}")
        return compute_figures(json.loads(done.stdout), count)


def measure_with_cli(sdk: str, cli: str) -> Figures:
    """Run one session with the real CLI, with the same tool call."""
    found = compute_figures(run_tool_call("drive_sessions", sdk, cli=cli, sessions=1), 1)
    # Without the figures per session: the only session is also the first, so they would include what was loaded.
    return {name: value for name, value in found.items() if not name.endswith("a session")}


def run(bench: Bench) -> None:
    """Measure, and add curves of memory and time, which may grow no faster than the number of sessions."""
    sizes = SIZES[:2] if bench.quick else SIZES
    for count in sizes:
        turns = {sdk: partial(measure_with_peer, sdk, count) for sdk in SDKS}
        bench.compare(SUITE, format_case(count), turns, UNITS, rounds=ROUNDS)
    if (cli := bundled_cli()) is not None:
        turns = {sdk: partial(measure_with_cli, sdk, cli) for sdk in SDKS}
        bench.compare(SUITE, "1 session, real CLI", turns, UNITS, rounds=ROUNDS)
    # Without the memory of Python and the libraries, which would hide how that of the sessions grows.
    add_curve(bench, sizes, "memory of all sessions, by sessions", "memory a session", "kB")
    add_curve(bench, sizes, "time to open all, by sessions", "open all", "ms")


def add_curve(bench: Bench, sizes: Sequence[int], name: str, measure: str, unit: str) -> None:
    """Add a curve over the number of sessions. Measures per session are multiplied by the number of sessions."""
    series = {}
    for sdk in SDKS:
        medians = {count: bench.find_row(SUITE, format_case(count), measure, sdk).median for count in sizes}
        times = {count: count if measure.endswith("a session") else 1 for count in sizes}
        series[sdk] = [(float(count), medians[count] * times[count]) for count in sizes]
    bench.curves.append(Curve(name, "sessions", unit, "linear", series, "toolwire"))


def format_case(count: int) -> str:
    """Return the name of the case."""
    return "1 session" if count == 1 else f"{count} sessions"
