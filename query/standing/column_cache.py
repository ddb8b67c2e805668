"""The columns of a stream that standing queries read, cached by arrival number for as long as a window needs them.

The log may evict a tuple, or move it to disk, while a view still shows it, and steps read values many times a second.
"""

from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index import Stream
from promising.index.log import TupleLog
from promising.query.scalar.types import ARROW, Kind

LEAST = 1024  # initial capacity of a column, in rows


class Held:
    """Numbers and null mask of arrivals `first` to `end`; those before `readable` were evicted before caching began."""

    def __init__(self, kind: Kind, first: int) -> None:
        self.kind = kind
        self.first = self.end = self.readable = first
        self._base = first  # the arrival at index 0
        self._data: NDArray[np.generic] = np.empty(LEAST, np.float64 if kind == "float" else np.int64)
        self._missing: NDArray[np.bool_] | None = None

    def append(self, values: pa.Array) -> None:
        new = len(values)
        used = self.end - self._base
        if used + new > len(self._data):
            self._move(self.end + new - self.first)
            used = self.end - self._base
        if values.null_count and self._missing is None:
            self._missing = np.zeros(len(self._data), np.bool_)
        if self._missing is not None:
            self._missing[used : used + new] = values.is_null().to_numpy(zero_copy_only=False)
        self._data[used : used + new] = _numbers(values, self.kind)
        self.end += new

    def _move(self, needed: int) -> None:
        """Copy the live values to new arrays with 1.5 times the needed capacity."""
        dead = self.first - self._base
        room = max(LEAST, needed * 3 // 2)
        for name in ("_data", "_missing"):
            old = getattr(self, name)
            if old is not None:
                fresh = np.zeros(room, old.dtype)
                fresh[: self.end - self.first] = old[dead : self.end - self._base]
                setattr(self, name, fresh)
        self._base = self.first

    def take(self, ids: NDArray[np.int64]) -> pa.Array:
        at = ids - self._base
        found = self._data[at]
        missing = None if self._missing is None else self._missing[at]
        if self.kind == "bool":
            return pa.array(found != 0, mask=missing)
        made = pa.array(found, mask=missing)
        return made if made.type == ARROW[self.kind] else made.view(ARROW[self.kind])

    def span(self, first: int, end: int) -> tuple[NDArray[np.generic], NDArray[np.bool_] | None]:
        """Values and null mask (if any) of these arrivals. No copy: valid until the next append."""
        at = slice(first - self._base, end - self._base)
        return self._data[at], None if self._missing is None else self._missing[at]

    def trim(self, first: int) -> None:
        self.first = max(self.first, min(first, self.end))
        if len(self._data) > LEAST and (self.end - self.first) * 4 < len(self._data):
            self._move(self.end - self.first)

    @property
    def nbytes(self) -> int:
        return self._data.nbytes + (0 if self._missing is None else self._missing.nbytes)


class HeldText:
    """One column of strings, in a few chunks that grow with age."""

    kind: Kind = "string"

    def __init__(self, first: int) -> None:
        self.first = self.end = self.readable = first
        self._chunks: list[pa.Array] = []

    def append(self, values: pa.Array) -> None:
        self.end += len(values)
        if len(values):
            self._chunks.append(values)
        chunks = self._chunks
        while len(chunks) > 1 and 2 * len(chunks[-1]) >= len(chunks[-2]):
            newest = chunks.pop()
            chunks[-1] = pa.concat_arrays([chunks[-1], newest])

    def take(self, ids: NDArray[np.int64]) -> pa.Array:
        if len(self._chunks) == 1:
            return self._chunks[0].take(pa.array(ids - (self.end - len(self._chunks[0]))))
        held = sum(map(len, self._chunks))
        found = pa.chunked_array(self._chunks, ARROW["string"]).take(pa.array(ids - (self.end - held)))
        return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)

    def span(self, first: int, end: int) -> tuple[NDArray[np.generic], NDArray[np.bool_] | None]:
        """No values, only the null mask."""
        return np.empty(0), self.take(np.arange(first, end)).is_null().to_numpy(zero_copy_only=False)

    def trim(self, first: int) -> None:
        self.first = max(self.first, min(first, self.end))
        held = sum(map(len, self._chunks))
        while self._chunks and held - len(self._chunks[0]) >= self.end - self.first:
            held -= len(self._chunks.pop(0))
        if self._chunks and held > LEAST and held > 2 * (self.end - self.first):
            dead = held - (self.end - self.first)
            kept = self._chunks[0].slice(dead)
            self._chunks[0] = pa.concat_arrays([kept, kept.slice(0, 0)]) if len(kept) else kept

    @property
    def nbytes(self) -> int:
        return sum(chunk.nbytes for chunk in self._chunks)


