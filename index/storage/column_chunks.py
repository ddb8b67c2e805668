"""Decodes column chunks of Parquet without the footer of their file.

Chunks of one column are put together to a small file of their own, with a footer written here. So nothing but these
chunks can be read, and of a file only positions need to stay in memory: its parsed footer takes ten times as much.

A footer is Thrift in the compact protocol: each field is a byte (distance to the last field's number, type) and a
value; a struct ends with a zero.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

MAGIC = b"PAR1"
PHYSICAL = {"bool": 0, "int32": 1, "int": 2, "timestamp": 2, "float": 5, "string": 6}
STORED = {"bool": pa.bool_(), "int32": pa.int32(), "int": pa.int64(), "timestamp": pa.int64(), "float": pa.float64()}
ZSTD = 6
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
NAME = b"\x01c"


class ChunkBytes(NamedTuple):
    """A column chunk. `pages`: where its data pages begin; before them is the dictionary, if there is one."""

    rows: int
    pages: int
    data: bytes


def decoded(kind: str, optional: bool, chunks: Sequence[ChunkBytes]) -> pa.ChunkedArray:
    """The values of all chunks, in order. Timestamps are int64; `optional`: whether there may be nulls.

    Raises ArrowException or OSError if they are not chunks of such a column.
    """
    groups = []
    at = len(MAGIC)
    for rows, pages, data in chunks:
        groups.append(_row_group(PHYSICAL[kind], rows, at, pages, len(data)))
        at += len(data)
    total = sum(chunk.rows for chunk in chunks)
    root = b"\x48" + NAME + b"\x15" + _int(1) + b"\0"  # name, children
    leaf = b"\x15" + _int(PHYSICAL[kind]) + b"\x25" + _int(int(optional)) + b"\x18" + NAME  # type, repetition, name
    leaf += b"\x25" + _int(0) + b"\0" if kind == "string" else b"\0"  # UTF8
    footer = b"".join(
        (
            b"\x15" + _int(2),  # version
            b"\x19" + _list(STRUCT, [root, leaf]),
            b"\x16" + _int(total),
            b"\x19" + _list(STRUCT, groups),
            b"\0",
        )
    )
    parts = [MAGIC, *(chunk.data for chunk in chunks), footer, len(footer).to_bytes(4, "little"), MAGIC]
    with pq.ParquetFile(pa.BufferReader(b"".join(parts)), pre_buffer=False) as file:
        column: pa.ChunkedArray = file.read(use_threads=False).column(0)
    if len(column) != total:
        raise pa.ArrowInvalid(f"{len(column)} values instead of {total}")
    return column.cast(pa.large_string()) if kind == "string" else column


def _row_group(physical: int, rows: int, start: int, pages: int, size: int) -> bytes:
    column = b"".join(
        (
            b"\x15" + _int(physical),
            b"\x19" + _list(I32, []),  # encodings: each page has its own
            b"\x19" + _list(BINARY, [NAME]),
            b"\x15" + _int(ZSTD),
            b"\x16" + _int(rows),
            b"\x16" + _int(size),  # uncompressed, and not used
            b"\x16" + _int(size),
            b"\x26" + _int(start + pages),
            b"\x26" + _int(start) if pages else b"",  # of the dictionary
            b"\0",
        )
    )
    chunk = b"\x26" + _int(start) + b"\x1c" + column + b"\0"
    return b"\x19" + _list(STRUCT, [chunk]) + b"\x16" + _int(size) + b"\x16" + _int(rows) + b"\0"


def _int(value: int) -> bytes:
    return _varint(value << 1)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + _varint(len(items))
    return head + b"".join(items)
