"""Sums of floats that depend on no order."""

import numpy as np
from numpy.typing import NDArray

from promising.query.aggregate.accumulators import FloatSum
from promising.query.aggregate.arrow_memory import Column, Ids
from promising.query.aggregate.known import Known
from promising.summaries.moments import Moments

ONE = np.zeros(1, np.int32)


class ExactSum(FloatSum):
    """The real sum of the values, rounded once to a double; three times the time of a `FloatSum`."""

    def __init__(self, mean: bool) -> None:
        super().__init__(mean)
        self._moments = Moments(1, "float", squares=False)

    @property
    def nbytes(self) -> int:
        return self._moments.nbytes

    def add(self, groups: int, ids: Ids | None, column: Column) -> None:
        self._widen(groups)
        values = column.numbers
        if ids is None:
            self._moments.add_runs(ONE, np.array([0, len(values)]), values)
        else:
            self._moments.add(np.ascontiguousarray(column.ids(ids)), values)

    def absorb(self, known: Known) -> None:
        assert known.moments is not None
        groups = len(known.count)
        self._widen(groups)
        self._moments.merge(known.moments, np.arange(groups, dtype=np.int32))

    def _widen(self, groups: int) -> None:
        if len(self._moments) < groups:
            self._moments.grow(max(groups, 2 * len(self._moments)))

    def counts(self, groups: int) -> NDArray[np.int64]:
        self._widen(groups)
        return self._moments.count[:groups]

    def sums(self, groups: int) -> NDArray[np.float64]:
        self._widen(groups)
        return self._moments.sums()[:groups]
