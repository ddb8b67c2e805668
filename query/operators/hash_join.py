"""The join without a preference: one side is scanned in order of arrival, the other is looked up by key."""

import numpy as np

from promising.index.snapshot import Snapshot
from promising.query.kernels.pairs import cross, group
from promising.query.key_rows import SLICE, Hasher, Keys
from promising.query.operators.operator import Batch, Guess, Operator, Pace, Slices


class HashJoin(Operator):
    """All pairs with equal keys: scans the `probe` side; looks up the other in a summary's postings, or builds them."""

    def __init__(
        self, snapshots: list[Snapshot], probe: int, hashers: list[Hasher], keys: Keys | None, pace: Pace
    ) -> None:
        super().__init__(snapshots, pace)
        self.probe = probe
        self.hashers = hashers
        self.keys = keys
        self.position = 0
        self._looked_up = 0  # bytes of the rows of the current keys
        self._finished = False

    @property
    def nbytes(self) -> int:
        return self._looked_up + (0 if self.keys is None else self.keys.held)

    def work(self) -> Slices:
        looked_up = self.snapshots[1 - self.probe]
        if self.keys is None:
            self.keys = Keys.empty(looked_up, self.hashers[1 - self.probe])
            yield from self.keys.fill()
        snapshot = self.snapshots[self.probe]
        while self.position < snapshot.size:
            last = min(self.position + min(SLICE, 4 * self.pace()), snapshot.size)
            with snapshot.holding():
                rows = snapshot.rows_in(self.position, last)
                hashes, missing = self.hashers[self.probe](rows)
            if missing is not None:
                hashes, rows = hashes[~missing], rows[~missing]
            which = np.empty(len(rows), np.int32)
            unique = np.empty(len(rows), np.int64)
            unique = unique[: group(hashes, which, unique)]
            lists = yield from self.keys.load(unique)
            starts, counts = lists.starts[which], lists.counts[which]
            self.read += len(rows) + len(lists.rows)
            self._looked_up = lists.rows.nbytes
            self.position = last
            left = int(counts.astype(np.float64).sum())
            ones, numbers = np.ones(len(rows), np.int64), np.arange(len(rows))
            place = np.zeros(3, np.int64)
            while left:
                room = min(left, self.pace())
                mine, theirs = np.empty(room, np.int32), np.empty(room, np.int32)
                made = cross(numbers, ones, starts, counts, rows, lists.rows, place, mine, theirs)
                left -= made
                self.done += made
                pair = (mine[:made], theirs[:made])
                yield Batch(pair if self.probe == 0 else pair[::-1])
            yield None
        self._finished = True

    def remaining(self) -> Guess | None:
        if self._finished:
            return Guess(0.0, 0.0, 0.0)
        if not self.position:
            return None
        mine, other = self.snapshots[self.probe].size, self.snapshots[1 - self.probe].size
        left = mine - self.position
        return Guess(self.done / self.position * left, 0.0, float(left + SLICE) * other)
