"""Entry: `python -m tests.loaders.equal`: the same log live, loaded, and half of each, compared to the bit.

Complete Journey, and generated rows; 20 million of them unless `--rows` says otherwise (a quarter of an hour, 6 GB).
"""

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import promising
from promising.demo.journey import transactions
from promising.index.check import check_stream
from promising.index.storage.store_options import StoreOptions
from promising.loaders.bulk import bulk_load
from promising.query.session import Session
from tests.index.counted import counted
from tests.index.world import flat

BATCH = 1 << 18
DAY = 86_400_000_000
QUESTIONS = (
    "SELECT item_id, count(*) AS n, sum(price) AS total FROM sales GROUP BY item_id",
    "SELECT store_id, count(*) AS n, min(ts) AS first, max(ts) AS last FROM sales GROUP BY store_id WINDOW 9 DAYS",
    "SELECT ts, transaction_id, price FROM sales WHERE item_id = {} ",
    "SELECT a.item_id, count(*) AS n FROM sales a, sales b WHERE a.item_id = b.item_id AND a.price < b.price"
    " AND a.item_id IN ({}, {}) GROUP BY a.item_id WINDOW 2 DAYS",
)


def generated(rows: int) -> pa.Table:
    """Zipf 1.1 over 100,000 items and ten stores, thirty days in order of time."""
    rng = np.random.default_rng(20)
    weights = 1.0 / np.arange(1, 100_001) ** 1.1
    items = rng.permutation(100_000)[np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(rows))]
    times = 1_700_000_000_000_000 + np.sort(rng.integers(0, 30 * DAY, rows))
    return pa.table(
        {
            "store_id": rng.integers(0, 10, rows),
            "transaction_id": np.arange(rows) // 9,
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "item_id": items,
            "price": rng.gamma(2.0, 2.5, rows).round(2),
        }
    )


def complete_journey() -> pa.Table:
    table = transactions().rename_columns(["store_id", "transaction_id", "ts", "item_id", "price"])
    return table.set_column(2, "ts", table["ts"].cast(pa.timestamp("us", "UTC")))


def opened(folder: Path) -> Session:
    session = promising.open(folder, seed=7, options=StoreOptions(hot_tuples=1 << 20))
    session.execute(
        "CREATE STREAM sales (store_id BIGINT, transaction_id BIGINT, ts TIMESTAMP, item_id BIGINT, price DOUBLE)"
        " TIMESTAMP BY ts OPTIONS (max_tuples = 30000000)"
    )
    session.execute(
        "CREATE SUMMARY by_item ON sales (item_id) MEASURES (MOMENTS(price), DISTINCT(store_id))"
        " WITH GRANULARITY 6 HOURS AND COLLAPSE (4, 7)"
    )
    session.execute(
        "CREATE SUMMARY by_store ON sales (store_id) MEASURES (MOMENTS(ts))"
        " WITH GRANULARITY 7 HOURS AND COLLAPSE (3, 8)"
    )
    return session


def live(session: Session, data: pa.Table) -> None:
    for start in range(0, data.num_rows, BATCH):
        part = data.slice(start, BATCH)
        session.ingest("sales", part.set_column(2, "ts", part["ts"].cast(pa.timestamp("us"))))


def loaded(spark: SparkSession, session: Session, data: pa.Table, folder: Path) -> None:
    source = folder / "log"
    source.mkdir()
    size = -(-data.num_rows // 8)
    for number in range(8):
        pq.write_table(data.slice(number * size, size), source / f"{number}.parquet", compression="zstd")
    report = bulk_load(spark, session, "sales", str(source), staging=str(folder / "staging"))
    print(f"    {report.accepted:,} loaded in {report.seconds:.1f} s: {report.stages}", flush=True)
    assert report.accepted == data.num_rows, report
    shutil.rmtree(source)


def told(session: Session, some: list[int]) -> dict[str, str]:
    """Digests of all zones of `G_2..G_m`, and of answers."""
    stream = session.stream("sales")
    out = {}
    zones = 0
    for name, summary in stream.summaries.items():
        digest = hashlib.sha256()
        state: Any = summary.state
        for granularity, level in state.coarse.levels.items():
            for number, zone in level.items():
                digest.update(repr((granularity, number, zone.start, zone.first, zone.last)).encode())
                for part in (*counted(zone), zone.bits.tobytes(), zone.cells.tobytes()):
                    digest.update(part)
                digest.update(repr(flat(zone.measured.image())).encode())
                zones += 1
        out[f"zones of {name}"] = digest.hexdigest()
    out["zones"] = str(zones)
    out["tuples"] = f"{stream.kept:,}"
    for sql in QUESTIONS:
        rows = session.query(sql.format(*some)).to_arrow()
        told = [[round(v, 4) if isinstance(v, float) else str(v) for v in row.values()] for row in rows.to_pylist()]
        out[sql] = hashlib.sha256(repr(sorted(map(repr, told))).encode()).hexdigest()
    return out


def compare(spark: SparkSession, name: str, data: pa.Table) -> bool:
    """The three ways, one after the other."""
    counts = data["item_id"].value_counts().sort("descending", by="counts") if data.num_rows else []
    some = [counts[i]["values"].as_py() for i in (40, 200)]
    even = pa.array(np.arange(data.num_rows) % 2 == 0)
    half = {True: data.filter(even), False: data.filter(pc.invert(even))}

    def mixed(session: Session, folder: Path) -> None:
        live(session, half[True])
        loaded(spark, session, half[False], folder)

    ways: dict[str, Callable[[Session, Path], None]] = {
        "live": lambda session, _: live(session, data),
        "loaded": lambda session, folder: loaded(spark, session, data, folder),
        "half and half": mixed,
    }
    found = {}
    for way, do in ways.items():
        folder = Path(tempfile.mkdtemp(prefix="promising-equal-"))
        try:
            with opened(folder / "store") as session:
                began = time.monotonic()
                do(session, folder)
                seconds = time.monotonic() - began
                found[way] = told(session, some)
                wrong = check_stream(session.stream("sales")) if data.num_rows <= 2_000_000 else []
                assert wrong == [], wrong
            print(
                f"{name}, {way}: {found[way]['tuples']} tuples, {found[way]['zones']} zones, {seconds:.1f} s",
                flush=True,
            )
        finally:
            shutil.rmtree(folder)
    same = found["live"] == found["loaded"] == found["half and half"]
    print(f"{name}: {'equal to the bit, and in every answer' if same else found}", flush=True)
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows to generate; 0 leaves them out")
    parser.add_argument("--no-journey", action="store_true", help="leave Complete Journey out")
    asked = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    try:
        same = [] if asked.no_journey else [compare(spark, "Complete Journey", complete_journey())]
        if asked.rows:
            same.append(compare(spark, f"{asked.rows:,} generated rows", generated(asked.rows)))
    finally:
        spark.stop()
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
