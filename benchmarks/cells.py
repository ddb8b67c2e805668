"""Aggregates of windows, buckets and ranges from cells, against the same without moments, DuckDB and Polars.

CPU time of one of `AGAIN` runs in a row, parsing and planning on all sides included. Opponents are exact and have one
thread.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import promising
from benchmarks.harness import PROCESS, Contender, Effort, Figure, Report, Run, alternate
from promising.query import Session
from promising.query.sql import parse

AGAIN = 10
FEW = 10_000  # tuples read, up to which an answer is held to a millisecond
BATCH = 1 << 16
SECOND = 1_000_000
DAYS = 90  # that the tuples span
START = 1_700_000_000 * SECOND
LATEST = START + DAYS * 86_400 * SECOND


@dataclass(frozen=True)
class Asked:
    """A question: ours, what follows WHERE for DuckDB, and Polars'."""

    name: str
    ours: str
    duck: str
    polars: Callable[[pl.LazyFrame], pl.LazyFrame]


WINDOW = 40 * 86_400 * SECOND
THREE = (pl.col("price").sum(), pl.col("n").mean(), pl.len().alias("c"))
ASKED = [
    Asked("sum", "SELECT sum(price) FROM a", "SELECT sum(price) FROM a", lambda a: a.select(pl.col("price").sum())),
    Asked(
        "sum, avg, count of a window",
        "SELECT sum(price), avg(n), count(*) FROM a WINDOW 40 DAYS",
        f"SELECT sum(price), avg(n), count(*) FROM a WHERE ts > {LATEST - 1 - WINDOW}",
        lambda a: a.filter(pl.col("ts") > LATEST - 1 - WINDOW).select(*THREE),
    ),
    Asked(
        "sum by day",
        "SELECT date_trunc('day', ts) AS d, sum(price) FROM a GROUP BY d",
        f"SELECT ts // {86_400 * SECOND} AS d, sum(price) FROM a GROUP BY d",
        lambda a: a.group_by(pl.col("ts") // (86_400 * SECOND)).agg(pl.col("price").sum()),
    ),
    Asked(
        "count of a range of a rising column",
        "SELECT count(*) FROM a WHERE reading BETWEEN 40 AND 50",
        "SELECT count(*) FROM a WHERE reading BETWEEN 40 AND 50",
        lambda a: a.filter(pl.col("reading").is_between(40, 50)).select(pl.len()),
    ),
]


def run(report: Report, effort: Effort) -> None:
    for n in effort.sizes:
        columns = drawn(n)
        with_moments, without = (session_with(columns, measured) for measured in (True, False))
        frame = pl.DataFrame(columns).lazy()
        duck = duckdb.connect(config={"threads": 1})
        duck.register("given", pa.table(columns))
        duck.sql("CREATE TABLE a AS SELECT * FROM given")
        figures = [part for asked in ASKED for part in _compare(asked, with_moments, without, duck, frame, n, effort)]
        report.part("cells", "aggregates from cells against exact ones over tuples, one thread", figures)
        duck.close()


def drawn(n: int) -> dict[str, np.ndarray]:
    """Tuples over `DAYS` in order of time; `reading` rises with it, with noise."""
    rng = np.random.default_rng(7)
    ts = START + np.sort(rng.integers(0, LATEST - START, n))
    ts[-1] = LATEST - 1
    return {
        "ts": ts,
        "key": rng.integers(0, max(n // 100, 1), n),
        "price": np.round(rng.lognormal(2, 1, n), 2),
        "n": rng.integers(1, 10, n),
        "reading": np.linspace(0, 100, n) + rng.normal(0, 0.1, n),
    }


def session_with(columns: dict[str, np.ndarray], measured: bool) -> Session:
    session = promising.open(seed=7)
    session.execute("CREATE STREAM a (ts TIMESTAMP, key INT, price DOUBLE, n INT, reading DOUBLE) TIMESTAMP BY ts")
    measures = "MEASURES (MOMENTS(price), MOMENTS(n), MOMENTS(reading))" if measured else "MEASURES NONE"
    session.execute(f"CREATE SUMMARY a_key ON a (key) {measures} WITH GRANULARITY 1 DAYS AND COLLAPSE (4, 5)")
    for first in range(0, len(columns["ts"]), BATCH):
        session.ingest("a", {name: column[first : first + BATCH] for name, column in columns.items()})
    return session


def _compare(
    asked: Asked,
    ours: Session,
    without: Session,
    duck: duckdb.DuckDBPyConnection,
    frame: pl.LazyFrame,
    n: int,
    effort: Effort,
) -> list[Figure]:
    answer = ours.query(asked.ours)
    _check(asked.name, answer.to_arrow(), duck.sql(asked.duck).to_arrow_table())
    took = alternate(
        {
            "parsing": again(lambda: parse(asked.ours)),
            "cells": again(lambda: ours.query(asked.ours).to_arrow()),
            "tuples": again(lambda: without.query(asked.ours).to_arrow()),
            "DuckDB": again(lambda: duck.sql(asked.duck).fetchall()),
            "Polars": again(lambda: asked.polars(frame).collect()),
        },
        effort.rounds,
        PROCESS,
    )
    sizes: dict[str, int | float | str] = {"tuples": n, "read": answer.progress.read}
    took = {name: nanoseconds / AGAIN for name, nanoseconds in took.items()}
    mine = took["cells"] / 1e6
    goal = "<= 1" if answer.progress.read < FEW else ""
    rest = mine - took["parsing"] / 1e6
    return [
        Figure(f"{asked.name}: besides parsing", rest, unit="CPU ms", goal=goal, sizes=sizes),
        Figure(asked.name, mine, took["tuples"] / 1e6, "ours, without moments", "CPU ms", "", sizes),
        Figure(asked.name, mine, took["DuckDB"] / 1e6, "DuckDB", "CPU ms", "", sizes),
        Figure(asked.name, mine, took["Polars"] / 1e6, "Polars", "CPU ms", "", sizes),
    ]


def again(run: Run) -> Contender:
    def runs() -> None:
        for _ in range(AGAIN):
            run()

    return lambda: runs


def _check(name: str, ours: pa.Table, theirs: pa.Table) -> None:
    """The answers agree, but for the last digits of sums and the spelling of days."""
    one, two = (np.sort(np.array([row[-1] for row in _rows(table)], float)) for table in (ours, theirs))
    if one.shape != two.shape or not np.allclose(one, two, rtol=1e-9):
        raise AssertionError(f"{name}: our answer differs from DuckDB's")


def _rows(table: pa.Table) -> list[list[object]]:
    return [list(row.values()) for row in table.to_pylist()]
