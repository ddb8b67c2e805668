"""Whatever way a stream is read, its tuples are those that Arrow itself reads."""

import struct

import pyarrow as pa
import pytest

from promising import wire
from promising.server import arrow
from promising.server.arrow import read_batch

NUMBERS = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "f": [0.5, None, 2.5], "s": ["x", None, "zz"]})


def several(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for first in range(table.num_rows):
            writer.write_table(table.slice(first, 1))
    return bytes(sink.getvalue().to_pybytes())


def big_endian(table: pa.Table) -> bytes:
    """The stream of a table, whose schema says that its numbers have the other byte order.

    The byte order is left out where it is little. So the schema is made to have it in a place that happens to hold a 1.
    """
    data = bytearray(wire.ipc(table))
    message = next(iter(pa.ipc.MessageReader.open_stream(bytes(data))))
    metadata = message.metadata.to_pybytes()
    _, header = arrow._header(metadata)
    (back,) = struct.unpack_from("<i", metadata, header.start)
    slot = header.start - back + 4 + 2 * arrow.BIG_ENDIAN
    place = next(p for p in range(header.start, len(metadata) - 2, 2) if metadata[p : p + 2] == b"\x01\x00")
    struct.pack_into("<H", data, data.index(metadata) + slot, place - header.start)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "plain"),
    [
        (wire.ipc(NUMBERS), True),
        (wire.ipc(NUMBERS.slice(1, 1)), True),
        (wire.ipc(NUMBERS.schema.empty_table()), True),
        (several(NUMBERS), True),
        (wire.ipc(pa.table({"s": pa.array(["x", "y", "x"]).dictionary_encode()})), False),
        (big_endian(NUMBERS.select(["a"])), False),
    ],
    ids=["one batch", "a slice", "no rows", "batches", "dictionary", "big endian"],
)
def test_the_tuples_of_a_stream(data, plain):
    with pa.ipc.open_stream(data) as reader:
        assert read_batch(data, 100, 1 << 20).equals(reader.read_all())
    assert bool(arrow._look(data)[1]) is plain


def test_the_other_byte_order_is_another_number():
    (first, *_) = read_batch(big_endian(NUMBERS.select(["a"])), 100, 1 << 20)["a"].to_pylist()
    assert first == 1 << 56
