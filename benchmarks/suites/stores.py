"""The real CLI with a session store that is slow, fails or hangs: what waits for the store, and what is lost.

Both SDKs get the same store and the same prompts. toolwire is configured to wait for the store for two seconds; the
official SDK has no such setting.
"""

from collections.abc import Mapping
from functools import partial

from benchmarks.processes import SDKS
from benchmarks.results import Bench, Figures
from benchmarks.scripted import run_script
from toolwire._transport.find_cli import bundled_cli
from toolwire.testing import say

SUITE = "stores"
UNITS = {
    "prompt 1 to result": "ms",
    "prompt 2 to result": "ms",
    "request during an append": "ms",
    "entries stored at the end": "%",
    "cost stored": "%",
}
CASES = {
    "a store that works": ("there", "batched"),
    "a store that takes 4 s, batched": ("slow", "batched"),
    "a store that takes 4 s, eager": ("slow", "eager"),
    "a store that fails during the first prompt": ("failing", "batched"),
    "a store that hangs for 20 s": ("hanging", "batched"),
}
ROUNDS = 3


def run_turn(sdk: str, cli: str, quick: bool) -> Mapping[str, Figures]:
    """Run a conversation with each kind of store, each in a separate process."""
    script = [say("One."), say("Two.")]
    found = {}
    for case, (way, flush) in CASES.items():
        reported = run_script("drive_stores", sdk, script, cli=cli, way=way, flush=flush, quick=quick)
        found[case] = {measure: reported[measure] for measure in UNITS}
    return found


def run(bench: Bench) -> None:
    """Measure all kinds of stores, and add the targets."""
    cli = bundled_cli()
    if cli is None:
        raise RuntimeError("the real CLI comes with claude-agent-sdk, which is not installed")
    turns = {sdk: partial(run_turn, sdk, cli, bench.quick) for sdk in SDKS}
    bench.compare_cases(SUITE, "two prompts", turns, UNITS, rounds=ROUNDS)
    ours = next(iter(SDKS))
    worst = [max(bench.find_row(SUITE, case, "request during an append", ours).values) for case in CASES]
    bench.add_target("stores, a request during an append, in ms", "at most", 500, [max(worst)])
    kept = [
        min(bench.find_row(SUITE, case, "entries stored at the end", ours).values) for case in list(CASES)[3:]
    ]
    bench.add_target("stores, entries stored once the store is back, in %", "at least", 100, [min(kept)])
    for case, limit in (("a store that takes 4 s, batched", 0.8), ("a store that hangs for 20 s", 0.3)):
        above, below = (bench.find_row(SUITE, case, "prompt 1 to result", sdk) for sdk in SDKS)
        what = f"stores, {case}, prompt to result: of the official SDK's time"
        bench.add_target(
            what, "at most", limit, bench.compute_ratios(above, below), "waits for the store for 2 s at most"
        )
