"""ORDER BY."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from promising.query.kernels.merging import merge
from promising.query.steps import Load, Steps, drained

RUN = 1 << 16  # rows sorted in one step; four times as many are merged in one


class Direction(Protocol):
    """How a sort key orders."""

    @property
    def descending(self) -> bool: ...

    @property
    def nulls_first(self) -> bool: ...


class Term(NamedTuple):
    """The direction of a sort key that no statement names."""

    descending: bool = False
    nulls_first: bool = False


def sorted_places(keys: Sequence[pa.Array], orders: Sequence[Direction]) -> NDArray[np.int64]:
    """Row positions in sort order; stable. NaN is greater than every number, as in DuckDB."""
    return drained(sorting(keys, orders))


def sorting(keys: Sequence[pa.Array], orders: Sequence[Direction]) -> Steps[NDArray[np.int64]]:
    """The same in steps."""
    columns: list[NDArray[np.int64]] = []
    rows = len(keys[0])
    load = Load()
    for key, order in zip(keys, orders, strict=True):
        if pa.types.is_null(key.type):
            continue
        if key.null_count:
            missing = key.is_null().to_numpy(zero_copy_only=False)
            columns.append((missing ^ order.nulls_first).astype(np.int64))
        words = _words(key)
        columns.append(~words if order.descending else words)
        if load.full(rows):
            yield
    if not columns:
        return np.arange(rows)
    if rows * len(columns) <= RUN:
        return np.lexsort(columns[::-1])
    places = yield from _places(columns[-1])
    for words in columns[-2::-1]:  # each sort keeps the order by the columns after it
        some = yield from _places(words[places])
        places = places[some]
        if load.full(rows):
            yield
    return places


def _places(words: NDArray[np.int64]) -> Steps[NDArray[np.int64]]:
    """The order of numbers, stable: runs are sorted one by one, and then merged in pairs."""
    runs = []
    for first in range(0, len(words), RUN):
        if first:
            yield
        some = words[first : first + RUN]
        order = np.argsort(some, kind="stable")
        if len(words) <= RUN:
            return order
        runs.append((some[order], order + first))
    while len(runs) > 1:
        merged = []
        for left, right in zip(runs[::2], runs[1::2], strict=False):
            size = len(left[0]) + len(right[0])
            out, at = (np.empty(size, np.int64), np.empty(size, np.int64)), np.zeros(2, np.int64)
            while at.sum() < size:
                yield
                merge(*left, *right, *out, at, 4 * RUN)
            merged.append(out)
        runs = merged + runs[len(runs) & ~1 :]
    return runs[0][1] if runs else np.empty(0, np.int64)


def _words(key: pa.Array) -> NDArray[np.int64]:
    """Integers in the order of the values; all nulls get the same arbitrary one."""
    found: NDArray[np.int64]
    if pa.types.is_large_string(key.type):
        ranks = pc.rank(key.fill_null(""), sort_keys="ascending", tiebreaker="dense")
        found = ranks.to_numpy().astype(np.int64)
    elif pa.types.is_floating(key.type):
        numbers = key.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        found = bits ^ ((bits >> 63) & np.int64((1 << 63) - 1))  # the bits of negative floats order backwards
    elif pa.types.is_boolean(key.type):
        found = key.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
    else:
        found = key.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found
