"""`python -m benchmarks`: runs the suites one after the other and writes their results.

Each suite knows how to measure; `report` and `plots` know how to present the results.
"""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.report import SUITES
from benchmarks.results import Bench, say

IDLE = 0.5  # load average up to which a machine counts as idle


def main(given: Sequence[str] | None = None) -> int:
    """Run the requested suites. Returns exit code 1 if a suite failed; a missed target is not a failure."""
    parser = make_parser()
    options = parser.parse_args(given)
    if unknown := sorted(set(options.suites) - set(SUITES)):
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    if options.list:
        return list_suites()
    load = os.getloadavg()[0]
    if load > IDLE:
        sys.stderr.write(
            f"Warning: the machine is busy (load average {load:.2f}), so measured times will be unreliable.\n"
        )
    wanted = [name for name in SUITES if name in (options.suites or SUITES)]
    failed = [name for name in wanted if not measure_suite(name, options.out, options.quick)]
    say("")
    found = report.read(options.out)
    sys.stdout.write(report.format_ratios(found))
    sys.stdout.write(f"\nWritten to {options.out}: {report.TABLE}, {report.DATA} and the plots.\n")
    if not draw_curves(found, options.out):
        failed.append("plots")
    if failed:
        sys.stderr.write(f"Failed: {', '.join(failed)}. Their earlier results, if any, were kept.\n")
    return 1 if failed else 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measure toolwire beside its peers.")
    names = ", ".join(SUITES)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"suites to run (default: all): {names}")
    parser.add_argument(
        "--quick", action="store_true", help="one round with small counts: checks that the suites work"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/bench"),
        metavar="DIR",
        help="where to write results; those of suites that are not run now are kept (default: build/bench)",
    )
    parser.add_argument("--list", action="store_true", help="print what each suite measures, and exit")
    return parser


def list_suites() -> int:
    """Print the name and the description of each suite. Returns the exit code."""
    for name in SUITES:
        try:
            text = (importlib.import_module(f"benchmarks.suites.{name}").__doc__ or "").split("\n")[0]
        except ImportError as error:
            text = f"cannot be loaded: {error}"
        sys.stdout.write(f"{name:10} {text}\n")
    return 0


def measure_suite(name: str, out: Path, quick: bool) -> bool:
    """Run one suite and add its results to those in `out`. Returns False if it failed."""
    bench, before = Bench(quick=quick), os.getloadavg()[0]
    try:
        importlib.import_module(f"benchmarks.suites.{name}").run(bench)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"\nThe suite {name!r} cannot run: {error}\n")
        return False
    except Exception:  # noqa: BLE001 - the other suites must still run; this one is listed as failed at the end
        sys.stderr.write(f"\nThe suite {name!r} failed:\n{traceback.format_exc()}\n")
        return False
    report.add(out, name, bench, (before, os.getloadavg()[0]))
    return True


def draw_curves(found: report.Results, out: Path) -> bool:
    """Draw the curves as SVG files. Returns False if matplotlib is not installed."""
    try:
        plots = importlib.import_module("benchmarks.plots")
    except ModuleNotFoundError as error:
        sys.stderr.write(f"No plots: {error}. To install it: pip install -r requirements-bench.txt\n")
        return False
    for curve in report.list_curves(found):
        plots.draw(curve, out / f"{report.make_slug(curve['name'])}.svg")
    return True


if __name__ == "__main__":
    sys.exit(main())
