"""Figure 15: what share of the exact result many selections get at a CPU budget.

a: a hundred selections of 5-10 % each, over the time between arrivals. b: 20 to 10,000 of them, offered twice what
SIMPLE-Selection can do. The share is taken query by query, and the mean over the queries is told, as in the paper. How
load is scaled to the machine is in `selecting`.
"""

import statistics
import sys

import numpy as np

from benchmarks.harness import Effort
from benchmarks.paper.logs import Columns
from benchmarks.paper.results import Curve, Goal, Outcome, Plot, spread
from benchmarks.paper.selecting import INTERVAL, WARM, Got, Need, intervals, need, run_ours, run_simple
from benchmarks.paper.simple_selection import Asked, draw

SHARES = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5)
"""Lengths of an interval, as shares of what SIMPLE needs for all of it."""
HUNDRED = 100
FIXED = 0.5
NUMBERS = (20, 50, 80, 100, 150, 200, 1_000, 10_000)
CROWDED = (80, 150)
"""Without a tick of their own, where there is no room for one."""
FLOOR = 1.33
OURS, WHOLE, SIMPLE = "ours", "ours, whole tick charged", "SIMPLE-Selection"
SIDES = (OURS, WHOLE, SIMPLE)

Point = dict[str, float]


def run(effort: Effort, seeds: list[int]) -> Outcome:
    shares = (0.25, 0.5, 1.0) if effort.quick else SHARES
    numbers = (20, HUNDRED, 200) if effort.quick else NUMBERS
    by_share: dict[float, list[Point]] = {share: [] for share in shares}
    by_number: dict[float, list[Point]] = {number: [] for number in numbers}
    costs: dict[float, list[Point]] = {number: [] for number in numbers}
    for seed in seeds:
        log = intervals(seed, 12 if effort.quick else 36)
        counted = log[WARM:]
        price, store = (np.concatenate([b[name] for b in counted]) for name in ("price", "store_id"))
        asked = draw(max(numbers), price, store, seed)
        for number in numbers:
            print(f"  fig15: seed {seed}, {number:,} queries", file=sys.stderr, flush=True)
            some = asked.first(number)
            batches = log if number <= 1_000 else log[: WARM + 6]
            simple = need(some, batches)
            at = shares if number == HUNDRED else (FIXED,)
            points = {share: point(some, batches, simple, share) for share in at}
            if number == HUNDRED:
                for share in shares:
                    by_share[share].append(points[share])
            by_number[number].append(points[FIXED])
            costs[number].append(_costs(some, batches, simple))
    return _outcome(by_share, by_number, costs)


def point(asked: Asked, batches: list[Columns], simple: Need, share: float) -> Point:
    """Percent of the exact result that each side gets, the mean over queries."""
    budget = share * simple.budget
    got = {
        OURS: run_ours(asked, batches, budget, whole=False),
        SIMPLE: run_simple(asked, batches, budget, simple.way),
        WHOLE: run_ours(asked, batches, budget, whole=True),
    }
    return {side: percent(found, simple.got) for side, found in got.items()}


def percent(got: Got, everything: Got) -> float:
    """Of the exact result, the mean over queries."""
    return float(np.mean(100 * got.came / np.maximum(everything.came, 1)))


def _costs(asked: Asked, batches: list[Columns], simple: Need) -> Point:
    """Nanoseconds a tuple, with all the time that is wanted; ours has to find everything."""
    got = run_ours(asked, batches, None, whole=False)
    if not np.array_equal(got.came, simple.got.came):
        raise AssertionError("ours and SIMPLE differ in what they find")
    ours, tick = statistics.median(got.spent), statistics.median(got.ticks)
    return {OURS: ours / INTERVAL, WHOLE: (ours + tick) / INTERVAL, SIMPLE: simple.budget / INTERVAL}


def _curves(points: dict[float, list[Point]]) -> list[Curve]:
    return [Curve(side, list(points), [[p[side] for p in found] for found in points.values()]) for side in SIDES]


