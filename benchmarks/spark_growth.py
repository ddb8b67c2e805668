"""Streams without a limit: a Parquet file into a default stream of a durable service, by Spark and `promising ingest`.

No option is set but the data directory. Each way has a service of its own, a process whose largest resident size the
system has recorded; the time is that of the whole command, Spark's session excepted.
"""

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import storage_data
from benchmarks.harness import Effort, Figure, Report
from benchmarks.service_host import ROOT, Host, hosting
from benchmarks.spark_data import COLUMNS, EVEN, drawn, spark_session
from promising.loaders.bulk import bulk_load

ROWS = 50_000_000
GROUP = 1 << 20  # rows of a row group
WIDTH = 40  # bytes of a tuple
DEFINED = (
    f"CREATE STREAM sales ({COLUMNS}) TIMESTAMP BY TimeStamp",
    "CREATE SUMMARY items ON sales (ItemID) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 5)",
)


def run(report: Report, effort: Effort) -> None:
    for rows in effort.rows or ((300_000,) if effort.quick else (ROWS,)):
        with storage_data.folder() as folder:
            source = folder / "log.parquet"
            write(source, rows)
            with spark_session() as spark:
                figures = _measured("Spark", rows, folder, source, spark)
            figures += _measured("promising ingest", rows, folder, source, None)
        report.part("growth", f"{rows:,} rows into a default stream of a durable service", figures)


def write(path: Path, rows: int) -> None:
    """A log as one file."""
    zoned = pa.timestamp("us", "UTC")
    writer: pq.ParquetWriter | None = None
    for first, last in pairwise([*range(0, rows, GROUP), rows]):
        table = drawn(first, last, rows, EVEN)
        times = table["TimeStamp"].cast(pa.int64()).cast(zoned)
        table = table.set_column(table.schema.get_field_index("TimeStamp"), "TimeStamp", times)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _measured(way: str, rows: int, folder: Path, source: Path, spark: Any) -> list[Figure]:
    with hosting("service", data=str(folder / way.replace(" ", "-"))) as host, host.session() as session:
        for statement in DEFINED:
            session.execute(statement)
        empty = _peak(host)
        began = time.perf_counter()
        if spark is None:
            _ingest(host, source)
        else:
            bulk_load(spark, session, "sales", str(source), staging=str(folder / "staging"))
        took = time.perf_counter() - began
        count = session.query("SELECT count(*) AS n FROM sales").to_arrow()["n"][0].as_py()
        assert count == rows, f"{count:,} of {rows:,} rows arrived"
        peak, rest = _peak(host), host.holds().resident
    sizes: dict[str, int | float | str] = {"rows": rows, "data MB": rows * WIDTH // 1_000_000}
    return [
        Figure(f"{way}: time", took, unit="s", sizes=sizes),
        Figure(f"{way}: rows a second", rows / took, unit="rows/s", sizes=sizes),
        Figure(f"{way}: peak memory of the service", peak, rows * WIDTH, "its data", "bytes", "", sizes),
        Figure(f"{way}: its memory at rest", rest, empty, "empty", "bytes", "", sizes),
    ]


def _ingest(host: Host, source: Path) -> None:
    command = [sys.executable, "-m", "promising.cli", "--target", host.target, "ingest", str(source)]
    subprocess.run([*command, "--stream", "sales"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def _peak(host: Host) -> int:
    """The largest resident size so far, in bytes."""
    with open(f"/proc/{host.pid}/status") as status:
        (line,) = (line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10
