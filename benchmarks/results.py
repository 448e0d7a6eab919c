"""The results of a suite: rows, targets and curves, and the figures derived from them.

A row has one value per round. The contenders of a case are measured one after the other within each round, and a
ratio is taken within a round too, so that other load on the machine affects both sides.
"""

import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Figures = Mapping[str, float]
"""The result of one turn of one contender: a value for each measure."""
Turn = Callable[[], Figures]
"""Measures one contender once."""
Way = Literal["at least", "at most"]
Order = Literal["constant", "linear"]


@dataclass
class Row:
    """One measure of one contender, with its value in each round."""

    suite: str
    case: str
    measure: str
    unit: str
    contender: str
    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "median": self.median, "low": min(self.values), "high": max(self.values)}


@dataclass
class Target:
    """A limit that a measurement should keep to, and what was measured."""

    what: str
    way: Way
    limit: float
    measured: float
    spread: tuple[float, float]
    note: str = ""

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.way == "at least" else self.measured <= self.limit

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


@dataclass
class Curve:
    """How a cost grows with a size, and how it is expected to grow."""

    name: str
    x: str
    y: str
    expected: Order
    series: dict[str, list[tuple[float, float]]]
    """The points of each contender."""
    judged: str
    """The contender whose growth is checked."""
    slack: float = 0.15
    """By how much the exponent may exceed the expected one."""
    note: str = ""

    @property
    def exponent(self) -> float:
        """The slope on two logarithmic axes.

        For a linear curve it is taken over the upper half of the points, where fixed costs matter less.
        """
        points = self.series[self.judged]
        upper = points[len(points) // 2 :] if self.expected == "linear" else points
        if len(upper) < 2:  # noqa: PLR2004
            upper = points
        xs, ys = zip(*((math.log(x), math.log(max(y, 1e-12))) for x, y in upper), strict=True)
        return statistics.linear_regression(xs, ys).slope

    @property
    def holds(self) -> bool:
        """True if the cost grows no faster than expected; growing slower is fine."""
        return self.exponent <= (1 if self.expected == "linear" else 0) + self.slack

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "exponent": self.exponent, "holds": self.holds}


@dataclass
class Bench:
    """The results of one run of a suite, which adds what it measures."""

    quick: bool = False
    """Fewer rounds and repetitions: to check that a suite works, not to publish its results."""
    rows: list[Row] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def scale_rounds(self, usual: int) -> int:
        """Return the number of rounds: the usual one, or 1 in a quick run."""
        return 1 if self.quick else usual

    def scale(self, usual: int) -> int:
        """Return how often to repeat something within a turn: the usual number, or far fewer in a quick run."""
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
        """Measure all contenders of a case one after the other, `rounds` times.

        Each round begins with a different contender.
        """
        turns = {name: (lambda turn=turn: {case: turn()}) for name, turn in contenders.items()}
        self.compare_cases(suite, case, turns, units, rounds=rounds)

    def compare_cases(
        self,
        suite: str,
        label: str,
        contenders: Mapping[str, Callable[[], Mapping[str, Figures]]],
        units: Mapping[str, str],
        *,
        rounds: int = 5,
    ) -> None:
        """Like `compare`, but a turn measures several cases, and returns figures by the name of the case."""
        found: dict[tuple[str, str, str], list[float]] = {}
        names = list(contenders)
        for number in range(self.scale_rounds(rounds)):
            turned = names[number % len(names) :] + names[: number % len(names)]
            for name in turned:
                say(f"{suite}: {label}: {name}, round {number + 1}")
                for case, figures in contenders[name]().items():
                    for measure, value in figures.items():
                        found.setdefault((case, measure, name), []).append(value)
        for (case, measure, name), values in found.items():
            self.rows.append(Row(suite, case, measure, units[measure], name, values))

    def find_row(self, suite: str, case: str, measure: str, contender: str) -> Row:
        """Return the row of a measure and a contender. Raises StopIteration if it was not measured."""
        wanted = (suite, case, measure, contender)
        return next(row for row in self.rows if (row.suite, row.case, row.measure, row.contender) == wanted)

    def compute_ratios(self, above: Row, below: Row) -> list[float]:
        """Return the ratio `above / below` of each round."""
        return [a / b for a, b in zip(above.values, below.values, strict=True)]

    def add_target(self, what: str, way: Way, limit: float, ratios: Sequence[float], note: str = "") -> None:
        """Add a target, and compare the median of `ratios`, one for each round, with its limit."""
        spread = (min(ratios), max(ratios))
        self.targets.append(Target(what, way, limit, statistics.median(ratios), spread, note))


def say(text: str) -> None:
    """Print progress to stderr; on a terminal each line replaces the previous one."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text[:110]}")
        sys.stderr.flush()
    else:
        sys.stderr.write(text + "\n")
