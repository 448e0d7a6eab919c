"""What was measured: rows, targets and curves, and the figures that are made of them.

A row has one value a round. Contenders of a case are measured in turn within each round, so a ratio is taken within
a round too: what the machine did then, it did to both.
"""

import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Measured = Mapping[str, float]
"""What one turn of one contender gave: a figure for each measure."""
Turn = Callable[[], Measured]
Way = Literal["at least", "at most"]
Order = Literal["constant", "linear"]


@dataclass
class Row:
    """One figure of one contender, as it came out in each round."""

    suite: str
    case: str
    measure: str
    unit: str
    contender: str
    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "median": self.median, "low": min(self.values), "high": max(self.values)}


@dataclass
class Target:
    """What was promised, and what came out."""

    what: str
    way: Way
    limit: float
    measured: float
    spread: tuple[float, float]
    note: str = ""

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.way == "at least" else self.measured <= self.limit

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


@dataclass
class Curve:
    """How a cost grows, and how it should."""

    name: str
    x: str
    y: str
    expected: Order
    series: dict[str, list[tuple[float, float]]]
    """Points by contender."""
    judged: str
    """Whose growth is checked."""
    slack: float = 0.15
    """How far the exponent may be from what is expected."""
    note: str = ""

    @property
    def exponent(self) -> float:
        """The slope on two logarithmic axes over the upper half of the points, where fixed costs weigh less."""
        points = self.series[self.judged]
        upper = points[len(points) // 2 :] if self.expected == "linear" else points
        if len(upper) < 2:  # noqa: PLR2004
            upper = points
        xs, ys = zip(*((math.log(x), math.log(max(y, 1e-12))) for x, y in upper), strict=True)
        return statistics.linear_regression(xs, ys).slope

    @property
    def holds(self) -> bool:
        """A constant must not grow, a line must not bend up; growing slower than expected is fine."""
        return self.exponent <= (1 if self.expected == "linear" else 0) + self.slack

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "exponent": self.exponent, "holds": self.holds}


@dataclass
class Bench:
    """One run of the benchmarks: suites put in what they measure."""

    quick: bool = False
    """Fewer rounds and counts: to see that it works, not to publish."""
    rows: list[Row] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def rounds(self, usual: int) -> int:
        return 1 if self.quick else usual

    def count(self, usual: int) -> int:
        """How often to repeat something within a turn."""
        return max(2, usual // 40) if self.quick else usual

    def compare(
        self,
        suite: str,
        case: str,
        contenders: Mapping[str, Turn],
        units: Mapping[str, str],
        *,
        rounds: int = 5,
    ) -> None:
        """Measure all contenders of a case, in turn, `rounds` times; each round begins with another one."""
        turns = {name: (lambda turn=turn: {case: turn()}) for name, turn in contenders.items()}
        self.compare_cases(suite, case, turns, units, rounds=rounds)

    def compare_cases(
        self,
        suite: str,
        label: str,
        contenders: Mapping[str, Callable[[], Mapping[str, Measured]]],
        units: Mapping[str, str],
        *,
        rounds: int = 5,
    ) -> None:
        """The same where one turn gives the figures of several cases, by the name of the case."""
        found: dict[tuple[str, str, str], list[float]] = {}
        names = list(contenders)
        for number in range(self.rounds(rounds)):
            turned = names[number % len(names) :] + names[: number % len(names)]
            for name in turned:
                say(f"{suite}: {label}: {name}, round {number + 1}")
                for case, figures in contenders[name]().items():
                    for measure, value in figures.items():
                        found.setdefault((case, measure, name), []).append(value)
        for (case, measure, name), values in found.items():
            self.rows.append(Row(suite, case, measure, units[measure], name, values))

    def row(self, suite: str, case: str, measure: str, contender: str) -> Row:
        wanted = (suite, case, measure, contender)
        return next(row for row in self.rows if (row.suite, row.case, row.measure, row.contender) == wanted)

    def ratios(self, above: Row, below: Row) -> list[float]:
        """Round by round, one figure by the other."""
        return [a / b for a, b in zip(above.values, below.values, strict=True)]

    def target(self, what: str, way: Way, limit: float, ratios: Sequence[float], note: str = "") -> None:
        """Set what came out beside what was promised: the median over the rounds."""
        spread = (min(ratios), max(ratios))
        self.targets.append(Target(what, way, limit, statistics.median(ratios), spread, note))


def say(text: str) -> None:
    """Progress, on the error output; one line that is written over on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text[:110]}")
        sys.stderr.flush()
    else:
        sys.stderr.write(text + "\n")
