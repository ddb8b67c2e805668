"""Arrow from outside: checked before it is decompressed, and validated before it is used.

A message of some kilobytes can claim a trillion rows, or decompress to more than the memory. So the headers of a
stream are read first, without their bodies: rows are counted, and compressed bodies are refused. Then its schema,
which must be flat. Then, batch by batch, the size of the buffers, counted once per reference, because that is the cost
of validating them.
"""

import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from promising.errors import BadArrow, BatchTooLarge, PromisingError, WrongType

# Field indexes of the tables in Arrow's Message.fbs.
HEADER_TYPE, HEADER = 1, 2
SCHEMA, DICTIONARY, BATCH = 1, 2, 3
LENGTH, COMPRESSION = 0, 3  # of a RecordBatch
DATA = 1  # of a DictionaryBatch
BIG_ENDIAN = 0  # of a Schema
GROWTH = 16  # maximum memory of a batch, in multiples of the maximum message size


def read_batch(data: bytes, max_rows: int, max_bytes: int) -> pa.Table:
    """The validated record batches of an IPC stream as one table.

    Raises `BadArrow`; `WrongType` for a column of an unsupported type; `BatchTooLarge` for more than `max_rows` rows,
    or more memory than messages of `max_bytes` allow.
    """
    rows, messages = _look(data)
    if rows > max_rows:
        raise BatchTooLarge(f"{rows:,} tuples in one batch; this service takes {max_rows:,} at once, so split it")
    room = GROWTH * max_bytes
    try:
        schema, found = _parsed(data, messages)
        for field in schema:
            _check_type(field)
        packed = [at for at, field in enumerate(schema) if pa.types.is_dictionary(field.type)]
        batches = []
        for batch in found:
            batch.validate()
            room = _less(room, batch.nbytes)
            batch.validate(full=True)
            room = _less(room, sum(_unpacked(batch.column(at)) for at in packed))
            batches.append(batch)
        return pa.Table.from_batches(batches, schema)
    except PromisingError:
        raise
    except (pa.ArrowException, ValueError, OSError, MemoryError) as problem:
        raise BadArrow(f"malformed Arrow data: {_line(problem)}") from None


