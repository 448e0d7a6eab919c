"""The real CLI with a scripted model: how long a user waits for one prompt with one tool call, cold and warm.

Both start the same CLI, with the same options. The official SDK has no `startup()`; its best when warm is a client
that was connected before.
"""

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.processes import SDKS
from benchmarks.results import Bench, Measured
from benchmarks.scripted import conversed
from toolwire._transport.find_cli import bundled_cli

SUITE = "real"
UNITS = dict.fromkeys(
    (
        "start to result",
        "import to result",
        "import to first message",
        "prompt to first message",
        "prompt to first words",
        "prompt to result",
    ),
    "ms",
)
COLD, WARM = "cold, one-shot query()", "warm: startup(), or a connected client"
ROUNDS = 12


def span(seen: dict[str, Any], begin: str, end: str) -> float:
    """Milliseconds between two moments."""
    return float(seen[end] - seen[begin]) / 1e6


def turn(sdk: str, cli: str) -> Mapping[str, Measured]:
    """A cold conversation and a warm one, each in a process of its own."""
    cold = conversed("drive_real", sdk, cli=cli, way="query")
    warm = conversed("drive_real", sdk, cli=cli, way="warm")
    asked = {
        COLD: {
            "start to result": span(cold, "begun", "result"),
            "import to result": span(cold, "inside", "result"),
            "import to first message": span(cold, "inside", "first"),
        },
        WARM: {},
    }
    for case, seen in ((COLD, cold), (WARM, warm)):
        asked[case]["prompt to first message"] = span(seen, "asked", "first")
        asked[case]["prompt to first words"] = span(seen, "asked", "said")
        asked[case]["prompt to result"] = span(seen, "asked", "result")
    return asked


def run(bench: Bench) -> None:
    """Measure, and judge."""
    cli = bundled_cli()
    if cli is None:
        raise RuntimeError("the real CLI comes with claude-agent-sdk, which is not installed")
    for sdk in SDKS:
        conversed("drive_real", sdk, cli=cli, way="query")  # brings the files into memory
    turns = {sdk: partial(turn, sdk, cli) for sdk in SDKS}
    bench.compare_cases(SUITE, "one tool call", turns, UNITS, rounds=ROUNDS)

    def ratio(measure: str, ours: str, theirs: str) -> list[float]:
        above, below = (
            bench.row(SUITE, case, measure, who) for case, who in zip((ours, theirs), SDKS, strict=True)
        )
        return bench.ratios(above, below)

    first = statistics.median(ratio("import to first message", COLD, COLD))
    bench.target(
        "real CLI, cold, import to result: of the official SDK's time",
        "at most",
        0.8,
        ratio("import to result", COLD, COLD),
        f"to the first message {first:.2f}",
    )
    first = statistics.median(ratio("prompt to first message", COLD, COLD))
    bench.target(
        "real CLI, cold, query() without the import: of the official SDK's time",
        "at most",
        1,
        ratio("prompt to result", COLD, COLD),
        f"to the first message {first:.3f}; what is loaded at the first query() is in it",
    )
    connected = statistics.median(ratio("prompt to result", WARM, WARM))
    first = statistics.median(ratio("prompt to first message", WARM, COLD))
    bench.target(
        "real CLI, prompt to result with startup(): of the official SDK's query()",
        "at most",
        0.5,
        ratio("prompt to result", WARM, COLD),
        f"to the first message {first:.2f}; of a client that the official SDK connected before: {connected:.2f}",
    )
