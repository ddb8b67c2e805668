"""Distinct counts, on the CPC sketch of Apache DataSketches."""

import math
from typing import Any, Self

import datasketches
import numpy as np

from promising.errors import BadSize, CorruptSummary
from promising.summaries.adt import TOLERANCE, Estimate, Summary, empty_like, read_total
from promising.summaries.frame import Reader, block, integers
from promising.summaries.hashing import hash_checked, inner_seed
from promising.summaries.keys import as_counts, as_keys


class Distinct(Summary):
    """A CPC sketch of 2**lg_k bins over the keyed hashes of the keys.

    **Bounds** are CPC's for two standard deviations, about ± 2 * 0.69 / sqrt(2**lg_k) of the value and tighter before
    any `add`; clipped to [1, total]. **Confidence** is the probability that a normal error of that standard deviation
    stays within `TOLERANCE` of the truth. It cannot subtract: both multisets may contain a key.

    >>> items = Distinct(lg_k=11, seed=7)
    >>> items.summarize(np.arange(30_000) % 10_000)
    >>> estimate = items.estimate()
    >>> estimate.lower <= 10_000 <= estimate.upper <= 1.1 * estimate.lower
    True
    """

    kind = "distinct"
    subtracts = False

    def __init__(self, lg_k: int = 11, seed: int = 0) -> None:
        if not 4 <= lg_k <= 26:
            raise BadSize(f"lg_k {lg_k}: 4 to 26 is wanted")
        inner_seed(seed)
        self.lg_k, self.seed = lg_k, seed
        self.total = 0
        self._sketch = datasketches.cpc_sketch(lg_k)

    def summarize(self, values: Any, counts: Any = None) -> None:
        keys = as_keys(values)
        weights = as_counts(counts, len(keys), self.total)
        for word in np.unique(hash_checked(keys, self.seed)[weights > 0]).view(np.int64).tolist():
            self._sketch.update(word)
        self.total += int(weights.sum())

    def estimate(self) -> Estimate:
        if self.total == 0:
            return Estimate(0.0, 0.0, 0.0)
        value, lower, upper = (
            min(max(float(bound), 1.0), float(self.total))
            for bound in (self._sketch.get_estimate(), self._sketch.get_lower_bound(2), self._sketch.get_upper_bound(2))
        )
        return Estimate(value, min(lower, value), max(upper, value))

    def confidence(self) -> float:
        value, upper = self._sketch.get_estimate(), self._sketch.get_upper_bound(1)
        return math.erf(TOLERANCE * value / (upper - value) / math.sqrt(2)) if upper > value else 1.0

    def _sizes(self) -> str:
        return f"lg_k={self.lg_k}"

    def _shared_seed(self) -> int:
        return self.seed

    def _add(self, other: Self) -> None:
        union = datasketches.cpc_union(self.lg_k)
        union.update(self._sketch)
        union.update(other._sketch)
        self._sketch = union.get_result()

    def _payload(self) -> bytes:
        return integers(self.lg_k, self.seed, self.total) + block(self._sketch.serialize())

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        lg_k, seed, total, data = reader.integer(), reader.integer(), read_total(reader), reader.block()
        summary: Self = empty_like(cls, lg_k, seed)
        try:
            summary._sketch = datasketches.cpc_sketch.deserialize(data)
        except (ValueError, RuntimeError, IndexError, MemoryError) as error:
            raise CorruptSummary(f"no CPC sketch: {error}") from None
        summary.total = total
        if summary._sketch.lg_k != lg_k or summary._sketch.is_empty() != (total == 0):
            raise CorruptSummary(f"a CPC sketch of lg_k={summary._sketch.lg_k}, not of {summary!r}")
        return summary
