"""KEEP: what a stream retains, by statements. Nothing else removes tuples, and messages say how many were removed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import promising
from promising.errors import BadClause, BadGranularity, BadOptions, NoSuchName, TokenExpired
from promising.query import Done, Session
from promising.testing import ManualClock, Oracle

SECOND = 1_000_000
DAY = 86_400 * SECOND
START = 1_700_000_000 * SECOND
TUPLES = 600
COLUMNS = "(ts TIMESTAMP, k BIGINT, price DOUBLE) TIMESTAMP BY ts"
TIMES = START + np.arange(TUPLES) * SECOND
"""One tuple a second."""


def filled(keep: str = "", summary: bool = True) -> Session:
    session = Session(clock=ManualClock(1 << 60), seed=3)
    session.execute(f"CREATE STREAM s {COLUMNS} {keep}")
    if summary:
        session.execute("CREATE SUMMARY by_k ON s (k) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 2)")
    fill(session)
    return session


def fill(session: Session) -> None:
    session.ingest("s", {"ts": TIMES, "k": np.arange(TUPLES) % 7, "price": np.arange(TUPLES) / 2})


def count(session: Session) -> int:
    return int(session.query("SELECT count(*) AS n FROM s").to_arrow()["n"][0].as_py())


def times(session: Session) -> list[int]:
    return sorted(session.query("SELECT ts FROM s").to_arrow()["ts"].cast("int64").to_pylist())


def right(keep: int) -> list[int]:
    """The times retained after `fill`, by brute force."""
    oracle = Oracle("ts", "k", granularity=10 * SECOND, collapse=(2, 2), keep=keep, clock=lambda: 1 << 60)
    oracle.append({"ts": TIMES, "k": np.arange(TUPLES) % 7})
    return [row["ts"] for row in oracle.rows(oracle.live())]


def removed(session: Session, sql: str) -> int:
    told: Any = session.execute(f"EXPLAIN {sql}")
    assert told.column_names == ["rows_removed"]
    (rows,) = told["rows_removed"].to_pylist()
    return int(rows)


@pytest.mark.parametrize("keep", [80, 100, 161, 400, 10_000])
def test_a_stream_keeps_as_long_as_it_says(keep: int):
    session = filled(f"KEEP {keep} SECONDS")
    expected = right(keep * SECOND)
    assert times(session) == expected
    assert (len(expected) < TUPLES) == (keep < TUPLES)
    assert times(session)[0] <= max(int(TIMES[-1]) - keep * SECOND, START), "never less than it says"


@pytest.mark.parametrize("keep", ["", "KEEP ALL"])
def test_without_keep_nothing_is_removed(keep: str):
    session = filled(keep)
    session.advance("s", START + 3_000 * DAY)
    assert count(session) == TUPLES


@pytest.mark.parametrize("summary", [True, False])
def test_a_shorter_keep_says_how_many_rows_it_removes(summary: bool):
    session = filled(summary=summary)
    sql = "ALTER STREAM s KEEP 80 SECONDS"
    would = removed(session, sql)
    assert would == TUPLES - len(right(80 * SECOND))  # without a summary too: an eighth of it is removed at once
    assert count(session) == TUPLES, "EXPLAIN changes nothing"
    done = session.execute(sql)
    assert isinstance(done, Done) and done.changed
    assert str(done).endswith(f"; {would} rows removed")
    assert times(session) == right(80 * SECOND)
    assert removed(session, sql) == 0
    assert str(session.execute("ALTER STREAM s KEEP ALL")).endswith("keeps all tuples; 0 rows removed")
    assert times(session) == right(80 * SECOND), "what was removed does not return"
    session.advance("s", START + DAY)
    assert times(session) == right(80 * SECOND), "and nothing more is"


def test_summaries_agree_after_keep_has_changed():
    session = filled()
    for keep in ("KEEP 200 SECONDS", "KEEP 100 SECONDS", "KEEP ALL", "KEEP 80 SECONDS"):
        session.execute(f"ALTER STREAM s {keep}")
        for key in range(8):
            n = session.query(f"SELECT count(*) AS n FROM s WHERE k = {key}").to_arrow()["n"][0].as_py()
            assert session.probe("by_k", [key], columns=["ts"]).num_rows == n
            (lower,), (upper,) = session.estimate("by_k", [key]).lower, session.estimate("by_k", [key]).upper
            assert lower <= n <= upper


def test_drop_says_how_many_rows_it_removes():
    session = filled()
    for sql in ("DROP SUMMARY by_k", "DROP STREAM s CASCADE"):
        assert removed(session, sql) == (TUPLES if "STREAM" in sql else 0)
        assert count(session) == TUPLES
    assert str(session.execute("DROP SUMMARY by_k")) == "summary by_k dropped"
    assert str(session.execute("DROP STREAM s")) == f"stream s dropped, {TUPLES} rows"
    assert removed(session, "DROP STREAM IF EXISTS s") == 0
    with pytest.raises(NoSuchName):
        session.execute("EXPLAIN DROP STREAM s")
    with pytest.raises(NoSuchName):
        session.execute("EXPLAIN ALTER STREAM s KEEP 1 DAY")


# --- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("span", ["0 SECONDS", "-1 SECONDS", "0", "-5", "7 MICROSECONDS"])
def test_keep_is_more_than_nothing(span: str):
    """That is what is said, though it is also shorter than the window of a query."""
    session = filled()
    session.execute("CREATE CONTINUOUS QUERY watch AS SELECT k FROM s WINDOW 5 MINUTES")
    for sql in (
        f"CREATE STREAM t {COLUMNS} KEEP {span}",
        f"ALTER STREAM s KEEP {span}",
        f"EXPLAIN ALTER STREAM s KEEP {span}",
    ):
        with pytest.raises(BadOptions, match="KEEP must be"):
            session.execute(sql)
    assert count(session) == TUPLES
    assert session.execute("SHOW STREAMS")["name"].to_pylist() == ["s"]  # type: ignore[index]  # SHOW gives a table


def test_keep_is_no_shorter_than_lateness():
    session = Session(clock=ManualClock(1 << 60), seed=3)
    with pytest.raises(BadOptions, match="shorter than LATENESS"):
        session.execute(f"CREATE STREAM s {COLUMNS} LATENESS 10 SECONDS KEEP 9 SECONDS")
    session.execute(f"CREATE STREAM s {COLUMNS} LATENESS 10 SECONDS KEEP 10 SECONDS")
    fill(session)
    before = times(session)
    for explain in ("", "EXPLAIN "):
        with pytest.raises(BadOptions, match="shorter than LATENESS"):
            session.execute(f"{explain}ALTER STREAM s KEEP 9 SECONDS")
    assert times(session) == before


def test_keep_is_no_shorter_than_the_window_of_a_continuous_query():
    session = filled()
    session.execute("CREATE CONTINUOUS QUERY watch AS SELECT k, count(*) FROM s GROUP BY k WINDOW 5 MINUTES")
    for explain in ("", "EXPLAIN "):
        with pytest.raises(BadClause, match="WINDOW of query watch, 5 minutes"):
            session.execute(f"{explain}ALTER STREAM s KEEP 299 SECONDS")
    assert count(session) == TUPLES
    session.execute("ALTER STREAM s KEEP 300 SECONDS")
    with pytest.raises(BadClause, match="ALTER STREAM s KEEP 6 minutes"):
        session.execute("CREATE CONTINUOUS QUERY more AS SELECT k FROM s WINDOW 6 MINUTES")
    session.execute("DROP QUERY watch")
    session.execute("ALTER STREAM s KEEP 80 SECONDS")
    assert times(session) == right(80 * SECOND)


def test_the_keep_that_a_long_window_needs_can_be_pasted():
    session = Session(clock=ManualClock(1 << 60), seed=3)
    session.execute(f'CREATE STREAM "my log" {COLUMNS} KEEP 1 DAY')
    create = 'CREATE CONTINUOUS QUERY q AS SELECT k FROM "my log" WINDOW 1500.0005 DAYS'
    with pytest.raises(BadClause) as caught:
        session.execute(create)
    session.execute(str(caught.value).partition("shorten it, or ")[2].partition(" first")[0])
    session.execute(create)


def test_keep_is_no_shorter_than_eight_granularities():
    session = filled()
    for explain in ("", "EXPLAIN "):
        with pytest.raises(BadGranularity, match="summary 'by_k': GRANULARITY is 10"):
            session.execute(f"{explain}ALTER STREAM s KEEP 79 SECONDS")
    assert count(session) == TUPLES
    session.execute("ALTER STREAM s KEEP 80 SECONDS")
    with pytest.raises(BadGranularity, match="an eighth"):
        session.execute("CREATE SUMMARY long ON s (k) WITH GRANULARITY 11 SECONDS AND COLLAPSE (2, 2)")
    assert times(session) == right(80 * SECOND)


# --- answers under way -------------------------------------------------------------------------------------------

ASKED = [
    "SELECT ts, k FROM s",
    "SELECT k, count(*) AS n FROM s GROUP BY k",
    "SELECT k FROM s ORDER BY price",
    "SELECT x.k FROM s x, s y WHERE x.k = y.k AND x.price < 3",
    "SELECT x.k FROM s x, s y WHERE x.k = y.k WITH PREFERENCE DESC SUMMARY.Estimate.Count(x.k)",
]


@pytest.mark.parametrize("sql", ASKED)
def test_keep_is_shortened_under_an_answer(sql: str):
    """Rows that were returned are right; then the rest follows, or a clear error."""
    session = filled()
    whole = sorted(map(str, session.query(sql).to_arrow().to_pylist()))
    token = session.query(sql, budget=0).run().progress.token
    assert token is not None
    answer = session.query(sql)
    session.execute("ALTER STREAM s KEEP 80 SECONDS")
    for unfinished in (answer.to_arrow, lambda: session.resume(token).to_arrow()):
        try:
            assert sorted(map(str, unfinished().to_pylist())) == whole
        except TokenExpired as problem:
            assert "stream 's'" in str(problem)
    assert count(session) == len(right(80 * SECOND))


@pytest.mark.parametrize("sql", ASKED)
def test_an_answer_that_needs_nothing_removed_goes_on(sql: str):
    """In the window nothing is removed, though the summary is rebuilt."""
    session = filled()
    sql += " WINDOW 60 SECONDS"
    whole = sorted(map(str, session.query(sql).to_arrow().to_pylist()))
    token = session.query(sql, budget=0).run().progress.token
    answer = session.query(sql)
    session.execute("ALTER STREAM s KEEP 80 SECONDS")
    assert sorted(map(str, answer.to_arrow().to_pylist())) == whole
    assert token is not None
    assert sorted(map(str, session.resume(token).to_arrow().to_pylist())) == whole


# --- a summary removes nothing -----------------------------------------------------------------------------------


def test_no_summary_removes_a_tuple_of_two_years(tmp_path: Path):
    """Whatever its granularity, before and after a restart."""
    n = 5_000
    ts = START - 800 * DAY + np.arange(n) * (730 * DAY // n)
    spans = ["1 MICROSECOND", "1 SECOND", "60 SECONDS", "1 HOUR", "1 DAY", "30 DAYS", "1000 DAYS"]

    def whole(session: Any) -> None:
        assert count(session) == n
        assert session.stream("s").kept == n
        assert session.query("SELECT ts FROM s").to_arrow()["ts"].cast("int64").to_pylist() == ts.tolist()

    with promising.open(tmp_path / "store") as session:
        session.execute(f"CREATE STREAM s {COLUMNS}")
        session.ingest("s", {"ts": ts, "k": np.arange(n) % 50, "price": np.ones(n)})
        for number, span in enumerate(spans):
            made = f"CREATE SUMMARY s{number} ON s (k) WITH GRANULARITY {span} AND COLLAPSE (4, 2)"
            assert str(session.execute(made)).startswith(f"summary s{number} created on s (k): ")
            whole(session)
    with promising.open(tmp_path / "store") as session:
        whole(session)
        for number in range(len(spans)):
            assert session.probe(f"s{number}", [7], columns=["ts"]).num_rows == n // 50
        assert session.store is not None
        session.store.checkpoint()
    with promising.open(tmp_path / "store") as session:
        whole(session)


def test_keep_and_what_it_removed_survive_a_restart(tmp_path: Path):
    with promising.open(tmp_path / "store") as session:
        session.execute(f"CREATE STREAM s {COLUMNS} KEEP 400 SECONDS")
        session.execute("CREATE SUMMARY by_k ON s (k) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 2)")
        fill(session)
        assert times(session) == right(400 * SECOND)
    with promising.open(tmp_path / "store") as session:
        assert times(session) == right(400 * SECOND)
        session.execute("ALTER STREAM s KEEP 80 SECONDS")
    for _ in range(2):
        with promising.open(tmp_path / "store") as session:
            assert times(session) == right(80 * SECOND)
            assert session.stream("s").keep == 80 * SECOND
