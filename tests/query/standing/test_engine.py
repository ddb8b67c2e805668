"""Standing queries at work: ticks, silence, sharing, failures, budgets."""

from functools import partial

import numpy as np
import pytest

import promising
from promising.errors import DivisionByZero, InternalError, NoSuchName, Unsupported
from promising.index.instants import BEGINNING
from promising.query import Session
from promising.query.standing.deltas import Mode
from promising.query.standing.engine import Engine
from promising.query.standing.operators.distinct import DistinctNode
from tests.query.standing.sessions import SECOND, START, create, fill, items, put, rows

# --- time ------------------------------------------------------------------------------------------------------------


def test_a_view_begins_with_what_its_window_holds(session):
    put(session, "a", (0, 1, 0), (8, 2, 0), (12, 3, 0))
    assert items(create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")) == [2, 3]
    assert items(create(session, "g", "SELECT item FROM a GROUP BY item WINDOW 5 SECONDS")) == [2, 3]
    assert items(create(session, "r", "SELECT item FROM a WINDOW 20 SECONDS")) == [1, 2, 3], "a longer one, later"
    assert items(create(session, "s", "SELECT price FROM a WHERE item < 3 WINDOW 20 SECONDS")) == [0, 0], (
        "other columns"
    )


def test_before_anything_has_come(session):
    rows = create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
    count = create(session, "n", "SELECT count(*) AS n FROM a WINDOW 10 SECONDS")
    assert items(rows) == []
    assert items(count) == [0]
    assert count.watermark == BEGINNING
    put(session, "a", (0, 1, 0))
    assert (items(rows), items(count)) == ([1], [1])


def test_a_result_leaves_at_its_end_and_not_before(session):
    views = [
        create(session, "sel", "SELECT item FROM a WINDOW 10 SECONDS"),
        create(session, "dis", "SELECT DISTINCT item FROM a WINDOW 10 SECONDS"),
        create(session, "grp", "SELECT item, count(*) AS n FROM a GROUP BY item WINDOW 10 SECONDS"),
        create(session, "pairs", "SELECT a.item FROM a, b WHERE a.item = b.item WINDOW 10 SECONDS"),
    ]
    put(session, "a", (0, 7, 0))
    put(session, "b", (1, 7, 0))
    for now, there in ((9.999999, [7]), (10, [])):
        session.advance("a", START + int(now * SECOND))
        assert [items(view) for view in views] == [there] * 4


def test_on_a_silent_stream_time_goes_on_with_the_clock(session):
    views = {
        name: session.standing.subscribe(name)
        for name, query in {
            "sel": "SELECT item FROM a WHERE price < 1 WINDOW 10 SECONDS",
            "cnt": "SELECT count(*) AS n FROM a WINDOW 10 SECONDS",
        }.items()
        if session.execute(f"CREATE CONTINUOUS QUERY {name} AS {query}")
    }
    put(session, "a", (0, 7, 0))
    wall = 5 * 10**15  # has nothing to do with the time of the stream
    engine = session.standing
    engine.tick(idle=wall, silence=SECOND)
    assert all(feed.take() is not None for feed in views.values())
    engine.tick(idle=wall + SECOND // 2, silence=SECOND)
    assert all(feed.take() is None for feed in views.values())
    for seconds in range(1, 10):
        engine.tick(idle=wall + seconds * SECOND, silence=SECOND)
        assert views["cnt"].take() is None, "nothing has ended"
    engine.tick(idle=wall + 10 * SECOND, silence=SECOND)
    for feed in views.values():
        delta = feed.take()
        assert delta is not None
        assert delta.watermark == START + 10 * SECOND
    put(session, "a", (5, 8, 0))  # dated earlier than the time by now, and still live
    engine.tick(idle=wall + 11 * SECOND, silence=SECOND)
    assert views["sel"].take().inserts["item"].to_pylist() == [8]
    assert views["cnt"].take().inserts["n"].to_pylist() == [1]


def test_late_tuples_count_while_they_live(session):
    view = create(session, "q", "SELECT a.item FROM a, b WHERE a.item = b.item WINDOW 10 SECONDS")
    put(session, "a", (20, 1, 0))
    put(session, "b", (11, 1, 0), (9, 1, 0))
    assert items(view) == [1]
    (status,) = session.standing.status()
    assert (status.late, status.size, status.came) == (1, 1, 1)


# --- queries ---------------------------------------------------------------------------------------------------------


def test_queries_of_one_text_are_one_view(session):
    first = create(session, "one", "SELECT DISTINCT item FROM a WINDOW 10 SECONDS")
    second = create(session, "two", "select  distinct item from a window interval '10' second")
    assert session.standing.view("one") is session.standing.view("TWO")
    put(session, "a", (0, 1, 0))
    session.execute("DROP QUERY one")
    with pytest.raises(NoSuchName, match="'one'"):
        first.poll()
    assert items(second) == [1]


def test_nothing_is_left_of_dropped_queries(session):
    put(session, "a", *((t, t % 5, t) for t in range(9)))
    for name, query in {
        "q": "SELECT item FROM a WHERE price > 3 WINDOW 10 SECONDS",
        "g": "SELECT item, median(price) AS m FROM a GROUP BY item WINDOW 10 SECONDS",
        "j": "SELECT a.item FROM a, b WHERE a.item = b.item WINDOW 10 SECONDS",
    }.items():
        create(session, name, query).poll()
    assert session.standing.nbytes > 0
    for name in "qgj":
        session.execute(f"DROP QUERY {name}")
    assert (session.standing.nbytes, session.standing.status()) == (0, [])


def test_a_query_that_fails_says_so_and_leaves_the_others_alone(session):
    bad = create(session, "bad", "SELECT item, sum(1 / (price - 5)) AS s FROM a GROUP BY item WINDOW 10 SECONDS")
    good = create(session, "good", "SELECT item FROM a GROUP BY item WINDOW 10 SECONDS")
    put(session, "a", (0, 1, 4))
    assert (items(bad), items(good)) == ([1], [1])
    put(session, "a", (1, 2, 5))
    with pytest.raises(DivisionByZero):
        bad.poll()
    assert items(good) == [1, 2]
    told = {status.name: status.problem for status in session.standing.status()}
    assert told["good"] is None
    assert "zero" in told["bad"]


def test_a_selection_that_fails_is_told_of_and_the_others_are_too(session):
    bad = create(session, "bad", "SELECT item FROM a WHERE 1 / (price - 5) > 0 WINDOW 10 SECONDS")
    good = create(session, "good", "SELECT item FROM a WINDOW 10 SECONDS")
    fill(session, "a", 0, 7, price=5.0)
    with pytest.raises(DivisionByZero):
        bad.poll()
    assert rows(good) == [(7,)]
    told = {status.name: status for status in session.standing.status()}
    assert "zero" in told["bad"].problem
    assert (told["good"].size, told["good"].problem) == (1, None)


def test_one_that_failed_is_not_shared(session):
    query = "SELECT sum(1 / (price - 5)) AS s FROM a WINDOW 10 SECONDS"
    first = create(session, "first", query)
    fill(session, "a", 0, 1, price=5.0)
    with pytest.raises(DivisionByZero):
        first.poll()
    fill(session, "a", 20, 1, price=9.0)
    session.standing.tick()
    second = create(session, "second", query)
    assert rows(second) == [(0.25,)]
    session.execute("DROP QUERY first")
    fill(session, "a", 21, 1, price=9.0)
    assert rows(second) == [(0.5,)]


def test_a_query_without_window_has_news_and_no_view(session):
    put(session, "a", (0, 1, 0))
    view = create(session, "q", "SELECT item FROM a WHERE price < 1")
    assert view.poll().inserts.num_rows == 0, "from now on"
    put(session, "a", (1, 2, 0), (2, 3, 9))
    assert view.poll().inserts["item"].to_pylist() == [2]
    with pytest.raises(Unsupported, match="WINDOW"):
        view.snapshot()


def test_queries_without_window_begin_each_at_its_own_time(session):
    put(session, "a", (0, 1, 0))
    first = create(session, "one", "SELECT item FROM a")
    first.poll()
    put(session, "a", (1, 2, 0))
    second = create(session, "two", "SELECT item FROM a")  # what came before it is not taken in yet
    assert second.poll().inserts.num_rows == 0
    put(session, "a", (2, 3, 0))
    assert first.poll().inserts["item"].to_pylist() == [2, 3]
    assert second.poll().inserts["item"].to_pylist() == [3]


def test_a_name_that_stands_for_something_else_is_subscribed_to_again(session):
    view = create(session, "q", "SELECT item, price FROM a WINDOW 10 SECONDS")
    view.poll()
    session.execute("DROP QUERY q")
    session.execute(
        "CREATE CONTINUOUS QUERY q AS SELECT item, max(price) AS price FROM a GROUP BY item WINDOW 10 SECONDS"
    )
    with pytest.raises(NoSuchName, match="another is called so"):
        view.poll()


def test_a_fault_of_ours_stops_one_query_only(session, monkeypatch):
    bad = create(session, "bad", "SELECT DISTINCT item FROM a WINDOW 10 SECONDS")
    good = create(session, "good", "SELECT item, count(*) AS n FROM a GROUP BY item WINDOW 10 SECONDS")
    assert (items(bad), items(good)) == ([], [])
    put(session, "a", (0, 1, 0))
    monkeypatch.setattr(DistinctNode, "step", lambda *_: 1 // 0)
    assert items(good) == [1]
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        bad.poll()


def test_another_budget_begins_anew(session):
    view = create(session, "q", "SELECT a.item FROM a, b WHERE a.item = b.item WINDOW 10 SECONDS")
    put(session, "a", (0, 1, 0))
    put(session, "b", (0, 1, 0))
    assert items(view) == [1]
    session.execute("ALTER CONTINUOUS QUERY q SET BUDGET 500 MILLISECONDS")
    delta = view.poll()
    assert delta.reset
    assert items(view) == [1]
    assert session.standing.status()[0].budget == 0.5


def test_another_budget_that_could_not_be_kept(session, monkeypatch, tmp_path):
    with promising.open(tmp_path, seed=1) as kept:
        kept.execute("CREATE STREAM a (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
        view = create(kept, "q", "SELECT item, count(*) AS n FROM a GROUP BY item WINDOW 10 SECONDS")
        fill(kept, "a", [0, 1, 1], [1, 2, 3])
        assert len(rows(view)) == 3
        fill(kept, "a", [10], [3])

        def full(*_):
            raise OSError("no space")

        monkeypatch.setattr(kept.store, "put_query", full)
        with pytest.raises(OSError, match="no space"):
            kept.execute("ALTER CONTINUOUS QUERY q SET BUDGET 1 MILLISECOND")
        assert rows(view) == [(2, 1), (3, 2)]


def test_a_long_chain_of_unions(session):
    fill(session, "a", [0], [7])
    view = create(session, "q", " UNION ALL ".join(["SELECT item FROM a WINDOW 10 SECONDS"] * 40))
    assert rows(view) == [(7,)] * 40
    session.execute(
        "EXPLAIN CREATE CONTINUOUS QUERY r AS " + " UNION ".join(["SELECT item FROM a WINDOW 10 SECONDS"] * 40)
    )


# --- too little time -------------------------------------------------------------------------------------------------


def test_with_no_time_a_view_is_part_of_the_truth_and_catches_up(session):
    query = "SELECT a.item FROM a, b WHERE a.item = b.item WINDOW 10 SECONDS"
    whole = create(session, "whole", query)
    best = create(
        session,
        "best",
        query.replace(
            "WINDOW", "WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.item), SUMMARY.Estimate.Count(b.item) WINDOW"
        ),
    )
    feed = session.standing.subscribe("best")
    rng = np.random.default_rng(1)
    for tick in range(5):
        for stream in "ab":
            put(session, stream, *((tick / 10, int(item), 0) for item in rng.zipf(1.5, 600) % 50))
        session.standing.tick(capacity=0.0)
        feed.take()
    assert session.standing.view("best").pending
    assert session.standing.view("best").size < session.standing.view("whole").size
    session.standing.tick(capacity=1e9)
    assert not session.standing.view("best").pending
    assert items(best) == items(whole)


def test_what_ends_before_its_turn_is_given_up_and_counted(session):
    query = (
        "SELECT a.item FROM a, b WHERE a.item = b.item WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.item),"
        " SUMMARY.Estimate.Count(b.item) WINDOW 1 SECONDS"
    )
    create(session, "q", query)
    for stream in "ab":
        put(session, stream, *((0, 1, 0) for _ in range(1_000)))
    session.standing.tick(capacity=0.0)
    session.advance("a", START + 2 * SECOND)
    session.standing.tick(capacity=0.0)
    (status,) = session.standing.status()
    assert status.size == 0
    assert status.came + status.shed == 1_000_000
    assert status.shed > 0


# --- where only results bring the time -------------------------------------------------------------------------------


@pytest.fixture
def ita(monkeypatch):
    monkeypatch.setattr("promising.query.session.Engine", partial(Engine, Mode.ITA))
    with Session(seed=1, clock=lambda: 1 << 60) as made:
        for name in "ab":
            made.execute(f"CREATE STREAM {name} (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
        yield made


def test_who_comes_late_is_shown_groups_as_they_were_when_the_time_was_told(ita):
    counts = "SELECT count(*) FROM a GROUP BY item WINDOW 100 SECONDS INTERSECT SELECT item FROM b WINDOW 5 SECONDS"
    early = create(ita, "q", counts)
    put(ita, "a", (0, 7, 0))
    put(ita, "b", (0, 1, 0))
    assert (items(early), early.watermark) == ([1], START)
    for now in range(10, 90):  # the result is over and its group has changed, which nothing tells the view
        put(ita, "a", (now, 7, 0), (now, now, 0))
        ita.standing.tick()
        late = ita.subscribe("q")
        assert (items(late), late.watermark) == ([1], START)
    put(ita, "b", (90, 81, 0))
    assert (items(late), late.watermark) == ([81], START + 90 * SECOND)
    assert items(early) == [81]


def test_who_comes_late_is_shown_rows_of_a_table_that_are_forgotten(ita):
    ita.execute("CREATE TABLE t (item BIGINT, size BIGINT, PRIMARY KEY (item)) RETROACTIVE")
    ita.load_table("t", {"item": list(range(9)), "size": [5] * 9})
    sizes = "SELECT t.size FROM a, t WHERE a.item = t.item WINDOW 5 SECONDS"
    early = create(ita, "q", f"{sizes} INTERSECT SELECT item FROM b WINDOW 5 SECONDS")
    put(ita, "a", (0, 7, 0))
    put(ita, "b", (0, 5, 0))
    assert items(early) == [5]
    put(ita, "b", (10, 8, 0))
    for change in range(300):
        ita.load_table("t", {"item": list(range(9)), "size": [100 + change] * 9})
        ita.standing.tick()
    late = ita.subscribe("q")
    assert (items(late), late.watermark) == ([5], START)


def test_rows_that_are_kept_have_their_places_when_others_go(ita):
    even = "SELECT item, price FROM a WINDOW 50 SECONDS EXCEPT SELECT item, price FROM b WINDOW 200 SECONDS"
    view = create(ita, "q", even)
    put(ita, "a", *((0, item, item) for item in range(3_000)))
    assert len(items(view)) == 3_000
    put(ita, "b", *((1, item, item) for item in range(3_000) if item % 100))
    assert items(view) == items(ita.subscribe("q")) == list(range(0, 3_000, 100))
    put(ita, "a", (2, -1, 0.5))
    assert items(view) == items(ita.subscribe("q")) == [-1, *range(0, 3_000, 100)]


def test_a_view_that_begins_tells_the_time_of_what_it_was_given(ita):
    put(ita, "a", (6, 7, 0), (15, 5, 0))
    put(ita, "b", (6, 7, 0), (12, 5, 0), (20, 9, 3))  # by then the first pair, which lived at 15, is over
    pairs = create(ita, "q", "SELECT a.item FROM a, b WHERE a.item = b.item AND b.price < 1 WINDOW 10 SECONDS")
    assert (items(pairs), pairs.watermark) == ([5], START + 20 * SECOND)


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retroactive", [True, False])
def test_rows_of_the_past_are_forgotten_when_no_tuple_needs_them(session, retroactive):
    kind = "RETROACTIVE" if retroactive else "NON RETROACTIVE"
    session.execute("DROP SUMMARY by_a")
    session.execute("ALTER STREAM a KEEP 20 SECONDS")
    session.execute(f"CREATE TABLE t (item BIGINT, name VARCHAR, PRIMARY KEY (item)) {kind}")
    view = create(session, "q", "SELECT t.name FROM a, t WHERE a.item = t.item WINDOW 5 SECONDS")
    table = session.catalog.tables["t"]
    for now in range(260):
        session.load_table("t", {"item": list(range(10)), "name": [f"{now} {item}" for item in range(10)]})
        put(session, "a", *((now, item % 12, 0) for item in range(240)))
        first = now if retroactive else max(0, now - 4)
        assert set(items(view)) == {f"{then} {item}" for then in range(first, now + 1) for item in range(10)}
    assert table.versions < 1_100
