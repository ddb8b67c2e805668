"""What a figure of the paper came to, and how it is written down: plots, a table, goals and sentences."""

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.paper import plots


@dataclass(frozen=True)
class Curve:
    """A line of a plot: for each x the value of each seed."""

    label: str
    x: list[float]
    y: list[list[float]]

    @property
    def middle(self) -> list[float]:
        return [statistics.median(values) for values in self.y]


@dataclass(frozen=True)
class Plot:
    """One picture; `name` is the stem of its files."""

    name: str
    title: str
    x_label: str
    y_label: str
    curves: list[Curve]
    log_x: bool = False
    log_y: bool = False
    ticks: dict[float, str] = field(default_factory=dict)
    """What to write at which x, where x is no number: names of structures."""


@dataclass(frozen=True)
class Goal:
    """A goal of the specification, what was measured, and whether it was met; None where nothing is to be met."""

    text: str
    measured: str
    met: bool | None


@dataclass(frozen=True)
class Outcome:
    """A figure of the paper. `data` says what it was drawn on; `sentences` what it shows, and where we lose."""

    figure: str
    title: str
    plots: list[Plot]
    header: list[str]
    rows: list[list[str]]
    goals: list[Goal]
    sentences: list[str]
    data: str
    metrics: list[dict[str, Any]] = field(default_factory=list)
    """The numbers to be told as lines of JSON: metric, ours, theirs, opponent, unit."""


def markdown(outcome: Outcome) -> str:
    """Every point as a table, then goals and sentences."""
    lines = [f"### {outcome.title}", "", f"Data: {outcome.data}.", ""]
    lines += ["| " + " | ".join(outcome.header) + " |", "|" + "---|" * len(outcome.header)]
    lines += ["| " + " | ".join(row) + " |" for row in outcome.rows]
    lines += ["", *goals(outcome), "", *(f"- {sentence}" for sentence in outcome.sentences)]
    return "\n".join(lines) + "\n"


def goals(outcome: Outcome) -> list[str]:
    """The goals beside what was measured, as a table of Markdown."""
    verdicts = {None: "", True: "yes", False: "no"}
    rows = [f"| {goal.text} | {goal.measured} | {verdicts[goal.met]} |" for goal in outcome.goals]
    return ["| goal | measured | met |", "|---|---|---|", *rows]


def text(outcome: Outcome) -> str:
    """The same for a terminal, columns aligned."""
    rows = [outcome.header, *outcome.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(outcome.header))]
    lines = [f"== paper.{outcome.figure}: {outcome.title}", f"data: {outcome.data}"]
    for row in rows:
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    verdicts = {None: "reported", True: "met", False: "MISSED"}
    lines += [f"goal {verdicts[goal.met]}: {goal.text}; measured {goal.measured}" for goal in outcome.goals]
    lines += [f"- {sentence}" for sentence in outcome.sentences]
    return "\n".join(lines)


def as_json(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)


def write(outcome: Outcome, folder: Path) -> None:
    """PNG and SVG of each plot, `<figure>.json` with every number, `<figure>.md` with the table."""
    folder.mkdir(parents=True, exist_ok=True)
    for plot in outcome.plots:
        plots.save(plot, folder)
    (folder / f"{outcome.figure}.json").write_text(json.dumps(as_json(outcome), indent=1) + "\n")
    (folder / f"{outcome.figure}.md").write_text(markdown(outcome))


def number(value: float) -> str:
    """Three digits that matter."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(values: list[float]) -> str:
    """The median, and from the least to the most where seeds differ."""
    middle, least, most = statistics.median(values), min(values), max(values)
    if number(least) == number(most):
        return number(middle)
    return f"{number(middle)} ({number(least)} to {number(most)})"
