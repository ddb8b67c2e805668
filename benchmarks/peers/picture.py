"""A picture for each task: how much of the answer is there after how long, of each peer. Readable in grey."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.peers.report import Told, entries_of, kind_of, label, tasks_of, title_of

STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
GREYS = ("0.0", "0.35", "0.55")


def draw(told: Told, folder: Path) -> list[Path]:
    """PNG and SVG files; a task that nobody got right has none. Answers of one number are a point each."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for task in tasks_of(told):
        entries = [e for e in entries_of(told, task) if e["right"] and e["curve"]]
        if entries:
            figure = _picture(told, task, entries)
            with mpl.rc_context({"svg.hashsalt": "peers"}):  # the same names in the file in every run
                for kind, about in (("png", {"Software": ""}), ("svg", {"Date": None})):
                    path = folder / f"{task}.{kind}"
                    figure.savefig(path, dpi=130, metadata=about)
                    made.append(path)
    return made


def _picture(told: Told, task: str, entries: list[Told]) -> Figure:
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for number, entry in enumerate(entries):
        # From nothing to the first rows is a step up, as an answer that comes at once is.
        points = [(0.0, entry["curve"][0][1]), *entry["curve"]]
        ours = entry["peer"] == "promising"
        axes.plot(
            [max(s, 1e-5) for _, s in points],
            [100 * share for share, _ in points],
            linestyle="-" if ours else STYLES[number % len(STYLES)],
            marker=MARKERS[number % len(MARKERS)],
            markevery=[len(points) - 1] if len(points) > 12 else None,
            color="0.0" if ours else GREYS[number % len(GREYS)],
            linewidth=2.6 if ours else 1.3,
            label=label(told, entry),
            drawstyle="default" if kind_of(task) in ("join", "selections") else "steps-post",
        )
    axes.set_xscale("log")
    axes.set_xlabel("seconds")
    axes.set_ylabel("% of the answer")
    axes.set_ylim(0, 104)
    axes.grid(color="0.88", which="major")
    axes.set_title(title_of(task, told["sizes"]), loc="left", fontsize=10)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure
