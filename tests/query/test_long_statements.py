"""Long statements: refused before they are parsed, bound in slices, and cut by a budget or a deadline."""

import math

import pytest

from promising.errors import LimitReached, NoSuchName, Unsupported
from promising.query import Answer, Session
from promising.query.binder import bind
from promising.query.sql import parse

COLUMNS = [f"c{number}" for number in range(300)]
CONDITIONS = " AND ".join(f"{name} >= 0" for name in COLUMNS)
LATE = 20_000  # tuples whose sort, or groups, take longer than a glance


def wide(rows: int = 3, **how: object) -> Session:
    session = Session(clock=lambda: 1 << 60, seed=7, **how)  # type: ignore[arg-type]  # options of the test
    session.execute(f"CREATE STREAM s (ts TIMESTAMP, {', '.join(f'{name} INT' for name in COLUMNS)}) TIMESTAMP BY ts")
    session.ingest("s", {"ts": list(range(rows))} | {key: list(range(rows)) for key in COLUMNS})
    return session


def tall() -> Session:
    session = Session(clock=lambda: 1 << 60, seed=7)
    session.execute("CREATE STREAM s (ts TIMESTAMP, n INT) TIMESTAMP BY ts")
    session.ingest("s", {"ts": list(range(LATE)), "n": list(range(LATE))})
    return session


def asked(session: Session, sql: str, left: float) -> Answer:
    *_, answer = session.asking(sql, left=lambda: left)
    assert answer is not None
    return answer


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_a_query_of_too_many_tokens_is_refused_before_it_is_parsed():
    with wide(max_sql_tokens=50) as session:
        for sql in (f"SELECT {', '.join(COLUMNS)} FROM s", "SELECT " + "+ " * 100, "EXPLAIN SELECT " + "( " * 100):
            for ask in (session.query, session.execute, session.explain, lambda sql: session.query_many([sql])):
                with pytest.raises(LimitReached, match="more than 50 tokens"):
                    ask(sql)
        assert session.query(f"SELECT {', '.join(COLUMNS[:20])} FROM s").to_arrow().num_rows == 3
        names = ", ".join(f"{name} INT" for name in COLUMNS)
        session.execute(f"CREATE STREAM t (ts TIMESTAMP, {names}) TIMESTAMP BY ts")  # only queries have a budget


def test_a_like_of_many_wildcards_is_refused():
    with wide() as session:
        session.execute("CREATE STREAM t (ts TIMESTAMP, name VARCHAR) TIMESTAMP BY ts")
        session.ingest("t", {"ts": [1], "name": ["x" * 900]})
        with pytest.raises(Unsupported, match="900 characters with wildcards"):
            session.query("SELECT * FROM t WHERE name LIKE '" + "_" * 900 + "'")
        assert session.query("SELECT * FROM t WHERE name LIKE '" + "x" * 900 + "%'").to_arrow().num_rows == 1


# --- binding ---------------------------------------------------------------------------------------------------------


def test_binding_pauses_between_slices():
    with wide() as session:
        steps = list(session.asking(f"SELECT {', '.join(COLUMNS)} FROM s WHERE {CONDITIONS}"))
        assert len(steps) > 8 and all(step is None for step in steps[:-1])
        assert steps[-1] is not None and steps[-1].to_arrow().num_rows == 3


def test_a_budget_spent_while_binding_still_gives_schema_estimate_and_token():
    ticks = iter(range(0, 1 << 62, 1_000_000))
    with wide(cpu=lambda: next(ticks)) as session:
        sql = f"SELECT {', '.join(COLUMNS[:3])} FROM s WHERE {CONDITIONS} ORDER BY c1 DESC"
        answer = session.query(sql, budget=0.001)
        (frame,) = answer
        progress = frame.progress
        assert answer.schema.names == COLUMNS[:3] and frame.rows.schema == answer.schema
        assert (progress.cut, progress.complete, progress.rows) == ("budget", False, 0)
        assert (progress.total.lower, progress.total.upper, progress.total.known) == (0, 3, False)
        assert progress.token is not None
        assert session.resume(progress.token).to_arrow()["c2"].to_pylist() == [2, 1, 0]


def test_small_budgets_get_there_in_the_end():
    ticks = iter(range(0, 1 << 62, 1_000_000))
    with wide(cpu=lambda: next(ticks)) as session:
        token = session.query(f"SELECT c1 FROM s WHERE {CONDITIONS}", budget=0.001).run().progress.token
        found, resumed = [], 0
        while token is not None:
            answer = session.resume(token, budget=0.003)
            found += answer.to_arrow()["c1"].to_pylist()
            token, resumed = answer.progress.token, resumed + 1
            assert resumed < 100
        assert found == [0, 1, 2] and resumed > 2


def test_what_is_wrong_in_a_part_not_yet_bound_is_reported_on_resume():
    ticks = iter(range(0, 1 << 62, 1_000_000))
    with wide(cpu=lambda: next(ticks)) as session:
        sql = f"SELECT c1 FROM s WHERE {CONDITIONS} AND nope > 1"
        with pytest.raises(NoSuchName):
            session.query(sql)
        token = session.query(sql, budget=0.001).run().progress.token
        assert token is not None
        with pytest.raises(NoSuchName, match="nope"):
            session.resume(token).run()


def test_no_time_left_while_binding_is_as_a_spent_budget():
    with wide() as session:
        answer = asked(session, f"SELECT c1 FROM s WHERE {CONDITIONS}", -1.0)
        assert answer.schema.names == ["c1"]
        assert answer.to_arrow().num_rows == 3  # nobody cancelled it


def test_equal_aggregates_and_keys_are_found_however_they_are_written():
    with wide() as session:
        bound = bind(
            parse(sql := "SELECT S.c1 + 1, sum(c2), sum(s.C2) + 1, sum(c3) FROM s GROUP BY c1 + 1"),
            sql,
            session.catalog,
        )
        assert [a.function for a in bound.aggregates] == ["sum", "sum"]
        assert len(bound.group_keys) == 1


# --- the last frame --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql", ["SELECT n FROM s ORDER BY n DESC", "SELECT n, count(*) AS c FROM s GROUP BY n", "SELECT n FROM s"]
)
def test_a_last_frame_that_would_come_too_late_waits_with_its_rows(sql):
    with tall() as session:
        whole = session.query(sql).to_arrow()
        answer = asked(session, sql, 0.0)
        frames = list(answer.stream())
        last = frames[-1].progress
        if "BY" not in sql:
            assert last.complete
            return
        assert (last.cut, last.complete, frames[-1].rows.num_rows) == ("cancelled", False, 0)
        assert last.token is not None
        assert session.resume(last.token).to_arrow() == whole
        assert asked(session, sql, math.inf).to_arrow() == whole
