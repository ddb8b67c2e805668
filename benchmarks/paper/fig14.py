"""Figure 14: outliers by ASC, against what SIMPLE-SHJ finds of them.

The frequency of an item is how many pairs it has. An item is an outlier if its frequency is in the lowest 5 % of those
of the items that join, ties with the last of them included; its pairs are what is to be found. *Precision* is the share
of the pairs in an answer that are an outlier's, *recall* the share of all outliers' pairs that the answer has. Both are
taken at equal output, from a tenth of the outliers' pairs to ten times as many, so they are the same on every machine;
recall at equal CPU time stands beside them.
"""

import statistics
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Effort
from benchmarks.paper.fig11 import LOGS, stem
from benchmarks.paper.joins import MINUTE, NUMBERS, Ints, Window, key_counts, pairs_of, session_of, statement
from benchmarks.paper.logs import SIMULATED, Log
from benchmarks.paper.results import Curve, Goal, Outcome, Plot, number, spread

PERCENTILE = 5
OUTPUTS = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0]
SHARES = [0.05, 0.1, 0.25, 0.5, 1.0]
PRECISION, RECALL = 0.99, 3.0


@dataclass(frozen=True)
class Rare:
    """Precision and recall by output, recall by CPU time, each ours and SIMPLE's."""

    precision: list[float]
    simple_precision: list[float]
    recall: list[float]
    simple_recall: list[float]
    timed: list[float]
    simple_timed: list[float]
    pairs: int


def outliers(log: Log) -> tuple[Ints, int]:
    """The items, and how many pairs they have."""
    keys, in_a, in_b = key_counts(log.a["item_id"], log.b["item_id"])
    frequency = in_a * in_b
    rare = frequency <= np.percentile(frequency, PERCENTILE, method="inverted_cdf")
    return keys[rare], int(frequency[rare].sum())


def measure(log: Log, outputs: list[float], shares: list[float], rounds: int) -> Rare:
    session = session_of(log)
    window = Window(log)
    exact = window.exact
    items, wanted = outliers(log)
    rare: NDArray[np.bool_] = np.isin(log.a["item_id"], items)
    precision, recall, theirs, theirs_recall = [], [], [], []
    first = window.prefix(min(int(wanted * max(outputs)), exact))[0]
    for output in outputs:
        most = max(min(int(wanted * output), exact), 1)
        found = pairs_of(session, statement(NUMBERS, "ASC", tail=f"LIMIT {most}"))[0]
        hits, simple = int(rare[found].sum()), int(rare[first[:most]].sum())
        precision.append(hits / len(found))
        recall.append(hits / wanted)
        theirs.append(simple / most)
        theirs_recall.append(simple / wanted)
    needs = statistics.median(window.simple().cpu for _ in range(rounds))
    timed, simple_timed = [], []
    for share in shares:
        got, simple_got = [], []
        for _ in range(rounds):
            answer = session.query(statement("a.item_id", "ASC"), budget=needs * share).to_arrow()
            got.append(int(np.isin(answer["item_id"].to_numpy(), items).sum()) / wanted)
            came = window.prefix(max(window.simple(needs * share).pairs, 1))[0]
            simple_got.append(int(rare[came].sum()) / wanted)
        timed.append(statistics.median(got))
        simple_timed.append(statistics.median(simple_got))
    session.close()
    return Rare(precision, theirs, recall, theirs_recall, timed, simple_timed, wanted)


