"""The stream of messages: from the peer's first byte to the last message in the user's loop."""

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

from benchmarks import typescript
from benchmarks.processes import drive
from benchmarks.results import Bench, Curve, Figures

SUITE = "stream"
UNITS = {"rate": "messages/s", "speed": "MB/s", "cpu": "µs"}
CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "floor": ("floor", {"listen": True}),
    "toolwire": ("toolwire", {}),
    "toolwire uvloop": ("toolwire", {"loop": "uvloop"}),
    "official": ("official", {}),
    "official uvloop": ("official", {"loop": "uvloop"}),
    "typescript": ("typescript", {}),
}
BY_SIZE = ("floor", "toolwire", "official", "typescript")
"""The contenders for long messages, where the event loop makes no difference."""
KB, MB = 1_000, 1_000_000
SMALL, PARTIAL = "200 characters", "partial messages, 20 characters"
OURS, THEIRS = 60_000, 20_000  # small messages in one turn; those of the official SDK take longer
VOLUME = 60 * MB  # of long messages in one turn
SIZES = (64 * KB, 256 * KB, 1 * MB, 5 * MB, 20 * MB)
LINE = 256 * MB  # the longest line, to be allowed in the official SDK; toolwire accepts it by default


def run_turn(contender: str, count: int, size: int, *, partial: bool = False) -> Figures:
    """Stream messages through one SDK."""
    sdk, case = CONTENDERS[contender]
    options: dict[str, Any] = {"include_partial_messages": True} if partial else {}
    if sdk == "official":
        options["max_buffer_size"] = LINE
    step = {"do": "messages", "with": {"count": count, "size": size, "partial": partial}}
    if sdk == "typescript":
        case = {"partial": partial}
    elif sdk != "floor":
        case = {"options": options, **case}
    reported = drive(sdk, {"steps": [step]}, **case)
    begun, seen = reported["steps"][0], reported["driver"]
    if seen["messages"] != count or (sdk != "floor" and seen["size"] != size):
        raise RuntimeError(
            f"{contender}: {count} messages of {size} characters were sent, but received were {seen}"
        )
    took = (seen["last"] - begun["begun"]) / 1e9
    cpu = (seen["cpu"] / 1e9 - begun["cpu"]) / count * 1e6
    found = {"rate": count / took, "speed": begun["bytes"] / took / MB}
    return {**found, "cpu": cpu} if begun["cpu"] else found


def run(bench: Bench) -> None:
    """Measure streams of all sizes, and add the targets and the curve."""
    left_out = set() if typescript.is_available() else {"typescript"}
    by_size = [name for name in BY_SIZE if name not in left_out]
    for case, size, rounds in ((SMALL, 200, 5), (PARTIAL, 20, 3)):
        counts = {
            name: THEIRS if sdk == "official" else OURS
            for name, (sdk, _) in CONTENDERS.items()
            if name not in left_out
        }
        turns = {
            name: partial(run_turn, name, bench.scale(count), size, partial=case == PARTIAL)
            for name, count in counts.items()
        }
        bench.compare(SUITE, case, turns, UNITS, rounds=rounds)
    sizes = SIZES[:3] if bench.quick else SIZES
    for size in sizes:
        count = max(3, bench.scale(VOLUME) // size)
        turns = {name: partial(run_turn, name, count, size) for name in by_size}
        bench.compare(SUITE, format_size(size), turns, UNITS, rounds=3)
    add_targets(bench, by_size, sizes)


def add_targets(bench: Bench, by_size: list[str], sizes: Sequence[int]) -> None:
    """Add the targets and the curve, with the measured figures."""

    def find_ratios(case: str, other: str = "official") -> list[float]:
        ours, theirs = (bench.find_row(SUITE, case, "rate", name) for name in ("toolwire", other))
        return bench.compute_ratios(ours, theirs)

    long = ", ".join(f"{format_size(size)} {median(find_ratios(format_size(size))):.2f}" for size in sizes)
    note = f"of longer messages: {long}"
    bench.add_target(
        "small messages: times the official SDK's messages a second", "at least", 3, find_ratios(SMALL), note
    )
    bench.add_target(
        "partial messages: times the official SDK's messages a second", "at least", 3, find_ratios(PARTIAL)
    )
    if "typescript" in by_size:
        for case, kind in ((SMALL, "small"), (PARTIAL, "partial")):
            cpu = [bench.find_row(SUITE, case, "cpu", name) for name in ("toolwire", "typescript")]
            note = f"processor time for a message: {median(bench.compute_ratios(*cpu)):.2f} of its"
            what = f"{kind} messages: times the TypeScript SDK's messages a second"
            bench.add_target(what, "at least", 1, find_ratios(case, "typescript"), note)
    if 20 * MB in sizes:
        one, twenty = (
            bench.find_row(SUITE, format_size(size), "speed", "toolwire") for size in (1 * MB, 20 * MB)
        )
        bench.add_target(
            "a message of 20 MB: time for each MB, times that of a message of 1 MB",
            "at most",
            2,
            bench.compute_ratios(one, twenty),
            "20 if the cost were quadratic",
        )
    series = {
        name: [
            (float(size), 1 / median(bench.find_row(SUITE, format_size(size), "rate", name).values))
            for size in sizes
        ]
        for name in by_size
    }
    bench.curves.append(
        Curve(
            "a message by its size",
            "characters",
            "seconds",
            "linear",
            series,
            "toolwire",
            note="64 KB to 20 MB",
        )
    )


def format_size(size: int) -> str:
    """Return the name of the case of one size, such as "64 KB"."""
    return f"{size // MB} MB" if size >= MB else f"{size // KB} KB"
