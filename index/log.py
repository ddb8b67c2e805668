"""The stream's tuples, stored once, column by column, in order of arrival.

Memory is reserved for `max_tuples` at the start and touched only when used. Rows are handed out in chunks; a chunk is
given back when all its tuples are older than anything that reads them, strictly in order of arrival, and the lowest
free chunk is used next. So row numbers are small, stay put, and the resident size follows the tuples kept.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from index.kernels.gather import copy_strings, gather, string_lengths
from index.kernels.seal import extent
from index.schema import TYPES, Column, Schema
from summaries.errors import CeilingReached, UnknownName, WrongType
from summaries.hashing import hash_keys
from summaries.keys import Keys

CHUNK = 1 << 14  # a power of two

_DTYPES = {"int": np.int64, "float": np.float64, "bool": np.uint8, "timestamp": np.int64}


@dataclass
class Chunk:
    """`used` rows from `start` on, none earlier than `earliest` or later than `latest`.

    The first of them was the stream's `base`-th tuple to arrive.
    """

    start: int
    base: int
    used: int
    earliest: int
    latest: int


class Heap:
    """The strings of one chunk of one column: bytes, and where each row's begin and end."""

    def __init__(self) -> None:
        self.offsets = np.zeros(CHUNK + 1, np.int64)
        self.bytes = np.empty(1024, np.uint8)

    def write(self, at: int, text: pa.LargeStringArray) -> None:
        """Append `text` as the rows from `at` on; every earlier row has been written."""
        n = len(text)
        _, offsets_buffer, data = text.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int64)[text.offset : text.offset + n + 1]
        base = int(self.offsets[at])
        size = int(offsets[-1] - offsets[0])
        if base + size > self.bytes.size:
            grown = np.empty(self._room(base + size), np.uint8)
            grown[:base] = self.bytes[:base]
            self.bytes = grown
        if size:
            self.bytes[base : base + size] = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
        self.offsets[at + 1 : at + n + 1] = offsets[1:] - offsets[0] + base

    def _room(self, needed: int) -> int:
        return self.bytes.size if needed <= self.bytes.size else max(2 * self.bytes.size, needed)

    def growth(self, at: int, size: int) -> int:
        """By how much `size` bytes from row `at` on make it larger."""
        return self._room(int(self.offsets[at]) + size) - self.bytes.size

    @property
    def nbytes(self) -> int:
        return self.bytes.nbytes + self.offsets.nbytes


