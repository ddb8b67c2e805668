"""The promising set: entries (key or tuple, region, priority), taken best first."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from index.snapshot import Rows
from query.kernels import heap as kernels
from query.keys import Counts, Hashes

A = TypeVar("A", bound=np.generic)

ROUGH, READY, ANY = np.uint8(0), np.uint8(1), np.uint8(255)
REFILL = 4096  # entries put in order at first; then twice as many each time


class PromisingSet:
    """Columns of entries, the best of them in a heap, the others in a pool until their turn comes near.

    An entry stands for `units` at most: the tuples of its key, or the pairs that tuples of its key on both sides make.
    `counts[side]` is how many tuples there are on each. With `row` the entry is one tuple. `bands[side]` is the
    granularity it is confined to, 0 for none. The priority of a ROUGH entry is the best it can turn out to have; that
    of a READY one is final. Ties go to the lower `tie`.
    """

    def __init__(self, sides: int) -> None:
        self.hash: Hashes = np.empty(0, np.int64)
        self.row: Rows = np.empty(0, np.int32)
        self.counts: list[Counts] = [np.empty(0, np.int64) for _ in range(sides)]
        self.bands: list[NDArray[np.int64]] = [np.empty(0, np.int64) for _ in range(sides)]
        self.units: NDArray[np.int64] = np.empty(0, np.int64)
        self.tie: NDArray[np.int64] = np.empty(0, np.int64)
        self.priority: NDArray[np.float64] = np.empty(0, np.float64)
        self.state: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.heap: NDArray[np.int32] = np.empty(0, np.int32)
        self._heaped = 0
        self._pool: NDArray[np.int32] = np.empty(0, np.int32)
        self._best_pooled = -np.inf
        self._refill = REFILL

    def __len__(self) -> int:
        return len(self.hash)

    def add(
        self,
        hashes: Hashes,
        counts: Sequence[Counts],
        priority: NDArray[np.float64],
        state: np.uint8,
        *,
        row: Rows | None = None,
        tie: NDArray[np.int64] | None = None,
        bands: Sequence[NDArray[np.int64]] | None = None,
    ) -> None:
        """Add entries, all in one state."""
        n, old = len(hashes), len(self)
        units = counts[0].copy()
        for more in counts[1:]:
            units *= more
        none = np.zeros(n, np.int64)
        self.hash = _joined(self.hash, hashes)
        self.row = _joined(self.row, np.full(n, -1, np.int32) if row is None else row)
        self.counts = [_joined(*pair) for pair in zip(self.counts, counts, strict=True)]
        self.bands = [_joined(*pair) for pair in zip(self.bands, bands or [none] * len(counts), strict=True)]
        self.units = _joined(self.units, units)
        self.tie = _joined(self.tie, hashes if tie is None else tie)
        self.priority = _joined(self.priority, priority)
        self.state = _joined(self.state, np.full(n, state, np.uint8))
        self._pool = _joined(self._pool, np.arange(old, old + n, dtype=np.int32))
        self._best_pooled = max(self._best_pooled, float(priority.max(initial=-np.inf)))

    @property
    def size(self) -> int:
        """Entries not taken yet."""
        return self._heaped + len(self._pool)

    @property
    def live(self) -> NDArray[np.int32]:
        """Entries not taken yet, in no particular order."""
        return np.concatenate((self.heap[: self._heaped], self._pool))

    def push(self, entries: NDArray[np.int32]) -> None:
        """Put entries back, at the priority they have now."""
        if self._heaped + len(entries) > len(self.heap):
            grown = np.empty(2 * len(self.heap) + len(entries), np.int32)
            grown[: self._heaped] = self.heap[: self._heaped]
            self.heap = grown
        self._heaped = kernels.push(self.heap, self._heaped, entries, self.priority, self.tie)

    def pop(self, state: np.uint8, most_units: int, most_entries: int) -> NDArray[np.int32]:
        """The best entries while they are in that state, best first: at least one if the best is."""
        out = np.empty(most_entries, np.int32)
        while True:
            if len(self._pool) and (not self._heaped or self.priority[self.heap[0]] <= self._best_pooled):
                self._sort_out()
            columns = (self.priority, self.tie, self.state)
            floor = self._best_pooled if len(self._pool) else -np.inf
            taken = kernels.pop(self.heap, self._heaped, *columns, state, self.units, most_units, floor, out)
            self._heaped -= taken
            if taken or not len(self._pool) or self.priority[self.heap[0]] > self._best_pooled:
                return out[:taken]

    def _sort_out(self) -> None:
        """Move the best of the pool to the heap: few queries want all entries in order, so most are left unordered."""
        pooled = self.priority[self._pool]
        if len(pooled) <= 2 * self._refill:
            chosen = np.ones(len(pooled), np.bool_)
        else:
            last = len(pooled) - self._refill
            chosen = pooled >= np.partition(pooled, last)[last]  # ties with the last one included
        self._refill *= 2
        best, self._pool = self._pool[chosen], self._pool[~chosen]
        self._best_pooled = float(pooled[~chosen].max(initial=-np.inf))
        if len(best) < self._heaped:
            self.push(best)
            return
        self.heap = np.concatenate((self.heap[: self._heaped], best))
        self._heaped = len(self.heap)
        kernels.heapify(self.heap, self._heaped, self.priority, self.tie)

    def take_out(self, state: np.uint8) -> NDArray[np.int32]:
        """Remove all entries in that state, in order of their ties."""
        live = self.live
        chosen = self.state[live] == state
        out, self._pool = live[chosen], live[~chosen]
        self._heaped = 0
        self._best_pooled = float(self.priority[self._pool].max(initial=-np.inf))
        order = np.argsort(self.tie[out], kind="stable")
        return np.ascontiguousarray(out[order])


def _joined(old: NDArray[A], new: NDArray[A]) -> NDArray[A]:
    return np.concatenate((old, new)) if len(old) else new
