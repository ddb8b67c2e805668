"""Chunks of the log: bounds, strings, and which of them are cold."""

import ctypes
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.schema import Column
from promising.summaries.reserved import longer


@dataclass
class Chunk:
    """`used` rows from `start` on, dated `earliest` to `latest`; the first was the stream's `base`-th arrival."""

    start: int
    base: int
    used: int
    earliest: int
    latest: int


class Heap:
    """The strings of one chunk of one column: bytes and offsets."""

    def __init__(self, rows: int, room: int = 1024) -> None:
        self.offsets = np.zeros(rows + 1, np.int64)
        self.bytes = np.empty(room, np.uint8)

    def write(self, at: int, text: pa.LargeStringArray) -> None:
        """Append `text` as the rows from `at` on; all earlier rows have been written."""
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
        """Additional bytes for `size` bytes from row `at` on."""
        return self._room(int(self.offsets[at]) + size) - self.bytes.size

    @property
    def nbytes(self) -> int:
        return self.bytes.nbytes + self.offsets.nbytes


class ColdReader(Protocol):
    """Reads columns of cold tuples: a run by number, a tuple by its offset in the run."""

    @property
    def footer_bytes(self) -> int:
        """Bytes of memory to find tuples on disk, without those that are cached."""

    def column(self, run: int, name: str, offsets: NDArray[np.int32]) -> Column:
        """One column at these offsets, in that order."""


class ChunkPart(NamedTuple):
    """Indices into a list of rows that lie in one run, and their offsets in it."""

    run: int
    where: NDArray[np.int64]
    offsets: NDArray[np.int32]


class Tiers:
    """Which chunks are cold, and where: `place` tuples after the beginning of `run`."""

    def __init__(self, chunks: int, chunk: int) -> None:
        self._lg = chunk.bit_length() - 1
        self._local = chunk - 1
        self.run = np.full(chunks, -1, np.int64)
        self.place = np.zeros(chunks, np.int64)
        self.live: dict[int, int] = {}  # chunks still in use, by run

    def grow(self, chunks: int) -> None:
        self.run, self.place = longer(self.run, chunks, -1), longer(self.place, chunks)

    def __bool__(self) -> bool:
        return bool(self.live)

    def cool(self, run: int, chunks: list[int], used: list[int]) -> None:
        """Mark these chunks, in order of arrival with so many tuples each, as the run."""
        self.run[chunks] = run
        self.place[chunks] = np.cumsum(used) - used
        self.live[run] = len(chunks)

    def leave(self, chunk: int) -> None:
        run = int(self.run[chunk])
        if run >= 0:
            self.run[chunk], self.place[chunk] = -1, 0
            self.live[run] -= 1
            if not self.live[run]:
                del self.live[run]

    def cold(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.run[rows >> self._lg] >= 0
        return found

    def parts(self, rows: NDArray[np.int32]) -> Iterator[ChunkPart]:
        chunks = rows >> self._lg
        runs = self.run[chunks]
        where = np.flatnonzero(runs >= 0)
        if not len(where):
            return
        where = where[np.argsort(runs[where], kind="stable")]
        offsets = (self.place[chunks[where]] + (rows[where] & self._local)).astype(np.int32)
        edges = np.flatnonzero(np.diff(runs[where])) + 1
        for at, offset in zip(np.split(where, edges), np.split(offsets, edges), strict=True):
            yield ChunkPart(int(runs[at[0]]), at, offset)


def give_back(column: NDArray[Any], first: int, last: int) -> None:
    """Return the memory of column[first:last] to the system; its content is lost."""
    page = mmap.PAGESIZE
    base = column.ctypes.data
    start = -(-(base + first * column.itemsize) // page) * page
    stop = (base + last * column.itemsize) // page * page
    if stop > start:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), ctypes.c_int(4))  # DONTNEED
