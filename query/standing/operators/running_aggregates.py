"""Incremental aggregates of groups under insertion and removal, each with minimal state."""

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import Overflow
from promising.query.aggregate.aggregates import Aggregate
from promising.query.aggregate.arrow_memory import Column, present, raw
from promising.query.kernels import standing_groups as kernels
from promising.query.scalar.types import ARROW, Kind
from promising.query.standing.operators.entry_store import Codes, Entries, Places

A = TypeVar("A", bound=np.generic)


def grown(state: NDArray[A], size: int) -> NDArray[A]:
    """The state with room for `size` groups, zero where new."""
    if len(state) >= size:
        return state
    wider = np.zeros((max(size, 2 * len(state)), *state.shape[1:]), state.dtype)
    wider[: len(state)] = state
    return wider


class Argument:
    """The values of one argument, stored with each entry."""

    def __init__(self, entries: Entries, kind: Kind) -> None:
        self.kind = kind
        self._entries = entries
        self._values = entries.extra(np.float64 if kind == "float" else np.int64)
        self._there = entries.extra(np.uint8)

    @property
    def values(self) -> NDArray[Any]:
        return self._entries.extras[self._values]

    @property
    def there(self) -> NDArray[np.uint8]:
        return self._entries.extras[self._there]  # type: ignore[return-value]  # made as uint8

    def keep(self, places: Places, array: pa.Array) -> None:
        there = present(array)
        if self.kind != "string":  # strings can only be counted
            self.values[places] = raw(array, self.kind)
        self.there[places] = 1 if there is None else there


class Running(ABC):
    """One aggregate, for every group."""

    @abstractmethod
    def came(self, groups: Codes, places: Places, size: int) -> None:
        """Add entries; there are now `size` groups."""

    @abstractmethod
    def went(self, groups: Codes, places: Places) -> None:
        """Remove entries."""

    @abstractmethod
    def values(self, groups: Codes) -> pa.Array:
        """The aggregate of these groups."""

    @abstractmethod
    def keep(self, kept: NDArray[np.int64]) -> None:
        """Retain only these groups, renumbered by their index in this list."""

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in vars(self).values() if isinstance(part, np.ndarray))


class AggregateRows(Running):
    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def came(self, groups: Codes, places: Places, size: int) -> None: ...

    def went(self, groups: Codes, places: Places) -> None: ...

    def values(self, groups: Codes) -> pa.Array:
        return pa.array(self._entries.counts[groups].astype(np.int64))

    def keep(self, kept: NDArray[np.int64]) -> None: ...


class Counting(Running):
    """count(x); a base class for aggregates that need the number of values."""

    def __init__(self, argument: Argument) -> None:
        self.argument = argument
        self._counts = np.zeros(1, np.int64)

    def came(self, groups: Codes, places: Places, size: int) -> None:
        self._counts = grown(self._counts, size)
        kernels.count_there(groups, places, self.argument.there, 1, self._counts)

    def went(self, groups: Codes, places: Places) -> None:
        kernels.count_there(groups, places, self.argument.there, -1, self._counts)

    def values(self, groups: Codes) -> pa.Array:
        self._counts = grown(self._counts, int(groups.max(initial=0)) + 1)
        return pa.array(self._counts[groups])

    def keep(self, kept: NDArray[np.int64]) -> None:
        self._counts = self._counts[kept]


class IntSums(Counting):
    """Exact sum or avg of integers."""

    def __init__(self, argument: Argument, mean: bool) -> None:
        super().__init__(argument)
        self._mean = mean
        self._sums = np.zeros((1, 2), np.int64)

    def came(self, groups: Codes, places: Places, size: int) -> None:
        self._counts, self._sums = grown(self._counts, size), grown(self._sums, size)
        self._fold(groups, places, 1)

    def went(self, groups: Codes, places: Places) -> None:
        self._fold(groups, places, -1)

    def _fold(self, groups: Codes, places: Places, sign: int) -> None:
        values, there = self.argument.values, self.argument.there
        kernels.sum_ints(groups, places, values, there, sign, self._counts, self._sums)

    def values(self, groups: Codes) -> pa.Array:
        size = int(groups.max(initial=0)) + 1
        self._counts, self._sums = grown(self._counts, size), grown(self._sums, size)
        counts, high, low = self._counts[groups], self._sums[groups, 0], self._sums[groups, 1]
        if self._mean:
            return pa.array((high * 2.0**32 + low) / np.maximum(counts, 1), mask=counts == 0)
        beyond = np.flatnonzero((high < -(1 << 31)) | (high >= 1 << 31))
        if len(beyond):
            total = (int(high[beyond[0]]) << 32) + int(low[beyond[0]])
            raise Overflow(f"sum {total} does not fit 64 bits")
        return pa.array((high << 32) | low, mask=counts == 0)

    def keep(self, kept: NDArray[np.int64]) -> None:
        super().keep(kept)
        self._sums = self._sums[kept]


