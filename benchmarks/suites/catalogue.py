"""A catalogue call against a bare HTTP client's: what finding the price, booking, checking and scrubbing cost.

The shop answers at once, so that nothing hides the difference; over a real network it is a few percent. A
catalogue opens a connection for every order on purpose (one that is kept may die just as it is used again, and then
nobody knows whether the order was taken), so the client that it is measured against does too; one that keeps its
connection has a row of its own. A ledger in a file waits for the disk once a call, on purpose too.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.processes import environment, percentile, python
from benchmarks.report import number
from benchmarks.results import Bench, Measured, Turn
from benchmarks.shopping import FREE, PAID

SUITE = "catalogue"
UNITS = {"p50": "µs", "p99": "µs"}
ORDER, BURST, LISTING = "one order", "8 orders at once", "list of 300"
TARGETS = {
    "toolwire, ledger in memory": (1.5, "all that is ours but the disk"),
    "toolwire": (2.0, "the ledger is on disk, which is waited for"),
    "toolwire, free tool": (2.0, "the same: free tools are booked too"),
}
AT_ONCE = 8


def run(bench: Bench) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name, shop(Path(name)) as port:
        buying = partial(turn, Path(name), port, bench.count(200))
        ledger = str(Path(name) / "ledger.db")
        contenders = {
            "bare client": buying(way="bare", kept=False),
            "bare client, kept alive": buying(way="bare", kept=True),
            "toolwire": buying(way="catalogue", ledger=ledger, entry=PAID),
            "toolwire, free tool": buying(way="catalogue", ledger=ledger, entry=FREE),
            "toolwire, ledger in memory": buying(way="catalogue", ledger=":memory:", entry=PAID),
        }
        bench.compare(SUITE, ORDER, contenders, UNITS, rounds=5)
        together = partial(turn, Path(name), port, bench.count(400), at_once=AT_ONCE)
        contenders = {
            "bare client": together(way="bare", kept=False),
            "toolwire": together(way="catalogue", ledger=ledger, entry=PAID),
            "toolwire, ledger in memory": together(way="catalogue", ledger=":memory:", entry=PAID),
        }
        bench.compare(SUITE, BURST, contenders, {"rate": "calls/s"}, rounds=5)
        loading = partial(turn, Path(name), port, bench.count(10))
        contenders = {
            "bare client": loading(way="bare listing", kept=False),
            "toolwire": loading(way="listing", ledger=":memory:"),
        }
        bench.compare(SUITE, LISTING, contenders, UNITS, rounds=3)
    bare, kept = (bench.row(SUITE, ORDER, "p50", f"bare client{how}") for how in ("", ", kept alive"))
    for contender, (most, note) in TARGETS.items():
        ours = bench.row(SUITE, ORDER, "p50", contender)
        said = f"catalogue call, {contender}, p50: times a bare HTTP client's, both on fresh connections"
        beside = f"{note}; times one that keeps its connection: {number(median(bench.ratios(ours, kept)))}"
        bench.target(said, "at most", most, bench.ratios(ours, bare), beside)
    bare = bench.row(SUITE, BURST, "rate", "bare client")
    for contender in ("toolwire, ledger in memory", "toolwire"):
        ours = bench.row(SUITE, BURST, "rate", contender)
        said = f"catalogue calls a second with {AT_ONCE} in flight, {contender}: times a bare HTTP client's"
        bench.target(said, "at least", 0.5, bench.ratios(ours, bare))


@contextmanager
def shop(home: Path) -> Iterator[int]:
    """The shop in a process of its own; its port."""
    command = [sys.executable, "-m", "benchmarks.shop"]
    with subprocess.Popen(  # noqa: S603
        command, env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def turn(home: Path, port: int, count: int, **case: Any) -> Turn:
    """One process that buys `count` times."""

    def measured() -> Measured:
        done = python(["-m", "benchmarks.shopping", json.dumps({"port": port, "count": count, **case})], home)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        told = json.loads(done.stdout)
        if "rate" in told:
            return {"rate": told["rate"]}
        times = [each / 1000 for each in told["times"]]
        return {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99)}

    return measured
