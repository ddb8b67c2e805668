"""Figure 16: the error of avg and sum over a hundred selections at a CPU budget.

Aggregates stand on the selections of figure 15, as in the paper: whatever tuples a side has come to by the end of the
run it has counted and added up, at its own cost. Ours are continuous queries, whose window holds all of the run. The
average is that of what was seen. The sum is that of what was seen, too, or scaled up by the share of the stream that
was seen; ours is scaled, SIMPLE's is shown both ways.
"""

import statistics
import sys
from collections.abc import Callable

import numpy as np

from benchmarks.harness import Effort
from benchmarks.paper.logs import Columns
from benchmarks.paper.results import Curve, Goal, Outcome, Plot, number, spread
from benchmarks.paper.selecting import INTERVAL, WARM, Floats, Got, Need, intervals, need, run_ours, run_simple
from benchmarks.paper.simple_selection import WAYS, Asked, draw

QUERIES = 100
SHARES = (0.125, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0, 8.0)
"""Lengths of an interval, as shares of what SIMPLE needs for all of it."""
GOAL = 0.2
NAMES = {"tuples": "SIMPLE, tuple by tuple", "queries": "SIMPLE, query by query"}
OURS = "ours"
LEAST = 1e-12
"""An error of less is none."""
BOTTOM = {"avg": 1e-8, "sum, scaled": 1.0}
"""What an error of less is drawn as, since the axis is logarithmic."""

Errors = dict[str, dict[str, float]]
"""By aggregate and side."""


def average(got: Got) -> Floats:
    """Of what was found; 0 where nothing was."""
    made: Floats = got.sums / np.maximum(got.came, 1)
    return made


def scaled(got: Got, tuples: int) -> Floats:
    """The sum, scaled up by the share of the tuples that the query was shown."""
    made: Floats = got.sums * (tuples / np.maximum(got.seen, 1))
    return made


def mse(estimate: Floats, truth: Floats) -> float:
    return float(np.mean((estimate - truth) ** 2))


def errors(sides: dict[str, Got], everything: Got, tuples: int) -> Errors:
    """The mean square error over the queries."""
    ways: dict[str, Callable[[Got], Floats]] = {
        "avg": average,
        "sum, scaled": lambda got: scaled(got, tuples),
        "sum, as seen": lambda got: got.sums,
    }
    truth = {"avg": average(everything), "sum, scaled": everything.sums, "sum, as seen": everything.sums}
    return {a: {side: mse(way(got), truth[a]) for side, got in sides.items()} for a, way in ways.items()}


def run(effort: Effort, seeds: list[int]) -> Outcome:
    shares = (0.25, 1.0, 8.0) if effort.quick else SHARES
    found: dict[float, list[Errors]] = {share: [] for share in shares}
    seen: dict[float, list[dict[str, float]]] = {share: [] for share in shares}
    needs = []
    for seed in seeds:
        print(f"  fig16: seed {seed}", file=sys.stderr, flush=True)
        batches = intervals(seed, 12 if effort.quick else 36)
        tuples = sum(len(b["ts"]) for b in batches[WARM:])
        price, store = (np.concatenate([b[name] for b in batches[WARM:]]) for name in ("price", "store_id"))
        asked = draw(QUERIES, price, store, seed)
        simple = need(asked, batches, sums=True)
        needs.append(simple)
        for share in shares:
            sides = contend(asked, batches, simple, share)
            found[share].append(errors(sides, simple.got, tuples))
            seen[share].append({side: float(got.seen.mean()) / tuples for side, got in sides.items()})
    return _outcome(found, seen, needs)


def contend(asked: Asked, batches: list[Columns], simple: Need, share: float) -> dict[str, Got]:
    """What each side has at the end, each with the same time for every interval."""
    budget = share * simple.budget
    sides = {OURS: run_ours(asked, batches, budget, whole=False, sums=True)}
    return sides | {NAMES[way]: run_simple(asked, batches, budget, way, sums=True) for way in WAYS}


