"""Batches on their way out: whatever `ingest` takes becomes Arrow, in messages of a size that the service takes.

Most batches need no look at the stream: the service checks them, by the code that a session in process uses. Columns
that Arrow cannot make out by itself, lists of several types say, are converted by that code here, with the stream's
schema, so that they are taken or refused in the same words.
"""

import itertools
from collections.abc import Iterator, Mapping, Set
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from promising import wire
from promising.client.calls import name_of
from promising.errors import BadQuestion, BatchTooLarge, WrongType
from promising.index.schema import Batch, Column, Schema
from promising.v1 import queries_pb2, streams_pb2

ROWS = 1 << 20  # tuples that a service takes in one batch unless it was told otherwise
PIECE = 1 << 18  # tuples of a batch that a table was cut into
PLAIN = ({int}, {float}, {str}, {bool}, {datetime})
"""Types of values that Arrow reads as the house does, as long as a column has one of them alone."""
OVERHEAD = 1 << 12  # bytes of a message beside its tuples
TAKEN = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_timestamp,
    pa.types.is_null,
)
MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def kept(batch: Any) -> Any:
    """The batch, with columns that can be read only once made lists."""
    if not isinstance(batch, Mapping):
        return batch
    return {name: _listed(column) for name, column in batch.items()}


def quick(batch: Any) -> pa.Table | None:
    """A batch as Arrow has it, the stream unseen; None if that cannot be, or might not mean the same there."""
    try:
        if isinstance(batch, pa.RecordBatch):
            batch = pa.Table.from_batches([batch])
        if isinstance(batch, pa.Table):
            return _plain(batch)
        if not isinstance(batch, Mapping):
            return None
        columns = {name: _column(given) for name, given in batch.items()}
        if any(column is None for column in columns.values()):
            return None
        return _plain(pa.table(columns))
    except MISFITS:
        return None


def careful(batch: Batch, schema: Schema, keys: frozenset[str]) -> pa.Table:
    """A batch with the types of its stream, or the error that a session in process would raise."""
    found = schema.columns(batch, keys)
    return pa.table({name: _typed(column, schema.types[name]) for name, column in found.items()})


def fits(table: pa.Table, most: int) -> bool:
    """Whether a table is one batch, of at most `most` bytes."""
    return bool(table.num_rows <= ROWS and table.nbytes <= most)


def pieces(table: pa.Table, most: int) -> Iterator[bytes]:
    """A table as Arrow IPC streams of at most `most` bytes, in order; one alone if it fits. A row is never cut."""
    rows = table.num_rows
    if fits(table, most) or rows < 2:
        data = wire.ipc(table)
        if len(data) <= most or rows < 2:
            yield data
            return
    each = min(PIECE, max(rows * most // (2 * max(table.nbytes, 1)), 1), (rows + 1) // 2)
    for first in range(0, rows, each):
        yield from pieces(table.slice(first, each), most)


class Numbering:
    """Requests for batches: each with the name of its producer and a number that rises.

    sent: size of the largest message, in bytes. producer: the name of batches that come without one.
    """

    def __init__(self, sent: int, producer: str) -> None:
        self.most = sent - OVERHEAD
        """Bytes of Arrow that fit into one message."""
        self._producer = producer
        self._numbers = itertools.count(1)

    def quick(self, batch: Any) -> pa.Table | None:
        """A batch as Arrow has it, if that can be, and it fits into one message; else it is to be looked at first."""
        arrow = quick(batch)
        return arrow if arrow is not None and fits(arrow, self.most) else None

    def requests(
        self, stream: str, table: pa.Table, strict: bool, producer: str | None, sequence: int | None
    ) -> Iterator[streams_pb2.IngestRequest]:
        """A table as batches. One that has a number of its own has to be one batch."""
        for at, data in enumerate(pieces(table, self.most)):
            if sequence is not None and (at or len(data) > self.most):
                raise BatchTooLarge(f"a numbered batch has to fit into one message, of {self.most:,} bytes")
            yield streams_pb2.IngestRequest(
                stream=name_of("stream", stream),
                producer_id=producer or self._producer,
                sequence=next(self._numbers) if sequence is None else sequence,
                arrow=data,
                strict=strict,
            )


MODES: dict[str, queries_pb2.LoadMode.ValueType] = {
    "insert": queries_pb2.LOAD_MODE_INSERT,
    "upsert": queries_pb2.LOAD_MODE_UPSERT,
    "update": queries_pb2.LOAD_MODE_UPDATE,
}


def table_requests(name: str, batch: Any, mode: str, most: int) -> Iterator[queries_pb2.LoadTableRequest]:
    """Rows of a table as messages of at most `most` bytes. Columns are looked at before the first is sent."""
    if mode not in MODES:
        raise BadQuestion(f"mode is insert, upsert or update, not {mode!r}")
    arrow = quick(kept(batch))
    if arrow is None:
        raise WrongType("rows of a table are a mapping of columns, a pyarrow Table or a RecordBatch, of plain types")
    named = name_of("table", name)

    def requests() -> Iterator[queries_pb2.LoadTableRequest]:
        for at, data in enumerate(pieces(arrow, most)):
            yield queries_pb2.LoadTableRequest(table="" if at else named, mode=MODES[mode], arrow=data)

    return requests()


def _listed(column: Any) -> Any:
    if isinstance(column, np.ndarray | pa.Array | pa.ChunkedArray | str | bytes | Mapping | Set):
        return column
    try:
        return list(column)
    except TypeError:
        return column


def _column(given: Any) -> pa.Array | pa.ChunkedArray | None:
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return given
    if isinstance(given, np.ndarray):
        if given.ndim != 1 or isinstance(given, np.ma.MaskedArray):
            return None
        if given.dtype.kind == "M":
            # Arrow has days as dates, and no hours.
            return pa.array(given) if np.datetime_data(given.dtype)[0] in ("s", "ms", "us", "ns") else None
        if given.dtype.kind in "iufb":
            return pa.array(given)
        given = given.tolist()
    if not isinstance(given, list) or set(map(type, given)) - {type(None)} not in (set(), *PLAIN):
        return None
    return pa.array(given)


def _plain(table: pa.Table) -> pa.Table | None:
    """A table of types that some stream takes; None if another is in it.

    Dictionaries are decoded: a stream of batches may not change them as freely as a table does.
    """
    table.validate(full=True)
    for at, field in enumerate(table.schema):
        column = table.column(at)
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type)
            table = table.set_column(at, pa.field(field.name, column.type), column)
        if not any(fits(column.type) for fits in TAKEN):
            return None
    return table


def _typed(column: Column, kind: str) -> pa.Array:
    if column.values is None:
        return column.text
    values = column.values.view(np.bool_) if kind == "bool" else column.values
    return pa.array(values, mask=column.nulls)
