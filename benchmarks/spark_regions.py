"""Bytes that a join reads for 80 % of its output, the promising regions first, against all of its columns.

A join of two streams on items, without a window, so that every pair counts: the even and the odd stores, by how busy
they are, of Complete Journey and of a generated log (Zipf 1.1). Both are loaded in bulk and lie on disk. A full join of
Spark has to read the columns that it uses of every row group, "all regions"; and of the files that the log came in, in
order of time, "source files". Ours are the column chunks that the plan of a scan names, which an executor reads, no
more and no less.

What was got is found by brute force: the chunks are read, and the pairs of their tuples that have a promising key are
counted, against all pairs of the log.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import storage_data
from benchmarks.harness import Effort, Figure, Report
from benchmarks.spark_data import EVEN, FILES, GEOMETRY, Target, drawn, spark_session, write_file
from promising.demo.journey import transactions
from promising.index.scan_plan import Scan, ScanPlan
from promising.loaders.scan_reader import read_piece, read_warm
from promising.query import Session
from promising.summaries.hashing import hash_keys

SHARE = 0.8
GOAL, GOT = "<= 0.3", ">= 0.8"
YEAR = "GRANULARITY 1 DAY AND COLLAPSE (4, 6)"
SIDES = ("even", "odd")
USED = ("TimeStamp", "ItemID")
JOIN = (
    "SELECT a.ItemID, a.TimeStamp, b.TimeStamp AS other FROM even a, odd b WHERE a.ItemID = b.ItemID"
    " WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.ItemID), SUMMARY.Estimate.Count(b.ItemID)"
)


@dataclass(frozen=True)
class Outcome:
    """Bytes planned, bytes of the same columns in all regions and in the source files; pairs got, and all of them."""

    planned: int
    regions: int
    source: int
    groups: int
    total_groups: int
    got: int
    pairs: int
    expected: float


def run(report: Report, effort: Effort) -> None:
    with spark_session() as spark:
        figures = []
        journey = transactions()
        figures += _told("Complete Journey", journey.num_rows, _asked(spark, journey, YEAR))
        for rows in effort.rows or ((400_000,) if effort.quick else (2_000_000, 20_000_000)):
            figures += _told("Zipf 1.1", rows, _asked(spark, drawn(0, rows, rows, EVEN), GEOMETRY))
    report.part("regions", f"bytes read for {SHARE:.0%} of a join", figures)


def _told(name: str, rows: int, found: Outcome) -> list[Figure]:
    sizes: dict[str, int | float | str] = {"rows": rows, "pairs": found.pairs}
    groups = {**sizes, "row groups": f"{found.groups:,} of {found.total_groups:,}"}
    return [
        Figure(f"{name}, read", found.planned, found.regions, "all regions", "bytes", GOAL, groups),
        Figure(f"{name}, read", found.planned, found.source, "source files", "bytes", "", sizes),
        Figure(f"{name}, got", found.got, found.pairs, "brute force", "pairs", GOT, sizes),
        Figure(f"{name}, expected", found.expected, None, "", "of the output", "", sizes),
    ]


def _asked(spark: Any, log: pa.Table, geometry: str) -> Outcome:
    with storage_data.folder() as folder:
        sides = dict(zip(SIDES, _halves(log), strict=True))
        target = Target(folder / "target", log.num_rows, streams=SIDES, geometry=geometry)
        target.renew()
        try:
            source = 0
            for name, side in sides.items():
                path = _written(folder / name, side)
                source += sum(map(_used_bytes, path.iterdir()))
                assert target.load(spark, str(path), name).accepted == side.num_rows
            plan = target.session.plan_scan(JOIN, share=SHARE)
            got = _pairs(*(_items(target.session, plan, scan) for scan in plan.scans))
        finally:
            target.close()
    return Outcome(
        sum(scan.bytes for scan in plan.scans),
        sum(scan.total_bytes for scan in plan.scans),
        source,
        sum(scan.groups for scan in plan.scans),
        sum(scan.total_groups for scan in plan.scans),
        got,
        _pairs(*(side["ItemID"].to_numpy() for side in sides.values())),
        plan.share,
    )


def _halves(log: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The stores by how busy they are, every other one."""
    stores, counts = np.unique(log["StoreID"].to_numpy(), return_counts=True)
    ranked = stores[np.argsort(-counts, kind="stable")]
    even = pc.is_in(log["StoreID"], pa.array(ranked[::2]))
    return log.filter(even), log.filter(pc.invert(even))


def _written(folder: Path, table: pa.Table) -> Path:
    folder.mkdir()
    each = -(-table.num_rows // FILES)
    for number, first in enumerate(range(0, table.num_rows, each)):
        write_file(folder / f"{number}.parquet", table.slice(first, each))
    return folder


def _used_bytes(path: Path) -> int:
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
        return sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in USED)


def _items(session: Session, plan: ScanPlan, scan: Scan) -> NDArray[np.int64]:
    """The keys of all tuples that were read and have a wanted key."""
    tables = [table for piece in scan.pieces for table in read_piece(piece, scan)]
    tables += [table for first, last in scan.warm for table in read_warm(session, scan, first, last)]
    items: NDArray[np.int64] = pa.concat_tables(tables)["ItemID"].to_numpy()
    hashes = hash_keys(items, plan.seed).view(np.int64)
    return items[np.isin(hashes, np.array(plan.hashes, np.int64))]


def _pairs(left: NDArray[np.int64], right: NDArray[np.int64]) -> int:
    """Pairs of equal keys."""
    a, b = (np.unique(side, return_counts=True) for side in (left, right))
    _, first, second = np.intersect1d(a[0], b[0], assume_unique=True, return_indices=True)
    return int((a[1][first] * b[1][second]).sum())
