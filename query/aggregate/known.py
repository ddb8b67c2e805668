"""What is known of an aggregate's argument by group, without its values."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.summaries.moments import Moments


@dataclass(frozen=True)
class Known:
    """Of groups 0, 1, ...: the number of values that are not NULL, and of those that are no NaN the least and the
    greatest; arbitrary without any. `nan` counts the others. A count of rows has no more than `count`."""

    count: NDArray[np.int64]
    least: NDArray[Any] | None = None
    greatest: NDArray[Any] | None = None
    nan: NDArray[np.int64] | None = None
    moments: Moments | None = None

    @classmethod
    def of(cls, moments: Moments) -> "Known":
        return cls(moments.count, moments.least, moments.greatest, moments.nan, moments)

    def extreme(self, *, lowest: bool) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Which groups have values, and the extreme of each: NaN is greater than every number."""
        best = self.least if lowest else self.greatest
        assert best is not None
        if self.nan is not None and self.nan.any():
            best = np.where(self.nan == self.count if lowest else self.nan > 0, np.nan, best)
        return self.count > 0, best
