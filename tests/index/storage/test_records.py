"""What is packed comes back, the same content gives the same bytes, and what is no record is refused by name."""

import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promising.errors import DataDamaged
from promising.index.progress import Progress
from promising.index.regions import Appended
from promising.index.schema import Column, Schema
from promising.index.storage import records
from promising.index.storage.records import KINDS, Batch, pack_append, pack_json, unpack_append, unpack_json
from promising.index.storage.wal import Record
from promising.index.storage.wal_journal import changes, make_again
from tests.crash import feed

TYPES = {"t": "timestamp", "i": "int", "f": "float", "s": "string", "b": "bool"}
SCHEMA = Schema(TYPES, "t")
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    n = draw(st.integers(0, 9))

    def values(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=n, max_size=n))

    def nulls() -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        return draw(st.none() | st.just(np.array(values(st.booleans()), np.bool_)))

    texts = pa.array([None, *values(st.none() | st.text(max_size=5)), "é"], pa.large_string())
    text = texts[1 : n + 1] if draw(st.booleans()) else pa.array(texts[1 : n + 1].to_pylist(), pa.large_string())
    columns = {
        "t": Column(np.array(values(NUMBERS), np.int64), None, nulls()),
        draw(st.text()) + "f": Column(np.array(values(st.floats()), np.float64), None, nulls()),
        "b": Column(np.array(values(st.integers(0, 1)), np.uint8), None, nulls()),
        "s": Column(None, text, draw(st.just(text.is_null().to_numpy(zero_copy_only=False)) | st.none())),
    }
    added = Appended(draw(st.integers(0, 1 << 40)), draw(st.dictionaries(st.text(), st.integers(0, 99))), False)
    known = st.none() | NUMBERS
    sent = draw(st.integers(0, 9)), draw(known)
    progress = draw(st.none() | st.builds(Progress, known, known, known, st.lists(NUMBERS, max_size=2).map(tuple)))
    return Batch(columns, n, added, draw(st.none() | st.text()), draw(st.none() | NUMBERS), progress, *sent)


def packed(batch: Batch) -> bytes:
    return b"".join(pack_append(*batch))


def same(found: Batch, wanted: Batch) -> None:
    assert found[1:] == wanted[1:]
    assert list(found.columns) == list(wanted.columns)
    for name, column in wanted.columns.items():
        got = found.columns[name]
        if column.values is None:
            assert got.values is None
            assert got.text.to_pylist() == column.text.to_pylist()
            missing = column.text.is_null().to_numpy(zero_copy_only=False)
            assert (np.zeros(len(missing), bool) if got.nulls is None else got.nulls).tolist() == missing.tolist()
        else:
            assert got.values is not None and got.text is None
            assert got.values.dtype == column.values.dtype and got.values.tobytes() == column.values.tobytes()
            assert (got.nulls is None) == (column.nulls is None)
            assert got.nulls is None or column.nulls is None or got.nulls.tolist() == column.nulls.tolist()


def of(**columns: list[Any]) -> Batch:
    n = len(next(iter(columns.values())))
    schema = Schema({"t": "timestamp", **{name: TYPES[name] for name in columns}}, "t")
    read = schema.columns({"t": list(range(n)), **columns}, frozenset())
    return Batch(read, n, Appended(n), None, None)


@given(batches())
def test_a_batch_comes_back(batch: Batch):
    same(unpack_append(packed(batch)), batch)
    assert packed(unpack_append(packed(batch))) == packed(unpack_append(packed(unpack_append(packed(batch)))))


def test_the_columns_of_a_real_batch_come_back():
    batch = of(i=[1, None, 3], f=[0.5, None, -0.0], s=["a", None, ""], b=[True, None, False])
    same(unpack_append(packed(batch)), batch)
    assert unpack_append(packed(batch)).columns["s"].text.null_count == 1


