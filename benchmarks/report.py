"""Writes the results of the suites as JSON and as Markdown tables, and formats ratios for the terminal.

The JSON file is the source of everything else. Each suite has its own entry in it, so that a run of some suites
does not change the results of the others.
"""

import importlib.metadata
import json
import os
import platform
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.results import Bench

SUITES = (
    "calls",
    "stream",
    "growth",
    "imports",
    "real",
    "sessions",
    "history",
    "served",
    "catalogue",
    "openapi",
    "starvation",
    "stores",
)
"""The suites, in the order in which they run and are shown."""
DATA, TABLE = "results.json", "results.md"
PACKAGES = ("toolwire", "claude-agent-sdk", "mcp", "fastmcp", "uvloop")
Results = dict[str, Any]
"""The content of results.json: `machine`, and `suites` with rows, targets and curves of each suite."""


def read(out: Path) -> Results:
    """Return the results that `out` contains so far."""
    file = out / DATA
    return (
        dict(json.loads(file.read_text())) if file.exists() else {"machine": describe_machine(), "suites": {}}
    )


def add(out: Path, suite: str, bench: Bench, load: tuple[float, float]) -> None:
    """Write the results of one suite to `out`, replacing its earlier ones."""
    found = merge(read(out), suite, bench, load)
    out.mkdir(parents=True, exist_ok=True)
    (out / DATA).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    (out / TABLE).write_text(format_page(found))


def merge(found: Results, suite: str, bench: Bench, load: tuple[float, float]) -> Results:
    """Return `found` with the results of one suite added or replaced, in the order of `SUITES`."""
    figures = {
        "machine": describe_machine(),
        "quick": bench.quick,
        "load": [round(each, 2) for each in load],
        "targets": [each.to_json() for each in bench.targets],
        "curves": [each.to_json() for each in bench.curves],
        "rows": [each.to_json() for each in bench.rows],
    }
    suites = {**found["suites"], suite: figures}
    return {
        "machine": describe_machine(),
        "suites": {name: suites[name] for name in SUITES if name in suites},
    }


def describe_machine() -> dict[str, Any]:
    """Return what the results depend on: versions, cores, kernel. Nothing in it identifies the machine."""
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "versions": {name: find_version(name) for name in PACKAGES},
    }


def find_version(package: str) -> str:
    """Return the installed version of a package, or "not installed"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def list_curves(found: Results) -> list[dict[str, Any]]:
    """Return the curves of all suites."""
    return [curve for each in found["suites"].values() for curve in each["curves"]]


def make_slug(name: str) -> str:
    """Turn the name of a curve into a file name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


# Tables.


def format_page(found: Results) -> str:
    """Return the whole page of results as Markdown."""
    about = found["machine"]
    parts = [
        "# Results",
        "Made by `make bench`; [what is measured and how](README.md). Times are this machine's; ratios tell more.",
        f"{format_machine(about)}.",
        "## Targets",
        format_table("what|target|measured|spread|met|note", build_target_rows(found)),
    ]
    if list_curves(found):
        parts += [
            "## Growth",
            format_table("curve|should be|exponent|at most|holds|plot", build_curve_rows(found)),
        ]
    for name, suite in found["suites"].items():
        load = " to ".join(f"{each:.2f}" for each in suite["load"])
        quick = " **A quick run: it shows that it works, not how fast it is.**" if suite["quick"] else ""
        head = "case|measure|who|median|spread|to toolwire|to the floor"
        other = (
            ""
            if suite.get("machine", about) == about
            else f" **Of an earlier run, on {format_machine(suite['machine'])}.**"
        )
        parts += [
            f"## {name}",
            f"Load average {load}.{quick}{other}",
            format_table(head, build_result_rows(suite["rows"])),
        ]
    return "\n\n".join(parts) + "\n"


