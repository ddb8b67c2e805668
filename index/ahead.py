"""Tuples of `G_1` later than the block with the watermark plus the lateness: they are in no block yet."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Loose(NamedTuple):
    """Tuples in no sealed zone: key hashes, rows, event times."""

    hashes: NDArray[np.int64]
    rows: NDArray[np.int32]
    times: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: "list[Loose]") -> "Loose":
        none = cls(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
        return cls(*map(np.concatenate, zip(none, *parts, strict=True)))

    def at(self, where: Any) -> "Loose":
        return Loose(self.hashes[where], self.rows[where], self.times[where])


class _Part(NamedTuple):
    """Tuples by block, in order of arrival within one: those of `homes[i]` end at `ends[i]`."""

    homes: NDArray[np.int64]
    ends: NDArray[np.int64]
    tuples: Loose

    def __len__(self) -> int:
        return len(self.tuples.rows)


class Ahead:
    """Those tuples, by block of length `length`; 20 bytes each. Readers see them as one zone, `number`.

    A tuple is added and taken out once, at a cost that grows with the logarithm of the number of batches. `number` is
    0 without tuples, and another one after some have been taken out.
    """

    def __init__(self, length: int) -> None:
        self.number = 0
        self._length = length
        self._parts: list[_Part] = []
        self._all: Loose | None = None

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def tuples(self) -> Loose:
        if self._all is None:
            self._all = Loose.joined([part.tuples for part in self._parts])
        return self._all

    @property
    def ordered(self) -> Loose:
        """By block, in order of arrival within one: however they arrived in batches."""
        return self._part(self.tuples).tuples

    def zones(self) -> Iterator[Loose]:
        """All of them as one zone; none without tuples."""
        if self._parts:
            yield self.tuples

    def add(self, tuples: Loose) -> None:
        """Add tuples, in order of arrival."""
        self._all = None
        self._parts.append(self._part(tuples))
        while len(self._parts) > 1 and 2 * len(self._parts[-1]) >= len(self._parts[-2]):
            self._parts[-2:] = [self._part(Loose.joined([part.tuples for part in self._parts[-2:]]))]

    def _part(self, tuples: Loose) -> _Part:
        homes = tuples.times // self._length
        distinct, counts = np.unique(homes, return_counts=True)
        return _Part(distinct, np.cumsum(counts), tuples.at(np.argsort(homes, kind="stable")))

    def take(self, limit: int) -> Loose:
        """Take out the tuples of the blocks before `limit`, a multiple of the length."""
        taken, left = [], []
        for part in self._parts:
            cut = int(np.searchsorted(part.homes, limit // self._length))
            end = int(part.ends[cut - 1]) if cut else 0
            taken.append(part.tuples.at(slice(end)))
            if end < len(part):
                left.append(_Part(part.homes[cut:], part.ends[cut:] - end, part.tuples.at(slice(end, None))))
        out = Loose.joined(taken)
        if len(out.rows):
            self._parts, self._all = left, None
        return out

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for p in self._parts for a in (p.homes, p.ends, *p.tuples))