def _outcome(
    by_share: dict[float, list[Point]], by_number: dict[float, list[Point]], costs: dict[float, list[Point]]
) -> Outcome:
    rows = [_row(f"{HUNDRED}", f"{share:g}", found) for share, found in by_share.items()]
    rows += [_row(f"{int(number):,}", f"{FIXED:g}", found) for number, found in by_number.items() if number != HUNDRED]
    loads = {f"{HUNDRED} at {share:g}": found for share, found in by_share.items() if share < 1}
    loads |= {f"{int(n):,} at {FIXED:g}": found for n, found in by_number.items()}
    told = [
        f"{int(n):,} queries: {spread([p[OURS] for p in found])} (whole tick {spread([p[WHOLE] for p in found])})"
        f" against {spread([p[SIMPLE] for p in found])}"
        for n, found in costs.items()
    ]
    return Outcome(
        "fig15",
        "Figure 15: selections at a CPU budget",
        [
            Plot(
                "fig15a",
                f"{HUNDRED} selections of 5-10 %",
                "time between arrivals (1: SIMPLE just keeps up)",
                "% of the exact result",
                _curves(by_share),
            ),
            Plot(
                "fig15b",
                f"selections of 5-10 %, offered {1 / FIXED:g}x what SIMPLE can do",
                "queries",
                "% of the exact result",
                _curves(by_number),
                log_x=True,
                ticks={number: f"{int(number):,}" for number in by_number if number not in CROWDED},
            ),
        ],
        ["queries", "time between arrivals", *(f"{side}, %" for side in SIDES), "ours / SIMPLE", "whole / SIMPLE"],
        rows,
        [
            _ahead("ahead of SIMPLE at every load from 20 queries on", loads, OURS, 1.0),
            _ahead(f"at {HUNDRED} queries, under load, >= {FLOOR} x SIMPLE", _hundred(by_share), OURS, FLOOR),
            _ahead("ahead at every load with the whole tick charged to ours", loads, WHOLE, 1.0),
        ],
        [
            "Nanoseconds per tuple without a time limit, ours against SIMPLE's faster version: "
            + "; ".join(told)
            + ".",
            f"Tuples arrive in intervals of {INTERVAL:,}. The second column is the length of an interval, as a share of"
            " the CPU time SIMPLE needs to test all its tuples against all queries.",
            "SIMPLE is the faster of two compiled loops over ready arrays. Ours is the engine of continuous queries:"
            " finding the matches of each query, and in a separate column with reading the stream as well.",
        ],
        "Complete Journey, the even stores, played back; each seed takes another part of the year",
        _metrics(by_share, by_number),
    )


def _hundred(by_share: dict[float, list[Point]]) -> dict[str, list[Point]]:
    return {f"{share:g}": found for share, found in by_share.items() if share < 1}


def _ahead(text: str, loads: dict[str, list[Point]], side: str, least: float) -> Goal:
    ratios = {name: statistics.median(p[side] / p[SIMPLE] for p in found) for name, found in loads.items()}
    short = [f"{name}: {ratio:.2f}" for name, ratio in ratios.items() if not ratio >= least]
    measured = f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f}" + (
        f"; below at {', '.join(short)}" if short else ""
    )
    return Goal(text, measured, not short)


def _row(queries: str, load: str, found: list[Point]) -> list[str]:
    ratios = [f"{statistics.median(p[side] / p[SIMPLE] for p in found):.2f}" for side in (OURS, WHOLE)]
    return [queries, load, *(spread([p[side] for p in found]) for side in SIDES), *ratios]


def _metrics(
    by_share: dict[float, list[Point]], by_number: dict[float, list[Point]]
) -> list[dict[str, str | float | int]]:
    made: list[dict[str, str | float | int]] = []
    places = [(HUNDRED, share, found) for share, found in by_share.items()]
    places += [(int(number), FIXED, found) for number, found in by_number.items() if number != HUNDRED]
    for number, share, found in places:
        ours, theirs = (statistics.median(p[side] for p in found) for side in (OURS, SIMPLE))
        made.append(
            {
                "metric": f"share of the exact result, {number:,} queries at {share:g}",
                "ours": ours,
                "theirs": theirs,
                "opponent": SIMPLE,
                "unit": "%",
            }
        )
    return made