def format_machine(about: dict[str, Any]) -> str:
    """Describe the machine and the versions that results were measured with."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return f"Python {about['python']}, {about['cores']} cores, {about['kernel']}; {versions}"


def format_table(head: str, lines: Iterator[list[str]]) -> str:
    """Return a Markdown table. `head` has the names of the columns, separated by `|`."""
    columns = head.split("|")
    made = [columns, ["---"] * len(columns), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in made)


def build_target_rows(found: Results) -> Iterator[list[str]]:
    """Yield a row for each target of all suites."""
    for suite in found["suites"].values():
        for each in suite["targets"]:
            low, high = each["spread"]
            met = "met" if each["met"] else "**missed**"
            limit = f"{each['way']} {format_number(each['limit'])}"
            spread = f"{format_number(low)}..{format_number(high)}"
            yield [each["what"], limit, format_number(each["measured"]), spread, met, each["note"]]


def build_curve_rows(found: Results) -> Iterator[list[str]]:
    """Yield a row for each curve of all suites."""
    for each in list_curves(found):
        holds = "yes" if each["holds"] else "**no**"
        plot = f"[plot]({make_slug(each['name'])}.svg)"
        most = (1 if each["expected"] == "linear" else 0) + each["slack"]
        yield [each["name"], each["expected"], f"{each['exponent']:.2f}", f"{most:.2f}", holds, plot]


def build_result_rows(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield a row for each result, grouped by case and measure; only the first row of a group names them."""
    for (case, measure), group in group_rows(rows).items():
        title = [case, measure]
        for who, row in group.items():
            spread = f"{format_number(row['low'])}..{format_number(row['high'])}"
            beside = [
                format_ratio(row, group.get(other)) if who != other else "" for other in ("toolwire", "floor")
            ]
            yield [*title, who, f"{format_number(row['median'])} {row['unit']}".strip(), spread, *beside]
            title = ["", ""]


def group_rows(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """Group rows by case and measure, then by contender."""
    groups: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["case"], row["measure"]), {})[row["contender"]] = row
    return groups


def format_ratio(above: dict[str, Any], below: dict[str, Any] | None) -> str:
    """Format the ratio of two rows, such as "2.5x"; empty if it cannot be computed."""
    ratio = compute_ratio(above, below)
    return "" if ratio is None else f"{format_number(ratio)}x"


def compute_ratio(above: dict[str, Any], below: dict[str, Any] | None) -> float | None:
    """Return the ratio of two rows, or None without a row or with a zero to divide by.

    It is the median over the rounds, or the ratio of the medians if the numbers of rounds differ.
    """
    if below is None or not all(below["values"]):
        return None
    if len(above["values"]) != len(below["values"]):
        return float(above["median"] / below["median"])
    return statistics.median(float(a / b) for a, b in zip(above["values"], below["values"], strict=True))


def format_number(value: float) -> str:
    """Format a number with three significant digits."""
    if value == 0 or abs(value) >= 100:  # noqa: PLR2004
        return f"{value:,.0f}"
    return f"{value:.3g}"


# Ratios for the terminal.


def format_ratios(found: Results) -> str:
    """Return the targets, and the ratio of each contender's figures to toolwire's, as text for the terminal."""
    lines = ["Targets"]
    for what, limit, value, spread, met, note in build_target_rows(found):
        verdict = met.strip("*")
        lines.append(f"  {verdict:7} {what}: {value} ({spread}), {limit}" + (f"; {note}" if note else ""))
    bent = [each["name"] for each in list_curves(found) if not each["holds"]]
    kept = len(list_curves(found)) - len(bent)
    lines.append(f"Curves: {kept} as expected" + (f", not: {', '.join(bent)}" if bent else ""))
    for name, suite in found["suites"].items():
        lines.append(f"{name}, relative to toolwire")
        for (case, measure), group in group_rows(suite["rows"]).items():
            beside = [
                f"{who} {format_ratio(row, group.get('toolwire'))}"
                for who, row in group.items()
                if who != "toolwire"
            ]
            if "toolwire" in group and beside:
                lines.append(f"  {case}, {measure}: {', '.join(beside)}")
    return "\n".join(lines) + "\n"
