"""Writes a page that compares the ledgers' throughput: `python -m benchmarks.ledgers [--calls N] [--out FILE]`.

Eight processes reserve and settle calls with four limits set: first with a budget that has room for a quarter of
the calls, then with one that is never reached. Postgres is Debian's, on this machine, with `fsync` on.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from toolwire.catalog.ledger.opening import open_ledger
from toolwire.catalog.ledger.types import Busy, Limits, Order, OverBudget

HERE = Path(__file__).parent
PROCESSES = 8
PRICE = 10
HEAD = """# Ledgers side by side

A call is `begin` and `settle`, with four limits checked; 8 processes on one budget. Made in one run by `python -m
benchmarks.ledgers` on a machine with {cores} cores (load average {load:.1f} before). No test asserts any of it.

| | 200 calls for 50 places: bought, refused | overspend | {calls} calls, 8 processes | p50 / p99 | alone |
|---|---|---|---|---|---|
"""


@dataclass
class ProcessResult:
    """The counts of one process, and how long each of its calls took."""

    bought: int
    refused: int
    seconds: list[float]


def book(address: str, session: str, count: int, budget: int, ready: Any, results: Any) -> None:  # noqa: PLR0917
    """Reserve and settle `count` calls; runs in each of several processes."""
    limits = Limits(
        per_call=budget, per_session=budget, per_day=10**15, total=10**15, per_tool={"api:x": budget}
    )
    found = ProcessResult(0, 0, [])
    with open_ledger(address) as ledger:
        ready.wait(60)
        for number in range(count):
            began = time.perf_counter()
            while True:
                order = Order(session, "x", "api:x", "x", PRICE, f"{os.getpid()} {number}", "d")
                try:
                    ledger.settle(ledger.begin(order, limits).id, None)
                    found.bought += 1
                except Busy:
                    continue
                except OverBudget:
                    found.refused += 1
                break
            found.seconds.append(time.perf_counter() - began)
    results.put(found)


def race(
    address: str, session: str, processes: int, calls: int, budget: int
) -> tuple[float, list[ProcessResult]]:
    """Run `book` in several processes at once. Returns the seconds that it took, and the result of each."""
    spawn = multiprocessing.get_context("spawn")
    ready, results = spawn.Barrier(processes + 1), spawn.Queue()
    given = (address, session, calls // processes, budget, ready, results)
    started = [spawn.Process(target=book, args=given) for _ in range(processes)]
    for each in started:
        each.start()
    ready.wait(60)
    began = time.perf_counter()
    found = [results.get(timeout=300) for _ in started]
    took = time.perf_counter() - began
    for each in started:
        each.join(30)
    return took, found


def measure(name: str, address: str, calls: int) -> str:
    """Measure one ledger. Returns its row of the table."""
    with open_ledger(address) as ledger:  # confirm the price before any process begins
        ledger.settle(ledger.begin(Order("first", "x", "api:x", "x", PRICE, "", "d"), Limits()).id, None)
    took, found = race(address, "few", PROCESSES, 200, 50 * PRICE)
    bought, refused = sum(each.bought for each in found), sum(each.refused for each in found)
    with open_ledger(address) as ledger:
        spent = {each.name: each.money for each in ledger.totals("session")}["few"]
    over = max(0, spent - 50 * PRICE)
    long, many = race(address, "many", PROCESSES, calls, 10**15)
    times = sorted(each for one in many for each in one.seconds)
    cuts = quantiles(times, n=100)
    _, (alone,) = race(address, "alone", 1, min(calls, 500), 10**15)
    middle = quantiles(alone.seconds, n=2)[0]
    return (
        f"| {name} | {bought}, {refused} in {took:.2f} s | {over} | {len(times) / long:,.0f}/s"
        f" | {cuts[49] * 1000:.1f} / {cuts[98] * 1000:.0f} ms | {middle * 1000:.1f} ms |\n"
    )


def main(given: list[str] | None = None) -> int:
    """Measure both ledgers, and print or write the page."""
    parser = argparse.ArgumentParser("python -m benchmarks.ledgers", description=__doc__)
    parser.add_argument("--calls", type=int, default=2000, metavar="N")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file to write the page to (default: print it)"
    )
    options = parser.parse_args(given)
    sys.path.insert(0, str(HERE.parent / "tests"))
    from shared.servers import PostgresServer  # noqa: PLC0415 - a helper of the tests, found by the line above

    class Durable(PostgresServer):
        command: Callable[[], list[Any]] = lambda self: [*PostgresServer.command(self), "-c", "fsync=on"]

    page = HEAD.format(cores=os.cpu_count(), load=os.getloadavg()[0], calls=f"{options.calls:,}")
    with tempfile.TemporaryDirectory() as folder:
        page += measure("SQLite", str(Path(folder) / "ledger.db"), options.calls)
    with Durable() as server:
        page += measure("Postgres", server.create_database(), options.calls)
    if options.out is None:
        sys.stdout.write(page)
    else:
        options.out.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
