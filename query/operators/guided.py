"""Join and selection guided by a promising set: entries are processed best first, or sampled uniformly."""

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from promising.query.kernels.pairs import compact, cross, group
from promising.query.key_rows import SLICE, Lists
from promising.query.operators.entry_plan import BAND, EVERY, EntryPlan
from promising.query.operators.key_limit import KeyLimit
from promising.query.operators.operator import Batch, Guess, Operator, Pace, Slices
from promising.query.promising_set import READY

MOST_ENTRIES = 4096  # processed at once
FEW_ENTRIES = 64  # if only some candidates of each are needed


class Guided(Operator):
    """Processes a promising set. In a `hurry`, the keys of the newest tuples are processed before all are listed.

    Candidates of keys that have had all rows of a `limit` count as processed, and are left out.
    """

    def __init__(self, plan: EntryPlan, pace: Pace, *, hurry: bool = False) -> None:
        super().__init__([side.snapshot for side in plan.sides], pace)
        self.plan = plan
        self.hurry = hurry and plan.restrict is None
        self.limit: KeyLimit | None = None

    def work(self) -> Slices:
        yield from self.plan.ready()
        if self.hurry:
            self.plan.enter_newest()
            yield from self._work()
        if not self.plan.planned:
            if self.plan.by_bands:
                yield from self._work_bands()
                return
            yield from self.plan.fill()
        yield from self._work()

    def _work(self, above: float = np.nan) -> Slices:
        """Process entries with priority over `above`; NaN sets no limit."""
        if self.plan.preference is None:
            yield from self._work_all()
            return
        while True:
            if self.limit is not None and self.limit.every:
                ids = self.plan.set.pop(READY, 1 << 62, FEW_ENTRIES, above)
            else:
                ids = self.plan.set.pop(READY, self.pace(), MOST_ENTRIES, above)
            if len(ids):
                yield from self._join(ids)
                continue
            if not self.plan.set.beyond(above):
                return
            yield from self.plan.refine_top(above)
            yield None

    def _work_bands(self) -> Slices:
        """Process frequent keys first: keys not yet listed have fewer than `least` tuples, so are bounded."""
        lister = self.plan.lister
        sizes = yield from self.plan.keys(lister).tallied()
        most = [self.plan.keys(side).postings.most for side in range(len(self.plan.sides))]
        above, top, band = np.cumsum(sizes[::-1])[::-1], EVERY + 1, BAND  # above[n]: keys with n rows or more
        while not self.plan.planned:
            taken = above[top] if top < len(above) else 0
            least = max(int(np.searchsorted(-above, -(taken + band), side="right")) - 1, 1)
            least = min(least, top - 1)
            yield from self.plan.list_keys(lister, least, top - 1)
            top, band = least, 8 * band
            if least == 1:
                self.plan.planned = True
                yield from self._work()
                return
            most[lister] = least - 1
            yield from self._work(self.plan.bound(most))

    def _work_all(self) -> Slices:
        """Process entries in set order, without a preference."""
        members = self.plan.set.members()
        for block in range(0, len(members), SLICE):
            ids = members[block : block + SLICE]
            ends = np.cumsum(self.plan.set.units[ids].astype(np.float64))
            first = 0
            while first < len(ids):
                before = ends[first - 1] if first else 0.0
                last = int(np.searchsorted(ends, before + self.pace(), side="right"))
                last = min(max(last, first + 1), first + MOST_ENTRIES)
                yield from self._join(ids[first:last])
                first = last

    def _join(self, ids: NDArray[np.int32]) -> Slices:
        if self.limit is not None:
            full = self.limit.full(self.plan.set.hash[ids])
            self._pass(ids[full])
            ids = ids[~full]
        lists = []
        for side in range(len(self.plan.sides)):
            lists.append((yield from self.lists(side, ids)))
        if self.limit is not None and self.limit.every:
            lists = self.limit.cut(lists)
        began, before = self.done, self.rank
        if len(lists) == 1:
            rows = lists[0].rows
            ends = np.cumsum(lists[0].counts)
            last = 0
            while last < len(rows):
                at = int(np.searchsorted(ends, last, side="right"))
                if self._full(ids, at):
                    last = int(ends[at])
                    continue
                first, last = last, min(last + self.pace(), len(rows))
                at = int(np.searchsorted(ends, last, side="right"))
                self._reached(ids, before, at, last - int(ends[at - 1] if at else 0))
                self.done = began + last
                yield Batch((rows[first:last],))
        else:
            mine, theirs = lists
            left = int((mine.counts.astype(np.float64) * theirs.counts).sum())
            place = np.zeros(3, np.int64)
            while left > 0 and place[0] < len(ids):
                if self._full(ids, int(place[0])):
                    place[:] = place[0] + 1, 0, 0
                    continue
                room = min(left, self.pace())
                a, b = np.empty(room, np.int32), np.empty(room, np.int32)
                made = cross(
                    mine.starts, mine.counts, theirs.starts, theirs.counts, mine.rows, theirs.rows, place, a, b
                )
                left -= made
                self.done += made
                at = int(place[0])
                reached = int(place[1] * self.plan.set.counts[1][ids[at]] + place[2]) if at < len(ids) else 0
                self._reached(ids, before, at, reached)
                yield Batch((a[:made], b[:made]))
        self.done, self.rank = began, before
        self._pass(ids)
        yield None

    def _pass(self, ids: NDArray[np.int32]) -> None:
        """Count all candidates of these entries as processed."""
        units = self.plan.set.units[ids]
        self.done += int(units.astype(np.float64).sum())
        self.plan.until[ids] = units
        self.rank += len(ids)

    def _full(self, ids: NDArray[np.int32], at: int) -> bool:
        return self.limit is not None and bool(self.limit.full(self.plan.set.hash[ids[at : at + 1]])[0])

    def _reached(self, ids: NDArray[np.int32], before: int, at: int, candidate: int) -> None:
        """Entries before `at` are done, `at` up to a candidate; pair (i, j) of p x q is candidate i * q + j."""
        self.plan.until[ids[:at]] = self.plan.set.units[ids[:at]]
        if at < len(ids):
            self.plan.until[ids[at]] = candidate
        self.rank = before + min(at + 1, len(ids))

    def lists(self, side: int, ids: NDArray[np.int32]) -> Generator[None, None, Lists]:
        if self.plan.preference is not None and self.plan.preference.side == side:
            numbers = np.arange(len(ids))
            self.read += len(ids)
            return Lists(self.plan.set.row[ids], numbers, np.ones(len(ids), np.int64))
        hashes = self.plan.set.hash[ids]
        if self.plan.preference is not None and self.plan.preference.side is not None:  # tuples may share a key
            which, unique = np.empty(len(ids), np.int32), np.empty(len(ids), np.int64)
            unique = unique[: group(hashes, which, unique)]
            lists = yield from self.plan.keys(side).load(unique)
            self.read += len(lists.rows)
            return Lists(lists.rows, lists.starts[which], lists.counts[which])
        lists = yield from self.plan.keys(side).load(hashes)
        self.read += len(lists.rows)
        bands = self.plan.set.bands[side][ids]
        if not bands.any():
            return lists
        with self.plan.sides[side].snapshot.holding():
            kept = self.plan.bands(side, lists.rows) == np.repeat(bands, lists.counts)
        starts, counts, rows = lists.starts.copy(), lists.counts.copy(), np.empty(len(lists.rows), np.int32)
        left = compact(lists.rows, kept, starts, counts, rows)
        return Lists(rows[:left], starts, counts)

    def remaining(self) -> Guess | None:
        if not self.plan.planned:
            return None
        left = max(self.plan.total - self.done, 0.0)
        return Guess(left, left if self.plan.exact else 0.0, left)

    @property
    def entries(self) -> int:
        return self.plan.entries

    @property
    def nbytes(self) -> int:
        return self.plan.nbytes
