"""The stream of messages: from the peer's first byte to the last message in the user's loop."""

from functools import partial
from statistics import median
from typing import Any

from benchmarks.processes import driven
from benchmarks.results import Bench, Curve, Measured

SUITE = "stream"
UNITS = {"rate": "messages/s", "speed": "MB/s", "cpu": "µs"}
CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "floor": ("floor", {"listen": True}),
    "toolwire": ("toolwire", {}),
    "toolwire uvloop": ("toolwire", {"loop": "uvloop"}),
    "official": ("official", {}),
}
BY_SIZE = ("floor", "toolwire", "official")  # the loop makes no difference to large ones
KB, MB = 1_000, 1_000_000
SMALL = "200 characters"
SIZES = (64 * KB, 256 * KB, 1 * MB, 5 * MB, 20 * MB)
LINE = 256 * MB  # the longest line that the official SDK shall take; ours takes it unasked


def turn(contender: str, count: int, size: int, *, partial: bool = False) -> Measured:
    """One stream through one SDK."""
    sdk, case = CONTENDERS[contender]
    options: dict[str, Any] = {"include_partial_messages": True} if partial else {}
    if sdk == "official":
        options["max_buffer_size"] = LINE
    step = {"do": "messages", "with": {"count": count, "size": size, "partial": partial}}
    told = driven(sdk, {"steps": [step]}, options=options, **case)
    begun, seen = told["steps"][0], told["driver"]
    if seen["messages"] != count or (sdk != "floor" and seen["size"] != size):
        raise RuntimeError(f"{contender}: {count} messages of {size} characters were sent, {seen} came")
    took = (seen["last"] - begun["begun"]) / 1e9
    cpu = (seen["cpu"] / 1e9 - begun["cpu"]) / count * 1e6
    found = {"rate": count / took, "speed": begun["bytes"] / took / MB}
    return {**found, "cpu": cpu} if begun["cpu"] else found


def run(bench: Bench) -> None:
    """Measure, and judge."""

    def compare(case: str, count: int, size: int, rounds: int, **more: bool) -> None:
        names = CONTENDERS if size < KB else BY_SIZE
        turns = {name: partial(turn, name, count, size, **more) for name in names}
        bench.compare(SUITE, case, turns, UNITS, rounds=rounds)

    compare(SMALL, bench.count(20_000), 200, 5)
    compare("partial messages, 20 characters", bench.count(20_000), 20, 3, partial=True)
    for size in SIZES:
        compare(named(size), max(3, bench.count(20 * MB) // size), size, 3)
    ours, theirs = (bench.row(SUITE, SMALL, "rate", name) for name in ("toolwire", "official"))
    bench.target(
        "small messages: times the official SDK's messages a second",
        "at least",
        3,
        bench.ratios(ours, theirs),
    )
    series = {
        name: [
            (float(size), 1 / median(bench.row(SUITE, named(size), "rate", name).values)) for size in SIZES
        ]
        for name in BY_SIZE
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
