"""Figure 9: what it takes to put a tuple in, what to find a pair, and how many pairs a tuple brings, for T1 to T4.

On a generated log with drift. The paper's machine had 0.1 s for a tuple; ours has a thousandth of it, and a window of a
minute has the more tuples for it. Cost parameters are taken without a time-out; output per input both by the paper's
equation, N = (tau - t_ins) / t_hit, and as it came out with a time-out. Both ways to look for pairs stand apart: by
cells, which is the paper's, and by postings, which is what the service does (see `structures`).
"""

import statistics
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.harness import Effort
from benchmarks.paper.joins import MINUTE
from benchmarks.paper.logs import Log, generated
from benchmarks.paper.results import Curve, Goal, Outcome, Plot, number, spread
from benchmarks.paper.structures import FILL, STRUCTURES, WAYS, Played, Player, by_equation, play_compared

BATCH = 64
SPELL = 12_000
COMPARED = {"1/60": 1 / 60, "1/600": 1 / 600}
"""Shares of the window that an input may be compared with, where tuples compared are counted instead of time."""
TICKS = {float(i): f"{name} {structure}" for i, (name, structure) in enumerate(STRUCTURES.items())}


@dataclass(frozen=True)
class Cost:
    """Of one structure and way: without a time-out, and with one."""

    fill: float
    """Microseconds to put a tuple in, in large batches."""
    free: Played
    timed: Played
    counted: dict[str, float]
    """Pairs an input where it may be compared with these shares of the window's tuples; by cells only."""


Costs = dict[tuple[str, str], Cost]
"""By structure and way."""


def measure(log: Log, filled: int, tau_us: float, batches: int) -> Costs:
    """Every structure, way and time-out plays the same stretch of the log."""
    out: Costs = {}
    for way in WAYS:
        for name, structure in STRUCTURES.items():
            played = []
            for tau in (None, tau_us):
                player = Player(log, structure, filled)
                player.play(BATCH, 1, MINUTE, way, tau)  # what is loaded once
                played.append(player.play(BATCH, batches, MINUTE, way, tau))
            counted = {}
            for label, share in COMPARED.items() if way == "cells" else ():
                player = Player(log, structure, filled)
                counted[label] = play_compared(player, BATCH, batches + 1, MINUTE, filled * share).per_input
            out[name, way] = Cost(player.fill_us, played[0], played[1], counted)
    return out


def run(effort: Effort, seeds: list[int]) -> Outcome:
    window, batches = (60_000, 4) if effort.quick else (600_000, 16)
    tau = 20.0 if effort.quick else MINUTE / window  # a quick run has a smaller window, and less time to match
    rows_ = window + BATCH * (batches + 2)
    measure(generated(20_000, 1, drift=True, gap_us=MINUTE / 10_000), 10_000, tau, 1)  # compiles
    found = [
        measure(generated(rows_, s, drift=True, gap_us=MINUTE / window, spell=SPELL), window, tau, batches)
        for s in seeds
    ]
    rows, goals, sentences, metrics = [], [], [], []
    for way in WAYS:
        for name in STRUCTURES:
            costs = [f[name, way] for f in found]
            n = [by_equation(c.free.t_ins, c.free.t_hit, tau) for c in costs]
            run_ = [c.timed.per_input for c in costs]
            rows.append(
                [
                    way,
                    f"{name} {STRUCTURES[name]}",
                    spread([c.fill for c in costs]),
                    spread([c.free.t_ins for c in costs]),
                    spread([c.free.t_hit * 1e3 for c in costs]),
                    spread(n),
                    spread(run_),
                    spread([c.free.per_input for c in costs]),
                    *(spread([c.counted[x] for c in costs]) if way == "cells" else "" for x in COMPARED),
                ]
            )
            metrics.append({"metric": f"output per input, {way}, {name}", "ours": statistics.median(run_)})
        goals.append(_ordered(f"by {way}", {s: [f[s, way].timed.per_input for f in found] for s in STRUCTURES}))
    for label in COMPARED:
        counted = {s: [f[s, "cells"].counted[label] for f in found] for s in STRUCTURES}
        goals.append(_ordered(f"by cells, comparing an input with {label} of the window", counted))
    alike = [statistics.median(f[s, "postings"].timed.per_input for f in found) for s in ("T2", "T3", "T4")]
    sentences.append(
        f"By postings T2, T3 and T4 yield {', '.join(number(v) for v in alike)} pairs per input. Postings find a pair"
        " by its key, not by its cell, so the structure affects insertion cost only. Where all existing pairs are"
        " found, the structures tie."
    )
    sentences.append(
        "By cells, each visit to a region is a call from Python, so smaller cells cost more calls. Under drift T4 cuts"
        " more zones than T3: more calls, for cells with more matches. Counting compared tuples instead of time leaves"
        " the calls out and compares the structures themselves."
    )
    return Outcome(
        "fig9",
        "Figure 9: cost parameters of the structures, and output per input",
        _plots(found, tau),
        [
            "way",
            "structure",
            "t_ins, us",
            "in small batches",
            "t_hit, ns",
            "N by equation 1",
            "outputs per input, run",
            "outputs per input, all",
            *(f"{label} of the window compared" for label in COMPARED),
        ],
        rows,
        goals,
        sentences,
        f"generated, with drift: popularity changes every {SPELL:,} tuples; {tau:g} microseconds per tuple (the paper:"
        f" 100,000), {window:,} tuples per stream and minute; batches of {BATCH}; {batches * BATCH * 2:,} inputs per"
        f" run. t_ins is measured for batches of {FILL:,}, and for these. Seeds: {len(seeds)}",
        metrics=metrics,
    )


def _ordered(way: str, per_input: dict[str, list[float]]) -> Goal:
    ranked = {name: statistics.median(values) for name, values in per_input.items()}
    told = ", ".join(f"{name} {number(value)}" for name, value in ranked.items())
    return Goal(f"outputs per input rise from T1 to T4, {way}", told, all(a < b for a, b in pairwise(ranked.values())))


def _plots(found: list[Costs], tau: float) -> list[Plot]:
    def curve(label: str, way: str, value: object) -> Curve:
        assert callable(value)
        return Curve(label, list(TICKS), [[float(value(f[name, way])) for f in found] for name in STRUCTURES])

    ways = {"cells": "by cells (the paper's way)", "postings": "by postings (ours)"}
    hits = [curve(label, way, lambda c: c.free.t_hit * 1e3) for way, label in ways.items()]
    outs = [curve(f"run, {label}", way, lambda c: c.timed.per_input) for way, label in ways.items()]
    outs += [
        curve(f"equation 1, {label}", way, lambda c: by_equation(c.free.t_ins, c.free.t_hit, tau))
        for way, label in ways.items()
    ]
    compared = [
        curve(f"an input compared with {label} of the window", "cells", lambda c, label=label: c.counted[label])
        for label in COMPARED
    ]
    inserts = [curve("t_ins", "cells", lambda c: c.fill)]
    return [
        Plot("fig09-insert", "Insertion cost", "structure", "t_ins, microseconds a tuple", inserts, ticks=TICKS),
        Plot("fig09-hit", "Hit cost", "structure", "t_hit, nanoseconds a pair", hits, log_y=True, ticks=TICKS),
        Plot(
            "fig09-compared",
            "Output per input, for equally many tuples compared",
            "structure",
            "pairs per input tuple",
            compared,
            log_y=True,
            ticks=TICKS,
        ),
        Plot("fig09-output", "Output per input", "structure", "pairs per input tuple", outs, log_y=True, ticks=TICKS),
    ]
