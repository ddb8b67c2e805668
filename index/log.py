"""The stream's tuples, stored once, by column, in order of arrival.

Rows are allocated in chunks; a chunk is released when all its tuples are older than any reader needs, strictly in order
of arrival, and the lowest free chunk is used next. So row numbers are small and stable, and the resident size follows
the tuples retained. Where no chunk is free, the log doubles, up to its limit; row numbers stay.

A chunk whose tuples are stored on disk can become cold: it keeps its row numbers, and its columns are read from the
store on demand. Chunk bounds answer questions about times where they suffice.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from promising.errors import CeilingReached, StorageError, UnknownName, WrongType
from promising.index.chunks import Chunk
from promising.index.columns import Columns
from promising.index.image_arrays import joined
from promising.index.instants import BEGINNING, END
from promising.index.kernels.edges import count_inside
from promising.index.kernels.seal import extent, time_range
from promising.index.schema import Column, Schema
from promising.summaries.reserved import longer

CHUNK = 1 << 14  # a power of two
MOST_ROWS = (1 << 31) - CHUNK  # row numbers have 32 bits
SLICE = 1 << 18  # tuples released at once
PART = 1 << 16  # tuples read at once by what follows the log


class Unsure(NamedTuple):
    """Cold chunks across an edge of a window: tuples in question, and bounds of the chunk's times."""

    rows: NDArray[np.int64]
    earliest: NDArray[np.int64]
    latest: NDArray[np.int64]


