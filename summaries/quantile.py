"""Quantiles, on the KLL sketch of Apache DataSketches."""

import math
from typing import Any, Self

import datasketches
import numpy as np

from promising.errors import BadQuestion, BadSize, CorruptSummary
from promising.summaries.adt import TOLERANCE, Estimate, Summary, empty_like, read_total
from promising.summaries.cells import Held, Part, SummaryCells, real_numbers
from promising.summaries.frame import Reader, block, integers
from promising.summaries.keys import as_counts, as_numbers, spread


class Quantile(Summary):
    """A KLL sketch of `k`: the value at a rank, from O(k) numbers.

    **Bounds** are the values at rank ± e, with e KLL's rank error at 99 % (1.33 % at k = 200), or the exact minimum and
    maximum where that leaves [0, 1].

    **Confidence** is 1 - 2 exp(-ln(200) (`TOLERANCE` / e)²): the Gaussian tail of KLL's rank error, through its 99 %.

    KLL's randomness cannot be seeded, so equal streams may give different sketches, both within bounds. It cannot
    subtract.

    >>> prices = Quantile(k=200)
    >>> prices.summarize(range(100_001))
    >>> median = prices.estimate(0.5)
    >>> median.lower <= 50_000 <= median.upper <= median.lower + 5_000
    True
    """

    kind = "quantile"
    subtracts = False

    def __init__(self, k: int = 200) -> None:
        if not 8 <= k <= 65535:
            raise BadSize(f"k {k}: 8 to 65535 is wanted")
        self.k = k
        self.total = 0
        self._sketch = datasketches.kll_doubles_sketch(k)

    def summarize(self, values: Any, counts: Any = None) -> None:
        """Insert numbers; NaN is rejected. A count of c is c values, and costs as much."""
        column = as_numbers(values)
        weights = as_counts(counts, column.size, self.total)
        for at in spread(weights):
            self._sketch.update(column[at])
        self.total += int(weights.sum())

    def estimate(self, rank: float) -> Estimate:
        """The least value v such that the fraction `rank` of the values is at most v."""
        if not 0 <= rank <= 1:
            raise BadQuestion(f"rank {rank} is outside [0, 1]")
        if self.total == 0:
            raise BadQuestion("no values, no quantile")
        error = self.rank_error
        value = self._at(rank)
        return Estimate(value, min(self._at(rank - error), value), max(self._at(rank + error), value))

    def _at(self, rank: float) -> float:
        if rank <= 0:
            return float(self._sketch.get_min_value())
        return float(self._sketch.get_max_value() if rank >= 1 else self._sketch.get_quantile(rank, True))

    @property
    def retained(self) -> int:
        """The numbers it stores."""
        return int(self._sketch.num_retained)

    @property
    def rank_error(self) -> float:
        return float(self._sketch.normalized_rank_error(False)) if self._sketch.is_estimation_mode() else 0.0

    def confidence(self) -> float:
        """The probability that the rank of an answer is within `TOLERANCE`."""
        error = self.rank_error
        return 1.0 if error == 0 else max(0.0, 1 - 2 * math.exp(-math.log(200) * (TOLERANCE / error) ** 2))

    def _sizes(self) -> str:
        return f"k={self.k}"

    def _add(self, other: Self) -> None:
        self._sketch.merge(other._sketch)

    def _payload(self) -> bytes:
        return integers(self.k, self.total) + block(self._sketch.serialize())

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        k, total, data = reader.integer(), read_total(reader), reader.block()
        summary: Self = empty_like(cls, k)
        try:
            summary._sketch = datasketches.kll_doubles_sketch.deserialize(data)
        except (ValueError, RuntimeError, IndexError, MemoryError) as error:
            raise CorruptSummary(f"no KLL sketch: {error}") from None
        summary.total = total
        if summary._sketch.k != k or summary._sketch.n != total or summary._sketch.serialize() != data:
            raise CorruptSummary(f"a KLL sketch of k={summary._sketch.k}, n={summary._sketch.n}, not of {summary!r}")
        return summary


class QuantileCells(SummaryCells):
    """QUANTILES(column): a KLL sketch a zone.

    NaN is counted apart, and is greater than every number, as in `ORDER BY`. Integers beyond 2**53 are rounded to a
    float, so bounds are widened by one unit in the last place.
    """

    figures = ("median",)

    def make(self) -> Quantile:
        return Quantile()

    def column(self, part: Part) -> tuple[Any, int]:
        return real_numbers(part)

    def bytes_of(self, summary: Quantile) -> int:
        return 512 + 8 * summary.retained

    def ceiling(self, cells: int) -> int:
        return cells * 8192  # 5.2 kB after ten million values, which grows with the logarithm

    def estimate(self, state: Held, cell: int, *question: Any) -> Estimate:
        """The value at a rank."""
        summary, apart, (rank,) = state.summaries[cell], int(state.apart[cell]), question
        if not apart or not 0 <= rank <= 1:
            return self._widened(summary.estimate(rank))
        place = max(math.ceil(rank * (summary.total + apart) - 1e-9), 1)
        if place > summary.total:
            lower = summary.estimate(1.0).value if summary.total else math.nan
            return Estimate(math.nan, self._widened(Estimate(lower, lower, lower)).lower, math.nan)
        among = (place - 0.5) / summary.total  # in the middle of its step: rounding does not matter
        found = self._widened(summary.estimate(among))
        beyond = among + summary.rank_error > 1
        return Estimate(found.value, found.lower, math.nan if beyond else found.upper)

    def number(self, state: Held, cell: int, name: str) -> float:
        empty = not state.summaries[cell].total + state.apart[cell]
        return math.nan if empty else self.estimate(state, cell, 0.5).value

    def _widened(self, found: Estimate) -> Estimate:
        if self.type == "float" or max(abs(found.lower), abs(found.upper)) < 1 << 53:
            return found
        return Estimate(found.value, np.nextafter(found.lower, -np.inf), np.nextafter(found.upper, np.inf))