def test_of_a_slice_only_its_own_text_is_packed():
    whole = pa.array(["x" * 1000, "ab", None, "c", "y" * 1000], pa.large_string())
    columns = {"s": Column(None, whole[1:4], None)}
    payload = b"".join(pack_append(columns, 3, Appended(3), None, None))
    assert len(payload) < 300
    assert payload == b"".join(
        pack_append(
            {"s": Column(None, pa.array(["ab", None, "c"]).cast("large_string"), None)}, 3, Appended(3), None, None
        )
    )
    assert unpack_append(payload).columns["s"].text.to_pylist() == ["ab", None, "c"]


def test_arrays_are_neither_copied_in_nor_out():
    values, text = np.arange(1000), pa.array(["abc"] * 1000, pa.large_string())
    parts = pack_append({"i": Column(values, None, None), "s": Column(None, text, None)}, 1000, Appended(1), "p", 1)
    arrays = [np.frombuffer(part, np.uint8) for part in parts if len(part) > 999]
    assert np.shares_memory(arrays[0], values)
    assert arrays[1].ctypes.data == text.buffers()[1].address and arrays[2].ctypes.data == text.buffers()[2].address
    payload = b"".join(parts)
    found = unpack_append(memoryview(payload))
    assert found.columns["i"].values is not None
    assert np.shares_memory(found.columns["i"].values, np.frombuffer(payload, np.uint8))
    assert found.columns["i"].values.flags.aligned and not found.columns["i"].values.flags.writeable


def test_a_column_with_gaps_in_memory_is_packed_without_them():
    columns = {"i": Column(np.arange(10)[::2], None, np.array([0, 1] * 5, np.bool_)[::2])}
    found = unpack_append(b"".join(pack_append(columns, 5, Appended(5), None, None))).columns["i"]
    assert found.values is not None and found.values.tolist() == [0, 2, 4, 6, 8] and found.nulls is not None


PLAIN = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)


@given(st.dictionaries(st.text(max_size=5), PLAIN | st.lists(PLAIN, max_size=3), max_size=5))
def test_json_comes_back(content: dict[str, Any]):
    [packed] = pack_json(content)
    assert unpack_json(packed) == content
    assert pack_json(dict(reversed(content.items()))) == [packed]


def test_kinds_do_not_change():
    assert KINDS == (1, 2, 3, 4, 5, 6, 7)


def test_the_bytes_do_not_change():
    """They are on disks: another layout needs another version."""
    batch = of(s=["a", None], b=[True, False])
    head = (
        b'{"accepted":2,"columns":[["t","int64",0,false],["s","text",1,true],["b","uint8",0,false]],'
        b'"duplicate":false,"producer":null,"refused":{},"sequence":null,"tuples":2}'
    )
    arrays = struct.pack("<2q 3q 8s 8s 8s", 0, 1, 0, 1, 1, b"a", b"\0\1", b"\1\0")
    assert packed(batch) == struct.pack("<Q", len(head)) + head + bytes(-len(head) % 8) + arrays


# --- what is no record ---


@given(st.binary())
@example(b"[" * 100_000)
@example(b'{"a":NaN}')
@example(b"\xff\xfe{}")
@example(b"1" * 5000)
@example(b'{"a":' + b"1" * 5000 + b"}")
@example(b"[]")
def test_no_json(payload: bytes):
    try:
        assert isinstance(unpack_json(payload), dict)
    except DataDamaged as problem:
        assert "log" in str(problem)


@given(st.binary(max_size=200))
def test_no_batch(payload: bytes):
    with pytest.raises(DataDamaged):
        unpack_append(payload)


