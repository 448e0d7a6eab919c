"""What many sessions at once cost the process that has them: memory, threads, files, processes, time.

Each session has a process on the other side: the peer, or the real CLI where there is one session only.
"""

import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import SDKS, peer_program, python
from benchmarks.results import Bench, Curve, Measured
from benchmarks.scripted import NUMBERS, conversed
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


def figures(seen: dict[str, Any], count: int) -> Measured:
    """What a driver saw, in the units of the table."""
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


def against_peer(sdk: str, count: int) -> Measured:
    """So many sessions with the peer, one tool call in each."""
    call = {"server": "calc", "tool": "add", "arguments": NUMBERS, "count": 1, "expect": "42.0"}
    plan = {"servers": ["calc"], "steps": [{"do": "calls", "with": call}]}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        program, report = peer_program(plan, folder)
        what = {"sdk": SDKS[sdk], "cli": str(program), "cwd": name, "sessions": count, "warm": True}
        done = python(["-m", "benchmarks.drive_sessions", json.dumps(what)], folder)
        if done.returncode or "error" in report.read_text():
            raise RuntimeError(f"{sdk}, {count} sessions: exit code {done.returncode}\n{done.stderr[-2000:]}")
        return figures(json.loads(done.stdout), count)


def against_cli(sdk: str, cli: str) -> Measured:
    """One session with the real CLI, with the same tool call in it."""
    found = figures(conversed("drive_sessions", sdk, cli=cli, sessions=1), 1)
    # The one session is also the first: what was loaded for it is in these.
    return {name: value for name, value in found.items() if not name.endswith("a session")}


def run(bench: Bench) -> None:
    """Measure, and see that memory grows with the sessions and no faster."""
    sizes = SIZES[:2] if bench.quick else SIZES
    for count in sizes:
        turns = {sdk: partial(against_peer, sdk, count) for sdk in SDKS}
        bench.compare(SUITE, named(count), turns, UNITS, rounds=ROUNDS)
    if (cli := bundled_cli()) is not None:
        turns = {sdk: partial(against_cli, sdk, cli) for sdk in SDKS}
        bench.compare(SUITE, "1 session, real CLI", turns, UNITS, rounds=ROUNDS)
    # What Python and the libraries take is not in it: it would hide how the sessions' own part grows.
    grown(bench, sizes, "memory of all sessions, by sessions", "memory a session", "kB")
    grown(bench, sizes, "time to open all, by sessions", "open all", "ms")


def grown(bench: Bench, sizes: Sequence[int], name: str, measure: str, unit: str) -> None:
    """A curve over the number of sessions; what is measured for one session counts as often as there are."""
    series = {}
    for sdk in SDKS:
        medians = {count: bench.row(SUITE, named(count), measure, sdk).median for count in sizes}
        times = {count: count if measure.endswith("a session") else 1 for count in sizes}
        series[sdk] = [(float(count), medians[count] * times[count]) for count in sizes]
    bench.curves.append(Curve(name, "sessions", unit, "linear", series, "toolwire"))


def named(count: int) -> str:
    """The case."""
    return "1 session" if count == 1 else f"{count} sessions"
