"""The page of the documentation that has every figure: what it was run on, plots, table, goals and reading."""

import os
import platform
from importlib.metadata import version
from typing import Any

from benchmarks.paper import results
from benchmarks.paper.results import Curve, Goal, Outcome, Plot

PACKAGES = ("numpy", "numba", "pyarrow")
HEAD = """# The paper's experiments, figure by figure

Written by `make paper`; what it means is in [results.md](../results.md). A value is the median over the seeds, in
brackets from the least to the most; a band in a plot is the same. Times are CPU times of one thread.
"""


def machine() -> dict[str, Any]:
    """What a run was made on."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def page(numbers: dict[str, dict[str, Any]]) -> str:
    """All figures of the file of numbers, in the order of the paper."""
    parts = [HEAD]
    for name in sorted(numbers, key=lambda name: (not name.startswith("fig"), name.removeprefix("fig").zfill(4))):
        saved = dict(numbers[name])
        on, seeds = saved.pop("machine"), saved.pop("seeds")
        outcome = _outcome(saved)
        lines = results.markdown(outcome).split("\n", 2)
        pictures = [f"![{plot.title}](../images/paper/{plot.name}.png)" for plot in outcome.plots]
        ran = ", ".join(f"{what} {which}" for what, which in on.items())
        told = f"`make paper BENCH_ARGS={name}`, seeds {', '.join(map(str, seeds))}; {ran}."
        parts.append("\n".join([lines[0][1:], "", told, "", *pictures, "", lines[2]]))
    return "\n".join(parts)


def _outcome(saved: dict[str, Any]) -> Outcome:
    plots = [Plot(**{**plot, "curves": [Curve(**curve) for curve in plot["curves"]]}) for plot in saved["plots"]]
    return Outcome(**{**saved, "plots": plots, "goals": [Goal(**goal) for goal in saved["goals"]]})