class FloatSums(Counting):
    """sum or avg of floats. The rounding error is tracked and corrected before it could show."""

    def __init__(self, argument: Argument, mean: bool, entries: Entries) -> None:
        super().__init__(argument)
        self._mean = mean
        self._entries = entries
        self._sums = np.zeros((1, 3))
        self._odd = np.zeros((1, 3), np.int64)

    def _grow(self, size: int) -> None:
        self._counts, self._sums = grown(self._counts, size), grown(self._sums, size)
        self._odd = grown(self._odd, size)

    def came(self, groups: Codes, places: Places, size: int) -> None:
        self._grow(size)
        self._fold(groups, places, 1)

    def went(self, groups: Codes, places: Places) -> None:
        self._fold(groups, places, -1)

    def _fold(self, groups: Codes, places: Places, sign: int) -> None:
        values, there = self.argument.values, self.argument.there
        kernels.sum_floats(groups, places, values, there, sign, self._counts, self._sums, self._odd)

    def values(self, groups: Codes) -> pa.Array:
        self._grow(int(groups.max(initial=0)) + 1)
        links, heads = self._entries.links, self._entries.heads
        kernels.sum_anew(groups, heads, links, self.argument.values, self.argument.there, self._sums)
        counts, odd = self._counts[groups], self._odd[groups]
        with np.errstate(invalid="ignore", over="ignore"):
            high = self._sums[groups, 0]
            sums = np.where(np.isfinite(high), high + self._sums[groups, 1], high)
            sums = np.where(odd[:, 1] > 0, sums + np.inf, sums)
            sums = np.where(odd[:, 2] > 0, sums - np.inf, sums)
            sums = np.where(odd[:, 0] > 0, np.nan, sums)
        return pa.array(sums / np.maximum(counts, 1) if self._mean else sums, mask=counts == 0)

    def keep(self, kept: NDArray[np.int64]) -> None:
        super().keep(kept)
        self._sums, self._odd = self._sums[kept], self._odd[kept]


class Extremes(Counting):
    """min or max of numbers, booleans and times. A group rescans its tuples when its extreme is removed."""

    def __init__(self, argument: Argument, least: bool, entries: Entries) -> None:
        super().__init__(argument)
        self._sign = 1 if least else -1
        self._entries = entries
        self._best: NDArray[Any] = np.zeros(1, np.float64 if argument.kind == "float" else np.int64)
        self._stale = np.zeros(1, np.uint8)

    def _grow(self, size: int) -> None:
        self._counts, self._best = grown(self._counts, size), grown(self._best, size)
        self._stale = grown(self._stale, size)

    def came(self, groups: Codes, places: Places, size: int) -> None:
        self._grow(size)
        values, there = self.argument.values, self.argument.there
        kernels.best_came(groups, places, values, there, self._sign, self._counts, self._best, self._stale)

    def went(self, groups: Codes, places: Places) -> None:
        values, there = self.argument.values, self.argument.there
        kernels.best_went(groups, places, values, there, self._counts, self._best, self._stale)

    def values(self, groups: Codes) -> pa.Array:
        self._grow(int(groups.max(initial=0)) + 1)
        kind = self.argument.kind
        if kind == "null":
            return pa.nulls(len(groups))
        links, heads = self._entries.links, self._entries.heads
        values, there = self.argument.values, self.argument.there
        kernels.best_anew(groups, heads, links, values, there, self._sign, self._best, self._stale)
        best, mask = self._best[groups], self._counts[groups] == 0
        return pa.array(best == 1, mask=mask) if kind == "bool" else pa.array(best, mask=mask).view(ARROW[kind])

    def keep(self, kept: NDArray[np.int64]) -> None:
        super().keep(kept)
        self._best, self._stale = self._best[kept], self._stale[kept]


def worked_out(aggregate: Aggregate, which: NDArray[np.int32], groups: int, values: pa.Array) -> pa.Array:
    """The aggregate of values by group, computed from scratch."""
    assert aggregate.kind is not None
    accumulator = aggregate.accumulator(True)
    accumulator.add(groups, which, Column(values, aggregate.kind))
    return accumulator.values(groups)


def running(aggregate: Aggregate, argument: Argument | None, entries: Entries) -> Running | None:
    """The incremental aggregate; None if it must be recomputed from all tuples of a group."""
    if not kept_up(aggregate):
        return None
    if argument is None:
        return AggregateRows(entries)
    if aggregate.function == "count":
        return Counting(argument)
    if aggregate.function in ("min", "max"):
        return Extremes(argument, aggregate.function == "min", entries)
    mean = aggregate.function == "avg"
    return FloatSums(argument, mean, entries) if aggregate.kind == "float" else IntSums(argument, mean)


def kept_up(aggregate: Aggregate) -> bool:
    if aggregate.function in ("min", "max"):
        return aggregate.kind != "string"
    return aggregate.function in ("count", "sum", "avg")
