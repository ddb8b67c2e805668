"""The uniform sample: the tuples with the smallest random priorities, so that samples merge."""

import math
from collections import Counter
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from promising.errors import BadSize, CorruptSummary, Incompatible, MixedKeys
from promising.summaries.adt import BOUNDS, TOLERANCE, Estimates, FrequencySummary, empty_like, read_total
from promising.summaries.frame import Reader, integers
from promising.summaries.hashing import inner_seed
from promising.summaries.kernels.hashing import hash_longs
from promising.summaries.keys import NO_KEYS, Keys, as_counts, as_keys, key_bytes, key_list, read_keys, spread

LARGEST = 1 << 24
ALL = (1 << 64) - 1


class Sample(FrequencySummary):
    """A uniform sample of `size` tuples, or all tuples while there are no more.

    The i-th tuple inserted gets a 64-bit priority, a hash of i under the sample's own seed; the `size` smallest are
    stored. So the sample of a union is the smallest of both samples, in any order of adding, and the same batches and
    seed give the same sample. Each sample needs its own seed: two with equal priorities are `Incompatible`. It cannot
    subtract: the tuple that would replace a removed one is not stored.

    **Bounds**: k of n sampled tuples have the key, x = k / n. By Chernoff's bound, which Hoeffding extended to draws
    without replacement, fractions p with n KL(x | p) > ln(2 / (1 - `BOUNDS`)) are excluded. At least k tuples have the
    key, and at least n - k do not. Exact while all tuples are sampled.

    **Confidence** is 1 - 2 exp(-2 size `TOLERANCE`²) (Hoeffding).

    Costs: O(1) per tuple and a sort of the sample per batch, O(size) per batch of estimates.

    >>> sample = Sample(size=1000, seed=7)
    >>> sample.summarize(np.arange(100_000) % 4)
    >>> estimate = sample.estimate(3)
    >>> estimate.lower <= 25_000 <= estimate.upper <= estimate.lower + 8_000
    True
    """

    kind = "sample"
    subtracts = False

    def __init__(self, size: int = 1024, seed: int = 0) -> None:
        if not 1 <= size <= LARGEST:
            raise BadSize(f"size {size}: 1 to 2**24 tuples are wanted")
        inner_seed(seed)
        self.size, self.seed = size, seed
        self.total = 0
        self.keys: Keys = NO_KEYS
        self._priorities: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._drawn = 0

    def summarize(self, values: Any, counts: Any = None) -> None:
        """Sample keys: integers or strings, not both. A count of c is c tuples, and costs as much."""
        keys = as_keys(values)
        weights = as_counts(counts, len(keys), self.total)
        self._check_sort(keys)
        for at in spread(weights):
            priorities = np.empty(at.size, np.uint64)
            hash_longs(np.arange(self._drawn, self._drawn + at.size), inner_seed(self.seed), priorities)
            self._drawn += at.size
            least = self._priorities[-1] if self._priorities.size == self.size else np.uint64(ALL)
            better = priorities <= least
            self._keep(keys.take(at[better]), priorities[better])
        self.total += int(weights.sum())

    def _keep(self, keys: Keys, priorities: npt.NDArray[np.uint64]) -> None:
        """Merge with more tuples; the sample is in order of priority."""
        everything = np.concatenate((self._priorities, priorities))
        best = np.argsort(everything)[: self.size]
        if len(self.keys) == 0 or len(keys) == 0:
            united = keys if len(keys) else self.keys
        elif isinstance(keys, np.ndarray):
            united = np.concatenate((self.keys, keys))
        else:
            united = pa.concat_arrays([self.keys, keys])
        self.keys, self._priorities = united.take(best), everything[best]

    def estimates(self, keys: Any) -> Estimates:
        drawn = len(self.keys)
        held = Counter(key_list(self.keys))
        hits = np.array([held[key] for key in key_list(as_keys(keys))], np.int64)
        if drawn == self.total:
            exact = hits.astype(np.float64)
            return Estimates(exact, exact, exact)
        low, high = np.array([chernoff(int(hit), drawn) for hit in hits]).reshape(-1, 2).T
        value = np.rint(hits * (self.total / drawn))
        lower = np.clip(np.ceil(low * self.total), hits, value)
        upper = np.clip(np.floor(high * self.total), value, self.total - drawn + hits)
        return Estimates(value, lower, upper)

    def confidence(self) -> float:
        if self.total <= self.size:
            return 1.0
        return max(0.0, 1 - 2 * math.exp(-2 * self.size * TOLERANCE**2))

    def _check_sort(self, keys: Keys) -> None:
        if len(keys) and len(self.keys) and isinstance(keys, np.ndarray) is not isinstance(self.keys, np.ndarray):
            raise MixedKeys("row 0: integers and strings in one sample")

    def _sizes(self) -> str:
        return f"size={self.size}"

    def _add(self, other: Self) -> None:
        self._check_sort(other.keys)
        if np.intersect1d(self._priorities, other._priorities).size:
            raise Incompatible(f"{self!r} and {other!r} drew equal priorities; give each sample a seed of its own")
        self._keep(other.keys, other._priorities)

    def _payload(self) -> bytes:
        head = integers(self.size, self.seed, self.total, self._drawn)
        return head + key_bytes(self.keys) + self._priorities.astype("<u8").tobytes()

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        size, seed, total, drawn = reader.integer(), reader.integer(), read_total(reader), reader.integer()
        sample: Self = empty_like(cls, size, seed)
        keys = read_keys(reader)
        priorities = reader.integers(len(keys)).view(np.uint64)
        if len(keys) != min(size, total) or not 0 <= drawn <= total or (priorities[1:] <= priorities[:-1]).any():
            raise CorruptSummary(f"no sample of {size} from {total} tuples: {len(keys)} stored, {drawn} drawn")
        sample.total, sample.keys, sample._priorities, sample._drawn = total, keys, priorities, drawn
        return sample


@lru_cache(maxsize=1 << 14)
def chernoff(hits: int, drawn: int) -> tuple[float, float]:
    """The least and the largest fraction p with drawn * KL(hits / drawn | p) <= ln(2 / (1 - `BOUNDS`)), to 40 bits."""
    share = hits / drawn
    limit = math.log(2 / (1 - BOUNDS)) / drawn

    def divergence(p: float) -> float:
        first = share * math.log(share / p) if share > 0 else 0.0
        return first + ((1 - share) * math.log((1 - share) / (1 - p)) if share < 1 else 0.0)

    ends = []
    for end in (0.0, 1.0):
        inside, outside = share, end
        for _ in range(40):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if divergence(middle) <= limit else (inside, middle)
        ends.append(outside)
    return ends[0], ends[1]
