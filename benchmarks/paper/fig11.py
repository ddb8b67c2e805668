"""Figure 11: the share of the exact output of a sliding-window join that a budget buys. Hot, and cold.

Hot: the window is in memory and the budget is CPU time, from 5 % to 100 % of what SIMPLE-SHJ needs for the exact join.
The paper's engine lets its join probe until the next tuple arrives; ours answers a statement under a BUDGET. So at
moments of the playback the paper's statement is asked, with that budget, and SIMPLE-SHJ is given the tuples of the same
window and the same time. One statement alone is the fair counterpart: what many continuous joins get of a core that is
too slow for all of them is measured elsewhere (`benchmarks/standing_crowded.py`). SIMPLE-SHJ's time has all it does,
putting tuples in and looking them up; ours is measured twice, without and with what the index cost to keep.

Cold: see `cold`.
"""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.harness import Effort
from benchmarks.paper import cold
from benchmarks.paper.joins import MINUTE, Window, ask, session_of, statement
from benchmarks.paper.logs import SIMULATED, Log, complete_journey, generated
from benchmarks.paper.results import Curve, Goal, Outcome, Plot, number, spread

SHARES = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0]
READS = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0]
OUTPUTS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
QUARTER = 0.25
TOLD = (0.05, 0.1, 0.25, 0.3, 0.6, 1.0)
"""Shares that are told as lines of JSON."""
AHEAD, SHARE = 3.0, 0.6

Make = Callable[[int, int, float], Log]
"""A log from (tuples a stream, seed, mean gap in microseconds)."""
LOGS: dict[str, Make] = {
    "Complete Journey": lambda rows, seed, gap: complete_journey(rows, seed, gap_us=gap),
    "generated, with drift": lambda rows, seed, gap: generated(rows, seed, drift=True, gap_us=gap),
    "generated, no drift": lambda rows, seed, gap: generated(rows, seed, drift=False, gap_us=gap),
}


@dataclass(frozen=True)
class Hot:
    """Of one log and seed: by budget the shares of the output; output per CPU second; CPU of the exact join."""

    ours: list[float]
    kept: list[float]
    """Ours, the index's upkeep counted against the budget."""
    simple: list[float]
    rate: list[float]
    """Output per CPU second, ours over SIMPLE's, by budget."""
    exact: float
    """CPU of our exact join over that of SIMPLE's."""
    pairs: int


def hot(log: Log, rounds: int, shares: list[float], *, whole: bool = False) -> Hot:
    """At the end of the playback, over a window of a minute or the whole stream.

    Contenders take turns; the median of the rounds counts.
    """
    began = time.thread_time_ns()
    session = session_of(log)
    upkeep = (time.thread_time_ns() - began) / 1e9
    end = int(max(log.a["ts"][-1], log.b["ts"][-1])) + 1
    window = Window(log) if whole else Window(log, end - MINUTE, end)
    upkeep *= (len(window.row) / 2) / log.rows  # of the tuples of the window
    pairs = window.exact
    tail = "" if whole else "WINDOW 60 SECONDS"
    desc, plain = (statement(direction=direction, tail=tail) for direction in ("DESC", None))
    if ask(session, desc).pairs != pairs or window.simple().pairs != pairs:
        raise AssertionError("the exact joins differ")
    ask(session, desc, 0.001)
    exact: list[tuple[float, float]] = []
    for _ in range(rounds):
        gc.collect()
        exact.append((ask(session, plain).cpu, window.simple().cpu))
    needs = statistics.median(simple for _, simple in exact)
    by_share: list[list[float]] = []
    for share in shares:
        took = []
        for _ in range(rounds):
            budget = share * needs
            ours, simple = ask(session, desc, budget), window.simple(budget)
            kept = ask(session, desc, budget - upkeep) if budget > upkeep else None
            gc.collect()
            rates = [spent.pairs / max(spent.cpu, 1e-9) for spent in (ours, simple)]
            took.append((ours.pairs, simple.pairs, kept.pairs if kept else 0, rates[0] / max(rates[1], 1e-9)))
        by_share.append([statistics.median(column) for column in zip(*took, strict=True)])
    session.close()
    ours_, simple_, kept_, rate = (list(column) for column in zip(*by_share, strict=True))
    return Hot(
        [x / pairs for x in ours_],
        [x / pairs for x in kept_],
        [x / pairs for x in simple_],
        rate,
        statistics.median(ours for ours, _ in exact) / needs,
        pairs,
    )


