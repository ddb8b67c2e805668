"""Many selections over one window, all rows of each as Arrow, against the same one after the other elsewhere.

Each selection keeps a range of prices, or of keys, that 5-10 % of the tuples are in. DuckDB and Polars have one thread,
hold the same window in memory, and answer query by query; of Polars' two ways, lazy and eager, the faster counts. What
is judged is our cost of a query when there are 1,000 of them against the same when there are 100.
"""

import importlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import data
from benchmarks.harness import PROCESS, Contender, Effort, Figure, Report, alternate
from benchmarks.query_data import arrow_of, digest, drawn, duck_with, session_with

KEYS = 40_000
NUMBERS = (1, 10, 100, 1_000)


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
        figures = []
        with duck_with({"a": columns}) as duck:
            for column in ("price", "key"):
                costs = {}
                for number in NUMBERS[:3] if effort.quick else NUMBERS:
                    asked = _selections(column, number)
                    ways: dict[str, Callable[[], Iterable[Any]]] = {
                        "ours": lambda asked=asked: session.query_many([s.sql for s in asked]),
                        "DuckDB": lambda asked=asked: (duck.sql(s.sql).to_arrow_table() for s in asked),
                        "Polars, lazy": lambda asked=asked: (_lazy(polars, frame, s) for s in asked),
                        "Polars, eager": lambda asked=asked: (_eager(polars, frame, s) for s in asked),
                    }
                    _check(ways, column)
                    contenders: dict[str, Contender] = {w: lambda f=f: lambda: _drain(f()) for w, f in ways.items()}
                    took = alternate(contenders, 3 if number < 1000 else 1, PROCESS)
                    costs[number] = took["ours"] / number / 1e6
                    best = min(("Polars, lazy", "Polars, eager"), key=lambda w: took[w])
                    sizes = {"tuples": n, "queries": number}
                    figures += [
                        Figure(
                            f"{column} ranges",
                            costs[number],
                            took[w] / number / 1e6,
                            w,
                            "CPU ms/query",
                            "",
                            dict(sizes),
                        )
                        for w in ("DuckDB", best)
                    ]
                few, many = list(costs)[-2:]
                figures.append(
                    Figure(
                        f"{column} ranges: {many:,} against {few:,}",
                        costs[many],
                        costs[few],
                        f"ours, {few:,} queries",
                        "CPU ms/query",
                        "<= 1",
                        {"tuples": n},
                    )
                )
        report.part("many", "selections of 5-10 % over one window, one thread", figures)


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


def _lazy(polars: Any, frame: Any, s: Selection) -> Any:
    kept = polars.col(s.column).is_between(s.low, s.high)
    return frame.lazy().filter(kept).select("key", "ts", "price").collect()


def _eager(polars: Any, frame: Any, s: Selection) -> Any:
    return frame.select("key", "ts", "price").filter(polars.col(s.column).is_between(s.low, s.high))


def _drain(tables: Iterable[Any]) -> int:
    """Take each answer and let it go."""
    return sum(len(table) for table in tables)


def _check(ways: dict[str, Callable[[], Iterable[Any]]], column: str) -> None:
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
