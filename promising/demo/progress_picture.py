"""A plot of running answers: share of a join over CPU time, for each preference.

    python -m promising.demo.progress_picture [FILE]

The join is of the Complete Journey retail log with itself: what was bought in stores with an even number, with what was
bought in stores with an odd one.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

import promising
from promising.demo import journey

if TYPE_CHECKING:
    from promising.query.session import Session

PICTURE = Path("promising-coverage.png")
WINDOW = "60 DAYS"
RUNS = 9
JOIN = f"""
    SELECT a.ItemID, a.Price, b.Price FROM even a, odd b WHERE a.ItemID = b.ItemID
    WITH PREFERENCE {{}} SUMMARY.Estimate.Count(a.ItemID), SUMMARY.Estimate.Count(b.ItemID)
    WINDOW {WINDOW}
"""
# Okabe and Ito's palette, from dark to light; the dashes distinguish them in grey.
LINES = {
    "DESC": ("#0072B2", "-", "DESC: the most frequent items first"),
    "ASC": ("#D55E00", "--", "ASC: the rarest items first"),
    "WEIGHTED": ("#009E73", ":", "WEIGHTED: a random sample"),
}

Curve = list[tuple[float, float]]
"""CPU seconds and coverage, frame by frame."""


def stores(log: pa.Table) -> "Session":
    """A session with the log in two streams, `even` and `odd`, by the number of the store."""
    session = promising.open(seed=7)
    for name, rest in (("even", 0), ("odd", 1)):
        columns = "StoreID INT, TransactionID BIGINT, TimeStamp TIMESTAMP, ItemID BIGINT, Price DOUBLE"
        session.execute(f"CREATE STREAM {name} ({columns}) TIMESTAMP BY TimeStamp")
        session.execute(f"CREATE SUMMARY {name}_items ON {name} (ItemID) WITH GRANULARITY 7 DAYS AND COLLAPSE (4, 4)")
        session.ingest(name, log.filter(pc.equal(pc.bit_wise_and(log["StoreID"], 1), rest)))
    return session


def curves(session: "Session") -> dict[str, Curve]:
    """Each preference run to its end several times; the fastest counts, as the others had interference."""
    out: dict[str, Curve] = {}
    for direction in LINES:
        runs: list[Curve] = []
        for _ in range(RUNS):
            answer = session.query(JOIN.format(direction))
            seen = [frame.progress for frame in answer]
            runs.append([(p.cpu_seconds, p.coverage.value) for p in seen if p.coverage.known])
        out[direction] = min(runs, key=lambda run: run[-1][0])
    return out


def draw(found: Mapping[str, Curve], rows: int, how: str) -> Figure:
    """The plot; `rows` is the size of the whole answer, `how` describes the measurement."""
    figure = Figure(figsize=(9.0, 5.0), dpi=110)
    FigureCanvasAgg(figure)
    axes: Axes = figure.add_axes((0.09, 0.125, 0.875, 0.655))
    figure.text(0.09, 0.945, "How much of a join is there, after how much CPU time", fontsize=14, weight="bold")
    figure.text(
        0.09,
        0.865,
        f"Two streams of a retail log, joined on the item over the last {WINDOW.lower()}: {rows:,} rows in all.\n"
        f"Parsing and planning count. {how}",
        fontsize=9.5,
        color="#333333",
        linespacing=1.4,
    )
    for direction, curve in found.items():
        colour, dashes, label = LINES[direction]
        axes.plot([t for t, _ in curve], [c for _, c in curve], color=colour, ls=dashes, lw=2.4, label=label)
        axes.plot(*curve[-1], marker="o", color=colour, ms=6)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t * 1000:,.0f} ms" if t < 1 else f"{t:g} s"))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("CPU time, on a logarithmic scale")
    axes.set_ylabel("coverage")
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


def main(given: Sequence[str] | None = None) -> int:
    """Measure, draw and save; returns the exit status."""
    arguments = list(sys.argv[1:] if given is None else given)
    out = Path(arguments[0]) if arguments else PICTURE
    session = stores(journey.transactions())
    counted = session.query(f"SELECT count(*) AS n FROM even a, odd b WHERE a.ItemID = b.ItemID WINDOW {WINDOW}")
    how = f"One machine, the fastest of {RUNS} runs."
    draw(curves(session), counted.to_arrow()["n"][0].as_py(), how).savefig(out, format="png")
    print(f"wrote {out}. {journey.REMARK}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
