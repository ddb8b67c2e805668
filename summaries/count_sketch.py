"""Count-sketch (Charikar, Chen, Farach-Colton): counts, F2 and join sizes, unbiased, additive, subtractable."""

import math
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from promising.errors import BadSize, CorruptSummary
from promising.summaries.adt import BOUNDS, TOLERANCE, Estimate, Estimates
from promising.summaries.counter_table import Hashes, Table
from promising.summaries.hashing import hash_checked
from promising.summaries.kernels.sketch import count_sketch_estimate, count_sketch_update
from promising.summaries.keys import Longs, as_keys
from promising.summaries.sizing import DEEPEST, check_target, fewest_counters, power_of_two, tail, tail_point

EXACT = float(1 << 53)  # below this, whole numbers in float64 are exact


class CountSketch(Table):
    """`depth` rows of `width` int64 counters; each key adds its count, with a random sign, to one counter per row.

    **One row** estimates a count f as f + E, E symmetric around 0 with the variance (F2 - f²) / width, where F2 is the
    sum of the squared counts of all keys. So (Chebyshev, and symmetry) E exceeds t with a probability of at most q =
    (F2 - f²) / (2 width t²).

    **The estimate** is the median of the rows. It exceeds f + t only if m = (depth + 1) / 2 rows do, so it errs by more
    than t, either way, with a probability of at most 2 P[Binomial(depth, q) >= m].

    **Bounds** are value ± t, with t such that this probability is 1 - `BOUNDS`: 1.86 deviations of one row at depth 5.
    F2 - f² is computed from the counters the key does not touch, in the row where they are largest, so a heavy key has
    tight bounds. Value and bounds are clipped to [0, total]; the kernel `count_sketch_estimate` returns the raw,
    unbiased median. After `subtract`, a small difference has the bounds of its own variance.

    **Confidence** is 1 - 2 P[Binomial(depth, q) >= m] with t = `TOLERANCE` * total and F2 for F2 - f², as for the
    rarest key. It falls as F2 / width / total² grows.

    Costs: O(depth) per tuple, O(depth) per estimate, 8 * depth * width bytes.

    >>> sketch = CountSketch(depth=5, width=256, seed=7)
    >>> sketch.summarize([1, 2, 3, 2], counts=[500, 20, 1, 30])
    >>> sketch.estimate(1)
    Estimate(value=500.0, lower=495.0, upper=505.0)
    >>> other = CountSketch(depth=5, width=256, seed=7)
    >>> other.summarize([1], counts=[499])
    >>> sketch.subtract(other)
    >>> sketch.total, sketch.estimate(2).value, sketch.estimate(1).upper < 10
    (52, 50.0, True)
    """

    kind = "count-sketch"

    def __init__(self, depth: int = 5, width: int = 64, seed: int = 0) -> None:
        if depth % 2 == 0:
            raise BadSize(f"depth {depth}: a median needs an odd number of rows")
        super().__init__(depth, width, seed)

    @classmethod
    def for_error(cls, error: float, confidence: float = BOUNDS, seed: int = 0) -> Self:
        """The smallest sketch whose estimates err by at most `error` * sqrt(F2) with probability `confidence`.

        sqrt(F2) <= total, with equality only if all tuples have one key, so the error is at most `error` * total and
        far less on even data. Each odd depth from 3 is tried with the least power of two for the width such that 2
        P[Binomial(depth, 1 / (2 width error²)) >= (depth + 1) / 2] <= 1 - confidence; the fewest counters win.

        >>> CountSketch.for_error(error=0.05)
        <count-sketch depth=9 width=1024 of 0 tuples>
        """
        check_target(error, confidence)
        depths = range(3, DEEPEST + 1, 2)
        widths = {d: power_of_two(1 / (2 * tail_point(d, (1 - confidence) / 2) * error**2)) for d in depths}
        return cls(*fewest_counters(widths), seed)

    def estimates(self, keys: Any) -> Estimates:
        hashes = hash_checked(as_keys(keys), self.seed)
        value, rest = np.empty(hashes.size, np.int64), np.empty(hashes.size, np.float64)
        count_sketch_estimate(hashes, self.counters, self._squares, value, rest)
        if self.depth == 1:  # a single row cannot detect a heavy key that shares its counter
            rest[:] = self._squares[0]
        variance = np.maximum(rest, 0.0) / (self.width - 1)
        reach = np.sqrt(variance / (2 * tail_point(self.depth, (1 - BOUNDS) / 2)))
        clipped = np.clip(value, 0, self.total).astype(np.float64)
        lower = np.clip(np.ceil(value - reach), 0, clipped)
        upper = np.clip(np.floor(value + reach), clipped, self.total)
        return Estimates(clipped, lower, upper)

    def confidence(self) -> float:
        if self.total == 0:
            return 1.0
        q = float(self._squares.mean()) / (2 * self.width * (TOLERANCE * self.total) ** 2)
        return 1 - 2 * tail(self.depth, min(q, 0.5))

    def f2(self) -> Estimate:
        """The sum of the squared counts of all keys: the size of the self-join.

        A row errs by a standard deviation of at most sqrt(2 / width) * F2; the median of the rows by more than e * F2
        with a probability of at most 1 - `BOUNDS`, e = sqrt(2 / (width p)), P[Binomial(depth, p) >= m] = 1 - `BOUNDS`.
        So F2 is between value / (1 + e) and value / (1 - e), and always between total and total².
        """
        value = float(np.median(self._squares))
        e = math.sqrt(2 / (self.width * tail_point(self.depth, 1 - BOUNDS)))
        low, high = float(self.total), float(self.total) ** 2
        value = min(max(value, low), high)
        return Estimate(value, max(value / (1 + e), low), min(value / (1 - e), high) if e < 1 else high)

    def inner(self, other: Self) -> Estimate:
        """The size of the equi-join of both multisets.

        A row errs with a variance of at most (F2 F2' + J²) / width around the join size J; the median of the rows by
        more than sqrt(variance / p) with a probability of at most 1 - `BOUNDS`, p as for `f2`. F2 is that of the row
        where it is largest. Clipped to [0, total * total'].
        """
        self._check_like(other)
        rows = np.multiply(self.counters, other.counters, dtype=np.float64).sum(axis=1)
        most = float(self.total) * float(other.total)
        value = min(max(float(np.median(rows)), 0.0), most)
        variance = (float(self._squares.max()) * float(other._squares.max()) + value * value) / self.width
        reach = math.sqrt(variance / tail_point(self.depth, 1 - BOUNDS))
        return Estimate(value, max(value - reach, 0.0), min(value + reach, most))

    def _update(self, hashes: Hashes, counts: Longs) -> None:
        count_sketch_update(hashes, counts, self.counters, self._squares)
        if self._squares.max() >= EXACT:
            self._changed()

    def _changed(self) -> None:
        self._squares = row_squares(self.counters)

    def _check_counters(self) -> None:
        if (np.abs(self.counters.astype(np.float64)).sum(axis=1) > self.total * (1 + 1e-12)).any():
            raise CorruptSummary(f"counters of more than {self.total} tuples")


def row_squares(counters: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Each row's sum of squares, within the precision of float64."""
    squares: npt.NDArray[np.float64] = np.square(counters, dtype=np.float64).sum(axis=1)
    return squares
