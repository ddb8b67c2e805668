"""Sums with an error bound read extreme tuples first: exact when all is read, and bounds hold on heavy tails."""

import math
from collections import Counter
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from promising.index import Stream
from promising.index.snapshot import Snapshot
from promising.query import Session, planner
from promising.query.binder import bind
from promising.query.operators import extremes_first
from promising.query.operators.extremes_first import ExtremesFirst, Ranked
from promising.query.operators.stream_scan import Scan
from promising.query.sql import parse
from tests.tiers import examples

ASKED = "SELECT sum(x * n) AS a FROM s WHERE k = 1"


def session_of(columns: dict[str, Any], **more: Any) -> Session:
    session = Session(seed=3)
    rows = len(columns["x"])
    session.execute(
        "CREATE STREAM s (ts TIMESTAMP, j INT, k INT, x DOUBLE, n INT) TIMESTAMP BY ts"
        f" OPTIONS (max_tuples = {max(rows, 1 << 18)})"
    )
    session.execute(
        "CREATE SUMMARY by_j ON s (j) MEASURES (MOMENTS(x), MOMENTS(n)) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 3)"
    )
    whole = {"ts": np.arange(rows) * 1_000, "j": np.arange(rows) % 7, **columns, **more}
    for first in range(0, rows, 1 << 15):
        session.ingest("s", {name: column[first : first + (1 << 15)] for name, column in whole.items()})
    return session


def heavy(seed: int, rows: int, law: str = "pareto") -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    if law == "mixture":
        x = rng.exponential(1.0, rows) * np.where(rng.random(rows) < 1e-3, 1_000.0, 1.0)
    else:
        x = rng.pareto(1.5, rows) + 1 if law == "pareto" else rng.lognormal(0, 2, rows)
    return {"x": x, "n": rng.integers(1, 6, rows), "k": rng.integers(0, 4, rows)}


@settings(max_examples=examples(2), deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_what_is_read_to_the_end_is_exact(seed: int):
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(10, 12_000))
    columns = heavy(seed, rows)
    session = session_of(columns)
    window = "" if rng.random() < 0.5 else f" WINDOW {int(rng.integers(1, rows))} MILLISECONDS"
    sql = f"SELECT k, sum(x * n) AS a, avg(x) AS b, sum(n) AS c, count(*) AS d FROM s WHERE n > 1 GROUP BY k{window}"
    wanted = by_key(session.query(sql).to_arrow().to_pylist())
    asked = session.query(f"{sql} WITH ERROR 0.000001", seed=seed)
    assert asked.run().progress.complete
    same(by_key(asked.to_arrow().to_pylist()), wanted)
    pieces, token = 0, None
    answer = session.query(sql, budget=0.0005, seed=seed).run()
    while (token := answer.progress.token) is not None and pieces < 20:
        answer = session.resume(token, budget=0.001).run()
        pieces += 1
    if answer.progress.complete:
        same(by_key(answer.to_arrow().to_pylist()), wanted)


def by_key(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda one: one["k"])


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert {name: one[name] for name in "kcd"} == {name: other[name] for name in "kcd"}
        assert one["a"] == pytest.approx(other["a"], rel=1e-12) and one["b"] == pytest.approx(other["b"], rel=1e-12)


def test_the_plan_names_what_is_read_first():
    session = session_of(heavy(1, 40_000))
    assert "the greatest |n|, |x| first, a random sample of the rest" in str(session.explain(f"{ASKED} WITH ERROR 0.1"))
    assert "a random sample first" in str(session.explain("SELECT count(*) FROM s WHERE k = 1 WITH ERROR 0.1"))


def test_fewer_tuples_are_read_than_without_measures():
    session = session_of(heavy(2, 200_000))
    first = mean_read(session)
    session.execute("ALTER SUMMARY by_j DROP MEASURES (MOMENTS(x), MOMENTS(n))")
    assert 2 * first < mean_read(session)


def mean_read(session: Session) -> float:
    return sum(session.query(f"{ASKED} WITH ERROR 0.1", seed=seed).run().progress.read for seed in range(10)) / 10


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_makes_no_bound_wrong(value: float):
    columns = heavy(3, 60_000)
    at = int(np.flatnonzero(columns["k"] == 1)[100])
    columns["x"][at] = value
    session = session_of(columns)
    for seed in range(5):
        answer = session.query(f"{ASKED} WITH ERROR 0.2", seed=seed).run()
        (found,) = answer.to_arrow()["a"].to_pylist()
        assert answer.progress.complete
        assert math.isnan(found) if math.isnan(value) else found == value
    other = session.query("SELECT sum(x * n) AS a FROM s WHERE k = 2 WITH ERROR 0.3", seed=1).run()
    (found,) = other.to_arrow()["a"].to_pylist()
    assert math.isfinite(found)


def test_lists_that_are_behind_are_not_used(monkeypatch: pytest.MonkeyPatch):
    """They may lack a NaN of the tuples that they have not reached."""
    columns = heavy(3, 5_000)
    session = session_of(columns)
    monkeypatch.setattr(Stream, "catch_up", lambda self, most: False)
    assert "a random sample first" in str(session.explain(f"{ASKED} WITH ERROR 0.2"))
    monkeypatch.undo()
    assert "the greatest |n|, |x| first" in str(session.explain(f"{ASKED} WITH ERROR 0.2"))


