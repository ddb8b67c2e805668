"""USING COUNT_MIN: counts that are never too low, by a count-min of every cell."""

from typing import Any

import numpy as np
import numpy.typing as npt

from promising.summaries.adt import BOUNDS, Estimate
from promising.summaries.cells import Longs
from promising.summaries.counter_zones import CounterCounts, CounterZones
from promising.summaries.counts import Bounds, Floats, WindowCounts
from promising.summaries.kernels.counts import count_keys, excess, least


class MinCounts(CounterCounts):
    """A count-min a cell; `derived` is the excess t of `CountMin`, which its lower bound subtracts."""

    name = "count_min"
    update = count_keys
    what = "likely excess"

    def derive(self, counters: npt.NDArray[Any]) -> Floats:
        found = np.empty(self.buckets, np.float64)
        excess(np.ascontiguousarray(counters), self.depth, self.width, 1 - BOUNDS, found)
        return found

    def estimates(
        self, state: CounterZones, hashes: Longs, key: Longs, zone: Longs, bucket: Longs, tuples: Longs
    ) -> Bounds:
        """The least counter of a key, which is also its upper bound, with certainty."""
        value = np.empty(len(key), np.float64)
        least(state.counters, hashes, key, zone, self.shift, self.depth, self.lg, value)
        value = np.minimum(value, tuples.astype(np.float64))
        return value, np.maximum(value - self.derived_of(state, zone, bucket), 0.0), value

    def tolerated(self, tolerance: float) -> float:
        return self.buckets * self.width * tolerance * tolerance

    def join(self, one: WindowCounts, other: WindowCounts) -> Estimate | None:
        """The least inner product of a row: it is never too low."""
        (a, across_a), (b, across_b) = (
            (self.rows(window.inside.counters[0]), self.rows(window.across.counters[0])) for window in (one, other)
        )
        return Estimate(_inner(self.likely(one), self.likely(other)), 0.0, _inner(a + across_a, b + across_b))

    def pairs(self, one: WindowCounts, other: WindowCounts) -> Floats | None:
        rows: Floats = np.einsum("brc,brc->br", self.likely(one), self.likely(other))
        return np.asarray(rows.min(axis=1))


def _inner(a: Floats, b: Floats) -> float:
    return float(np.einsum("brc,brc->br", a, b).sum(axis=0).min())
