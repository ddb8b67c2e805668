"""The count-sketch of a summary over a window."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from promising.index.edges import inside
from promising.index.kernels.seal import sketch_keys
from promising.index.options import Sizes
from promising.index.regions import Window, check_window
from promising.index.summary import SummaryState
from promising.index.summary_index import SummaryIndex
from promising.index.zone import CoarseZone, FineZone, distinct

Counters = NDArray[np.float64]


@dataclass(frozen=True)
class Sketched:
    """Counters [bucket][row][column] inside the window, and of zones across its edges: in full, and the likely part."""

    inside: Counters
    across: Counters
    likely: Counters


def window_sketch(summary: SummaryIndex, window: Window) -> Sketched | None:
    """Adds up whole blocks and coarse zones; a block across an edge zone by zone. None without structure."""
    start, end = check_window(window)
    with summary.reading() as state:
        return _Sum(state, start, end).result() if isinstance(state, SummaryState) else None


class _Sum:
    def __init__(self, state: SummaryState, start: int, end: int) -> None:
        self.state = state
        self.sizes: Sizes = state.identity.sizes
        self.start, self.end = max(start, state.oldest), end
        self.inside = np.zeros(self.sizes.counters, np.int64)
        self.across = np.zeros(self.sizes.counters, np.int64)
        self.likely = np.zeros(self.sizes.counters, np.float64)

    def result(self) -> Sketched:
        fine = self.state.fine
        for block in fine.blocks.values():
            whole = block.whole
            if whole.first >= self.start and whole.last < self.end:
                self.inside += whole.counters
            else:
                for zone in block.zones:
                    self._add(zone, fine.pool.counters[zone.slot])
            if block.aside:
                self._loose(*block.waiting())
        for ahead in fine.ahead.zones():
            self._loose(ahead.hashes, ahead.rows)
        if len(fine.open_rows):
            log, identity = self.state.log, self.state.identity
            self._loose(log.hashes(identity.key, fine.open_rows, self.state.seed), fine.open_rows)
        for zones in self.state.coarse.levels.values():
            for coarse in zones.values():
                self._add(coarse, coarse.counters)
        shape = (self.sizes.buckets, self.sizes.depth, self.sizes.width)
        return Sketched(*(c.astype(np.float64).reshape(shape) for c in (self.inside, self.across, self.likely)))

    def _add(self, zone: FineZone | CoarseZone, counters: NDArray[np.int16] | NDArray[np.int32]) -> None:
        if zone.first >= self.end or zone.last < self.start:
            return
        if zone.first >= self.start and zone.last < self.end:
            self.inside += counters
            return
        self.across += counters
        self.likely += inside(self.state.log, zone, self.start, self.end).share * counters

    def _loose(self, hashes: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Add tuples in no zone yet: each is in the window or not."""
        keys, counts = distinct(hashes[self.state.log.between(rows, self.start, self.end)])
        counters, cells = np.zeros(self.sizes.counters, np.int32), np.zeros(self.sizes.buckets, np.int64)
        sizes = self.sizes
        sketch_keys(keys, counts, sizes.shift, sizes.depth, Sizes.lg(sizes.width), counters, cells)
        self.inside += counters
