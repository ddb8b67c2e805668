"""A priority queue most of whose entries are never reached: the best are in a heap, the rest in an unordered pool."""

import numpy as np
from numpy.typing import NDArray

from promising.query.kernels import heap as kernels

FIRST = 4096  # entries moved to the heap at first; doubles each time
SAMPLED = 4096  # entries sampled to choose the next border

Numbers = NDArray[np.int32]


class Queue:
    """Entry numbers by descending priority, then ascending `tie`.

    The caller owns the arrays; it may enlarge them, and change the priority of an entry that is out of the queue. All
    entries of the pool rank after the border (`least`, `last`).
    """

    def __init__(self) -> None:
        self.heap: Numbers = np.empty(FIRST, np.int32)
        self.heaped = np.zeros(1, np.int64)
        self.pooled: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.waiting = 0
        self.least, self.last = np.inf, -(1 << 63)
        self._next = FIRST

    @property
    def size(self) -> int:
        return int(self.heaped[0]) + self.waiting

    @property
    def nbytes(self) -> int:
        return self.heap.nbytes + self.pooled.nbytes

    def members(self) -> Numbers:
        pooled = np.flatnonzero(self.pooled).astype(np.int32)
        return np.concatenate((self.heap[: self.heaped[0]], pooled)) if self.heaped[0] else pooled

    def add(self, first: int, last: int, priority: NDArray[np.float64], tie: NDArray[np.int64]) -> None:
        """Add the new entries `first` to `last`, exclusive."""
        if last > len(self.pooled):
            grown = np.zeros(max(last, 2 * len(self.pooled)), np.uint8)
            grown[: len(self.pooled)] = self.pooled
            self.pooled = grown
        mine, ties = priority[first:last], tie[first:last]
        early = (mine > self.least) | ((mine == self.least) & (ties <= self.last))
        self.pooled[first:last] = ~early
        self.waiting += int(last - first - early.sum())
        if early.any():
            self.push(np.flatnonzero(early).astype(np.int32) + np.int32(first), priority, tie)

    def keep(self, entries: Numbers) -> None:
        """Retain only these entries; none may have been taken yet."""
        chosen = np.zeros(len(self.pooled), np.uint8)
        chosen[entries] = 1
        self.pooled &= chosen
        self.waiting = len(entries)

    def push(self, entries: Numbers, priority: NDArray[np.float64], tie: NDArray[np.int64]) -> None:
        """Put entries back at their current priority."""
        held = int(self.heaped[0])
        if held + len(entries) > len(self.heap):
            grown = np.empty(2 * (held + len(entries)), np.int32)
            grown[:held] = self.heap[:held]
            self.heap = grown
        if len(entries) > held:
            self.heap[held : held + len(entries)] = entries
            self.heaped[0] = held + len(entries)
            kernels.heapify(self.heap, self.heaped[0], priority, tie)
        else:
            self.heaped[0] = kernels.push(self.heap, held, entries, priority, tie)

    def ready(self, priority: NDArray[np.float64], tie: NDArray[np.int64]) -> bool:
        """Ensure that the best entry is on top of the heap; False if the queue is empty."""
        while self.waiting:
            if self.heaped[0]:
                top = self.heap[0]
                if priority[top] > self.least or (priority[top] == self.least and tie[top] <= self.last):
                    return True
            self._move_border(priority, tie)
        if self.heaped[0]:
            self.least, self.last = -np.inf, (1 << 63) - 1
        return bool(self.heaped[0])

    def best(self, priority: NDArray[np.float64], tie: NDArray[np.int64]) -> float | None:
        return float(priority[self.heap[0]]) if self.ready(priority, tie) else None

    def _move_border(self, priority: NDArray[np.float64], tie: NDArray[np.int64]) -> None:
        """Move the best of the pool into the heap: about `_next` entries, judged by a sample."""
        used = min(len(self.pooled), len(priority))
        least, last = -np.inf, (1 << 63) - 1
        if self.waiting > 4 * self._next:
            step = max(used // (SAMPLED * max(used // self.waiting, 1)), 1)
            sample = np.arange(0, used, step)
            sample = sample[self.pooled[sample] != 0]
            order = np.lexsort((tie[sample], -priority[sample]))
            at = sample[order[min(len(sample) * self._next // self.waiting, len(sample) - 1)]] if len(sample) else None
            if at is not None:
                least, last = float(priority[at]), int(tie[at])
        self.least, self.last = least, last
        out = np.empty(self.waiting, np.int32)
        taken = kernels.sort_out(priority, tie, self.pooled, used, least, last, out)
        self.waiting -= taken
        self._next *= 2
        self.push(out[:taken], priority, tie)

    def pop(
        self,
        priority: NDArray[np.float64],
        tie: NDArray[np.int64],
        state: NDArray[np.uint8],
        wanted: np.uint8,
        units: NDArray[np.int64],
        most_units: int,
        most_entries: int,
        above: float,
    ) -> Numbers:
        """Best entries first, while `wanted` and over `above` (NaN: no limit); at least one if the best qualifies."""
        out = np.empty(most_entries, np.int32)
        if not self.ready(priority, tie):
            return out[:0]
        rest = (state, wanted, units, most_units, self.least, self.last, above)
        taken = kernels.pop(self.heap, self.heaped[0], priority, tie, *rest, out)
        self.heaped[0] -= taken
        return out[:taken]
