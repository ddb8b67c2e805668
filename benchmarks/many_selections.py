"""Many selections over one window, all rows of each as Arrow, against the same one after the other elsewhere.

Each selection keeps a range of prices, or of keys, that 5-10 % of the tuples are in. DuckDB and Polars have one thread,
hold the same window in memory, and answer query by query, each answer let go before the next; ours are all there at the
end. Of Polars' two ways, lazy and eager, the faster counts. What is judged is our cost of a query when there are 1,000
of them against the same when there are 100.
"""

import importlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks import data
from benchmarks.harness import PROCESS, Contender, Effort, Figure, Report, alternate
from benchmarks.query_data import arrow_of, digest, drawn, duck_with, session_with
from promising.query import Session

KEYS = 40_000
NUMBERS = (1, 10, 100, 1_000)
SHOWN = ("key", "ts", "price")
UNIT = "CPU ms/query"
Answers: TypeAlias = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Selection:
    """low <= column <= high."""

    column: str
    low: float
    high: float

    @property
    def sql(self) -> str:
        return f"SELECT key, ts, price FROM a WHERE {self.column} BETWEEN {self.low!r} AND {self.high!r}"


def run(report: Report, effort: Effort) -> None:
    polars = _polars()
    for n in (1 << 14, 1 << 17) if effort.quick else (200_000, 1_000_000):
        columns = drawn(n, KEYS, 0.0, 1)
        session = session_with({"a": columns})
        frame = polars.from_arrow(arrow_of(columns))
        with duck_with({"a": columns}) as duck:
            holders = Holders(session, duck, polars, frame)
            figures = [f for column in ("price", "key") for f in _growing(holders, column, n, effort)]
        report.part("many", "selections of 5-10 % over one window, one thread", figures)


@dataclass(frozen=True)
class Holders:
    """Whoever has the window."""

    session: Session
    duck: duckdb.DuckDBPyConnection
    polars: Any
    frame: Any

    def answers(self, asked: list[Selection]) -> dict[str, Answers]:
        """Each one's answers, one after the other; ours come all at once."""
        return {
            "ours": lambda: self.session.query_many([s.sql for s in asked]),
            "DuckDB": lambda: (self.duck.sql(s.sql).to_arrow_table() for s in asked),
            "Polars, lazy": lambda: (self._lazy(s) for s in asked),
            "Polars, eager": lambda: (self._eager(s) for s in asked),
        }

    def _kept(self, s: Selection) -> Any:
        return self.polars.col(s.column).is_between(s.low, s.high)

    def _lazy(self, s: Selection) -> Any:
        return self.frame.lazy().filter(self._kept(s)).select(*SHOWN).collect()

    def _eager(self, s: Selection) -> Any:
        return self.frame.select(*SHOWN).filter(self._kept(s))


def _growing(holders: Holders, column: str, n: int, effort: Effort) -> list[Figure]:
    """Few selections, then more and more."""
    figures, costs = [], {}
    for number in NUMBERS[:3] if effort.quick else NUMBERS:
        ways = holders.answers(_selections(column, number))
        _check(ways, column)
        took = alternate({name: _drained(way) for name, way in ways.items()}, 1 if number >= 1000 else 3, PROCESS)
        cost = {name: ns / number / 1e6 for name, ns in took.items()}
        costs[number] = cost["ours"]
        polars = min(("Polars, lazy", "Polars, eager"), key=lambda name: took[name])
        figures += [
            Figure(f"{column} ranges", cost["ours"], cost[name], name, UNIT, sizes={"tuples": n, "queries": number})
            for name in ("DuckDB", polars)
        ]
    few, many = list(costs)[-2:]
    name, opponent = f"{column} ranges: {many:,} against {few:,}", f"ours, {few:,} queries"
    return [*figures, Figure(name, costs[many], costs[few], opponent, UNIT, "<= 1", {"tuples": n})]


def _drained(answers: Answers) -> Contender:
    """Takes each answer and lets it go."""
    return lambda: lambda: sum(len(table) for table in answers())


def _polars() -> Any:
    """Polars on one thread: it asks once, when it is loaded."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    polars = importlib.import_module("polars")
    if polars.thread_pool_size() != 1:
        raise RuntimeError("polars was loaded with more than one thread")
    return polars


def _selections(column: str, number: int) -> list[Selection]:
    rng = np.random.default_rng(number)
    wide = rng.uniform(0.05, 0.10, number)
    low = rng.random(number) * (1 - wide)
    if column == "price":
        return [Selection(column, float(a * 100), float((a + w) * 100)) for a, w in zip(low, wide, strict=True)]
    span = KEYS * data.SPREAD
    return [Selection(column, int(a * span), int((a + w) * span)) for a, w in zip(low, wide, strict=True)]


def _check(ways: dict[str, Answers], column: str) -> None:
    """Equal rows in the first and the last answer."""
    seen = {}
    for way, answers in ways.items():
        tables = [t if isinstance(t, pa.Table) else t.to_arrow() for t in _ends(answers())]
        seen[way] = [(len(t), digest(t)) for t in tables]
    for way, found in seen.items():
        if found != seen["ours"]:
            raise AssertionError(f"{column} ranges: {way} has {found}, ours {seen['ours']}")


def _ends(tables: Iterable[Any]) -> list[Any]:
    first = last = None
    for table in tables:
        first = table if first is None else first
        last = table
    return [first, last]
