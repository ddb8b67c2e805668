"""Bounds of approximate aggregates contain the truth in 95 % of a thousand seeds: heavy tails, collapse and a restart.

A seed is a column: a thousand columns of their own are measured, in streams of one store.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import promising
from promising.query import Session

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
COLUMNS = 25  # of each kind in a stream
ROWS = 3_000
SPAN = 300  # seconds
LAWS = ("pareto", "lognormal")
RANKS = (0.5, 0.99)


def drawn(seed: int, law: str) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "ts": START + np.sort(rng.integers(0, SPAN * SECOND, ROWS)),
        "k": rng.integers(0, 9, ROWS),
    }
    for at in range(COLUMNS):
        columns[f"x{at}"] = rng.pareto(1.5, ROWS) + 1 if law == "pareto" else rng.lognormal(0, 2, ROWS)
        columns[f"z{at}"] = rng.zipf(1.3 if law == "pareto" else 1.8, ROWS) % 2_000
    return columns


def create(session: Session, name: str) -> None:
    types = ", ".join(f"x{at} DOUBLE, z{at} INT" for at in range(COLUMNS))
    session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INT, {types}) TIMESTAMP BY ts")
    measures = ", ".join(f"QUANTILES(x{at}), DISTINCT(z{at}), FREQUENT(z{at})" for at in range(COLUMNS))
    session.execute(
        f"CREATE SUMMARY {name}_k ON {name} (k) MEASURES ({measures}) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 3)"
        " OPTIONS (buckets = 4, depth = 3, width = 8)"
    )


def fill(session: Session, name: str, columns: dict[str, Any], rows: slice) -> None:
    session.ingest(name, {column: values[rows] for column, values in columns.items()})


def counted(session: Session, name: str, columns: dict[str, Any], held: Counter[str]) -> None:
    """Add the bounds that hold to `held`, by function: of the whole stream, and of every minute."""
    asked = [f"approx_quantile(x{at}, {rank})" for at in range(COLUMNS) for rank in RANKS]
    asked += [f"approx_count_distinct(z{at})" for at in range(COLUMNS)]
    asked += [f"approx_top_k(z{at}, 5)" for at in range(COLUMNS)]
    shown = ", ".join(f"{call} AS a{at}" for at, call in enumerate(asked))
    for by in ("", " GROUP BY t"):
        minute = "date_trunc('minute', ts) AS t, " if by else ""
        sql = f"SELECT {minute}{shown} FROM {name}{by}"
        assert "from sketches" in str(session.explain(sql))
        answer = session.query(sql).run()
        assert answer.bounds is not None
        found, lower, upper = (table.to_pydict() for table in (answer.to_arrow(), *answer.bounds))
        minutes = columns["ts"] // (60 * SECOND)
        groups = [int(t.timestamp()) // 60 for t in found["t"]] if by else [None]
        for row, group in enumerate(groups):
            rows = slice(None) if group is None else minutes == group
            for at, call in enumerate(asked):
                function, rest = call[:-1].split("(")
                name_, *more = rest.split(", ")
                values = columns[name_][rows]
                label = function + by
                held[f"all {label}"] += 1
                if function == "approx_top_k":
                    counts = Counter(values.tolist())
                    listed = found[f"a{at}"][row]
                    held[label] += all(v["lower"] <= counts[v["value"]] <= v["upper"] for v in listed)
                else:
                    distinct = function == "approx_count_distinct"
                    truth = len(np.unique(values)) if distinct else np.quantile(values, float(more[0]))
                    low, high = lower[f"a{at}"][row], upper[f"a{at}"][row]
                    held[label] += (low is None or low <= truth * (1 + 1e-12)) and (
                        high is None or truth * (1 - 1e-12) <= high
                    )


def measured(path: Path, streams: int) -> Counter[str]:
    """How often bounds hold, and of how many, by function, in a store that was closed halfway."""
    held: Counter[str] = Counter()
    data = {f"s{number}": drawn(number, LAWS[number % 2]) for number in range(streams)}
    with promising.open(path, seed=3) as session:
        for name, columns in data.items():
            create(session, name)
            for first in range(0, ROWS // 2, 500):
                fill(session, name, columns, slice(first, first + 500))
    with promising.open(path) as session:
        for name, columns in data.items():
            for first in range(ROWS // 2, ROWS, 500):
                fill(session, name, columns, slice(first, first + 500))
            counted(session, name, columns, held)
    return held


@pytest.mark.deep("a thousand columns in a store")
def test_bounds_hold_after_collapse_and_restart(tmp_path: Path):
    held = measured(tmp_path / "store", 1_000 // COLUMNS)
    assert len(held) == 12
    for label, times in held.items():
        if not label.startswith("all "):
            assert times >= 0.95 * held[f"all {label}"], (label, times, held[f"all {label}"])