class StreamRows:
    """The cached arrivals `first` to `end` of a stream, without gaps: times and the named columns."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        with stream.reading() as log:
            self.end = log.arrived
            self.time = stream.time
            """The stream's time at the last read."""
        self._times = Held("int", self.end)
        self._columns: dict[str, Held | HeldText] = {}

    @property
    def first(self) -> int:
        return self._times.first

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._columns)

    def pull(self) -> tuple[int, int]:
        """Read new arrivals; returns (first, end). Skips evicted ones. If reading fails, nothing changes."""
        with self.stream.reading() as log:
            rows, first = _rows_from(log, self.end)
            columns = [self._times, *self._columns.values()]
            names = [self.stream.schema.time, *self._columns]
            arrays = [log.array(name, rows) for name in names]
            self._skip(first - self.end)
            for column, array in zip(columns, arrays, strict=True):
                column.append(array)
            self.end = log.arrived
            self.time = self.stream.time
        return first, self.end

    def _skip(self, arrivals: int) -> None:
        """Leave gaps for arrivals that can no longer be read; no reader receives their numbers."""
        for column in (self._times, *self._columns.values()):
            column.append(pa.nulls(arrivals, ARROW[column.kind]))

    def reach(self, names: frozenset[str], since: int) -> int:
        """Cache these columns, and arrivals dated after `since`; returns the first arrival that has all the columns."""
        with self.stream.reading() as log:
            first = min(log.first_after(since), self.first)
            new = names - self.names
            if first < self.first or new:
                self._fill(log, first, new)
            return max([self.first, *(self._columns[name].readable for name in names)])

    def _fill(self, log: TupleLog, first: int, new: frozenset[str]) -> None:
        """Read from arrival `first` on, as far as available. If reading fails, nothing changes."""
        rows, there = _rows_from(log, first)
        there = min(there, self.end)
        rows = rows[: self.end - there]  # the next `pull` reads newer ones
        first = min(self.first, there)
        times = self._times
        if first < self.first:
            times = Held("int", first)
            times.append(log.array(self.stream.schema.time, rows))
            new = new | self.names
        made: dict[str, Held | HeldText] = {}
        for name in new:
            column = made[name] = _column(self.stream.schema.types[name], first)
            column.append(pa.nulls(there - first, ARROW[column.kind]))
            column.append(log.array(name, rows))
            column.readable = there
        self._times = times
        self._columns.update(made)

    def times(self, first: int, end: int) -> NDArray[np.int64]:
        out: NDArray[np.int64] = self._times.take(np.arange(first, end)).to_numpy()
        return out

    def when(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        out: NDArray[np.int64] = self._times.take(ids).to_numpy()
        return out

    def take(self, column: str, ids: NDArray[np.int64]) -> pa.Array:
        return self._columns[column].take(ids)

    def span(self, column: str, first: int, end: int) -> tuple[NDArray[np.generic], NDArray[np.bool_] | None]:
        """Values and null mask (if any) of these arrivals: valid until the next `pull`."""
        return self._columns[column].span(first, end)

    def dated(self, first: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """Times of these arrivals, and which could not be read: valid until the next `pull`."""
        return self._times.span(first, end)  # type: ignore[return-value]  # times are whole numbers

    def forget(self, names: frozenset[str]) -> None:
        for name in names & self.names:
            del self._columns[name]

    def trim(self, first: int) -> None:
        for column in (self._times, *self._columns.values()):
            column.trim(first)

    @property
    def nbytes(self) -> int:
        return self._times.nbytes + sum(column.nbytes for column in self._columns.values())


def _rows_from(log: TupleLog, first: int) -> tuple[NDArray[np.int32], int]:
    """The contiguous rows from an arrival on, and the arrival of the first."""
    rows = log.rows_from(first)
    numbers = log.arrivals(rows)
    gaps = np.flatnonzero(np.diff(numbers) != 1)  # tuples lost from disk
    if len(gaps):
        rows, numbers = rows[gaps[-1] + 1 :], numbers[gaps[-1] + 1 :]
    return rows, int(numbers[0]) if len(numbers) else log.arrived


def _column(kind: str, first: int) -> Held | HeldText:
    return HeldText(first) if kind == "string" else Held(cast(Kind, kind), first)


def _numbers(values: pa.Array, kind: Kind) -> NDArray[np.generic]:
    """The values as numbers; arbitrary where null."""
    if kind == "bool":
        values = values.cast(pa.int8()).cast(pa.int64())
    elif kind != "float":
        values = values.view(pa.int64()) if values.type != pa.int64() else values
    out: NDArray[np.generic] = values.fill_null(0).to_numpy(zero_copy_only=False)
    return out
