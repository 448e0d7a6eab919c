"""The stream of messages: from the peer's first byte to the last message in the user's loop."""

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

from benchmarks import typescript
from benchmarks.processes import driven
from benchmarks.results import Bench, Curve, Measured

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
BY_SIZE = ("floor", "toolwire", "official", "typescript")  # the loop makes no difference to large ones
KB, MB = 1_000, 1_000_000
SMALL, PARTIAL = "200 characters", "partial messages, 20 characters"
OURS, THEIRS = 60_000, 20_000  # small messages in one turn; theirs take longer
VOLUME = 60 * MB  # of long messages in one turn
SIZES = (64 * KB, 256 * KB, 1 * MB, 5 * MB, 20 * MB)
LINE = 256 * MB  # the longest line that the official SDK shall take; ours takes it unasked


def turn(contender: str, count: int, size: int, *, partial: bool = False) -> Measured:
    """One stream through one SDK."""
    sdk, case = CONTENDERS[contender]
    options: dict[str, Any] = {"include_partial_messages": True} if partial else {}
    if sdk == "official":
        options["max_buffer_size"] = LINE
    step = {"do": "messages", "with": {"count": count, "size": size, "partial": partial}}
    if sdk == "typescript":
        case = {"partial": partial}
    elif sdk != "floor":
        case = {"options": options, **case}
    told = driven(sdk, {"steps": [step]}, **case)
    begun, seen = told["steps"][0], told["driver"]
    if seen["messages"] != count or (sdk != "floor" and seen["size"] != size):
        raise RuntimeError(f"{contender}: {count} messages of {size} characters were sent, {seen} came")
    took = (seen["last"] - begun["begun"]) / 1e9
    cpu = (seen["cpu"] / 1e9 - begun["cpu"]) / count * 1e6
    found = {"rate": count / took, "speed": begun["bytes"] / took / MB}
    return {**found, "cpu": cpu} if begun["cpu"] else found


def run(bench: Bench) -> None:
    """Measure, and judge."""
    left_out = set() if typescript.available() else {"typescript"}
    by_size = [name for name in BY_SIZE if name not in left_out]
    for case, size, rounds in ((SMALL, 200, 5), (PARTIAL, 20, 3)):
        counts = {
            name: THEIRS if sdk == "official" else OURS
            for name, (sdk, _) in CONTENDERS.items()
            if name not in left_out
        }
        turns = {
            name: partial(turn, name, bench.count(count), size, partial=case == PARTIAL)
            for name, count in counts.items()
        }
        bench.compare(SUITE, case, turns, UNITS, rounds=rounds)
    sizes = SIZES[:3] if bench.quick else SIZES
    for size in sizes:
        count = max(3, bench.count(VOLUME) // size)
        turns = {name: partial(turn, name, count, size) for name in by_size}
        bench.compare(SUITE, named(size), turns, UNITS, rounds=3)
    judge(bench, by_size, sizes)


def judge(bench: Bench, by_size: list[str], sizes: Sequence[int]) -> None:
    """The targets and the curve that these figures belong to."""

    def times(case: str, other: str = "official") -> list[float]:
        ours, theirs = (bench.row(SUITE, case, "rate", name) for name in ("toolwire", other))
        return bench.ratios(ours, theirs)

    long = ", ".join(f"{named(size)} {median(times(named(size))):.2f}" for size in sizes)
    note = f"of longer messages: {long}"
    bench.target(
        "small messages: times the official SDK's messages a second", "at least", 3, times(SMALL), note
    )
    bench.target(
        "partial messages: times the official SDK's messages a second", "at least", 3, times(PARTIAL)
    )
    if "typescript" in by_size:
        for case, kind in ((SMALL, "small"), (PARTIAL, "partial")):
            cpu = [bench.row(SUITE, case, "cpu", name) for name in ("toolwire", "typescript")]
            note = f"processor time for a message: {median(bench.ratios(*cpu)):.2f} of its"
            what = f"{kind} messages: times the TypeScript SDK's messages a second"
            bench.target(what, "at least", 1, times(case, "typescript"), note)
    if 20 * MB in sizes:
        one, twenty = (bench.row(SUITE, named(size), "speed", "toolwire") for size in (1 * MB, 20 * MB))
        bench.target(
            "a message of 20 MB: time for each MB, times that of a message of 1 MB",
            "at most",
            2,
            bench.ratios(one, twenty),
            "20 if the cost were quadratic",
        )
    series = {
        name: [
            (float(size), 1 / median(bench.row(SUITE, named(size), "rate", name).values)) for size in sizes
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


def named(size: int) -> str:
    return f"{size // MB} MB" if size >= MB else f"{size // KB} KB"
