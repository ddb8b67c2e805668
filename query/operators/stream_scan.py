"""Scans a stream in order of arrival, or in random order."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from promising.index.snapshot import Snapshot
from promising.query.kernels.draw import permuted
from promising.query.operators.operator import Batch, Guess, Operator, Pace, Sampler, Slices


class Scan(Operator):
    """In order of arrival, without those that `taken` has when it begins, which are processed already."""

    def __init__(self, snapshot: Snapshot, pace: Pace, taken: Callable[[], NDArray[np.int64]] | None = None) -> None:
        super().__init__([snapshot], pace)
        self.snapshot = snapshot
        self._taken = taken

    def work(self) -> Slices:
        taken = np.empty(0, np.int64) if self._taken is None else self._taken()
        while self.done < self.snapshot.size:
            last = min(self.done + self.pace(), self.snapshot.size)
            first, stop = np.searchsorted(taken, [self.done, last]).tolist()
            with self.snapshot.holding():
                if first == stop:
                    rows = self.snapshot.rows_in(self.done, last)
                else:
                    rows = np.delete(self.snapshot.rows_between(self.done, last), taken[first:stop] - self.done)
                    rows = rows if self.snapshot.whole else rows[self.snapshot.admitted(rows)]
            self.read += len(rows)
            self.done = last
            yield Batch((rows,))

    def remaining(self) -> Guess:
        return _left(self.snapshot, self.done)


class RandomScan(Sampler):
    """Every tuple of the snapshot, in a uniformly random order fixed by the seed: any prefix is a uniform sample."""

    def __init__(self, snapshot: Snapshot, pace: Pace, seed: int) -> None:
        super().__init__([snapshot], pace)
        self.snapshot = snapshot
        self.seed = np.uint64(seed & ((1 << 64) - 1))
        self._numbers: list[NDArray[np.int64]] = []

    @property
    def nbytes(self) -> int:
        return 8 * self.done

    def work(self) -> Slices:
        while self.done < self.snapshot.size:
            drawn = min(self.pace(), self.snapshot.size - self.done)
            numbers = np.empty(drawn, np.int64)
            permuted(self.done, self.snapshot.size, self.seed, numbers)
            self._numbers.append(numbers)
            batch = self._there(Batch((self.snapshot.rows_at(numbers),), np.arange(self.done, self.done + drawn)))
            self.done += drawn
            yield batch

    def _there(self, batch: Batch) -> Batch:
        """Those that belong to the snapshot."""
        if not self.snapshot.whole:
            with self.snapshot.holding():
                kept = self.snapshot.admitted(batch.rows[0])
            batch = batch.where(kept)
        self.read += len(batch)
        return batch

    def rest(self, worker: Operator) -> tuple[NDArray[np.bool_], float]:
        self._numbers = [np.concatenate(self._numbers)] if self._numbers else [np.empty(0, np.int64)]
        return self._numbers[0] >= worker.done, float(self.snapshot.size - worker.done)

    def remaining(self) -> Guess:
        return _left(self.snapshot, self.done)


def _left(snapshot: Snapshot, done: int) -> Guess:
    left = float(snapshot.size - done)
    return Guess(left, left if snapshot.whole else 0.0, left)
