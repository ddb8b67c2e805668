"""Answers from cells: those of brute force over the tuples, whatever the data, the window and the stream's past."""

import math
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising
from promising.errors import StorageError
from promising.index import Stream
from promising.index.check import check_stream
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.query import Session
from promising.testing import ManualClock
from tests.index.world import small_chunks
from tests.tiers import examples

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
NOW = 1_700_000_000 * SECOND
TYPES = {"ts": "timestamp", "k": "int", "x": "float", "n": "int", "t": "timestamp", "w": "string"}

Row = dict[str, Any]


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("promising.index.ladder.BEHIND", 100)
    monkeypatch.setattr("promising.index.stream_summaries.BEHIND", 100)
    monkeypatch.setattr("promising.query.planner.WORTH", 1 << 40)  # whatever cells spare
    small_chunks(monkeypatch, 64)


def opened(store: Store | None = None) -> Session:
    session = Session(clock=ManualClock(NOW + DAY), store=store)
    if "s" in session.catalog.streams:
        return session
    session.execute(
        "CREATE STREAM s (ts TIMESTAMP, k INT, x DOUBLE, n INT, t TIMESTAMP, w TEXT) TIMESTAMP BY ts LATENESS 1 DAYS"
    )
    session.execute(
        "CREATE SUMMARY by_k ON s (k) MEASURES (MOMENTS(x), MOMENTS(n), MOMENTS(t)) WITH GRANULARITY 1 HOURS AND"
        " COLLAPSE (4, 3) OPTIONS (buckets = 4, depth = 3, width = 8, maxlength = 256)"
    )
    return session


def stream_of(session: Session) -> Stream:
    return session.stream("s")