@given(batches(), st.data())
def test_a_batch_with_a_changed_bit_or_cut_is_a_batch_or_refused(batch: Batch, data: st.DataObject):
    """The checksum of the record finds these first; if it did not, nothing but this error could come of it."""
    payload = bytearray(packed(batch))
    for bit in data.draw(st.lists(st.integers(0, 8 * len(payload) - 1), max_size=3)):
        payload[bit // 8] ^= 1 << bit % 8
    content = bytes(payload[: data.draw(st.integers(0, len(payload)))]) + data.draw(st.binary(max_size=9))
    try:
        found = unpack_append(content)
    except DataDamaged:
        return
    for column in found.columns.values():
        assert len(column.text if column.values is None else column.values) == found.tuples
        if column.text is not None:
            column.text.to_pylist()


GOOD: dict[str, Any] = {
    "accepted": 1,
    "columns": [["i", "int64", 0, False]],
    "duplicate": False,
    "producer": None,
    "refused": {},
    "sequence": None,
    "tuples": 1,
}


def made(arrays: bytes = bytes(8), **changes: Any) -> bytes:
    head = json.dumps({**GOOD, **changes}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(-len(head) % 8) + arrays


def test_a_made_up_head_is_taken_if_it_is_right():
    assert unpack_append(made()).columns["i"].values is not None


TWO = struct.pack("<2q", 0, 2)


@pytest.mark.parametrize(
    "payload, said",
    [
        (b"", "too short"),
        (struct.pack("<Q", 1 << 60) + b"{}", "shorter"),
        (made(tuples=-1), "how many"),
        (made(tuples=True), "how many"),
        (made(tuples=2), "shorter"),
        (made(tuples=1 << 62), "shorter"),
        (made(tuples=1 << 70), "shorter"),
        (made(accepted=None), "how many"),
        (made(refused=[]), "refused"),
        (made(refused={"a": -1}), "refused"),
        (made(producer=7), "who"),
        (made(duplicate=1), "who"),
        (made(sequence="7"), "number"),
        (made(sequence=True), "number"),
        (made(epoch=-1), "no epoch or time"),
        (made(at="noon"), "no epoch or time"),
        (made(columns=None), "which columns"),
        (made(columns=[["i", "int64", 0]]), "invalid column"),
        (made(columns=[["i", "int64", 0, 0]]), "invalid column"),
        (made(bytes(16), columns=[["i", "int64", 0, False]] * 2), "invalid column"),
        (made(columns=[["i", "int32", 0, False]]), "unknown kind 'int32'"),
        (made(bytes(16)), "longer"),
        (made(bytes(8) + b"\2" + bytes(7), columns=[["i", "int64", 0, True]]), "neither 0 nor 1"),
        (made(TWO + b"ab" + bytes(6), columns=[["s", "text", -1, False]]), "shorter"),
        (made(TWO + b"ab" + bytes(6), columns=[["s", "text", 3, False]]), "does not end where"),
        (made(TWO + b"\xff\xff" + bytes(6), columns=[["s", "text", 2, False]]), "no text"),
        (made(struct.pack("<3q", 0, 9, 2) + b"ab" + bytes(6), tuples=2, columns=[["s", "text", 2, False]]), "no text"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(payload: bytes, said: str):
    with pytest.raises(DataDamaged, match=said):
        unpack_append(payload)


def of_other_columns() -> dict[str, Column]:
    """Integers for the text that the stream has."""
    ints = Column(np.arange(2), None, None)
    return {"ts": ints, "k": ints, "s": ints, "id": ints, "x": Column(np.zeros(2), None, None)}


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (records.APPEND, records.pack_append(of_other_columns(), 2, Appended(2, {}, False), None, None)),
        (
            records.APPEND,
            records.pack_append({"ts": Column(np.arange(2), None, None)}, 2, Appended(2, {}, False), None, None),
        ),
        (records.CREATE_SUMMARY, records.pack_json({"nama": "bare"})),
        (records.DROP_SUMMARY, records.pack_json({})),
        (records.ADVANCE, records.pack_json({"watermark": "soon"})),
    ],
)
def test_a_record_that_is_not_of_the_stream_is_damage(kind, parts):
    """As when a segment was copied from another stream: the start reports it, and goes on."""
    stream = feed.make("left", 7)
    before = stream.accepted, stream.watermark, sorted(stream.summaries)
    log = [Record(1, kind, memoryview(b"".join(bytes(part) for part in parts)))]
    problems = [problem for group in changes(log) for problem in make_again(stream, group)]
    assert [(lsn, type(problem)) for lsn, problem in problems] == [(1, DataDamaged)]
    assert (stream.accepted, stream.watermark, sorted(stream.summaries)) == before
