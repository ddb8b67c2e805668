"""Queries of a store start when they are needed, or with the ticks; whenever that is, their views are the same."""

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from promising.errors import NoSuchName, PromisingError
from promising.index.storage.store import Store
from promising.query import Session
from promising.query.standing import engine as engines
from promising.query.standing.engine import Engine
from tests.query.standing.sessions import put, rows

QUERIES = {
    "every": "SELECT item, price FROM a WINDOW 10 SECONDS",
    "some": "SELECT item FROM a WHERE item > 2 AND price < 19 WINDOW 5 SECONDS",
    "long": "SELECT item FROM a WHERE item < 4 WINDOW 1 HOUR",
    "sums": "SELECT count(*) AS n, sum(price) AS s FROM a WHERE item < 9 WINDOW 10 SECONDS",
    "groups": "SELECT item, count(*) AS n FROM b GROUP BY item WINDOW 10 SECONDS",
    "joined": "SELECT a.item, b.price FROM a, b WHERE a.item = b.item WINDOW 10 SECONDS",
    "named": "SELECT a.item, t.name FROM a JOIN t ON a.item = t.item WINDOW 10 SECONDS",
    "arrived": "SELECT a.item, u.name FROM a JOIN u ON a.item = u.item WINDOW 10 SECONDS",
    "either": "SELECT item FROM a WINDOW 10 SECONDS UNION SELECT item FROM b WINDOW 10 SECONDS",
    "same": "SELECT item, price FROM a WINDOW 10 SECONDS",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with queries over two streams and a table, as a closed session leaves it."""
    with Session(store=Store.open(tmp_path, clock=lambda: 1 << 60)) as session:
        for name in "ab":
            session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
        for name, kind in (("t", "RETROACTIVE"), ("u", "NON RETROACTIVE")):
            session.execute(f"CREATE TABLE {name} (item BIGINT, name VARCHAR, PRIMARY KEY (item)) {kind}")
            rename(session, "n")
        for name, query in QUERIES.items():
            session.execute(f"CREATE CONTINUOUS QUERY {name} AS {query}")
        session.execute("CREATE CONTINUOUS QUERY news AS SELECT item FROM a")
        for name in "ab":
            put(session, name, *((second, second % 7, float(second)) for second in range(20)))
        rename(session, "again")
    return tmp_path


def rename(session: Session, name: str) -> None:
    """Change all rows of the tables that are there."""
    for table in session.catalog.tables.values():
        session.load_table(table.name, {"item": list(range(10)), "name": [f"{name} {i}" for i in range(10)]})


def reopened(path: Path) -> Session:
    return Session(store=Store.open(path, clock=lambda: 1 << 60))


def views(session: Session) -> dict[str, Any]:
    return {name: rows(session.subscribe(name)) for name in QUERIES}


def waiting(session: Session) -> set[str]:
    return {found.name for found in session.standing.status() if found.label == "starting"}


def test_a_start_starts_only_those_without_window_and_a_query_when_it_is_asked_for(path):
    with reopened(path) as session:
        assert len(session.standing) == len(QUERIES) + 1
        assert waiting(session) == set(QUERIES)
        session.subscribe("some")
        assert waiting(session) == set(QUERIES) - {"some"}
        session.query("SELECT count(*) AS n FROM sums").to_arrow()
        assert "sums" not in waiting(session)


@pytest.mark.parametrize("ticks", [0, len(QUERIES)])
def test_views_after_a_start_are_those_before(path, monkeypatch, ticks):
    """However late they start, after arrivals and changes of a table; before, they were there from the beginning."""
    with reopened(path) as session:
        for name in QUERIES:
            session.standing.start(name)
        assert not waiting(session)
        for second in range(20, 24):
            put(session, "a", (second, second % 5, 1.0))
            rename(session, str(second))
            session.standing.tick()
        before = views(session)
        assert all(before.values())
    monkeypatch.setattr(engines, "CATCH_UP", 1)
    with reopened(path) as session:
        for _ in range(ticks):
            session.standing.tick()
        assert waiting(session) == (set() if ticks else set(QUERIES))
        assert views(session) == before


def test_table_rows_stay_until_all_that_join_them_have_started(path, monkeypatch):
    monkeypatch.setattr("promising.query.table_statements.SPARE", 0)
    monkeypatch.setattr("promising.query.table_statements.CROWDED", 0)
    monkeypatch.setattr(Engine, "_catch_up", lambda self: None)
    seen = []
    for eager in (True, False):
        other = path.with_name(f"copy {eager}")
        shutil.copytree(path, other)
        with reopened(other) as session:
            if eager:
                session.standing.start("arrived")
            for turn in range(5):
                put(session, "a", (20 + turn / 10, turn, 1.0))
                rename(session, str(turn))
                session.standing.tick()
            seen.append(rows(session.subscribe("arrived")))
    assert seen[0] == seen[1] and len(seen[0]) > 5


def test_one_that_waits_can_be_dropped_and_one_that_cannot_start_says_so_when_asked(path, monkeypatch):
    with reopened(path) as session:
        session.execute("DROP QUERY long")
        with pytest.raises(NoSuchName):
            session.subscribe("long")
        assert len(session.standing) == len(QUERIES)

        def broken(*_: Any, **__: Any) -> Any:
            raise PromisingError("it is broken")

        monkeypatch.setattr("promising.query.definitions.bind_standing", broken)
        with pytest.raises(PromisingError, match="it is broken"):
            session.subscribe("some")
        monkeypatch.undo()
        (told,) = [found for found in session.standing.status() if found.name == "some"]
        assert told.problem == "it is broken"
        assert rows(session.subscribe("every"))


def test_threads_that_ask_for_one_query_start_it_once(path, monkeypatch):
    monkeypatch.setattr(Engine, "_catch_up", lambda self: None)
    with reopened(path) as session:
        made: list[str] = []
        create = session.standing.create
        ready = threading.Barrier(4)

        def counted(name: str, *given: Any) -> None:
            made.append(name)
            create(name, *given)

        monkeypatch.setattr(session.standing, "create", counted)
        found: list[Any] = []

        def ask() -> None:
            ready.wait()
            found.append(session.standing.subscribe("joined").view)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == ["joined"] and len(found) == 4 and len(set(map(id, found))) == 1


def test_ticks_start_nothing_while_a_definition_is_under_way(path):
    with reopened(path) as session:
        locked, done = threading.Event(), threading.Event()

        def define() -> None:
            with session.catalog.lock:
                locked.set()
                done.wait()

        thread = threading.Thread(target=define)
        thread.start()
        locked.wait()
        session.standing.tick()
        assert waiting(session) == set(QUERIES)
        done.set()
        thread.join()
        for _ in QUERIES:
            session.standing.tick()
        assert not waiting(session)