def test_magnitudes_beyond_doubles_hide_no_nan():
    columns = heavy(10, 40_000)
    columns["x"] = np.minimum(columns["x"], 1e3) * 1e304
    columns["x"][int(np.flatnonzero(columns["k"] == 1)[100])] = math.nan
    session = session_of(columns)
    answer = session.query(f"{ASKED} WITH ERROR 0.2").run()
    assert answer.progress.complete and math.isnan(answer.to_arrow()["a"][0].as_py())
    small = session.query("SELECT sum(x * 1e-200) AS a FROM s WHERE k = 2 WITH ERROR 0.3").run().to_arrow()
    assert math.isfinite(small["a"][0].as_py())


def test_more_values_that_are_not_finite_than_are_listed_leave_no_sample():
    columns = heavy(4, 40_000)
    columns["x"][5_000:7_000] = math.nan
    columns["k"][5_000:6_900] = 0
    session = session_of(columns)
    assert "too many values are NaN or infinite" in str(session.explain(f"{ASKED} WITH ERROR 0.2"))
    answer = session.query(f"{ASKED} WITH ERROR 0.2").run()
    assert answer.progress.complete


def test_candidates_are_read_once_and_the_rest_is_what_is_left():
    columns = heavy(7, 90_000)
    stream = session_of(columns).stream("s")
    stream.catch_up_all()
    snapshot = Snapshot(stream, 0, 10**9)
    with stream.reading():
        assert stream.extremes is not None
        ranked = Ranked(snapshot, stream.extremes, ["n", "x"])
    assert np.array_equal(np.sort(columns["x"])[::-1][:50], columns["x"][ranked.numbers[:50]])
    sampler, worker = ExtremesFirst(snapshot, lambda: 1_000, 5, ranked), Scan(snapshot, lambda: 1_000)
    seen: list[int] = []
    work = sampler.work()
    for step in range(60):
        batch = next(work)
        assert batch is not None
        seen += batch.rows[0].tolist()
        sampler.wanted = 250 if step < 30 else 333  # more are wanted later, and some of them were drawn before
        if step % 12:
            continue
        worker.done = 7_000 if step > 30 else 0
        left, population = sampler.rest(worker)
        certain = set(ranked.numbers[: sampler.certain].tolist())
        assert population == len(set(range(worker.done, 90_000)) - certain)
        numbers = np.concatenate(sampler._numbers) if sampler._numbers else np.empty(0, np.int64)
        assert left.tolist() == [n >= worker.done and n not in certain for n in numbers.tolist()]
    assert sampler.certain == 333
    assert sampler.taken().tolist() == sorted(certain)
    later = set(snapshot.rows_at(ranked.numbers[250:333]).tolist())
    twice = {row for row, times in Counter(seen).items() if times > 1}
    assert twice and twice <= later  # only those that were drawn before they were wanted


def test_nulls_only():
    columns = {**heavy(5, 5_000), "x": [None] * 5_000}
    answer = session_of(columns).query(f"{ASKED} WITH ERROR 0.2").run()
    assert answer.to_arrow()["a"].to_pylist() == [None]
    assert answer.progress.complete


def test_lists_longer_than_their_limit_stay_sound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(extremes_first, "LISTED", 100)
    columns = heavy(6, 100_000)
    session = session_of(columns)
    truth = float((columns["x"] * columns["n"])[columns["k"] == 1].sum())
    assert inside(session, truth, 20) >= 16
    columns["x"][:3_000] = math.nan
    columns["k"][:3_000] = 0
    assert "too many" in str(session_of(columns).explain(f"{ASKED} WITH ERROR 0.2"))


def inside(session: Session, truth: float, seeds: int, sql: str = ASKED) -> int:
    """In how many of the seeds the bounds contain the truth."""
    found = 0
    for seed in range(seeds):
        bounds = session.query(f"{sql} WITH ERROR 0.1 CONFIDENCE 0.95", seed=seed).run().bounds
        assert bounds is not None
        low, high = (float(table["a"][0].as_py()) for table in bounds)
        found += low - 1e-9 * abs(truth) <= truth <= high + 1e-9 * abs(truth)
    return found


@pytest.mark.deep("a thousand seeds for each law")
@pytest.mark.parametrize("law", ["pareto", "lognormal", "mixture"])
@pytest.mark.parametrize("function", ["sum", "avg"])
def test_bounds_hold_on_heavy_tails(law: str, function: str):
    columns = heavy(8, 300_000, law)
    values = (columns["x"] * columns["n"])[columns["k"] == 1]
    truth = float(values.sum() if function == "sum" else values.mean())
    session = session_of(columns)
    assert 930 <= inside(session, truth, 1_000, ASKED.replace("sum", function)) <= (1_000 if law == "mixture" else 995)


@pytest.mark.parametrize("budget", [None, 4 * 250, 4 * 10**6])
def test_a_stream_that_lacks_its_lists_makes_them_in_slices_within_the_budget(budget, monkeypatch):
    """Every look at the clock takes 100 ns: a slice after the first costs as much."""
    monkeypatch.setattr(planner, "FOLLOWED", 8 * 512)
    monkeypatch.setattr(planner, "FOLLOWS", 512)
    session = session_of(heavy(7, 20_000))
    stream = session.stream("s")
    stream._summaries.climb(anew=True)
    bound, ticks = bind(parse("SELECT sum(x) AS a FROM s"), "SELECT sum(x) AS a FROM s", session.catalog), count(0, 100)
    steps = planner.planning(bound, lambda: 256, budget, 1, clock=lambda: next(ticks))
    followed = []
    for _ in steps:
        assert stream.extremes is not None
        followed.append(stream.extremes.until)
    assert stream.extremes is not None
    if budget == 4 * 250:
        assert followed == [512, 1024, 1536] and stream.extremes.until == 2048
    else:
        assert followed == [512 * (n + 1) for n in range(6)] and stream.extremes.until == 8 * 512
