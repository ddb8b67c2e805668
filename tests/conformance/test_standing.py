"""Continuous queries and reference tables: the same over a session in process and over one on a service."""

import time

import pytest

from summaries.errors import BadToken, DuplicateKey, MissingKey, MixedKeys, NoSuchName

SECOND = 1_000_000
WAIT = 120  # seconds, so that a test that fails ends
STREAM = "CREATE STREAM s (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts"
TABLE = "CREATE TABLE names (item BIGINT, name VARCHAR, PRIMARY KEY (item))"
QUERIES = {
    "plain": "SELECT item, price FROM s WHERE price > 2 WINDOW 10 SECONDS",
    "grouped": "SELECT item, count(*) AS n, max(price) AS top FROM s GROUP BY item WINDOW 10 SECONDS",
    "pairs": (
        "SELECT a.item, b.price FROM s AS a JOIN s AS b ON a.item = b.item WHERE a.price < b.price WINDOW 5 SECONDS"
    ),
}


def ready(opened):
    session = opened()
    session.execute(STREAM)
    for name, select in QUERIES.items():
        session.execute(f"CREATE CONTINUOUS QUERY {name} AS {select}")
    return session


def put(session, first, last):
    """A tuple each half second, from one second up to another."""
    count = 2 * (last - first)
    session.ingest(
        "s",
        {
            "ts": [first * SECOND + at * SECOND // 2 for at in range(count)],
            "item": [at % 4 for at in range(count)],
            "price": [float(at % 7) for at in range(count)],
        },
    )


def rows(table):
    return sorted(map(str, table.to_pylist()))


def sees(subscription, wanted):
    """Take changes until the view is as wanted; these."""
    end, taken = time.monotonic() + WAIT, []
    while subscription.watermark is None or rows(subscription.snapshot()) != wanted:
        assert time.monotonic() < end, (rows(subscription.snapshot()), wanted)
        delta = subscription.poll(0.2)
        if delta is not None:
            taken.append(delta)
    return taken


@pytest.mark.parametrize("name", QUERIES)
def test_the_view_is_what_the_select_would_give(opened, name):
    session = ready(opened)
    with session.subscribe(name) as subscription:
        assert subscription.schema == session.query(QUERIES[name]).schema
        for first, last in ((100, 104), (104, 111), (111, 130), (90, 95)):
            put(session, first, last)
            sees(subscription, rows(session.query(QUERIES[name]).to_arrow()))


def test_time_that_goes_on_ends_rows(opened):
    session = ready(opened)
    with session.subscribe("plain") as subscription:
        put(session, 100, 104)
        sees(subscription, rows(session.query(QUERIES["plain"]).to_arrow()))
        assert len(subscription) > 0
        session.advance("s", 200 * SECOND)
        taken = sees(subscription, [])
        assert sum(len(delta.retractions) for delta in taken) == 0, "they end by themselves"


def test_a_token_goes_on_from_what_was_seen(opened):
    session = ready(opened)
    with session.subscribe("grouped") as first:
        put(session, 100, 104)
        sees(first, rows(session.query(QUERIES["grouped"]).to_arrow()))
        token = first.token
    put(session, 104, 106)
    wanted = rows(session.query(QUERIES["grouped"]).to_arrow())
    with session.subscribe("grouped", token) as second:
        delta = second.poll(WAIT)
        assert not delta.reset
        first._view.apply(delta)
        assert rows(first.snapshot()) == wanted


def test_queries_that_are_not_there(opened):
    session = ready(opened)
    with pytest.raises(NoSuchName):
        session.subscribe("none")
    with pytest.raises(BadToken):
        session.subscribe("plain", "no token")
    subscription = session.subscribe("plain")
    subscription.poll(WAIT)
    session.execute("DROP CONTINUOUS QUERY plain")
    with pytest.raises(NoSuchName):
        while subscription.poll(1) is None:
            pass


def test_tables_are_loaded_as_a_whole_and_joined(opened):
    session = ready(opened)
    session.execute(TABLE)
    joined = "SELECT s.item, names.name FROM s JOIN names ON s.item = names.item WINDOW 10 SECONDS"
    session.execute(f"CREATE CONTINUOUS QUERY named AS {joined}")
    changed = session.load_table("names", {"item": [1, 2], "name": ["one", "two"]}, "insert")
    assert (changed.change, changed.inserted, changed.updated, changed.unchanged) == (1, 2, 0, 0)
    with session.subscribe("named") as subscription:
        put(session, 100, 102)
        sees(subscription, ["{'item': 1, 'name': 'one'}", "{'item': 2, 'name': 'two'}"])
        changed = session.load_table("names", {"item": [2, 3], "name": ["deux", "trois"]})
        assert (changed.inserted, changed.updated) == (1, 1)
        wanted = ["{'item': 1, 'name': 'one'}", "{'item': 2, 'name': 'deux'}", "{'item': 3, 'name': 'trois'}"]
        sees(subscription, wanted)
        with pytest.raises(DuplicateKey):
            session.load_table("names", {"item": [9, 1], "name": ["nine", "x"]}, "insert")
        with pytest.raises(MissingKey):
            session.load_table("names", {"item": [1, 8], "name": ["x", "x"]}, "update")
        with pytest.raises(NoSuchName):
            session.load_table("none", {"item": [1], "name": ["x"]})
        with pytest.raises(MixedKeys):
            session.load_table("names", {"item": ["text"], "name": ["x"]})
        assert session.table("names").sort_by("item").to_pydict() == {
            "item": [1, 2, 3],
            "name": ["one", "deux", "trois"],
        }
        with pytest.raises(NoSuchName):
            session.table("none")
        session.execute("DELETE FROM names WHERE item = 1")
        sees(subscription, wanted[1:])
        session.execute("UPSERT INTO names (item, name) VALUES (3, 'three'), (0, 'zero')")
        sees(subscription, ["{'item': 0, 'name': 'zero'}", wanted[1], "{'item': 3, 'name': 'three'}"])