class TupleLog:
    """Columns of up to `max_tuples` tuples, rounded up to whole chunks."""

    def __init__(self, schema: Schema, max_tuples: int, max_string_bytes: int) -> None:
        self.schema = schema
        chunks = -(-max_tuples // CHUNK)
        self.capacity = chunks * CHUNK
        self.max_string_bytes = max_string_bytes
        self.string_bytes = 0
        self._free = list(range(0, self.capacity, CHUNK))
        heapify(self._free)
        self._chunks: deque[Chunk] = deque()
        self._used = np.zeros(chunks, np.int64)  # rows written, by chunk
        self.bases: NDArray[np.int64] = np.zeros(chunks, np.int64)  # arrivals before each chunk
        self._edges = np.zeros((chunks, 2), np.int64)  # earliest and latest time, by chunk
        self.arrived = 0
        self._columns = {
            name: np.empty(self.capacity, _DTYPES[kind]) for name, kind in schema.types.items() if kind != "string"
        }
        self._heaps: dict[str, dict[int, Heap]] = {n: {} for n, k in schema.types.items() if k == "string"}
        self._nulls: dict[str, NDArray[np.uint8]] = {}
        self.times: NDArray[np.int64] = self._columns[schema.time]

    def __len__(self) -> int:
        return (len(self._chunks) - 1) * CHUNK + self._chunks[-1].used if self._chunks else 0

    def spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of the chunks in use, in order of arrival: first row, rows used, earliest and latest time."""
        starts = np.fromiter((c.start for c in self._chunks), np.int64, len(self._chunks))
        at = starts // CHUNK
        return starts, self._used[at], self._edges[at, 0], self._edges[at, 1]

    def count_from(self, oldest: int | None) -> int:
        """Tuples dated `oldest` or later."""
        if oldest is None:
            return len(self)
        return sum(
            c.used if c.earliest >= oldest else int((self.times[c.start : c.start + c.used] >= oldest).sum())
            for c in self._chunks
            if c.latest >= oldest
        )

    def check_room(self, tuples: int, columns: dict[str, Column], oldest: Callable[[], int | None]) -> None:
        """Refuse what would not fit even after everything older than `oldest()` has been given back."""
        if tuples <= len(self._free) * CHUNK and not self._heaps:
            return
        leaving = self._leaving(oldest())
        open_room = CHUNK - self._chunks[-1].used if self._chunks and leaving < len(self._chunks) else 0
        room = open_room + (len(self._free) + leaving) * CHUNK
        if tuples > room:
            raise CeilingReached(
                f"{tuples:,} tuples do not fit: the stream keeps up to {self.capacity:,} and has room for {room:,};"
                " raise max_tuples, or shorten what its summaries retain (GRANULARITY, COLLAPSE)"
            )
        strings = self._string_bytes_with(columns, leaving)
        if strings > self.max_string_bytes:
            raise CeilingReached(
                f"strings would take {strings:,} bytes, {self.string_bytes:,} with those here already: the stream keeps"
                f" up to {self.max_string_bytes:,}; raise max_string_bytes, or shorten what its summaries retain"
            )

    def _string_bytes_with(self, columns: dict[str, Column], leaving: int) -> int:
        """`string_bytes` once the first `leaving` chunks are gone and these columns written."""
        total = self.string_bytes
        used = self._chunks[-1].used if leaving < len(self._chunks) else 0
        for name, heaps in self._heaps.items():
            total -= sum(heaps[c.start].nbytes for c in islice(self._chunks, leaving))
            text = columns[name].text
            ends = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]
            for start in range(-used, len(text), CHUNK):  # where the chunk's first row is, counted in the batch
                first, last = max(start, 0), min(start + CHUNK, len(text))
                if start >= 0:
                    heap = Heap()
                    total += heap.nbytes
                elif first < last:
                    heap = heaps[self._chunks[-1].start]
                else:
                    continue
                total += heap.growth(first - start, int(ends[last] - ends[first]))
        return total

    def write(self, columns: dict[str, Column], tuples: int) -> NDArray[np.int32]:
        """Append the tuples; returns their rows. `check_room` has passed."""
        rows = np.empty(tuples, np.int32)
        done = 0
        while done < tuples:
            if not self._chunks or self._chunks[-1].used == CHUNK:
                self._chunks.append(Chunk(heappop(self._free), self.arrived, 0, 1 << 62, -(1 << 62)))
                self.bases[self._chunks[-1].start // CHUNK] = self.arrived
            chunk = self._chunks[-1]
            take = min(tuples - done, CHUNK - chunk.used)
            at = chunk.start + chunk.used
            rows[done : done + take] = np.arange(at, at + take, dtype=np.int32)
            for name, column in columns.items():
                self._write(name, column, chunk, at, done, take)
            least, greatest = extent(self.times[at : at + take])
            chunk.earliest, chunk.latest = min(chunk.earliest, least), max(chunk.latest, greatest)
            self._edges[chunk.start // CHUNK] = chunk.earliest, chunk.latest
            chunk.used += take
            self._used[chunk.start // CHUNK] = chunk.used
            self.arrived += take
            done += take
        return rows

    def _write(self, name: str, column: Column, chunk: Chunk, at: int, done: int, take: int) -> None:
        if column.values is not None:
            self._columns[name][at : at + take] = column.values[done : done + take]
        else:
            assert column.text is not None
            heap = self._heaps[name].get(chunk.start)
            if heap is None:
                heap = self._heaps[name][chunk.start] = Heap()
                self.string_bytes += heap.nbytes
            before = heap.nbytes
            heap.write(chunk.used, column.text.slice(done, take))
            self.string_bytes += heap.nbytes - before
        if column.nulls is not None and name not in self._nulls:
            self._nulls[name] = np.zeros(self.capacity, np.uint8)
        if name in self._nulls:
            marks = self._nulls[name][at : at + take]
            marks[:] = 0 if column.nulls is None else column.nulls[done : done + take]

    def _leaving(self, oldest: int | None) -> int:
        """How many of the first chunks hold only tuples older than `oldest`."""
        count = 0
        for chunk in self._chunks:
            if oldest is None or chunk.latest >= oldest:
                break
            count += 1
        return count

    def release(self, oldest: int) -> list[NDArray[np.int32]]:
        """Give back the first chunks that hold only tuples older than `oldest`; returns their rows, oldest first.

        The rows can be read until the next `write`.
        """
        gone = []
        for _ in range(self._leaving(oldest)):
            chunk = self._chunks.popleft()
            gone.append(np.arange(chunk.start, chunk.start + chunk.used, dtype=np.int32))
        return gone

    def recycle(self, gone: list[NDArray[np.int32]]) -> None:
        """Make the rows that `release` returned free for new tuples."""
        for rows in gone:
            start = int(rows[0])
            self._used[start // CHUNK] = 0
            for heaps in self._heaps.values():
                heap = heaps.pop(start, None)
                if heap is not None:
                    self.string_bytes -= heap.nbytes
            heappush(self._free, start)

    def check_rows(self, rows: NDArray[Any]) -> NDArray[np.int32]:
        """Rows from outside: each must have a tuple, if not the one that was there when the caller got it."""
        given = np.asarray(rows)
        if given.dtype.kind not in "iu" or given.ndim != 1:
            raise WrongType(f"rows are a column of whole numbers, not {given.dtype} of shape {given.shape}")
        bad = (given < 0) | (given >= self.capacity)
        bad |= given % CHUNK >= self._used[np.where(bad, 0, given) // CHUNK]
        if bad.any():
            at = int(np.argmax(bad))
            raise UnknownName(f"no tuple at row {given[at]} (place {at}); rows stay good until the next tuples come in")
        return np.ascontiguousarray(given, np.int32)

    def rows_from(self, arrival: int) -> NDArray[np.int32]:
        """Rows of the tuples that arrived from the `arrival`-th on, in order of arrival."""
        parts = [np.empty(0, np.int32)]
        for chunk in reversed(self._chunks):
            if chunk.base + chunk.used <= arrival:
                break
            first = chunk.start + max(arrival - chunk.base, 0)
            parts.append(np.arange(first, chunk.start + chunk.used, dtype=np.int32))
        return np.concatenate(parts[::-1])

    def rows(self) -> NDArray[np.int32]:
        """All rows, in order of arrival."""
        parts = [np.arange(c.start, c.start + c.used, dtype=np.int32) for c in self._chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def has_nulls(self, name: str) -> bool:
        """Whether any tuple kept has no value in this column."""
        return name in self._nulls and bool(self._nulls[name][self.rows()].any())

    def hash_column(self, column: Column, seed: int) -> NDArray[np.int64]:
        """Key hashes of a batch."""
        return hash_keys(column.values if column.values is not None else column.text, seed).view(np.int64)

    def hashes(self, key: str, rows: NDArray[np.int32], seed: int) -> NDArray[np.int64]:
        """Key hashes of these rows."""
        values = self.values(key, rows) if key in self._columns else self._strings(key, rows)
        return hash_keys(values, seed).view(np.int64)

    def values(self, name: str, rows: NDArray[np.int32]) -> NDArray[Any]:
        """A column that is no string column, at these rows; a null is whatever stands in its place."""
        column = self._columns[name]
        out = np.empty(len(rows), column.dtype)
        gather(column, rows, out)
        return out

    def plain(self, name: str) -> bool:
        """Whether `values` is all there is to a column: no strings, no nulls."""
        return name in self._columns and name not in self._nulls

    def to_arrow(self, name: str, values: NDArray[Any], nulls: NDArray[np.bool_] | None) -> pa.Array:
        """What `values` gave, as an array of the column's type."""
        kind = self.schema.types[name]
        if kind == "bool":
            return pa.array(values.view(np.bool_), mask=nulls)
        valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        return pa.Array.from_buffers(TYPES[kind], len(values), [valid, pa.py_buffer(values)])

    def names(self, columns: list[str] | None) -> list[str]:
        """Columns asked for, all if None."""
        names = list(self.schema.types) if columns is None else columns
        for name in names:
            if name not in self.schema.types:
                raise UnknownName(f"no column {name!r}; columns are {', '.join(self.schema.types)}")
        return names

    def same(
        self, key: str, rows: NDArray[np.int32], asked: Keys, probe: NDArray[np.int32]
    ) -> NDArray[np.bool_] | None:
        """Which rows really hold the key asked for.

        None if all must, as integers do: theirs is a hash without collisions.
        """
        if isinstance(asked, np.ndarray) or not len(rows):
            return None
        wanted = asked.cast(pa.large_string()).take(pa.array(probe))
        return np.asarray(pc.equal(self._strings(key, rows), wanted).to_numpy(zero_copy_only=False))

    @property
    def time_range(self) -> tuple[int, int]:
        """Bounds of the event times kept: nothing is earlier or later."""
        if not self._chunks:
            return 0, 0
        return min(c.earliest for c in self._chunks), max(c.latest for c in self._chunks)

    def take(self, rows: NDArray[np.int32], columns: list[str] | None = None) -> pa.Table:
        """The tuples at these rows, in that order."""
        return pa.table({name: self.array(name, rows) for name in self.names(columns)})

    def nulls(self, name: str, rows: NDArray[np.int32]) -> NDArray[np.bool_] | None:
        """Which of these rows have no value in a column; None if none has."""
        if name not in self._nulls:
            return None
        marks = self._nulls[name][rows].view(np.bool_)
        return marks if marks.any() else None

    def array(self, name: str, rows: NDArray[np.int32]) -> pa.Array:
        """A column at these rows."""
        mask = self.nulls(name, rows)
        if name in self._columns:
            return self.to_arrow(name, self.values(name, rows), mask)
        text = self._strings(name, rows)
        return text if mask is None else pc.if_else(pa.array(mask), pa.scalar(None, pa.large_string()), text)

    def _strings(self, name: str, rows: NDArray[np.int32]) -> pa.LargeStringArray:
        """The lengths chunk by chunk, then the bytes: each string is copied once, to its place."""
        chunks = (rows // CHUNK).astype(np.uint16 if self.capacity // CHUNK <= 1 << 16 else np.int32)
        order = np.argsort(chunks, kind="stable")
        edges = np.flatnonzero(np.diff(chunks[order])) + 1
        parts = [part for part in np.split(order, edges) if len(part)]
        ends = np.zeros(len(rows) + 1, np.int64)
        heaps = [self._heaps[name][int(rows[part[0]]) // CHUNK * CHUNK] for part in parts]
        for part, heap in zip(parts, heaps, strict=True):
            string_lengths(heap.offsets, CHUNK, rows, part, ends)
        np.cumsum(ends, out=ends)
        text = np.empty(int(ends[-1]), np.uint8)
        for part, heap in zip(parts, heaps, strict=True):
            copy_strings(heap.offsets, heap.bytes, CHUNK, rows, part, ends, text)
        return pa.Array.from_buffers(pa.large_string(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(text)])

    @property
    def nbytes(self) -> int:
        """Bytes of the tuples kept: fixed columns by the row, strings by what their heaps hold."""
        held = len(self._chunks) * CHUNK
        fixed = sum(c.itemsize for c in self._columns.values()) + len(self._nulls)
        return held * fixed + self.string_bytes
