"""`make work`: compares the counted work of the hot paths with budgets, so that regressions are found.

Work is counted, not timed, because counts are the same on a busy machine. A budget is what was counted when it was
recorded, plus some slack. If you add or remove work on purpose, record the budgets again: `make work
ARGS=--update`.
"""

import argparse
import json
import math
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from benchmarks import work_callgrind
from benchmarks.processes import HERE
from benchmarks.work_fresh import run_fresh
from benchmarks.work_paths import PATHS

Table = dict[str, dict[str, float]]
"""The count, or the budget, of one unit of work: by path, then by measure."""
BUDGETS = HERE.parent / "tests" / "work" / "budgets.toml"
VERSION = "3.11"
"""The version of Python that the budgets are for; counts differ between versions."""
_SLACK = 0.1
_MEASURES = {
    "turns": "turns of the event loop",
    "callbacks": "callbacks on the event loop",
    "calls": "Python functions entered",
    "writes": "system calls that write",
    "allocations": "calls of the allocators",
    "instructions": "instructions, as a multiple of the reference",
}
_HEAD = f"""\
# The most that one unit of each hot path may take, on CPython {VERSION}: what was counted, plus some slack.
# Written by `make work ARGS=--update`.
"""


def count_work(tree: Path | None = None) -> Table:
    """Count everything but instructions and allocations, in a fresh process, within seconds.

    With `tree`, the library of that checkout is counted.
    """
    with run_fresh("work_counts", tree=tree) as (printed, _folder):
        return dict(json.loads(printed))


def count_instructions() -> Table:
    """Count instructions and allocations with callgrind, which takes a minute or two."""
    found = work_callgrind.count_paths()
    return {name: {"allocations": s.allocations, "instructions": s.multiple} for name, s in found.items()}


def read_budgets() -> Table:
    """Return the recorded budgets; empty if there is no file."""
    return tomllib.loads(BUDGETS.read_text()) if BUDGETS.exists() else {}


def find_violations(
    counted: Mapping[str, Mapping[str, float]], allowed: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """Return a message for each count that exceeds its budget or has no budget."""
    violations = []
    for path, measures in counted.items():
        for measure, value in measures.items():
            ceiling = allowed.get(path, {}).get(measure)
            if ceiling is None:
                violations.append(
                    f"{path}: no budget for {measure}; record one with: make work ARGS=--update"
                )
            elif value > ceiling:
                violations.append(f"{path}: {value:.4g} {_MEASURES[measure]}, the budget is {ceiling:.4g}")
    return violations


def make_budgets(counted: Mapping[str, Mapping[str, float]]) -> Table:
    """Return budgets: the counts plus the slack of the path, a tenth by default, rounded up to three digits."""
    made: Table = {}
    for path, measures in counted.items():
        slack = PATHS[path].slack if path in PATHS else _SLACK
        made[path] = {measure: _round_up(value * (1 + slack)) for measure, value in measures.items()}
    return made


def _round_up(value: float) -> float:
    """Round up to three significant digits."""
    if value <= 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(round(value / step, 6)) * step:.6g}")


def to_toml(allowed: Mapping[str, Mapping[str, float]]) -> str:
    """Format budgets as the text of their TOML file."""
    parts = [_HEAD]
    for path, measures in allowed.items():
        lines = [f"{measure} = {value!r}" for measure, value in measures.items()]
        parts.append("\n".join([f'["{path}"]', *lines]) + "\n")
    return "\n".join(parts)


def format_table(
    counted: Mapping[str, Mapping[str, float]], allowed: Mapping[str, Mapping[str, float]]
) -> str:
    """Format counts as a table: count, budget, and how much of the budget is used."""
    rows = [f"{'path':26} {'measure':13} {'count':>10} {'budget':>10} {'used':>6}"]
    for path, measures in counted.items():
        for measure, value in measures.items():
            ceiling = allowed.get(path, {}).get(measure)
            used = "" if not ceiling else f"{value / ceiling:.0%}"
            known = "none" if ceiling is None else f"{ceiling:,.3f}"
            rows.append(f"{path:26} {measure:13} {value:10,.3f} {known:>10} {used:>6}")
    return "\n".join(rows) + "\n"


def merge(first: Table, second: Table) -> Table:
    """Merge two tables, in the order of the first; where both have a measure, the second counts."""
    return {
        path: {**first.get(path, {}), **second.get(path, {})} for path in [*first, *(second.keys() - first)]
    }


def main(arguments: list[str]) -> int:
    """Count, and compare with the budgets or update them. Returns 1 if a budget is exceeded."""
    parser = argparse.ArgumentParser(prog="make work", description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="record the current counts as the new budgets")
    options = parser.parse_args(arguments)
    if sys.version_info[:2] != tuple(map(int, VERSION.split("."))) or sys.implementation.name != "cpython":
        sys.stdout.write(f"skipped: the budgets are for CPython {VERSION}\n")
        return 0
    counted, allowed, problem = count_work(), read_budgets(), work_callgrind.find_problem()
    if problem is None:
        counted = merge(counted, count_instructions())
    if options.update:
        kept = {path: allowed.get(path, {}) for path in counted}
        allowed = merge(kept, make_budgets(counted))
        BUDGETS.write_text(to_toml(allowed))
    sys.stdout.write(format_table(counted, allowed))
    if problem is not None:
        sys.stdout.write(f"skipped: {problem}\n")
    violations = find_violations(counted, allowed)
    sys.stdout.writelines(f"over budget: {each}\n" for each in violations)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
