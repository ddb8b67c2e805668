"""A join of cold tuples by promising regions: each is read once, and joined with all that was read before."""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from promising.index.cold_regions import ColdRegions, Regions, together
from promising.index.snapshot import Rows
from promising.query.kernels.pairs import cross, group
from promising.query.key_rows import ENTERED, SLICE, Hasher, Hashes, Keys
from promising.query.operators.operator import Batch, Guess, Operator, Pace, Slices
from promising.query.region_order import Known, Peel, without_partners

Crossed = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Starts and counts of the rows of each key, on both sides."""


@dataclass
class RegionSide:
    """One side: its regions, and the directory of what was read."""

    cold: ColdRegions
    hasher: Hasher
    read: Keys
    known: Known
    regions: Regions
    entered: int = 0  # tuples

    @classmethod
    def of(cls, cold: ColdRegions, hasher: Hasher) -> "RegionSide":
        return cls(cold, hasher, Keys.empty(cold.snapshot, hasher), Known.none(), Regions())


class RegionJoin(Operator):
    """All pairs with equal keys, most output a byte not yet read first.

    Tuples in memory are joined first; then regions in the order of `Peel`, in each the keys with the most pairs first.
    A pair is made when the second of its tuples is read. What regions know of their keys decides the order alone,
    except for regions that certainly share no key with the other side: they are not read.
    """

    def __init__(self, sides: list[RegionSide], pace: Pace) -> None:
        super().__init__([side.cold.snapshot for side in sides], pace)
        self.sides = sides
        self._entries = 0
        self._expected = 0.0
        self._planned = self._finished = False
        self._held = 0  # bytes of the rows of the current region

    def work(self) -> Slices:
        for number, side in enumerate(self.sides):
            for rows in side.cold.warm(SLICE):
                yield from self._enter(number, rows)
        found = []
        for side in self.sides:
            parts = []
            for part in side.cold.regions():
                parts.append(part)
                yield None
            found.append(together(parts))
        for side, regions in zip(self.sides, without_partners(found, [s.known for s in self.sides]), strict=True):
            side.regions = regions
        self._entries = sum(len(side.regions) for side in self.sides)
        peel = Peel([side.regions for side in self.sides], [side.known for side in self.sides])
        for _ in peel.work():
            yield None
        self._expected, self._planned = self.done + peel.expected, True
        for number, region in zip(peel.side.tolist(), peel.region.tolist(), strict=True):
            side = self.sides[number]
            self.rank += 1
            file, group_ = int(side.regions.file[region]), int(side.regions.group[region])
            yield from self._enter(number, side.cold.rows(file, group_))
        self._finished = True

    def _enter(self, number: int, rows: Rows) -> Slices:
        """Join these tuples of a side with what was read of the other, and add them to what was read."""
        mine, other = self.sides[number], self.sides[1 - number]
        with mine.cold.snapshot.holding():
            if not mine.cold.snapshot.whole:
                rows = rows[mine.cold.snapshot.admitted(rows)]
            hashes, missing = mine.hasher(rows)
        if missing is not None:
            hashes, rows = hashes[~missing], rows[~missing]
        self.read += len(rows)
        yield from self._pairs(number, hashes, rows, other)
        if not self._planned:
            mine.known.count(hashes)
        for at in range(0, len(rows), ENTERED):
            mine.read.postings.enter_all(hashes[at : at + ENTERED], rows[at : at + ENTERED])
            yield None
        mine.entered += len(rows)

    def _pairs(self, number: int, hashes: Hashes, rows: Rows, other: RegionSide) -> Slices:
        which, unique = np.empty(len(rows), np.int32), np.empty(len(rows), np.int64)
        unique = unique[: group(np.ascontiguousarray(hashes), which, unique)]
        theirs = yield from other.read.load(unique)
        counts = np.bincount(which, minlength=len(unique)).astype(np.int64)
        pairs = counts.astype(np.float64) * theirs.counts
        best = np.flatnonzero(pairs)
        best = best[np.argsort(-pairs[best], kind="stable")]
        order = np.argsort(which, kind="stable")
        starts = np.cumsum(counts) - counts
        self._held = rows.nbytes + theirs.rows.nbytes + 3 * unique.nbytes
        lists = (starts[best], counts[best], theirs.starts[best], theirs.counts[best])
        yield from self._cross(number, lists, np.ascontiguousarray(rows[order]), theirs.rows, float(pairs.sum()))

    def _cross(
        self, number: int, lists: Crossed, rows: Rows, others: Rows, left: float
    ) -> Generator[Batch | None, None, None]:
        mine, counts, theirs, their_counts = lists
        place = np.zeros(3, np.int64)
        while left > 0:
            room = int(min(left, self.pace()))
            a, b = np.empty(room, np.int32), np.empty(room, np.int32)
            made = cross(mine, counts, theirs, their_counts, rows, others, place, a, b)
            left -= made
            self.done += made
            pair = (a[:made], b[:made])
            yield Batch(pair if number == 0 else pair[::-1])
        yield None

    def remaining(self) -> Guess | None:
        if self._finished:
            return Guess(0.0, 0.0, 0.0)
        if not self._planned:
            return None
        all_, read = 1.0, 1.0
        for side in self.sides:
            all_, read = all_ * side.cold.snapshot.size, read * side.entered
        most = all_ - read
        return Guess(min(max(self._expected - self.done, 0.0), most), 0.0, most)

    @property
    def entries(self) -> int:
        return self._entries

    @property
    def nbytes(self) -> int:
        kept = sum(side.read.held + side.regions.counts.nbytes + 32 * len(side.regions) for side in self.sides)
        return kept + self._held
