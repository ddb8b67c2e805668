"""Reference tables: rows by primary key, and how they were before.

Each change has a number, from 1 on, and the streams' positions at that time. A row that is put is a version of its
own: it holds from the change that brought it (`born`) up to the one that ends it (`died`). Versions are numbered as
they come and keep their number, so whoever remembers one can still read it, until it is trimmed.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import RLock
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import (
    BadOptions,
    BadQuestion,
    BadSchema,
    DuplicateKey,
    EmptyBatch,
    MissingKey,
    NullKey,
    TableError,
    TableFull,
    UnknownName,
)
from promising.index.growing import chosen, length, same, to_arrow
from promising.index.row_versions import HOLDS, Ints, TableRecord, Versions, plain_keys
from promising.index.schema import Batch, Column, Fields

Mode = Literal["insert", "upsert", "update"]
Positions = Mapping[str, int] | Callable[[], Mapping[str, int]]

MODES = ("insert", "upsert", "update")
KEYS = ("int", "string", "timestamp")
MOST_ROWS = 1 << 20


class Changed(NamedTuple):
    """What a change has done. One that does nothing gets no number: `change` is then that of the last one."""

    change: int
    inserted: int
    updated: int
    deleted: int
    unchanged: int
    """Rows that were put as they were; their versions stay."""


class TableJournal(Protocol):
    """Is told of each change before it is made. One that raises has taken nothing."""

    def changed(self, record: TableRecord) -> None:
        """Return when the change will not be lost."""

    def done(self) -> None:
        """The change that was told of last is made; raises nothing."""


class Table:
    """Rows by primary key. Safe to use from several threads; a change is seen as a whole or not at all."""

    def __init__(
        self, name: str, types: Mapping[str, str], key: str, *, retroactive: bool = True, max_rows: int = MOST_ROWS
    ) -> None:
        """`key` is the column of the primary key: int, string or timestamp.

        retroactive: whether a change of the table changes what tuples that are there already were joined with.
        """
        self.name = name
        self.schema = Fields(dict(types))
        self.key = key
        kind = self.schema.types.get(key)
        if kind is None:
            raise BadSchema(f"the primary key {key!r} is no column; columns are {', '.join(types)}")
        if kind not in KEYS:
            raise BadSchema(f"the primary key {key!r} is of type {kind}; it must be one of {', '.join(KEYS)}")
        if max_rows < 1:
            raise BadOptions(f"max_rows is {max_rows}; a table has room for at least one row")
        self.retroactive = retroactive
        self.max_rows = max_rows
        self.changes = 0
        """Number of the last change."""
        self.journal: TableJournal | None = None
        self.lock = RLock()
        """Of all it has; a store's manifest may be locked under it, never the other way round."""
        self._base = 0  # the earliest change of which is known what was there
        self._positions: list[dict[str, int]] = []  # of the changes after `_base`
        self._orders: dict[str, Ints] = {}  # by stream, made when asked for
        self._versions = Versions(name, self.schema.types, key)

    # --- read ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many rows there are now."""
        return self._versions.holding

    @property
    def versions(self) -> int:
        """How many versions are remembered, those that hold among them."""
        return len(self._versions)

    @property
    def nbytes(self) -> int:
        """Memory of the columns; keys are in memory once more, in a dict."""
        with self.lock:
            return self._versions.nbytes

    @property
    def base(self) -> int:
        """The earliest change of which is known what was there; what is asked of before is answered as of it."""
        return self._base

    def take(self, column: str, versions: Ints) -> pa.Array:
        """Values of a column at version numbers, in any order, repeats allowed."""
        if column not in self.schema.types:
            raise UnknownName(f"no column {column!r}; columns are {', '.join(self.schema.types)}")
        with self.lock:
            return self._versions.column(column, self._versions.places(versions))

    def find(self, keys: Any, change: Ints | None = None) -> Ints:
        """The version of each key that holds after that change, None: now; -1 if there is none, or the key is null."""
        column = self.schema.column(self.key, keys, True)
        with self.lock:
            asked = None if change is None else np.maximum(change, self._base)
            return self._versions.find(column, asked)

    def change_at(self, stream: str, seqs: Ints) -> Ints:
        """Number of the last change before each of these tuples arrived."""
        with self.lock:
            return self._base + np.searchsorted(self._order(stream), seqs, side="right").astype(np.int64)

    def since(self, change: int) -> tuple[Ints, Ints]:
        """Numbers of the versions that came after that change and hold, and of those that held then and have ended."""
        with self.lock:
            return self._versions.since(change)

    def rows(self) -> pa.Table:
        """The current contents, in the order in which they came."""
        with self.lock:
            places = np.flatnonzero(self._versions.died.values == HOLDS)
            return pa.table({name: self._versions.column(name, places) for name in self.schema.types})

    # --- change --------------------------------------------------------------------------------------------------

    def change(self, upserts: Batch | None, deletes: Any, positions: Positions, *, mode: Mode = "upsert") -> Changed:
        """Put rows and delete keys: all or nothing.

        mode: `insert` refuses keys that are there, `update` those that are not; an update may leave out columns, which
        stay as they are. deletes: keys, each of which must be there. positions: arrivals of every stream so far, or
        what tells them: it is asked while the table is locked, so that no tuple is joined in between.
        """
        if mode not in MODES:
            raise BadQuestion(f"no mode {mode!r}; there are {', '.join(MODES)}")
        with self.lock:
            gone = np.empty(0, np.int64) if deletes is None else self._deleted(deletes)
            rows, old = self._put(upserts, mode) if upserts is not None else (self._nothing(), gone[:0])
            unchanged = self._unchanged(rows, old)
            if (both := np.isin(old, gone)).any():
                row = int(np.argmax(both))
                self._refuse(DuplicateKey, rows[self.key], row, "is to be put and deleted in one change")
            kept = np.flatnonzero(~unchanged)
            rows, old = {name: chosen(column, kept) for name, column in rows.items()}, old[kept]
            replaced = old[old >= 0]
            inserted = len(kept) - len(replaced)
            self._check_room(len(self) + inserted - len(gone))
            done = Changed(self.changes + 1, inserted, len(replaced), len(gone), len(unchanged) - len(kept))
            if not len(kept) and not len(gone):
                return done._replace(change=self.changes)
            told = positions() if callable(positions) else positions
            record = self._record(rows, len(kept), np.concatenate([replaced, gone]), told)
            if self.journal is not None:
                self.journal.changed(record)
            self._apply(record)
            if self.journal is not None:
                self.journal.done()
            return done

    def replay(self, record: TableRecord) -> None:
        """Make changes that follow on the last one, as they were made before."""
        with self.lock:
            if self._versions.following == 0 and not self.changes:
                self._base = self.changes = record.first
            if record.first != self.changes:
                raise BadQuestion(
                    f"table {self.name!r} is at change {self.changes}; {record.first + 1} does not follow"
                )
            self._apply(record)

    def image(self) -> TableRecord:
        """All that is remembered, as one record."""
        with self.lock:
            return self._versions.image(self._base, [dict(positions) for positions in self._positions])

    def reach(self, stream: str) -> int:
        """The most arrivals of a stream that any change that is remembered came after."""
        with self.lock:
            return max((positions.get(stream, 0) for positions in self._positions), default=0)

    def cap(self, stream: str, position: int, upto: int | None = None) -> bool:
        """At most so many tuples of a stream had arrived before changes, or those up to a number; whether that is news.

        A stream that is dropped and made anew counts from 0 again; one may have lost its last arrivals with the power.
        """
        with self.lock:
            self._orders.pop(stream, None)
            found = False
            for positions in self._positions[: None if upto is None else max(upto - self._base, 0)]:
                if positions.get(stream, 0) > position:
                    positions[stream] = position
                    found = True
            return found

    def trim(self, oldest: Mapping[str, int], seen: int | None = None) -> None:
        """Forget versions that no tuple with an arrival number of at least `oldest[stream]` can see.

        seen: and that ended by this change at the latest, as those who follow the table by `since` have come so far.
        Memory is given back when a quarter of it can go.
        """
        with self.lock:
            floor = self.changes if seen is None else min(seen, self.changes)
            for stream, seq in oldest.items():
                floor = min(floor, int(self.change_at(stream, np.array([seq]))[0]))
            if floor > self._base:
                del self._positions[: floor - self._base]
                self._base = floor
                self._orders.clear()
            self._versions.trim(self._base)

    # --- what a change is made of --------------------------------------------------------------------------------

    def _nothing(self) -> dict[str, Column]:
        return self._versions.rows(np.empty(0, np.int64))

    def _deleted(self, deletes: Any) -> Ints:
        """Places of rows that are to go."""
        column = self.schema.column(self.key, deletes, True)
        if not length(column):
            raise EmptyBatch("no keys to delete are given")
        self._refuse_nulls(column)
        places = self._versions.current(column)
        if (places < 0).any():
            row = int(np.argmax(places < 0))
            self._refuse(MissingKey, column, row, "is not in the table, so it cannot be deleted")
        self._refuse_twice(column)
        return places

    def _put(self, upserts: Batch, mode: Mode) -> tuple[dict[str, Column], Ints]:
        """Rows that are to be there, and the places of those that they are to replace; -1: none."""
        fields = self.schema if mode != "update" else self._given(upserts)
        rows = fields.columns(upserts, frozenset([self.key]))
        key = rows[self.key]
        old = self._versions.current(key)
        if mode == "insert" and (old >= 0).any():
            row = int(np.argmax(old >= 0))
            self._refuse(DuplicateKey, key, row, "is in the table already; UPSERT replaces it")
        if mode == "update" and (old < 0).any():
            row = int(np.argmax(old < 0))
            self._refuse(MissingKey, key, row, "is not in the table; INSERT or UPSERT puts it there")
        self._refuse_twice(key)
        return {name: rows[name] if name in rows else c.take(old) for name, c in self._versions.columns.items()}, old

    def _given(self, upserts: Batch) -> Fields:
        """The columns of an update: the key, and any others."""
        with suppress(AttributeError):
            names = upserts.schema.names if isinstance(upserts, pa.Table | pa.RecordBatch) else list(upserts.keys())
            return Fields({n: k for n, k in self.schema.types.items() if n in names or n == self.key})
        return self.schema  # which says what is wrong with it

    def _unchanged(self, rows: dict[str, Column], old: Ints) -> NDArray[np.bool_]:
        """Which rows are in the table as they are."""
        alike = old >= 0
        for name, column in rows.items():
            where = np.flatnonzero(alike)
            if not len(where):
                break
            now = self._versions.columns[name].take(old[where])
            alike[where] = same(self.schema.types[name], chosen(column, where), now)
        return alike

    def _record(self, rows: dict[str, Column], size: int, ended: Ints, positions: Mapping[str, int]) -> TableRecord:
        change, before = self.changes + 1, self._versions.following
        following = before + size
        return TableRecord(
            self.changes,
            [{stream: int(position) for stream, position in positions.items()}],
            following,
            rows,
            np.arange(before, following),
            np.full(size, change, np.int64),
            self._versions.numbers.values[ended],
            np.full(len(ended), change, np.int64),
        )

    def _apply(self, record: TableRecord) -> None:
        self._versions.add(record)
        self._positions += record.positions
        self._orders.clear()
        self.changes = record.last

    # --- where things are ----------------------------------------------------------------------------------------

    def _order(self, stream: str) -> Ints:
        """From which arrival on tuples of a stream see each change after `_base`, rising."""
        found = self._orders.get(stream)
        if found is None:
            positions = (p.get(stream, 0) for p in self._positions)
            said = np.fromiter(positions, np.int64, len(self._positions))
            found = self._orders[stream] = np.minimum.accumulate(said[::-1])[::-1]
        return found

    # --- what is refused -----------------------------------------------------------------------------------------

    def _check_room(self, rows: int) -> None:
        if rows > self.max_rows:
            raise TableFull(
                f"table {self.name!r} would have {rows:,} rows; it takes {self.max_rows:,}, as its max_rows says"
            )

    def _refuse_nulls(self, column: Column) -> None:
        if column.nulls is not None and column.nulls.any():
            raise NullKey(f"column {self.key!r}, row {int(np.argmax(column.nulls))}: null, but a key must have a value")

    def _refuse_twice(self, column: Column) -> None:
        keys = plain_keys(column)
        if len(set(keys)) < len(keys):
            seen: set[Any] = set()
            row = next(row for row, key in enumerate(keys) if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # adds
            self._refuse(DuplicateKey, column, row, "is in the change twice")

    def _refuse(self, error: type[TableError], keys: Column, row: int, what: str) -> NoReturn:
        key = to_arrow(self.schema.types[self.key], keys)[row].as_py()
        problem = error(f"table {self.name!r}: key {key!r} (row {row}) {what}")
        problem.row = row
        raise problem
