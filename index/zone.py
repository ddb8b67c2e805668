"""Zones: a range of time, its tuples by cell, and its summary."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.index.geometry import Geometry
from promising.index.instants import BEGINNING, END
from promising.index.kernels.edges import count_spans
from promising.index.kernels.seal import extent, filter_keys, order_by_bucket, place_by_bucket
from promising.index.log import TupleLog
from promising.index.measures import Measured, Measures, logged
from promising.index.options import Sizes
from promising.summaries.counts import CountsKind

Hasher = Callable[[NDArray[np.int32]], NDArray[np.int64]]

TAKEN = ("error", "behaviour", "maxlength", "boundary", "late")
"""Reasons of the `G_1` zones that a coarse zone took in; "late" is tuples that arrived after their block was closed."""


class Tuples:
    """Log rows of a zone, sorted by cell on first access to a cell.

    Sorting costs one pass over the zone; ingest does not pay for zones that are never visited. Until then consecutive
    rows, nearly all of an old zone, are stored as ranges: a few bytes for thousands of them.
    """

    def __init__(self, rows: NDArray[np.int32]) -> None:
        self._rows: NDArray[np.int32] | None = rows
        self._stretches: NDArray[np.int32] | None = None  # (first, last + 1)
        self.starts: NDArray[np.int64] | None = None  # start of each bucket's rows, once sorted
        self._count = len(rows)

    def __len__(self) -> int:
        return self._count

    @classmethod
    def of(cls, stretches: NDArray[np.int32]) -> "Tuples":
        made = cls(np.empty(0, np.int32))
        made._rows, made._stretches = None, stretches
        made._count = int((stretches[:, 1] - stretches[:, 0]).sum())
        return made

    @property
    def rows(self) -> NDArray[np.int32]:
        if self._rows is not None:
            return self._rows
        assert self._stretches is not None
        return unpacked(self._stretches)

    @property
    def stretches(self) -> NDArray[np.int32]:
        return packed(self.rows) if self._stretches is None else self._stretches

    @property
    def ranges(self) -> NDArray[np.int32]:
        """The rows as ranges, not necessarily the fewest: a pass over the rows at most."""
        if self._stretches is None and self.starts is not None:  # by cell: hardly any two are adjacent
            return np.stack((self.rows, self.rows + 1), axis=1)
        return self.stretches

    def extend(self, *others: "Tuples") -> None:
        """Add the rows of other zones."""
        stretches = np.concatenate((self.stretches, *(other.stretches for other in others)))
        self._count += sum(map(len, others))
        self.starts = None
        if 2 * len(stretches) <= self._count:
            self._rows, self._stretches = None, stretches
        else:
            self._rows, self._stretches = unpacked(stretches), None

    def cell(self, bucket: int, sizes: Sizes, hasher: Hasher) -> NDArray[np.int32]:
        if self.starts is None:
            starts, rows = np.empty(sizes.buckets + 1, np.int64), self.rows
            order = np.empty_like(rows)
            order_by_bucket(hasher(rows), sizes.shift, rows, starts, order)
            self._rows, self.starts, self._stretches = order, starts, None
        assert self._rows is not None
        return self._rows[self.starts[bucket] : self.starts[bucket + 1]]

    def sorting(self, cells: NDArray[np.int64], sizes: Sizes, hasher: Hasher, most: int) -> Generator[None, None, None]:
        """Sort by cell as `cell` does, so many rows at once; nothing happens if they are not as many as in `cells`."""
        rows, starts = self.rows, np.zeros(sizes.buckets + 1, np.int64)
        np.cumsum(cells, out=starts[1:])
        if self.starts is not None or starts[-1] != len(rows):
            return
        ends, order = starts[:-1].copy(), np.empty_like(rows)
        for first in range(0, len(rows), most):
            part = rows[first : first + most]
            place_by_bucket(hasher(part), sizes.shift, part, ends, order)
            yield
        if self.starts is None and len(self) == len(rows):
            self._rows, self.starts, self._stretches = order, starts, None

    @property
    def nbytes(self) -> int:
        held = (self._rows, self._stretches, self.starts)
        return sum(array.nbytes for array in held if array is not None)


def packed(rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """Rows as ranges (first, last + 1) of consecutive rows.

    >>> packed(np.array([4, 5, 6, 9, 2, 3], np.int32)).tolist()
    [[4, 7], [9, 10], [2, 4]]
    """
    if not len(rows):
        return np.empty((0, 2), np.int32)
    edges = np.flatnonzero(np.diff(rows) != 1) + 1
    firsts = rows[np.concatenate(([0], edges))]
    lasts = rows[np.concatenate((edges, [len(rows)])) - 1]
    return np.stack((firsts, lasts + 1), axis=1).astype(np.int32)


def in_order(tuples: Tuples, log: TupleLog) -> NDArray[np.int32]:
    """The rows as ranges in order of arrival, in any stored order: a canonical form."""
    stretches = tuples.stretches
    if tuples.starts is not None:
        rows = tuples.rows
        stretches = packed(rows[np.argsort(log.arrivals(rows), kind="stable")])
    cut = _cut(stretches, log.chunk)
    arrivals = log.arrivals(cut[:, 0])
    if (np.diff(arrivals) <= 0).any():
        cut = cut[np.argsort(arrivals, kind="stable")]
    joined = np.flatnonzero((cut[1:, 0] != cut[:-1, 1]) | (cut[1:, 0] % log.chunk == 0)) + 1
    firsts, lasts = np.concatenate(([0], joined)), np.concatenate((joined, [len(cut)])) - 1
    return np.stack((cut[firsts, 0], cut[lasts, 1]), axis=1) if len(cut) else cut


def _cut(stretches: NDArray[np.int32], chunk: int) -> NDArray[np.int32]:
    """The same ranges, split at chunk borders: arrivals are consecutive only within a chunk."""
    first, last = stretches[:, 0] // chunk, (stretches[:, 1] - 1) // chunk
    if (first == last).all():
        return stretches
    pieces = (last - first + 1).astype(np.int64)
    number = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    at = (np.repeat(first, pieces) + number) * chunk
    low, high = np.repeat(stretches[:, 0], pieces), np.repeat(stretches[:, 1], pieces)
    return np.stack((np.maximum(low, at), np.minimum(high, at + chunk)), axis=1).astype(np.int32)


def unpacked(stretches: NDArray[np.int32]) -> NDArray[np.int32]:
    lengths = (stretches[:, 1] - stretches[:, 0]).astype(np.int64)
    shifts = stretches[:, 0] - (np.cumsum(lengths) - lengths)
    rows: NDArray[np.int64] = np.arange(int(lengths.sum())) + np.repeat(shifts, lengths)
    return rows.astype(np.int32)


@dataclass
class FineZone:
    """A sealed zone of `G_1`, its summary at `slot` of the pool. `late`: its tuples arrived after the block closed."""

    number: int
    slot: int
    tuples: Tuples
    first: int
    last: int
    reason: str
    measured: Measured
    late: bool = False

    @property
    def count(self) -> int:
        return len(self.tuples)


def buckets_of(hashes: NDArray[np.int64], sizes: Sizes) -> NDArray[np.int64]:
    return sizes.counts.bucket_of(hashes)


def distinct(hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    keys, counts = np.unique(hashes, return_counts=True)
    return keys, counts.astype(np.int32)


@dataclass
class CoarseZone:
    """A zone of `G_2..G_m`, or a growing one of a block of `G_1`: a pure function of the set of its tuples.

    `counts` are those of its keys, a state of `kind`, `bits` is a filter [bucket][slot], `cells` the exact number of
    tuples by bucket. `spans` counts its tuples by time: those of number i begin `i * span` after `start`; None if an
    older image did not know. `taken` is its history only: by reason (`TAKEN`), absorbed zones of `G_1`, and tuples.
    """

    number: int
    start: int
    kind: CountsKind[Any]
    counts: Any
    bits: NDArray[np.uint8]
    cells: NDArray[np.int64]
    tuples: Tuples
    measured: Measured
    span: int
    spans: NDArray[np.int64] | None
    first: int = END
    last: int = BEGINNING
    taken: NDArray[np.int64] = field(default_factory=lambda: np.zeros((len(TAKEN), 2), np.int64), compare=False)

    @classmethod
    def empty(cls, number: int, length: int, geometry: Geometry, sizes: Sizes, measures: Measures) -> "CoarseZone":
        return cls(
            number,
            number * length,
            sizes.counts,
            sizes.counts.allocate(1),
            np.zeros(sizes.buckets * sizes.coarse_slots // 8, np.uint8),
            np.zeros(sizes.buckets, np.int64),
            Tuples(np.empty(0, np.int32)),
            measures.empty(),
            length // geometry.parts,
            np.zeros(geometry.parts, np.int64),
        )

    @property
    def count(self) -> int:
        return int(self.cells.sum())

    def summarize(self, keys: NDArray[np.int64], counts: NDArray[np.int32], sizes: Sizes) -> None:
        """Add tuples to the counts, the filter and the cells."""
        self.kind.insert(self.counts, 0, keys, counts, self.cells)
        filter_keys(keys, sizes.shift, sizes.probes, Sizes.lg(sizes.coarse_slots), self.bits)

    def date(self, times: NDArray[np.int64]) -> None:
        """Add tuples to time range and spans."""
        self.spread(*extent(times))
        if self.spans is not None:
            count_spans(times, self.start, self.span, self.spans)

    def spread(self, first: int, last: int) -> None:
        """Extend the known time range of its tuples."""
        self.first, self.last = min(self.first, first), max(self.last, last)

    def take(self, reason: str, zones: int, tuples: int) -> None:
        """Record the origin of tuples."""
        self.taken[TAKEN.index(reason)] += (zones, tuples)

    def insert(
        self, hashes: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int64], sizes: Sizes, log: TupleLog
    ) -> None:
        """Add tuples in the log."""
        self.summarize(*distinct(hashes), sizes)
        self.measured.add(logged(log, rows, hashes))
        self.tuples.extend(Tuples(rows))
        self.date(times)

    def absorb(self, other: "CoarseZone") -> None:
        """Add a finer zone's summary, and its tuples."""
        self.kind.merge(self.counts, 0, other.counts, 0)
        self.bits |= other.bits
        self.cells += other.cells
        self.tuples.extend(other.tuples)
        self.measured.absorb(other.measured)
        self.spread(other.first, other.last)
        if self.spans is None or other.spans is None:
            self.spans = None
        else:  # spans nest, as zones do
            begins = other.start - self.start + other.span * np.arange(len(other.spans))
            np.add.at(self.spans, begins // self.span, other.spans)
        self.taken += other.taken

    def image(self, log: TupleLog) -> dict[str, Any]:
        return {
            "number": self.number,
            "start": self.start,
            **self.kind.saved(self.counts, 0),
            "bits": self.bits.copy(),
            "cells": self.cells.copy(),
            "tuples": in_order(self.tuples, log),
            "first": self.first,
            "last": self.last,
            "span": self.span,
            "spans": None if self.spans is None else self.spans.copy(),
            "taken": self.taken.copy(),
            "measures": self.measured.image(),
        }

    @classmethod
    def restored(cls, image: dict[str, Any], kind: CountsKind[Any], measures: Measures) -> "CoarseZone":
        spans = image.get("spans")  # absent in old images
        return cls(
            image["number"],
            image["start"],
            kind,
            kind.one(image),
            image["bits"].copy(),
            image["cells"].copy(),
            Tuples.of(image["tuples"].copy()),
            measures.restored(image.get("measures", {})),
            image.get("span", 0),
            None if spans is None else spans.copy(),
            image["first"],
            image["last"],
            taken=image["taken"].copy(),
        )

    @property
    def nbytes(self) -> int:
        return (
            self.kind.nbytes(self.counts)
            + self.bits.nbytes
            + self.cells.nbytes
            + (0 if self.spans is None else self.spans.nbytes)
            + self.tuples.nbytes
            + self.measured.nbytes
            + 512
        )
