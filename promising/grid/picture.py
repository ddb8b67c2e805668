"""A picture of a summary: its cells in value and time, coloured by density."""

import warnings
from collections.abc import Mapping
from pathlib import Path

import matplotlib.dates as mdates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Polygon, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from promising.grid.cells import REASONS, Stretch, by_granularity, densities, figure_label, figures, rate_unit
from promising.index.regions import Description
from promising.index.time_text import UNITS, readable

# Okabe and Ito's palette: distinguishable with every kind of colour vision.
COLOURS_OF = {
    "error": "#D55E00",
    "behaviour": "#CC79A7",
    "maxlength": "#0072B2",
    "boundary": "#E69F00",
    "open": "#009E73",
    "late": "#F0E442",
    "ahead": "#56B4E9",
    "calendar": "#999999",
}
SHADES = ("#30343F", "#6B7280", "#A3A9B5")  # granularities on the timeline, finest darkest
EXPIRED, EMPTY, LEAD = "#E2E2E2", "#F3F3F3", "#EEF0F3"
COLOURS = "viridis"

# Layout, in fractions of the figure.
LEFT, RIGHT, BOTTOM, TOP, GAP = 0.06, 0.855, 0.145, 0.72, 0.012
LINE = (0.815, 0.025)  # bottom and height of the timeline
STRIP = 0.022  # height of the reasons


