"""Reference tables: rows by primary key, with their history.

Each change has a number, from 1 on, and the streams' positions at that time. Each upserted row is a new version, valid
from the change that created it (`born`) up to the one that ends it (`died`). Version numbers are permanent, so a
version stays readable until it is trimmed.
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
    """The effect of a change. One without effect gets no number: `change` is that of the last one."""

    change: int
    inserted: int
    updated: int
    deleted: int
    unchanged: int  # rows that were already equal; their versions stay


class TableJournal(Protocol):
    """Logs each change before it is made. A call that raises has logged nothing."""

    def changed(self, record: TableRecord) -> None:
        """Return when the change is durable."""

    def done(self) -> None:
        """The last logged change was made; raises nothing."""


class Table:
    """Rows by primary key. Thread-safe; changes are atomic."""

    def __init__(
        self, name: str, types: Mapping[str, str], key: str, *, retroactive: bool = True, max_rows: int = MOST_ROWS
    ) -> None:
        """`key`: the primary key, int, string or timestamp. retroactive: whether changes affect existing joins."""
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
        self.changes = 0  # number of the last change
        self.damage: str | None = None  # why it cannot be used until it is repaired
        self.journal: TableJournal | None = None
        self.lock = RLock()  # of all state; a manifest may be locked under it, never the other way round
        self._base = 0  # the earliest known change
        self._positions: list[dict[str, int]] = []  # of the changes after `_base`
        self._orders: dict[str, Ints] = {}  # by stream, lazily
        self._versions = Versions(name, self.schema.types, key)

    # --- read ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._versions.holding

    @property
    def versions(self) -> int:
        """Stored versions, including current ones."""
        return len(self._versions)

    @property
    def nbytes(self) -> int:
        """Memory of the columns; keys are stored a second time, in a dict."""
        with self.lock:
            return self._versions.nbytes

    @property
    def base(self) -> int:
        """The earliest known change; earlier states are answered as of it."""
        return self._base

    def take(self, column: str, versions: Ints) -> pa.Array:
        """Values of a column at version numbers, in any order, repeats allowed."""
        if column not in self.schema.types:
            raise UnknownName(f"no column {column!r}; columns are {', '.join(self.schema.types)}")
        with self.lock:
            return self._versions.column(column, self._versions.places(versions))

    def find(self, keys: Any, change: Ints | None = None) -> Ints:
        """The version of each key after that change, None: current; -1 if there is none, or the key is null."""
        column = self.schema.column(self.key, keys, True)
        with self.lock:
            asked = None if change is None else np.maximum(change, self._base)
            return self._versions.find(column, asked)

    def change_at(self, stream: str, seqs: Ints) -> Ints:
        """Number of the last change before each of these tuples arrived."""
        with self.lock:
            return self._base + np.searchsorted(self._order(stream), seqs, side="right").astype(np.int64)

    def since(self, change: int) -> tuple[Ints, Ints]:
        """Numbers of current versions created after that change, and of then-current versions that have ended."""
        with self.lock:
            return self._versions.since(change)

    def rows(self) -> pa.Table:
        """The current rows, in order of creation."""
        with self.lock:
            places = np.flatnonzero(self._versions.died.values == HOLDS)
            return pa.table({name: self._versions.column(name, places) for name in self.schema.types})

    # --- change --------------------------------------------------------------------------------------------------

    def change(self, upserts: Batch | None, deletes: Any, positions: Positions, *, mode: Mode = "upsert") -> Changed:
        """Put rows and delete keys, atomically.

        mode: `insert` refuses existing keys, `update` missing ones; an update may omit columns, which are unchanged.
        deletes: keys, each of which must exist.
        positions: arrivals of every stream so far, or a function that returns them: called under the table's lock, so
        that no tuple is joined in between.
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
        """Replay changes that follow the last one."""
        with self.lock:
            if self._versions.following == 0 and not self.changes:
                self._base = self.changes = record.first
            if record.first != self.changes:
                raise BadQuestion(
                    f"table {self.name!r} is at change {self.changes}; {record.first + 1} does not follow"
                )
            self._apply(record)

    def image(self) -> TableRecord:
        with self.lock:
            return self._versions.image(self._base, [dict(positions) for positions in self._positions])

    def reach(self, stream: str) -> int:
        """The maximum arrivals of a stream before any stored change."""
        with self.lock:
            return max((positions.get(stream, 0) for positions in self._positions), default=0)

    def cap(self, stream: str, position: int, upto: int | None = None) -> bool:
        """Limit the arrivals of a stream before changes (up to a number); returns whether that changed anything.

        A recreated stream counts from 0 again, and a stream may have lost its last arrivals in a power failure.
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
        """Drop versions that no tuple with an arrival number of at least `oldest[stream]` can see.

        seen: the last change that all followers of `since` have applied; versions that ended later stay. Memory is
        released once a quarter of it is unused.
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
        """Places of the rows to delete."""
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
        """The rows to put, and the places of those they replace; -1: none."""
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
        return self.schema  # reports what is wrong with it

    def _unchanged(self, rows: dict[str, Column], old: Ints) -> NDArray[np.bool_]:
        """Which rows are already in the table."""
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
        """The first arrival of a stream that sees each change after `_base`, ascending."""
        found = self._orders.get(stream)
        if found is None:
            positions = (p.get(stream, 0) for p in self._positions)
            said = np.fromiter(positions, np.int64, len(self._positions))
            found = self._orders[stream] = np.minimum.accumulate(said[::-1])[::-1]
        return found

    # --- refusals ------------------------------------------------------------------------------------------------

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
