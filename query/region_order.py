"""The order in which two sides' regions are read: most output a byte first.

From all regions, those of least expected output a byte, with what is left of the other side, are dropped again and
again; the order is the reverse. So a region counts with the regions that it is joined with, and a byte counts once.
"""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from promising.index.cold_regions import Regions
from promising.index.storage.key_counts import LEAST_LG, LG_PARTS, PARTS, part_of
from promising.query.kernels.regions import add, meet, occupy, outputs

DROPPED = 1 / 16  # of the bytes left, in a step; at least one region

Floats = NDArray[np.float64]


@dataclass
class Known:
    """Tuples that have been read, by the finest parts of the hash range."""

    tuples: Floats

    @classmethod
    def none(cls) -> "Known":
        return cls(np.zeros(PARTS))

    def count(self, hashes: NDArray[np.int64]) -> None:
        self.tuples += np.bincount(part_of(hashes), minlength=PARTS)

    @property
    def sums(self) -> Floats:
        """By number of parts, from the fewest on."""
        out = np.zeros((LG_PARTS - LEAST_LG + 1, PARTS))
        out[-1] = self.tuples
        return out


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
    marks = known.tuples > 0
    if not side.known.all():  # a region that knows nothing of its keys may have any
        marks[:] = True
    occupy(side.counts.starts, side.counts.lg, side.counts.parts, LG_PARTS, marks)
    return marks


class Peel:
    """Regions by descending output a byte: of side `side[i]`, its region `region[i]`.

    Regions that know nothing of their keys are last, those packed best first: equal keys pack well.
    `expected`: pairs of the regions with each other, and with what was read.
    """

    def __init__(self, sides: list[Regions], read: list[Known]) -> None:
        self._sides = sides
        self._counts = [side.counts for side in sides]
        self._totals = [_totals(side) for side in sides]
        self._sums = [known.sums for known in read]
        self._left = [side.known for side in sides]
        self._add(1, np.flatnonzero(self._left[1]), 1.0)
        self.expected = float(self._outputs(0, self._left[0]).sum() + self._outputs(1, self._left[1]).sum())
        self._add(0, np.flatnonzero(self._left[0]), 1.0)
        self.side = np.empty(0, np.int64)
        self.region = np.empty(0, np.int64)

    def _add(self, side: int, regions: NDArray[np.int64], sign: float) -> None:
        counts = self._counts[side]
        add(counts.starts, counts.lg, counts.parts, counts.tuples, regions, sign, LEAST_LG, self._sums[side])

    def _outputs(self, side: int, left: NDArray[np.bool_]) -> Floats:
        """Of the regions that are left, with what is left of the other side."""
        counts, out = self._counts[side], np.zeros(len(self._sides[side]))
        arrays = (counts.starts, counts.lg, counts.parts, counts.tuples)
        outputs(*arrays, left, self._sums[1 - side], LEAST_LG, self._totals[side], out)
        return out

    def work(self) -> Generator[None, None, None]:
        sizes = [np.maximum(side.bytes, 1).astype(np.float64) for side in self._sides]
        split = len(self._sides[0])
        every = np.concatenate(sizes)
        left = np.concatenate(self._left)
        density = np.zeros(len(every))
        dropped = []
        while left.any():
            for number, mine in enumerate((slice(0, split), slice(split, None))):
                density[mine] = self._outputs(number, left[mine]) / sizes[number]
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


def _totals(side: Regions) -> Floats:
    """The tuples that each region has counted."""
    owner = np.repeat(np.arange(len(side)), np.diff(side.counts.starts))
    return np.bincount(owner, side.counts.tuples, len(side)).astype(np.float64)  # of none: whole numbers
