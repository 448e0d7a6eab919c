"""Profiles of the hot paths as a page, `python -m benchmarks.profiles [--against DIR]`.

With `--against`, an older checkout is measured in the same run and stands beside this one.
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
from benchmarks.work_callgrind import Stretch
from benchmarks.work_fresh import fresh
from benchmarks.work_paths import PATHS
from benchmarks.work_sampled import LAYERS

PAGE = HERE.parent / "docs" / "benchmarks" / "profiles.md"
ROUNDS = 2
_HEAD = """\
# Where the work goes

Our own hot paths, one unit of each (a call, a message, a question), in one process: the library is fed with the
bytes that the CLI would send, so pipes and the other side are not in here. Made by `python -m benchmarks.profiles`.

- **Microseconds** are CPU time, the least of many repeats. They are this machine's; the ratios matter.
- **Instructions** and **allocations** (calls of an allocator) are counted by callgrind, **turns** of the event
  loop, **callbacks** put on it and Python **functions** entered by the loop and the interpreter. `make work` guards
  them all.
- **Layers**: a signal stops the program some 5,000 times a second, and the innermost Python frame of a known layer
  gets the sample; what it calls in C (orjson, pydantic-core) or in the standard library is its own. The shares are
  then those of the microseconds. A signal is seen at the next call or return, so a share can be off by a point or
  two, and the C part of asyncio counts in part as the coroutine that it resumes. Waiting for a worker thread counts
  as event loop.
- **Whose machine code**: the same instructions by library, exactly. CPython is the interpreter and its objects,
  that is, all code written in Python: ours, asyncio's, anyio's.
"""


@dataclass
class Side:
    """One checkout, measured."""

    times: dict[str, float] = field(default_factory=dict)
    layers: dict[str, Counter[str]] = field(default_factory=dict)
    counts: work.Table = field(default_factory=dict)
    stretches: dict[str, Stretch] = field(default_factory=dict)

    def sample(self, tree: Path | None) -> None:
        """One more round of times and samples."""
        with fresh("work_sampled", tree=tree) as (printed, _folder):
            for name, seen in json.loads(printed).items():
                self.times[name] = min(self.times.get(name, float("inf")), seen["microseconds"])
                self.layers.setdefault(name, Counter()).update(seen["layers"])

    def spent(self, name: str, layer: str) -> float:
        """Microseconds of a path in a layer."""
        samples = self.layers[name]
        return self.times[name] * samples[layer] / max(1, samples.total())


def measured(trees: Iterable[Path | None]) -> list[Side]:
    """All checkouts, in turn, so that what the machine does it does to all."""
    sides = [(tree, Side()) for tree in trees]
    for number in range(ROUNDS):
        for place, (tree, side) in enumerate(sides):
            say(f"samples of checkout {place + 1}, round {number + 1}")
            side.sample(tree)
    for place, (tree, side) in enumerate(sides):
        say(f"counts of checkout {place + 1}")
        side.counts = work.counts(tree)
        if work_callgrind.missing() is None:
            side.stretches = work_callgrind.stretches(tree=tree)
    return [side for _tree, side in sides]


def page(now: Side, before: Side | None) -> str:
    """The whole page. Times and counts of `before` stand in front of those of `now`."""
    sides = [now] if before is None else [before, now]
    parts = [_HEAD]
    if before is not None:
        parts.append("Each cell is *before* → *now*.\n")
    parts.append(_summary(sides))
    seen = [name for name in PATHS if name in now.times]
    parts += [f"## {name[0].upper()}{name[1:]}\n\n{_layers(name, sides)}" for name in seen]
    if now.stretches:
        parts.append(f"## Whose machine code\n\nShare of the instructions of one unit.\n\n{_homes(sides)}")
    return "\n".join(parts)


def _summary(sides: list[Side]) -> str:
    rows = []
    for name in PATHS:
        counts = [side.counts.get(name, {}) for side in sides]
        found = [side.stretches.get(name) for side in sides]
        cells = [name, _beside(side.times.get(name) for side in sides)]
        cells += [_beside(each and each.instructions for each in found)]
        cells += [_beside(each and each.allocations for each in found)]
        cells += [
            _beside(each.get(measure) for each in counts) for measure in ("turns", "callbacks", "calls")
        ]
        rows.append(cells)
    return _table(["", "µs", "instructions", "allocations", "turns", "callbacks", "functions"], rows)


def _layers(name: str, sides: list[Side]) -> str:
    sides = [side for side in sides if name in side.times]
    now, rows = sides[-1], []
    spent = {layer: [side.spent(name, layer) for side in sides] for layer in LAYERS}
    for layer, each in sorted(spent.items(), key=lambda item: -item[1][-1]):
        if any(one >= side.times[name] / 200 for one, side in zip(each, sides, strict=True)):
            rows.append([layer, _beside(each), f"{each[-1] / now.times[name]:.0%}"])
    rows.append(["**all**", _beside(side.times[name] for side in sides), ""])
    return _table(["layer", "µs", "share now" if len(sides) > 1 else "share"], rows)


def _homes(sides: list[Side]) -> str:
    homes = dict.fromkeys(home for side in sides for each in side.stretches.values() for home in each.homes)
    rows = []
    for name in PATHS:
        found = [side.stretches[name] for side in sides if name in side.stretches]
        shares = [[each.homes.get(home, 0) / each.instructions for each in found] for home in homes]
        rows.append([name, *map(_percents, shares)])
    return _table(["", *homes], rows)


def _beside(values: Iterable[float | None]) -> str:
    return " → ".join("?" if value is None else _number(value) for value in values)


def _percents(values: Iterable[float]) -> str:
    return " → ".join(f"{value:.0%}" for value in values)


def _number(value: float) -> str:
    """Three digits, and no more than one behind the point unless it is small."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"  # noqa: PLR2004


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="an older checkout to measure beside this one"
    )
    chosen: Any = parser.parse_args(arguments)
    trees = [None] if chosen.against is None else [chosen.against, None]
    sides = measured(trees)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(sides[-1], sides[0] if len(sides) > 1 else None))


if __name__ == "__main__":
    main(sys.argv[1:])
