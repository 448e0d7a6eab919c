"""The guard against slow regressions: counted work of the hot paths against budgets, `make work`.

Counts, not time: they say the same on a busy machine. A budget is what was counted when it was recorded, and a
little more. Whoever adds work on purpose, or takes some away, records again: `make work ARGS=--update`.
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
from benchmarks.work_fresh import fresh
from benchmarks.work_paths import PATHS

Table = dict[str, dict[str, float]]
"""By path, by measure: what one unit takes, or may take."""
BUDGETS = HERE.parent / "tests" / "work" / "budgets.toml"
VERSION = "3.11"
"""Counts differ between versions of Python; these budgets are for that one."""
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
# What one unit of each hot path may take at most, on CPython {VERSION}: what was counted, and a little more.
# Written by `make work ARGS=--update`.
"""


def counts(tree: Path | None = None) -> Table:
    """What can be counted in seconds, by a fresh process; of another checkout with `tree`."""
    with fresh("work_counts", tree=tree) as (printed, _folder):
        return dict(json.loads(printed))


def instructions() -> Table:
    """What callgrind counts, in a minute or two."""
    found = work_callgrind.stretches()
    return {name: {"allocations": s.allocations, "instructions": s.multiple} for name, s in found.items()}


def budgets() -> Table:
    return tomllib.loads(BUDGETS.read_text()) if BUDGETS.exists() else {}


def objections(
    counted: Mapping[str, Mapping[str, float]], allowed: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """A sentence for each count that is over its budget, or has none."""
    said = []
    for path, measures in counted.items():
        for measure, value in measures.items():
            ceiling = allowed.get(path, {}).get(measure)
            if ceiling is None:
                said.append(f"{path}: no budget for {measure}; record one with: make work ARGS=--update")
            elif value > ceiling:
                said.append(f"{path}: {value:.4g} {_MEASURES[measure]}, the budget is {ceiling:.4g}")
    return said


def recorded(counted: Mapping[str, Mapping[str, float]]) -> Table:
    """Budgets for what was counted: a tenth more, rounded up to three digits."""
    made: Table = {}
    for path, measures in counted.items():
        slack = PATHS[path].slack if path in PATHS else _SLACK
        made[path] = {measure: _up(value * (1 + slack)) for measure, value in measures.items()}
    return made


def _up(value: float) -> float:
    if value <= 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(round(value / step, 6)) * step:.6g}")


def as_toml(allowed: Mapping[str, Mapping[str, float]]) -> str:
    parts = [_HEAD]
    for path, measures in allowed.items():
        lines = [f"{measure} = {value!r}" for measure, value in measures.items()]
        parts.append("\n".join([f'["{path}"]', *lines]) + "\n")
    return "\n".join(parts)


def as_text(counted: Mapping[str, Mapping[str, float]], allowed: Mapping[str, Mapping[str, float]]) -> str:
    """A table for people: count, budget, and how much of it is used."""
    rows = [f"{'path':26} {'measure':13} {'count':>10} {'budget':>10} {'used':>6}"]
    for path, measures in counted.items():
        for measure, value in measures.items():
            ceiling = allowed.get(path, {}).get(measure)
            used = "" if not ceiling else f"{value / ceiling:.0%}"
            known = "none" if ceiling is None else f"{ceiling:,.3f}"
            rows.append(f"{path:26} {measure:13} {value:10,.3f} {known:>10} {used:>6}")
    return "\n".join(rows) + "\n"


def merged(first: Table, second: Table) -> Table:
    """Both counts of each path, in the order of the first."""
    return {
        path: {**first.get(path, {}), **second.get(path, {})} for path in [*first, *(second.keys() - first)]
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make work", description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write what is counted now as the budgets")
    chosen = parser.parse_args(arguments)
    if sys.version_info[:2] != tuple(map(int, VERSION.split("."))) or sys.implementation.name != "cpython":
        sys.stdout.write(f"skipped: the budgets are for CPython {VERSION}\n")
        return 0
    counted, allowed, problem = counts(), budgets(), work_callgrind.missing()
    if problem is None:
        counted = merged(counted, instructions())
    if chosen.update:
        kept = {path: allowed.get(path, {}) for path in counted}
        allowed = merged(kept, recorded(counted))
        BUDGETS.write_text(as_toml(allowed))
    sys.stdout.write(as_text(counted, allowed))
    if problem is not None:
        sys.stdout.write(f"skipped: {problem}\n")
    said = objections(counted, allowed)
    sys.stdout.writelines(f"over budget: {each}\n" for each in said)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
