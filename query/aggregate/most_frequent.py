"""The most frequent values of each group."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.query.aggregate.arrow_memory import Column, Ids, widened, words
from promising.query.aggregate.grouping import GroupTable, Strings, values_of
from promising.query.kernels.folds import tally
from promising.query.order import Term, sorted_places
from promising.query.scalar.types import ARROW, TOP, Kind

LONGEST = 1_000_000  # values of a list; DuckDB's limit

_ORDER = (Term(), Term(descending=True), Term())


class MostFrequent:
    """Counts every value: lists of the `most` frequent ones are exact. Memory: about 40 bytes per value and group."""

    def __init__(self, kind: Kind, most: int) -> None:
        self._kind = kind
        self._most = most
        self._strings = Strings() if kind == "string" else None
        self._table = GroupTable(2)
        self._counts = np.zeros(1, np.int64)

    @property
    def nbytes(self) -> int:
        strings = 0 if self._strings is None else self._strings.nbytes
        return strings + self._table.nbytes + self._counts.nbytes

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each value of each group was added, in the order of `enter`."""
        self._counts = widened(self._counts, self._table.size)
        return self._counts[: self._table.size]

    def enter(self, ids: Ids | None, column: Column) -> Ids:
        """The number of each value of a slice within its group; new ones are inserted, with a count of 0."""
        rows = np.empty((2, column.rows), np.int64)
        rows[0] = column.ids(ids)
        rows[1] = words(column.numbers) if self._strings is None else self._strings.enter(column.strings)
        return self._table.enter(rows)

    def add(self, groups: int, ids: Ids | None, column: Column) -> None:
        places = self.enter(ids, column)
        tally(places, self.counts)

    def values(self, groups: int) -> pa.Array:
        return self.lists(groups, self.counts, self.counts, self.counts)

    def lists(
        self, groups: int, counts: NDArray[np.int64], lower: NDArray[np.int64], upper: NDArray[np.int64]
    ) -> pa.Array:
        """The list of each group, NULL for one without values: the highest count first, equal counts by value."""
        group, encoded = np.ascontiguousarray(self._table.stored.T)
        values = values_of(self._kind, encoded) if self._strings is None else self._strings.take(encoded)
        order = sorted_places([pa.array(group), pa.array(counts), values], _ORDER)
        starts = np.searchsorted(group[order], np.arange(groups + 1))
        sizes = np.minimum(np.diff(starts), self._most)
        order = order[np.arange(len(order)) - starts[group[order]] < self._most]
        kind = ARROW[TOP[self._kind]]
        fields = [kind.value_type.field(at) for at in range(kind.value_type.num_fields)]
        parts = [values.take(pa.array(order)), *(pa.array(numbers[order]) for numbers in (counts, lower, upper))]
        structs = pa.StructArray.from_arrays(parts, fields=fields)
        offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32())
        return pa.ListArray.from_arrays(offsets, structs, type=kind, mask=pa.array(sizes == 0))
