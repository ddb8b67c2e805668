"""Logs, streams and what is compared, for the tests of loads."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import promising
from promising.query.session import Session
from promising.testing.streams import Columns, zipf
from tests.index.counted import counted
from tests.index.world import flat

START = 1_700_000_000_000_000
MINUTE = 60_000_000
TYPES = "store_id BIGINT, transaction_id BIGINT, ts TIMESTAMP, item_id BIGINT, price DOUBLE"


def log(rows: int, *, seed: int = 1, items: int = 300, hours: float = 30.0, exponent: float = 1.1) -> Columns:
    """A retail log in order of time, with some goods brought back."""
    columns = zipf(rows, items, exponent, seed=seed, start=START, rate=rows / (hours * 3600))
    columns["price"] = np.where(columns["transaction_id"] % 50 == 0, -columns["price"], columns["price"])
    return columns


def picked(columns: Columns, rows: Any) -> Columns:
    return {name: values[rows] for name, values in columns.items()}


def table(columns: Columns) -> pa.Table:
    """As others would write it: times are instants."""
    found = pa.table(columns)
    place = found.schema.get_field_index("ts")
    return found.set_column(place, "ts", found["ts"].cast(pa.timestamp("us", "UTC")))


def write(columns: Columns, folder: Path, *, files: int = 3, kind: str = "parquet") -> str:
    """The log as a folder of files."""
    folder.mkdir(parents=True)
    whole = table(columns)
    edges = np.linspace(0, whole.num_rows, files + 1).astype(int)
    for number, (first, last) in enumerate(pairwise(edges)):
        part = whole.slice(first, last - first)
        if kind == "parquet":
            pq.write_table(part, folder / f"{number}.parquet")
        elif kind == "csv":
            pyarrow.csv.write_csv(part, folder / f"{number}.csv")
        else:
            rows = part.set_column(2, "ts", part["ts"].cast(pa.string())).to_pandas()
            rows.to_json(folder / f"{number}.jsonl", orient="records", lines=True)
    return str(folder)


MEASURES = "MOMENTS(price), MOMENTS(ts), DISTINCT(item_id), HISTOGRAM(price, 0, 50)"  # whose states are exact


def store(path: Path | None, *, max_tuples: int = 1 << 20) -> Session:
    """A session with a stream `sales` that has two summaries, in a store or in memory."""
    session = promising.open(path, seed=7)
    for name in ("sales", "other"):
        session.execute(
            f"CREATE STREAM {name} ({TYPES}) TIMESTAMP BY ts KEEP 16 HOURS OPTIONS (max_tuples = {max_tuples})"
        )
    for summary, key, geometry in (
        ("by_item", "(item_id)", "15 MINUTES AND COLLAPSE (4, 4)"),
        ("by_store", "(store_id) USING EXACT", "20 MINUTES AND COLLAPSE (3, 4)"),
    ):
        session.execute(
            f"CREATE SUMMARY {summary} ON sales {key} MEASURES ({MEASURES}) WITH GRANULARITY {geometry}"
            " OPTIONS (buckets = 16)"
        )
    return session


def zones(session: Session) -> dict[tuple[str, int, int], list[Any]]:
    """Every zone of `G_2..G_m` of every summary, to the bit."""
    return {
        (name, granularity, number): [
            counted(zone),
            zone.bits.tobytes(),
            zone.cells.tobytes(),
            zone.first,
            zone.last,
            flat(zone.measured.image()),
        ]
        for name, summary in session.stream("sales").summaries.items()
        for granularity, level in summary.state.coarse.levels.items()  # type: ignore[union-attr]  # no bare ones here
        for number, zone in level.items()
    }


QUESTIONS = {
    "by key": "SELECT item_id, count(*) AS n, sum(price) AS total FROM sales GROUP BY item_id",
    "join": "SELECT s.item_id, s.ts, o.price FROM sales s, other o WHERE s.item_id = o.item_id",
    "window": "SELECT store_id, count(*) AS n FROM sales GROUP BY store_id WINDOW 5 HOURS",
    "all": "SELECT count(*) AS n, min(ts) AS first, max(ts) AS last FROM sales",
}


def answers(session: Session) -> dict[str, list[Any]]:
    """What the stream answers, in an order of its own."""
    found = {name: session.query(sql).to_arrow().to_pylist() for name, sql in QUESTIONS.items()}
    return {
        name: sorted(tuple(round(v, 6) if isinstance(v, float) else v for v in row.values()) for row in rows)
        for name, rows in found.items()
    }
