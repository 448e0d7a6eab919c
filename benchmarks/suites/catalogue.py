"""A catalogue call compared with a bare HTTP client's: the cost of looking up, reserving, checking and scrubbing.

The shop responds at once, so that nothing hides the difference; over a real network it is a few percent. A
catalogue opens a new connection for every order on purpose (a kept one may break just as it is reused, and then it
is unknown whether the order was accepted), so the client that it is compared with does too; one that keeps its
connection has its own row. A ledger in a file waits for the disk once per call, also on purpose.
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

from benchmarks.processes import compute_percentile, make_environment, run_python
from benchmarks.report import format_number
from benchmarks.results import Bench, Figures, Turn
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
    """Measure single orders, orders in flight and loading the list, and add the targets."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, run_shop(Path(name)) as port:
        buying = partial(make_turn, Path(name), port, bench.scale(200))
        ledger = str(Path(name) / "ledger.db")
        contenders = {
            "bare client": buying(way="bare", kept=False),
            "bare client, kept alive": buying(way="bare", kept=True),
            "toolwire": buying(way="catalogue", ledger=ledger, entry=PAID),
            "toolwire, free tool": buying(way="catalogue", ledger=ledger, entry=FREE),
            "toolwire, ledger in memory": buying(way="catalogue", ledger=":memory:", entry=PAID),
        }
        bench.compare(SUITE, ORDER, contenders, UNITS, rounds=5)
        together = partial(make_turn, Path(name), port, bench.scale(400), at_once=AT_ONCE)
        contenders = {
            "bare client": together(way="bare", kept=False),
            "toolwire": together(way="catalogue", ledger=ledger, entry=PAID),
            "toolwire, ledger in memory": together(way="catalogue", ledger=":memory:", entry=PAID),
        }
        bench.compare(SUITE, BURST, contenders, {"rate": "calls/s"}, rounds=5)
        loading = partial(make_turn, Path(name), port, bench.scale(10))
        contenders = {
            "bare client": loading(way="bare listing", kept=False),
            "toolwire": loading(way="listing", ledger=":memory:"),
        }
        bench.compare(SUITE, LISTING, contenders, UNITS, rounds=3)
    bare, kept = (bench.find_row(SUITE, ORDER, "p50", f"bare client{how}") for how in ("", ", kept alive"))
    for contender, (most, note) in TARGETS.items():
        ours = bench.find_row(SUITE, ORDER, "p50", contender)
        said = f"catalogue call, {contender}, p50: times a bare HTTP client's, both on fresh connections"
        on_kept = format_number(median(bench.compute_ratios(ours, kept)))
        beside = f"{note}; times one that keeps its connection: {on_kept}"
        bench.add_target(said, "at most", most, bench.compute_ratios(ours, bare), beside)
    bare = bench.find_row(SUITE, BURST, "rate", "bare client")
    for contender in ("toolwire, ledger in memory", "toolwire"):
        ours = bench.find_row(SUITE, BURST, "rate", contender)
        said = f"catalogue calls a second with {AT_ONCE} in flight, {contender}: times a bare HTTP client's"
        bench.add_target(said, "at least", 0.5, bench.compute_ratios(ours, bare))


@contextmanager
def run_shop(home: Path) -> Iterator[int]:
    """Run the shop in a separate process. Yields its port."""
    command = [sys.executable, "-m", "benchmarks.shop"]
    with subprocess.Popen(  # noqa: S603
        command, env=make_environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def make_turn(home: Path, port: int, count: int, **case: Any) -> Turn:
    """Return a turn that starts a process, which buys `count` times."""

    def measure() -> Figures:
        done = run_python(
            ["-m", "benchmarks.shopping", json.dumps({"port": port, "count": count, **case})], home
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        reported = json.loads(done.stdout)
        if "rate" in reported:
            return {"rate": reported["rate"]}
        times = [each / 1000 for each in reported["times"]]
        return {"p50": compute_percentile(times, 0.5), "p99": compute_percentile(times, 0.99)}

    return measure
