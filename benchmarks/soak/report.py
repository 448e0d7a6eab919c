"""What a soak found: as data, as a page with tables, and as plots."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import machine, number, on, table
from benchmarks.soak.load import Times
from benchmarks.soak.watch import MEGABYTE

PAGE, DATA = "soak.md", "soak.json"
LATENCY, MEMORY = "soak-latency.svg", "soak-memory.svg"
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
Found = dict[str, Any]
"""`minutes`, `machine`, `load`, `loads` (reports by load), `flat` (measures), `series` (memory), `findings`."""


def write(out: Path, found: Found, *, plots: bool = True) -> None:
    """Write the data, the page and the plots."""
    out.mkdir(parents=True, exist_ok=True)
    found = {"machine": machine(), **found}
    (out / DATA).write_text(json.dumps(found, indent=1) + "\n")
    (out / PAGE).write_text(page(found))
    if plots:
        from benchmarks.soak import plots as drawn  # noqa: PLC0415 - matplotlib is there for `make soak` only

        drawn.draw_latencies(times_of(found), out / LATENCY)
        drawn.draw_memory(found["series"], out / MEMORY)


def times_of(found: Found) -> dict[str, Times]:
    """Times by kind of request, over all loads."""
    return {
        f"{load}: {kind}": Times.from_json(data)
        for load, report in found["loads"].items()
        for kind, data in report["times"].items()
    }


def page(found: Found) -> str:
    """The whole of it in Markdown."""
    load = " to ".join(f"{each:.1f}" for each in found["load"])
    problems = [f"- {each}" for each in found["findings"]]
    loads = "sessions, HTTP clients and a catalogue at once, with faults all the time"
    parts = [
        "# Soak",
        f"Made by `make soak` in {number(found['minutes'])} minutes: {loads}; [what is checked](README.md#soak).",
        f"{on(found['machine'])}. Load average {load}, so times are those of a busy machine.",
        "## Nothing lost",
        table("load|requests|answered rightly|ended as provoked|wrong|lost", outcome_lines(found)),
        "Ended as provoked:",
        table("load|end|times", provoked_lines(found)),
        *books(found),
        "## Nothing leaked",
        "Medians of the second and the last quarter of the time, each second one sample.",
        table("process|measure|second quarter|last quarter|flat", flat_lines(found)),
        f"![Memory over time]({MEMORY})",
        "## Tail latency",
        "In milliseconds; nothing is asserted on these. A session is a whole conversation, from start to end.",
        table("load|request|count|p50|p90|p99|max", latency_lines(found)),
        f"![Latency by percentile]({LATENCY})",
        "## Findings",
        "\n".join(problems) or "None.",
    ]
    return "\n\n".join(parts) + "\n"


def outcome_lines(found: Found) -> Iterator[list[str]]:
    for load, report in found["loads"].items():
        expected = sum(report["expected"].values())
        lost = report["begun"] - report["answered"] - expected - report["wrong"]
        yield [
            load,
            *(f"{each:,}" for each in (report["begun"], report["answered"], expected, report["wrong"], lost)),
        ]


def provoked_lines(found: Found) -> Iterator[list[str]]:
    for load, report in found["loads"].items():
        for end, count in report["expected"].items():
            yield [load, end, f"{count:,}"]


def books(found: Found) -> Iterator[str]:
    """What the books of the catalogue and the server's own tally say."""
    for report in found["loads"].values():
        if "books" in report:
            said = ", ".join(f"{name} {number(value)}" for name, value in report["books"].items())
            agree = "" if report["findings"] else " The API's book, the ledger and the callers agree."
            yield f"Books of the catalogue (dollars): {said}.{agree}"
        if "server" in report:
            said = ", ".join(
                f"{name.replace('_', ' ')} {number(value)}" for name, value in report["server"].items()
            )
            yield f"Tally of the server's tools: {said}."


def flat_lines(found: Found) -> Iterator[list[str]]:
    for each in found["flat"]:
        scale, unit = (MEGABYTE, " MB") if each["measure"] == "memory" else (1, "")
        shown = [f"{number(each[when] / scale)}{unit}" for when in ("second quarter", "last quarter")]
        yield [each["process"], each["measure"], *shown, "yes" if each["flat"] else "**no**"]


def latency_lines(found: Found) -> Iterator[list[str]]:
    for name, times in times_of(found).items():
        load, _, kind = name.partition(": ")
        values = [*(times.percentile(share) for share in SHARES.values()), times.longest]
        yield [load, kind, f"{times.count:,}", *(number(each * 1000) for each in values)]
