"""The tuples of a summary by value bucket, as a snapshot of its stream has them: what a query reads without postings.

A bucket is one region here: the cells of all zones that have it. They are ranked by counts, left out by filters, and
read whole, so neither decides which tuples there are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.errors import TokenExpired
from promising.index.kernels.seal import filter_keys
from promising.index.options import Sizes
from promising.index.sketches import window_counts
from promising.index.snapshot import Rows, Snapshot
from promising.index.summary import SummaryState
from promising.index.summary_index import SummaryIndex
from promising.index.unindexed import BareState
from promising.index.unposted import Unposted, candidates, cells_with
from promising.index.zone import Tuples
from promising.summaries.counts import WindowCounts

Floats = NDArray[np.float64]

FEWEST = 8  # tuples of a cell on average, below which reading cell by cell costs more than building a directory
SLICE = 1 << 14  # tuples read while the stream waits


class CellRows:
    """Call `rows`, `there`, `counts` and `bits` while `snapshot.holding`."""

    def __init__(self, summary: SummaryIndex, snapshot: Snapshot) -> None:
        self.summary = summary
        self.snapshot = snapshot
        self._waiting: tuple[Any, Tuples] = None, Tuples(np.empty(0, np.int32))

    @property
    def covering(self) -> bool:
        """Whether there are no postings, and the cells have every tuple of the snapshot."""
        with self.summary.reading() as state:
            unposted = isinstance(state, SummaryState) and isinstance(state.postings, Unposted)
            return unposted and self._whole(state)

    @property
    def usable(self) -> bool:
        """Whether it pays to read cell by cell all of the tuples, which are in memory and in cells."""
        with self.summary.reading() as state:
            if not isinstance(state, SummaryState) or not self.covering or not self.snapshot.in_memory:
                return False
            zones = self._zones(state)
            return self.snapshot.size >= FEWEST * state.identity.sizes.buckets * len(zones)

    @property
    def sizes(self) -> Sizes:
        return self.summary.state.identity.sizes

    def _whole(self, state: SummaryState | BareState) -> bool:
        return state.oldest <= self.snapshot.earliest

    def _state(self) -> SummaryState:
        state = self.summary.state
        if self.summary.dropped or not isinstance(state, SummaryState) or not self._whole(state):
            raise TokenExpired(
                f"summary {self.summary.name!r} was dropped, or no longer has all tuples that this answer needs; ask"
                " again"
            )
        return state

    def _zones(self, state: SummaryState) -> list["_Zone"]:
        """The sealed zones with tuples of the window."""
        start, end, fine = self.snapshot.start, self.snapshot.end, state.fine
        sealed = (z for block in fine.blocks.values() for z in block.zones)
        found = [_Zone(z.tuples, fine.pool.cells[z.slot]) for z in sealed if z.first < end and z.last >= start]
        coarse = (z for zones in state.coarse.levels.values() for z in zones.values())
        return found + [_Zone(z.tuples, z.cells) for z in coarse if z.first < end and z.last >= start]

    def _loose(self, state: SummaryState) -> Tuples:
        """The tuples in no sealed zone, as one; they change with arrivals and the watermark only."""
        now = state, self.snapshot.grown, state.watermark
        if self._waiting[0] != now:
            fine = state.fine
            parts = [fine.open_rows, *(ahead.rows for ahead in fine.ahead.zones())]
            rows = np.concatenate([*parts, *(block.waiting()[1] for block in fine.blocks.values())])
            self._waiting = now, Tuples(rows)
        return self._waiting[1]

    def sort(self) -> Iterator[None]:
        """Sort the zones by bucket, each once in its life, in slices."""
        with self.snapshot.holding():
            state = self._state()
            left = [zone for zone in self._zones(state) if zone.tuples.starts is None]
            given = state.identity.sizes, state.hashes, SLICE
            parts = [zone.tuples.sorting(zone.cells.copy(), *given) for zone in left]
        for part in parts:
            more = True
            while more:
                with self.snapshot.holding():
                    more = next(part, part) is None
                yield

    def _cell(self, state: SummaryState, tuples: Tuples, bucket: int) -> Rows:
        return tuples.cell(bucket, state.identity.sizes, state.hashes)

    def rows(self, bucket: int) -> Rows:
        """The tuples in this bucket; of zones across the edges of the window, all: `there` leaves those out."""
        state = self._state()
        cells = [self._cell(state, zone.tuples, bucket) for zone in self._zones(state) if zone.cells[bucket]]
        return np.concatenate([*cells, self._cell(state, self._loose(state), bucket)])

    def there(self, rows: Rows) -> Rows:
        """Those of `rows` that are in the snapshot."""
        everything = self.snapshot.everything and not self.snapshot.grown
        return rows if everything else rows[self.snapshot.admitted(rows)]

    def with_keys(self, hashes: NDArray[np.int64]) -> Iterator[Rows]:
        """The tuples of the snapshot in cells that may hold one of the keys, in slices; called without the lock."""
        with self.snapshot.holding():
            state = self._state()
            cells = cells_with(state, hashes, self.snapshot.start, self.snapshot.end)
            reading = candidates(cells, state.identity.sizes, state.hashes, SLICE)
        while True:
            with self.snapshot.holding():
                rows = next(reading, None)
                if rows is None:
                    return
                rows = rows[self.snapshot.admitted(rows)]
            yield rows

    def counts(self) -> NDArray[np.int64]:
        """Tuples by bucket, those of zones across the edges of the window included."""
        state = self._state()
        self._cell(state, self._loose(state), 0)
        starts = self._loose(state).starts
        assert starts is not None  # it is sorted
        out: NDArray[np.int64] = np.sum([np.diff(starts), *(z.cells for z in self._zones(state))], axis=0)
        return out

    def window_counts(self) -> WindowCounts | None:
        """The counts of its key."""
        return window_counts(self.summary, (self.snapshot.start, self.snapshot.end))

    def bits(self) -> NDArray[np.uint8]:
        """A filter of all keys in each bucket, [bucket][byte]."""
        state = self._state()
        sizes, start, end = state.identity.sizes, self.snapshot.start, self.snapshot.end
        out = np.zeros(sizes.buckets * sizes.coarse_slots // 8, np.uint8)
        for block in state.fine.blocks.values():
            out |= block.whole.bits
        for zones in state.coarse.levels.values():
            for zone in zones.values():
                if zone.first < end and zone.last >= start:
                    out |= zone.bits
        loose = state.hashes(self._loose(state).rows)
        filter_keys(loose, sizes.shift, sizes.probes, Sizes.lg(sizes.coarse_slots), out)
        return out.reshape(sizes.buckets, -1)


@dataclass(frozen=True)
class _Zone:
    tuples: Tuples
    cells: NDArray[np.int64]  # tuples by bucket


def promise(sides: list[CellRows]) -> Floats:
    """The estimated output of each bucket: of one side, the sum of squared counts; of two, pairs with equal keys."""
    counts = [side.window_counts() for side in sides]
    a, b = counts[0], counts[-1]
    found = a.kind.pairs(a, b) if a is not None and b is not None and a.kind.same(b.kind) else None
    return np.zeros(sides[0].sizes.buckets) if found is None else found


def meeting(sides: list[CellRows], bits: list[NDArray[np.uint8]]) -> NDArray[np.bool_]:
    """The buckets in which some key may be on every side, by the `bits` of each."""
    if bits[0].shape != bits[-1].shape or sides[0].sizes.probes != sides[-1].sizes.probes:
        return np.ones(len(bits[0]), np.bool_)
    found: NDArray[np.bool_] = np.bitwise_and.reduce(bits).any(axis=1)
    return found
