"""Strings against integers: the same stream twice, once with its key as INT and once as STRING.

The string of key k is `customer-` and k in ten digits, so both streams have equal groups and equal pairs. Insert is
measured with and without a summary on the key; the join with postings on both sides, and with a directory built for the
query; GROUP BY over few keys and over many.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import promising
from benchmarks import data
from benchmarks.harness import PROCESS, Contender, Effort, Figure, Report, alternate
from benchmarks.query_data import BATCH, drawn
from promising.query import Session

GOAL = "<= 1.3"
KINDS = {"int": "INT", "string": "STRING"}


def run(report: Report, effort: Effort) -> None:
    for n in (1 << 16, 1 << 18) if effort.quick else (1 << 18, 1 << 20):
        keys = n // 16
        report.part("strings", f"{n:,} tuples, {keys:,} keys", [*_inserts(n, keys, effort), *_queries(n, keys, effort)])


def tables(n: int, keys: int, seed: int) -> dict[str, list[pa.RecordBatch]]:
    """The stream by kind of key: ingested batches, with Arrow's memory made before."""
    columns = drawn(n, keys, 0.0, seed)
    city = columns["key"] // data.SPREAD % 100
    found: dict[str, list[pa.RecordBatch]] = {kind: [] for kind in KINDS}
    for first in range(0, n, BATCH):
        part = {name: pa.array(values[first : first + BATCH]) for name, values in columns.items()}
        part["ts"] = part["ts"].view(pa.timestamp("us"))
        part["city"] = pa.array(city[first : first + BATCH])
        found["int"].append(pa.record_batch(part))
        named = {name: _named(part[name], name) for name in ("key", "city")}
        found["string"].append(pa.record_batch({**part, **named}))
    return found


def _named(numbers: pa.Array, name: str) -> pa.Array:
    prefix = "customer-" if name == "key" else "city-"
    text = pc.utf8_lpad(numbers.cast(pa.string()), 10, "0")
    return pc.binary_join_element_wise(prefix, text, "").cast(pa.large_string())


def session_with(kind: str, named: dict[str, list[pa.RecordBatch]], *, summaries: bool) -> Session:
    session = promising.open(seed=7)
    for name, batches in named.items():
        session.execute(
            f"CREATE STREAM {name} (key {KINDS[kind]}, ts TIMESTAMP, price DOUBLE, amount DOUBLE, city {KINDS[kind]})"
            " TIMESTAMP BY ts"
        )
        if summaries:
            session.execute(
                f"CREATE SUMMARY {name}_key ON {name} (key) WITH GRANULARITY 10 MINUTES AND COLLAPSE (4, 5)"
            )
        for batch in batches:
            session.ingest(name, batch)
    return session


def _inserts(n: int, keys: int, effort: Effort) -> list[Figure]:
    batches = tables(n, keys, 1)

    def contender(kind: str, summaries: bool) -> Contender:
        def prepare() -> Callable[[], object]:
            session = session_with(kind, {"a": []}, summaries=summaries)

            def ingest() -> Session:
                for batch in batches[kind]:
                    session.ingest("a", batch)
                return session

            return ingest

        return prepare

    figures = []
    for summaries, name in ((True, "insert"), (False, "insert, no summary")):
        took = alternate({kind: contender(kind, summaries) for kind in KINDS}, effort.rounds, PROCESS)
        ours, theirs = took["string"] / n, took["int"] / n
        figures.append(Figure(name, ours, theirs, "int", "CPU ns/tuple", GOAL, {"tuples": n}))
    return figures


QUERIES = {
    "join, count": (True, "SELECT count(*) FROM a JOIN b ON a.key = b.key"),
    "join, rows": (True, "SELECT a.price, b.amount FROM a JOIN b ON a.key = b.key"),
    "join, strings shown": (True, "SELECT a.key, b.city, b.amount FROM a JOIN b ON a.key = b.key"),
    "join, no summary": (False, "SELECT a.price, b.amount FROM a JOIN b ON a.key = b.key"),
    "GROUP BY many keys": (True, "SELECT key, count(*), sum(price) FROM a GROUP BY key"),
    "GROUP BY few keys": (True, "SELECT city, count(*), sum(price) FROM a GROUP BY city"),
    "join, GROUP BY": (True, "SELECT b.city, sum(a.price) FROM a JOIN b ON a.key = b.key GROUP BY b.city"),
}


def _queries(n: int, keys: int, effort: Effort) -> list[Figure]:
    streams = {"a": tables(n, keys, 1), "b": tables(n, keys, 2)}
    sessions = {
        (kind, summaries): session_with(kind, {name: s[kind] for name, s in streams.items()}, summaries=summaries)
        for kind in KINDS
        for summaries in (True, False)
    }
    figures = []
    for name, (summaries, sql) in QUERIES.items():
        asked = {kind: sessions[kind, summaries] for kind in KINDS}
        _check(asked, sql)
        took = alternate({kind: _asked(session, sql) for kind, session in asked.items()}, effort.rounds, PROCESS)
        ours, theirs = took["string"] / 1e6, took["int"] / 1e6
        figures.append(Figure(name, ours, theirs, "int", "CPU ms", GOAL, {"tuples": n}))
    return figures


def _asked(session: Session, sql: str) -> Contender:
    return lambda: lambda: session.query(sql).to_arrow()


def _check(asked: dict[str, Session], sql: str) -> None:
    """As many rows, and the same sum of every column of floats."""
    sums = {}
    for kind, session in asked.items():
        answer = session.query(sql).to_arrow()
        floats = [c for c in answer.columns if pa.types.is_floating(c.type)]
        sums[kind] = (answer.num_rows, [round(float(np.sum(c.to_numpy())), 2) for c in floats])
    if sums["int"] != sums["string"]:
        raise AssertionError(f"{sql}: {sums}")