def draw(told: Description, title: str, *, began: int | None = None, marks: Mapping[str, int] | None = None) -> Figure:
    """The value x time grid of a summary, described with its cells; one panel per granularity, the oldest on the left.

    began: event time of the stream's first tuple, to show what has expired since; marks: labels of buckets to
    highlight. Raises `BadQuestion` if there is nothing to draw: no tuples, no zones (`STRUCTURE none`), or no cells.
    """
    parts = by_granularity(told)
    unit = rate_unit(told)
    grids = {g: densities(told, part, UNITS[unit]) for g, part in parts.items()}
    norm: Normalize
    if told.shown is None:
        busy = np.concatenate([grid[grid > 0] for _, grid in grids.values()])
        norm = LogNorm(float(busy.min()), float(max(busy.max(), busy.min() * 1.01)))
    else:
        for g, (edges, grid) in grids.items():
            grids[g] = edges, figures(told, parts[g], edges, len(grid), UNITS[unit])
        busy = np.concatenate([grid[np.isfinite(grid)] for _, grid in grids.values()])
        norm = Normalize(float(busy.min()), float(busy.max())) if len(busy) else Normalize(0.0, 1.0)

    figure = Figure(figsize=(12.5, 7.6), dpi=110)
    FigureCanvasAgg(figure)
    figure.text(LEFT, 0.957, title, fontsize=15, weight="bold")
    figure.text(LEFT, 0.897, _subtitle(told), fontsize=10, color="#333333", linespacing=1.5)
    spans = {g: (part[0].start, max(s.end for s in part)) for g, part in parts.items()}
    line = _timeline(figure, spans, began)
    width = (RIGHT - LEFT + GAP) / len(parts) - GAP
    for place, (g, part) in enumerate(parts.items()):
        left = LEFT + place * (width + GAP)
        panel = figure.add_axes((left, BOTTOM, width, TOP - BOTTOM), label=f"G_{g}")
        strip = figure.add_axes((left, TOP, width, STRIP), sharex=panel)
        _panel(panel, *grids[g], part, norm, ticks=max(2, 18 // len(parts)))
        _strip(strip, part)
        _heading(strip, told, g, len(part))
        _lead(figure, line, spans[g], left, width)
        panel.tick_params(labelleft=place == 0, left=place == 0)
        if place == 0:
            panel.set_ylabel(f"value bucket (hash of {told.key})")
    _mark(panel, marks or {})
    _keys(figure, norm, unit, told)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a picture as PNG."""
    with warnings.catch_warnings():
        # A panel of minutes gets one or two ticks more than requested; there is room.
        warnings.filterwarnings("ignore", "AutoDateLocator was unable to pick")
        figure.savefig(path, format="png")


def _subtitle(told: Description) -> str:
    gone = f"; {told.expired:,} older ones have expired" if told.expired else ""
    many = f"{told.tuples:,} tuples in {len(told.zones)} zones{gone}."
    return (
        "A cell is a value bucket (up) in a time zone (across, between white lines). The newest tuples are on the"
        f" right, in fine zones;\nwith age, zones merge into coarser ones. {many}"
    )


def _date(time: int) -> float:
    """Days since the epoch, the unit of matplotlib."""
    return time / UNITS["day"]


def _dates(axes: Axes, ticks: int) -> None:
    locator = mdates.AutoDateLocator(minticks=2, maxticks=ticks)  # type: ignore[no-untyped-call]  # no types shipped
    formatter = mdates.AutoDateFormatter(locator)  # type: ignore[no-untyped-call]  # no types shipped
    formatter.scaled.update(
        {mdates.DAYS_PER_MONTH: "%b %Y" if 4 < ticks < 10 else "%b", 1.0: "%d %b", 1 / 24: "%H:%M", 1 / 1440: "%H:%M"}
    )
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)
    axes.tick_params(axis="x", labelsize=9)


def _timeline(figure: Figure, spans: dict[int, tuple[int, int]], began: int | None) -> Axes:
    """The whole past at one scale; the panels below enlarge the newer parts."""
    axes = figure.add_axes((LEFT, LINE[0], RIGHT - LEFT, LINE[1]))
    oldest, newest = min(s for s, _ in spans.values()), max(e for _, e in spans.values())
    start = oldest if began is None else min(oldest, began)
    bars = [(start, oldest, EXPIRED, "expired", "#333333")]
    bars += [(s, e, SHADES[min(g, len(SHADES)) - 1], f"$G_{{{g}}}$", "white") for g, (s, e) in spans.items()]
    for first, last, colour, text, ink in bars:
        left, right = _date(first), _date(last)
        axes.add_patch(Rectangle((left, 0), right - left, 1, fc=colour, ec="white", lw=0.8))
        if (last - first) / (newest - start) > (0.06 if text == "expired" else 0.02):
            axes.text((left + right) / 2, 0.45, text, ha="center", va="center", fontsize=9, color=ink)
    axes.set_xlim(_date(start), _date(newest))
    axes.set_ylim(0, 1)
    axes.xaxis.tick_top()
    axes.set_yticks([])
    _dates(axes, 14)
    for side in axes.spines.values():
        side.set_visible(False)
    return axes


def _strip(axes: Axes, part: list[Stretch]) -> None:
    """Why each zone ends where it does; zones that share their time with others are half as high."""
    for s in part:
        left, right = _date(s.start), _date(s.end)
        height = 0.5 if s.shared else 1.0
        axes.add_patch(Rectangle((left, 0), right - left, height, fc=COLOURS_OF[s.zone.reason], ec="white", lw=0.4))
    axes.set_ylim(0, 1)
    axes.axis("off")


def _heading(axes: Axes, told: Description, g: int, zones: int) -> None:
    length = "cut by the stream" if g == 1 else f"{readable(told.spans[g - 2])} each"
    axes.set_title(f"$G_{{{g}}}$: {zones} {'zone' if zones == 1 else 'zones'}, {length}", fontsize=10.5, pad=5)


def _panel(
    axes: Axes, edges: NDArray[np.int64], grid: NDArray[np.float64], part: list[Stretch], norm: Normalize, ticks: int
) -> None:
    x = [_date(int(t)) for t in edges]
    axes.set_facecolor(EMPTY)
    shown = np.ma.masked_invalid(np.where(grid == 0.0, np.nan, grid) if isinstance(norm, LogNorm) else grid)
    axes.pcolormesh(x, np.arange(len(grid) + 1), shown, norm=norm, cmap=COLOURS)
    for s in part:
        axes.axvline(_date(s.start), color="white", lw=1.2)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(0, len(grid))
    axes.set_yticks(np.unique(np.linspace(0, len(grid), 5).astype(int)))
    _dates(axes, ticks)


def _lead(figure: Figure, line: Axes, span: tuple[int, int], left: float, width: float) -> None:
    """Lines from a granularity's interval on the timeline to its panel."""
    low, high = line.get_xlim()
    start, end = (LEFT + (RIGHT - LEFT) * (_date(t) - low) / (high - low) for t in span)
    bottom = TOP + STRIP + 0.03
    corners = [(start, LINE[0] - 0.002), (end, LINE[0] - 0.002), (left + width, bottom), (left, bottom)]
    figure.add_artist(Polygon(corners, closed=True, fc=LEAD, ec="#C5CAD3", lw=0.6, zorder=0))


def _mark(axes: Axes, marks: Mapping[str, int]) -> None:
    for label, bucket in marks.items():
        axes.annotate(
            f"◂ {label}",
            (1.0, bucket + 0.5),
            xytext=(2, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=8,
            va="center",
            annotation_clip=False,
        )


def _keys(figure: Figure, norm: Normalize, unit: str, told: Description) -> None:
    """The legend."""
    bar = figure.colorbar(ScalarMappable(norm, COLOURS), cax=figure.add_axes((0.94, BOTTOM, 0.014, TOP - BOTTOM)))
    if told.shown is None:
        bar.ax.set_title(f"tuples per\n{unit} and cell", fontsize=9, pad=8)
        bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        bar.ax.yaxis.set_minor_locator(NullLocator())
    else:
        bar.ax.set_title(f"{figure_label(told)}\nof a cell", fontsize=9, pad=8)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    bar.ax.tick_params(labelsize=9)
    seen = {z.reason for z in told.zones}
    handles = [Patch(color=COLOURS_OF[name], label=text) for name, text in REASONS.items() if name in seen]
    figure.legend(
        handles=handles,
        title="Why a zone ends where it does (strip on top of the cells):",
        loc="lower left",
        bbox_to_anchor=(LEFT - 0.008, 0.01),
        ncols=len(handles),
        frameon=False,
        fontsize=9.5,
        title_fontsize=9.5,
        alignment="left",
    )
