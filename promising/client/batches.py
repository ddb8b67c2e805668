"""Outgoing batches: any input of `ingest` becomes Arrow, in messages within the service's size limit.

Most batches are sent without knowing the stream: the service checks them with the code of a local session. Columns
that Arrow cannot infer, for example lists of mixed types, are converted here by that code with the stream's schema,
so that they are accepted or refused with the same messages.
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
from promising.index.frames import as_batch
from promising.index.schema import Batch, Column, Schema
from promising.v1 import queries_pb2, streams_pb2

ROWS = 1 << 20  # default limit of tuples in a batch
PIECE = 1 << 18  # tuples per batch of a split table
PLAIN = ({int}, {float}, {str}, {bool}, {datetime})
"""Types of values that Arrow converts as a local session does, as long as a column has only one of them."""
OVERHEAD = 1 << 12  # bytes of a message besides its tuples
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
    """The batch as Arrow data or columns; columns that can be read only once are converted to lists."""
    batch = as_batch(batch)
    if not isinstance(batch, Mapping):
        return batch
    return {name: _listed(column) for name, column in batch.items()}


def refuse_number(sequence: int | None) -> None:
    """Raise for a reader with a sequence number, which numbers one batch."""
    if sequence is not None:
        raise BadQuestion("a reader has several batches and takes no sequence number; read it into a table")


def quick(batch: Any) -> pa.Table | None:
    """A batch as Arrow, without the stream's schema; None if that fails, or could change its meaning."""
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
    """A batch with the types of its stream, or the error of a local session."""
    found = schema.columns(batch, keys)
    return pa.table({name: _typed(column, schema.types[name]) for name, column in found.items()})


def fits(table: pa.Table, most: int) -> bool:
    """Whether a table fits into one batch of at most `most` bytes."""
    return bool(table.num_rows <= ROWS and table.nbytes <= most)


def pieces(table: pa.Table, most: int) -> Iterator[bytes]:
    """A table as Arrow IPC streams of at most `most` bytes, in order; a single one if it fits. Rows are never split."""
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
    """Creates ingest requests, each with a producer and an increasing sequence number.

    sent: maximum message size in bytes. producer: default producer of batches.
    """

    def __init__(self, sent: int, producer: str) -> None:
        self.most = sent - OVERHEAD
        """Bytes of Arrow that fit into one message."""
        self._producer = producer
        self._numbers = itertools.count(1)

    def quick(self, batch: Any) -> pa.Table | None:
        """A batch as Arrow if it can be converted without the schema and fits into one message; else None."""
        arrow = quick(batch)
        return arrow if arrow is not None and fits(arrow, self.most) else None

    def requests(
        self, stream: str, table: pa.Table, strict: bool, producer: str | None, sequence: int | None, epoch: int = 0
    ) -> Iterator[streams_pb2.IngestRequest]:
        """A table as batches. With its own sequence number it must be a single batch."""
        for at, data in enumerate(pieces(table, self.most)):
            if sequence is not None and (at or len(data) > self.most):
                raise BatchTooLarge(f"a numbered batch has to fit into one message, of {self.most:,} bytes")
            yield streams_pb2.IngestRequest(
                stream=name_of("stream", stream),
                producer_id=producer or self._producer,
                sequence=next(self._numbers) if sequence is None else sequence,
                arrow=data,
                strict=strict,
                epoch=epoch,
            )


MODES: dict[str, queries_pb2.LoadMode.ValueType] = {
    "insert": queries_pb2.LOAD_MODE_INSERT,
    "upsert": queries_pb2.LOAD_MODE_UPSERT,
    "update": queries_pb2.LOAD_MODE_UPDATE,
}


def table_requests(name: str, batch: Any, mode: str, most: int) -> Iterator[queries_pb2.LoadTableRequest]:
    """Rows of a table as messages of at most `most` bytes. Columns are checked before the first is sent."""
    if mode not in MODES:
        raise BadQuestion(f"mode is insert, upsert or update, not {mode!r}")
    arrow = quick(kept(batch))
    if arrow is None:
        raise WrongType("rows of a table are columns of plain types: a mapping, a frame, Arrow data or a list of dicts")
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
            # Arrow maps days to dates, and has no hours.
            return pa.array(given) if np.datetime_data(given.dtype)[0] in ("s", "ms", "us", "ns") else None
        if given.dtype.kind in "iufb":
            return pa.array(given)
        given = given.tolist()
    if not isinstance(given, list) or set(map(type, given)) - {type(None)} not in (set(), *PLAIN):
        return None
    return pa.array(given)


def _plain(table: pa.Table) -> pa.Table | None:
    """A table of types that streams accept; None if it has another type.

    Dictionaries are decoded: they may vary less between the batches of a stream than between chunks of a table.
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
