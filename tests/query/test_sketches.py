"""Approximate aggregates from sketches of zones: their bounds hold for the tuples, and exact ones beside them are."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.query import Session
from promising.testing import ManualClock
from tests.tiers import examples

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND
SQL = (
    "SELECT approx_quantile(x, 0.5) AS a, approx_quantile(n, 0.9) AS b, approx_count_distinct(w) AS d,"
    " approx_top_k(w, 3) AS top, count(*) AS c, sum(n) AS s, min(x) AS m FROM s"
)


def filled(seed: int, rows: int, words: int) -> tuple[Session, list[dict[str, Any]]]:
    rng = np.random.default_rng(seed)
    session = Session(clock=ManualClock(NOW + 1), seed=3)
    session.execute("CREATE STREAM s (ts TIMESTAMP, k INT, x DOUBLE, n INT, w TEXT) TIMESTAMP BY ts")
    session.execute(
        "CREATE SUMMARY by_k ON s (k) MEASURES (QUANTILES(x), QUANTILES(n), DISTINCT(w), FREQUENT(w), MOMENTS(n),"
        " MOMENTS(x)) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 3) OPTIONS (buckets = 4, depth = 3, width = 8)"
    )
    times = NOW - 200 * SECOND + np.sort(rng.integers(0, 200 * SECOND, rows))
    x: list[float | None] = rng.lognormal(0, 2, rows).tolist()
    for at in np.flatnonzero(rng.random(rows) < 0.05):
        x[at] = [None, math.nan, math.inf, -math.inf][int(rng.integers(4))]
    w = [None if rng.random() < 0.05 else f"w{v}" for v in rng.zipf(1.3, rows) % words]
    columns = {
        "ts": times.tolist(),
        "k": rng.integers(0, 9, rows).tolist(),
        "x": x,
        "n": rng.integers(-50, 50, rows).tolist(),
        "w": w,
    }
    for first in range(0, rows, 500):
        session.ingest("s", {name: column[first : first + 500] for name, column in columns.items()})
    return session, [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def above_all(value: float) -> float:
    return math.inf if math.isnan(value) else value


def check(session: Session, sql: str, rows: list[dict[str, Any]]) -> bool:
    """Whether sketches answered; the answer is right either way."""
    answer = session.query(sql)
    (found,) = answer.to_arrow().to_pylist()
    assert answer.bounds is not None
    (lower,), (upper,) = (bound.to_pylist() for bound in answer.bounds)
    plan = str(session.explain(sql))
    check_bounds(rows, found, lower, upper)
    sketches = "from sketches" in plan
    assert sketches or answer.progress.complete
    assert answer.progress.coverage.value == 1
    assert answer.progress.token is None
    return sketches


def check_bounds(
    rows: list[dict[str, Any]], found: dict[str, Any], lower: dict[str, Any], upper: dict[str, Any]
) -> None:
    assert found["c"] == len(rows)
    assert found["s"] == (sum(row["n"] for row in rows) if rows else None)
    for name, column, at in (("a", "x", 0.5), ("b", "n", 0.9)):
        values = sorted(above_all(row[column]) for row in rows if row[column] is not None)
        if not values:
            assert found[name] is None
            continue
        place, room = at * (len(values) - 1), 0.02 * len(values)  # each bound holds 99 times in 100
        low, high = values[max(math.floor(place - room), 0)], values[min(math.ceil(place + room), len(values) - 1)]
        assert lower[name] is None or lower[name] <= high
        assert upper[name] is None or upper[name] >= low
    words = Counter(row["w"] for row in rows if row["w"] is not None)
    assert lower["d"] <= len(words) * 1.1
    assert upper["d"] >= len(words) * 0.9
    for one in found["top"] or []:
        assert one["lower"] <= words[one["value"]] <= one["upper"]
    if words and found["top"][0]["lower"] == found["top"][0]["upper"]:
        assert found["top"][0]["count"] == max(words.values())


@settings(max_examples=examples(8), deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_bounds_hold_in_every_window(seed: int):
    rng = np.random.default_rng(seed)
    session, rows = filled(seed, int(rng.integers(100, 4000)), int(rng.choice([20, 3000])))
    newest = rows[-1]["ts"]
    assert check(session, SQL, rows)
    for _ in range(4):
        window = int(rng.integers(1, 250 * SECOND))
        check(session, f"{SQL} WINDOW {window} MICROSECONDS", [row for row in rows if row["ts"] > newest - window])
        since = int(rng.integers(1, 200)) * SECOND
        kept = [row for row in rows if row["ts"] >= NOW - since]
        text = f"TIMESTAMP '{np.datetime64(NOW - since, 'us').item().isoformat(' ')}'"
        check(session, f"{SQL} WHERE ts >= {text}", kept)


@settings(max_examples=examples(4), deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_buckets_of_time_are_answered_one_by_one(seed: int):
    rng = np.random.default_rng(seed)
    session, rows = filled(seed, int(rng.integers(1000, 4000)), int(rng.choice([20, 3000])))
    window = "" if rng.random() < 0.5 else f" WINDOW {int(rng.integers(70, 250))} SECONDS"
    least = 0 if not window else rows[-1]["ts"] - int(window.split()[1]) * SECOND
    sql = SQL.replace("SELECT ", "SELECT date_trunc('minute', ts) AS t, ").replace(
        " FROM s", f" FROM s GROUP BY t{window}"
    )
    answer = session.query(sql)
    assert answer.bounds is not None
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        if row["ts"] > least:
            groups.setdefault(row["ts"] // (60 * SECOND), []).append(row)
    found = answer.to_arrow()
    lower, upper = (bound.to_pylist() for bound in answer.bounds)
    times = [t // (60 * SECOND) for t in found["t"].cast("int64").to_pylist()]
    assert sorted(times) == sorted(groups) and len(times) == len(groups)
    for t, one, low, high in zip(times, found.to_pylist(), lower, upper, strict=True):
        check_bounds(groups[t], one, low, high)
    assert "buckets of time" in str(session.explain(sql)) or window
    assert answer.progress.complete == ("from sketches" not in str(session.explain(sql)))
    assert answer.progress.token is None


def test_buckets_shorter_than_zones_are_read():
    session, rows = filled(5, 2000, 50)
    sql = "SELECT date_trunc('second', ts) AS t, approx_count_distinct(w) AS d FROM s GROUP BY t ORDER BY t"
    found = session.query(sql).to_arrow().to_pylist()
    wanted: dict[int, set[str]] = {}
    for row in rows:
        wanted.setdefault(row["ts"] // SECOND, set()).update({row["w"]} - {None})
    assert [len(words) for _, words in sorted(wanted.items())] == [one["d"] for one in found]


def test_a_bucket_without_values_knows_nothing():
    session = filled(7, 100, 50)[0]
    session.execute("CREATE STREAM e (ts TIMESTAMP, k INT, x DOUBLE, w TEXT) TIMESTAMP BY ts")
    session.execute(
        "CREATE SUMMARY e_k ON e (k) MEASURES (QUANTILES(x), DISTINCT(w), FREQUENT(w)) WITH GRANULARITY 10 SECONDS AND"
        " COLLAPSE (2, 3)"
    )
    times = [NOW - 200 * SECOND + at * SECOND // 10 for at in range(2_000)]
    session.ingest("e", {"ts": times, "k": [1] * 2_000, "x": [None] * 1_500 + [2.0] * 500, "w": [None] * 2_000})
    sql = "SELECT date_trunc('minute', ts) AS t, approx_quantile(x, 0.5) AS q, approx_count_distinct(w) AS d,"
    sql += " approx_top_k(w, 2) AS top, count(*) AS c FROM e GROUP BY t ORDER BY t"
    assert "from sketches" in str(session.explain(sql))
    found = session.query(sql).to_arrow().to_pylist()
    assert sum(one["c"] for one in found) == 2_000
    assert {one["q"] for one in found} == {None, 2.0}
    assert all(one["d"] == 0 and one["top"] is None for one in found)


def test_buckets_keep_an_error_or_are_read():
    session, _ = filled(6, 4000, 3000)
    sql = "SELECT date_trunc('minute', ts) AS t, median(x) AS a FROM s GROUP BY t ORDER BY t"
    exact = session.query(sql).to_arrow()["a"].to_pylist()
    for error in (0.9, 1e-9):
        asked = f"{sql} WITH ERROR {error} CONFIDENCE 0.95"
        found = session.query(asked).to_arrow()["a"].to_pylist()
        assert ("from sketches" in str(session.explain(asked))) == (error == 0.9)
        assert len(found) == len(exact)
        assert error == 0.9 or found == exact


@pytest.mark.parametrize("budget", [None, 0.0, 0.001])
def test_no_budget_is_too_small(budget: float | None):
    session, rows = filled(1, 3000, 50)
    answer = session.query("SELECT approx_count_distinct(w) AS d, count(*) AS c FROM s", budget=budget)
    (found,) = answer.to_arrow().to_pylist()
    assert found["c"] == len(rows)
    assert answer.progress.token is None
    assert answer.progress.read < len(rows) / 4


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT approx_count_distinct(w) AS d FROM s WHERE n > 3",
        "SELECT n, approx_count_distinct(w) AS d FROM s GROUP BY n ORDER BY n",
        "SELECT approx_quantile(x + 1, 0.5) AS a FROM s",
        "SELECT approx_count_distinct(n) AS a FROM s",
        "SELECT approx_quantile(x, 0.5) AS a, median(x) AS b FROM s",
        "SELECT quantile(x, 0.5) AS a FROM s",
    ],
)
def test_what_sketches_do_not_know_is_read(sql: str):
    session, _ = filled(2, 1000, 50)
    assert "from sketches" not in str(session.explain(sql))
    assert session.query(sql).run().progress.complete


@pytest.mark.parametrize(
    ("function", "exact"), [("count(DISTINCT n)", 100), ("median(n)", None), ("quantile(x, 0.8)", None)]
)
def test_with_error_takes_sketches_if_they_are_close_enough(function: str, exact: int | None):
    session, _ = filled(4, 4000, 50)
    session.execute("ALTER SUMMARY by_k ADD MEASURES (DISTINCT(n))")
    wanted = session.query(f"SELECT {function} AS a FROM s").to_arrow()["a"][0].as_py()
    assert exact is None or wanted == exact
    for error, confidence in ((0.9, 0.95), (0.9, 0.99), (1e-9, 0.95)):
        sql = f"SELECT {function} AS a FROM s WITH ERROR {error} CONFIDENCE {confidence}"
        answer = session.query(sql)
        found = answer.to_arrow()["a"][0].as_py()
        near = "from sketches" in str(session.explain(sql))
        assert not near or (error, confidence) == (0.9, 0.95) or answer.progress.complete
        assert abs(found - wanted) <= max(error * abs(wanted), 1) + 1e-9
        assert answer.progress.complete or answer.progress.cut == "error"


def test_the_plan_says_what_sketches_answer():
    session, rows = filled(3, 3000, 50)
    text = str(session.execute("EXPLAIN ANALYZE SELECT approx_top_k(w, 2) AS top FROM s"))
    assert "from sketches: " in text
    assert f"expected rows: {len(rows):,}" in text
