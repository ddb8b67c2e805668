"""Aggregates of a part of the tuples: their 95 % intervals hold in 93 to 99 of 100 trials, each with a seed of its own.

A CPU clock that ticks by itself stops every trial at the same place, or an error target does; what was looked at is
always a proper part of the whole. Truth is what the same query answers without a budget, which the differential tests
compare with DuckDB.
"""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from query import Frame
from query.binder import bind
from query.cursor import Cursor
from query.sql import parse
from tests.query.stores import MS, Stores, as_rows, filled

TRIALS = 1_000
LEAST, MOST = 0.93, 0.99
AGGREGATES = "count(*), sum(a.price), sum(a.n), avg(a.price), avg(a.n), median(a.price), quantile(a.price, 0.9)"
JOIN = "FROM a, b WHERE a.k = b.k"


def trials(made: Stores, sql: str, budget_ms: int | None, seeds: range = range(TRIALS)) -> Iterator[Frame]:
    """The last frame of the answer, by seed. What does not change from trial to trial is done once."""
    bound = bind(parse(sql), sql, made.session._catalog)
    for seed in seeds:
        cursor = Cursor(bound, made.cpu, None if budget_ms is None else budget_ms * MS, seed)
        last = None
        for frame in cursor.run(None if budget_ms is None else budget_ms * MS, threading.Event()):
            last = frame
        assert last is not None
        yield last


def covered(frames: Iterator[Frame], exact: pa.Table, keys: int = 0, least_hits: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Of each aggregate, how often its interval was given and how often it held; groups are told by the first columns."""
    truth = {row[:keys]: row[keys:] for row in as_rows(exact)}
    wide = exact.num_columns - keys
    given, held = np.zeros(wide), np.zeros(wide)
    for frame in frames:
        assert frame.mode == "replace" and frame.lower is not None and frame.upper is not None
        assert not frame.progress.complete
        for row, low, high in zip(as_rows(frame.rows), as_rows(frame.lower), as_rows(frame.upper), strict=True):
            for i, true in enumerate(truth[row[:keys]]):
                lower, upper = low[keys + i], high[keys + i]
                if lower is None or upper is None:
                    continue
                assert lower <= row[keys + i] <= upper
                given[i] += 1
                held[i] += lower - 1e-9 * abs(lower) <= true <= upper + 1e-9 * abs(upper)
    return given, held


def judge(exact: pa.Table, given: np.ndarray, held: np.ndarray, keys: int = 0) -> None:
    names = exact.column_names[keys:]
    shares = {name: round(h / g, 4) for name, g, h in zip(names, given, held, strict=True)}
    assert given.min() >= TRIALS * 0.99, dict(zip(names, given, strict=True))
    assert min(shares.values()) >= LEAST and max(shares.values()) <= MOST, shares


def run(made: Stores, select: str, budget_ms: int | None, tail: str = "", keys: int = 0) -> dict[str, Any]:
    exact = made.session.query(select).to_arrow()
    given, held = covered(trials(made, f"{select} {tail}", budget_ms), exact, keys)
    judge(exact, given, held, keys)
    return {}


@pytest.fixture(scope="module")
def made() -> Stores:
    return filled(6_000, 300, batches=1)


@pytest.mark.parametrize(
    ("where", "budget_ms"),
    [("", 60), ("WHERE a.n > 3", 60), ("WHERE a.n > 3 WINDOW 25 SECONDS", 60), ("WHERE a.n > 3", 160)],
    ids=["all", "where", "window", "half by reading"],
)
def test_of_a_stream(made, where, budget_ms):
    run(made, f"SELECT {AGGREGATES} FROM a {where}", budget_ms)


@pytest.mark.parametrize("where", ["", "AND a.price > b.price"])
def test_of_a_join(made, where):
    run(made, f"SELECT {AGGREGATES} {JOIN} {where}", 110)


@pytest.mark.parametrize(
    "preference", ["DESC SUMMARY.Estimate.Count(a.k)", "ASC SUMMARY.Estimate.Count(a.k)", "WEIGHTED SUMMARY.Estimate.Count(a.k)"]
)
def test_with_a_preference(made, preference):
    exact = made.session.query(f"SELECT {AGGREGATES} {JOIN} AND b.n > 5").to_arrow()
    sql = f"SELECT {AGGREGATES} {JOIN} AND b.n > 5 WITH PREFERENCE {preference}"
    judge(exact, *covered(trials(made, sql, 110), exact))


@pytest.mark.parametrize("source", ["FROM a WHERE a.n < 8", f"{JOIN} AND a.price > b.price"])
def test_when_it_stops_at_an_error_target(made, source):
    """Stopping when the interval is narrow picks samples that happen to look even; that must not cost the promise."""
    run(made, f"SELECT count(*), sum(a.price), avg(a.price) {source}", None, "WITH ERROR 0.06")


@pytest.mark.parametrize(("source", "budget_ms"), [("FROM a", 110), (JOIN, 160)])
def test_of_groups(made, source, budget_ms):
    """Groups of a tenth of the tuples each, and with them their counts, sums and so on."""
    exact = made.session.query(f"SELECT a.n, count(*), sum(a.price), avg(a.price), median(a.price) {source} GROUP BY a.n").to_arrow()
    sql = f"SELECT a.n, count(*), sum(a.price), avg(a.price), median(a.price) {source} GROUP BY a.n"
    given, held = covered(trials(made, sql, budget_ms, range(200)), exact, 1)
    judge(exact, given, held, 1)
