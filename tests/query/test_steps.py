"""Answers, plans and batches of queries that are worked piece by piece, and let go of on the way."""

from typing import Any

import numpy as np
import pytest

from promising.errors import NoSuchName, TokenExpired, Unsupported
from promising.query import cursor, order, pipeline, steps
from promising.query.answers import Part
from promising.query.session import Session
from tests.query.stores import MS, Ticking

JOIN = """
    SELECT a.item, b.price FROM s a, s b WHERE a.item = b.item
    WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.item)
"""


@pytest.fixture(scope="module")
def session():
    made = Session(seed=1)
    made.execute("CREATE STREAM s (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
    made.execute("CREATE SUMMARY items ON s (item) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 5)")
    n = 20_000
    made.ingest("s", {"ts": range(n), "item": [i % 50 for i in range(n)], "price": [float(i) for i in range(n)]})
    return made


def test_a_closed_answer_tells_nothing_more(session):
    answer = session.query(JOIN)
    next(iter(answer))
    rows = answer.progress.rows
    answer.close()
    assert list(answer) == []
    assert answer.progress.rows == rows


def test_what_was_cut_and_closed_cannot_be_resumed(session):
    answer = session.query(JOIN, budget=0.005).run()
    token = answer.progress.token
    assert token is not None
    answer.close()
    with pytest.raises(TokenExpired):
        session.resume(token)


def test_an_answer_closed_while_it_works_leaves_nothing_on_the_shelf(session):
    before = len(session._shelf)
    answer = session.query(JOIN)
    frames = answer.frames
    next(frames)
    answer.close()
    assert list(frames) == []  # for a thread that reads them
    assert len(session._shelf) == before


def test_a_batch_comes_in_parts_that_make_its_tables(session):
    asked = [
        *(f"SELECT item, price FROM s WHERE price >= {k} AND price < {k + 500}" for k in range(0, 10_000, 1000)),
        "SELECT item FROM s",
        "SELECT count(*) AS n FROM s",
        "SELECT price FROM s ORDER BY price DESC LIMIT 3",
        "SELECT item FROM s WHERE price < 0",
    ]
    parts = [part for part in session.query_each(asked) if part is not None]
    order = [part.statement for part in parts]
    assert set(order) == set(range(len(asked)))
    assert [a for a, b in zip(order, [*order[1:], None], strict=True) if a != b] == list(dict.fromkeys(order))
    assert [p.statement for p in parts if not p.more] == list(dict.fromkeys(order))
    tables = session.query_many(asked)
    assert [t.num_rows for t in tables] == [500] * 10 + [20_000, 1, 3, 0]
    assert tables[-2]["price"].to_pylist() == [19_999.0, 19_998.0, 19_997.0]
    assert all(isinstance(p, Part) for p in parts)


@pytest.mark.parametrize(
    "wrong, error", [("SELECT nothing FROM s", NoSuchName), ("SHOW STREAMS", Unsupported)], ids=["name", "statement"]
)
def test_a_batch_with_one_wrong_statement_is_refused_before_any_work(session, wrong, error):
    steps = session.query_each(["SELECT item FROM s", wrong])
    with pytest.raises(error):
        for part in steps:
            assert part is None


def test_a_plan_is_worked_out_in_steps(session, monkeypatch):
    monkeypatch.setattr(session, "_cpu", Ticking(MS))  # the slowest machine has some steps, the fastest not all of them
    steps = list(session.explaining("EXPLAIN ANALYZE " + JOIN, budget=0.2))
    assert len(steps) > 2
    assert all(step is None for step in steps[:-1])
    assert steps[-1].progress.cut == "budget"
    assert steps[-1].regions.num_rows > 0


def test_a_closed_session_is_empty():
    with Session(seed=1) as made:
        made.execute("CREATE STREAM s (ts TIMESTAMP, item BIGINT) TIMESTAMP BY ts")
    assert made.catalog.streams == {}


def test_the_most_that_a_query_is_given_cuts_it_and_leaves_its_plan_alone(session):
    asked = "SELECT sum(a.price) AS total FROM s a, s b WHERE a.item = b.item"
    free = session.explain(asked).steps
    assert session.explain(asked, budget=60.0).steps != free  # with a budget it samples first
    assert list(session.explaining(asked, most=60.0))[-1].steps == free
    answer = session.query(asked, most=0.005).run()
    assert answer.progress.cut == "budget"
    assert "resume it to go on" in answer.progress.warnings[-1]
    whole = session.resume(answer.progress.token).run()
    assert whole.progress.complete and whole.progress.warnings == ()
    assert whole.to_arrow() == session.query(asked, most=60.0).to_arrow() == session.query(asked).to_arrow()


def test_a_budget_below_the_most_is_no_news(session):
    answer = session.query(JOIN, budget=0.005, most=60.0).run()
    assert (answer.progress.cut, answer.progress.warnings) == ("budget", ())


WIDE = [f"c{number}" for number in range(40)]
FINE = {
    "rows": "SELECT * FROM wide",
    "conditions": "SELECT c1, c2 FROM wide WHERE " + " AND ".join(f"{name} >= 3" for name in WIDE),
    "a few of each": "SELECT * FROM wide LIMIT 2 BY c39",
    "sorted": f"SELECT * FROM wide ORDER BY c39, {', '.join(f'{name} DESC' for name in WIDE[:5])}",
    "sorted, limited": "SELECT * FROM wide ORDER BY c39, c0 DESC LIMIT 70",
    "groups": f"SELECT c0, count(*) AS n, sum(c1) AS s FROM wide GROUP BY {', '.join(WIDE)} ORDER BY n, c0 DESC",
}


@pytest.fixture
def wide(monkeypatch):
    """A wide stream whose columns take a step each."""
    session = Session(clock=lambda: 1 << 60)
    session.execute(f"CREATE STREAM wide (ts TIMESTAMP, {', '.join(f'{c} INT' for c in WIDE)}) TIMESTAMP BY ts")
    rows = np.arange(300)
    session.ingest("wide", {"ts": rows, **{name: rows for name in WIDE[:-1]}, "c39": rows % 7})
    whole = {name: session.query(sql).to_arrow().to_pylist() for name, sql in FINE.items()}
    monkeypatch.setattr(pipeline, "CELLS", 1)
    monkeypatch.setattr(order, "RUN", 32)
    monkeypatch.setattr(steps.Load, "full", lambda self, rows: True)
    return session, whole


@pytest.mark.parametrize("kind", FINE)
def test_an_answer_cut_between_any_few_steps_is_whole_in_the_end(wide, kind, monkeypatch):
    session, whole = wide
    rows: list[dict[str, Any]] = []
    cuts = 0
    monkeypatch.setattr(session, "_cpu", Ticking(MS // 10))
    answer = session.query(FINE[kind], budget=0.002)
    while True:
        for frame in answer:
            if "limited" not in kind and "groups" not in kind:
                assert frame.progress.total.lower <= len(whole[kind]) <= frame.progress.total.upper
            last = frame.rows.to_pylist()
            rows = rows + last if frame.mode == "append" else last
        if (token := answer.progress.token) is None:
            break
        cuts += 1
        answer = session.resume(token, budget=0.002)
        assert cuts < 1_000
    assert answer.progress.complete
    assert rows == whole[kind]
    assert cuts > 5


@pytest.mark.parametrize("kind", ["sorted", "sorted, limited", "groups"])
@pytest.mark.parametrize("turns", [45, 80, 120])
def test_an_answer_cancelled_while_it_is_finished_is_resumed(wide, kind, turns, monkeypatch):
    session, whole = wide
    monkeypatch.setattr(cursor, "GLANCE", 0)  # a turn is a step
    answer = session.query(FINE[kind])
    for number, _ in enumerate(answer.turns()):
        if number == turns:
            answer.cancel()
    assert answer.progress.cut == "cancelled"
    assert answer.last.rows.num_rows == 0
    resumed = session.resume(answer.progress.token)
    assert resumed.to_arrow().to_pylist() == whole[kind]