class TupleLog(Columns):
    """Columns of up to `max_tuples` tuples, rounded up to whole chunks; None: as many as rows can be numbered."""

    def __init__(self, schema: Schema, max_tuples: int | None = None, max_string_bytes: int | None = None) -> None:
        super().__init__(schema, CHUNK)
        self.max_string_bytes = max_string_bytes
        self.limit = -(-(MOST_ROWS if max_tuples is None else max_tuples) // CHUNK) * CHUNK
        self._free = [0]
        self._chunks: deque[Chunk] = deque()
        self._used = np.zeros(1, np.int64)  # rows written, by chunk
        self.bases: NDArray[np.int64] = np.zeros(1, np.int64)  # arrivals before each chunk
        self._edges = np.zeros((1, 2), np.int64)  # earliest and latest time, by chunk
        self.arrived = 0
        self._held = 0  # tuples

    def __len__(self) -> int:
        return self._held

    @property
    def _times(self) -> NDArray[np.int64]:
        times: NDArray[np.int64] = self._columns[self.schema.time].array
        return times

    def _reserve(self, chunks: int) -> None:
        """Have so many free chunks, below the limit."""
        have = self.capacity // CHUNK
        lack = chunks - len(self._free)
        if lack <= 0:
            return
        total = min(max(2 * have, have + lack), self.limit // CHUNK)
        assert total >= have + lack, "the caller has checked the limit"
        self._enlarge(total)
        self._free.extend(range(have * CHUNK, total * CHUNK, CHUNK))  # above all others: still a heap

    def _enlarge(self, chunks: int) -> None:
        """Have memory for so many chunks."""
        self._used, self.bases = longer(self._used, chunks), longer(self.bases, chunks)
        self._edges = longer(self._edges, chunks)
        self._grow(chunks, joined((c.start, c.start + c.used) for c in self._warm_chunks(self._chunks)))

    def _warm_chunks(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        return [c for c in chunks if self._tiers.run[c.start // CHUNK] < 0]

    def spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of the chunks in use, in order of arrival: first row, rows used, earliest and latest time."""
        starts = np.fromiter((c.start for c in self._chunks), np.int64, len(self._chunks))
        at = starts // CHUNK
        return starts, self._used[at], self._edges[at, 0], self._edges[at, 1]

    def homes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of the same chunks: arrivals before each, its run (-1 if in memory) and its place there."""
        at = np.fromiter((c.start for c in self._chunks), np.int64, len(self._chunks)) // CHUNK
        return self.bases[at], self._tiers.run[at], self._tiers.place[at]

    @property
    def first_arrival(self) -> int:
        """The arrival number of the first tuple in the log, or of the next one."""
        return self._chunks[0].base if self._chunks else self.arrived

    def first_after(self, time: int) -> int:
        """The first arrival of a chunk that may have a tuple dated later."""
        return next((chunk.base for chunk in self._chunks if chunk.latest > time), self.arrived)

    def count_from(self, oldest: int | None) -> int:
        if oldest is None:
            return len(self)
        return sum(self._count_from(c, oldest) for c in self._chunks if c.latest >= oldest)

    def _count_from(self, chunk: Chunk, oldest: int) -> int:
        """An unreadable chunk counts as a whole: reading its tuples raises."""
        if chunk.earliest >= oldest:
            return chunk.used
        try:
            return int((self.when(self._rows_of(chunk)) >= oldest).sum())
        except StorageError:
            return chunk.used

    def check_room(self, tuples: int, columns: dict[str, Column], oldest: Callable[[], int | None]) -> None:
        """Reserve memory; reject what would not fit even after everything older than `oldest()` has been released."""
        if tuples <= len(self._free) * CHUNK and (not self._heaps or self.max_string_bytes is None):
            return
        leaving = self.leaving(oldest())
        last = self._chunks[-1] if self._open() and leaving < len(self._chunks) else None
        begun = 0 if last is None else CHUNK - last.used
        room = begun + self.room_after(leaving)
        if tuples > room:
            raise CeilingReached(f"{tuples:,} tuples do not fit: {self.told(room)}")
        self.reserve(tuples - begun, leaving)
        if not self._heaps or self.max_string_bytes is None:
            return
        strings = self.string_bytes_with(columns, islice(self._chunks, leaving), last)
        if strings > self.max_string_bytes:
            raise CeilingReached(
                f"strings would take {strings:,} bytes, {self.string_bytes:,} with those here already: the stream keeps"
                f" up to {self.max_string_bytes:,}; raise max_string_bytes, or let it keep less"
            )

    def room(self, oldest: int | None) -> int:
        """Tuples that fit into new chunks, once everything older than `oldest` has been released."""
        return self.room_after(self.leaving(oldest))

    def room_after(self, leaving: int) -> int:
        return (len(self._free) + leaving) * CHUNK + self.limit - self.capacity

    def told(self, room: int) -> str:
        """The limit in words, and how to raise it."""
        if self.limit + CHUNK > MOST_ROWS:
            return f"a stream can number {self.limit:,} tuples and has room for {room:,}; use several streams"
        return (
            f"the stream keeps up to {self.limit:,} and has room for {room:,}; raise max_tuples, or let it"
            " keep less (ALTER STREAM ... KEEP)"
        )

    def reserve(self, tuples: int, leaving: int = 0) -> None:
        """Have memory for so many tuples in new chunks and in the first `leaving`, which are about to be released."""
        try:
            self._reserve(-(-tuples // CHUNK) - leaving)
        except MemoryError as problem:
            raise CeilingReached(
                f"{tuples:,} tuples do not fit: {problem}; give the stream a limit (max_tuples) that this machine can"
                " hold, or the process more memory"
            ) from None

    def begins(self, tuples: int) -> bool:
        """Whether so many tuples need a new chunk."""
        return not self._open() or tuples > CHUNK - self._chunks[-1].used

    def _open(self) -> bool:
        """Whether the last chunk accepts tuples: not if cold, or if later tuples were lost."""
        if not self._chunks or self._chunks[-1].used == CHUNK:
            return False
        last = self._chunks[-1]
        return bool(self._tiers.run[last.start // CHUNK] < 0) and last.base + last.used == self.arrived

    def write(self, columns: dict[str, Column], tuples: int) -> NDArray[np.int32]:
        """Append the tuples; returns their rows. `check_room` has passed."""
        rows = np.empty(tuples, np.int32)
        done = 0
        while done < tuples:
            chunk = self._chunks[-1] if self._open() else self._begin()
            take = min(tuples - done, CHUNK - chunk.used)
            at = chunk.start + chunk.used
            rows[done : done + take] = np.arange(at, at + take, dtype=np.int32)
            for name, column in columns.items():
                self._write(name, column, chunk, at, done, take)
            least, greatest = extent(self._times[at : at + take])
            chunk.earliest, chunk.latest = min(chunk.earliest, least), max(chunk.latest, greatest)
            self._edges[chunk.start // CHUNK] = chunk.earliest, chunk.latest
            chunk.used += take
            self._used[chunk.start // CHUNK] = chunk.used
            self.arrived += take
            self._held += take
            done += take
        return rows

    def _begin(self) -> Chunk:
        self._reserve(1)
        chunk = Chunk(heappop(self._free), self.arrived, 0, END, BEGINNING)
        self._chunks.append(chunk)
        self.bases[chunk.start // CHUNK] = self.arrived
        return chunk

    def adopt(self, run: int, times: NDArray[np.int64], nulls: Iterable[str]) -> NDArray[np.int32]:
        """Append tuples stored as that run, in order; returns their rows. nulls: columns with any. There is `room`."""
        chunks = []
        for first in range(0, len(times), CHUNK):
            part = times[first : first + CHUNK]
            chunk = self._begin()
            chunk.used = len(part)
            chunk.earliest, chunk.latest = extent(part)
            at = chunk.start // CHUNK
            self._edges[at], self._used[at] = (chunk.earliest, chunk.latest), chunk.used
            self.arrived += chunk.used
            self._held += chunk.used
            chunks.append(chunk)
        self._tiers.cool(run, [c.start // CHUNK for c in chunks], [c.used for c in chunks])
        for name in nulls:
            self._may_be_null(name)
        return np.concatenate([self._rows_of(c) for c in chunks])

    def leaving(self, oldest: int | None) -> int:
        """The number of first chunks with only tuples older than `oldest`."""
        count = 0
        for chunk in self._chunks:
            if oldest is None or chunk.latest >= oldest:
                break
            count += 1
        return count

    def release(self, oldest: int, tuples: int = 0) -> list[NDArray[np.int32]]:
        """Release the first chunks with only tuples older than `oldest`; returns their rows, oldest first.

        If there are many, only as many as make room for `tuples`, and a slice; all with strings, which have a ceiling
        in bytes. The rows are readable until the next `write`.
        """
        leaving = self.leaving(oldest)
        least = -(-tuples // CHUNK) + 1 - len(self._free)
        gone = []
        for _ in range(leaving if self._heaps else min(leaving, max(least, SLICE // CHUNK))):
            gone.append(self._rows_of(self._chunks.popleft()))
            self._held -= len(gone[-1])
        return gone

    def recycle(self, gone: list[NDArray[np.int32]]) -> None:
        """Free the rows that `release` returned."""
        for rows in gone:
            start = int(rows[0])
            self._used[start // CHUNK] = 0
            self._let_go(start)
            heappush(self._free, start)

    def check_rows(self, rows: NDArray[Any]) -> NDArray[np.int32]:
        """Validate a caller's rows: each must have a tuple, though maybe not the one the caller saw."""
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
        """Rows from the `arrival`-th tuple on, in order of arrival."""
        parts = [np.empty(0, np.int32)]
        for chunk in reversed(self._chunks):
            if chunk.base + chunk.used <= arrival:
                break
            first = chunk.start + max(arrival - chunk.base, 0)
            parts.append(np.arange(first, chunk.start + chunk.used, dtype=np.int32))
        return np.concatenate(parts[::-1])

    def next_rows(self, arrival: int, most: int) -> tuple[NDArray[np.int32], int]:
        """Up to so many consecutive rows from that arrival, or the next one, on, and the arrival after them.

        They are of chunks in memory, or of one that is not.
        """
        first = last = after = -1
        for chunk in self._chunks:
            if chunk.base + chunk.used <= arrival:
                continue
            skipped = max(arrival - chunk.base, 0)
            if first < 0:
                first = last = chunk.start + skipped
            elif chunk.start != last or chunk.base != after or not self.in_memory(np.array([first, last])):
                break
            last = min(first + most, chunk.start + chunk.used)
            after = chunk.base + last - chunk.start
            if last < chunk.start + chunk.used:
                break
        return (np.arange(first, last, dtype=np.int32), after) if first >= 0 else (np.empty(0, np.int32), self.arrived)

    def following(self, arrival: int, most: int, *, warm: bool) -> Iterator[tuple[NDArray[np.int32], int]]:
        """`next_rows` from that arrival on, until there are about so many; `warm`: up to the first that is on disk."""
        done = 0
        while done < most and arrival < self.arrived:
            rows, arrival = self.next_rows(arrival, min(most - done, PART))
            if warm and len(rows) and not self.in_memory(rows[:1].astype(np.int64) // self.chunk * self.chunk):
                return
            done += len(rows)
            yield rows, arrival

    def unchanged(self, rows: NDArray[np.int32], bases: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows still have the tuple that they had when `bases` was copied."""
        at = rows // CHUNK
        found: NDArray[np.bool_] = (self.bases[at] == bases[at]) & (self._used[at] > 0)
        return found

    def rows(self) -> NDArray[np.int32]:
        parts = [self._rows_of(c) for c in self._chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def stretches(self) -> list[tuple[int, int]]:
        """All rows, in order of arrival, as ranges (first, last + 1)."""
        return [(c.start, c.start + c.used) for c in self._chunks]

    def _rows_of(self, chunk: Chunk) -> NDArray[np.int32]:
        return np.arange(chunk.start, chunk.start + chunk.used, dtype=np.int32)

    def has_nulls(self, name: str) -> bool:
        return any(self.nulls(name, self._rows_of(c)) is not None for c in self._chunks)

    # --- when --------------------------------------------------------------------------------------------------

    @property
    def times(self) -> NDArray[np.int64] | None:
        """The event time at every row; None if some are not in memory."""
        return None if self._tiers else self._times

    def when(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        return self.values(self.schema.time, rows)

    def span(self, rows: NDArray[np.int32]) -> tuple[int, int]:
        """The least and the greatest event time of at least one row."""
        found = extent(self.when(rows)) if self._tiers else time_range(self._times, rows, len(rows))
        return int(found[0]), int(found[1])

    def edges(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bounds of the event time of each row, without reading it."""
        at = rows // CHUNK
        return self._edges[at, 0], self._edges[at, 1]

    def arrivals(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """The arrival number of each row."""
        found: NDArray[np.int64] = self.bases[rows // CHUNK] + rows % CHUNK
        return found

    def between(self, rows: NDArray[np.int32], start: int, end: int) -> NDArray[np.bool_]:
        if not self._tiers:
            times = self.when(rows)
            return (times >= start) & (times < end)
        earliest, latest = self.edges(rows)
        inside: NDArray[np.bool_] = (latest >= start) & (earliest < end)
        unsure = np.flatnonzero(inside & ~((earliest >= start) & (latest < end)))
        times = self.when(rows[unsure])
        inside[unsure] = (times >= start) & (times < end)
        return inside

    def inside(self, stretches: NDArray[np.int32], start: int, end: int) -> tuple[int, "Unsure"]:
        """How many tuples at these ranges of rows are surely in the window, and which are not known without a disk."""
        unsure = np.zeros(len(self._tiers.run), np.int64)
        count = count_inside(
            self._times, stretches, CHUNK.bit_length() - 1, self._edges, self._tiers.run, start, end, unsure
        )
        at = np.flatnonzero(unsure)
        return int(count), Unsure(unsure[at], self._edges[at, 0], self._edges[at, 1])

    @property
    def time_range(self) -> tuple[int, int]:
        """Bounds of the event times retained."""
        if not self._chunks:
            return 0, 0
        return min(c.earliest for c in self._chunks), max(c.latest for c in self._chunks)

    @property
    def nbytes(self) -> int:
        """Bytes of the tuples in memory, fixed columns by row and strings by heap, and of the way to those on disk."""
        held = (len(self._chunks) - sum(self._tiers.live.values())) * CHUNK
        found = 0 if self.reader is None else self.reader.footer_bytes
        return held * self.row_bytes + self.string_bytes + found

    @property
    def row_bytes(self) -> int:
        """Bytes of a tuple in memory, without strings."""
        return sum(c.array.itemsize for c in self._columns.values()) + len(self._nulls)

    # --- warm and cold -----------------------------------------------------------------------------------------

    @property
    def warm(self) -> int:
        return self._held - int(self._used[self._tiers.run >= 0].sum())

    def in_memory(self, starts: NDArray[np.int64]) -> bool:
        """Whether none of the chunks that start at these rows is cold."""
        return not (self._tiers.run[starts // CHUNK] >= 0).any()

    @property
    def runs(self) -> list[int]:
        return sorted(self._tiers.live)

    def coolable(self, before: int, warm: int, most: int) -> list[Chunk]:
        """The oldest adjacent closed chunks dated before `before`, at most `most`, that leave `warm` tuples warm."""
        excess = (self.warm - warm) // CHUNK
        out: list[Chunk] = []
        for chunk in self._chunks:
            done = chunk.used == CHUNK or chunk is not self._chunks[-1]
            fits = done and chunk.latest < before and self._tiers.run[chunk.start // CHUNK] < 0
            if len(out) >= min(excess, most) or (out and not fits):
                break
            if fits:
                out.append(chunk)
        return out

    def columns_of(self, chunks: list[Chunk]) -> dict[str, Column]:
        rows = np.concatenate([self._rows_of(c) for c in chunks])
        out = {}
        for name in self.schema.types:
            nulls = self.nulls(name, rows)
            if name in self._columns:
                out[name] = Column(self.values(name, rows), None, nulls)
            else:
                out[name] = Column(None, self._strings(name, rows), nulls)
        return out

    def cool(self, run: int, chunks: list[Chunk]) -> bool:
        """Release the columns of these chunks, now stored as that run. False if a chunk was released meanwhile."""
        known = {c.start: c.base for c in self._chunks}
        if any(known.get(c.start) != c.base for c in chunks):
            return False
        self._cool(run, chunks)
        return True

    def lose(self, run: int) -> int:
        """Drop a run that cannot be read any more; returns the tuples lost. Summaries must be rebuilt."""
        lost = [c for c in self._chunks if self._tiers.run[c.start // CHUNK] == run]
        self._chunks = deque(c for c in self._chunks if self._tiers.run[c.start // CHUNK] != run)
        self.recycle([self._rows_of(c) for c in lost])
        self._held -= sum(c.used for c in lost)
        return sum(c.used for c in lost)

    # --- to disk and back --------------------------------------------------------------------------------------

    def image(self) -> dict[str, Any]:
        """The state as a tree of arrays; of cold chunks only their location."""
        warm = self._warm_chunks(self._chunks)
        at = [c.start // CHUNK for c in self._chunks]
        return {
            "arrived": self.arrived,
            "chunks": np.array([[c.start, c.base, c.used, c.earliest, c.latest] for c in self._chunks], np.int64),
            "run": self._tiers.run[at],
            "place": self._tiers.place[at],
            **self._columns_image(warm),
        }

    def restore(self, image: dict[str, Any]) -> None:
        self.arrived = image["arrived"]
        chunks = [Chunk(*(int(v) for v in line)) for line in image["chunks"]]
        taken = {c.start for c in chunks}
        self._enlarge(max((start // CHUNK + 1 for start in taken), default=1))
        self._chunks = deque(chunks)
        self._held = sum(c.used for c in chunks)
        self._free = [start for start in range(0, self.capacity, CHUNK) if start not in taken]
        for chunk, run, place in zip(chunks, image["run"].tolist(), image["place"].tolist(), strict=True):
            at = chunk.start // CHUNK
            self.bases[at], self._used[at] = chunk.base, chunk.used
            self._edges[at] = chunk.earliest, chunk.latest
            if run >= 0:
                self._tiers.run[at], self._tiers.place[at] = run, place
                self._tiers.live[run] = self._tiers.live.get(run, 0) + 1
        self._restore_columns(image, self._warm_chunks(chunks))
