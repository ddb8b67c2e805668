"""Figure 12: a join over the whole stream: the share of the output that a budget buys, and how fresh the pairs are.

Freshness is the paper's: the mean of |ts1 - ts2| over the pairs of an answer, with FADE FACTOR 0.8. It is measured at
equal output, so it is the same on every machine. SIMPLE-SHJ stands there in two ways. *As it goes* is the paper's: the
log is played back, every tenth of it gives the join time for a share of its pairs, and what it does not come to is
shed. *From the start* has that time at the end, and begins with the oldest tuples: its pairs are close together because
they are all old.
"""

import statistics

import numpy as np

from benchmarks.harness import Effort
from benchmarks.paper.fig11 import LOGS, Hot, hot, hot_at, hot_judged, hot_plot, stem
from benchmarks.paper.joins import MINUTE, NUMBERS, Ints, Window, pairs_of, session_of, statement, taken
from benchmarks.paper.logs import SIMULATED, Log
from benchmarks.paper.results import Curve, Goal, Outcome, Plot, number, spread

SHARES = [0.05, 0.1, 0.25, 0.5, 0.75, 1.0]
OUTPUTS = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0]
FADE = 0.8
AGE = 0.5
TIGHT = 0.1
"""Where the age is judged: with all of the output every order has the same age."""
SPAN = 10 * MINUTE
TICKS = 10
WAYS = ("fade 0.8", "no fade", "SIMPLE-SHJ, as it goes", "SIMPLE-SHJ, from the start")

Pairs = tuple[Ints, Ints]


def age(log: Log, pairs: Pairs) -> float:
    """Mean |ts1 - ts2|, in seconds."""
    return float(np.abs(log.a["ts"][pairs[0]] - log.b["ts"][pairs[1]]).mean()) / 1e6


def shed(window: Window, share: float) -> Pairs:
    """SIMPLE-SHJ as it goes: of each tenth of the arrivals that share of the pairs, in order of arrival."""
    whole, join = window.join(), window.join()
    out: list[Pairs] = []
    for tick in range(1, TICKS + 1):
        until = len(window.row) * tick // TICKS
        due = sum(len(a) for a, _ in whole.run(until=until))
        out.append(taken(join.run(until=until), max(int(due * share), 1)))
        join.skip(until)
    return np.concatenate([a for a, _ in out]), np.concatenate([b for _, b in out])


def ages(log: Log, outputs: list[float]) -> dict[str, list[float]]:
    """Mean ages by the share of the output, each way."""
    session = session_of(log)
    window = Window(log)
    exact = window.exact
    first = window.prefix(exact)
    out: dict[str, list[float]] = {way: [] for way in WAYS}
    for share in outputs:
        most = max(int(exact * share), 1)
        for way, fade in (("fade 0.8", FADE), ("no fade", None)):
            out[way].append(age(log, pairs_of(session, statement(NUMBERS, fade=fade, tail=f"LIMIT {most}"))))
        out["SIMPLE-SHJ, as it goes"].append(age(log, shed(window, share)))
        out["SIMPLE-SHJ, from the start"].append(age(log, (first[0][:most], first[1][:most])))
    session.close()
    return out


