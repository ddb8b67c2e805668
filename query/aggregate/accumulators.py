"""The state of each aggregate, by group.

`ids` are the groups of a slice's rows; None means one group, 0, without hashing or scattering. A state is read for
`groups` groups, all that exist so far; unseen groups have their empty value. States are O(groups), except `Ordered`,
which retains all values, and `Distinct`, which retains the distinct ones.
"""

from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import Overflow
from promising.query.aggregate.arrow_memory import Column, Ids, Numbers, text, widened, words
from promising.query.aggregate.grouping import GroupTable, Strings
from promising.query.aggregate.known import Known
from promising.query.kernels.folds import (
    add_floats,
    add_ints,
    best_strings,
    carry,
    greatest,
    keep_strings,
    least,
    merge,
    pack_strings,
    scatter,
    tally,
    total_ints,
)
from promising.query.scalar.types import ARROW, Kind

MOST_LOOSE = 1 << 30  # values whose low words sum to less than 2^63, with room for a slice
NO_IDS = np.empty(0, np.int32)  # for values of a single group
CROWDED = 1 << 16  # bytes of discarded strings before the rest is compacted


class Accumulator(Protocol):
    @property
    def nbytes(self) -> int: ...

    def add(self, groups: int, ids: Ids | None, column: Column) -> None:
        """Add a slice; its rows belong to the first `groups` groups."""

    def values(self, groups: int) -> pa.Array:
        """The aggregate of each group."""


class Absorbing(Accumulator, Protocol):
    """An accumulator that needs no values."""

    def absorb(self, known: Known) -> None:
        """Add values of groups 0, 1, ... of which this is known."""


class Count:
    """The number of non-null values, or of rows."""

    def __init__(self) -> None:
        self._counts = np.zeros(1, np.int64)

    @property
    def nbytes(self) -> int:
        return self._counts.nbytes

    def add(self, groups: int, ids: Ids | None, column: Column) -> None:
        if ids is None:
            self._counts[0] += column.rows
        else:
            self.add_rows(groups, column.ids(ids), column.rows)

    def add_rows(self, groups: int, ids: Ids | None, rows: int) -> None:
        if ids is None:
            self._counts[0] += rows
            return
        self._counts = widened(self._counts, groups)
        tally(ids, self._counts)

    def absorb(self, known: Known) -> None:
        groups = len(known.count)
        self._counts = widened(self._counts, groups)
        self._counts[:groups] += known.count

    def counts(self, groups: int) -> NDArray[np.int64]:
        self._counts = widened(self._counts, groups)
        return self._counts[:groups]

    def values(self, groups: int) -> pa.Array:
        return pa.array(self.counts(groups).copy())


class FloatSum:
    """Compensated sums of floats: row order affects the last bit at most."""

    def __init__(self, mean: bool) -> None:
        self._mean = mean
        self._counts = np.zeros(1, np.int64)
        self._sums = np.zeros((1, 2))

    @property
    def nbytes(self) -> int:
        return self._counts.nbytes + self._sums.nbytes

    def add(self, groups: int, ids: Ids | None, column: Column) -> None:
        values = column.numbers
        self._widen(groups)
        with np.errstate(over="ignore", invalid="ignore"):
            if ids is not None:
                add_floats(column.ids(ids), values, self._counts, self._sums)
            elif len(values):
                total = np.add.reduce(values, keepdims=True)
                add_floats(np.zeros(1, np.int32), total, self._counts, self._sums)
                self._counts[0] += len(values) - 1

    def _widen(self, groups: int) -> None:
        self._counts = widened(self._counts, groups)
        self._sums = widened(self._sums, groups)

    def counts(self, groups: int) -> NDArray[np.int64]:
        self._widen(groups)
        return self._counts[:groups]

    def sums(self, groups: int) -> NDArray[np.float64]:
        self._widen(groups)
        sums, lost = self._sums[:groups, 0], self._sums[:groups, 1]
        whole = np.isfinite(sums)
        return sums + np.where(whole, lost, 0.0)

    def values(self, groups: int) -> pa.Array:
        counts, sums = self.counts(groups), self.sums(groups)
        return pa.array(sums / np.maximum(counts, 1) if self._mean else sums, mask=counts == 0)


