"""Estimates aggregates of which one part is exact and the rest is sampled.

With c, s the exact part's count and sum, N and n the population and the draws of the rest, f = n / N, and h, y the
count and sum of the sample's rows in a group (draws that are not rows of the answer, or of another group, are zeros):

    count      c + N h / n                      exact hypergeometric limits, or Wilson's
    sum        s + N y / n                      mean_margins of the values with zeros, times N
    avg        R = (s + N y / n) / (c + N h / n)    mean_margins of (value - R) with zeros, times N / (c + N h / n)
    quantile   of the exact values with weight 1 and the sample's with weight N / n, interpolated between the middles of
               their weights, which is the usual quantile if the weights are equal; Woodruff's limits: the values up to
               which (from below, from above) the weight is at most p C - m, (1 - p) C - m, where C = c + N h / n and
               m = z N sqrt((1 - f) / (n - 1) var(e)), e = 1[value <= quantile] - p with zeros
    min, max   the best seen; the far bound is unknown
    top k      c + N h / n of each value, with the limits of a count, in the list; a value not seen is not in it
    distinct   D seen, plus Chao's f1^2 / (2 f2 + f1 f / (1 - f)) with f1, f2 the number of values outside the exact
               part that the sample has once and twice; at least D, at most D and all rows of the group that may be left

An unknown bound is null. Limits of means are based on the sample: where the variance is dominated by a few values that
it is likely to miss (for example Zipf with an exponent under 3), they hold less often than stated.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import BadQuestion
from promising.query.aggregate.accumulators import (
    NO_IDS,
    Accumulator,
    Count,
    Distinct,
    FloatSum,
    IntSum,
    Ordered,
    in_order,
)
from promising.query.aggregate.aggregates import Aggregate, Groups
from promising.query.aggregate.arrow_memory import Column, Ids
from promising.query.aggregate.confidence import Counts, Floats, count_bounds, mean_margins, normal_quantile
from promising.query.aggregate.grouping import GroupTable
from promising.query.aggregate.most_frequent import MostFrequent
from promising.query.kernels.samples import quantiles

LIMIT = 2.0**63  # one more than the largest integer; a sum beyond it is an error, so bounds end here

NO_FACTORS: Mapping[int, float] = MappingProxyType({})

Bounds = tuple[pa.Array, pa.Array, pa.Array]  # value, lower and upper bound, by group


@dataclass
class Sample:
    """The draws that are rows of the answer: their keys, and the arguments of the aggregates."""

    keys: list[pa.Array]
    arguments: list[pa.Array | None]
    rows: int


@dataclass
class Estimated:
    """One row per group seen: those of the exact part first, then in order of first appearance.

    `value`, `lower` and `upper` are by aggregate; a null bound is unknown. Each interval individually has the requested
    confidence. `hits` counts sampled rows by group. If `exact`, nothing is left to sample: the bounds are the value.
    """

    keys: list[pa.Array]
    value: list[pa.Array]
    lower: list[pa.Array]
    upper: list[pa.Array]
    hits: NDArray[np.int64]
    exact: bool


def estimate(
    exact: Groups,
    sample: Sample,
    draws: int,
    population: int,
    confidence: float = 0.95,
    factors: Mapping[int, float] = NO_FACTORS,
) -> Estimated:
    """Estimate the aggregates over `exact` and the population behind the sample; does not modify `exact`.

    `draws` units of the population were drawn uniformly without replacement. factors: of the margins of
    sums and averages, by the number of the aggregate. Raises BadQuestion unless rows <= draws <=
    population and 0 < confidence < 1; Overflow if nothing is left to sample and an integer sum does not fit.
    """
    if not 0 <= sample.rows <= draws <= population:
        raise BadQuestion(f"{sample.rows} rows among {draws} draws out of {population}")
    if not 0 < confidence < 1:
        raise BadQuestion(f"a confidence of {confidence} is not between 0 and 1")
    columns = exact.columns(sample.keys, sample.arguments, sample.rows)
    ids, keys = exact.place(sample.keys, sample.rows)
    groups = len(keys[0]) if keys else 1
    hits = np.array([sample.rows]) if ids is None else np.bincount(ids, minlength=groups)
    if draws == population:
        whole = exact
        if sample.rows:
            whole = copy.deepcopy(exact)
            whole.add(sample.keys, sample.arguments, sample.rows)
        values = whole.result().values
        return Estimated(keys, values, values, values, hits, True)
    view = _View(ids, groups, hits, draws, population, confidence)
    with np.errstate(over="ignore", invalid="ignore"):
        bounds = [
            replace(view, factor=factors.get(number, 1.0)).estimate(*one)
            for number, one in enumerate(zip(exact.aggregates, exact.accumulators, columns, strict=True))
        ]
    value, lower, upper = ([each[k] for each in bounds] for k in range(3))
    return Estimated(keys, value, lower, upper, hits, False)


@dataclass
class _View:
    """A sample, its rows by group; `ids` is None for a single group."""

    ids: Ids | None
    groups: int
    hits: Counts
    draws: int
    population: int
    confidence: float
    factor: float = 1.0

    @property
    def weight(self) -> float:
        """Units per draw."""
        return self.population / self.draws if self.draws else 0.0

    def estimate(self, aggregate: Aggregate, state: Accumulator, column: Column | None) -> Bounds:
        """One aggregate, given its exact state and its argument in the sample."""
        if isinstance(state, Count):
            return self._count(state, column)
        assert column is not None
        if isinstance(state, FloatSum | IntSum):
            part = aggregate.accumulator(self.ids is not None)
            part.add(self.groups, self.ids, column)
            assert isinstance(part, FloatSum | IntSum)
            return self._mean(state, part, column) if aggregate.function == "avg" else self._sum(state, part, column)
        if isinstance(state, Ordered):
            return self._quantile(state, column, aggregate.rank)
        if isinstance(state, Distinct):
            return self._distinct(state, column)
        if isinstance(state, MostFrequent):
            return self._most_frequent(state, column)
        seen = copy.deepcopy(state)
        seen.add(self.groups, self.ids, column)
        value = seen.values(self.groups)
        unknown = pa.nulls(self.groups, value.type)
        return (value, unknown, value) if aggregate.function == "min" else (value, value, unknown)

    def _present(self, column: Column | None) -> Counts:
        if column is None or column.rows == self.hits.sum():
            return self.hits
        if self.ids is None:
            return np.array([column.rows])
        return np.bincount(column.ids(self.ids), minlength=self.groups)

    def _count(self, state: Count, column: Column | None) -> Bounds:
        known, hits = state.counts(self.groups), self._present(column)
        lower, upper = count_bounds(hits, self.draws, self.population, self.confidence)
        value = known + np.rint(hits * self.weight).astype(np.int64)
        return pa.array(value), pa.array(known + lower), pa.array(known + upper)

    def _margins(self, column: Column, sums: Floats, hits: Counts, shift: Floats, ratio: bool) -> tuple[Floats, Floats]:
        ids = NO_IDS if self.ids is None else column.ids(self.ids)
        of = (ids, column.floats, sums, hits, shift, ratio, self.draws, self.population, self.confidence)
        below, above = mean_margins(*of)
        return self.factor * below, self.factor * above

    def _sum(self, state: FloatSum | IntSum, part: FloatSum | IntSum, column: Column) -> Bounds:
        hits, sums = part.counts(self.groups), part.sums(self.groups)
        below, above = self._margins(column, sums, hits, np.zeros(self.groups), False)
        rest = self.weight * sums
        empty = state.counts(self.groups) + hits == 0
        lower, upper = rest - self.population * below, rest + self.population * above
        if isinstance(state, IntSum):
            pairs = state.pairs(self.groups)
            unknown = empty | np.isnan(lower)
            return (
                pa.array(_whole(pairs, np.rint(rest)), mask=empty),
                pa.array(_whole(pairs, np.floor(lower)), mask=unknown),
                pa.array(_whole(pairs, np.ceil(upper)), mask=unknown),
            )
        known = state.sums(self.groups)
        return _floats(known + rest, known + lower, known + upper, empty)

    def _mean(self, state: FloatSum | IntSum, part: FloatSum | IntSum, column: Column) -> Bounds:
        known, hits = state.counts(self.groups), part.counts(self.groups)
        sums = part.sums(self.groups)
        total = known + self.weight * hits
        empty = known + hits == 0
        value = (state.sums(self.groups) + self.weight * sums) / np.where(empty, 1.0, total)
        below, above = self._margins(column, sums, hits, value, True)
        # One hit shows no deviation, and the sample's own mean is biased towards its values.
        single = hits < 2
        scale = self.population / np.where(empty, 1.0, total) * np.sqrt(hits / np.maximum(hits - 1, 1))
        scale = np.where(single, np.nan, scale)
        return _floats(value, value - scale * below, value + scale * above, empty)

    def _quantile(self, state: Ordered, column: Column, at: float) -> Bounds:
        starts, values = state.sorted(self.groups)
        ids = NO_IDS if self.ids is None else column.ids(self.ids)
        drawn_starts, drawn = in_order(ids, column.floats, self.groups)
        fraction = self.draws / self.population
        spread = normal_quantile(self.confidence) * np.sqrt((1 - fraction) * self.draws / max(self.draws - 1, 1))
        value, lower, upper = (np.empty(self.groups) for _ in range(3))
        quantiles(
            starts, values, drawn_starts, drawn, self.weight, spread, float(max(self.draws, 1)), at, value, lower, upper
        )
        empty = np.diff(starts) + np.diff(drawn_starts) == 0
        return pa.array(value, mask=empty), _known(lower), _known(upper)

    def _distinct(self, state: Distinct, column: Column) -> Bounds:
        rows = state.rows(self.ids, column)
        table = GroupTable(len(rows))
        times = np.bincount(table.enter(rows), minlength=table.size)
        new = state.table.find(np.ascontiguousarray(table.stored.T)) < 0
        group = table.stored[:, 0] if self.ids is not None else np.zeros(table.size, np.int64)
        once, twice = (np.bincount(group[new & (times == k)], minlength=self.groups) for k in (1, 2))
        seen = state.counts(self.groups) + np.bincount(group[new], minlength=self.groups)
        hits = self._present(column)
        left = count_bounds(hits, self.draws, self.population, self.confidence)[1] - hits
        odds = self.draws / (self.population - self.draws)
        unseen = once**2 / np.maximum(2 * twice + odds * once, np.finfo(float).tiny)
        value = seen + np.minimum(np.rint(unseen), left).astype(np.int64)
        return pa.array(value), pa.array(seen), pa.array(seen + left)

    def _most_frequent(self, state: MostFrequent, column: Column) -> Bounds:
        seen = copy.deepcopy(state)
        places = seen.enter(self.ids, column)
        known = seen.counts
        hits = np.bincount(places, minlength=len(known))
        lower, upper = count_bounds(hits, self.draws, self.population, self.confidence)
        value = known + np.rint(hits * self.weight).astype(np.int64)
        listed = seen.lists(self.groups, value, known + lower, known + upper)
        unknown = pa.nulls(self.groups, listed.type)
        return listed, unknown, unknown


def _known(bound: Floats) -> pa.Array:
    return pa.array(bound, mask=~np.isfinite(bound))


def _floats(value: Floats, lower: Floats, upper: Floats, empty: NDArray[np.bool_]) -> Bounds:
    """Bounds with room for rounding: the whole may be summed in another order."""
    room = 1e-14 * np.abs(value)
    return pa.array(value, mask=empty), _known(lower - room), _known(upper + room)


def _whole(pairs: NDArray[np.int64], rest: Floats) -> NDArray[np.int64]:
    """high * 2^32 + low + rest, clamped to 64 bits; exact well within the range, if `rest` is."""
    high, low = pairs.T
    total = high * 2.0**32 + low + rest
    near = (np.abs(total) < LIMIT / 2) & (np.abs(rest) < LIMIT / 2)
    exact = (high << 32) + low + np.where(near, rest, 0.0).astype(np.int64)
    held = np.where(np.isnan(total), 0.0, np.clip(total, -LIMIT, np.nextafter(LIMIT, 0.0))).astype(np.int64)
    held = np.where(total >= LIMIT, np.iinfo(np.int64).max, held)
    return np.where(near, exact, held)
