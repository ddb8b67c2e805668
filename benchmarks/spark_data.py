"""What loads are measured on: retail logs as Parquet, a Spark session of two cores, and stores to load into.

A log is 30 days in order of time, in eight files packed by zstd: StoreID, TransactionID, TimeStamp, ItemID, Price.
"Even" is ten stores alike and Zipf 1.1 over 100,000 items; "skewed" is one store with half of the rows and Zipf 1.3.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import promising
from promising.demo.journey import SCHEMA
from promising.loaders.bulk import Report as Loaded
from promising.loaders.bulk import bulk_load
from promising.query import Session
from promising.testing.streams import zipf_law

ITEMS, STORES, DAYS, FILES, BASKET = 100_000, 10, 30, 8, 4
START = 1_700_000_000_000_000
DAY = 86_400_000_000
SEED = 7
GEOMETRY = "GRANULARITY 4 HOURS AND COLLAPSE (4, 5)"  # reaches back 57 days
COLUMNS = ", ".join(
    f"{name} {({'int': 'BIGINT', 'float': 'DOUBLE'}).get(kind, kind.upper())}" for name, kind in SCHEMA.items()
)


class Law(NamedTuple):
    """How rows spread: the exponent of the items, and the share of the rows that one store has."""

    exponent: float
    largest: float


EVEN = Law(1.1, 1 / STORES)
SKEWED = Law(1.3, 0.5)


def write_log(folder: Path, rows: int, law: Law = EVEN) -> str:
    """A log as a folder of files."""
    folder.mkdir(parents=True)
    edges = np.linspace(0, rows, FILES + 1).astype(int).tolist()
    for number, (first, last) in enumerate(pairwise(edges)):
        write_file(folder / f"{number}.parquet", drawn(first, last, rows, law))
    return str(folder)


def drawn(first: int, last: int, rows: int, law: Law) -> pa.Table:
    """Rows `first` up to `last` of a log of so many."""
    rng = np.random.default_rng((SEED, first, rows))
    n = last - first
    items = np.cumsum(zipf_law(ITEMS, law.exponent))[:-1]
    stores = np.cumsum([law.largest, *[(1 - law.largest) / (STORES - 1)] * (STORES - 2)])
    names = np.random.default_rng(SEED).permutation(ITEMS)  # an item's number says nothing of its rank
    times = START + (np.arange(first, last) + rng.random(n)) * (DAYS * DAY / rows)
    columns: dict[str, NDArray[Any]] = {
        "StoreID": np.searchsorted(stores, rng.random(n), "right"),
        "TransactionID": np.arange(first, last) // BASKET,
        "TimeStamp": times.astype(np.int64),
        "ItemID": names[np.searchsorted(items, rng.random(n), "right")],
        "Price": np.round(rng.gamma(2.0, 2.5, n), 2),
    }
    return pa.table(columns)


def write_file(path: Path, table: pa.Table) -> None:
    """As others would write it: times are instants."""
    place = table.schema.get_field_index("TimeStamp")
    times = table["TimeStamp"].cast(pa.int64()).cast(pa.timestamp("us", "UTC"))
    pq.write_table(table.set_column(place, "TimeStamp", times), path, compression="zstd")


@contextmanager
def spark_session(cores: int = 2, memory: str = "4g") -> Iterator[Any]:
    """Spark in this machine, without its pages and its bars."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # needs Java, and some seconds

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.session.timeZone": "UTC",
    }
    builder: Any = SparkSession.builder.master(f"local[{cores}]").appName("benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


class Target:
    """A store on disk that a log is loaded into; each load goes into a new one."""

    def __init__(
        self,
        folder: Path,
        rows: int,
        keys: Sequence[str] = ("ItemID",),
        *,
        streams: Sequence[str] = ("sales",),
        geometry: str = GEOMETRY,
    ) -> None:
        self._folder = folder
        self._rows = rows
        self._keys = keys
        self._streams = streams
        self._geometry = geometry
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        assert self._session is not None
        return self._session

    @property
    def staging(self) -> str:
        return str(self._folder / "staging")

    def renew(self) -> None:
        """Away with what was there, and an empty store instead.

        Files are ordered by the summary that reaches back furthest, and of those alike by the last name.
        """
        self.close()
        self._folder.mkdir(parents=True)
        self._session = promising.open(self._folder / "store", seed=SEED)
        most = max(self._rows * 5 // 4, 1 << 18)  # parts are rounded up
        for stream in self._streams:
            self.session.execute(
                f"CREATE STREAM {stream} ({COLUMNS}) TIMESTAMP BY TimeStamp OPTIONS (max_tuples = {most})"
            )
            for number, key in enumerate(self._keys):
                self.session.execute(f"CREATE SUMMARY {stream}_{number} ON {stream} ({key}) WITH {self._geometry}")

    def load(self, spark: Any, source: str, stream: str = "sales") -> Loaded:
        report = bulk_load(spark, self.session, stream, source, staging=self.staging)
        assert not report.refused and not report.duplicate, report
        return report

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        shutil.rmtree(self._folder, ignore_errors=True)