def run(effort: Effort, seeds: list[int]) -> Outcome:
    sizes = dict(zip(LOGS, (60_000, 12_000, 8_000) if effort.quick else (150_000, 48_000, 20_000), strict=True))
    small = dict(zip(LOGS, (15_000, 3_000, 2_500) if effort.quick else (60_000, 16_000, 10_000), strict=True))
    shares, outputs = (SHARES[::2], OUTPUTS[2::2]) if effort.quick else (SHARES, OUTPUTS)
    rounds = 1 if effort.quick else 3
    found: dict[str, list[Hot]] = {}
    fresh: dict[str, list[dict[str, list[float]]]] = {}
    for name, make in LOGS.items():
        found[name] = [hot(make(sizes[name], s, SPAN / sizes[name]), rounds, shares, whole=True) for s in seeds]
        fresh[name] = [ages(make(small[name], s, SPAN / small[name]), outputs) for s in seeds]
    plots = [hot_plot("fig12-output", "Output of a whole-stream join", n, r, shares) for n, r in found.items()]
    plots += [_age_plot(name, runs, outputs) for name, runs in fresh.items()]
    rows = []
    for name in LOGS:
        for i, share in enumerate(shares):
            ours, simple = hot_at(found[name], i)
            rows.append([name, f"share of output at {share:.0%} of the CPU", spread(ours), spread(simple), ""])
        for i, share in enumerate(outputs):
            values = [[r[way][i] for r in fresh[name]] for way in WAYS]
            told = [spread(values[0]), spread(values[2]), f"{spread(values[1])}; {spread(values[3])}"]
            rows.append([name, f"mean age in s at {share:.0%} of the output", *told])
    goals, sentences = _judged(found, fresh, shares, outputs)
    told_sizes = ", ".join(f"{name} {sizes[name]:,} and {small[name]:,}" for name in LOGS)
    return Outcome(
        "fig12",
        "Figure 12: a join over the whole stream",
        plots,
        ["log", "measure", "ours", "SIMPLE-SHJ", "ours without fade; SIMPLE-SHJ from the start"],
        rows,
        goals,
        sentences,
        f"{SIMULATED}, and generated logs, ten minutes played back; tuples per stream, for output and for age:"
        f" {told_sizes}. GRANULARITY 60 SECONDS AND COLLAPSE (4, 5). Seeds: {len(seeds)}",
        metrics=[
            {
                "metric": f"mean age, {name}, at {share:.0%} of the output",
                "ours": statistics.median(r["fade 0.8"][i] for r in fresh[name]),
                "theirs": statistics.median(r["SIMPLE-SHJ, as it goes"][i] for r in fresh[name]),
                "unit": "s",
            }
            for name in LOGS
            for i, share in enumerate(outputs)
        ],
    )


def _age_plot(name: str, runs: list[dict[str, list[float]]], outputs: list[float]) -> Plot:
    labels = {"fade 0.8": "promising tuples, FADE FACTOR 0.8", "no fade": "promising tuples, no fade"}
    order = ("fade 0.8", "SIMPLE-SHJ, as it goes", "no fade", "SIMPLE-SHJ, from the start")
    return Plot(
        f"fig12-freshness-{stem(name)}",
        f"Freshness of the pairs ({name})",
        "output, as a share of the exact join's",
        "mean |ts1 - ts2|, seconds",
        [Curve(labels.get(w, w), outputs, [[r[w][i] for r in runs] for i in range(len(outputs))]) for w in order],
        log_x=True,
    )


def _judged(
    found: dict[str, list[Hot]],
    fresh: dict[str, list[dict[str, list[float]]]],
    shares: list[float],
    outputs: list[float],
) -> tuple[list[Goal], list[str]]:
    goals: list[Goal] = []
    sentences: list[str] = []
    at = outputs.index(TIGHT)
    for name, runs in fresh.items():
        ratio = [r["fade 0.8"][at] / r["SIMPLE-SHJ, as it goes"][at] for r in runs]
        goals.append(
            Goal(
                f"{name}: mean age at fade 0.8 <= 0.5x SIMPLE-SHJ's as it goes, at {TIGHT:.0%} of the output",
                f"{spread(ratio)}x",
                max(ratio) <= AGE,
            )
        )
        every = [
            statistics.median(r["fade 0.8"][i] / r["SIMPLE-SHJ, as it goes"][i] for r in runs)
            for i in range(len(outputs))
        ]
        told = ", ".join(f"{number(v)}x at {share:.0%}" for share, v in zip(outputs, every, strict=True))
        sentences.append(f"Age, {name}, against SIMPLE-SHJ as it goes, by share of the output: {told}.")
    for name, hots in found.items():
        sentences.append(hot_judged(name, hots, shares)[1])
    sentences += [
        "A granularity four times as long has up to sixteen times the pairs of a key, for a factor of 0.8 per side. So"
        " fading matters less the more output there is; a smaller factor or a lower rate of COLLAPSE gives fresher"
        " pairs.",
        "SIMPLE-SHJ from the start has the closest pairs at small outputs, all of them old: |ts1 - ts2| measures how"
        " far apart a pair is, not how long ago it arrived.",
    ]
    return goals, sentences