def run(effort: Effort, seeds: list[int]) -> Outcome:
    sizes = dict(zip(LOGS, (30_000, 6_000, 5_000) if effort.quick else (100_000, 24_000, 12_000), strict=True))
    outputs, shares = (OUTPUTS[1::2], SHARES[1::2]) if effort.quick else (OUTPUTS, SHARES)
    rounds = 1 if effort.quick else 3
    found = {
        name: [measure(make(sizes[name], s, MINUTE / sizes[name]), outputs, shares, rounds) for s in seeds]
        for name, make in LOGS.items()
    }
    plots, rows, goals, sentences, metrics = [], [], [], [], []
    full = outputs.index(1.0)
    for name, runs in found.items():
        plots += [_output_plot(name, runs, outputs), _time_plot(name, runs, shares)]
        for i, output in enumerate(outputs):
            columns = [
                spread([getattr(r, what)[i] for r in runs])
                for what in ("precision", "simple_precision", "recall", "simple_recall")
            ]
            rows.append([name, f"{output:g}x the outliers' pairs", *columns])
            metrics.append(
                {
                    "metric": f"recall, {name}, {output:g}x",
                    "ours": statistics.median(r.recall[i] for r in runs),
                    "theirs": statistics.median(r.simple_recall[i] for r in runs),
                }
            )
        for i, share in enumerate(shares):
            timed = [spread([getattr(r, what)[i] for r in runs]) for what in ("timed", "simple_timed")]
            rows.append([name, f"{share:.0%} of SIMPLE-SHJ's CPU", "", "", *timed])
        least = min(r.precision[i] for r in runs for i in range(full + 1))
        ratio = [r.recall[full] / max(r.simple_recall[full], 1 / r.pairs) for r in runs]
        goals += [
            Goal(f"{name}: precision >= 0.99 up to the number of outlier pairs", number(least), least >= PRECISION),
            Goal(f"{name}: recall >= 3x SIMPLE-SHJ's at that output", f"{spread(ratio)}x", min(ratio) >= RECALL),
        ]
        behind = [
            f"{share:.0%}"
            for i, share in enumerate(shares)
            if statistics.median(r.timed[i] for r in runs) < statistics.median(r.simple_timed[i] for r in runs)
        ]
        pairs = statistics.median(r.pairs for r in runs)
        sentences.append(
            f"{name}: outliers have {pairs:,.0f} pairs. At equal CPU time "
            + (
                f"SIMPLE-SHJ finds more of them at {', '.join(behind)} of its own."
                if behind
                else "ours finds more at every budget."
            )
        )
    sentences.append(
        "A key is counted in the postings before its pairs are returned, so precision falls only after all outliers"
        " have been returned: the answer continues with the next rarest."
    )
    return Outcome(
        "fig14",
        "Figure 14: outliers, ASC",
        plots,
        ["log", "output", "precision", "SIMPLE-SHJ's", "recall", "SIMPLE-SHJ's"],
        rows,
        goals,
        sentences,
        f"{SIMULATED}, and generated logs, a minute played back; tuples per stream:"
        f" {', '.join(f'{name} {size:,}' for name, size in sizes.items())}. Seeds: {len(seeds)}",
        metrics=metrics,
    )


def _output_plot(name: str, runs: list[Rare], outputs: list[float]) -> Plot:
    def curve(label: str, what: str) -> Curve:
        return Curve(label, outputs, [[getattr(r, what)[i] for r in runs] for i in range(len(outputs))])

    return Plot(
        f"fig14-outliers-{stem(name)}",
        f"Outliers in a part of the output ({name})",
        "output, in multiples of the pairs that outliers have",
        "share",
        [
            curve("ASC, precision", "precision"),
            curve("SIMPLE-SHJ, precision", "simple_precision"),
            curve("ASC, recall", "recall"),
            curve("SIMPLE-SHJ, recall", "simple_recall"),
        ],
        log_x=True,
    )


def _time_plot(name: str, runs: list[Rare], shares: list[float]) -> Plot:
    return Plot(
        f"fig14-time-{stem(name)}",
        f"Outliers found by CPU time ({name})",
        "CPU budget, as a share of what the exact SIMPLE-SHJ needs",
        "recall",
        [
            Curve("promising tuples, ASC", shares, [[r.timed[i] for r in runs] for i in range(len(shares))]),
            Curve("SIMPLE-SHJ", shares, [[r.simple_timed[i] for r in runs] for i in range(len(shares))]),
        ],
    )
