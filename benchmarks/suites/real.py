"""The real CLI with a scripted model: how long a user waits for one prompt with one tool call, cold and warm.

Both SDKs start the same CLI, with the same options. The official SDK has no `startup()`; its fastest way when warm
is a client that was connected before.
"""

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.processes import SDKS
from benchmarks.results import Bench, Figures
from benchmarks.scripted import run_tool_call
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


def compute_milliseconds(seen: dict[str, Any], begin: str, end: str) -> float:
    """Return the milliseconds between two recorded moments."""
    return float(seen[end] - seen[begin]) / 1e6


def run_turn(sdk: str, cli: str) -> Mapping[str, Figures]:
    """Run a cold conversation and a warm one, each in a separate process."""
    cold = run_tool_call("drive_real", sdk, cli=cli, way="query")
    warm = run_tool_call("drive_real", sdk, cli=cli, way="warm")
    figures = {
        COLD: {
            "start to result": compute_milliseconds(cold, "begun", "result"),
            "import to result": compute_milliseconds(cold, "inside", "result"),
            "import to first message": compute_milliseconds(cold, "inside", "first"),
        },
        WARM: {},
    }
    for case, seen in ((COLD, cold), (WARM, warm)):
        figures[case]["prompt to first message"] = compute_milliseconds(seen, "asked", "first")
        figures[case]["prompt to first words"] = compute_milliseconds(seen, "asked", "said")
        figures[case]["prompt to result"] = compute_milliseconds(seen, "asked", "result")
    return figures


def run(bench: Bench) -> None:
    """Measure both kinds of conversation, and add the targets."""
    cli = bundled_cli()
    if cli is None:
        raise RuntimeError("the real CLI comes with claude-agent-sdk, which is not installed")
    for sdk in SDKS:
        run_tool_call("drive_real", sdk, cli=cli, way="query")  # reads the files into the cache
    turns = {sdk: partial(run_turn, sdk, cli) for sdk in SDKS}
    bench.compare_cases(SUITE, "one tool call", turns, UNITS, rounds=ROUNDS)

    def find_ratios(measure: str, ours: str, theirs: str) -> list[float]:
        above, below = (
            bench.find_row(SUITE, case, measure, who) for case, who in zip((ours, theirs), SDKS, strict=True)
        )
        return bench.compute_ratios(above, below)

    first = statistics.median(find_ratios("import to first message", COLD, COLD))
    bench.add_target(
        "real CLI, cold, import to result: of the official SDK's time",
        "at most",
        0.8,
        find_ratios("import to result", COLD, COLD),
        f"to the first message {first:.2f}",
    )
    first = statistics.median(find_ratios("prompt to first message", COLD, COLD))
    bench.add_target(
        "real CLI, cold, query() without the import: of the official SDK's time",
        "at most",
        1,
        find_ratios("prompt to result", COLD, COLD),
        f"to the first message {first:.3f}; what is loaded at the first query() is in it",
    )
    connected = statistics.median(find_ratios("prompt to result", WARM, WARM))
    first = statistics.median(find_ratios("prompt to first message", WARM, COLD))
    bench.add_target(
        "real CLI, prompt to result with startup(): of the official SDK's query()",
        "at most",
        0.5,
        find_ratios("prompt to result", WARM, COLD),
        f"to the first message {first:.2f}; of a client that the official SDK connected before: {connected:.2f}",
    )
