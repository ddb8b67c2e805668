"""A bulk load, from Parquet files to tuples in a store on disk, against Spark merely sorting the same rows.

The opponent reads the same files, sorts all rows by zone, bucket and key and writes them as Parquet packed by zstd:
what every way of laying tuples out in regions has to do. A load does that, checks each row, counts cells, works out the
sketches and filters of every zone, writes checksums, copies the files into the store, links every key to its rows and
is on the disk when it ends; Spark leaves what it wrote to the system. Both run in one Spark session of two cores, in
alternating rounds, by the clock on the wall, since most of the work is done in other processes.
"""

import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks import storage_data
from benchmarks.harness import Contender, Effort, Figure, Report, Run, alternate
from benchmarks.spark_data import DAY, DAYS, START, Target, spark_session, write_log
from promising.index.load_plan import Shape
from promising.loaders.bulk import Report as Loaded

GOAL, AIM = "<= 2", ">= 1000000"
JUDGED = 2_000_000
"""Goals are for that many rows and more; of fewer the starts of jobs and tasks take most of the time."""


def rounds(effort: Effort, rows: int) -> int:
    if effort.quick:
        return 1
    return 3 if rows < 10_000_000 else 2


def run(report: Report, effort: Effort) -> None:
    with spark_session() as spark:
        for rows in effort.rows or ((200_000,) if effort.quick else (2_000_000, 20_000_000)):
            with storage_data.folder() as folder:
                figures = _measured(spark, folder, rows, rounds(effort, rows))
            report.part("load", f"{rows:,} rows from Parquet into a store", figures)


def _measured(spark: Any, folder: Path, rows: int, times: int) -> list[Figure]:
    source = write_log(folder / "log", rows)
    target = Target(folder / "target", rows)
    told: list[Loaded] = []

    def load() -> Run:
        target.renew()
        return lambda: told.append(target.load(spark, source))

    target.renew()
    plan = target.session.load_plan("sales")
    shape = plan.shaped(START + DAYS * DAY - 1)
    contenders: dict[str, Contender] = {
        "load": load,
        "sort": lambda: sorting(spark, source, folder / "sorted", shape, plan.seed),
    }
    try:
        took = alternate(contenders, times, clock=time.perf_counter_ns)
    finally:
        target.close()
    assert all(one.accepted == rows for one in told)
    seconds = {name: nanos / 1e9 for name, nanos in took.items()}
    sizes: dict[str, int | float | str] = {"rows": rows}
    last = told[-1]
    goal, aim = (GOAL, AIM) if rows >= JUDGED else ("", "")
    return [
        Figure("load", seconds["load"], seconds["sort"], "sort and write", "s", goal, sizes),
        Figure("rows a second", rows / seconds["load"], None, "", "rows/s", aim, sizes),
        Figure("package", last.bytes, None, "", "bytes", "", {**sizes, "parts": last.parts, "cells": last.cells}),
        *(Figure(f"stage {stage}", spent, None, "", "s", "", sizes) for stage, spent in last.stages.items()),
    ]


def sorting(spark: Any, source: str, to: Path, shape: Shape, seed: int) -> Run:
    """What Spark does to lay the rows out in the same order, into one or more files."""
    shutil.rmtree(to, ignore_errors=True)
    moment = "unix_micros(TimeStamp)"
    zones = " ".join(f"WHEN {moment} >= {first} THEN {moment} DIV {length}" for first, length in shape.zones)
    bucket = f"shiftrightunsigned(xxhash64(CAST('{seed}' AS BIGINT), ItemID), {shape.shift})"
    rows = spark.read.parquet(source).selectExpr("*", f"CASE {zones} END AS zone", f"{bucket} AS bucket")
    in_order = rows.orderBy("zone", "bucket", "ItemID").drop("zone", "bucket")
    return lambda: in_order.write.parquet(str(to))
