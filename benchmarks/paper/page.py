"""The documentation's page of all figures: what each shows, its plots, and its goals beside what was measured."""

import os
import platform
from importlib.metadata import version
from typing import Any

from benchmarks.paper.results import Curve, Goal, Outcome, Plot

PACKAGES = ("numpy", "numba", "pyarrow")
HEAD = """# The paper's experiments, figure by figure

`make paper` writes this page; [results.md](../results.md) interprets it. Values are medians over the seeds, with the
range in brackets; bands in plots show the same range. Times are CPU times of one thread.

[paper.json](paper.json) has every point. Per figure, `plots` lists the curves (for each `x` the `y` of every seed),
`header` and `rows` the table of all points, `goals` and `sentences` the findings, `data` the input, `metrics` the
medians of ours and theirs. `python -m benchmarks.paper --render docs/results/paper.json` prints this page from it.
"""
SHOWS = {
    "fig9": "Cost of an insertion and of a hit, and pairs per input tuple, by structure (T1 none, T2 time, T3 grid,"
    " T4 adaptive). *By cells* is the paper's way, *by postings* the service's.",
    "fig10": "Pairs per input tuple, by time between arrivals and by window length.",
    "fig11": "Share of the exact output, by CPU time with tuples in memory (*hot*) and by bytes read with tuples in"
    " files (*cold*). SIMPLE-SHJ is a symmetric hash join in arrival order.",
    "fig12": "Output and freshness of a join of whole streams. The age of a pair is |ts1 - ts2|. SIMPLE-SHJ *as it"
    " goes* sheds what it cannot join in time.",
    "fig13": "Mean square error of the output's histogram (Hist-MSE) under WEIGHTED, by share of the output, and output"
    " by CPU time.",
    "fig14": "Precision and recall of the rarest keys' pairs under ASC, by output and by CPU time.",
    "fig15": "Share of the exact result of many selections, by load and by number of queries. SIMPLE tests each tuple"
    " against each query; at a load of 0.5 there is half the time it needs.",
    "fig16": "Mean square error (MSE) of avg and sum over a hundred selections, by load.",
    "auto": "CPU time of `STRUCTURE auto` and of each fixed structure, over six phases of load.",
}
"""What the plots of a figure show, in a line or two."""


def machine() -> dict[str, Any]:
    """What a run was made on."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def page(numbers: dict[str, dict[str, Any]]) -> str:
    """All figures of the file of numbers, in the order of the paper; figures of one run share the line about it."""
    names = sorted(numbers, key=lambda name: (not name.startswith("fig"), name.removeprefix("fig").zfill(4)))
    runs: dict[str, list[str]] = {}
    for name in names:
        runs.setdefault(_run(numbers[name]), []).append(name)
    parts = [HEAD, *(f"Run of {', '.join(of)}: {run}.\n" for run, of in runs.items())]
    parts += [_section(_outcome(numbers[name])) for name in names]
    return "\n".join(parts)


def _run(saved: dict[str, Any]) -> str:
    seeds = ", ".join(map(str, saved["seeds"]))
    return f"seeds {seeds}; " + ", ".join(f"{what} {which}" for what, which in saved["machine"].items())


def _section(outcome: Outcome) -> str:
    lines = [
        f"## {outcome.title}",
        "",
        SHOWS[outcome.figure],
        "",
        *_pictures(outcome.plots),
        "",
        *_goals(outcome.goals),
    ]
    return "\n".join(lines) + "\n"


def _pictures(plots: list[Plot]) -> list[str]:
    """Of plots that differ only in what stands in brackets, a log, the title is written once."""
    lines, before = [], ""
    for plot in plots:
        title, _, log = plot.title.rstrip(")").partition(" (")
        lines.append(f"![{log if log and title == before else plot.title}](../images/paper/{plot.name}.png)")
        before = title
    return lines


def _goals(goals: list[Goal]) -> list[str]:
    """A row for each goal: on what it is met, on what it is missed, with what was measured."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for goal in goals:
        on, colon, text = goal.text.rpartition(": ")
        met, missed = found.setdefault(text, ([], []))
        (missed if goal.met is False else met).append(on + colon + goal.measured)
    rows = [f"{text} | {'; '.join(met)} | {'; '.join(missed)}".rstrip() for text, (met, missed) in found.items()]
    return ["goal | met | missed", "---|---|---", *rows]


def _outcome(saved: dict[str, Any]) -> Outcome:
    kept = {name: value for name, value in saved.items() if name not in ("machine", "seeds")}
    plots = [Plot(**{**plot, "curves": [Curve(**curve) for curve in plot["curves"]]}) for plot in saved["plots"]]
    return Outcome(**{**kept, "plots": plots, "goals": [Goal(**goal) for goal in saved["goals"]]})
