"""USING COUNT_SKETCH: counts by a sketch of every cell, unbiased, with the bounds of `CountSketch`."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from promising.summaries.adt import BOUNDS, Estimate
from promising.summaries.cells import Longs
from promising.summaries.counter_zones import CounterCounts, CounterZones
from promising.summaries.counts import Bounds, Floats, WindowCounts
from promising.summaries.kernels.counts import medians, sketch_keys
from promising.summaries.sizing import tail_point


class SketchCounts(CounterCounts):
    """A count-sketch a cell; `derived` is its F2, the mean over its rows."""

    name = "count_sketch"
    update = sketch_keys
    what = "F2"

    def __init__(self, buckets: int, depth: int, width: int, seed: int = 0) -> None:
        super().__init__(buckets, depth, width, seed)
        self._reach = 1 / math.sqrt(2 * tail_point(depth, (1 - BOUNDS) / 2) * (width - 1))

    def derive(self, counters: npt.NDArray[Any]) -> Floats:
        squares = counters.astype(np.float64).reshape(self.buckets, self.depth * self.width)
        sums: Floats = np.einsum("ij,ij->i", squares, squares)
        return sums / self.depth

    def estimates(
        self, state: CounterZones, hashes: Longs, key: Longs, zone: Longs, bucket: Longs, tuples: Longs
    ) -> Bounds:
        """The median of the rows.

        The error comes from the rest of the cell: the F2 of the counters without the key. A single row cannot detect a
        heavy key that shares its counter, so there it is all of F2.
        """
        value, own = np.empty(len(key), np.float64), np.empty(len(key), np.float64)
        medians(state.counters, hashes, key, zone, self.shift, self.depth, self.lg, value, own)
        f2 = self.derived_of(state, zone, bucket)
        rest = f2 if self.depth == 1 else np.maximum(f2 - own, 0.0)
        reach = self._reach * np.sqrt(rest)
        clipped = np.clip(value, 0.0, tuples)
        lower = np.clip(np.ceil(value - reach), 0.0, clipped)
        upper = np.clip(np.floor(value + reach), clipped, tuples)
        return clipped, lower, upper

    def tolerated(self, tolerance: float) -> float:
        return self.buckets * self.width * tolerance * tolerance  # ** raises where this is infinite

    def error(self, state: CounterZones, zone: int) -> float | None:
        return math.sqrt(float(self.derived(state, zone).sum()) / (self.buckets * self.width))

    def join(self, one: WindowCounts, other: WindowCounts) -> Estimate | None:
        """The inner product of two sketches.

        The lower bound counts tuples surely in both windows, the upper bound those that may be. Per row and bucket the
        variance is at most (F2 F2' + J²) / width; the median of the rows errs by more than sqrt(variance / p) with
        probability at most 1 - `BOUNDS` (see `CountSketch.inner`).
        """
        (a, across_a), (b, across_b) = (
            (self.rows(window.inside.counters[0]), self.rows(window.across.counters[0])) for window in (one, other)
        )
        value, _ = self._inner(self.likely(one), self.likely(other))
        low, reach = self._inner(a, b)
        high, far = self._inner(a + across_a, b + across_b)
        return Estimate(min(max(value, low - reach), high + far), max(low - reach, 0.0), high + far)

    def pairs(self, one: WindowCounts, other: WindowCounts) -> Floats | None:
        rows = np.einsum("brc,brc->br", self.likely(one), self.likely(other))
        return np.asarray(np.maximum(np.median(rows, axis=1), 0.0))

    def _inner(self, a: Floats, b: Floats) -> tuple[float, float]:
        """The estimate and its error bound."""
        rows = np.einsum("brc,brc->br", a, b)
        squares = [np.einsum("brc,brc->br", x, x) for x in (a, b)]
        variance = float(((squares[0] * squares[1] + rows**2) / self.width).sum(axis=0).max())
        return float(np.median(rows.sum(axis=0))), math.sqrt(variance / tail_point(self.depth, 1 - BOUNDS))
