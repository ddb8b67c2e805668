"""The promising set: entries (key or tuple, region, priority), taken best first."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from index.snapshot import Rows
from query.kernels import heap as kernels
from query.keys import Counts, Hashes

ROUGH, READY, ANY = np.uint8(0), np.uint8(1), np.uint8(255)


class PromisingSet:
    """Columns of entries and a heap over them; the entry with the highest priority is on top.

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
        self.size = 0

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
        self.hash = np.concatenate((self.hash, hashes))
        self.row = np.concatenate((self.row, np.full(n, -1, np.int32) if row is None else row))
        self.counts = [np.concatenate(pair) for pair in zip(self.counts, counts, strict=True)]
        none = [np.zeros(n, np.int64)] * len(counts)
        self.bands = [np.concatenate(pair) for pair in zip(self.bands, bands or none, strict=True)]
        self.units = np.concatenate((self.units, units))
        self.tie = np.concatenate((self.tie, hashes if tie is None else tie))
        self.priority = np.concatenate((self.priority, priority))
        self.state = np.concatenate((self.state, np.full(n, state, np.uint8)))
        fresh = np.arange(old, old + n, dtype=np.int32)
        if self.size <= n:  # more to add than there is: put all of it in order at once
            self.heap = np.concatenate((self.heap[: self.size], fresh))
            self.size += n
            kernels.heapify(self.heap, self.size, self.priority, self.tie)
        else:
            self.push(fresh)

    def push(self, entries: NDArray[np.int32]) -> None:
        """Put entries back, at the priority they have now."""
        if self.size + len(entries) > len(self.heap):
            grown = np.empty(2 * len(self.heap) + len(entries), np.int32)
            grown[: self.size] = self.heap[: self.size]
            self.heap = grown
        self.size = kernels.push(self.heap, self.size, entries, self.priority, self.tie)

    def pop(self, state: np.uint8, most_units: int, most_entries: int) -> NDArray[np.int32]:
        """The best entries while they are in that state, best first: at least one if the top is."""
        out = np.empty(most_entries, np.int32)
        taken = kernels.pop(
            self.heap, self.size, self.priority, self.tie, self.state, state, self.units, most_units, out
        )
        self.size -= taken
        return out[:taken]

    def take_out(self, state: np.uint8) -> NDArray[np.int32]:
        """Remove all entries in that state, in order of their ties."""
        live = self.heap[: self.size]
        chosen = self.state[live] == state
        out, self.heap = live[chosen], live[~chosen]
        self.size = len(self.heap)
        kernels.heapify(self.heap, self.size, self.priority, self.tie)
        order = np.argsort(self.tie[out], kind="stable")
        return np.ascontiguousarray(out[order])
