"""What standing queries read of a stream: batches that are over, tuples that are evicted, and reads that fail."""

import numpy as np
import pytest

from promising.errors import StorageUnavailable
from promising.index.log import TupleLog
from tests.query.standing.sessions import SECOND, START, create, fill, rows


def test_a_batch_that_is_over_before_it_is_looked_at(session):
    view = create(session, "q", "SELECT item, price FROM a WHERE item >= 0 WINDOW 10 SECONDS")
    view.poll()
    fill(session, "a", np.linspace(0, 2, 2_000))
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
    fill(session, "a", [0, 1], [1, 2])
    fill(session, "b", [0, 1], [1, 2])
    with pytest.raises(StorageUnavailable, match="'a' cannot be read: no answer"):
        both.poll()
    assert rows(other) == [(2,)]
    fill(session, "a", [2], [3])
    assert rows(both) == [(1, 1.0), (2, 1.0), (3, 1.0)], "nothing is lost, and columns fit each other"


def test_a_creation_that_fails_leaves_the_others_as_they_were(session, monkeypatch):
    view = create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
    fill(session, "a", np.arange(30))
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


def test_what_the_log_has_let_go_of_is_not_needed(session):
    """A window is no longer than what the stream keeps: a query that starts late has as many rows as an early one."""
    session.execute("ALTER STREAM a KEEP 100 SECONDS")
    first = create(session, "first", "SELECT item FROM a WINDOW 100 SECONDS")
    for start in range(0, 800, 200):
        fill(session, "a", start + np.arange(40_000) / 200)
        first.poll()
    with session.stream("a").reading() as log:
        assert 20_000 < len(log) < 160_000
    assert len(first) == 20_000
    for name in ("second", "third"):
        view = create(session, name, f"SELECT price, item AS {name} FROM a WINDOW 100 SECONDS")
        view.poll()
        assert view.snapshot()["price"].null_count == 0
        assert len(view) == 20_000


def test_arrivals_that_were_gone_before_they_were_looked_at(session):
    session.execute("ALTER STREAM a KEEP 100 SECONDS")
    view = create(session, "q", "SELECT item FROM a WINDOW 100 SECONDS")
    fill(session, "a", np.arange(100) / 100)
    view.poll()
    for minutes in (5, 10, 15):
        fill(session, "a", minutes * 60 + np.arange(1 << 14) / 1000)
    other = create(session, "other", "SELECT count(*) AS n FROM b WINDOW 10 SECONDS")
    for number in range(4):
        fill(session, "b", [917 + number / 10])
        fill(session, "a", [917 + number / 10])
        assert other.poll() is not None
    assert rows(other) == [(4,)]
    assert len(rows(view)) == (1 << 14) + 4
