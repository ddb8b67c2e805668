"""Pictures of curves: the median of the seeds as a line, from the least to the most as a band, readable in grey."""

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

if TYPE_CHECKING:
    from benchmarks.paper.results import Plot

# Okabe and Ito's palette, in an order whose grey values differ; dashes and markers tell the lines apart without colour.
STYLES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", ":", "^"),
    ("#000000", "-.", "D"),
    ("#CC79A7", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#56B4E9", (0, (1, 1)), "P"),
    ("#E69F00", (0, (8, 2)), "X"),
    ("#666666", (0, (3, 1)), "*"),
)
SIZE = (7.2, 4.4)
PLACES = 1e-4, 1e6
"""Numbers between these are written out."""
WIDE = 100.0
FEW = 3


def draw(plot: "Plot") -> Figure:
    figure = Figure(figsize=SIZE, dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes: Axes = figure.add_subplot()
    axes.set_title(plot.title, fontsize=12, weight="bold", loc="left")
    for (colour, dashes, marker), curve in zip(STYLES, plot.curves, strict=False):
        axes.plot(
            curve.x, curve.middle, color=colour, ls=dashes, marker=marker, ms=5.5, lw=2.0, label=curve.label, zorder=3
        )
        if any(len(values) > 1 for values in curve.y):
            lows, highs = [min(v) for v in curve.y], [max(v) for v in curve.y]
            if len(curve.x) > 1 and len(plot.curves) <= FEW:  # many bands over each other say nothing
                axes.fill_between(curve.x, lows, highs, color=colour, alpha=0.15, lw=0)
            around = [
                [m - low for m, low in zip(curve.middle, lows, strict=True)],
                [high - m for m, high in zip(curve.middle, highs, strict=True)],
            ]
            axes.errorbar(curve.x, curve.middle, around, fmt="none", ecolor=colour, elinewidth=0.9, capsize=2.5)
    _scales(axes, plot)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(color="#DDDDDD", lw=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if len(plot.curves) > 1:
        columns = 2 if len(plot.curves) > 2 else len(plot.curves)  # two a line have room
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9, handlelength=3.6)
    return figure


def _scales(axes: Axes, plot: "Plot") -> None:
    if plot.log_x:
        axes.set_xscale("log")
        _numbers(axes.xaxis, *axes.get_xlim())
    if plot.log_y:
        axes.set_yscale("log")
        _numbers(axes.yaxis, *axes.get_ylim())
    elif all(value >= 0 for curve in plot.curves for values in curve.y for value in values):
        axes.set_ylim(bottom=0)
    if plot.ticks:
        axes.set_xticks(list(plot.ticks), list(plot.ticks.values()))
        axes.set_xticks([], minor=True)
        if not plot.log_x:
            axes.set_xlim(min(plot.ticks) - 0.3, max(plot.ticks) + 0.3)


def _numbers(axis: Axis, low: float, high: float) -> None:
    """Ticks of a logarithmic axis: the decades or, of a decade or two, also what lies between."""
    if high < WIDE * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(_plain))
    axis.set_minor_formatter(NullFormatter())


def _plain(value: float, _: int) -> str:
    least, most = PLACES
    return f"{value:,.6g}" if least <= abs(value) < most else f"{value:.0e}"


def save(plot: "Plot", folder: Path) -> None:
    """`<name>.png` and `<name>.svg`; the same plot gives the same bytes."""
    figure = draw(plot)
    figure.savefig(folder / f"{plot.name}.png", format="png", metadata={"Software": None})
    with mpl.rc_context({"svg.hashsalt": plot.name, "svg.fonttype": "none"}):
        figure.savefig(folder / f"{plot.name}.svg", format="svg", metadata={"Date": None})
