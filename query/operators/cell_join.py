"""Join and selection by cells, without postings: bucket by bucket, joined exactly inside.

Equal keys fall into one bucket on every side. A bucket is read whole, and its directory is small enough for the caches.
"""

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from promising.index.cell_rows import SLICE, CellRows, meeting, promise
from promising.index.snapshot import Rows
from promising.query.kernels.pairs import cross, gather, group, match
from promising.query.key_rows import Hashes, Lists
from promising.query.operators.operator import Batch, Guess, Operator, Pace, Slices
from promising.query.preference import BoundPreference, exact_counts

Longs = NDArray[np.int64]


class CellJoin(Operator):
    """With a preference, the buckets of most estimated output a tuple come first, and in a bucket the keys of the
    highest priority, which is exact. Its entries are buckets."""

    def __init__(
        self,
        cells: list[CellRows],
        attributes: list[str],
        preference: BoundPreference | None,
        pace: Pace,
    ) -> None:
        super().__init__([side.snapshot for side in cells], pace)
        self.cells = cells
        self.attributes = attributes
        self.preference = preference
        self._order: Longs | None = None  # buckets
        self._expected = np.zeros(0)  # candidates of each bucket, in that order
        self._most = np.zeros(0)
        self._opened = 0  # buckets whose candidates are known
        self._inside = 0.0  # candidates left of the last of them
        self._held = 0

    @property
    def entries(self) -> int:
        return 0 if self._order is None else len(self._order)

    @property
    def nbytes(self) -> int:
        return self._held

    def work(self) -> Slices:
        for side in self.cells:
            for _ in side.sort():
                yield None
        yield from self._rank()
        assert self._order is not None
        for bucket in self._order.tolist():
            yield from self._join(bucket)
            self.rank += 1
        self._held = 0

    def _rank(self) -> Generator[None, None, None]:
        counts, met = [], []
        for side, snapshot in zip(self.cells, self.snapshots, strict=True):
            with snapshot.holding():
                counts.append(side.counts())
                met.append(side.bits())
            yield
        there = meeting(self.cells, met)
        order = np.flatnonzero(there & np.logical_and.reduce([c > 0 for c in counts]))
        output = promise(self.cells)
        yield
        if self.preference is not None:
            order = order[np.argsort(-output[order] / np.sum(counts, axis=0)[order], kind="stable")]
        most = np.prod([c.astype(np.float64) for c in counts], axis=0)
        self._most = most[order]
        self._expected = np.minimum(output[order] if len(counts) > 1 else most[order], self._most)
        self._order = order

    def _join(self, bucket: int) -> Slices:
        hashes, lists = [], []
        for number, side in enumerate(self.cells):
            with side.snapshot.holding():
                listed = side.rows(bucket)
            rows, found = [listed[:0]], [np.empty(0, np.int64)]
            for first in range(0, len(listed), SLICE):
                yield None
                with side.snapshot.holding():
                    rows.append(side.there(listed[first : first + SLICE]))
                    found.append(side.snapshot.hashes(self.attributes[number], rows[-1]))
            keys, one = _by_key(np.concatenate(found), np.concatenate(rows))
            self.read += len(one.rows)
            hashes.append(keys)
            lists.append(one)
            yield None
        self._held = sum(one.rows.nbytes + 24 * len(one.counts) for one in lists)
        lists = _common(hashes, lists)
        if self.preference is not None:
            order = np.argsort(-self._priorities(self.preference, [one.counts for one in lists]))
            lists = [Lists(one.rows, one.starts[order], one.counts[order]) for one in lists]
        yield from self._candidates(lists)

    def _candidates(self, lists: list[Lists]) -> Slices:
        if len(lists) == 1:
            (one,) = lists
            self._open(int(one.counts.sum()))
            within = np.arange(int(one.counts.sum())) - np.repeat(np.cumsum(one.counts) - one.counts, one.counts)
            rows = one.rows[np.repeat(one.starts, one.counts) + within]
            first = 0
            while first < len(rows):
                last = min(first + self.pace(), len(rows))
                self.done += last - first
                self._inside = float(len(rows) - last)
                yield Batch((rows[first:last],))
                first = last
            return
        mine, theirs = lists
        left = int((mine.counts.astype(np.float64) * theirs.counts).sum())
        self._open(left)
        place = np.zeros(3, np.int64)
        while left > 0:
            room = min(left, self.pace())
            a, b = np.empty(room, np.int32), np.empty(room, np.int32)
            made = cross(mine.starts, mine.counts, theirs.starts, theirs.counts, mine.rows, theirs.rows, place, a, b)
            left -= made
            self.done += made
            self._inside = float(left)
            yield Batch((a[:made], b[:made]))

    def _open(self, candidates: int) -> None:
        self._opened += 1
        self._inside = float(candidates)

    def _priorities(self, preference: BoundPreference, counts: list[Longs]) -> NDArray[np.float64]:
        known: dict[tuple[int, str | None], Longs] = {
            (number, attribute): counts[number] for number, attribute in enumerate(self.attributes)
        }
        columns = exact_counts(preference.estimates, known)
        return preference.priority(preference.value(columns, len(counts[0])))

    def remaining(self) -> Guess | None:
        if self._order is None:
            return None
        left, at = self._inside, self._opened
        return Guess(left + float(self._expected[at:].sum()), left, left + float(self._most[at:].sum()))


def _by_key(hashes: Hashes, rows: Rows) -> tuple[Hashes, Lists]:
    """The distinct keys, and the rows of each in the order given."""
    which, unique = np.empty(len(rows), np.int32), np.empty(len(rows), np.int64)
    unique = unique[: group(hashes, which, unique)]
    counts, ordered = np.zeros(len(unique), np.int64), np.empty(len(rows), np.int32)
    gather(which, rows, counts, ordered)
    return unique, Lists(ordered, np.cumsum(counts) - counts, counts)


def _common(hashes: list[Hashes], lists: list[Lists]) -> list[Lists]:
    """The rows of the keys that are on every side."""
    if len(lists) == 1:
        return lists
    mine, theirs = (np.empty(len(hashes[0]), np.int32) for _ in range(2))
    found = match(hashes[1], hashes[0], theirs, mine)
    places = (mine[:found], theirs[:found])
    return [Lists(one.rows, one.starts[at], one.counts[at]) for one, at in zip(lists, places, strict=True)]
