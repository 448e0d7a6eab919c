"""Writes the results of a soak: as JSON, as a page with tables, and as plots."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import describe_machine, format_machine, format_number, format_table
from benchmarks.soak.load import Times
from benchmarks.soak.watch import MEGABYTE

PAGE, DATA = "soak.md", "soak.json"
LATENCY, MEMORY = "soak-latency.svg", "soak-memory.svg"
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
Results = dict[str, Any]
"""The content of soak.json: `minutes`, `machine`, `load` (averages), `loads` (a report for each load), `flat`
(measures), `series` (memory) and `findings`."""


def write(out: Path, found: Results, *, plots: bool = True) -> None:
    """Write the data, the page and the plots."""
    out.mkdir(parents=True, exist_ok=True)
    found = {"machine": describe_machine(), **found}
    (out / DATA).write_text(json.dumps(found, indent=1) + "\n")
    (out / PAGE).write_text(format_page(found))
    if plots:
        from benchmarks.soak import plots as drawn  # noqa: PLC0415 - matplotlib is installed for `make soak` only

        drawn.draw_latencies(collect_times(found), out / LATENCY)
        drawn.draw_memory(found["series"], out / MEMORY)


def collect_times(found: Results) -> dict[str, Times]:
    """Return the times of all loads, by load and kind of request."""
    return {
        f"{load}: {kind}": Times.from_json(data)
        for load, report in found["loads"].items()
        for kind, data in report["times"].items()
    }


def format_page(found: Results) -> str:
    """Return the whole page as Markdown."""
    load = " to ".join(f"{each:.1f}" for each in found["load"])
    problems = [f"- {each}" for each in found["findings"]]
    minutes = format_number(found["minutes"])
    loads = "sessions, HTTP clients and a catalogue at once, with faults all the time"
    parts = [
        "# Soak",
        f"Made by `make soak` in {minutes} minutes: {loads}; [what is checked](README.md#soak).",
        f"{format_machine(found['machine'])}. Load average {load}, so times are those of a busy machine.",
        "## Nothing lost",
        format_table(
            "load|requests|answered rightly|ended as provoked|wrong|lost", build_outcome_rows(found)
        ),
        "Ended as provoked:",
        format_table("load|end|times", build_provoked_rows(found)),
        *format_books(found),
        "## Nothing leaked",
        "Medians of the second and the last quarter of the time, each second one sample.",
        format_table("process|measure|second quarter|last quarter|flat", build_flat_rows(found)),
        f"![Memory over time]({MEMORY})",
        "## Tail latency",
        "In milliseconds; nothing is asserted on these. A session is a whole conversation, from start to end.",
        format_table("load|request|count|p50|p90|p99|max", build_latency_rows(found)),
        f"![Latency by percentile]({LATENCY})",
        "## Findings",
        "\n".join(problems) or "None.",
    ]
    return "\n\n".join(parts) + "\n"


def build_outcome_rows(found: Results) -> Iterator[list[str]]:
    """Yield a row for each load: how many requests there were, and how they ended."""
    for load, report in found["loads"].items():
        expected = sum(report["expected"].values())
        lost = report["begun"] - report["answered"] - expected - report["wrong"]
        yield [
            load,
            *(f"{each:,}" for each in (report["begun"], report["answered"], expected, report["wrong"], lost)),
        ]


def build_provoked_rows(found: Results) -> Iterator[list[str]]:
    """Yield a row for each kind of end that a load provoked."""
    for load, report in found["loads"].items():
        for end, count in report["expected"].items():
            yield [load, end, f"{count:,}"]


def format_books(found: Results) -> Iterator[str]:
    """Yield a paragraph with the totals of the catalogue's books, and one with the tally of the server's tools."""
    for report in found["loads"].values():
        if "books" in report:
            figures = ", ".join(f"{name} {format_number(value)}" for name, value in report["books"].items())
            agree = "" if report["findings"] else " The API's book, the ledger and the callers agree."
            yield f"Books of the catalogue (dollars): {figures}.{agree}"
        if "server" in report:
            figures = ", ".join(
                f"{name.replace('_', ' ')} {format_number(value)}" for name, value in report["server"].items()
            )
            yield f"Tally of the server's tools: {figures}."


def build_flat_rows(found: Results) -> Iterator[list[str]]:
    """Yield a row for each process and measure: its medians, and whether it is flat."""
    for each in found["flat"]:
        scale, unit = (MEGABYTE, " MB") if each["measure"] == "memory" else (1, "")
        shown = [f"{format_number(each[when] / scale)}{unit}" for when in ("second quarter", "last quarter")]
        yield [each["process"], each["measure"], *shown, "yes" if each["flat"] else "**no**"]


def build_latency_rows(found: Results) -> Iterator[list[str]]:
    """Yield a row with the latency percentiles of each kind of request."""
    for name, times in collect_times(found).items():
        load, _, kind = name.partition(": ")
        values = [*(times.compute_percentile(share) for share in SHARES.values()), times.longest]
        yield [load, kind, f"{times.count:,}", *(format_number(each * 1000) for each in values)]
