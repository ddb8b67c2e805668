"""Aggregates of a part of the tuples: their 95 % intervals hold in 93 to 99 of 100 trials, each with a seed of its own.

A CPU clock that ticks by itself stops every trial at the same place, or an error target does; what was looked at is
always a proper part of the whole. Truth is what the same query answers without a budget, which the differential tests
compare with DuckDB.
"""

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from promising.query import Frame
from promising.query.binder import bind
from promising.query.cursor import Cursor
from promising.query.sql import parse
from tests.query.stores import MS, Stores, as_rows, filled

TRIALS = 1_000
LEAST, MOST = 0.93, 0.99
FEWER = 400
"""Trials where the law is the same as in another test; the limits give way as chance does."""
AGGREGATES = "count(*), sum(a.price), sum(a.n), avg(a.price), avg(a.n), median(a.price), quantile(a.price, 0.9)"
Counts = NDArray[np.float64]
JOIN = "FROM a, b WHERE a.k = b.k"


def last_frames(made: Stores, sql: str, budget_ms: int | None, seeds: range) -> Iterator[Frame]:
    """The last frame of the answer, by seed. What does not change from trial to trial is done once."""
    bound = bind(parse(sql), sql, made.session.catalog)
    for seed in seeds:
        cursor = Cursor(bound, made.cpu, None if budget_ms is None else budget_ms * MS, seed)
        last = None
        for frame in cursor.run(None if budget_ms is None else budget_ms * MS, threading.Event()):
            last = frame
        assert last is not None
        yield last


def covered(frames: Iterator[Frame], exact: pa.Table, keys: int = 0) -> tuple[Counts, Counts]:
    """Of each aggregate, how often its interval was given and how often it held; groups are told by their keys."""
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


def judge(exact: pa.Table, given: Counts, held: Counts, trials: int, keys: int = 0) -> None:
    """An aggregate that needs no estimate, as count(*) over everything, holds always."""
    names = exact.column_names[keys:]
    shares = {name: round(float(h / g), 4) for name, g, h in zip(names, given, held, strict=True)}
    assert given.min() >= 0.99 * trials, dict(zip(names, given.tolist(), strict=True))
    room = 0.015 if trials == FEWER else 0.0
    assert min(shares.values()) >= LEAST - room, shares
    assert max(s for s in shares.values() if s < 1) <= MOST + room / 2, shares


def check(
    made: Stores, select: str, budget_ms: int | None, tail: str = "", keys: int = 0, trials: int = TRIALS
) -> None:
    """Ask `select`, with `tail` and a budget, as often as there are trials, and compare with its exact answer."""
    exact = made.session.query(select).to_arrow()
    frames = last_frames(made, f"{select} {tail}", budget_ms, range(trials))
    judge(exact, *covered(frames, exact, keys), trials, keys)


@pytest.fixture(scope="module")
def made() -> Stores:
    return filled(3_000, 300, batches=1)


@pytest.mark.deep("statistics over many trials")
@pytest.mark.parametrize("where", ["", "WHERE a.n > 3"])
def test_of_a_stream(made, where):
    check(made, f"SELECT {AGGREGATES} FROM a {where}", 60)


@pytest.mark.deep("statistics over many trials")
def test_of_a_join(made):
    check(made, f"SELECT {AGGREGATES} {JOIN} AND a.price > b.price", 600)


@pytest.mark.deep("statistics over many trials")
@pytest.mark.parametrize("source", ["FROM a WHERE a.n < 8", f"{JOIN} AND a.price > b.price"])
def test_when_it_stops_at_an_error_target(made, source):
    """Stopping when the interval is narrow picks samples that happen to look even; that must not cost the promise."""
    check(made, f"SELECT count(*), sum(a.price), avg(a.price) {source}", None, "WITH ERROR 0.08")


@pytest.mark.deep("statistics over many trials")
@pytest.mark.parametrize(("source", "budget_ms"), [("FROM a", 80), (JOIN, 900)])
def test_of_groups(made, source, budget_ms):
    """Nine groups, so that a hundred answers are nearly a thousand trials."""
    columns = "a.n, count(*), sum(a.price), avg(a.price), median(a.price)"
    check(made, f"SELECT {columns} {source} GROUP BY a.n", budget_ms, keys=1, trials=150)


@pytest.mark.deep("statistics over many trials")
@pytest.mark.parametrize(
    ("select", "budget_ms"),
    [
        ("FROM a WHERE a.n > 3 WINDOW 25 SECONDS", 60),
        (f"{JOIN} AND a.price > b.price WINDOW 25 SECONDS", 700),
        ("FROM a WHERE a.n > 3", 130),
    ],
    ids=["window", "window join", "partly read"],
)
def test_of_windows_and_of_what_was_partly_read(made, select, budget_ms):
    check(made, f"SELECT {AGGREGATES} {select}", budget_ms, trials=FEWER)


@pytest.mark.deep("statistics over many trials")
@pytest.mark.parametrize("direction", ["DESC", "ASC", "WEIGHTED"])
def test_with_a_preference(made, direction):
    tail = f"WITH PREFERENCE {direction} SUMMARY.Estimate.Count(a.k)"
    check(made, f"SELECT {AGGREGATES} {JOIN} AND b.n > 5", 700, tail, trials=FEWER)
