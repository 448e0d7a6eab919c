"""Writes the page with profiles of the hot paths: `python -m benchmarks.profiles [--against DIR]`.

With `--against`, an older checkout is measured in the same run, and the page compares it with this one.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import work, work_callgrind
from benchmarks.processes import HERE
from benchmarks.results import say
from benchmarks.work_callgrind import UnitCounts
from benchmarks.work_fresh import run_fresh
from benchmarks.work_paths import PATHS
from benchmarks.work_sampled import LAYERS

PAGE = HERE.parent / "docs" / "benchmarks" / "profiles.md"
ROUNDS = 2
_HEAD = """\
# Where the work goes

The hot paths of toolwire, one unit of each (a call, a message, a request), in one process: the library is fed with
the bytes that the CLI would send, so pipes and the other side are not included.
Made by `python -m benchmarks.profiles`.

- **Microseconds** are CPU time, the minimum of many repetitions. They depend on the machine; the ratios matter.
- **Instructions** and **allocations** (calls of an allocator) are counted by callgrind, **turns** of the event
  loop, **callbacks** scheduled on it and Python **functions** entered by the loop and the interpreter. `make work`
  compares all of them with budgets.
- **Layers**: a signal interrupts the program some 5,000 times a second, and the sample is attributed to the
  innermost Python frame of a known layer, including what that layer calls in C (orjson, pydantic-core) or in the
  standard library. The microseconds are split by these shares. A signal is handled at the next call or return, so
  a share can be off by a point or two, and the C part of asyncio counts in part as the coroutine that it resumes.
  Waiting for a worker thread counts as event loop.
- **Whose machine code**: the same instructions by library, counted exactly. CPython is the interpreter and its
  objects, that is, all code written in Python: of toolwire, asyncio and anyio.
"""


@dataclass
class Checkout:
    """The measurements of one checkout."""

    times: dict[str, float] = field(default_factory=dict)
    layers: dict[str, Counter[str]] = field(default_factory=dict)
    counts: work.Table = field(default_factory=dict)
    unit_counts: dict[str, UnitCounts] = field(default_factory=dict)

    def sample(self, tree: Path | None) -> None:
        """Measure one more round of times and samples."""
        with run_fresh("work_sampled", tree=tree) as (printed, _folder):
            for name, seen in json.loads(printed).items():
                self.times[name] = min(self.times.get(name, float("inf")), seen["microseconds"])
                self.layers.setdefault(name, Counter()).update(seen["layers"])

    def compute_time(self, name: str, layer: str) -> float:
        """Return the microseconds that a path spends in a layer."""
        samples = self.layers[name]
        return self.times[name] * samples[layer] / max(1, samples.total())


def measure_checkouts(trees: Iterable[Path | None]) -> list[Checkout]:
    """Measure all checkouts alternately, so that other load on the machine affects all of them."""
    checkouts = [(tree, Checkout()) for tree in trees]
    for number in range(ROUNDS):
        for place, (tree, checkout) in enumerate(checkouts):
            say(f"samples of checkout {place + 1}, round {number + 1}")
            checkout.sample(tree)
    for place, (tree, checkout) in enumerate(checkouts):
        say(f"counts of checkout {place + 1}")
        checkout.counts = work.count_work(tree)
        if work_callgrind.find_problem() is None:
            checkout.unit_counts = work_callgrind.count_paths(tree=tree)
    return [checkout for _tree, checkout in checkouts]


def format_page(now: Checkout, before: Checkout | None) -> str:
    """Return the whole page. With `before`, each cell shows the values of `before` and then of `now`."""
    checkouts = [now] if before is None else [before, now]
    parts = [_HEAD]
    if before is not None:
        parts.append("Each cell is *before* → *now*.\n")
    parts.append(_format_summary(checkouts))
    seen = [name for name in PATHS if name in now.times]
    parts += [f"## {name[0].upper()}{name[1:]}\n\n{_format_layers(name, checkouts)}" for name in seen]
    if now.unit_counts:
        parts.append(
            f"## Whose machine code\n\nShare of the instructions of one unit.\n\n{_format_libraries(checkouts)}"
        )
    return "\n".join(parts)


def _format_summary(checkouts: list[Checkout]) -> str:
    """Return the table with the time and the counts of each path."""
    rows = []
    for name in PATHS:
        counts = [checkout.counts.get(name, {}) for checkout in checkouts]
        found = [checkout.unit_counts.get(name) for checkout in checkouts]
        cells = [name, _join_values(checkout.times.get(name) for checkout in checkouts)]
        cells += [_join_values(each and each.instructions for each in found)]
        cells += [_join_values(each and each.allocations for each in found)]
        cells += [
            _join_values(each.get(measure) for each in counts) for measure in ("turns", "callbacks", "calls")
        ]
        rows.append(cells)
    return _format_table(["", "µs", "instructions", "allocations", "turns", "callbacks", "functions"], rows)


def _format_layers(name: str, checkouts: list[Checkout]) -> str:
    """Return the table of a path's time by layer, without layers below half a percent."""
    checkouts = [checkout for checkout in checkouts if name in checkout.times]
    now, rows = checkouts[-1], []
    spent = {layer: [checkout.compute_time(name, layer) for checkout in checkouts] for layer in LAYERS}
    for layer, each in sorted(spent.items(), key=lambda item: -item[1][-1]):
        if any(one >= checkout.times[name] / 200 for one, checkout in zip(each, checkouts, strict=True)):
            rows.append([layer, _join_values(each), f"{each[-1] / now.times[name]:.0%}"])
    rows.append(["**all**", _join_values(checkout.times[name] for checkout in checkouts), ""])
    return _format_table(["layer", "µs", "share now" if len(checkouts) > 1 else "share"], rows)


def _format_libraries(checkouts: list[Checkout]) -> str:
    """Return the table of instructions by library."""
    libraries = dict.fromkeys(
        library
        for checkout in checkouts
        for each in checkout.unit_counts.values()
        for library in each.libraries
    )
    rows = []
    for name in PATHS:
        found = [checkout.unit_counts[name] for checkout in checkouts if name in checkout.unit_counts]
        shares = [
            [each.libraries.get(library, 0) / each.instructions for each in found] for library in libraries
        ]
        rows.append([name, *map(_join_percents, shares)])
    return _format_table(["", *libraries], rows)


def _join_values(values: Iterable[float | None]) -> str:
    return " → ".join("?" if value is None else _format_number(value) for value in values)


def _join_percents(values: Iterable[float]) -> str:
    return " → ".join(f"{value:.0%}" for value in values)


def _format_number(value: float) -> str:
    """Format a number without decimals from 100, with one from 1, and with two significant digits below."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"  # noqa: PLR2004


def _format_table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(arguments: list[str]) -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="an older checkout to measure beside this one"
    )
    options: Any = parser.parse_args(arguments)
    trees = [None] if options.against is None else [options.against, None]
    checkouts = measure_checkouts(trees)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(format_page(checkouts[-1], checkouts[0] if len(checkouts) > 1 else None))


if __name__ == "__main__":
    main(sys.argv[1:])
