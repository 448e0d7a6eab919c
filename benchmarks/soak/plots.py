"""Draws the plots of a soak: latency up to the last percentile, and memory over time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.plots import COLOURS, OTHERS, save_figure
from benchmarks.soak.load import Times

_SHARES = [0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999]
_PALETTE = [*COLOURS.values(), *OTHERS]
_DASHES = ["-", "--", ":"]
_ENOUGH = 5  # slower requests than a percentile must have to be shown


def draw_latencies(times: Mapping[str, Times], path: Path) -> None:
    """Draw a curve for each kind of request: the latency at each percentile."""
    figure = Figure(figsize=(8.0, 5.6), layout="constrained")
    axes = figure.add_subplot()
    for place, (name, each) in enumerate(times.items()):
        shares = [share for share in _SHARES if each.count * (1 - share) >= _ENOUGH] or _SHARES[:1]
        style = {"color": _PALETTE[place % len(_PALETTE)], "linestyle": _DASHES[place // len(_PALETTE) % 3]}
        values = [each.compute_percentile(share) * 1000 for share in shares]
        axes.plot([1 / (1 - share) for share in shares], values, label=name, linewidth=1.3, **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = {2: "p50", 10: "p90", 100: "p99", 1000: "p99.9", 10_000: "p99.99"}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.set_ylabel("milliseconds")
    axes.set_title("Latency by percentile, under load and faults", fontsize=11)
    axes.grid(visible=True, which="major", linewidth=0.4, color="#dddddd")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    save_figure(figure, path)


def draw_memory(series: Mapping[str, Sequence[tuple[float, float]]], path: Path) -> None:
    """Draw the memory of each process over time, in megabytes and minutes."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for place, (name, points) in enumerate(series.items()):
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, label=name, linewidth=1.3, color=_PALETTE[place % len(_PALETTE)])
    axes.set_xlabel("minutes")
    axes.set_ylabel("resident memory, MB")
    axes.set_ylim(bottom=0)
    axes.set_title("Memory over time", fontsize=11)
    axes.grid(visible=True, which="major", linewidth=0.4, color="#dddddd")
    axes.legend(frameon=False, fontsize=9)
    save_figure(figure, path)
