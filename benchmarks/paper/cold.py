"""Figure 11 where probes are dear: tuples in files, summaries in memory, and what counts are the bytes read.

The join is of all that the streams keep. The exact join reads the columns it uses of every row group. Ours plans its
reads by `plan_scan`, from the summaries alone, in two ways: the regions (row groups) in the order of the promise that
the plan gives them, per byte; or every region of the most promising keys, for a share of the output. What was got is
counted by brute force, from the tuples that were read. SIMPLE-SHJ has the same tuples in files in order of arrival,
reads both streams side by side, and gets every pair of what it has read: with a share of the bytes it has that share of
the tuples of either stream. Bytes are those of the column chunks: the same on every machine.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.paper.joins import SECOND, key_counts, statement, stored
from benchmarks.paper.logs import Log
from benchmarks.storage_data import folder
from promising.index.scan_plan import Piece, Scan, ScanPlan
from promising.loaders.scan_reader import read_piece
from promising.query import Session
from promising.summaries.hashing import hash_keys

GEOMETRY = "GRANULARITY 10 SECONDS AND COLLAPSE (4, 4)"
Ints = NDArray[np.int64]
Place = tuple[int, str, int]
"""A row group: of which side, in which file, its number there."""


@dataclass(frozen=True)
class Group:
    """A row group: bytes of the columns used, the keys of its tuples."""

    bytes: int
    keys: Ints


@dataclass(frozen=True)
class Point:
    """Shares of the bytes, and of the output."""

    read: float
    got: float


class Cold:
    """A log in files, and what can be had of its join for how many bytes."""

    def __init__(self, log: Log, path: Path, run_tuples: int) -> None:
        self.log = log
        self.exact = _pairs(log.a["item_id"], log.b["item_id"])
        self.session: Session = stored(log, path, GEOMETRY, run_tuples)
        for name, columns in log.sides().items():  # until all has left the newest granularity, and goes cold
            self.session.advance(name, int(columns["ts"][-1]) + 60 * SECOND)
        assert self.session.store is not None
        self.session.store.checkpoint()
        whole = self.plan(1.0)
        self.groups = {
            (side, piece.path, number): _group(piece, scan, number)
            for side, scan in enumerate(whole.scans)
            for piece in scan.pieces
            for number in piece.groups
        }
        if any(scan.warm for scan in whole.scans):
            raise AssertionError("some tuples are still in memory: take a multiple of the tuples of a file")
        self.bytes = sum(group.bytes for group in self.groups.values())

    def plan(self, share: float) -> ScanPlan:
        return self.session.plan_scan(statement(), share=share)

    def _keys(self, places: list[Place]) -> tuple[Ints, Ints]:
        """The keys of the tuples that were read, by side."""
        sides: list[list[Ints]] = [[np.empty(0, np.int64)], [np.empty(0, np.int64)]]
        for place in places:
            sides[place[0]].append(self.groups[place].keys)
        return np.concatenate(sides[0]), np.concatenate(sides[1])

    def _read(self, places: list[Place]) -> float:
        return sum(self.groups[place].bytes for place in places) / self.bytes

    def keys(self, share: float) -> Point:
        """The row groups of the most promising keys, as many keys as make that share of the output."""
        plan = self.plan(share)
        places = [(s, p.path, n) for s, scan in enumerate(plan.scans) for p in scan.pieces for n in p.groups]
        sides = self._keys(places)
        if plan.hashes is not None:
            wanted = np.array(plan.hashes, np.int64)
            a, b = (keys[np.isin(hash_keys(keys, plan.seed).view(np.int64), wanted)] for keys in sides)
            return Point(self._read(places), _pairs(a, b) / self.exact)
        return Point(self._read(places), _pairs(*sides) / self.exact)

    def regions(self, read: float) -> Point:
        """The most promising regions, up to that share of the bytes."""
        pieces = [(side, piece) for side, scan in enumerate(self.plan(1.0).scans) for piece in scan.pieces]
        pieces.sort(key=lambda each: -each[1].promise / max(each[1].bytes, 1))
        places = [(side, piece.path, number) for side, piece in pieces for number in piece.groups]
        ends = np.cumsum([self.groups[place].bytes for place in places])
        places = places[: int(np.searchsorted(ends, read * self.bytes + 0.5, side="right"))]
        return Point(self._read(places), _pairs(*self._keys(places)) / self.exact)

    def simple(self, read: float) -> Point:
        """What came first, up to a share of the bytes."""
        a, b = (side["item_id"][: int(read * self.log.rows)] for side in (self.log.a, self.log.b))
        return Point(read, _pairs(a, b) / self.exact)

    def close(self) -> None:
        self.session.close()


@dataclass(frozen=True)
class Found:
    """Each way at shares of the bytes; `keys` at shares of the output, and at whatever bytes these take."""

    regions: list[Point]
    keys: list[Point]
    simple: list[Point]


def measure(log: Log, run_tuples: int, reads: list[float], shares: list[float]) -> Found:
    with folder() as place:
        cold = Cold(log, place / "store", run_tuples)
        try:
            return Found(
                [cold.regions(read) for read in reads],
                [cold.keys(share) for share in shares],
                [cold.simple(read) for read in reads],
            )
        finally:
            cold.close()


def _group(piece: Piece, scan: Scan, number: int) -> Group:
    with pq.ParquetFile(piece.path) as file:
        found = file.metadata.row_group(number)
        chunks = [found.column(i) for i in range(found.num_columns)]
    size = sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in scan.columns)
    (table,) = read_piece(replace(piece, groups=[number]), scan)
    return Group(size, table["item_id"].to_numpy())


def _pairs(a: Ints, b: Ints) -> int:
    _, in_a, in_b = key_counts(a, b)
    return int(in_a @ in_b)
