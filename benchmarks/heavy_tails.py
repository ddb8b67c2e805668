"""Sums with an error bound over heavy tails: how often the truth is inside, and what is read.

`sum(price * quantity) WITH ERROR 0.1 CONFIDENCE 0.95` under a condition that no cell knows, over a stream whose summary
has moments of both columns, against the same stream without, which is sampled uniformly. A seed draws another sample.
An answer that gives up sampling reads every tuple and is exact; it is inside, and counts with what it read.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import promising
from benchmarks.harness import Effort, Figure, Report
from promising.query import Session

ASKED = "SELECT sum(price * quantity) AS s FROM a WHERE store = 1"
TARGET = " WITH ERROR 0.1 CONFIDENCE 0.95"
BATCH = 1 << 16
STEP = 1_000  # microseconds between two tuples

Numbers = NDArray[np.float64]
Law = Callable[[np.random.Generator, int], Numbers]


@dataclass(frozen=True)
class Population:
    """Prices; `tuned` if they were looked at while the method was made, the others are hold-outs."""

    name: str
    law: Law
    tuned: bool = False
    heavy: bool = True


def _mixture(rng: np.random.Generator, n: int) -> Numbers:
    return np.asarray(rng.exponential(1.0, n) * np.where(rng.random(n) < 1e-3, 1_000.0, 1.0))


POPULATIONS = (
    Population("Pareto 1.5", lambda rng, n: rng.pareto(1.5, n) + 1, tuned=True),
    Population("lognormal 2", lambda rng, n: rng.lognormal(0, 2, n), tuned=True),
    Population("Pareto 1.2", lambda rng, n: rng.pareto(1.2, n) + 1),
    Population("Pareto 2", lambda rng, n: rng.pareto(2, n) + 1),
    Population("Weibull 0.4", lambda rng, n: rng.weibull(0.4, n)),
    Population("1 in 1,000 huge", _mixture),
    Population("Student 2.2, signed", lambda rng, n: rng.standard_t(2.2, n) + 1.5),
    Population("exponential", lambda rng, n: rng.exponential(1.0, n), heavy=False),
    Population("uniform", lambda rng, n: rng.random(n) * 100, heavy=False),
)


def run(report: Report, effort: Effort) -> None:
    tuples, seeds = (1 << 18, 60) if effort.quick else (1_000_000, 1_000)
    figures = []
    for population in POPULATIONS:
        rng = np.random.default_rng(11)
        prices = population.law(rng, tuples)
        columns = {"price": prices, "quantity": rng.integers(1, 6, tuples), "store": rng.integers(0, 4, tuples)}
        figures += _compared(population, columns, seeds)
    report.part("tails", "sums with an error bound over heavy tails", figures)


@dataclass(frozen=True)
class _Found:
    inside: float
    read: float
    error: float
    milliseconds: float
    exact: float  # share of answers that read everything


def _compared(population: Population, columns: dict[str, NDArray[np.generic]], seeds: int) -> list[Figure]:
    ours, theirs = (_session(columns, measured=measured) for measured in (True, False))
    truth = float((columns["price"] * columns["quantity"])[columns["store"] == 1].sum())
    mine, others = _asked(ours, truth, seeds), _asked(theirs, truth, seeds)
    sizes: dict[str, int | float | str] = {
        "tuples": len(columns["price"]),
        "seeds": seeds,
        "role": "tuned" if population.tuned else "hold-out",
        "read all": f"{mine.exact:.2f} / {others.exact:.2f}",
    }
    rng = np.random.default_rng(0)
    least = np.quantile(rng.binomial(seeds, 0.93, 100_000), 0.01) / seeds
    spread = "<= 0.5" if population.tuned else "<= 1.5"
    opponent = "uniform sample"
    return [
        Figure(f"{population.name}: inside", mine.inside, None, opponent, "share", f">= {least:.3f}", sizes),
        Figure(f"{population.name}: inside, uniform", others.inside, None, opponent, "share", "", sizes),
        Figure(f"{population.name}: read", mine.read, others.read, opponent, "tuples", spread, sizes),
        Figure(f"{population.name}: mean error", mine.error, others.error, opponent, "share", "", sizes),
        Figure(f"{population.name}: time", mine.milliseconds, others.milliseconds, opponent, "CPU ms", "", sizes),
    ]


def _session(columns: dict[str, NDArray[np.generic]], *, measured: bool) -> Session:
    session = promising.open(seed=7)
    n = len(columns["price"])
    session.execute(
        "CREATE STREAM a (key INT, ts TIMESTAMP, price DOUBLE, quantity INT, store INT) TIMESTAMP BY ts"
        f" OPTIONS (max_tuples = {max(n, 1 << 18)})"
    )
    if measured:
        session.execute(
            "CREATE SUMMARY a_key ON a (key) MEASURES (MOMENTS(price), MOMENTS(quantity)) WITH GRANULARITY 1 MINUTES"
            " AND COLLAPSE (4, 5)"
        )
    whole = {"key": np.arange(n) % 1_000, "ts": np.arange(n) * STEP, **columns}
    for first in range(0, n, BATCH):
        session.ingest("a", {name: column[first : first + BATCH] for name, column in whole.items()})
    return session


def _asked(session: Session, truth: float, seeds: int) -> _Found:
    session.query(ASKED + TARGET, seed=seeds).run()
    inside, read, error, exact = 0, 0, 0.0, 0
    began = time.thread_time()
    for seed in range(seeds):
        answer = session.query(ASKED + TARGET, seed=seed).run()
        value, progress = float(answer.to_arrow()["s"][0].as_py()), answer.progress
        low, high = (float(table["s"][0].as_py()) for table in answer.bounds or ())
        room = 1e-9 * abs(truth)
        inside += low - room <= truth <= high + room
        exact += progress.complete
        read += progress.read
        error += abs(value / truth - 1)
    took = 1e3 * (time.thread_time() - began) / seeds
    return _Found(inside / seeds, read / seeds, error / seeds, took, exact / seeds)
