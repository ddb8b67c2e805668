"""Answers, plans and batches of queries that are worked piece by piece, and let go of on the way."""

import pytest

from promising.errors import NoSuchName, TokenExpired, Unsupported
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
    last = list(frames)[-1]  # as a thread would that is in the middle of it
    assert last.progress.cut == "cancelled"
    assert last.progress.token is None
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
