"""Join probes: all tuples of the window that have one of the keys, against DuckDB on one thread.

Both sides hold the same window in memory and return (index of the probe, time, price) as Arrow or numpy columns. DuckDB
has its probes in a table before the clock starts; ours hashes them inside. Absent keys lie between keys that do occur.
Time is CPU time of the process. The goals are for windows of `JUDGED` tuples and more; smaller ones show the growth.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import data
from benchmarks.harness import PROCESS, Effort, Figure, Report, alternate
from promising.index import Stream
from promising.index.summary_index import SummaryIndex
from promising.testing import streams

JUDGED = 4_000_000
QUERY = "SELECT probes.i, w.ts, w.price FROM w JOIN probes ON w.key = probes.key"
MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


def run(report: Report, effort: Effort) -> None:
    for n in effort.sizes:
        columns = data.zipf(n, 3)
        made, summary = data.stream(n)
        data.fill(made, columns)
        with _window(columns) as duck:
            figures = [
                _compare(made, summary, duck, name, keys, goal, effort.rounds) for name, keys, goal in _probes(columns)
            ]
        report.part("join", "probes against DuckDB, one thread", figures)


def _probes(columns: data.Columns) -> list[tuple[str, NDArray[np.int64], str]]:
    """What is asked: (name, keys, goal)."""
    rng = np.random.default_rng(4)
    keys = data.ranked()
    law = np.cumsum(streams.zipf_law(data.KEYS, data.EXPONENT))[:-1]
    absent = rng.permutation(data.KEYS * (data.SPREAD - 1))[:50_000]
    absent = absent // (data.SPREAD - 1) * data.SPREAD + 2 + absent % (data.SPREAD - 1)
    assert not np.isin(absent, keys).any()
    return [
        ("hot: the top 20", keys[:20], ">= 1.1"),
        ("hot: 256 drawn", keys[np.searchsorted(law, rng.random(256), side="right")], ">= 1.1"),
        ("mid: ranks 200-2200", rng.permutation(keys[200:2200]), ">= 1.0"),
        ("rare: ranks >= 10,000", rng.permutation(keys[10_000:]), ">= 2"),
        ("absent: 2,000", absent[:2_000].copy(), ">= 10"),
        ("absent: 50,000", absent, ">= 10"),
    ]


@contextmanager
def _window(columns: data.Columns) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the window in a table."""
    duck = duckdb.connect(config={"threads": 1})
    arrow = pa.table({"key": columns["key"], "ts": columns["ts"].view("datetime64[us]"), "price": columns["price"]})
    duck.register("arrow", arrow)
    duck.execute("CREATE TABLE w AS SELECT * FROM arrow")
    duck.unregister("arrow")
    try:
        yield duck
    finally:
        duck.close()


def _compare(
    made: Stream,
    summary: SummaryIndex,
    duck: duckdb.DuckDBPyConnection,
    name: str,
    keys: NDArray[np.int64],
    goal: str,
    rounds: int,
) -> Figure:
    duck.register("arrow", pa.table({"i": np.arange(len(keys), dtype=np.int32), "key": keys}))
    duck.execute("CREATE OR REPLACE TABLE probes AS SELECT * FROM arrow")
    duck.unregister("arrow")

    def ours() -> tuple[NDArray[np.int32], pa.Table]:
        return summary.fetch(keys, columns=["ts", "price"])

    def theirs() -> pa.Table:
        return duck.sql(QUERY).to_arrow_table()

    probe, table = ours()
    found = theirs()
    rows = len(probe)
    same = _digest(probe, table) == _digest(found.column("i").to_numpy(), found) and rows == found.num_rows
    if not same:
        raise AssertionError(f"{name}: {rows:,} rows of ours are not the {found.num_rows:,} of DuckDB")
    del probe, table, found
    took = alternate({"ours": lambda: ours, "theirs": lambda: theirs}, rounds, PROCESS)
    done, unit = (rows, "rows/CPU s") if rows else (len(keys), "probes/CPU s")
    return Figure(
        name,
        done / took["ours"] * 1e9,
        done / took["theirs"] * 1e9,
        "DuckDB",
        unit,
        goal if made.count >= JUDGED else "",
        {"tuples": made.count, "probes": len(keys), "rows": rows},
    )


def _digest(probe: NDArray[np.int32], table: pa.Table) -> int:
    """Of a set of rows, in whatever order they come."""
    ts = table.column("ts").to_numpy().view(np.uint64)
    price = table.column("price").to_numpy().view(np.uint64)
    mixed = (probe.astype(np.uint64) + MIX[0]) * MIX[1] ^ ts * MIX[2] ^ price
    return int((mixed * MIX[1] ^ mixed >> np.uint64(29)).sum(dtype=np.uint64))
