"""Figure 10: small times between arrivals, and small windows: which structure is best where.

The paper's inter-arrival times below 50 ms become microseconds, a thousandth, as in Figure 9; the window keeps as many
tuples at every rate. Its windows, from 10 s to 2 minutes in steps of 20 s, are taken as they are. Output per input is
what came out under the time-out, by cells (the paper's way) and by postings (ours).
"""

import statistics

from benchmarks.harness import Effort
from benchmarks.paper.joins import MINUTE, SECOND
from benchmarks.paper.logs import generated
from benchmarks.paper.results import Curve, Goal, Outcome, Plot, number, spread
from benchmarks.paper.structures import STRUCTURES, WAYS, Player

TAUS = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
WINDOWS = [10, 30, 50, 70, 90, 110]
SPELL = 12_000
BATCH = 256
NEAR = 0.9
SERVICE = ("T4", "postings")
"""What the service has unless told otherwise."""

Out = dict[tuple[str, str], list[list[float]]]
"""By structure and way: at each x the outputs per input of each seed."""


def arrivals(window: int, batches: int, taus: list[float], seeds: list[int]) -> Out:
    """Output per input by the time between arrivals."""
    out: Out = {(s, way): [[] for _ in taus] for s in STRUCTURES for way in WAYS}
    rows = window + BATCH * (batches + 2)
    for seed in seeds:
        log = generated(rows, seed, drift=True, gap_us=MINUTE / window, spell=SPELL)
        for (name, way), values in out.items():
            for i, tau in enumerate(taus):
                player = Player(log, STRUCTURES[name], window)  # anew, so that all play the same stretch
                player.play(BATCH, 1, MINUTE, way, tau)
                values[i].append(player.play(BATCH, batches, MINUTE, way, tau).per_input)
    return out


def windows(rate: int, batch: int, batches: int, tau: float, lengths: list[int], seeds: list[int]) -> Out:
    """Output per input by the length of the window, with `rate` tuples a second."""
    out: Out = {(s, way): [[] for _ in lengths] for s in STRUCTURES for way in WAYS}
    filled = rate * max(lengths)
    rows = filled + batch * (batches + 2)
    for seed in seeds:
        log = generated(rows, seed, drift=True, gap_us=SECOND / rate, spell=SPELL)
        for (name, way), values in out.items():
            for i, length in enumerate(lengths):
                player = Player(log, STRUCTURES[name], filled)
                player.play(batch, 1, length * SECOND, way, tau)
                values[i].append(player.play(batch, batches, length * SECOND, way, tau).per_input)
    return out


def run(effort: Effort, seeds: list[int]) -> Outcome:
    taus, lengths = (TAUS[1::2], WINDOWS[::2]) if effort.quick else (TAUS, WINDOWS)
    window, batches = (30_000, 1) if effort.quick else (300_000, 4)
    rate, wide = (400, 2) if effort.quick else (5_000, 8)
    tau = 20.0 if effort.quick else 100.0
    parts = {
        "inter-arrival": (arrivals(window, batches, taus, seeds), taus, "us"),
        "window": (windows(rate, 64, wide, tau, lengths, seeds), [float(x) for x in lengths], "s"),
    }
    rows, goals, sentences, metrics = [], [], [], []
    for part, (out, xs, unit) in parts.items():
        behind, best_of = [], []
        for i, x in enumerate(xs):
            middle = {each: statistics.median(values[i]) for each, values in out.items()}
            best = max(middle, key=lambda each: middle[each])
            cells = max((e for e in middle if e[1] == "cells"), key=lambda each: middle[each])
            best_of.append(f"{x:g} {unit} {cells[0]}")
            if middle[SERVICE] < NEAR * middle[best]:
                behind.append(f"{x:g} {unit} ({number(middle[SERVICE])} for {number(middle[best])} of {best[0]})")
            for way in WAYS:
                told = [spread(out[name, way][i]) for name in STRUCTURES]
                top = max(STRUCTURES, key=lambda name: middle[name, way])
                rows.append([f"{part} {x:g} {unit}", way, *told, top])
            metrics.append({"metric": f"{part} {x:g} {unit}", "ours": middle[SERVICE], "theirs": middle[cells]})
        goals.append(
            Goal(
                f"{part}: the service's default (T4, postings) within 10 % of the best everywhere",
                "everywhere" if not behind else "not at " + ", ".join(behind),
                not behind,
            )
        )
        sentences.append(f"By cells, the paper's way, the best structure by {part}: {', '.join(best_of)}.")
    sentences.append(
        "By postings T2, T3 and T4 differ only in insertion cost, which matters more the less time there is per tuple."
    )
    return Outcome(
        "fig10",
        "Figure 10: small times between arrivals, and small windows",
        [
            _plot("fig10-arrival", "Small times between arrivals", "microseconds between arrivals", taus, parts, way)
            for way in WAYS
        ]
        + [_plot("fig10-window", "Small windows", "window, seconds", parts["window"][1], parts, way) for way in WAYS],
        ["at", "way", *(f"{name} {structure}" for name, structure in STRUCTURES.items()), "best"],
        rows,
        goals,
        sentences,
        f"generated, with drift: popularity changes every {SPELL:,} tuples. Times between arrivals are a thousandth of"
        f" the paper's, with {window:,} tuples per stream in the window, batches of {BATCH}; windows with {rate:,}"
        f" tuples per second and stream, {tau:g} microseconds per tuple, batches of 64. Seeds: {len(seeds)}",
        metrics=metrics,
    )


def _plot(
    stem: str, title: str, x_label: str, xs: list[float], parts: dict[str, tuple[Out, list[float], str]], way: str
) -> Plot:
    out = parts["inter-arrival" if "arrival" in stem else "window"][0]
    of = "the paper's way, by cells" if way == "cells" else "ours, by postings"
    curves = [Curve(f"{name} {structure}", xs, out[name, way]) for name, structure in STRUCTURES.items()]
    return Plot(f"{stem}-{way}", f"{title} ({of})", x_label, "pairs per input tuple", curves, log_x="arrival" in stem)
