"""Faults that reviews found, each with the least that shows it."""

import base64
import threading

import numpy as np
import pytest

import promising
from promising.errors import BadToken, DivisionByZero, StorageUnavailable
from promising.index.log import TupleLog
from promising.query import Session

SECOND = 1_000_000
START = 10**15


@pytest.fixture
def session():
    with Session(seed=1, clock=lambda: 1 << 60) as made:
        for name in "ab":
            made.execute(f"CREATE STREAM {name} (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
            made.execute(f"CREATE SUMMARY by_{name} ON {name} (item) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 1)")
        yield made


def put(session, stream, seconds, items=None, price=1.0):
    times = START + (np.atleast_1d(seconds) * SECOND).astype(np.int64)
    items = np.arange(len(times)) if items is None else np.atleast_1d(items)
    session.ingest(stream, {"ts": times, "item": items, "price": np.full(len(times), price)})


def create(session, name, query):
    session.execute(f"CREATE CONTINUOUS QUERY {name} AS {query}")
    return session.subscribe(name)


def rows(subscription):
    while subscription.poll() is not None:
        pass
    return sorted(tuple(row.values()) for row in subscription.snapshot().to_pylist())


def test_a_selection_that_fails_is_told_of_and_the_others_are_too(session):
    bad = create(session, "bad", "SELECT item FROM a WHERE 1 / (price - 5) > 0 WINDOW 10 SECONDS")
    good = create(session, "good", "SELECT item FROM a WINDOW 10 SECONDS")
    put(session, "a", 0, 7, price=5.0)
    with pytest.raises(DivisionByZero):
        bad.poll()
    assert rows(good) == [(7,)]
    told = {status.name: status for status in session.standing.status()}
    assert "zero" in told["bad"].problem
    assert (told["good"].size, told["good"].problem) == (1, None)


def test_a_batch_that_is_over_before_it_is_looked_at(session):
    view = create(session, "q", "SELECT item, price FROM a WHERE item >= 0 WINDOW 10 SECONDS")
    view.poll()
    put(session, "a", np.linspace(0, 2, 2_000))
    session.advance("a", START + 13 * SECOND)
    assert view.poll().inserts.num_rows == 0
    assert rows(view) == []


def test_a_stream_that_cannot_be_read_for_a_while(session, monkeypatch):
    both = create(session, "both", "SELECT item, price FROM a WINDOW 100 SECONDS")
    other = create(session, "other", "SELECT count(*) AS n FROM b WINDOW 100 SECONDS")
    assert (rows(both), rows(other)) == ([], [(0,)])
    read, left = TupleLog.array, [1]

    def failing(log, name, which):
        if name == "price" and len(which) and left and left.pop():
            raise OSError("no answer")
        return read(log, name, which)

    monkeypatch.setattr(TupleLog, "array", failing)
    put(session, "a", [0, 1], [1, 2])
    put(session, "b", [0, 1], [1, 2])
    with pytest.raises(StorageUnavailable, match="'a' cannot be read: no answer"):
        both.poll()
    assert rows(other) == [(2,)]
    put(session, "a", [2], [3])
    assert rows(both) == [(1, 1.0), (2, 1.0), (3, 1.0)], "nothing is lost, and columns fit each other"


def test_a_creation_that_fails_leaves_the_others_as_they_were(session, monkeypatch):
    view = create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
    put(session, "a", np.arange(30))
    expected = rows(view)
    read = TupleLog.array

    def failing(log, name, which):
        if name == "price":
            raise OSError("no answer")
        return read(log, name, which)

    monkeypatch.setattr(TupleLog, "array", failing)
    with pytest.raises(OSError, match="no answer"):
        session.execute("CREATE CONTINUOUS QUERY long AS SELECT price FROM a WINDOW 40 SECONDS")
    monkeypatch.undo()
    assert rows(view) == expected
    assert rows(session.subscribe("q")) == expected


def test_what_the_log_has_let_go_of_is_not_made_up(session):
    first = create(session, "first", "SELECT item FROM a WINDOW 10000 SECONDS")
    for start in range(0, 800, 200):
        put(session, "a", start + np.arange(40_000) / 200)
        first.poll()
    with session.stream("a").reading() as log:
        kept = len(log)
    assert kept < 160_000
    assert len(first) == 160_000, "it has been there all the time"
    for name in ("second", "third"):
        view = create(session, name, f"SELECT price, item AS {name} FROM a WINDOW 10000 SECONDS")
        view.poll()
        assert view.snapshot()["price"].null_count == 0
        assert len(view) == kept


def test_arrivals_that_were_gone_before_they_were_looked_at(session):
    view = create(session, "q", "SELECT item FROM a WINDOW 10000 SECONDS")
    put(session, "a", np.arange(100) / 100)
    view.poll()
    for minutes in (5, 10, 15):
        put(session, "a", minutes * 60 + np.arange(1 << 14) / 1000)
    other = create(session, "other", "SELECT count(*) AS n FROM b WINDOW 10 SECONDS")
    for number in range(4):
        put(session, "b", [917 + number / 10])
        put(session, "a", [917 + number / 10])
        assert other.poll() is not None
    assert rows(other) == [(4,)]
    assert len(rows(view)) == 100 + (1 << 14) + 4


def test_a_service_that_aged_by_the_clock_and_starts_again(tmp_path):
    with promising.open(tmp_path, seed=1) as session:
        session.execute("CREATE STREAM a (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
        view = create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
        put(session, "a", [0, 5], [1, 2])
        session.standing.tick(idle=0, silence=SECOND)
        session.standing.tick(idle=7 * SECOND, silence=SECOND)
        assert rows(view) == [(2,)]
        token = view.token
    with promising.open(tmp_path, seed=1) as session:
        again = session.subscribe("q", token)
        delta = again.poll()
        assert delta is not None
        assert delta.reset, "time has gone back"
        assert rows(again) == [(1,), (2,)]


def test_a_token_made_to_hurt(session):
    create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
    for text in (
        "[" * 100_000,
        '["e", "n", 1e999, 0, {}]',
        '["e", "n", Infinity, 0, {}]',
        '["e", "n", 1, 0, {"a": 1e999}]',
    ):
        with pytest.raises(BadToken):
            session.subscribe("q", base64.urlsafe_b64encode(text.encode()).decode())


def test_another_budget_that_could_not_be_kept(session, monkeypatch, tmp_path):
    with promising.open(tmp_path, seed=1) as kept:
        kept.execute("CREATE STREAM a (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
        view = create(kept, "q", "SELECT item, count(*) AS n FROM a GROUP BY item WINDOW 10 SECONDS")
        put(kept, "a", [0, 1, 1], [1, 2, 3])
        assert len(rows(view)) == 3
        put(kept, "a", [10], [3])

        def full(*_):
            raise OSError("no space")

        monkeypatch.setattr(kept.store, "put_query", full)
        with pytest.raises(OSError, match="no space"):
            kept.execute("ALTER CONTINUOUS QUERY q SET BUDGET 1 MILLISECOND")
        assert rows(view) == [(2, 1), (3, 2)]


def test_a_long_chain_of_unions(session):
    put(session, "a", [0], [7])
    view = create(session, "q", " UNION ALL ".join(["SELECT item FROM a WINDOW 10 SECONDS"] * 40))
    assert rows(view) == [(7,)] * 40
    session.execute(
        "EXPLAIN CREATE CONTINUOUS QUERY r AS " + " UNION ".join(["SELECT item FROM a WINDOW 10 SECONDS"] * 40)
    )


def test_whoever_waits_for_a_change_is_let_go_when_it_is_closed(session):
    view = create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
    view.poll()
    closing = threading.Timer(0.05, view.close)
    closing.start()
    assert list(view) == []
    closing.join()


def test_one_that_failed_is_not_shared(session):
    query = "SELECT sum(1 / (price - 5)) AS s FROM a WINDOW 10 SECONDS"
    first = create(session, "first", query)
    put(session, "a", 0, 1, price=5.0)
    with pytest.raises(DivisionByZero):
        first.poll()
    put(session, "a", 20, 1, price=9.0)
    session.standing.tick()
    second = create(session, "second", query)
    assert rows(second) == [(0.25,)]
    session.execute("DROP QUERY first")
    put(session, "a", 21, 1, price=9.0)
    assert rows(second) == [(0.5,)]
