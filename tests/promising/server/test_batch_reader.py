"""Batches read by their headers alone hold what Arrow itself reads; what is odd about one is left to Arrow."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from promising import wire
from promising.errors import BatchError, BatchTooLarge
from promising.index import Stream
from promising.index.schema import Schema
from promising.server import arrow
from promising.server.arrow import read_batch
from promising.server.batch_reader import END, BatchReader
from tests.promising.server.test_arrow_read import big_endian, several
from tests.tiers import examples

ROWS, BYTES = 1000, 1 << 16
TYPES = {"ts": "timestamp", "item": "int", "price": "float"}
ZONE = pa.timestamp("us", "Europe/Vienna")


def numbers(n, first=0):
    """Columns in another order than the stream's."""
    at = np.arange(first, first + n)
    return pa.table({"price": at / 8, "item": at * 3, "ts": pa.array(at * 1000, pa.timestamp("us"))})


def with_ts(kind, n=5):
    return numbers(n).set_column(2, "ts", pa.array(range(n), kind))


def reader(types=TYPES, seen=None):
    """One that has read a batch before."""
    made = BatchReader(ROWS, BYTES)
    made.read(wire.ipc(numbers(7)) if seen is None else seen, types)
    return made


def same(found, data):
    """Whether columns are to a stream what Arrow reads."""
    schema = Schema(TYPES, "ts")
    ours, arrows = (schema.read(each, frozenset({"item"})) for each in (found, read_batch(data, ROWS, BYTES)))
    return all(
        np.array_equal(np.asarray(ours.columns[name].values), np.asarray(arrows.columns[name].values)) for name in TYPES
    )


def unended(data):
    assert data.endswith(END)
    return data[: -len(END)]


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 999, 1000])
def test_numbers_are_read_in_place(rows):
    data = wire.ipc(numbers(rows, 50))
    for sent in (data, unended(data)):
        found = reader().read(sent, TYPES)
        assert isinstance(found, dict) and same(found, sent)
        assert all(np.shares_memory(column, np.frombuffer(sent, np.uint8)) for column in found.values())


def test_a_slice_is_read_in_place():
    data = wire.ipc(numbers(30).slice(11, 5))
    found = reader().read(data, TYPES)
    assert isinstance(found, dict) and same(found, data)


def test_times_with_a_zone_are_read_in_place():
    data = wire.ipc(with_ts(ZONE))
    found = reader(seen=data).read(data, TYPES)
    assert isinstance(found, dict) and same(found, data)


def holed(name):
    """Seven tuples, one of them without a value."""
    made = numbers(7)
    at = made.schema.get_field_index(name)
    return made.set_column(at, name, pa.array([None, *range(6)], made.schema.field(at).type))


@pytest.mark.parametrize(
    "data",
    [
        wire.ipc(with_ts(pa.int64())),
        wire.ipc(with_ts(pa.timestamp("ms"))),
        wire.ipc(numbers(7).set_column(0, "price", pa.array(range(7), pa.int64()))),
        wire.ipc(numbers(7).set_column(1, "item", pa.array(range(7), pa.int32()))),
        wire.ipc(numbers(7).set_column(1, "item", pa.array(range(7)).dictionary_encode())),
        wire.ipc(holed("price")),
        several(numbers(3)),
    ],
    ids=["whole times", "ms", "whole prices", "int32", "dictionary", "null", "batches"],
)
def test_what_lies_otherwise_is_left_to_arrow(data):
    for made in (reader(), reader(seen=data)):
        found = made.read(data, TYPES)
        assert isinstance(found, pa.Table)
        assert found.equals(read_batch(data, ROWS, BYTES))


def test_the_other_byte_order_is_left_to_arrow():
    data = big_endian(pa.table({"a": pa.array([1, 2, 3], pa.int64())}))
    made = BatchReader(ROWS, BYTES)
    for _ in range(2):
        found = made.read(data, {"a": "int"})
        assert isinstance(found, pa.Table) and found["a"][0].as_py() == 1 << 56


@pytest.mark.parametrize(
    "table",
    [numbers(7).select(["ts", "item"]), numbers(7).append_column("more", pa.array(range(7)))],
    ids=["too few", "too many"],
)
def test_columns_of_another_stream_are_left_to_arrow(table):
    data = wire.ipc(table)
    assert isinstance(reader(seen=data).read(data, TYPES), pa.Table)


def test_the_same_bytes_may_go_to_another_stream():
    data = wire.ipc(numbers(7))
    made = reader()
    other = {"ts": "timestamp", "item": "float", "price": "float"}
    assert isinstance(made.read(data, TYPES), dict)
    assert isinstance(made.read(data, other), pa.Table)  # whole numbers become fractions: not in place
    assert isinstance(made.read(data, TYPES), pa.Table)
    assert isinstance(made.read(data, TYPES), dict)


def test_too_many_rows_are_refused():
    with pytest.raises(BatchTooLarge):
        reader().read(wire.ipc(numbers(ROWS + 1)), TYPES)


def test_more_than_goes_with_a_message_is_refused():
    data = wire.ipc(numbers(1000))
    made = BatchReader(ROWS, 1000)
    made.read(wire.ipc(numbers(7)), TYPES)
    with pytest.raises(BatchTooLarge):
        made.read(data, TYPES)


def header_of(data):
    """Where the header of the record batch begins, and the header itself."""
    for message in pa.ipc.MessageReader.open_stream(data):
        metadata = message.metadata.to_pybytes()
        kind, header = arrow._header(metadata)
        if kind == arrow.BATCH:
            return data.index(metadata), header
    raise AssertionError


def words(data):
    """Places of the whole numbers in the header of the batch."""
    start, header = header_of(data)
    length = header.at(arrow.LENGTH)
    assert length is not None
    return [start + length, *range(start, start + len(header.data) - 7, 8)]


def judged(read, data):
    """What is made of a message: its tuples as a stream has them, or why not."""
    stream = Stream("s", TYPES, "ts", clock=lambda: 1 << 60)
    stream.create_summary("by_item", "item", granularity=1 << 40)
    try:
        stream.append(read(data))
    except BatchError as problem:
        return type(problem)
    return stream.take(stream._log.rows())


GOOD = wire.ipc(numbers(7))
ODD = st.one_of(st.integers(-16, 600), st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 31, -(1 << 31), 1 << 40, 1008]))


@settings(max_examples=examples(400), deadline=None)
@given(place=st.sampled_from(words(GOOD)), told=ODD)
def test_headers_that_lie_are_judged_as_arrow_does(place, told):
    data = bytearray(GOOD)
    struct.pack_into("<q", data, place, told)
    sent, made = bytes(data), reader()
    ours, arrows = judged(lambda d: made.read(d, TYPES), sent), judged(lambda d: read_batch(d, ROWS, BYTES), sent)
    assert type(ours) is type(arrows) and (ours.equals(arrows) if isinstance(ours, pa.Table) else ours is arrows)


@settings(max_examples=examples(300), deadline=None)
@given(at=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255), cut=st.integers(0, 40))
@example(at=248, byte=13, cut=0)  # how long a list of fields is, which then is odd
def test_damaged_bytes_are_taken_or_refused(at, byte, cut):
    data = bytearray(GOOD[: len(GOOD) - cut])
    if at < len(data):
        data[at] = byte
    sent, made = bytes(data), reader()
    ours, arrows = judged(lambda d: made.read(d, TYPES), sent), judged(lambda d: read_batch(d, ROWS, BYTES), sent)
    assert type(ours) is type(arrows) and (ours.equals(arrows) if isinstance(ours, pa.Table) else ours is arrows)