class IntSum:
    """Exact sums of integers as (high, low): high * 2^32 + low, 0 <= low < 2^32."""

    def __init__(self, mean: bool) -> None:
        self._mean = mean
        self._counts = np.zeros(1, np.int64)
        self._sums = np.zeros((1, 2), np.int64)
        self._loose = 0  # values added since the low words were last below 2^32

    @property
    def nbytes(self) -> int:
        return self._counts.nbytes + self._sums.nbytes

    def add(self, groups: int, ids: Ids | None, column: Column) -> None:
        values = column.numbers
        self._widen(groups)
        self._loose += len(values)
        if self._loose > MOST_LOOSE:
            self._carry()
        if ids is not None:
            add_ints(column.ids(ids), values, self._counts, self._sums)
        else:
            total = np.empty(2, np.int64)
            total_ints(values, total)
            self._sums[0] += total
            self._counts[0] += len(values)

    def absorb(self, known: Known) -> None:
        assert known.moments is not None
        groups = len(known.count)
        self._widen(groups)
        self._counts[:groups] += known.count
        self._sums[:groups] += known.moments.pairs()
        self._loose += groups

    def _carry(self) -> None:
        carry(self._sums)
        self._loose = 0

    def _widen(self, groups: int) -> None:
        self._counts = widened(self._counts, groups)
        self._sums = widened(self._sums, groups)

    def counts(self, groups: int) -> NDArray[np.int64]:
        self._widen(groups)
        return self._counts[:groups]

    def sums(self, groups: int) -> NDArray[np.float64]:
        """The sums as floats, with at most two roundings."""
        high, low = self.pairs(groups).T
        sums: NDArray[np.float64] = high * 2.0**32 + low
        return sums

    def pairs(self, groups: int) -> NDArray[np.int64]:
        self._widen(groups)
        self._carry()
        return self._sums[:groups]

    def values(self, groups: int) -> pa.Array:
        counts, pairs = self.counts(groups), self.pairs(groups)
        if self._mean:
            return pa.array(self.sums(groups) / np.maximum(counts, 1), mask=counts == 0)
        beyond = np.flatnonzero((pairs[:, 0] < -(1 << 31)) | (pairs[:, 0] >= 1 << 31))
        if len(beyond):
            high, low = pairs[beyond[0]].tolist()
            raise Overflow(f"sum {(high << 32) + low} does not fit 64 bits")
        return pa.array((pairs[:, 0] << 32) | pairs[:, 1], mask=counts == 0)


class Extreme:
    """The least or greatest number, boolean or time. NaN is greater than every number."""

    def __init__(self, kind: Kind, lowest: bool) -> None:
        self._kind = kind
        self._lowest = lowest
        self._seen = np.zeros(1, np.uint8)
        self._best: Numbers = np.zeros(1, np.float64 if kind == "float" else np.int64)

    @property
    def nbytes(self) -> int:
        return self._seen.nbytes + self._best.nbytes

    def add(self, groups: int, ids: Ids | None, column: Column) -> None:
        values = column.numbers
        self._widen(groups)
        if ids is not None:
            places = column.ids(ids)
        elif len(values):
            reduce = np.fmin.reduce if self._lowest else np.maximum.reduce
            values, places = reduce(values, keepdims=True), np.zeros(1, np.int32)
        else:
            return
        self._take(places, values)

    def _take(self, places: Ids, values: Numbers) -> None:
        if self._lowest:
            least(places, values, self._seen, self._best)
        else:
            greatest(places, values, self._seen, self._best)

    def absorb(self, known: Known) -> None:
        groups = len(known.count)
        self._widen(groups)
        some, best = known.extreme(lowest=self._lowest)
        places = np.flatnonzero(some).astype(np.int32)
        self._take(places, np.ascontiguousarray(best[places]))

    def _widen(self, groups: int) -> None:
        self._seen = widened(self._seen, groups)
        self._best = widened(self._best, groups)

    def values(self, groups: int) -> pa.Array:
        self._widen(groups)
        mask = self._seen[:groups] == 0
        if self._kind == "null":
            return pa.nulls(groups)
        if self._kind == "bool":
            return pa.array(self._best[:groups] == 1, mask=mask)
        return pa.array(self._best[:groups].copy(), mask=mask).view(ARROW[self._kind])


class ExtremeString:
    """The least or greatest string by bytes. Memory: at most twice the current best strings."""

    def __init__(self, least: bool) -> None:
        self._sign = 1 if least else -1
        self._seen = np.zeros(1, np.uint8)
        self._starts = np.zeros(1, np.int64)
        self._stops = np.zeros(1, np.int64)
        self._rows = np.full(1, -1, np.int64)
        self._arena = np.empty(0, np.uint8)
        self._end = 0

    @property
    def nbytes(self) -> int:
        return self._arena.nbytes + self._seen.nbytes + self._starts.nbytes + self._stops.nbytes + self._rows.nbytes

    def add(self, groups: int, ids: Ids | None, column: Column) -> None:
        self._widen(groups)
        if not column.rows:
            return
        data, offsets = text(column.strings)
        changed = np.empty(min(groups, column.rows), np.int32)
        count = best_strings(
            column.ids(ids),
            data,
            offsets,
            self._sign,
            self._seen,
            self._arena,
            self._starts,
            self._stops,
            self._rows,
            changed,
        )
        changed = changed[:count]
        rows = self._rows[changed]
        more = int((offsets[rows + 1] - offsets[rows]).sum())
        if self._end + more > len(self._arena):
            self._pack(more)
        self._end = keep_strings(
            changed, data, offsets, self._seen, self._arena, self._starts, self._stops, self._rows, self._end
        )

    def _pack(self, more: int) -> None:
        """Drop discarded strings, and make room for `more` bytes and as many as are retained."""
        kept = int((self._stops - self._starts).sum())
        wider = np.empty(2 * kept + more + CROWDED, np.uint8)
        self._end = pack_strings(self._arena, self._starts, self._stops, wider)
        self._arena = wider

    def _widen(self, groups: int) -> None:
        self._seen = widened(self._seen, groups)
        self._starts = widened(self._starts, groups)
        self._stops = widened(self._stops, groups)
        known = len(self._rows)
        self._rows = widened(self._rows, groups)
        self._rows[known:] = -1

    def values(self, groups: int) -> pa.Array:
        self._widen(groups)
        starts, stops = self._starts[:groups].copy(), self._stops[:groups].copy()
        out = np.empty(int((stops - starts).sum()), np.uint8)
        pack_strings(self._arena, starts, stops, out)
        ends = np.concatenate(([0], stops))
        held = pa.Array.from_buffers(ARROW["string"], groups, [None, pa.py_buffer(ends), pa.py_buffer(out)])
        missing = self._seen[:groups] == 0
        return held.take(pa.array(np.arange(groups), mask=missing)) if missing.any() else held


