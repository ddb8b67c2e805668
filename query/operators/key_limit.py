"""LIMIT n BY the key of a promising set: an entry ends with the n rows of its key."""

import numpy as np
from numpy.typing import NDArray

from promising.index.snapshot import Rows, Snapshot
from promising.query.key_rows import Hasher, Hashes, Lists
from promising.query.limit_by import RowsByValue


class KeyLimit:
    """Counts rows by the hash of their key, which must be different for different keys: integers, not strings.

    every: each candidate is a row of the answer, because the query has no further conditions.
    """

    def __init__(self, side: int, snapshot: Snapshot, hasher: Hasher, most: int, *, every: bool) -> None:
        self.rows = RowsByValue(1, most)
        self.every = every
        self._side = side
        self._snapshot = snapshot
        self._hasher = hasher

    def admit(self, rows: tuple[Rows, ...]) -> NDArray[np.bool_]:
        with self._snapshot.holding():
            hashes, _ = self._hasher(rows[self._side])
        return self.rows.admit(np.ascontiguousarray(hashes).reshape(1, -1))

    def full(self, hashes: Hashes) -> NDArray[np.bool_]:
        """The keys that have had all their rows."""
        return self.rows.full(np.ascontiguousarray(hashes).reshape(1, -1))

    def cut(self, lists: list[Lists]) -> list[Lists]:
        """The rows needed for the first candidates of each key: `most` of them or a few more."""
        most = self.rows.most
        if len(lists) == 1:
            (one,) = lists
            within = np.arange(len(one.rows)) - np.repeat(one.starts, one.counts)
            counts = np.minimum(one.counts, most)
            return [Lists(one.rows[within < most], np.cumsum(counts) - counts, counts)]
        mine, theirs = lists
        few = -(-most // np.maximum(theirs.counts, 1))  # of my rows, that make as many pairs
        return [
            Lists(mine.rows, mine.starts, np.minimum(mine.counts, few)),
            Lists(theirs.rows, theirs.starts, np.minimum(theirs.counts, most)),
        ]
