"""Zones: a stretch of the timeline, its tuples by cell, and what its summary knows."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from index.kernels.seal import extent, filter_keys, order_by_bucket, sketch_keys
from index.options import Sizes

Hasher = Callable[[NDArray[np.int32]], NDArray[np.int64]]


@dataclass
class Tuples:
    """Log rows of a zone, put in order of cells when a cell is first asked for.

    Ordering costs one pass over the zone; ingest does not pay it for zones that nobody visits.
    """

    rows: NDArray[np.int32]
    starts: NDArray[np.int64] | None = None

    def extend(self, rows: NDArray[np.int32]) -> None:
        self.rows = np.concatenate((self.rows, rows))
        self.starts = None

    def cell(self, bucket: int, sizes: Sizes, hasher: Hasher) -> NDArray[np.int32]:
        """Rows of one bucket."""
        if self.starts is None:
            starts = np.empty(sizes.buckets + 1, np.int64)
            order = np.empty_like(self.rows)
            order_by_bucket(hasher(self.rows), sizes.shift, self.rows, starts, order)
            self.rows, self.starts = order, starts
        return self.rows[self.starts[bucket] : self.starts[bucket + 1]]

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + (0 if self.starts is None else self.starts.nbytes)


@dataclass
class FineZone:
    """A sealed zone of `G_1`. Its counters, filter bits and cell counts are at `slot` of the pool."""

    number: int
    slot: int
    tuples: Tuples
    first: int
    last: int
    reason: str

    @property
    def count(self) -> int:
        return len(self.tuples.rows)


def distinct(hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Keys and how often each occurs."""
    keys, counts = np.unique(hashes, return_counts=True)
    return keys, counts.astype(np.int32)


@dataclass
class CoarseZone:
    """A zone of `G_2..G_m`, or one still growing from a block of `G_1`: a pure function of the set of its tuples.

    `counters` is [bucket][row][column], `bits` a filter [bucket][slot], `cells` the exact number of tuples by bucket.
    """

    number: int
    start: int
    counters: NDArray[np.int32]
    bits: NDArray[np.uint8]
    cells: NDArray[np.int64]
    tuples: Tuples
    first: int = 1 << 62
    last: int = -(1 << 62)
    f2: NDArray[np.float64] | None = field(default=None, compare=False)

    @classmethod
    def empty(cls, number: int, start: int, sizes: Sizes) -> "CoarseZone":
        return cls(
            number,
            start,
            np.zeros(sizes.counters, np.int32),
            np.zeros(sizes.buckets * sizes.coarse_slots // 8, np.uint8),
            np.zeros(sizes.buckets, np.int64),
            Tuples(np.empty(0, np.int32)),
        )

    @property
    def count(self) -> int:
        return int(self.cells.sum())

    def summarize(self, keys: NDArray[np.int64], counts: NDArray[np.int32], sizes: Sizes) -> None:
        """Add tuples to counters, filter and cell counts."""
        sketch_keys(keys, counts, sizes.shift, sizes.depth, Sizes.lg(sizes.width), self.counters, self.cells)
        filter_keys(keys, sizes.shift, sizes.probes, Sizes.lg(sizes.coarse_slots), self.bits)
        self.f2 = None

    def spread(self, first: int, last: int) -> None:
        """Widen the stretch that is known to hold tuples."""
        self.first, self.last = min(self.first, first), max(self.last, last)

    def insert(
        self, hashes: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int64], sizes: Sizes
    ) -> None:
        self.summarize(*distinct(hashes), sizes)
        self.tuples.extend(rows)
        self.spread(*extent(times))

    def absorb(self, other: "CoarseZone") -> None:
        """Add a finer zone's summary, and its tuples."""
        self.counters += other.counters
        self.bits |= other.bits
        self.cells += other.cells
        self.tuples.extend(other.tuples.rows)
        self.spread(other.first, other.last)
        self.f2 = None

    def cell_f2(self, sizes: Sizes) -> NDArray[np.float64]:
        """F2 of each cell, the mean over the rows of its sketch."""
        if self.f2 is None:
            self.f2 = cell_f2(self.counters, sizes)
        return self.f2

    @property
    def nbytes(self) -> int:
        f2 = 0 if self.f2 is None else self.f2.nbytes
        return self.counters.nbytes + self.bits.nbytes + self.cells.nbytes + f2 + self.tuples.nbytes + 512


def cell_f2(counters: NDArray[np.int16] | NDArray[np.int32], sizes: Sizes) -> NDArray[np.float64]:
    """Mean over rows of the sums of squared counters, by bucket."""
    squares = counters.astype(np.float64).reshape(sizes.buckets, sizes.depth * sizes.width)
    sums: NDArray[np.float64] = np.einsum("ij,ij->i", squares, squares)
    return sums / sizes.depth
