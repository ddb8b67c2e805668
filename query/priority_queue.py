"""A priority queue over entries that are mostly never reached: the best are in a heap, the others wait unordered."""

import numpy as np
from numpy.typing import NDArray

from promising.query.kernels import heap as kernels

FIRST = 4096  # entries put in order at first; then twice as many each time
SAMPLED = 4096  # entries looked at to choose which come next

Numbers = NDArray[np.int32]


class Queue:
    """Numbers of entries, the highest priority first, ties by the lower `tie`.

    The arrays belong to the caller, who may enlarge them, and may change the priority of an entry while it is out of
    the queue. Everything in the pool comes after the border (`least`, `last`); heap and pool together are the queue.
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

    def members(self) -> Numbers:
        """All entries, in no particular order."""
        pooled = np.flatnonzero(self.pooled).astype(np.int32)
        return np.concatenate((self.heap[: self.heaped[0]], pooled)) if self.heaped[0] else pooled

    def add(self, first: int, last: int, priority: NDArray[np.float64], tie: NDArray[np.int64]) -> None:
        """Entries first..last, which are new."""
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
        """Of a queue that nothing was taken from yet, only these."""
        chosen = np.zeros(len(self.pooled), np.uint8)
        chosen[entries] = 1
        self.pooled &= chosen
        self.waiting = len(entries)

    def push(self, entries: Numbers, priority: NDArray[np.float64], tie: NDArray[np.int64]) -> None:
        """Put entries back, wherever they now belong."""
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
        """See to it that the best entry is on top of the heap; False if there is none."""
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
        """The highest priority there is; None if nothing is left."""
        return float(priority[self.heap[0]]) if self.ready(priority, tie) else None

    def _move_border(self, priority: NDArray[np.float64], tie: NDArray[np.int64]) -> None:
        """Let the next best of the pool into the heap: about as many as `_next`, judged by a sample."""
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
        """The best entries while they are in the state wanted and their priority is over `above`, best first: at least
        one if the best is such an entry; NaN sets no limit."""
        out = np.empty(most_entries, np.int32)
        if not self.ready(priority, tie):
            return out[:0]
        rest = (state, wanted, units, most_units, self.least, self.last, above)
        taken = kernels.pop(self.heap, self.heaped[0], priority, tie, *rest, out)
        self.heaped[0] -= taken
        return out[:taken]
