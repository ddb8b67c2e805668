"""Reads the batches of one call, and checks only once what they share.

A client sends many batches of the same schema, mostly numbers laid out in the message as in the log. Such a message can
only be wrong in its headers: these are parsed here, and the columns are viewed in place, without Arrow. Any other
message, valid or not, takes the slow path, which reports the error.
"""

import struct
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.schema import AS_IT_IS, lies_alike
from promising.server.arrow import (
    BATCH,
    BIG_ENDIAN,
    GROWTH,
    HEADER,
    HEADER_TYPE,
    LENGTH,
    FlatTable,
    read_batch,
)

VERSION, BODY = 0, 3  # field indexes of a Message table
NODES, BUFFERS = 1, 2  # field indexes of a RecordBatch
V5 = 4
HERE = -1  # marker before the size of a message
END = struct.pack("<ii", HERE, 0)


class Known(NamedTuple):
    """A schema that matches a stream: its message, the types of the stream's columns, and the names and types of a
    batch's columns in its order.
    """

    message: bytes
    types: Mapping[str, str]
    columns: list[tuple[str, "np.dtype[Any]"]]


class BatchReader:
    """Reads the batches of one call; limits and errors as for `read_batch`."""

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._known: Known | None = None

    def read(self, data: bytes, types: Mapping[str, str]) -> Mapping[str, NDArray[Any]] | pa.Table:
        """The tuples of a message, for a stream with columns of these types."""
        known = self._known
        if known is not None and data.startswith(known.message) and known.types == types:
            try:
                found = self._columns(data, known)
            except (struct.error, ValueError, IndexError):
                found = None
            if found is not None:
                return found
        table = read_batch(data, self._max_rows, self._max_bytes)
        self._known = _known(data, table.schema, types)
        return table

    def _columns(self, data: bytes, known: Known) -> Mapping[str, NDArray[Any]] | None:
        """Views of the columns of the single batch after the schema; None if the layout differs."""
        at = len(known.message)
        mark, size = struct.unpack_from("<ii", data, at)
        if mark != HERE or size <= 0:
            return None
        body = at + 8 + size
        message = FlatTable.root(data[at + 8 : body])
        if message.short(VERSION) != V5 or message.byte(HEADER_TYPE) != BATCH or message.has_beyond(BODY):
            return None
        end = body + message.long(BODY)
        if not body <= end <= len(data) or data[end:] not in (b"", END):
            return None
        batch = message.table(HEADER)
        rows, count = batch.long(LENGTH), len(known.columns)
        nodes, buffers = batch.pairs(NODES), batch.pairs(BUFFERS)
        fits = 0 < rows <= self._max_rows and 8 * rows * count <= GROWTH * self._max_bytes
        if not fits or batch.has_beyond(BUFFERS) or nodes != (rows, 0) * count or len(buffers) != 4 * count:
            return None
        columns = {}
        for (name, kind), offset, length in zip(known.columns, buffers[2::4], buffers[3::4], strict=True):
            if offset < 0 or offset % 8 or length < 8 * rows or offset + length > end - body:
                return None
            columns[name] = values = np.frombuffer(data, kind, rows, body + offset)
        return columns if values.flags.aligned else None


def _known(data: bytes, schema: pa.Schema, types: Mapping[str, str]) -> Known | None:
    """What to cache of a message just read; None if similar ones must take the slow path."""
    if schema.names != [*dict.fromkeys(schema.names)] or types.keys() != set(schema.names):
        return None
    if not all(lies_alike(field.type, types[field.name]) for field in schema):
        return None
    mark, size = struct.unpack_from("<ii", data)
    message = FlatTable.root(data[8 : 8 + size])
    if mark != HERE or message.long(BODY) or message.table(HEADER).byte(BIG_ENDIAN) != (sys.byteorder == "big"):
        return None
    return Known(data[: 8 + size], dict(types), [(name, AS_IT_IS[types[name]]) for name in schema.names])
