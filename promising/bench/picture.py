"""A plot of a measurement: share of the join over CPU time, for each method."""

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from promising.bench.measurement import DESC, DUCK, PLAIN, Result, points

# Okabe and Ito's palette, from dark to light; the dashes distinguish them in grey.
LINES = {
    DESC: ("#0072B2", "-", "DESC: the most frequent keys first"),
    PLAIN: ("#D55E00", "--", "the same engine, no preference"),
    DUCK: ("#009E73", ":", "DuckDB, one thread"),
}


def draw(result: Result, title: str) -> Figure:
    """The median run of each method."""
    figure = Figure(figsize=(9.0, 5.0), dpi=110)
    FigureCanvasAgg(figure)
    axes: Axes = figure.add_axes((0.09, 0.125, 0.875, 0.655))
    plan = result.data.plan
    figure.text(0.09, 0.945, title, fontsize=14, weight="bold")
    figure.text(
        0.09,
        0.865,
        f"{result.data.rows:,} rows in two stores, joined on {plan.key}: {result.pairs:,} rows in all.\n"
        "CPU time of the process, rows taken as Arrow tables; the median run of each.",
        fontsize=9.5,
        color="#333333",
        linespacing=1.4,
        parse_math=False,
    )
    for joined in result.joins:
        colour, dashes, label = LINES[joined.name]
        times, shares = points(joined)
        axes.plot(times, shares, color=colour, ls=dashes, lw=2.4, label=label)
        axes.plot(times[-1], shares[-1], marker="o", color=colour, ms=6)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t * 1000:,.0f} ms" if t < 1 else f"{t:g} s"))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("CPU time since the question")
    axes.set_ylabel("share of the join")
    axes.grid(color="#DDDDDD", lw=0.7)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=3,
        frameon=False,
        fontsize=9,
        handlelength=3,
        columnspacing=1.2,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure
