"""The equi-width histogram: the number of values in a range."""

import math
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from promising.errors import BadMeasure, BadQuestion, BadSize, CorruptSummary, NotContained
from promising.summaries.adt import TOLERANCE, Estimate, Summary, empty_like, read_total
from promising.summaries.cells import Held, Measure, Part, SummaryCells, real_numbers
from promising.summaries.frame import Reader, integers, numbers
from promising.summaries.keys import as_counts, as_numbers

MOST_BINS = 1 << 20


class Histogram(Summary):
    """`bins` equal parts of [low, high), and two more for values below and above.

    **Bounds** always hold: a range contains the bins inside it and, of the at most two that its ends cut, between none
    and all. The value includes a cut bin in proportion, and half of a cut tail.

    **Confidence**: each end of a range changes the answer by at most the count of its bin. With ends distributed like
    the values, both bins hold at most `TOLERANCE` / 2 with probability p², p being the share of tuples in such bins.

    Costs: O(1) per tuple, O(bins) per estimate, 8 * (bins + 2) bytes.

    >>> prices = Histogram(low=0.0, high=10.0, bins=5)
    >>> prices.summarize([1.0, 2.5, 3.5, 3.9, 99.0])
    >>> prices.estimate(2.0, 4.0)
    Estimate(value=3.0, lower=3.0, upper=3.0)
    >>> prices.estimate(0.0, 3.0)
    Estimate(value=2.5, lower=1.0, upper=4.0)
    """

    kind = "histogram"

    def __init__(self, low: float, high: float, bins: int = 64) -> None:
        if not (math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(high - low)):
            raise BadSize(f"[{low}, {high}): a range of finite numbers is wanted")
        if not 1 <= bins <= MOST_BINS:
            raise BadSize(f"{bins} bins: 1 to 2**20 are wanted")
        edges = np.linspace(low, high, bins + 1)
        if not (np.diff(edges) > 0).all():
            raise BadSize(f"[{low}, {high}) is too narrow for {bins} bins of float64")
        self.low, self.high, self.bins = float(low), float(high), bins
        self.edges: npt.NDArray[np.float64] = np.concatenate(([-np.inf], edges, [np.inf]))
        self.counters: npt.NDArray[np.int64] = np.zeros(bins + 2, np.int64)
        self.total = 0

    def summarize(self, values: Any, counts: Any = None) -> None:
        """Count numbers; NaN is rejected, infinities count as below or above."""
        column = as_numbers(values)
        weights = as_counts(counts, column.size, self.total)
        np.add.at(self.counters, np.searchsorted(self.edges[1:-1], column, "right"), weights)
        self.total += int(weights.sum())

    def estimate(self, start: float, stop: float) -> Estimate:
        """The number of values in [start, stop); an infinite stop excludes nothing."""
        if not start <= stop:
            raise BadQuestion(f"[{start}, {stop}) ends before it starts")
        if start == stop:
            return Estimate(0.0, 0.0, 0.0)
        left, right = self.edges[:-1], self.edges[1:]
        inside = (left >= start) & (right <= stop)
        touched = (left < stop) & (right > start)
        lower, upper = float(self.counters[inside].sum()), float(self.counters[touched].sum())
        cut = np.flatnonzero(touched & ~inside)
        value = lower + sum(float(self.counters[at]) * self._share(int(at), start, stop) for at in cut)
        return Estimate(min(max(value, lower), upper), lower, upper)

    def _share(self, at: int, start: float, stop: float) -> float:
        """The fraction of a cut bin inside [start, stop), for uniform values."""
        if at in (0, self.bins + 1):
            return 0.5
        left, right = self.edges[at], self.edges[at + 1]
        return float((min(stop, right) - max(start, left)) / (right - left))

    def confidence(self) -> float:
        """The probability that a range between two random values is answered within `TOLERANCE` * total."""
        if self.total == 0:
            return 1.0
        small = self.counters[self.counters <= TOLERANCE / 2 * self.total]
        return float(small.sum() / self.total) ** 2

    def _sizes(self) -> str:
        return f"low={self.low} high={self.high} bins={self.bins}"

    def _add(self, other: Self) -> None:
        self.counters += other.counters

    def _subtract(self, other: Self) -> None:
        if (other.counters > self.counters).any():
            raise NotContained(f"a bin would fall below 0: the {other.total} tuples were never all added")
        self.counters -= other.counters

    def _payload(self) -> bytes:
        return numbers(self.low, self.high) + integers(self.bins, self.total) + self.counters.astype("<i8").tobytes()

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        low, high, bins, total = reader.number(), reader.number(), reader.integer(), read_total(reader)
        counters = reader.integers(bins + 2)
        histogram: Self = empty_like(cls, low, high, bins)
        if (counters < 0).any() or sum(counters.tolist()) != total:
            raise CorruptSummary(f"bins that do not make {total} tuples")
        histogram.counters, histogram.total = counters, total
        return histogram


class HistogramCells(SummaryCells):
    """HISTOGRAM(column, low, high [, bins]): an equi-width histogram a zone, of 64 bins by default. NaN is outside."""

    arguments = "low, high [, bins]"
    exact = True
    subtracts = True

    def __init__(self, measure: Measure, type_: str | None, seed: int) -> None:
        if len(measure.arguments) not in (2, 3):
            raise BadMeasure(f"{measure} needs the range of its bins; for example HISTOGRAM({measure.column}, 0, 100)")
        super().__init__(replace(measure, arguments=()), type_, seed)
        self.measure = measure
        low, high, *bins = measure.arguments
        if bins and not isinstance(bins[0], int):
            raise BadMeasure(f"{measure}: {bins[0]} bins; a whole number is wanted")
        self._range = float(low), float(high), int(bins[0]) if bins else 64
        try:
            self.make()
        except BadSize as problem:
            raise BadMeasure(f"{measure}: {problem}") from None

    def make(self) -> Histogram:
        return Histogram(*self._range)

    def column(self, part: Part) -> tuple[Any, int]:
        return real_numbers(part)

    def bytes_of(self, summary: Histogram) -> int:
        return summary.counters.nbytes + summary.edges.nbytes + 256

    def ceiling(self, cells: int) -> int:
        return cells * (16 * (self._range[2] + 3) + 264)

    def subtract(self, state: Held, other: Held) -> None:
        for mine, less in zip(state.summaries, other.summaries, strict=True):
            mine.subtract(less)
        state.apart -= other.apart