def _outcome(found: dict[float, list[Errors]], seen: dict[float, list[dict[str, float]]], needs: list[Need]) -> Outcome:
    sides = [OURS, *NAMES.values()]
    best = NAMES[statistics.mode(need.way for need in needs)]
    rows = []
    for share, errors_of in found.items():
        shown = " / ".join(f"{100 * statistics.median(s[side] for s in seen[share]):.0f}" for side in sides)
        cells = [spread([e["avg"][side] for e in errors_of]) for side in sides]
        cells += [spread([e["sum, scaled"][side] for e in errors_of]) for side in sides]
        cells.append(spread([e["sum, as seen"][best] for e in errors_of]))
        rows.append([f"{share:g}", shown, *cells])
    cost = [need.budget / INTERVAL for need in needs]
    other = [need.other / INTERVAL for need in needs]
    return Outcome(
        "fig16",
        "Figure 16: avg and sum over selections at a CPU budget",
        [_plot("fig16a", "avg", found, "avg", best), _plot("fig16b", "sum", found, "sum, scaled", best)],
        [
            "time between arrivals",
            "% seen: " + " / ".join(sides),
            *(f"MSE of avg, {side}" for side in sides),
            *(f"MSE of sum scaled, {side}" for side in sides),
            f"MSE of sum as seen, {best}",
        ],
        rows,
        [
            _goal("avg", found, "avg", best),
            _goal("sum, both scaled up", found, "sum, scaled", best),
            _goal("sum, SIMPLE's not scaled up (as in the paper)", found, "sum, as seen", best),
        ],
        [
            f"SIMPLE needs {spread(cost)} ns per tuple for {QUERIES} aggregates, its other version {spread(other)} ns."
            " The time between arrivals is a share of the former.",
            "Tuples that a side did not reach are missing from its aggregates; no wrong tuple is included.",
            "SIMPLE compares each tuple with each query, on vectors. Ours finds once between which range ends a tuple"
            " lies and adds it there; a range is then a sum of such places.",
        ],
        "Complete Journey, the even stores, played back; each seed takes another part of the year",
        _metrics(found, best),
    )


def _plot(name: str, title: str, found: dict[float, list[Errors]], aggregate: str, best: str) -> Plot:
    def curve(label: str, of: str, side: str) -> Curve:
        y = [[max(e[of][side], BOTTOM[aggregate]) for e in errors_of] for errors_of in found.values()]
        return Curve(label, list(found), y)

    curves = [curve(side, aggregate, side) for side in (OURS, *NAMES.values())]
    if aggregate != "avg":
        curves.append(curve(f"{best}, not scaled", "sum, as seen", best))
    return Plot(
        name,
        f"{title} over {QUERIES} selections",
        "time between arrivals (1: SIMPLE just keeps up)",
        f"mean square error, {BOTTOM[aggregate]:g} and less at the bottom",
        curves,
        log_x=True,
        log_y=True,
        ticks={share: f"{share:g}" for share in found},
    )


def _pairs(found: dict[float, list[Errors]], aggregate: str, best: str) -> dict[float, tuple[float, float]]:
    """By load, the median error of ours, scaled where it is a sum, and of SIMPLE's faster way."""
    mine = "avg" if aggregate == "avg" else "sum, scaled"
    return {
        share: (statistics.median(e[mine][OURS] for e in es), statistics.median(e[aggregate][best] for e in es))
        for share, es in found.items()
    }


def _goal(text: str, found: dict[float, list[Errors]], aggregate: str, best: str) -> Goal:
    """Judged at every load under which SIMPLE loses tuples."""
    pairs = {share: pair for share, pair in _pairs(found, aggregate, best).items() if share < 1}
    ratios = {share: ours / theirs if theirs > LEAST else np.inf for share, (ours, theirs) in pairs.items()}
    measured = ", ".join(f"{number(ratio)} at {share:g}" for share, ratio in ratios.items())
    return Goal(f"{text}: MSE <= {GOAL} x SIMPLE's at every load", measured, all(r <= GOAL for r in ratios.values()))


def _metrics(found: dict[float, list[Errors]], best: str) -> list[dict[str, str | float]]:
    made: list[dict[str, str | float]] = []
    for aggregate in ("avg", "sum, scaled", "sum, as seen"):
        for share, (ours, theirs) in _pairs(found, aggregate, best).items():
            metric = f"MSE of {aggregate} at {share:g}"
            made.append({"metric": metric, "ours": ours, "theirs": theirs, "opponent": best, "unit": ""})
    return made
