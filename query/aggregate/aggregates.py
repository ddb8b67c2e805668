"""Exact aggregates by group, over slices of rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, cast, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.dictionary import CodedStrings
from promising.query.aggregate.accumulators import (
    Absorbing,
    Accumulator,
    Count,
    Distinct,
    Extreme,
    ExtremeString,
    FloatSum,
    IntSum,
    Ordered,
)
from promising.query.aggregate.arrow_memory import Column, Ids
from promising.query.aggregate.exact_sums import ExactSum
from promising.query.aggregate.grouping import GroupKeys, GroupTable, Key
from promising.query.aggregate.known import Known
from promising.query.aggregate.most_frequent import MostFrequent
from promising.query.scalar.types import ARROW, NAMES, NUMBERS, TOP, Kind

Approximate = Literal["approx_quantile", "approx_count_distinct", "approx_top_k"]
Function = Literal["count", "sum", "avg", "min", "max", "median", "quantile", "count_distinct"] | Approximate

APPROXIMATE: Final[tuple[Approximate, ...]] = get_args(Approximate)
"""Functions that may be answered from sketches. Over tuples they are exact."""
QUANTILES: Final[frozenset[Function]] = frozenset({"quantile", "approx_quantile"})
OF_NUMBERS: Final[frozenset[Function]] = frozenset({"sum", "avg", "median", *QUANTILES})


def check(function: Function, kind: Kind | None) -> str | None:
    """What is wrong with this function on an argument of this type (None: no argument); None if valid."""
    if kind is None:
        return None if function == "count" else f"{function} needs an argument"
    if function in OF_NUMBERS and kind not in NUMBERS and kind != "null":
        return f"{function} wants a number, not {NAMES[kind]}"
    return None


@dataclass(frozen=True)
class Aggregate:
    """An aggregate call. `kind` is the type of its argument, None for count(*).

    `at` is the rank of a quantile, from 0 to 1, or the length of a list of the most frequent values, from 1 on.
    """

    function: Function
    kind: Kind | None = None
    at: float | None = None

    @property
    def result_kind(self) -> Kind:
        if self.function in ("count", "count_distinct", "approx_count_distinct"):
            return "int"
        if self.function == "approx_top_k":
            assert self.kind is not None
            return TOP[self.kind]
        if self.function in ("min", "max"):
            assert self.kind is not None
            return self.kind
        return "float" if self.function != "sum" or self.kind == "float" else "int"

    @property
    def rank(self) -> float:
        if self.function == "median":
            return 0.5
        assert self.at is not None
        return self.at

    def accumulator(self, keyed: bool, exact: bool = False) -> Accumulator:
        """An empty state; `keyed` if there can be several groups, `exact` for sums that depend on no order."""
        if self.function == "count":
            return Count()
        assert self.kind is not None
        if self.function in ("sum", "avg"):
            mean = self.function == "avg"
            return IntSum(mean) if self.kind != "float" else ExactSum(mean) if exact else FloatSum(mean)
        if self.function in ("min", "max"):
            least = self.function == "min"
            return ExtremeString(least) if self.kind == "string" else Extreme(self.kind, least)
        if self.function in ("count_distinct", "approx_count_distinct"):
            return Distinct(self.kind, keyed)
        if self.function == "approx_top_k":
            assert self.at is not None
            return MostFrequent(self.kind, int(self.at))
        return Ordered(self.rank)


@dataclass
class Result:
    keys: list[pa.Array]
    values: list[pa.Array]


class Groups:
    """Aggregates by key of all rows added so far; groups are in order of first appearance. O(1) per row.

    NULL keys are equal, so are NaN keys; 0.0 equals -0.0. NULL arguments are ignored. Without keys there is one group.
    exact: sums of floats depend on no order of rows.
    """

    def __init__(self, keys: Sequence[Kind], aggregates: Sequence[Aggregate], *, exact: bool = False) -> None:
        self.kinds = tuple(keys)
        self.aggregates = tuple(aggregates)
        self._keys = GroupKeys(keys)
        self._table = GroupTable(self._keys.width)
        self.exact = exact
        self.accumulators = [aggregate.accumulator(bool(keys), exact) for aggregate in aggregates]

    @property
    def keyed(self) -> bool:
        return bool(self._keys.kinds)

    @property
    def size(self) -> int:
        return self._table.size if self.keyed else 1

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._table.nbytes + sum(a.nbytes for a in self.accumulators)

    def empty(self) -> "Groups":
        """The same aggregates of no rows."""
        return Groups(self.kinds, self.aggregates, exact=self.exact)

    def absorb(self, keys: Sequence[pa.Array], known: Sequence[Known]) -> None:
        """Add rows of which this is known, before all others: the keys of each group, no two equal; by aggregate."""
        if self.keyed:
            self._table.enter(self._keys.encode(keys, len(keys[0])))
        for accumulator, part in zip(self.accumulators, known, strict=True):
            cast(Absorbing, accumulator).absorb(part)

    def add(self, keys: Sequence[Key], arguments: Sequence[pa.Array | None], rows: int) -> Ids | None:
        """Add a slice: arrays of `rows` values, of the Arrow types of their kinds. If one is not, nothing is added.

        Returns the group of each row; None without keys.
        """
        columns = self.columns(keys, arguments, rows)
        ids = self._table.enter(self._keys.encode(keys, rows)) if self.keyed else None
        if rows:
            self._add(columns, ids, rows)
        return ids

    def add_known(self, keys: Sequence[pa.Array], arguments: Sequence[pa.Array | None], rows: int) -> NDArray[np.bool_]:
        """Add the rows of groups that exist; returns which they are."""
        ids = self._table.find(self._keys.find(keys, rows))
        known = ids >= 0
        if known.any():
            mask = pa.array(known)
            kept = [None if a is None else a.filter(mask) for a in arguments]
            ids = np.ascontiguousarray(ids[known])
            self._add(self.columns([k.filter(mask) for k in keys], kept, len(ids)), ids, len(ids))
        return known

    def _add(self, columns: list[Column | None], ids: Ids | None, rows: int) -> None:
        for accumulator, column in zip(self.accumulators, columns, strict=True):
            if column is not None:
                accumulator.add(self.size, ids, column)
            else:
                assert isinstance(accumulator, Count)
                accumulator.add_rows(self.size, ids, rows)

    def columns(self, keys: Sequence[Key], arguments: Sequence[pa.Array | None], rows: int) -> list[Column | None]:
        """The arguments, checked like the keys. Arguments that are the same array share one column."""
        made: dict[int, Column] = {}
        columns: list[Column | None] = []
        for kind, array in zip(self._keys.kinds, keys, strict=True):
            _check(array, kind, rows)
        for aggregate, argument in zip(self.aggregates, arguments, strict=True):
            if aggregate.kind is None:
                columns.append(None)
                continue
            if argument is None:
                raise TypeError(f"no argument for {aggregate}")
            _check(argument, aggregate.kind, rows)
            if id(argument) not in made:
                made[id(argument)] = Column(argument, aggregate.kind)
            columns.append(made[id(argument)])
        return columns

    def place(self, keys: Sequence[pa.Array], rows: int) -> tuple[Ids | None, list[pa.Array]]:
        """The group of each row and the keys of all groups, as if the rows had been added; new groups are last."""
        if not self.keyed:
            return None, []
        table = GroupTable(self._keys.width)
        ids = table.enter(self._keys.encode(keys, rows))
        known = self._table.find(np.ascontiguousarray(table.stored.T))
        new = known < 0
        known[new] = np.arange(self.size, self.size + np.count_nonzero(new), dtype=np.int32)
        return known[ids], self._keys.decode(np.concatenate((self._table.stored, table.stored[new])))

    def result(self) -> Result:
        """The current aggregates. Raises Overflow if an integer sum does not fit."""
        made = [column() for column in self.columns_of_result()]
        keys = len(self.kinds)
        return Result(made[:keys], made[keys:])

    def columns_of_result(self) -> Iterator[Callable[[], pa.Array]]:
        """What makes each column of the result: keys, then aggregates."""
        stored, size = self._table.stored, self.size
        for place in range(len(self.kinds)):
            yield partial(self._keys.column, place, stored)
        for accumulator in self.accumulators:
            yield partial(accumulator.values, size)


def _check(array: Key, kind: Kind, rows: int) -> None:
    """Kernels would read memory of another type as garbage, or out of range."""
    size = len(array.codes) if isinstance(array, CodedStrings) else len(array)
    if array.type != ARROW[kind] or size != rows:
        raise TypeError(f"{size} values of type {array.type} where {rows} of {ARROW[kind]} are due")
