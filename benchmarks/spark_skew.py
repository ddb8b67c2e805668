"""A load of skewed rows against one of even rows, as many of them: one store has half of them, and items are Zipf 1.3.

Files are ordered by items, and, the harder case, by stores: then half of the rows fall into one bucket of each zone.
How even the work was is told by the parts, each the work of one task: the largest of the skewed load against the mean.
"""

import time
from pathlib import Path
from typing import Any

from benchmarks import storage_data
from benchmarks.harness import Contender, Effort, Figure, Report, Run, alternate
from benchmarks.spark_data import EVEN, SKEWED, Target, spark_session, write_log
from benchmarks.spark_load import JUDGED, rounds
from promising.index.storage.package import read_manifest

GOAL = "<= 1.5"
ORDERS = {"items": ("ItemID",), "stores": ("ItemID", "StoreID")}
"""By what files are ordered, and the keys that have summaries for that."""


def run(report: Report, effort: Effort) -> None:
    with spark_session() as spark:
        for rows in effort.rows or ((1_200_000,) if effort.quick else (2_000_000, 20_000_000)):
            with storage_data.folder() as folder:
                sources = {
                    "even": write_log(folder / "even", rows, EVEN),
                    "skewed": write_log(folder / "skewed", rows, SKEWED),
                }
                figures = []
                for order in ("stores",) if effort.quick else tuple(ORDERS):
                    figures += _measured(spark, folder / "target", sources, rows, order, rounds(effort, rows))
            report.part("skew", f"{rows:,} rows, skewed against even", figures)


def _measured(spark: Any, folder: Path, sources: dict[str, str], rows: int, order: str, times: int) -> list[Figure]:
    target = Target(folder, rows, ORDERS[order])
    parts: dict[str, list[int]] = {}

    def contender(name: str) -> Contender:
        def prepare() -> Run:
            target.renew()
            return lambda: load(name)

        return prepare

    def load(name: str) -> None:
        done = target.load(spark, sources[name])
        parts[name] = [int(part["rows"]) for part in read_manifest(f"{target.staging}/{done.token}").parts]

    try:
        took = alternate({name: contender(name) for name in sources}, times, clock=time.perf_counter_ns)
    finally:
        target.close()
    sizes: dict[str, int | float | str] = {"rows": rows, "order": order}
    goal = GOAL if rows >= JUDGED else ""
    skewed = parts["skewed"]
    return [
        Figure("load, skewed", took["skewed"] / 1e9, took["even"] / 1e9, "even", "s", goal, sizes),
        Figure(
            "largest part",
            max(skewed),
            sum(skewed) / len(skewed),
            "mean part",
            "rows",
            GOAL,
            {**sizes, "parts": len(skewed)},
        ),
    ]
