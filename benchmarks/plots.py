"""Draws curves as SVG. The same figures give the same bytes, so that a diff shows only what has changed."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

mpl.rcParams.update(
    {"svg.hashsalt": "toolwire", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10}
)
COLOURS = {
    "toolwire": "#1a6faf",
    "toolwire uvloop": "#57a5d8",
    "official": "#d1603d",
    "official uvloop": "#e8a58f",
    "floor": "#7a7a7a",
}
OTHERS = ("#4f9d5d", "#8c62aa", "#b59a2c")


def draw(curve: dict[str, Any], path: Path) -> None:
    """Draw a curve, given as by `Curve.to_json`, with the expected growth as a thin dashed line."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    others = iter(OTHERS * 3)
    for name, points in curve["series"].items():
        xs, ys = zip(*points, strict=True)
        colour = COLOURS.get(name) or next(others)
        width = 2 if name == curve["judged"] else 1.3
        axes.plot(xs, ys, marker="o", markersize=4, linewidth=width, color=colour, label=name)
    xs, ys = make_guide(curve)
    axes.plot(
        xs, ys, linestyle="--", linewidth=0.8, color="#333333", label=f"{curve['expected']}, as expected"
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(curve["x"])
    axes.set_ylabel(curve["y"])
    axes.set_title(format_title(curve), fontsize=11)
    axes.grid(visible=True, which="major", linewidth=0.4, color="#dddddd")
    every = [y for points in curve["series"].values() for _x, y in points]
    if max(every) < 3 * min(every):  # a flat line must look flat
        axes.set_ylim(min(every) / 3, max(every) * 3)
    axes.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> None:
    """Save a figure as SVG, without metadata that differs from run to run."""
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def make_guide(curve: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Return the line of expected growth: through the last point of the judged series, over the points judged."""
    points = curve["series"][curve["judged"]]
    linear = curve["expected"] == "linear"
    first = points[len(points) // 2 - 1 if linear and len(points) > 1 else 0][0]
    last, top = points[-1]
    return [first, last], [top * first / last if linear else top, top]


def format_title(curve: dict[str, Any]) -> str:
    """Return the title: the name of the curve, and whether it grows as expected."""
    verdict = "holds" if curve["holds"] else "does NOT hold"
    return f"{curve['name']}: {curve['expected']} {verdict} (exponent {curve['exponent']:.2f})"
