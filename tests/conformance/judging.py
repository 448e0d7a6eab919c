"""Judges the results of a conformance suite: which checks count, and what is wrong.

Does no I/O: it gets what the suite listed and wrote, and returns a verdict. The suite's own summary is not used,
because it also ticks scenarios in which nothing was checked.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PASSED = "SUCCESS"
SCORED = frozenset({PASSED, "FAILURE", "WARNING"})
UNSCORED = frozenset({"INFO", "SKIPPED"})
MEANT_TO_FAIL = "tools-call-error"

_SCENARIO = re.compile(r"^\s+- (?P<name>\S+)(?: \[(?P<note>[^\]]*)\])?$")
_REASON = re.compile(r"^  (?P<reason>[a-z-]+) \(\d+\):$")


@dataclass(frozen=True)
class Suite:
    """One suite, and the exceptions that we make for it."""

    name: str
    package: str
    """The folder in `node_modules`."""
    listing: tuple[str, ...]
    """Arguments that list the scenarios."""
    running: tuple[str, ...]
    """Arguments that run them."""
    decided_against: Mapping[str, str] = field(default_factory=dict)
    """`scenario:check` to the reason why we do not do what it wants."""
    without_checks: Mapping[str, str] = field(default_factory=dict)
    """Scenarios that have no scored check on a server like ours, and why."""


@dataclass(frozen=True)
class Row:
    """The result of one check."""

    scenario: str
    check: str
    name: str
    status: str
    message: str = ""
    hollow: bool = False
    """Whether a tool failed on the way: several checks are content with any result."""

    @property
    def key(self) -> str:
        """The check's name in `decided_against`."""
        return f"{self.scenario}:{self.check}"


@dataclass
class Verdict:
    """The checks, the problems, and the number of checks by status."""

    rows: list[Row]
    problems: list[str]
    totals: Counter[str]

    def table(self) -> str:
        """Return a table with a line for each check, and the sums."""
        widths = [
            max((len(text) for text in column), default=0) for column in zip(*self._cells(), strict=True)
        ]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
            for cells in self._cells()
        ]
        return "\n".join([*lines, "", self.sums()])

    def sums(self) -> str:
        """Return the totals in one line."""
        scored = sum(self.totals[status] for status in SCORED)
        rest = ", ".join(
            f"{self.totals[status]} {status}" for status in sorted(self.totals) if status != PASSED
        )
        scenarios = len({row.scenario for row in self.rows})
        return f"{self.totals[PASSED]} of {scored} scored checks passed in {scenarios} scenarios" + (
            f" ({rest})" if rest else ""
        )

    def _cells(self) -> list[tuple[str, str, str]]:
        head = ("SCENARIO", "CHECK", "STATUS")
        return [head, *((row.scenario, f"{row.check} ({row.name})", row.status) for row in self.rows)]


def scenarios(listing: str) -> list[str]:
    """Return the server scenarios of a listing, without those of extensions."""
    found: list[str] = []
    section = ""
    for line in listing.splitlines():
        if reason := _REASON.match(line):
            section = reason["reason"]
        elif not line.startswith(" ") and line:
            section = "server" if line.startswith("Server scenarios") else "other"
        elif match := _SCENARIO.match(line):
            note = match["note"] or ""
            if section == "server" or (section not in ("other", "extension") and note == "server"):
                found += [match["name"]] if note != "extension" else []
    return found


def judge(suite: Suite, expected: Iterable[str], results: Mapping[str, list[dict[str, Any]]]) -> Verdict:
    """Judge the results, by scenario, of the scenarios that were expected to run."""
    expected = list(expected)
    rows = [_row(name, check) for name in expected for check in results.get(name, [])]
    problems = [] if expected else ["the suite lists no scenario"]
    problems += [f"{name}: did not run" for name in expected if name not in results]
    problems += _empty(suite, [name for name in expected if name in results], rows)
    problems += _failed(suite, rows)
    problems += _stale(suite, rows)
    problems += [
        f"{row.key} ({row.name}): passed on a tool's error"
        for row in rows
        if row.hollow and row.status == PASSED
    ]
    return Verdict(rows, problems, Counter(row.status for row in rows))


def _row(scenario: str, check: dict[str, Any]) -> Row:
    hollow = scenario != MEANT_TO_FAIL and _tool_failed(check.get("details"))
    message = check.get("errorMessage") or ""
    return Row(scenario, check["id"], check.get("name", ""), check["status"], message, hollow)


def _tool_failed(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("isError") is True or any(map(_tool_failed, value.values()))
    return isinstance(value, list) and any(map(_tool_failed, value))


def _empty(suite: Suite, ran: list[str], rows: list[Row]) -> list[str]:
    scored = {row.scenario for row in rows if row.status in SCORED}
    missing = [
        f"{name}: has no scored check" for name in ran if name not in scored | set(suite.without_checks)
    ]
    known = set(suite.without_checks) & (scored | (set(suite.without_checks) - set(ran)))
    return missing + [f"{name}: said to have no scored check, which is not so" for name in sorted(known)]


def _failed(suite: Suite, rows: list[Row]) -> list[str]:
    return [
        f"{row.key} ({row.name}): {row.status} {row.message}".rstrip()
        for row in rows
        if row.status != PASSED and row.status not in UNSCORED and row.key not in suite.decided_against
    ]


def _stale(suite: Suite, rows: list[Row]) -> list[str]:
    """Return the decisions against a check that passes, or was not made."""
    failing = {row.key for row in rows if row.status in SCORED - {PASSED}}
    seen = {row.key for row in rows}
    return [
        f"{key}: decided against, but it {'passes' if key in seen else 'was not checked'}"
        for key in sorted(set(suite.decided_against) - failing)
    ]
