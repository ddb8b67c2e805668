"""The counts of a summary's key over a window."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.index.edges import inside
from promising.index.regions import Window, check_window
from promising.index.summary import SummaryState
from promising.index.summary_index import SummaryIndex
from promising.index.zone import CoarseZone, FineZone, distinct
from promising.summaries.counts import WindowCounts


def window_counts(summary: SummaryIndex, window: Window) -> WindowCounts | None:
    """Adds up whole blocks and coarse zones; a block across an edge zone by zone. None without structure."""
    start, end = check_window(window)
    with summary.reading() as state:
        return _Sum(state, start, end).result() if isinstance(state, SummaryState) else None


class _Sum:
    def __init__(self, state: SummaryState, start: int, end: int) -> None:
        self.state = state
        self.kind = state.identity.sizes.counts
        self.start, self.end = max(start, state.oldest), end
        self.inside, self.across = (self.kind.allocate(1, "window") for _ in range(2))
        self.tuples = self.covered = 0.0

    def result(self) -> WindowCounts:
        fine = self.state.fine
        for block in fine.blocks.values():
            whole = block.whole
            if whole.first >= self.start and whole.last < self.end:
                self.kind.merge(self.inside, 0, whole.counts, 0)
            else:
                for zone in block.zones:
                    self._add(zone, fine.pool.counts, zone.slot)
            if block.aside:
                self._loose(*block.waiting())
        for ahead in fine.ahead.zones():
            self._loose(ahead.hashes, ahead.rows)
        if len(fine.open_rows):
            log, identity = self.state.log, self.state.identity
            self._loose(log.hashes(identity.key, fine.open_rows, self.state.seed), fine.open_rows)
        for zones in self.state.coarse.levels.values():
            for coarse in zones.values():
                self._add(coarse, coarse.counts, 0)
        share = self.covered / self.tuples if self.tuples else 0.0
        return WindowCounts(self.kind, self.inside, self.across, share)

    def _add(self, zone: FineZone | CoarseZone, counts: Any, at: int) -> None:
        if zone.first >= self.end or zone.last < self.start:
            return
        if zone.first >= self.start and zone.last < self.end:
            self.kind.merge(self.inside, 0, counts, at)
            return
        self.kind.merge(self.across, 0, counts, at)
        self.tuples += zone.count
        self.covered += zone.count * inside(self.state.log, zone, self.start, self.end).share

    def _loose(self, hashes: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Add tuples in no zone yet: each is in the window or not."""
        keys, counts = distinct(hashes[self.state.log.between(rows, self.start, self.end)])
        loose = self.kind.allocate(1)
        self.kind.insert(loose, 0, keys, counts, np.zeros(self.kind.buckets, np.int64))
        self.kind.merge(self.inside, 0, loose, 0)
