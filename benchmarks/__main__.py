"""`python -m benchmarks`: runs the suites, one after the other, and writes what they found.

How to measure is the suites' own, how it looks is `report` and `plots`.
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
    """Run what was asked for. The exit code is 1 if a suite failed, not if a target was missed."""
    parser = arguments()
    asked = parser.parse_args(given)
    if unknown := sorted(set(asked.suites) - set(SUITES)):
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    if asked.list:
        return listed()
    load = os.getloadavg()[0]
    if load > IDLE:
        sys.stderr.write(
            f"Warning: the machine is not idle (load average {load:.2f}): times will be noise.\n"
        )
    wanted = [name for name in SUITES if name in (asked.suites or SUITES)]
    failed = [name for name in wanted if not measured(name, asked.out, asked.quick)]
    say("")
    found = report.read(asked.out)
    sys.stdout.write(report.ratios(found))
    sys.stdout.write(f"\nWritten to {asked.out}: {report.TABLE}, {report.DATA} and the plots.\n")
    if not drawn(found, asked.out):
        failed.append("plots")
    if failed:
        sys.stderr.write(f"Failed: {', '.join(failed)}. Their earlier figures, if any, were kept.\n")
    return 1 if failed else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measure toolwire beside its peers.")
    names = ", ".join(SUITES)
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"which ones; all if none is named: {names}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round and small counts: to see that it works"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/bench"),
        metavar="DIR",
        help="where to write; figures of suites that are not run now are kept there (default: build/bench)",
    )
    parser.add_argument("--list", action="store_true", help="say what each suite measures, and stop")
    return parser


def listed() -> int:
    for name in SUITES:
        try:
            text = (importlib.import_module(f"benchmarks.suites.{name}").__doc__ or "").split("\n")[0]
        except ImportError as error:
            text = f"cannot be loaded: {error}"
        sys.stdout.write(f"{name:10} {text}\n")
    return 0


def measured(name: str, out: Path, quick: bool) -> bool:
    """Run one suite and write its figures, beside those that are there. False if it failed."""
    bench, before = Bench(quick=quick), os.getloadavg()[0]
    try:
        importlib.import_module(f"benchmarks.suites.{name}").run(bench)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"\nThe suite {name!r} cannot run: {error}\n")
        return False
    except Exception:  # noqa: BLE001 - one suite must not lose the others; it is named at the end
        sys.stderr.write(f"\nThe suite {name!r} failed:\n{traceback.format_exc()}\n")
        return False
    report.add(out, name, bench, (before, os.getloadavg()[0]))
    return True


def drawn(found: report.Found, out: Path) -> bool:
    """Draw the curves. False if that cannot be done here."""
    try:
        plots = importlib.import_module("benchmarks.plots")
    except ModuleNotFoundError as error:
        sys.stderr.write(f"No plots: {error}. They need: pip install -r requirements-bench.txt\n")
        return False
    for curve in report.curves(found):
        plots.draw(curve, out / f"{report.slug(curve['name'])}.svg")
    return True


if __name__ == "__main__":
    sys.exit(main())
