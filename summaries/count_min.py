"""Count-min (Cormode, Muthukrishnan): counts that are never too low, additive, subtractable."""

from typing import Any, Self

import numpy as np

from promising.errors import CorruptSummary, NotContained
from promising.summaries.adt import BOUNDS, TOLERANCE, Estimates
from promising.summaries.counter_table import Hashes, Table
from promising.summaries.hashing import hash_checked
from promising.summaries.kernels.sketch import count_min_estimate, count_min_update
from promising.summaries.keys import Longs, as_keys
from promising.summaries.sizing import DEEPEST, check_target, fewest_counters, power_of_two


class CountMin(Table):
    """`depth` rows of `width` int64 counters; each key adds its count to one counter per row.

    **The estimate** is the least of a key's counters. Each contains the key's own count and those of colliding keys, so
    the estimate is never too low and is its own upper bound, with certainty. An estimate of 0 proves absence.

    **The lower bound** is value - t. Let s_r(t) be the fraction of the columns of row r that exceed t. Without the key,
    no column of the table is larger, and the key's columns are independent of that table; so other keys exceed t in all
    of its counters with a probability of at most s_1(t) * ... * s_depth(t). t is the least number for which
    this is at most 1 - `BOUNDS`; at depth 5 it is about the median counter.

    **Confidence** is 1 - s_1(t) * ... * s_depth(t) at t = `TOLERANCE` * total.

    Costs: O(depth) per tuple, O(depth) per estimate (and a sort of the table after a change), 8 * depth * width bytes.

    >>> table = CountMin(depth=3, width=64, seed=7)
    >>> table.summarize(["milk", "eggs", "milk"], counts=[2, 5, 1])
    >>> table.estimate("milk"), table.estimate("bread").upper
    (Estimate(value=3.0, lower=3.0, upper=3.0), 0.0)
    """

    kind = "count-min"
    _excess: int | None

    @classmethod
    def for_error(cls, error: float, confidence: float = BOUNDS, seed: int = 0) -> Self:
        """The smallest table whose estimates are too high by at most `error` * total with probability `confidence`.

        A counter holds total / width tuples of other keys on average, so (Markov) more than `error` * total in all rows
        with a probability of at most (1 / (width error))**depth. Each depth is tried with the least power of two for
        the width that makes this at most 1 - confidence; the fewest counters win.

        >>> CountMin.for_error(error=0.01)
        <count-min depth=2 width=512 of 0 tuples>
        """
        check_target(error, confidence)
        depths = range(1, DEEPEST + 1)
        return cls(*fewest_counters({d: power_of_two((1 - confidence) ** (-1 / d) / error) for d in depths}), seed)

    def estimates(self, keys: Any) -> Estimates:
        hashes = hash_checked(as_keys(keys), self.seed)
        least = np.empty(hashes.size, np.int64)
        count_min_estimate(hashes, self.counters, least)
        if self._excess is None:
            self._excess = self._likely_excess()
        value = least.astype(np.float64)
        return Estimates(value, np.maximum(least - self._excess, 0).astype(np.float64), value)

    def confidence(self) -> float:
        if self.total == 0:
            return 1.0
        return 1 - float(np.prod((self.counters > TOLERANCE * self.total).mean(axis=1)))

    def _likely_excess(self) -> int:
        """The least t that all rows exceed together with probability at most 1 - `BOUNDS`; O(log counters) steps."""
        rows = np.sort(self.counters, axis=1)
        levels = np.unique(np.append(rows, 0))
        low, high = 0, levels.size - 1
        while low < high:
            middle = (low + high) // 2
            above = [1 - np.searchsorted(row, levels[middle], "right") / self.width for row in rows]
            low, high = (low, middle) if np.prod(above) <= 1 - BOUNDS else (middle + 1, high)
        return int(levels[low])

    def _update(self, hashes: Hashes, counts: Longs) -> None:
        count_min_update(hashes, counts, self.counters)
        self._changed()

    def _changed(self) -> None:
        self._excess = None

    def _subtract(self, other: Self) -> None:
        if (other.counters > self.counters).any():
            raise NotContained(f"a counter would fall below 0: the {other.total} tuples were never all added")
        super()._subtract(other)

    def _check_counters(self) -> None:
        sums = self.counters.astype(np.float64).sum(axis=1)
        if (self.counters < 0).any() or not np.allclose(sums, self.total, rtol=1e-12, atol=0):
            raise CorruptSummary(f"rows of {sums.min():.0f} to {sums.max():.0f} tuples in a table of {self.total}")
