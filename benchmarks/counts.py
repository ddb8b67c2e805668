"""Kinds of counts (USING) against the default: what an insert and an estimate cost, what they know, what they take."""

import numpy as np

from benchmarks import data
from benchmarks.harness import Contender, Effort, Figure, Report, Run, alternate
from promising.index import Stream, SummaryIndex
from promising.index.summary import SummaryState
from promising.summaries.counts import COUNTS, USUAL

BATCH = 4096
ASKED = 2_000


def run(report: Report, effort: Effort) -> None:
    figures = []
    n = effort.sizes[0]
    for name, make in (("zipf", data.zipf), ("all distinct", data.distinct)):
        columns = make(n, 1)
        batches = data.batches(columns, BATCH)
        inserted = alternate({using: _inserting(using, n, batches) for using in COUNTS}, effort.rounds, fresh=True)
        made = {using: _filled(using, n, batches) for using in COUNTS}
        held, counts = np.unique(columns["key"], return_counts=True)
        at = np.random.default_rng(1).choice(len(held), ASKED)
        asked = alternate({using: _asking(index, held[at]) for using, (_, index) in made.items()}, effort.rounds)
        errors = {using: _error(index, held[at], counts[at]) for using, (_, index) in made.items()}
        size = {using: _bytes(index) for using, (_, index) in made.items()}
        sizes: dict[str, int | float | str] = {"tuples": n, "batch": BATCH}
        for using in COUNTS:
            for metric, figure, unit, per in (
                ("insert", inserted, "ns/tuple", n),
                ("estimate", asked, "ns/key", ASKED),
                ("mean error of a cell's count", errors, "tuples", 1),
                ("bytes, without postings", size, "bytes/tuple", n),
            ):
                mine, usual = figure[using] / per, figure[USUAL] / per
                figures.append(Figure(f"{metric}, {name}, {using}", mine, usual, USUAL, unit, sizes=sizes))
    report.part("counts", "kinds of counts against count-sketch", figures)


def _made(using: str, n: int) -> tuple[Stream, SummaryIndex]:
    stream = Stream("bench", data.SCHEMA, time="ts", clock=lambda: 1 << 60, max_tuples=n)
    return stream, stream.create_summary("by_key", key="key", granularity=60 * data.SECOND, using=using)


def _inserting(using: str, n: int, batches: list[data.Columns]) -> Contender:
    def prepare() -> Run:
        stream, _ = _made(using, n)

        def go() -> None:
            for batch in batches:
                stream.append(batch)

        return go

    return prepare


def _filled(using: str, n: int, batches: list[data.Columns]) -> tuple[Stream, SummaryIndex]:
    stream, index = _made(using, n)
    for batch in batches:
        stream.append(batch)
    return stream, index


def _asking(index: SummaryIndex, keys: np.ndarray) -> Contender:
    return lambda: lambda: index.estimate(keys)


def _error(index: SummaryIndex, keys: np.ndarray, counts: np.ndarray) -> float:
    """Of the sum over cells, without the cap by the postings; a tiny one where there is none, for ratios."""
    found = index.regions(keys)
    sums = np.bincount(found.key, found.estimate, len(keys))
    return float(np.abs(sums - counts).mean()) + 1e-9


def _bytes(index: SummaryIndex) -> float:
    state = index.state
    assert isinstance(state, SummaryState)
    return float(state.fine.nbytes + state.coarse.nbytes)
