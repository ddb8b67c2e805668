"""The judge is judged: what the oracle says a view holds, DuckDB finds by the same text over the tuples alive."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.query.standing import oracle
from tests.query.standing.oracle import Bag, History, Query, Source, TableLog, rounded
from tests.query.standing.random_events import Advance, Change, Event, Ingest, Lives, Shape, changed, empty
from tests.query.standing.random_plans import ARROW, COLUMNS, STREAMS, TABLES, Plans

EPOCH = datetime(1970, 1, 1)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@pytest.mark.parametrize("seed", range(12))
def test_the_oracle_says_what_duckdb_says(seed: int, duck: duckdb.DuckDBPyConnection):
    rng = random.Random(f"judge {seed}")
    history = empty({table: rng.random() < 0.5 for table in TABLES})
    lives = Lives(rng, Shape(strange=seed % 3 == 0, nulls=rng.choice((0.0, 0.1, 0.3))))
    plans = Plans(rng)
    full = 0
    for _ in range(5):
        for _ in range(8):
            for event in lives.between():
                happen(history, event)
        load(duck, history)
        for _ in range(10):
            query = plans.query()
            now = history.now(query)
            theirs = in_duckdb(duck, query, history, now)
            mine = rounded(oracle.view(query, history, now))
            full += bool(mine)
            assert mine == theirs, f"{oracle.ours(query)}\nonly mine: {mine - theirs}\nonly theirs: {theirs - mine}"
    assert full > 10


def test_every_part_of_the_language_comes_up():
    plans = Plans(random.Random(1))
    texts = [oracle.ours(plans.query()) for _ in range(400)]
    for words in (
        *("DISTINCT", "JOIN", "GROUP BY", "HAVING", "NOT EXISTS", " EXISTS", "items t", "words t", "count(DISTINCT"),
        *("UNION ALL", "UNION SELECT", "INTERSECT ALL", "INTERSECT SELECT", "EXCEPT ALL", "EXCEPT SELECT"),
        *("EXCEPT ALL (", "sum(", "avg(", "min(", "max(", "median(", "quantile(", "count(*)"),
    ):
        assert sum(words in text for text in texts) >= 2, words
    assert sum("WINDOW" not in text for text in texts) > 5


def happen(history: History, event: Event) -> None:
    if isinstance(event, Ingest):
        history.arrive(event.stream, list(event.rows))
    elif isinstance(event, Advance):
        history.advance(event.stream, event.time)
    elif isinstance(event, Change):
        log = history.tables[event.table]
        after = changed(log, event)
        if after is not None:
            log.change(after, history.arrived())


def load(duck: duckdb.DuckDBPyConnection, history: History) -> None:
    """Streams with the change of each table that a tuple saw, tables with the changes a row was there for."""
    for name in STREAMS:
        rows = history.streams[name]
        columns: dict[str, pa.Array] = {
            column: pa.array([row[column] for row in rows], ARROW[kind]) for column, kind in COLUMNS.items()
        }
        for table, log in history.tables.items():
            columns[f"saw_{table}"] = pa.array([log.seen_by(name, seq) for seq in range(len(rows))], pa.int64())
        _create(duck, name, columns)
    for name, log in history.tables.items():
        versions = _versions(log)
        made = {c: pa.array([row[c] for row, _, _ in versions], ARROW[kind]) for c, kind in TABLES[name].items()}
        made["born"] = pa.array([born for _, born, _ in versions], pa.int64())
        made["died"] = pa.array([died for _, _, died in versions], pa.int64())
        _create(duck, name, made)


def _create(duck: duckdb.DuckDBPyConnection, name: str, columns: dict[str, pa.Array]) -> None:
    given = pa.table(columns)
    duck.register("given", given)
    duck.execute(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM given')
    duck.unregister("given")


def _versions(log: TableLog) -> list[tuple[dict[str, Any], int, int]]:
    """Each row as often as it was changed, with the first change it was there after and the first it was not."""
    found = []
    for number, contents in enumerate(log.contents):
        for row in contents.values():
            found.append((dict(row), number, number + 1))
    return found


def in_duckdb(duck: duckdb.DuckDBPyConnection, query: Query, history: History, now: int) -> Bag:
    """The same text, over what is alive; of a table that is not retroactive, over what each tuple saw."""

    def written(source: Source, window: int | None) -> str:
        if source.table:
            log = history.tables[source.name]
            last = len(log.contents) - 1
            return f"(SELECT * FROM {source.name}{f' WHERE born = {last}' if log.retroactive else ''}) {source.alias}"
        if window is None:
            return f"{source.name} {source.alias}"
        return f"(SELECT * FROM {source.name} WHERE epoch_us(ts) > {now - window}) {source.alias}"

    def seen(query: Query) -> Query:
        if isinstance(query, oracle.SetOperation):
            return oracle.SetOperation(query.word, query.all, seen(query.left), seen(query.right))
        for source in query.sources:
            if source.table and not history.tables[source.name].retroactive:
                condition = oracle.Expr(f"x.saw_{source.name} = t.born", "bool", lambda env: True)
                return replace(query, where=(*query.where, condition))
        return query

    sql = oracle.text(seen(query), written).replace("quantile(", "quantile_cont(")
    return rounded(Counter(tuple(map(_number, row)) for row in duck.execute(sql).fetchall()))


def _number(value: Any) -> Any:
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value
