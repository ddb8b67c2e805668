"""Aggregation by more groups than memory holds."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.query.aggregate.aggregates import Groups
from promising.query.aggregate.grouping import row_hashes
from promising.query.spill import Spill, SpillFile, write

FAN_BITS = 4
DEEPEST = 64 // FAN_BITS
WAITING = 1 << 18  # bytes of rows that wait for being divided among files
FULL = 1 << 22  # bytes of groups of a file that are aggregated at once

Emit = Callable[[Groups, NDArray[np.int64]], Iterator[None]]
"""Receives finished groups, and the number of the first row of each."""


class SpilledGroups:
    """Takes the rows that follow those of `groups`, which is frozen: no new group enters it.

    Rows of other groups go to files, divided by the hash of their key, and each file is aggregated later in the same
    way. So a group is aggregated in one place, from its rows in their order, and has the value that it would have had.
    """

    def __init__(self, groups: Groups, spill: Spill) -> None:
        self.pressed = False  # whether memory is short
        self._spill = spill
        self._empty = groups.empty
        self._rows = groups.size
        self._open: set[SpillFile] = set()
        self._top: _Level | None = _Level(self, groups, np.arange(groups.size), 0)
        self._top.frozen = True
        self._working: _Level | None = None  # of a file

    @property
    def _levels(self) -> "list[_Level]":
        return [level for level in (self._top, self._working) if level is not None]

    @property
    def nbytes(self) -> int:
        return sum(level.nbytes for level in self._levels)

    @property
    def size(self) -> int:
        """Groups in memory."""
        return sum(level.groups.size for level in self._levels)

    def add(self, keys: Sequence[pa.Array], arguments: Sequence[pa.Array | None], rows: int) -> None:
        assert self._top is not None
        numbers = pa.array(np.arange(self._rows, self._rows + rows))
        self._rows += rows
        given = [a for a in arguments if a is not None]
        columns = [*keys, *given, numbers]
        self._top.add(pa.RecordBatch.from_arrays(columns, [f"c{n}" for n in range(len(columns))]))

    def finish(self, emit: Emit) -> Iterator[None]:
        """Emit all groups, in steps."""
        assert self._top is not None
        level, self._top = self._top, None
        yield from self._drain(level, emit)

    def _drain(self, level: "_Level", emit: Emit) -> Iterator[None]:
        self._working = level
        level.divide()
        yield from emit(level.groups, level.first)
        depth, files = level.depth, level.files
        self._working = level = None  # type: ignore[assignment]  # its groups are no longer needed
        for file in files:
            if file is None:
                continue
            part = self._working = _Level(self, self._empty(), np.empty(0, np.int64), depth + 1)
            for number in range(len(file)):
                part.add(file.read(number))
                if not part.frozen:
                    part.frozen = part.groups.nbytes > (WAITING if self.pressed else FULL) and depth < DEEPEST - 1
                yield
            file.close()
            self._open.discard(file)
            yield from self._drain(part, emit)

    def create(self, schema: pa.Schema) -> SpillFile:
        file = self._spill.create(schema)
        self._open.add(file)
        return file

    def close(self) -> None:
        """Delete all files."""
        for file in self._open:
            file.close()
        self._open.clear()
        self._top = self._working = None


class _Level:
    """Groups in memory, with the number of each one's first row; once frozen, also files of the rows of others."""

    def __init__(self, owner: SpilledGroups, groups: Groups, first: NDArray[np.int64], depth: int) -> None:
        self._create = owner.create
        self.groups = groups
        self.first = first
        self.depth = depth
        self.frozen = False
        self.files: list[SpillFile | None] = [None] * (1 << FAN_BITS)
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0

    @property
    def nbytes(self) -> int:
        return self.groups.nbytes + self.first.nbytes + self._size

    def add(self, rows: pa.RecordBatch) -> None:
        keys, arguments = self._parts(rows)
        if not self.frozen:
            before = self.groups.size
            ids = self.groups.add(keys, arguments, rows.num_rows)
            assert ids is not None
            numbers = rows.columns[-1].to_numpy()
            fresh = np.flatnonzero(ids >= before)[::-1]  # the first row of a group is written last
            first = np.empty(self.groups.size - before, np.int64)
            first[ids[fresh] - before] = numbers[fresh]
            self.first = np.concatenate((self.first, first))
            return
        known = self.groups.add_known(keys, arguments, rows.num_rows)
        rest = rows.filter(pa.array(~known))
        if rest.num_rows:
            self._waiting.append(rest)
            self._size += rest.nbytes
            if self._size > WAITING:
                self.divide()

    def _parts(self, rows: pa.RecordBatch) -> tuple[list[pa.Array], list[pa.Array | None]]:
        keys = len(self.groups.kinds)
        given = iter(rows.columns[keys:-1])
        return list(rows.columns[:keys]), [None if a.kind is None else next(given) for a in self.groups.aggregates]

    def divide(self) -> None:
        """Write the waiting rows to the files of their keys."""
        if not self._waiting:
            return
        rows = pa.concat_batches(self._waiting)
        self._waiting, self._size = [], 0
        keys, _ = self._parts(rows)
        hashes = row_hashes(self.groups.kinds, keys, rows.num_rows)
        parts = (hashes >> np.uint64(FAN_BITS * self.depth) & np.uint64((1 << FAN_BITS) - 1)).astype(np.int64)
        order = np.argsort(parts, kind="stable")
        rows = rows.take(pa.array(order))
        ends = np.searchsorted(parts[order], np.arange(len(self.files) + 1))
        for part, (first, last) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
            if first == last:
                continue
            file = self.files[part]
            if file is None:
                file = self.files[part] = self._create(rows.schema)
            write(file, rows.slice(first, last - first))