def in_order(ids: Ids, values: NDArray[np.float64], groups: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Start offsets of the groups (and the end of the last), and the values sorted by group, NaN last."""
    starts = np.zeros(groups + 1, np.int64)
    if groups == 1:
        starts[1] = len(values)
        return starts, np.sort(values)
    order = np.argsort(values)
    tally(ids, starts[1:])
    np.cumsum(starts, out=starts)
    out = np.empty(len(values))
    scatter(ids[order], values[order], starts[:-1].copy(), out)
    return starts, out


class Ordered:
    """All values, for a quantile interpolated between two neighbours. 12 bytes per value, 8 after the first read."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._new: list[tuple[Ids, NDArray[np.float64]]] = []
        self._size = 0  # bytes of `_new`, and as many for sorting it
        self._starts = np.zeros(1, np.int64)
        self._sorted = np.empty(0)

    @property
    def nbytes(self) -> int:
        return self._size + 2 * (self._starts.nbytes + self._sorted.nbytes)  # merging needs as much again

    def add(self, groups: int, ids: Ids | None, column: Column) -> None:
        if column.rows:
            self._new.append((NO_IDS if ids is None else column.ids(ids), column.floats.copy()))
            self._size += 2 * sum(part.nbytes for part in self._new[-1])

    def sorted(self, groups: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The result of `in_order`. Sorts only new values and merges them with the rest."""
        most = max(groups, len(self._starts) - 1)
        if len(self._starts) <= most:
            more = np.full(most + 1 - len(self._starts), self._starts[-1])
            self._starts = np.concatenate((self._starts, more))
        if self._new:
            ids, values = (np.concatenate(parts) for parts in zip(*self._new, strict=True))
            starts, values = in_order(ids, values, most)
            if len(self._sorted):
                both = np.empty(len(self._sorted) + len(values))
                merge(self._starts, self._sorted, starts, values, both)
                starts, values = starts + self._starts, both
            self._starts, self._sorted, self._new, self._size = starts, values, [], 0
        return self._starts[: groups + 1], self._sorted

    def values(self, groups: int) -> pa.Array:
        starts, values = self.sorted(groups)
        counts = np.diff(starts)
        place = self._at * np.maximum(counts - 1, 0)
        below = np.floor(place).astype(np.int64)
        share = place - below
        if not len(values):
            return pa.nulls(groups, pa.float64())
        first = np.minimum(starts[:-1] + below, len(values) - 1)
        low, high = values[first], values[np.minimum(first + 1, len(values) - 1)]
        with np.errstate(invalid="ignore", over="ignore"):
            between = low * (1 - share) + high * share
        return pa.array(np.where((share == 0) | (low == high), low, between), mask=counts == 0)


class Distinct:
    def __init__(self, kind: Kind, keyed: bool) -> None:
        self._keyed = keyed
        self._strings = Strings() if kind == "string" else None
        self.table = GroupTable(2 if keyed else 1)
        self._counts = np.zeros(1, np.int64)

    @property
    def nbytes(self) -> int:
        strings = 0 if self._strings is None else self._strings.nbytes
        return strings + self.table.nbytes + self._counts.nbytes

    def rows(self, ids: Ids | None, column: Column) -> NDArray[np.int64]:
        """Rows of a table: the group if there are several, then the value. New strings get a code."""
        out = np.empty((2 if self._keyed else 1, column.rows), np.int64)
        if self._keyed:
            out[0] = column.ids(ids)
        if self._strings is not None:
            out[-1] = self._strings.enter(column.strings)
        else:
            out[-1] = words(column.numbers)
        return out

    def add(self, groups: int, ids: Ids | None, column: Column) -> None:
        before = self.table.size
        self.table.enter(self.rows(ids, column))
        self._counts = widened(self._counts, groups)
        if self._keyed:
            tally(self.table.stored[before:, 0].astype(np.int32), self._counts)
        else:
            self._counts[0] = self.table.size

    def counts(self, groups: int) -> NDArray[np.int64]:
        self._counts = widened(self._counts, groups)
        return self._counts[:groups]

    def values(self, groups: int) -> pa.Array:
        return pa.array(self.counts(groups).copy())