def feed(session: Session, rng: np.random.Generator, rows: list[Row], n: int, pace: float) -> None:
    """Late and ordinary tuples; nulls, NaN, infinities, huge integers."""
    newest = max((row["ts"] for row in rows), default=NOW - 60 * DAY)
    times = newest + np.cumsum(rng.exponential(pace, n)).astype(np.int64)
    times -= ((rng.random(n) < 0.1) * rng.integers(0, DAY // 2, n)).astype(np.int64)
    times = np.minimum(times, NOW)
    x: list[float | None] = np.round(rng.normal(0, 3, n), 2).tolist()
    for at in np.flatnonzero(rng.random(n) < 0.02):
        x[at] = [None, math.nan, math.inf, -math.inf, 1e300, -1e300, 1e-300, -0.0][int(rng.integers(8))]
    many: list[int | None] = rng.integers(-9, 9, n).tolist()
    for at in np.flatnonzero(rng.random(n) < 0.02):
        many[at] = [None, (1 << 62) - 1, -(1 << 62)][int(rng.integers(3))]
    batch = {
        "ts": times.tolist(),
        "k": rng.integers(0, 9, n).tolist(),
        "x": x,
        "n": many,
        "t": [None if v % 7 == 0 else int(v) for v in (times - rng.integers(0, 9, n)).tolist()],
        "w": ["w"] * n,
    }
    for first in range(0, n, 97):
        part = {name: values[first : first + 97] for name, values in batch.items()}
        assert session.ingest("s", part).accepted == len(part["ts"])
    rows += [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]


def text(instant: int) -> str:
    return datetime.fromtimestamp(instant // SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S") + f".{instant % SECOND:06d}"


# --- brute force -------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[list[Row]], Any]] = {
    "count(*)": len,
    "count(x)": lambda rows: len(some(rows, "x")),
    "sum(x)": lambda rows: real_sum(some(rows, "x")),
    "avg(x)": lambda rows: mean(some(rows, "x")),
    "min(x)": lambda rows: least(some(rows, "x")),
    "max(x)": lambda rows: greatest(some(rows, "x")),
    "sum(n)": lambda rows: sum(some(rows, "n")) if some(rows, "n") else None,
    "min(n)": lambda rows: min(some(rows, "n"), default=None),
    "max(n)": lambda rows: max(some(rows, "n"), default=None),
    "count(t)": lambda rows: len(some(rows, "t")),
    "min(t)": lambda rows: min(some(rows, "t"), default=None),
    "max(ts)": lambda rows: max(some(rows, "ts"), default=None),
    "count(1)": len,
}


def some(rows: list[Row], name: str) -> list[Any]:
    return [row[name] for row in rows if row[name] is not None]


def real_sum(values: list[float]) -> float | None:
    if not values:
        return None
    if any(map(math.isnan, values)) or {math.inf, -math.inf} <= set(values):
        return math.nan
    odd = [value for value in values if math.isinf(value)]
    return odd[0] if odd else math.fsum(values)


def mean(values: list[float]) -> float | None:
    total = real_sum(values)
    return None if total is None else total / len(values)


def least(values: list[float]) -> float | None:
    found = [value for value in values if not math.isnan(value)]
    return min(found) if found else (math.nan if values else None)


def greatest(values: list[float]) -> float | None:
    return math.nan if any(map(math.isnan, values)) else max(values, default=None)


def same(one: Any, two: Any) -> bool:
    if isinstance(one, datetime):
        one = int(one.replace(tzinfo=UTC).timestamp()) * SECOND + one.microsecond
    if isinstance(one, float) and isinstance(two, float):
        return one == two or (math.isnan(one) and math.isnan(two))
    return bool(one == two) and (one is None) == (two is None)


CONDITIONS = {
    "x > 0.5": lambda row: row["x"] is not None and not row["x"] <= 0.5,  # NaN is greater
    "x BETWEEN -20 AND 20": lambda row: row["x"] is not None and -20 <= row["x"] <= 20,
    "n <= 8": lambda row: row["n"] is not None and row["n"] <= 8,
    "n > -100": lambda row: row["n"] is not None and row["n"] > -100,
    "k = 3 OR k < 3": lambda row: row["k"] <= 3,
}
UNITS = {"minute": MINUTE, "hour": HOUR, "day": DAY}


def asked(rng: np.random.Generator, rows: list[Row], names: list[str]) -> tuple[str, list[tuple[Any, ...]]]:
    """A query, and its rows by brute force."""
    newest = max((row["ts"] for row in rows), default=0)
    oldest = min((row["ts"] for row in rows), default=0)
    where, clauses = [], ""
    found = rows
    if rng.random() < 0.5:
        window = int(rng.integers(1, max(newest - oldest, 2)))
        clauses = f" WINDOW {window} MICROSECONDS"
        found = [row for row in found if row["ts"] > newest - window]
    if rng.random() < 0.5:
        start, end = sorted(rng.integers(oldest - 5, newest + 5, 2).tolist())
        how = int(rng.integers(3))
        where.append(
            [
                f"ts >= TIMESTAMP '{text(start)}' AND TIMESTAMP '{text(end)}' > ts",
                f"ts BETWEEN TIMESTAMP '{text(start)}' AND TIMESTAMP '{text(end)}'",
                f"ts > TIMESTAMP '{text(start)}'",
            ][how]
        )
        low, high = [(start, end - 1), (start, end), (start + 1, 1 << 62)][how]
        found = [row for row in found if low <= row["ts"] <= high]
    for condition, meets in CONDITIONS.items():
        if rng.random() < 0.15:
            where.append(f"({condition})")
            found = [row for row in found if meets(row)]
    groups: dict[tuple[Any, ...], list[Row]] = {(): found}
    key = group = ""
    if rng.random() < 0.5:
        unit = list(UNITS)[int(rng.integers(3))]
        key, group = f"date_trunc('{unit}', ts) AS b, ", " GROUP BY b"
        groups = {}
        for row in found:
            groups.setdefault((row["ts"] // UNITS[unit] * UNITS[unit],), []).append(row)
    condition = " WHERE " + " AND ".join(where) if where else ""
    sql = f"SELECT {key}{', '.join(names)} FROM s{condition}{group}{' ORDER BY b' if group else ''}{clauses}"
    return sql, [(*at, *(FUNCTIONS[name](groups[at]) for name in names)) for at in sorted(groups)]


def check(session: Session, rng: np.random.Generator, rows: list[Row], times: int) -> list[str]:
    """Queries of which every row is right; returns the plans."""
    plans = []
    for _ in range(times):
        names = rng.choice(list(FUNCTIONS), int(rng.integers(1, 5)), replace=False).tolist()
        sql, wanted = asked(rng, rows, names)
        budget = float(rng.choice([0.0, 0.05])) if rng.random() < 0.3 else None
        plan = session.explain(sql, budget=budget)
        plans.append(str(plan))
        if budget is not None and "from cells" not in str(plan):
            budget = None
        try:
            answer = session.query(sql, budget=budget)
            got = [tuple(row.values()) for row in answer.to_arrow().to_pylist()]
        except promising.errors.Overflow:
            assert any(isinstance(v, int) and not -(1 << 63) <= v < 1 << 63 for row in wanted for v in row), sql
            continue
        assert answer.progress.complete, sql
        assert answer.progress.coverage.value == 1
        assert len(got) == len(wanted), sql
        if "from cells" not in str(plan):  # then sums of floats may depend on the order of additions
            got, wanted = ([tuple(v for v in row if not isinstance(v, float)) for row in of] for of in (got, wanted))
        for one, two in zip(got, wanted, strict=True):
            assert all(map(same, one, two)), (sql, one, two, str(plan))
    return plans


@pytest.mark.usefixtures("_small")
@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 30))
def test_aggregates_are_those_of_brute_force(seed: int):
    rng = np.random.default_rng(seed)
    session = opened()
    rows: list[Row] = []
    plans: list[str] = []
    for _ in range(3):
        feed(session, rng, rows, int(rng.integers(50, 600)), float(rng.choice([SECOND, MINUTE, HOUR])))
        plans += check(session, rng, rows, 8)
        assert not check_stream(stream_of(session))
    assert any("from cells" in plan for plan in plans)


@pytest.mark.usefixtures("_small")
@settings(max_examples=examples(6))
@given(seed=st.integers(0, 1 << 30))
def test_they_survive_keep_restart_and_cold_tuples(seed: int):
    rng = np.random.default_rng(seed)
    options = StoreOptions(hot_tuples=0, run_tuples=256, sync="relaxed")
    rows: list[Row] = []
    plans: list[str] = []
    with tempfile.TemporaryDirectory() as path:
        for part in range(4):
            store = Store.open(Path(path), seed=1, clock=lambda: NOW + DAY, options=options)
            with opened(store) as session:
                stream = stream_of(session)
                feed(session, rng, rows, int(rng.integers(50, 500)), float(rng.choice([MINUTE, HOUR])))
                if part == 1:
                    session.execute("ALTER STREAM s KEEP 5 DAYS")
                if part == 2:
                    session.execute("ALTER STREAM s KEEP 20 DAYS")
                if part and rng.random() < 0.7:
                    store.checkpoint()
                if stream.oldest is not None:
                    rows = [row for row in rows if row["ts"] >= stream.oldest]
                plans += check(session, rng, rows, 6)
                assert not check_stream(stream)
    assert any("from cells" in plan for plan in plans)


def regular(rows: int, **options: Any) -> Session:
    """A tuple a second; x rises with the time, n does not."""
    session = opened()
    at = np.arange(rows)
    times = NOW - rows * SECOND + at * SECOND
    n = (at * 7919) % 100
    session.ingest("s", {"ts": times, "k": at % 50, "x": at / 2, "n": n, "t": times, "w": ["w"] * rows})
    return session


ROWS = 300_000


@pytest.fixture(scope="module")
def steady() -> Session:
    return regular(ROWS)


def test_the_plan_and_its_analysis_say_what_cells_did(steady: Session):
    text_ = str(steady.execute("EXPLAIN ANALYZE SELECT sum(x), avg(n) FROM s WINDOW 100000 SECONDS"))
    assert "from cells: " in text_
    assert "from tuples: read s in order of arrival, at most " in text_
    assert "cells: answered " in text_
    sql = "SELECT count(*) FROM s WHERE x < 1000 AND n >= 0"
    explained = steady.explain(sql, analyze=True)
    assert "pruned by x: " in str(explained)
    assert explained.progress is not None
    assert explained.progress.read < ROWS / 3
    assert steady.query(sql).to_arrow().to_pylist() == [{"count(*)": 2000}]


def test_they_read_the_edges_only(steady: Session):
    for sql, wanted in (
        ("SELECT sum(n) AS a FROM s", sum((at * 7919) % 100 for at in range(ROWS))),
        ("SELECT count(*) AS a FROM s WINDOW 99999 SECONDS", 99_999),
        ("SELECT max(x) AS a FROM s WHERE x < 100000", 99_999.5),
        ("SELECT min(n) AS a FROM s WITH PREFERENCE DESC SUMMARY.Estimate.Count(k) * x", 0),
    ):
        answer = steady.query(sql)
        assert answer.to_arrow().to_pylist() == [{"a": wanted}]
        assert answer.progress.read < (1 << 17)
        assert answer.progress.complete


@pytest.mark.parametrize("budget", [0.0, 1e-6])
def test_no_budget_is_too_small(steady: Session, budget: float):
    answer = steady.query("SELECT sum(n) AS a, count(*) AS c FROM s WINDOW 200000 SECONDS", budget=budget)
    (row,) = answer.to_arrow().to_pylist()
    assert row == {"a": sum((at * 7919) % 100 for at in range(ROWS - 200_000, ROWS)), "c": 200_000}
    assert answer.progress.complete
    assert answer.progress.token is None
    target = steady.query("SELECT avg(n) AS a FROM s WITH ERROR 0.5")
    assert target.progress.complete or target.to_arrow().num_rows == 1
    assert target.progress.complete, "an error target is met at once, exactly"


def test_a_selective_range_over_a_clustered_column_reads_less_than_a_tenth(steady: Session):
    answer = steady.query("SELECT k, x FROM s WHERE x BETWEEN 20000 AND 20010")
    assert sorted(answer.to_arrow()["x"].to_pylist()) == [at / 2 for at in range(40_000, 40_021)]
    assert answer.progress.read < ROWS / 10 + (1 << 16), "and those that no cell has yet"
    assert "pruned by x" in str(steady.explain("SELECT k, x FROM s WHERE x BETWEEN 20000 AND 20010"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(x + 1) FROM s",
        "SELECT sum(1) FROM s",
        "SELECT max(w) FROM s",
        "SELECT median(x) FROM s",
        "SELECT k, sum(x) FROM s GROUP BY k",
        "SELECT sum(x) FROM s WHERE k = 3",
        "SELECT sum(x) FROM s WHERE n + 1 > 3",
        "SELECT sum(x) FROM s WHERE x > NULL",
        "SELECT extract('hour' FROM ts), sum(x) FROM s GROUP BY 1",
    ],
)
def test_what_cells_do_not_know_is_read(steady: Session, sql: str):
    assert "from cells" not in str(steady.explain(sql))
    assert steady.query(sql).progress is not None


def test_tuples_that_arrive_later_are_in_no_answer_that_began_before(steady: Session):
    session = regular(100_000)
    answer = session.query("SELECT count(*) AS a FROM s")
    session.ingest("s", {"ts": [NOW], "k": [1], "x": [1.0], "n": [1], "t": [1], "w": ["w"]})
    assert answer.to_arrow().to_pylist() == [{"a": 100_000}]
    assert session.query("SELECT count(*) AS a FROM s").to_arrow().to_pylist() == [{"a": 100_001}]


def test_the_cells_follow_changes_of_measures():
    session = regular(100_000)
    sql = "SELECT sum(n) AS a FROM s"
    wanted = [{"a": sum((at * 7919) % 100 for at in range(100_000))}]
    for change, cells in (("DROP MEASURES (MOMENTS(n))", False), ("ADD MEASURES (MOMENTS(n))", True)):
        session.execute(f"ALTER SUMMARY by_k {change}")
        assert ("from cells" in str(session.explain(sql))) == cells
        assert session.query(sql).to_arrow().to_pylist() == wanted
        assert not check_stream(stream_of(session))
    session.execute("DROP SUMMARY by_k")
    assert stream_of(session).ladder is None
    assert session.query(sql).to_arrow().to_pylist() == wanted
    session.execute("CREATE SUMMARY by_n ON s (k) MEASURES (MOMENTS(n)) WITH GRANULARITY 1 DAYS AND COLLAPSE (4, 5)")
    assert "from cells" in str(session.explain(sql))
    assert session.query(sql).to_arrow().to_pylist() == wanted


@pytest.mark.usefixtures("_small")
def test_a_column_that_cannot_be_read_at_first_counts_nothing_twice(monkeypatch: pytest.MonkeyPatch):
    session = opened()
    rows: list[Row] = []
    feed(session, np.random.default_rng(1), rows, 300, float(SECOND))
    stream = stream_of(session)
    wanted = [{"c": 300, "m": max(some(rows, "n"))}]
    with stream.reading() as log, monkeypatch.context() as patch:
        read = type(log).values

        def unreadable(self: Any, name: str, at: Any) -> Any:
            if name == "n":
                raise StorageError("damaged")
            return read(self, name, at)

        patch.setattr(type(log), "values", unreadable)
        stream._summaries.climb(anew=True)
        for _ in range(3):
            assert session.query("SELECT count(*) AS c FROM s").to_arrow().to_pylist() == [{"c": 300}]
    assert session.query("SELECT count(*) AS c, max(n) AS m FROM s").to_arrow().to_pylist() == wanted
    assert "from cells" in str(session.explain("SELECT count(*) AS c, max(n) AS m FROM s"))
    assert not check_stream(stream)


def test_a_preference_that_cells_do_not_need_is_told_once(steady: Session):
    plan = str(steady.explain("SELECT min(n) AS a FROM s WITH PREFERENCE DESC SUMMARY.Estimate.Count(k) * x"))
    assert plan.count("the preference changes nothing") == 1


def test_a_ladder_of_many_spans_stays_behind_and_answers_are_whole(monkeypatch):
    """Each tuple on a day of its own: later ones are read, until KEEP has released some spans."""
    monkeypatch.setattr("promising.index.ladder.MOST", 50)
    monkeypatch.setattr("promising.index.ladder.BEHIND", 10)
    monkeypatch.setattr("promising.index.stream_summaries.BEHIND", 10)
    monkeypatch.setattr("promising.query.planner.WORTH", 1 << 40)
    session = opened()
    for first in range(0, 400, 20):
        days = NOW - (2_000 - np.arange(first, first + 20)) * DAY
        session.ingest("s", {"ts": days, "k": [1] * 20, "x": np.ones(20), "n": days // DAY, "t": days, "w": ["a"] * 20})
        ladder = stream_of(session).ladder
        assert ladder is not None and ladder.size <= 50 + 40
        found = session.query("SELECT count(*) AS c, sum(x) AS x, min(n) AS least, max(n) AS most FROM s").to_arrow()
        least = (NOW - 2_000 * DAY) // DAY
        assert found.to_pylist() == [{"c": first + 20, "x": first + 20.0, "least": least, "most": least + first + 19}]
    assert ladder is not None and ladder.size >= 50
    stream_of(session).catch_up_all()  # ends
    assert check_stream(stream_of(session)) == []
