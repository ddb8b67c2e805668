"""A session small enough to be made hundreds of times, with something of every kind; and all that can be seen of it."""

from collections.abc import Mapping
from typing import Any

from promising.query import Session
from promising.query.standing.subscription import Delta

SECOND = 1_000_000
NOW = 1_000 * SECOND
TUPLES = 40
COLUMNS = "(ts TIMESTAMP, a INT, b INT, c DOUBLE, d BOOLEAN, k INT, item_id INT, price DOUBLE, name VARCHAR)"
STREAMS = {"s": 10, "t": 8, "store1": 10}
"""Each with a summary of `k` of that granularity in seconds, so that they are split otherwise."""
DEFINITIONS = f"""
{"".join(f"CREATE STREAM {name} {COLUMNS} TIMESTAMP BY ts LATENESS 2 SECONDS KEEP 80 SECONDS;" for name in STREAMS)}
CREATE TABLE names (item_id BIGINT, name TEXT, price DOUBLE, PRIMARY KEY (item_id)) RETROACTIVE;
INSERT INTO names VALUES (1, 'one', 1.5), (2, NULL, -2.5);
CREATE CONTINUOUS QUERY watch AS SELECT k, count(*) AS n, sum(b) AS b FROM s GROUP BY k WINDOW 30 SECONDS;
CREATE CONTINUOUS QUERY pairs AS SELECT s.k, s.b, t.c FROM s, t WHERE s.k = t.k AND s.b < 1 WINDOW 20 SECONDS
"""


class CountedClock:
    """CPU time that goes on by a microsecond whenever somebody looks: budgets cut at the same place every time."""

    def __init__(self) -> None:
        self._now = 0

    def __call__(self) -> int:
        self._now += 1_000
        return self._now


def columns(offset: int = 0, count: int = TUPLES) -> dict[str, list[Any]]:
    at = [offset + i for i in range(count)]
    return {
        "ts": [(offset + i * 60 // count) * SECOND for i in range(count)],
        "a": [None if i % 11 == 5 else i % 5 - 1 for i in at],
        "b": [i % 4 for i in at],
        "c": [None if i % 7 == 3 else (i % 9) / 4 for i in at],
        "d": [i % 3 == 0 for i in at],
        "k": [i % 7 for i in at],
        "item_id": [i % 7 for i in at],
        "price": [i / 2 for i in at],
        "name": [None if i % 13 == 2 else f"n{i % 6}é" for i in at],
    }


def session(structure: str = "adaptive") -> Session:
    made = Session(clock=lambda: NOW, cpu=CountedClock(), seed=3)
    stock(made, structure)
    return made


def stock(made: Session, structure: str = "adaptive") -> None:
    """Give an empty session its content."""
    made.execute_many(DEFINITIONS)
    for number, (name, granularity) in enumerate(STREAMS.items()):
        options = "OPTIONS (buckets = 4, depth = 3, width = 8, filter_bits = 64)"
        with_ = f"WITH GRANULARITY {granularity} SECONDS AND COLLAPSE (2, 3) STRUCTURE {structure} {options}"
        made.execute(f"CREATE SUMMARY {name}_k ON {name} (k) {with_}")
        made.ingest(name, columns(number))
    made.standing.tick()


def clear(made: Session) -> None:
    """Drop everything."""
    catalog = made.catalog
    every: dict[str, Mapping[str, Any]] = {
        "QUERY": catalog.queries,
        "STREAM": catalog.streams,
        "TABLE": catalog.tables,
    }
    for kind, known in every.items():
        for entry in list(known.values()):
            made.execute(f"DROP {kind} {quoted(entry.name)} CASCADE")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def state(made: Session) -> list[Any]:
    """What an input may change, without the tuples: cheap enough to be asked before and after each."""
    catalog = made.catalog
    seen: list[Any] = [
        (name, id(s), s.accepted, s.kept, s.watermark, s.latest, s.keep, s.max_jump, s.lateness)
        for name, s in sorted(catalog.streams.items())
    ]
    seen += [(name, id(entry.index)) for name, entry in sorted(catalog.summaries.items())]
    seen += [
        (name, id(table), table.versions, len(table), table.changes) for name, table in sorted(catalog.tables.items())
    ]
    seen += [(name, query.statement, query.number) for name, query in sorted(catalog.queries.items())]
    return seen


def content(made: Session) -> list[Any]:
    """All that a user can see."""
    shown: list[Any] = [made.execute(f"SHOW {what}") for what in ("STREAMS", "SUMMARIES", "QUERIES", "TABLES")]
    catalog = made.catalog
    for name in [*catalog.streams, *catalog.queries]:
        if name in catalog.queries and made.standing.view(name).endless:
            continue  # it has no view
        shown += [made.execute(f"DESCRIBE {quoted(name)}"), made.query(f"SELECT * FROM {quoted(name)}").to_arrow()]
    shown += [made.table(table.name) for table in catalog.tables.values()]
    return [table.to_pylist() for table in shown]


def view(made: Session, name: str) -> list[Any]:
    """The rows of a continuous query as a new subscriber gets them."""
    with made.subscribe(name) as subscription:
        delta: Delta | None = subscription.poll()
        assert delta is not None
        return sorted(subscription.snapshot().to_pylist(), key=repr)
