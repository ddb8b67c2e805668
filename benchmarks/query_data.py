"""The streams that queries are measured on, in a session of ours and in DuckDB: a key, a time and two amounts.

Two streams draw their keys from one law, each on its own, so that N tuples a side make N * N * sum(p * p) pairs.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import promising
from benchmarks import data
from benchmarks.harness import Effort
from promising.query import Session

BATCH = 1 << 16
MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
STEP = data.SECOND // data.RATE
"""Microseconds between two tuples: a time names its tuple."""

JUDGED = 10_000_000
"""Goals are for streams of that many tuples; smaller ones show the growth."""


def sizes(effort: Effort) -> tuple[int, ...]:
    """Tuples of a stream."""
    return (1 << 16, 1 << 18) if effort.quick else (1_000_000, 10_000_000)


def rounds(effort: Effort, n: int) -> int:
    return 3 if effort.quick or n >= JUDGED else 5


def drawn(n: int, keys: int, exponent: float, seed: int) -> data.Columns:
    """The key of rank r is drawn in proportion to about r ** -exponent: the integral of that over [r, r + 1].

    Which key has which rank is shuffled. `price` is uniform up to 100, `amount` lognormal with sigma 1.
    """
    rng = np.random.default_rng(seed)
    names = np.random.default_rng(0).permutation(keys).astype(np.int64) * data.SPREAD + 1
    share = rng.random(n)
    if exponent == 1:
        rank = (keys + 1.0) ** share - 1
    else:
        rank = ((keys + 1.0) ** (1 - exponent) - 1) * share + 1
        rank = rank ** (1 / (1 - exponent)) - 1
    return {
        "key": names[np.minimum(rank.astype(np.int64), keys - 1)],
        "ts": data.times(n, 0),
        "price": rng.random(n) * 100.0,
        "amount": rng.lognormal(0.0, 1.0, n),
    }


def session_with(named: Mapping[str, data.Columns], *, summaries: bool = True, options: str = "") -> Session:
    """A session that keeps every tuple of these streams, each with a summary on its key, unless told otherwise."""
    session = promising.open(seed=7)
    for name, columns in named.items():
        session.execute(
            f"CREATE STREAM {name} (key INT, ts TIMESTAMP, price DOUBLE, amount DOUBLE) TIMESTAMP BY ts"
            f" OPTIONS (max_tuples = {max(len(columns['ts']), 1 << 18)})"
        )
        if summaries:
            session.execute(
                f"CREATE SUMMARY {name}_key ON {name} (key) WITH GRANULARITY 10 MINUTES AND COLLAPSE (4, 5){options}"
            )
        for part in data.batches(columns, BATCH):
            session.ingest(name, part)
    return session


@contextmanager
def duck_with(named: Mapping[str, data.Columns]) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB on one thread, with the streams in tables of its own."""
    duck = duckdb.connect(config={"threads": 1})
    for name, columns in named.items():
        duck.register("arrow", arrow_of(columns))
        duck.execute(f"CREATE TABLE {name} AS SELECT * FROM arrow")
        duck.unregister("arrow")
    try:
        yield duck
    finally:
        duck.close()


def arrow_of(columns: data.Columns) -> pa.Table:
    return pa.table({n: c.view("datetime64[us]") if n == "ts" else c for n, c in columns.items()})


def digest(table: pa.Table) -> int:
    """Of a set of rows with columns of eight bytes, in whatever order they come."""
    total = 0
    for batch in table.to_batches(1 << 20):
        mixed = np.full(batch.num_rows, MIX[0])
        for column in batch.columns:
            mixed = (mixed ^ _words(column)) * MIX[1]
            mixed ^= mixed >> np.uint64(29)
        total += int((mixed * MIX[2]).sum(dtype=np.uint64))
    return total & ((1 << 64) - 1)


def _words(column: pa.Array) -> NDArray[np.uint64]:
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.view(np.uint64)
