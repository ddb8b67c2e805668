"""Hundreds of standing joins on one core that is offered four times what it can do (`crowded`, section 10 of the spec).

What all of it would cost is measured first, tick by tick; then each contender has a quarter of that. SIMPLE does the
same work with the same compiled steps, its probes in the order of arrival, and gives up what has ended before its turn
comes. Both share the time among the queries in the same way. Output is results that came into the views.
"""

import statistics
import time
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Effort, Figure, Report
from promising.query import Session
from promising.query.standing.operators import join
from promising.query.standing.operators.deferred_probes import CHUNK, Waiting
from promising.query.standing.operators.entry_store import Places

SECOND = 1_000_000
START = 10**12
OVERLOAD = 4


class InOrder(Waiting):
    """Probes in the order of arrival."""

    def best(self) -> list[tuple[int, Places]]:
        chunks = []
        for number in (0, 1):
            places = self._places[number]
            chunks += [(number, places[at : at + CHUNK]) for at in range(0, len(places), CHUNK)]
        return sorted(chunks, key=lambda chunk: int(self.order(chunk[0])[chunk[1][0]]))


@dataclass(frozen=True)
class Load:
    """Batches of two streams for so many ticks."""

    queries: int
    ticks: int
    batch: int
    items: int
    """How many there are, popular by Zipf's law: the more, the fewer partners a tuple has."""
    seed: int = 1

    def columns(self) -> list[list[dict[str, NDArray[np.generic]]]]:
        rng = np.random.default_rng(self.seed)
        weights = 1 / np.arange(1, self.items + 1)
        edges = np.cumsum(weights / weights.sum())
        out = []
        for tick in range(self.ticks):
            times = START + tick * SECOND // 10 + np.sort(rng.integers(0, SECOND // 10, (2, self.batch)))
            items = np.searchsorted(edges, rng.random((2, self.batch)))
            prices = rng.random((2, self.batch))
            out.append([{"ts": times[s], "item": items[s], "price": prices[s]} for s in (0, 1)])
        return out

    def session(self) -> Session:
        session = Session(seed=1, clock=lambda: 1 << 60)
        for name in ("a", "b"):
            session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
            session.execute(
                f"CREATE SUMMARY by_{name} ON {name} (item) WITH GRANULARITY 60 SECONDS AND COLLAPSE (2, 2)"
            )
        rng = np.random.default_rng(self.seed)
        for query in range(self.queries):
            low, wide = float(rng.random() * 0.9), float(rng.uniform(0.05, 0.1))
            session.execute(
                f"CREATE CONTINUOUS QUERY q{query} AS SELECT a.item, a.price, b.price FROM a, b WHERE a.item = b.item"
                f" AND a.price BETWEEN {low!r} AND {low + wide!r} AND b.price BETWEEN {low!r} AND {low + wide!r}"
                " WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.item), SUMMARY.Estimate.Count(b.item) WINDOW 2 SECONDS"
            )
        return session


@dataclass(frozen=True)
class Outcome:
    came: NDArray[np.int64]
    """Results of each query."""
    shed: float
    cpu: float
    """Seconds of all ticks."""


def _run(load: Load, capacity: float | None) -> Outcome:
    session = load.session()
    spent = 0
    for a, b in load.columns():
        session.ingest("a", a)
        session.ingest("b", b)
        began = time.thread_time_ns()
        session.standing.tick(capacity=capacity)
        spent += time.thread_time_ns() - began
    views = [session.standing.view(f"q{query}") for query in range(load.queries)]
    came = np.array([view.came for view in views])
    shed = sum(view.shed for view in views)
    session.close()
    return Outcome(came, shed, spent / 1e9)


def run(report: Report, effort: Effort) -> None:
    figures = []
    _run(Load(2, 5, 100, 100), None)  # compiles
    for queries, items in ((10, 5_000),) if effort.quick else ((20, 5_000), (20, 500_000), (60, 500_000)):
        load = Load(queries, 30, 2_000 if effort.quick else 10_000, items)
        whole = _run(load, 1e9)
        capacity = whole.cpu / load.ticks / OVERLOAD
        ours, simple = [], []
        for _ in range(1 if effort.quick else 3):
            ours.append(_run(load, capacity))
            with patch.object(join, "Waiting", InOrder):
                simple.append(_run(load, capacity))
        mine = statistics.median(int(o.came.sum()) for o in ours)
        theirs = statistics.median(int(o.came.sum()) for o in simple)
        total = int(whole.came.sum())
        share = ours[0].came / np.maximum(whole.came, 1)
        partners = round(total / (load.queries * load.ticks * load.batch * 2 * 0.075), 1)
        sizes: dict[str, int | float | str] = {"queries": queries, "results a tuple": partners}
        figures += [
            Figure("output", mine, max(theirs, 1), "SIMPLE, in order of arrival", "results", ">= 2", sizes),
            Figure("share of all output", mine / total, max(theirs, 1) / total, "SIMPLE", "", "", sizes),
            Figure("CPU", ours[0].cpu, whole.cpu, "all of the work", "s", "", sizes),
            Figure("least of a query", float(share.min()), float(share.mean()), "the mean share", "", ">= 0.5", sizes),
        ]
    report.part("crowded", "joins offered four times what the core can do", figures)
