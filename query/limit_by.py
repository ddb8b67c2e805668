"""LIMIT n BY: how many rows of each value an answer has had."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import Overflow
from promising.query.aggregate.grouping import GroupKeys, GroupTable, Words
from promising.query.bound import LimitBy
from promising.query.kernels.row_limits import take

MOST_VALUES = 1 << 24
"""Distinct values that one answer counts: with them a suspended answer stays below a resume token's share of memory."""

Kept = NDArray[np.bool_]


class RowsByValue:
    """Admits at most `most` rows of each value, in the order in which they are offered.

    A value is a row of 64-bit words. Memory: about 50 bytes per value, which `nbytes` reports.
    """

    def __init__(self, width: int, most: int) -> None:
        self.most = most
        self._width = width
        self._table = GroupTable(width)
        self._taken: NDArray[np.int64] = np.zeros(64, np.int64)

    @property
    def nbytes(self) -> int:
        return self._table.size * (32 + 8 * self._width)

    def admit(self, words: Words) -> Kept:
        """Which rows are admitted; those are counted."""
        values = self._table.enter(words)
        size = self._table.size
        if size > MOST_VALUES:
            raise Overflow(
                f"LIMIT n BY met more than {MOST_VALUES:,} distinct values: narrow the WINDOW, or add a condition or a"
                " LIMIT"
            )
        if size > len(self._taken):
            grown = np.zeros(2 * size, np.int64)
            grown[: len(self._taken)] = self._taken
            self._taken = grown
        kept = np.empty(len(values), np.bool_)
        take(values, self._taken, self.most, kept)
        return kept

    def full(self, words: Words) -> Kept:
        """The values of which no further row is admitted."""
        values = self._table.find(words)
        return np.asarray((values >= 0) & (self._taken[values] >= self.most))


class RowLimit:
    """LIMIT n BY over columns of an answer. NULL is a value, NaN equals NaN, and 0.0 equals -0.0."""

    def __init__(self, limit: LimitBy) -> None:
        self._keys = GroupKeys([column.kind for column in limit.columns])
        self._rows = RowsByValue(self._keys.width, limit.most)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def admit(self, columns: Sequence[pa.Array], rows: int) -> Kept:
        return self._rows.admit(self._keys.encode(columns, rows))


def first_places(limit: LimitBy, columns: Sequence[pa.Array], rows: int) -> NDArray[np.int64]:
    """The positions of rows, given in order, that a LIMIT n BY admits."""
    return np.flatnonzero(RowLimit(limit).admit(columns, rows))