def run(effort: Effort, seeds: list[int]) -> Outcome:
    windows = dict(zip(LOGS, (100_000, 20_000, 12_000) if effort.quick else (200_000, 64_000, 24_000), strict=True))
    rounds = 1 if effort.quick else 3
    shares = list(dict.fromkeys([*SHARES[::3], SHARES[-1]])) if effort.quick else SHARES
    found = {
        name: [hot(make(windows[name] * 5 // 4, seed, MINUTE / windows[name]), rounds, shares) for seed in seeds]
        for name, make in LOGS.items()
    }
    run_tuples = 1 << 14 if effort.quick else 1 << 16
    rows = run_tuples * (2 if effort.quick else 4)
    colds = {
        name: [cold.measure(make(rows, seed, MINUTE * 2 / rows), run_tuples, READS, OUTPUTS) for seed in seeds]
        for name, make in LOGS.items()
    }
    plots = [hot_plot("fig11-hot", "Hot: output of a window join in memory", n, r, shares) for n, r in found.items()]
    plots += [_cold_plot(name, runs) for name, runs in colds.items()]
    rows_ = [_row(name, "hot, CPU", s, *hot_at(found[name], i)) for name in LOGS for i, s in enumerate(shares)]
    rows_ += [_row(name, "cold, bytes", s, *_cold_at(colds[name], i)) for name in LOGS for i, s in enumerate(READS)]
    sizes = ", ".join(f"{name} {tuples:,}" for name, tuples in windows.items())
    goals, sentences = _judged(found, colds, shares)
    return Outcome(
        "fig11",
        "Figure 11: share of the exact output of a sliding-window join",
        plots,
        ["log", "regime", "share of what the exact join needs", "ours, share of output", "SIMPLE-SHJ", "ours / SIMPLE"],
        rows_,
        goals,
        sentences,
        f"{SIMULATED}, and generated logs. Hot: a window of a minute, played back faster than the paper's 0.1 s per"
        f" tuple, with this many tuples per stream: {sizes}. Cold: {rows:,} tuples per stream, in files. Seeds:"
        f" {len(seeds)}",
        metrics=_metrics(found, colds, shares),
    )


def hot_at(runs: list[Hot], i: int) -> tuple[list[float], list[float]]:
    return [r.ours[i] for r in runs], [r.simple[i] for r in runs]


def _cold_at(runs: list[cold.Found], i: int) -> tuple[list[float], list[float]]:
    return [r.regions[i].got for r in runs], [r.simple[i].got for r in runs]


def _row(name: str, regime: str, share: float, ours: list[float], simple: list[float]) -> list[str]:
    ratios = [a / b if b else float("inf") for a, b in zip(ours, simple, strict=True)]
    return [name, regime, f"{share:.0%}", spread(ours), spread(simple), spread(ratios)]


def stem(name: str) -> str:
    return {"Complete Journey": "journey", "generated, with drift": "drift"}.get(name, "steady")


def hot_plot(figure: str, title: str, name: str, runs: list[Hot], shares: list[float]) -> Plot:
    def curve(label: str, of: Callable[[Hot], list[float]]) -> Curve:
        return Curve(label, shares, [[of(r)[i] for r in runs] for i in range(len(shares))])

    return Plot(
        f"{figure}-{stem(name)}",
        f"{title} ({name})",
        "CPU budget, as a share of what the exact SIMPLE-SHJ needs",
        "share of the exact output",
        [
            curve("promising tuples, DESC", lambda r: r.ours),
            curve("SIMPLE-SHJ", lambda r: r.simple),
            curve("promising tuples, upkeep of the index counted", lambda r: r.kept),
        ],
    )


def _cold_plot(name: str, runs: list[cold.Found]) -> Plot:
    keys = Curve(
        "promising tuples, the best keys",
        [statistics.median(r.keys[i].read for r in runs) for i in range(len(OUTPUTS))],
        [[r.keys[i].got for r in runs] for i in range(len(OUTPUTS))],
    )
    return Plot(
        f"fig11-cold-{stem(name)}",
        f"Cold: output of a join of tuples in files ({name})",
        "bytes read, as a share of what the exact join reads",
        "share of the exact output",
        [
            Curve(
                "promising tuples, the best regions",
                READS,
                [[r.regions[i].got for r in runs] for i in range(len(READS))],
            ),
            Curve(
                "SIMPLE-SHJ, in order of arrival", READS, [[r.simple[i].got for r in runs] for i in range(len(READS))]
            ),
            keys,
        ],
    )


def hot_judged(name: str, runs: list[Hot], shares: list[float]) -> tuple[list[Goal], str]:
    """Output per CPU second and the time of the exact join, against SIMPLE-SHJ's."""
    rates = [statistics.median(r.rate[i] for r in runs) for i in range(len(shares))]
    lowest = min(range(len(shares)), key=lambda i: rates[i])
    exact = [r.exact for r in runs]
    goals = [
        Goal(
            f"hot, {name}: output per CPU second never below SIMPLE-SHJ's",
            f"lowest {number(rates[lowest])}x, at {shares[lowest]:.0%} of the budget",
            rates[lowest] >= 1,
        ),
        Goal(
            f"hot, {name}: exact join no slower than SIMPLE-SHJ's",
            f"{spread(exact)}x its time",
            statistics.median(exact) <= 1,
        ),
    ]
    pairs = statistics.median(r.pairs for r in runs)
    below = [f"{share:.0%}" for share, rate in zip(shares, rates, strict=True) if rate < 1]
    told = f"Hot, {name}: {pairs:,.0f} pairs. "
    told += f"We are behind SIMPLE-SHJ at budgets of {', '.join(below)}" if below else "We are ahead at every budget"
    behind = [
        f"{share:.0%}"
        for i, share in enumerate(shares)
        if statistics.median(r.kept[i] for r in runs) < statistics.median(r.simple[i] for r in runs)
    ]
    return goals, f"{told}; with index maintenance charged, we are behind at {', '.join(behind) or 'none'}."


def _judged(
    found: dict[str, list[Hot]], colds: dict[str, list[cold.Found]], shares: list[float]
) -> tuple[list[Goal], list[str]]:
    goals: list[Goal] = []
    sentences: list[str] = []
    at = READS.index(QUARTER)
    for name, runs in found.items():
        told = hot_judged(name, runs, shares)
        goals += told[0]
        sentences.append(told[1])
    for name, runs_ in colds.items():
        ours = [r.regions[at].got for r in runs_]
        ratio = [r.regions[at].got / r.simple[at].got for r in runs_]
        keys = [max((p.got for p in r.keys if p.read <= QUARTER), default=0.0) for r in runs_]
        goals += [
            Goal(f"cold, {name}: >= 60 % of the output at 25 % of the reads", spread(ours), min(ours) >= SHARE),
            Goal(
                f"cold, {name}: >= 3x SIMPLE-SHJ's output at 25 % of the reads",
                f"{spread(ratio)}x",
                min(ratio) >= AHEAD,
            ),
        ]
        sentences.append(
            f"Cold, {name}: at a quarter of the reads the best regions yield {spread(ours)} of the output,"
            f" {spread(ratio)} times SIMPLE-SHJ's; all regions of the best keys yield {spread(keys)} for no more bytes."
        )
    sentences.append(
        "Cold: at the smallest reads the best regions may all belong to one stream and yield nothing until the other's"
        " are read; the best keys need at least one region of each."
    )
    sentences.append(
        "In memory an exact probe is as cheap as reading a summary. So in the hot regime a preference decides which"
        " pairs arrive first, at about SIMPLE-SHJ's cost; it yields many more pairs only where SIMPLE-SHJ misses the"
        " CPU cache."
    )
    return goals, sentences


def _metrics(
    found: dict[str, list[Hot]], colds: dict[str, list[cold.Found]], shares: list[float]
) -> list[dict[str, object]]:
    out: list[dict[str, object]] = []
    for name in LOGS:
        for i, share in ((i, share) for i, share in enumerate(shares) if share in TOLD):
            ours, simple = (statistics.median(v) for v in hot_at(found[name], i))
            out.append({"metric": f"hot, {name}, {share:.0%}", "ours": ours, "theirs": simple, "unit": "of the output"})
        for i, share in ((i, share) for i, share in enumerate(READS) if share in TOLD):
            ours, simple = (statistics.median(v) for v in _cold_at(colds[name], i))
            out.append(
                {"metric": f"cold, {name}, {share:.0%}", "ours": ours, "theirs": simple, "unit": "of the output"}
            )
    return out
