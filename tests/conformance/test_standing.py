"""Continuous queries and reference tables: the same over a session in process and over one on a service."""

import time

import pytest

from promising.errors import BadQuestion, BadToken, DuplicateKey, MissingKey, MixedKeys, NoSuchName

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


def test_many_are_polled_at_once_and_each_has_its_own_rows(opened):
    """Selections that are alike are looked up together; each has what it would have by itself, change by change."""
    session = opened()
    session.execute(STREAM)
    asked = {
        **{f"over{low}": f"SELECT item, price FROM s WHERE price > {low} WINDOW 10 SECONDS" for low in range(4)},
        "both": "SELECT item, price FROM s WHERE price > 1 AND item = 2 WINDOW 10 SECONDS",
        "short": "SELECT item, price FROM s WHERE price > 1 WINDOW 3 SECONDS",
        "other": "SELECT price FROM s WHERE price > 1 WINDOW 10 SECONDS",
        "worked out": "SELECT item + 1 AS next FROM s WHERE price > 1 WINDOW 10 SECONDS",
        "all": "SELECT item, price FROM s WINDOW 10 SECONDS",
        "grouped": QUERIES["grouped"],
    }
    for name, select in asked.items():
        session.execute(f'CREATE CONTINUOUS QUERY "{name}" AS {select}')
    watched = {session.subscribe(name): select for name, select in asked.items()}
    taken = {subscription: 0 for subscription in watched}
    for first, last in ((100, 104), (104, 111), (111, 130), (90, 95), (125, 131)):
        put(session, first, last)
        wanted = {subscription: rows(session.query(select).to_arrow()) for subscription, select in watched.items()}
        end = time.monotonic() + WAIT
        while any(one.watermark is None or rows(one.snapshot()) != wanted[one] for one in watched):
            assert time.monotonic() < end
            for subscription, delta in session.poll([*watched, *watched], timeout=0.2).items():
                assert delta.inserts.schema == subscription.schema
                assert len(delta.inserts) == len(delta.ids) == len(delta.exp)
                assert subscription.token == delta.token
                taken[subscription] += len(delta.inserts)
    assert min(taken.values()) > 0
    again = {session.subscribe(name, one.token): one for name, one in zip(asked, watched, strict=True)}
    put(session, 131, 135)
    told: dict[object, list[object]] = {one: [] for one in again}
    end = time.monotonic() + WAIT
    while not all(told.values()):
        assert time.monotonic() < end
        for subscription, delta in session.poll(again, timeout=0.2).items():
            assert not delta.reset
            told[subscription] += [delta] if len(delta.inserts) else []


def test_one_that_fails_keeps_no_other_from_its_changes(opened):
    session = ready(opened)
    plain, grouped = session.subscribe("plain"), session.subscribe("grouped")
    put(session, 100, 104)
    sees(plain, rows(session.query(QUERIES["plain"]).to_arrow()))
    session.execute("DROP CONTINUOUS QUERY grouped")
    put(session, 104, 108)
    end = time.monotonic() + WAIT
    with pytest.raises(NoSuchName):
        while time.monotonic() < end:
            session.poll([plain, grouped], timeout=0.2)
    grouped.close()
    wanted = rows(session.query(QUERIES["plain"]).to_arrow())
    while rows(plain.snapshot()) != wanted:
        assert time.monotonic() < end
        session.poll([plain, grouped], timeout=0.2)
    plain.close()
    assert session.poll([plain, grouped]) == {}


def test_a_session_polls_its_own(opened):
    one, other = ready(opened), ready(opened)
    with one.subscribe("plain") as subscription, pytest.raises(BadQuestion, match="another session"):
        other.poll([subscription])
