"""The order in which two sides' regions are read: most output a byte first.

From all regions, those of least expected output a byte, with what is left of the other side, are dropped again and
again; the order is the reverse. So a region counts with the regions that it is joined with, and a byte counts once.
"""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from promising.index.cold_regions import Regions
from promising.index.storage.key_counts import LG_PARTS, PARTS, part_of
from promising.query.kernels.regions import add, meet, occupy, outputs

DROPPED = 1 / 16  # of the bytes left, in a step; at least one region

Floats = NDArray[np.float64]


@dataclass
class Known:
    """Tuples by part of the hash range that have been read: `sums` for the order, `marks` which parts have any."""

    sums: Floats
    marks: NDArray[np.bool_]

    @classmethod
    def none(cls) -> "Known":
        return cls(np.zeros(PARTS), np.zeros(PARTS, np.bool_))

    def count(self, hashes: NDArray[np.int64]) -> None:
        found = np.bincount(part_of(hashes), minlength=PARTS)
        self.sums += found
        self.marks |= found > 0


def without_partners(sides: list[Regions], read: list[Known]) -> list[Regions]:
    """The regions that may have a key of the other side; twice, as those that leave take keys with them."""
    for _ in range(2):
        marks = [_marks(side, known) for side, known in zip(sides, read, strict=True)]
        kept = []
        for side, other in zip(sides, marks[::-1], strict=True):
            met = np.empty(len(side), np.bool_)
            counts = side.counts
            meet(counts.starts, counts.lg, counts.parts, other, LG_PARTS, met)
            kept.append(side.without(side.known & ~met, "filter"))
        sides = kept
    return sides


def _marks(side: Regions, known: Known) -> NDArray[np.bool_]:
    marks = known.marks.copy()
    if not side.known.all():  # a region that knows nothing of its keys may have any
        marks[:] = True
    occupy(side.counts.starts, side.counts.lg, side.counts.parts, LG_PARTS, marks)
    return marks


class Peel:
    """Regions by descending output a byte: of side `side[i]`, its region `region[i]`.

    Regions that know nothing of their keys are last, those packed best first: equal keys pack well.
    `expected`: pairs of all that is known.
    """

    def __init__(self, sides: list[Regions], read: list[Known]) -> None:
        self._sides = sides
        self._counts = [side.counts for side in sides]
        self._totals = [
            np.bincount(np.repeat(np.arange(len(s)), np.diff(s.counts.starts)), s.counts.tuples, len(s)) for s in sides
        ]
        self._sums = [known.sums.copy() for known in read]
        self._left = [side.known for side in sides]
        for number in range(2):
            self._add(number, np.flatnonzero(self._left[number]), 1.0)
        self.expected = float(self._sums[0] @ self._sums[1])
        self.side = np.empty(0, np.int64)
        self.region = np.empty(0, np.int64)

    def _add(self, side: int, regions: NDArray[np.int64], sign: float) -> None:
        counts = self._counts[side]
        add(counts.starts, counts.lg, counts.parts, counts.tuples, regions, sign, LG_PARTS, self._sums[side])

    def work(self) -> Generator[None, None, None]:
        sizes = [np.maximum(side.bytes, 1).astype(np.float64) for side in self._sides]
        split = len(self._sides[0])
        every = np.concatenate(sizes)
        left = np.concatenate(self._left)
        density = np.zeros(len(every))
        dropped = []
        while left.any():
            for number in range(2):
                counts, mine = self._counts[number], slice(0, split) if number == 0 else slice(split, None)
                out = np.zeros(len(self._sides[number]))
                arrays = (counts.starts, counts.lg, counts.parts, counts.tuples)
                other, totals = self._sums[1 - number], self._totals[number]
                outputs(*arrays, np.ascontiguousarray(left[mine]), other, LG_PARTS, totals, out)
                density[mine] = out / sizes[number]
            these = np.flatnonzero(left)
            these = these[np.argsort(density[these], kind="stable")]
            ends = np.cumsum(every[these])
            worst = these[: max(int(np.searchsorted(ends, ends[-1] * DROPPED, side="right")), 1)]
            left[worst] = False
            self._add(0, worst[worst < split], -1.0)
            self._add(1, worst[worst >= split] - split, -1.0)
            dropped.append(worst)
            yield
        known = np.concatenate([np.empty(0, np.int64), *dropped])[::-1]
        rest = np.flatnonzero(~np.concatenate([side.known for side in self._sides]))
        tuples = np.concatenate([side.tuples for side in self._sides])
        rest = rest[np.argsort(every[rest] / np.maximum(tuples[rest], 1), kind="stable")]
        order = np.concatenate([known, rest])
        self.side = (order >= split).astype(np.int64)
        self.region = order - split * self.side
