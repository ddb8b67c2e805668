"""The first 1,000 rows of a join, best keys first, against DuckDB on one thread.

A key is the better the more pairs it has: the product of its tuples on both sides. Ours is a statement with a
preference, parsed and planned inside the clock; its rows are checked to be true, no pair twice, and of the best keys,
ties being free. DuckDB is asked for the same exactly, in three ways. The goal is set against the whole join with its
ordering, and where that is beyond memory against the fastest of the others:

- "keys": counts by key of both sides, joined; as many of the best keys as 1,000 rows need; of those keys the tuples;
- "counts": the same with the 1,000 best keys, which is simpler but joins more tuples than it needs;
- "whole": the whole join, ordered. Only where the join is small enough.

Laws of keys, K = 0.4 N keys for N tuples a side: "flat", all alike; "mild", Zipf with exponent 0.3; "hot", Zipf with
exponent 1, whose whole join is far beyond memory.
"""

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import data
from benchmarks.harness import PROCESS, Contender, Effort, Figure, Report, alternate
from benchmarks.query_data import JUDGED, STEP, drawn, duck_with, rounds, session_with, sizes
from promising.query import Session

ROWS = 1000
OURS = (
    "SELECT a.key AS key, a.ts AS ts_a, b.ts AS ts_b FROM a, b WHERE a.key = b.key"
    f" WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.key), SUMMARY.Estimate.Count(b.key) LIMIT {ROWS}"
)
COUNTS = """
WITH ca AS (SELECT key, count(*) AS n FROM a GROUP BY key), cb AS (SELECT key, count(*) AS n FROM b GROUP BY key),
best AS (SELECT ca.key, ca.n * cb.n AS pairs FROM ca JOIN cb USING (key) ORDER BY pairs DESC, key LIMIT {rows})
"""
PAIRS = "SELECT x.key, x.ts AS ts_a, y.ts AS ts_b FROM"
THEIRS = {
    "keys": COUNTS
    + """, needed AS MATERIALIZED (
  SELECT key, pairs FROM (SELECT *, sum(pairs) OVER (ORDER BY pairs DESC, key) - pairs AS before FROM best)
  WHERE before < {rows}),
x AS (SELECT key, ts, pairs FROM a JOIN needed USING (key)
  QUALIFY row_number() OVER (PARTITION BY key) <= {rows}),
y AS (SELECT key, ts FROM b JOIN needed USING (key) QUALIFY row_number() OVER (PARTITION BY key) <= {rows})
{pairs} x JOIN y USING (key) ORDER BY x.pairs DESC LIMIT {rows}""",
    "counts": COUNTS
    + "{pairs} best JOIN a AS x USING (key) JOIN b AS y USING (key) ORDER BY best.pairs DESC LIMIT {rows}",
    "whole": COUNTS.replace(" ORDER BY pairs DESC, key LIMIT {rows}", "")
    + "{pairs} a AS x JOIN b AS y USING (key) JOIN best USING (key) ORDER BY best.pairs DESC LIMIT {rows}",
}
THEIRS = {name: sql.format(rows=ROWS, pairs=PAIRS) for name, sql in THEIRS.items()}


@dataclass(frozen=True)
class Law:
    name: str
    exponent: float
    ways: tuple[str, ...]
    """Of asking DuckDB, those that are feasible."""


LAWS = (
    Law("flat", 0.0, ("keys", "counts", "whole")),
    Law("mild", 0.3, ("keys", "counts", "whole")),
    Law("hot", 1.0, ("keys",)),
)


def keys_of(n: int) -> int:
    return n * 2 // 5


def run(report: Report, effort: Effort) -> None:
    for n in sizes(effort):
        for law in LAWS:
            streams = {name: drawn(n, keys_of(n), law.exponent, seed) for name, seed in (("a", 1), ("b", 2))}
            session = session_with(streams)
            with duck_with(streams) as duck:
                figures = _compare(session, duck, streams, law, rounds(effort, n))
            report.part("desc", f"first {ROWS:,} best rows of a join, {law.name} keys, one thread", figures)
            del session, streams


def _compare(
    session: Session, duck: duckdb.DuckDBPyConnection, streams: dict[str, data.Columns], law: Law, times: int
) -> list[Figure]:
    def ours() -> pa.Table:
        return session.query(OURS).to_arrow()

    def ask(way: str) -> Contender:
        return lambda: lambda: duck.sql(THEIRS[way]).to_arrow_table()

    n = len(streams["a"]["ts"])
    sizes = {"tuples": n, "keys": keys_of(n), "pairs": _pairs(streams)}
    best = _products(ours(), streams)
    asked: dict[str, Contender] = {"ours": lambda: ours}
    for way in law.ways:
        found = _products(duck.sql(THEIRS[way]).to_arrow_table(), streams)
        if not np.array_equal(best, found):
            raise AssertionError(f"{law.name}: our rows are not of the best keys: {best[:5]}... against {found[:5]}...")
        asked[way] = ask(way)
    slow = {way: asked.pop(way) for way in ("whole",) if way in asked}
    took = alternate(asked, times, PROCESS) | alternate(slow, 1, PROCESS)
    judged = "whole" if "whole" in law.ways else min(law.ways, key=lambda way: took[way])
    goal = "<= 0.05" if n >= JUDGED else ""
    return [
        Figure(
            f"{law.name} keys",
            took["ours"] / 1e6,
            took[way] / 1e6,
            f"DuckDB, {way}",
            "CPU ms",
            goal if way == judged else "",
            dict(sizes),
        )
        for way in law.ways
    ]


def _pairs(streams: dict[str, data.Columns]) -> int:
    """Rows of the whole join."""
    a, b = _counts(streams)
    return int(a.astype(np.float64) @ b)


def _counts(streams: dict[str, data.Columns]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    most = 1 + max(int(s["key"].max()) for s in streams.values())
    return np.bincount(streams["a"]["key"], minlength=most), np.bincount(streams["b"]["key"], minlength=most)


def _products(found: pa.Table, streams: dict[str, data.Columns]) -> NDArray[np.int64]:
    """How many pairs the key of each row has, in order of the rows, once it is clear that the rows are true."""
    key, ts_a, ts_b = (found.column(i).to_numpy().view(np.int64) for i in range(3))
    a, b = ts_a // STEP, ts_b // STEP
    true = (streams["a"]["key"][a] == key) & (streams["b"]["key"][b] == key)
    if len(key) != ROWS or not true.all():
        raise AssertionError(f"{len(key):,} rows, of which {int(true.sum()):,} are true")
    if len(set(zip(a.tolist(), b.tolist(), strict=True))) != ROWS:
        raise AssertionError("a pair came twice")
    of_a, of_b = _counts(streams)
    return np.asarray(of_a[key] * of_b[key])
