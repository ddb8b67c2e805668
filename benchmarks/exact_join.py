"""A whole join, every row as Arrow, against DuckDB on one thread. Parsing and planning are inside the clock.

Equal rows are checked by number and digest. Keys are drawn as for the ordered join ("flat" and "mild").
"""

import duckdb
import pyarrow as pa

from benchmarks.desc_join import keys_of
from benchmarks.harness import PROCESS, Effort, Figure, Report, alternate
from benchmarks.query_data import JUDGED, digest, drawn, duck_with, rounds, session_with, sizes
from promising.query import Session

SQL = "SELECT a.key AS key, a.ts AS ts_a, b.ts AS ts_b FROM a JOIN b ON a.key = b.key"
LAWS = {"flat": 0.0, "mild": 0.3}


def run(report: Report, effort: Effort) -> None:
    for n in sizes(effort):
        figures = []
        for law, exponent in LAWS.items():
            streams = {name: drawn(n, keys_of(n), exponent, seed) for name, seed in (("a", 1), ("b", 2))}
            session = session_with(streams)
            with duck_with(streams) as duck:
                del streams
                figures.append(_compare(session, duck, law, n, rounds(effort, n)))
            del session
        report.part("exact", "whole join, all rows to Arrow, one thread", figures)


def _compare(session: Session, duck: duckdb.DuckDBPyConnection, law: str, n: int, times: int) -> Figure:
    def ours() -> pa.Table:
        return session.query(SQL).to_arrow()

    def theirs() -> pa.Table:
        return duck.sql(SQL).to_arrow_table()

    found = ours()
    rows, mine = found.num_rows, digest(found)
    found = theirs()
    if rows != found.num_rows or mine != digest(found):
        raise AssertionError(f"{law}: {rows:,} rows of ours are not the {found.num_rows:,} of DuckDB")
    del found
    took = alternate({"ours": lambda: ours, "theirs": lambda: theirs}, times, PROCESS)
    sizes = {"tuples": n, "keys": keys_of(n), "rows": rows}
    goal = "<= 1" if n >= JUDGED else ""
    return Figure(f"{law} keys", took["ours"] / 1e6, took["theirs"] / 1e6, "DuckDB", "CPU ms", goal, dict(sizes))
