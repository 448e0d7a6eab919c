"""What was found: as data, as tables, and as ratios to print. The data is the truth; the rest is made of it.

Each suite has a place of its own in the data, so that a run of some suites leaves the others' figures alone.
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
"""In the order in which they run and are shown."""
DATA, TABLE = "results.json", "results.md"
PACKAGES = ("toolwire", "claude-agent-sdk", "mcp", "fastmcp", "uvloop")
Found = dict[str, Any]
"""`machine`, and by suite: rows, targets, curves."""


def read(out: Path) -> Found:
    """What is there so far."""
    file = out / DATA
    return dict(json.loads(file.read_text())) if file.exists() else {"machine": machine(), "suites": {}}


def add(out: Path, suite: str, bench: Bench, load: tuple[float, float]) -> None:
    """Put in what one suite found, in place of what it found before."""
    found = merged(read(out), suite, bench, load)
    out.mkdir(parents=True, exist_ok=True)
    (out / DATA).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    (out / TABLE).write_text(tables(found))


def merged(found: Found, suite: str, bench: Bench, load: tuple[float, float]) -> Found:
    figures = {
        "machine": machine(),
        "quick": bench.quick,
        "load": [round(each, 2) for each in load],
        "targets": [each.as_json() for each in bench.targets],
        "curves": [each.as_json() for each in bench.curves],
        "rows": [each.as_json() for each in bench.rows],
    }
    suites = {**found["suites"], suite: figures}
    return {"machine": machine(), "suites": {name: suites[name] for name in SUITES if name in suites}}


def machine() -> dict[str, Any]:
    """What the figures depend on, and nothing that tells whose machine it is."""
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "versions": {name: version(name) for name in PACKAGES},
    }


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def curves(found: Found) -> list[dict[str, Any]]:
    return [curve for each in found["suites"].values() for curve in each["curves"]]


def slug(name: str) -> str:
    """A name as a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


# Tables.


def tables(found: Found) -> str:
    """The whole of it in Markdown."""
    about = found["machine"]
    parts = [
        "# Results",
        "Made by `make bench`; [what is measured and how](README.md). Times are this machine's; ratios tell more.",
        f"{on(about)}.",
        "## Targets",
        table("what|target|measured|spread|met|note", target_lines(found)),
    ]
    if curves(found):
        parts += ["## Growth", table("curve|should be|exponent|at most|holds|plot", curve_lines(found))]
    for name, suite in found["suites"].items():
        load = " to ".join(f"{each:.2f}" for each in suite["load"])
        quick = " **A quick run: it shows that it works, not how fast it is.**" if suite["quick"] else ""
        head = "case|measure|who|median|spread|to toolwire|to the floor"
        other = (
            ""
            if suite.get("machine", about) == about
            else f" **Of an earlier run, on {on(suite['machine'])}.**"
        )
        parts += [f"## {name}", f"Load average {load}.{quick}{other}", table(head, row_lines(suite["rows"]))]
    return "\n\n".join(parts) + "\n"


def on(about: dict[str, Any]) -> str:
    """What the figures were measured on, and with."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return f"Python {about['python']}, {about['cores']} cores, {about['kernel']}; {versions}"


def table(head: str, lines: Iterator[list[str]]) -> str:
    columns = head.split("|")
    made = [columns, ["---"] * len(columns), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in made)


def target_lines(found: Found) -> Iterator[list[str]]:
    for suite in found["suites"].values():
        for each in suite["targets"]:
            low, high = each["spread"]
            met = "met" if each["met"] else "**missed**"
            limit = f"{each['way']} {number(each['limit'])}"
            spread = f"{number(low)}..{number(high)}"
            yield [each["what"], limit, number(each["measured"]), spread, met, each["note"]]


def curve_lines(found: Found) -> Iterator[list[str]]:
    for each in curves(found):
        holds = "yes" if each["holds"] else "**no**"
        plot = f"[plot]({slug(each['name'])}.svg)"
        most = (1 if each["expected"] == "linear" else 0) + each["slack"]
        yield [each["name"], each["expected"], f"{each['exponent']:.2f}", f"{most:.2f}", holds, plot]


def row_lines(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    """A line for each row; those of one case and measure stand together, and only the first one names them."""
    for (case, measure), group in grouped(rows).items():
        title = [case, measure]
        for who, row in group.items():
            spread = f"{number(row['low'])}..{number(row['high'])}"
            beside = [by(row, group.get(other)) if who != other else "" for other in ("toolwire", "floor")]
            yield [*title, who, f"{number(row['median'])} {row['unit']}".strip(), spread, *beside]
            title = ["", ""]


def grouped(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """Rows by case and measure, then by contender."""
    groups: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["case"], row["measure"]), {})[row["contender"]] = row
    return groups


def by(above: dict[str, Any], below: dict[str, Any] | None) -> str:
    """One by the other: round by round where they have as many."""
    ratio = quotient(above, below)
    return "" if ratio is None else f"{number(ratio)}x"


def quotient(above: dict[str, Any], below: dict[str, Any] | None) -> float | None:
    if below is None or not all(below["values"]):
        return None
    if len(above["values"]) != len(below["values"]):
        return float(above["median"] / below["median"])
    return statistics.median(float(a / b) for a, b in zip(above["values"], below["values"], strict=True))


def number(value: float) -> str:
    """Three digits that count."""
    if value == 0 or abs(value) >= 100:  # noqa: PLR2004
        return f"{value:,.0f}"
    return f"{value:.3g}"


# Ratios, for the terminal.


def ratios(found: Found) -> str:
    """Targets, then what each contender needs or does against toolwire."""
    lines = ["Targets"]
    for what, limit, value, spread, met, note in target_lines(found):
        verdict = met.strip("*")
        lines.append(f"  {verdict:7} {what}: {value} ({spread}), {limit}" + (f"; {note}" if note else ""))
    bent = [each["name"] for each in curves(found) if not each["holds"]]
    kept = len(curves(found)) - len(bent)
    lines.append(f"Curves: {kept} as expected" + (f", not: {', '.join(bent)}" if bent else ""))
    for name, suite in found["suites"].items():
        lines.append(f"{name}, against toolwire")
        for (case, measure), group in grouped(suite["rows"]).items():
            beside = [
                f"{who} {by(row, group.get('toolwire'))}" for who, row in group.items() if who != "toolwire"
            ]
            if "toolwire" in group and beside:
                lines.append(f"  {case}, {measure}: {', '.join(beside)}")
    return "\n".join(lines) + "\n"
