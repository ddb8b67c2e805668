"""What a question about cold tuples reads: bytes from files against the bytes, in them, of the regions (row groups)
that have a tuple of the answer; and, more strictly, against the columns of the tuples alone, without those that say
where in a run a tuple is. Footers and the rest are overhead in both.

A window of one zone of each granularity but the first, and single keys over all of time; all columns of the tuples.
Each window, and the first key, is asked with nothing in the cache and nothing known of the files; the other keys by a
store that has been asked before.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from benchmarks import storage_data
from benchmarks.harness import Effort, Figure, Report
from benchmarks.storage_data import SCHEMA, alone
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions

GOAL = "<= 1.5"
RANKS = (1000, 0, 100, 10_000)


class Needed(NamedTuple):
    """Bytes of the regions that a question is about: all of them, and only the columns of the tuples."""

    regions: int
    columns: int


class Asked(NamedTuple):
    """One question."""

    name: str
    rows: int
    read: int
    needed: Needed


def run(report: Report, effort: Effort) -> None:
    sizes = (1 << 20,) if effort.quick else (4_000_000, 10_000_000)
    for n in sizes:
        options = StoreOptions(hot_tuples=n // 8)
        with storage_data.folder() as folder:
            path = folder / "store"
            alone(storage_data.fill, path, n, True, options)
            asked = alone(_windows, path, options) + alone(_keys, path, options)
        figures = []
        for question in asked:
            told: dict[str, int | float | str] = {"tuples": n, "rows": question.rows}
            goal = GOAL if question.name.startswith("window") else ""
            needed, read = question.needed, question.read
            figures.append(Figure(question.name, read, needed.regions, "regions needed", "bytes", goal, told))
            figures.append(Figure(question.name, read, needed.columns, "their tuples' columns", "bytes", "", told))
        report.part("cold", f"bytes read of {n:,} tuples, of which {options.hot_tuples:,} are in memory", figures)


def _windows(path: Path, options: StoreOptions) -> list[Asked]:
    out = []
    with Store.open(path, options=options) as store:
        zones = store.streams["sales"].summaries["items"].describe().zones
        chosen = {zone.granularity: zone for zone in zones if zone.granularity > 1}
    for granularity, zone in sorted(chosen.items()):
        with Store.open(path, options=options) as store:
            stream = store.streams["sales"]
            summary = stream.summaries["items"]
            before = store.stats()["cold_bytes_read"]
            cells = [summary.visit((granularity, zone.zone, bucket)) for bucket in range(summary.buckets)]
            table = stream.take(np.concatenate(cells))
            read = int(store.stats()["cold_bytes_read"] - before)
            needed = _needed(path, window=(zone.start, zone.end))
            if needed.regions:
                out.append(Asked(f"window, a zone of G_{granularity}", table.num_rows, read, needed))
    return out


def _keys(path: Path, options: StoreOptions) -> list[Asked]:
    out = []
    with Store.open(path, options=options) as store:
        stream = store.streams["sales"]
        for turn, rank in enumerate(RANKS):
            before = store.stats()["cold_bytes_read"]
            _, table = stream.summaries["items"].fetch(np.array([rank], np.int64))  # items are their ranks
            read = int(store.stats()["cold_bytes_read"] - before)
            name = f"key of rank {rank}" + (", first" if not turn else "")
            out.append(Asked(name, table.num_rows, read, _needed(path, key=rank)))
    return out


def _needed(path: Path, window: tuple[int, int] | None = None, key: int | None = None) -> Needed:
    """By brute force: every row group is read, and counts if it has a tuple of the window or the key."""
    regions = columns = 0
    for name in sorted(path.glob("streams/*/cold/*.parquet")):
        with pq.ParquetFile(name) as file:
            for group in range(file.metadata.num_row_groups):
                table = file.read_row_group(group, columns=["ts", "item_id"])
                ts = table.column("ts").cast("int64").to_numpy()
                hit = np.ones(len(ts), np.bool_)
                if window is not None:
                    hit &= (ts >= window[0]) & (ts < window[1])
                if key is not None:
                    hit &= table.column("item_id").to_numpy() == key
                if hit.any():
                    of = file.metadata.row_group(group)
                    for chunk in (of.column(i) for i in range(of.num_columns)):
                        regions += chunk.total_compressed_size
                        columns += chunk.total_compressed_size if chunk.path_in_schema in SCHEMA else 0
    return Needed(regions, columns)
