"""The promising set: entries (key or tuple, region, priority), taken best first."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from promising.index.snapshot import Rows
from promising.query.key_rows import Counts, Hashes
from promising.query.priority_queue import Queue

A = TypeVar("A", bound=np.generic)

ROUGH, READY, ANY = np.uint8(0), np.uint8(1), np.uint8(255)


class PromisingSet:
    """Columns of entries, and a queue of those not yet taken.

    An entry stands for at most `units` tuples of its key, or pairs of such tuples from both sides; `counts[side]` is
    the number of tuples per side. With `row`, it is one tuple. `bands[side]` is the granularity it is confined to, 0
    for none. The priority of a ROUGH entry is an upper bound, that of a READY one is final. Ties go to the lower `tie`.
    """

    def __init__(self, sides: int) -> None:
        self._size = 0
        self._queue = Queue()
        self._hash: Hashes = np.empty(0, np.int64)
        self._row: Rows = np.empty(0, np.int32)
        self._counts: list[Counts] = [np.empty(0, np.int64) for _ in range(sides)]
        self._bands: list[NDArray[np.uint8]] = [np.empty(0, np.uint8) for _ in range(sides)]
        self._units: NDArray[np.int64] = np.empty(0, np.int64)
        self._tie: NDArray[np.int64] = np.empty(0, np.int64)
        self._priority: NDArray[np.float64] = np.empty(0, np.float64)
        self._state: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._show()

    def _show(self) -> None:
        """Expose the filled part of the columns."""
        n = self._size
        self.hash, self.row = self._hash[:n], self._row[:n]
        self.counts, self.bands = [c[:n] for c in self._counts], [b[:n] for b in self._bands]
        self.units, self.tie = self._units[:n], self._tie[:n]
        self.priority, self.state = self._priority[:n], self._state[:n]

    def __len__(self) -> int:
        return self._size

    @property
    def size(self) -> int:
        """Entries not yet taken."""
        return self._queue.size

    @property
    def nbytes(self) -> int:
        return (41 + 9 * len(self._counts)) * len(self._hash) + self._queue.nbytes

    def reserve(self, entries: int) -> None:
        """Allocate room for so many entries; the memory is not touched until they are added."""
        if entries > len(self._hash):
            self._hash, self._row = _wider(self._hash, entries), _wider(self._row, entries)
            self._counts = [_wider(c, entries) for c in self._counts]
            self._bands = [_wider(b, entries) for b in self._bands]
            self._units, self._tie = _wider(self._units, entries), _wider(self._tie, entries)
            self._priority, self._state = _wider(self._priority, entries), _wider(self._state, entries)

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
        first, last = self._size, self._size + len(hashes)
        if last > len(self._hash):
            self.reserve(max(last, 2 * len(self._hash)))
        self._size = last
        self._show()
        self.hash[first:] = hashes
        self.row[first:] = -1 if row is None else row
        self.units[first:] = 1
        for side, count in enumerate(counts):
            self.counts[side][first:] = count
            self.units[first:] *= count
            self.bands[side][first:] = 0 if bands is None else bands[side]
        self.tie[first:] = hashes if tie is None else tie
        self.priority[first:] = priority
        self.state[first:] = state
        self._queue.add(first, last, self.priority, self.tie)

    def forget(self, kept: int) -> None:
        """Drop all but the first `kept` entries."""
        members = self.members()
        self._size = kept
        self._show()
        self._queue = Queue()
        self._queue.push(members[members < kept], self.priority, self.tie)

    def members(self) -> NDArray[np.int32]:
        return self._queue.members()

    def push(self, entries: NDArray[np.int32]) -> None:
        self._queue.push(entries, self.priority, self.tie)

    def pop(self, state: np.uint8, most_units: int, most_entries: int, above: float = np.nan) -> NDArray[np.int32]:
        """Best entries first, while in `state` and over `above` (NaN: no limit); at least one if the best qualifies."""
        columns = (self.priority, self.tie, self.state)
        return self._queue.pop(*columns, state, self.units, most_units, most_entries, above)

    def beyond(self, above: float) -> bool:
        best = self._queue.best(self.priority, self.tie)
        return best is not None and not best <= above

    def take_out(self, state: np.uint8) -> NDArray[np.int32]:
        """Remove all entries in that state, ordered by `tie`."""
        members = self.members()
        chosen = self.state[members] == state
        out, kept = members[chosen], members[~chosen]
        self._queue = Queue()
        self._queue.push(kept, self.priority, self.tie)
        order = np.argsort(self.tie[out], kind="stable")
        return np.ascontiguousarray(out[order])


def _wider(array: NDArray[A], size: int) -> NDArray[A]:
    out = np.empty(size, array.dtype)
    out[: len(array)] = array
    return out
