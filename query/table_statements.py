"""Statements on reference tables: CREATE TABLE, INSERT, UPSERT, UPDATE, DELETE."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from promising.errors import (
    BadClause,
    BatchError,
    NoSuchName,
    NullKey,
    StatementError,
    TableError,
    TypeMismatch,
    Unsupported,
)
from promising.index import Stream
from promising.index.schema import Batch
from promising.index.table import Changed, Mode, Table
from promising.query.answers import Done
from promising.query.catalog import Catalog
from promising.query.error_places import placed
from promising.query.scalar.coercion import read, to_kind
from promising.query.scalar.expressions import compile_expression
from promising.query.scalar.positions import Place, offset_of
from promising.query.scalar.scope import StreamScope, suggest
from promising.query.scalar.types import ARROW, NAMES, Kind, kind_of_type
from promising.query.sql import nodes
from promising.query.standing.engine import Engine

if TYPE_CHECKING:
    from promising.index.storage.store import Store

SPARE = 1024  # row versions beyond twice the rows before any are deleted
CROWDED = 1 << 16  # and before those are that only a future query could read
VERBS = {"INSERT": "inserted", "UPSERT": "put", "UPDATE": "updated", "DELETE": "deleted"}


class Tables:
    """Executes statements on the tables of a catalog, which is locked meanwhile. One that fails changes nothing."""

    def __init__(self, catalog: Catalog, standing: Engine, store: "Store | None") -> None:
        self.catalog = catalog
        self.standing = standing
        self.store = store

    def create(self, node: nodes.CreateTable, sql: str) -> Done:
        name = node.this.name
        with placed(sql, node.this):
            key = self.catalog.claim(name, "table")
        types: dict[str, str] = {}
        for column in node.args["columns"]:
            if column.this.name.lower() in map(str.lower, types):
                raise BadClause(f"column {column.this.name} is given twice", sql, offset_of(column.this))
            types[column.this.name] = kind_of_type(column.args["kind"], sql)
        wanted = node.args["key"]
        primary = _column(wanted, types, "PRIMARY KEY", sql)
        retroactive = bool(node.args.get("retroactive"))
        with placed(sql, wanted):
            if self.store is not None:
                made = self.store.create_table(name, types, primary, retroactive=retroactive)
            else:
                made = Table(name, types, primary, retroactive=retroactive)
        self.catalog.tables[key] = made
        return Done(f"table {name} created", True)

    def load(self, table: Table, rows: Batch | None, deletes: Any = None, mode: Mode = "upsert") -> Changed:
        """Change a table, as of the current position of every stream."""
        with self.catalog.lock:
            done = table.change(rows, deletes, self.catalog.positions, mode=mode)
            if table.versions > 2 * len(table) + SPARE:
                self._trim(table)
            return done

    def _trim(self, table: Table) -> None:
        """Delete row versions that no tuple can be joined with any more, once all that read the table have started.

        If there are very many, only tuples now in the windows of continuous queries count.
        """
        if self.standing.waits(table.name):
            return
        oldest = {}
        if not table.retroactive:
            crowded = table.versions > 2 * len(table) + CROWDED
            for stream in self.catalog.streams.values():
                shown = self.standing.oldest(stream.name)
                with stream.reading() as log:
                    kept = log.arrived - len(log)
                if shown is not None:
                    oldest[stream.name] = shown if crowded else min(kept, shown)
                elif not crowded:
                    oldest[stream.name] = kept
        table.trim(oldest, self.standing.followed(table))

    def insert(self, node: nodes.TableChange, sql: str) -> Done:
        """INSERT of rows into a stream: all or none, like a strict batch."""
        stream, kind = self.catalog.stream(node.this, sql), node.args["kind"]
        if kind != "INSERT":
            raise Unsupported(
                f"{kind} is for tables; {stream.name} is a stream, which only grows: INSERT adds tuples",
                sql,
                offset_of(node.this),
            )
        rows, _ = _Reader(stream, node, sql).rows()
        try:
            done = stream.append(rows, strict=True)
        except BatchError as problem:
            raise type(problem)(str(StatementError(str(problem), sql, offset_of(node.this)))) from None
        return Done(f"{_rows(done.accepted)} of {stream.name} inserted", True)

    def change(self, node: nodes.TableChange, sql: str) -> Done:
        table, kind = self.catalog.table(node.this, sql), node.args["kind"]
        rows, deletes, where = _Reader(table, node, sql).read()
        mode: Mode = {"INSERT": "insert", "UPDATE": "update"}.get(kind, "upsert")  # type: ignore[assignment]  # by kind
        try:
            done = self.load(table, rows, deletes, mode)
        except BatchError as problem:
            row = problem.row if isinstance(problem, TableError) else None
            place = node.this if row is None else where[row]
            raise type(problem)(str(StatementError(str(problem), sql, offset_of(place)))) from None
        touched = done.inserted + done.updated + done.deleted
        rest = f"; {done.unchanged:,} as they were" if done.unchanged else ""
        return Done(f"{_rows(touched)} of {table.name} {VERBS[kind]}{rest}", bool(touched))


class _Reader:
    """The rows and keys of a statement, as values of the types of the table or stream."""

    def __init__(self, table: Table | Stream, node: nodes.TableChange, sql: str) -> None:
        self.table = table
        self.key = table.key if isinstance(table, Table) else None
        self.node = node
        self.sql = sql
        self.scope = StreamScope(sql, [])

    def read(self) -> tuple[pa.Table | None, pa.Array | None, list[exp.Expression]]:
        """Rows to write, keys to delete, and the expression of each key."""
        kind = self.node.args["kind"]
        if kind in ("INSERT", "UPSERT"):
            rows, columns = self.rows()
            at = columns.index(str(self.key))
            return rows, None, [list(row)[at] for row in self.node.args["rows"]]
        key = self.node.args["key"]
        name = _column(key, self.table.schema.types, f"{kind} ... WHERE", self.sql)
        if name != self.key:
            raise BadClause(f"WHERE takes the primary key of {self.table.name}, {self.key}", self.sql, offset_of(key))
        keys = self.node.args["keys"]
        found = self._values(name, keys)
        if kind == "DELETE":
            return None, found, keys
        columns, values = [name], [found]
        for column, value in self.node.args["assignments"]:
            assigned = _column(column, self.table.schema.types, "SET", self.sql)
            if assigned == self.key:
                raise BadClause(
                    f"{assigned} is the primary key, which a row keeps: DELETE it and INSERT another",
                    self.sql,
                    offset_of(column),
                )
            if assigned in columns:
                raise BadClause(f"column {assigned} is given twice", self.sql, offset_of(column))
            columns.append(assigned)
            values.append(self._values(assigned, [value]))
        return pa.table(values, columns), None, keys

    def rows(self) -> tuple[pa.Table, list[str]]:
        """The rows of VALUES, null where a column is left out, and the columns given."""
        types, rows = self.table.schema.types, [list(row) for row in self.node.args["rows"]]
        columns = list(types)
        if self.node.args.get("columns"):
            columns = []
            for given in self.node.args["columns"]:
                name = _column(given, types, str(self.node.args["kind"]), self.sql)
                if name in columns:
                    raise BadClause(f"column {name} is given twice", self.sql, offset_of(given))
                columns.append(name)
            if self.key is not None and self.key not in columns:
                raise BadClause(f"the primary key {self.key} is not among the columns", self.sql, offset_of(given))
        elif len(rows[0]) != len(columns):
            raise BadClause(
                f"a row has {len(rows[0])} values; {self.table.name} has {len(columns)} columns: {', '.join(columns)}",
                self.sql,
                offset_of(self.node.args["rows"][0]),
            )
        values = {name: self._values(name, [row[at] for row in rows]) for at, name in enumerate(columns)}
        rest = {name: pa.nulls(len(rows), ARROW[kind]) for name, kind in _kinds(types) if name not in values}
        return pa.table({**values, **rest}).select(list(types)), columns

    def _values(self, name: str, values: list[exp.Expression]) -> pa.Array:
        kind = dict(_kinds(self.table.schema.types))[name]
        return pa.concat_arrays([self._value(name, kind, value) for value in values])

    def _value(self, name: str, kind: Kind, node: exp.Expression) -> pa.Array:
        place, part = Place.of(node, self.sql), compile_expression(node, self.scope)
        if part.text is not None:
            part = read(part, kind, place)
        if part.kind not in (kind, "null") and (part.kind, kind) != ("int", "float"):
            raise place.error(TypeMismatch, f"column {name} takes {NAMES[kind]}, and this is {NAMES[part.kind]}")
        found = to_kind(part, kind).evaluate({}, 1)
        if name == self.key and found.null_count:
            raise NullKey(str(place.error(StatementError, f"the primary key {name} must have a value")))
        return found


def _column(asked: exp.Identifier, types: dict[str, str], what: str, sql: str) -> str:
    """The column of that name, in its original spelling."""
    for name in types:
        if name.lower() == asked.name.lower():
            return name
    hint = suggest(asked.name, types) or f"; there are {', '.join(types)}"
    raise NoSuchName(f"{what}: no column {asked.name!r}{hint}", sql, offset_of(asked))


def _kinds(types: dict[str, str]) -> list[tuple[str, Kind]]:
    return list(types.items())  # type: ignore[arg-type]  # the types of columns are kinds


def _rows(many: int) -> str:
    return f"{many:,} row{'' if many == 1 else 's'}"
