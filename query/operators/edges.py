"""Reads the tuples of a stream that its cells say nothing certain about."""

import numpy as np
from numpy.typing import NDArray

from promising.index.snapshot import Snapshot
from promising.query.operators.operator import Batch, Guess, Operator, Pace, Slices

SEARCHED = 1 << 14  # earlier tuples in a slice, of which few are read

Longs = NDArray[np.int64]


class Edges(Operator):
    """In order of arrival: tuples that arrived at `until` or later, and earlier ones dated in one of the disjoint
    ascending ranges from starts[i] to ends[i] - 1. `done` begins with those that cells have `answered`."""

    def __init__(
        self, snapshot: Snapshot, pace: Pace, until: int, starts: Longs, ends: Longs, answered: int = 0
    ) -> None:
        super().__init__([snapshot], pace)
        self.snapshot = snapshot
        self.starts, self.ends = starts, ends
        self.parts = snapshot.parts(until, starts, ends)
        self.left = self.candidates = int((self.parts[:, 1] - self.parts[:, 0]).sum())
        self.done = answered

    @property
    def nbytes(self) -> int:
        return self.parts.nbytes + self.starts.nbytes + self.ends.nbytes

    def work(self) -> Slices:
        for first, last, old in self.parts.tolist():
            at = first
            while at < last:
                stop = min(at + max(self.pace(), SEARCHED if old else 0), last)
                with self.snapshot.holding():
                    rows = self.snapshot.rows_in(at, stop)
                    if old:
                        rows = rows[self.snapshot.dated(rows, self.starts, self.ends)]
                self.read += len(rows)
                self.done += stop - at
                self.left -= stop - at
                at = stop
                yield Batch((rows,))

    def remaining(self) -> Guess:
        return Guess(float(self.left), 0.0, float(self.left))
