"""Reads a stream into a DataFrame: filters are pushed down to regions, and promising regions are read first.

The service plans what to read; tasks read cold row groups from files, and ask it only for tuples in its memory. With a
preference and a limit, one task asks the service for these rows: they are those of a SELECT with both clauses.

Spark 4.3 retains the filters that a query pushed down with the loaded DataFrame, so another query on the same DataFrame
silently loses rows. Hence pushdown is opt-in, for a DataFrame loaded for a single query; the options `start`, `end` and
`keys` have the same effect without this problem.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from promising.index.scan_plan import Piece, Scan
from promising.loaders.scan_reader import ROWS, Connect, read_piece, read_warm

BYTES = 32 << 20  # per partition, as far as row groups allow
ARRIVALS = 1 << 18  # tuples in memory per partition
LONGEST_CONDITIONS = 50_000  # characters in a statement
DIRECTIONS = ("desc", "asc", "weighted")
COMPARED: dict[type[Filter], str] = {
    spark.EqualTo: "=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}


@dataclass(frozen=True)
class Question:
    """What is read: `names` are the columns and their names in Spark, `keys` those with summaries."""

    stream: str
    types: dict[str, str]
    names: dict[str, str]
    keys: tuple[str, ...]
    conditions: tuple["Condition", ...]
    preference: tuple[str, str] | None
    limit: int | None


@dataclass(frozen=True)
class Condition:
    """A comparison of a column: with one value by `sign`, or with several by IN."""

    column: str
    sign: str
    values: tuple[Any, ...]

    @property
    def sql(self) -> str:
        if self.sign == "IN":
            return f"{quoted(self.column)} IN ({', '.join(map(_literal, self.values))})"
        return f"{quoted(self.column)} {self.sign} {_literal(self.values[0])}"

    def kept(self, table: pa.Table) -> Any:
        """The rows of a table that satisfy it; null where unknown."""
        column = table[self.column]
        values = pa.array([_plain(value) for value in self.values], column.type)
        if self.sign == "IN":
            return pc.is_in(column, values)
        compare = {"=": pc.equal, ">": pc.greater, ">=": pc.greater_equal, "<": pc.less, "<=": pc.less_equal}
        return compare[self.sign](column, values[0])


@dataclass
class Share(InputPartition):
    scan: Scan
    pieces: list[Piece]
    warm: list[tuple[int, int]]

    @property
    def bytes(self) -> int:
        """Size of the column chunks in files."""
        return sum(piece.bytes for piece in self.pieces)


class FirstRows(InputPartition):
    """The rows of a preference up to a limit, from the service."""


class Reader(DataSourceReader):
    def __init__(self, connect: Connect, question: Question, schema: StructType) -> None:
        self.connect = connect
        self.question = question
        self.schema = to_arrow_schema(schema, timezone="UTC")
        self.conditions = list(question.conditions)

    @property
    def first(self) -> bool:
        """Whether only the first rows of a preference are read."""
        return self.question.preference is not None and self.question.limit is not None

    @property
    def sql(self) -> str:
        """The question as a statement; a condition too long for it, and a limit after it, are applied by the tasks."""
        asked = self.question
        columns = dict.fromkeys([*asked.names, *(condition.column for condition in self.conditions)])
        text = f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(asked.stream)}"
        told, room = [], LONGEST_CONDITIONS
        for condition in self.conditions:
            if len(condition.sql) <= room:
                told.append(condition.sql)
                room -= len(condition.sql)
        if told:
            text += f" WHERE {' AND '.join(told)}"
        if asked.preference is not None:
            direction, key = asked.preference
            text += f" WITH PREFERENCE {direction.upper()} SUMMARY.Estimate.Count({quoted(key)})"
        if self.first and len(told) == len(self.conditions):
            text += f" LIMIT {asked.limit}"
        return text

    def partitions(self) -> list[InputPartition]:
        if self.first:
            return [FirstRows(0)]
        with self.connect() as service:
            (planned,) = service.plan_scan(self.sql).scans
        scan = replace(planned, pieces=[], warm=[])
        warm = list(_stretches(planned.warm))
        if self.question.limit is not None:
            return [Share(scan, planned.pieces, warm)]  # only a single task knows when the limit is reached
        return [
            *(Share(scan, group, []) for group in grouped(planned.pieces)),
            *(Share(scan, [], [stretch]) for stretch in warm),
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Share | FirstRows):  # Spark's own, if there is nothing to read
            return
        left = self.question.limit
        for found in self._tables(partition) if isinstance(partition, Share) else self._first():
            table = found
            for condition in self.conditions:
                table = table.filter(condition.kept(table))
            if left is not None:
                table = table.slice(0, left)
                left -= table.num_rows
            for start in range(0, table.num_rows, ROWS):
                yield self._batch(table.slice(start, ROWS))
            if left == 0:
                return

    def _tables(self, share: Share) -> Iterator[pa.Table]:
        for piece in share.pieces:
            yield from read_piece(piece, share.scan)
        if share.warm:
            with self.connect() as service:
                for first, last in share.warm:
                    yield from read_warm(service, share.scan, first, last)

    def _first(self) -> Iterator[pa.Table]:
        with self.connect() as service:
            answer = service.query(self.sql)
            try:
                yield from (frame.rows for frame in answer.stream())
            finally:
                answer.close()

    def _batch(self, table: pa.Table) -> pa.RecordBatch:
        columns = []
        for own, field in zip(self.question.names, self.schema, strict=True):
            column = table[own].combine_chunks()
            if pa.types.is_timestamp(field.type):
                column = column.cast(pa.int64())  # the same instant in any zone
            columns.append(column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class PushingReader(Reader):
    """A reader that uses some of a query's filters. Spark still evaluates all of them."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        pushed = (self._condition(found) for found in filters)
        self.conditions = [*self.question.conditions, *(condition for condition in pushed if condition is not None)]
        return filters

    def _condition(self, found: Filter) -> Condition | None:
        """A filter for the service, if it can prune regions by it."""
        path: tuple[str, ...] = getattr(found, "attribute", ())
        names = {given: own for own, given in self.question.names.items()}
        column = names.get(path[0]) if len(path) == 1 else None
        if column is None:
            return None
        ordered = self.question.types[column] in ("int", "timestamp")
        if isinstance(found, spark.In) and (ordered or column in self.question.keys):
            values = tuple(value for value in found.value if value is not None)
            return Condition(column, "IN", values) if values else None
        sign = COMPARED.get(type(found))
        if sign is None or not (ordered or (sign == "=" and column in self.question.keys)):
            return None
        return Condition(column, sign, (found.value,))  # type: ignore[attr-defined]  # all that are compared have one


def grouped(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces in order, split and merged to about `BYTES` each."""
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        for part in _parts(piece):
            if group and size + part.bytes > BYTES:
                yield group
                group, size = [], 0
            group.append(part)
            size += part.bytes
    if group:
        yield group


def _parts(piece: Piece) -> Iterator[Piece]:
    each = max(1, len(piece.groups) * BYTES // max(piece.bytes, 1))
    for at in range(0, len(piece.groups), each):
        groups = piece.groups[at : at + each]
        yield replace(piece, groups=groups, bytes=piece.bytes * len(groups) // len(piece.groups))


def _stretches(warm: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for first, last in warm:
        for at in range(first, last, ARRIVALS):
            yield at, min(at + ARRIVALS, last)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(value: Any) -> Any:
    """A value as in the stream: a time in microseconds of UTC."""
    if not isinstance(value, datetime):
        return value
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).replace(tzinfo=None)


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{_plain(value).isoformat(' ')}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
