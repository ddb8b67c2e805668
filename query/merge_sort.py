"""A sort of more rows than memory holds: sorted runs in files, merged."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from promising.query.bound import LimitBy
from promising.query.limit_by import RowLimit, first_places
from promising.query.order import Direction, sorted_places
from promising.query.spill import Spill, SpillFile, write

RUN = 1 << 16  # rows sorted at once
FAN = 16  # runs merged at once

Parts = list[list[pa.Array]]  # columns of sort keys, of LIMIT n BY, and of the answer


class MergeSort:
    """Sorts rows by `orders`, up to the limits. Equal rows stay in the order in which they were added.

    Memory: two batches for each of `FAN` runs, whatever the number of rows.
    """

    def __init__(
        self,
        orders: Sequence[Direction],
        limit_by: LimitBy | None,
        limit: int | None,
        outputs: pa.Schema,
        spill: Spill,
    ) -> None:
        self._orders = orders
        self._by = limit_by
        self._limit = limit
        self._outputs = outputs
        self._spill = spill
        self._runs: list[SpillFile] = []
        self._open: set[SpillFile] = set()
        self._heads: list[_Head] = []
        self._met: RowLimit | None = None

    @property
    def nbytes(self) -> int:
        met = 0 if self._met is None else self._met.nbytes
        return met + sum(head.nbytes for head in self._heads)

    def add(self, parts: Parts) -> Iterator[None]:
        """Write rows as sorted runs, a step for each."""
        columns = [column for part in parts for column in part]
        rows = pa.RecordBatch.from_arrays(columns, [f"c{n}" for n in range(len(columns))])
        for first in range(0, rows.num_rows, RUN):
            run = rows.slice(first, RUN)
            order = sorted_places(self._keys(run), self._orders)
            if self._by is not None:
                values = [column.take(pa.array(order)) for column in self._values(run)]
                order = order[first_places(self._by, values, len(order))]
            file = self._create(run.schema)
            write(file, run.take(pa.array(order[: self._limit])))
            self._runs.append(file)
            yield

    def merged(self) -> Iterator[pa.Table | None]:
        """The sorted rows, table by table; None after work without rows. To be called once, when all are added."""
        while len(self._runs) > FAN:
            runs, self._runs = self._runs, []
            for first in range(0, len(runs), FAN):
                some = runs[first : first + FAN]
                if len(some) > 1:
                    made = None
                    for rows in self._merge(some):
                        made = self._create(rows.schema) if made is None else made
                        write(made, rows)
                        yield None
                    some = [] if made is None else [made]
                self._runs += some
        for rows in self._merge(self._runs):
            yield pa.Table.from_arrays(rows.columns[-len(self._outputs) :], schema=self._outputs)

    def close(self) -> None:
        """Delete all files."""
        for file in self._open:
            file.close()
        self._open.clear()
        self._runs, self._heads = [], []

    def _create(self, schema: pa.Schema) -> SpillFile:
        file = self._spill.create(schema)
        self._open.add(file)
        return file

    def _keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return list(rows.columns[: len(self._orders)])

    def _values(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return list(rows.columns[len(self._orders) : rows.num_columns - len(self._outputs)])

    def _merge(self, runs: list[SpillFile]) -> Iterator[pa.RecordBatch]:
        """The rows of consecutive runs in order, up to the limits. Deletes the runs.

        Rows that sort before the last buffered row of every unfinished run precede all rows that are not buffered. Of
        equal rows those of an earlier run come first, so this holds for them, too.
        """
        self._heads = [_Head(file) for file in runs]
        self._met = None if self._by is None else RowLimit(self._by)
        left = self._limit
        while left is None or left:
            for head in self._heads:
                head.fill()
            heads = self._heads = [head for head in self._heads if len(head)]
            if not heads:
                break
            both = pa.concat_batches([head.rows for head in heads])
            order = sorted_places(self._keys(both), self._orders)
            sizes = np.array([len(head) for head in heads])
            ends = np.cumsum(sizes)
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            lasts = [place[end - 1] + 1 for head, end in zip(heads, ends, strict=True) if head.more]
            order = order[: min(lasts, default=len(order))]
            taken = np.bincount(np.searchsorted(ends, order, side="right"), minlength=len(heads))
            for head, count in zip(heads, taken.tolist(), strict=True):
                head.drop(count)
            rows = both.take(pa.array(order))
            if self._met is not None:
                rows = rows.filter(pa.array(self._met.admit(self._values(rows), rows.num_rows)))
            if left is not None:
                rows = rows.slice(0, left)
                left -= rows.num_rows
            yield rows
        self._heads, self._met = [], None
        for file in runs:
            file.close()
            self._open.discard(file)


class _Head:
    """The first rows of a run that are not merged yet."""

    def __init__(self, file: SpillFile) -> None:
        self._file = file
        self._next = 0
        self._least = 0  # rows below which another batch is read
        self.rows: pa.RecordBatch | None = None
        self.nbytes = 0

    def __len__(self) -> int:
        return 0 if self.rows is None else int(self.rows.num_rows)

    @property
    def more(self) -> bool:
        return self._next < len(self._file)

    def fill(self) -> None:
        while self.more and len(self) <= self._least:
            batch = self._file.read(self._next)
            self._next += 1
            self._least = batch.num_rows // 2
            self.rows = pa.concat_batches([self.rows, batch]) if len(self) else batch
            self.nbytes = self.rows.nbytes

    def drop(self, count: int) -> None:
        assert self.rows is not None
        self.rows = self.rows.slice(count)