def _parsed(data: bytes, messages: list[pa.ipc.Message]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and the batches of a stream, one at a time. Plain messages are not read twice."""
    if not messages:
        reader = pa.ipc.open_stream(pa.py_buffer(data))
        return reader.schema, iter(reader)
    schema = pa.ipc.read_schema(messages[0])
    return schema, (pa.ipc.read_record_batch(message, schema) for message in messages[1:])


def _less(room: int, taken: int) -> int:
    """The remaining room."""
    if taken > room:
        raise BatchTooLarge("this batch takes far more memory than its message once it is unpacked, so split it")
    return room - taken


def _check_type(field: pa.Field) -> None:
    """Refuse types that nest, or share values between rows: few bytes of them can be slow to validate."""
    name = field.name  # read here, because it raises if it is not UTF-8
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    flat = pa.types.is_primitive(kind) or pa.types.is_null(kind)
    if not flat and not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
        raise WrongType(f"column {name!r} is {str(field.type)[:100]}; no column of a stream takes that")


def _look(data: bytes) -> tuple[int, list[pa.ipc.Message]]:
    """The number of rows in the record batches, by their headers alone, and the parsed messages.

    No messages unless they are just a schema and batches, in native byte order.
    """
    rows = 0
    messages: list[pa.ipc.Message] = []
    kinds: list[int] = []
    swapped = False
    try:
        with pa.BufferReader(data) as source:
            for message in pa.ipc.MessageReader.open_stream(source):
                kind, header = _header(message.metadata.to_pybytes())
                messages.append(message)
                kinds.append(kind)
                if kind == SCHEMA:
                    swapped |= header.byte(BIG_ENDIAN) != (sys.byteorder == "big")
                if kind == DICTIONARY:
                    header = header.table(DATA)
                if kind in (DICTIONARY, BATCH):
                    if header.at(COMPRESSION) is not None:
                        raise BadArrow("compressed Arrow buffers are not taken; write the stream without compression")
                    claimed = header.long(LENGTH)
                    if claimed < 0:
                        raise BadArrow(f"a record batch of {claimed} rows")
                    rows += claimed if kind == BATCH else 0
            rest = len(data) - source.tell()
    except (pa.ArrowException, ValueError, OSError, struct.error, IndexError) as problem:
        raise BadArrow(f"no Arrow IPC stream: {_line(problem)}") from None
    if SCHEMA not in kinds:
        raise BadArrow(
            "no Arrow IPC stream: it has no schema"
            + ("" if data else " and no bytes; write one with pyarrow.ipc.new_stream")
        )
    if rest:
        raise BadArrow(f"{rest:,} bytes after the end of the Arrow IPC stream; send one stream at a time")
    plain = kinds[0] == SCHEMA and not swapped and all(kind == BATCH for kind in kinds[1:])
    return rows, messages if plain else []


class FlatTable(NamedTuple):
    """A flatbuffer table: its offset in the bytes. `struct` checks every access."""

    data: bytes
    start: int

    @classmethod
    def root(cls, data: bytes) -> "FlatTable":
        """The root table."""
        return cls(data, int(struct.unpack_from("<I", data)[0]))

    def at(self, field: int) -> int | None:
        """The offset of a field; None if absent."""
        fields = self._offsets()
        return self.start + fields[field] if field < len(fields) and fields[field] else None

    def has_beyond(self, field: int) -> bool:
        """Whether a field after this one is present."""
        return any(self._offsets()[field + 1 :])

    def _offsets(self) -> tuple[int, ...]:
        """The offset of each field from the start; 0 if absent."""
        (back,) = struct.unpack_from("<i", self.data, self.start)
        vtable = self.start - back
        if vtable < 0:
            raise ValueError("a table without fields")
        (size,) = struct.unpack_from("<H", self.data, vtable)
        if size < 4 or size % 2:
            raise ValueError("a list of fields that cannot be")  # Arrow refuses it as well
        return struct.unpack_from(f"<{size // 2 - 2}H", self.data, vtable + 4)

    def long(self, field: int) -> int:
        at = self.at(field)
        return 0 if at is None else int(struct.unpack_from("<q", self.data, at)[0])

    def short(self, field: int) -> int:
        at = self.at(field)
        return 0 if at is None else int(struct.unpack_from("<h", self.data, at)[0])

    def byte(self, field: int) -> int:
        at = self.at(field)
        return 0 if at is None else self.data[at]

    def pairs(self, field: int) -> tuple[int, ...]:
        """A vector of pairs of longs, flattened."""
        at = self.at(field)
        if at is None:
            return ()
        at += int(struct.unpack_from("<I", self.data, at)[0])
        (count,) = struct.unpack_from("<I", self.data, at)
        return struct.unpack_from(f"<{2 * count}q", self.data, at + 4)

    def table(self, field: int) -> "FlatTable":
        at = self.at(field)
        if at is None:
            raise ValueError("a message without a header")
        return FlatTable(self.data, at + int(struct.unpack_from("<I", self.data, at)[0]))


def _header(metadata: bytes) -> tuple[int, FlatTable]:
    """Type and header of a message."""
    message = FlatTable.root(metadata)
    return message.byte(HEADER_TYPE), message.table(HEADER)


def _unpacked(column: pa.Array) -> int:
    """Decoded bytes of a dictionary-encoded column of strings; 0 for other types."""
    if not pa.types.is_dictionary(column.type) or pa.types.is_primitive(column.type.value_type):
        return 0
    lengths = pc.binary_length(column.dictionary).cast(pa.int64())
    return int(pc.sum(lengths.take(column.indices)).as_py() or 0)


def _line(problem: BaseException) -> str:
    """The first line of a message; later lines may quote data."""
    return (str(problem).splitlines() or [type(problem).__name__])[0][:300]
