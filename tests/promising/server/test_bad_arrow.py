"""Arrow that is not what it claims: refused with a reason, at a cost that its size explains, with nothing half in."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising import wire, wire_errors
from promising.errors import BatchError, BatchTooLarge
from promising.query.session import Session
from promising.server.arrow import read_batch
from tests.promising.server.serving import batch, failed, run, stocked, table
from tests.tiers import examples

ROWS, BYTES = 1000, 1 << 16  # the limits of these tests
GOOD = wire.ipc(table(3))
MICROS = pa.timestamp("us")


def changed(**columns):
    """The good table with other columns."""
    made = table(len(next(iter(columns.values()))))
    for name, column in columns.items():
        made = made.set_column(made.schema.get_field_index(name), name, column)
    return made


def written(batches, schema, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for one in batches:
            writer.write_batch(one)
    return sink.getvalue().to_pybytes()


def dictionary(values, rows):
    """A column in which every row is the first of the values."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), values)


def damaged(data, old, new):
    """With some bytes replaced, which must be there."""
    assert old in data
    return data.replace(old, new)


def claimed(rows):
    """A batch of null columns that says it has so many rows, in the header and in each column."""
    real = 12_345
    data = wire.ipc(pa.table({name: pa.nulls(real) for name in ("ts", "item", "price", "name")}))
    return damaged(data, struct.pack("<q", real), struct.pack("<q", rows))


def offsets(*told):
    """Two texts of three letters each, whose offsets say something else."""
    data = wire.ipc(changed(name=pa.array(["abc", "def"])))
    return damaged(data, struct.pack("<3i", 0, 3, 6), struct.pack("<3i", *told))


def bytes_as_text(*values):
    raw = pa.array(values, pa.binary())
    return changed(name=pa.StringArray.from_buffers(len(raw), *raw.buffers()[1:]))


def delta_dictionaries(count):
    """Batches whose dictionary grows from one to the next."""
    words = [f"w{i}" for i in range(count)]
    batches = []
    for at in range(count):
        names = pa.DictionaryArray.from_arrays(pa.array([at], pa.int32()), pa.array(words[: at + 1]))
        batches.append(table(1).set_column(3, "name", names).to_batches()[0])
    return written(batches, batches[0].schema, emit_dictionary_deltas=True)


def nested(depth):
    kind = pa.int64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return wire.ipc(pa.table({"item": pa.nulls(1, kind)}))


def shared_buffers(columns):
    """Many columns of text, all of which refer to the same bytes of the message."""
    size = 30_000
    texts = ["x" * size] + ["y"] * (columns - 1)
    data = wire.ipc(pa.table([pa.array([text]) for text in texts], names=[f"c{i}" for i in range(columns)]))
    place = 8 + size
    for _ in texts[1:]:  # each has eight bytes of offsets and one of text, padded
        data = damaged(data, struct.pack("<qqqq", place, 8, place + 8, 1), struct.pack("<qqqq", 0, 8, 8, size))
        place += 16
    return data


BAD = {
    "no bytes": (b"", "BAD_ARROW", "no schema and no bytes"),
    "zeros": (bytes(64), "BAD_ARROW", "no Arrow IPC stream"),
    "noise": (np.random.default_rng(1).bytes(4096), "BAD_ARROW", "no Arrow IPC stream"),
    "text": (b"ts,item\n1,2\n", "BAD_ARROW", "no Arrow IPC stream"),
    "a file, not a stream": (b"ARROW1\0\0" + GOOD, "BAD_ARROW", "no Arrow IPC stream"),
    "no schema": (GOOD[GOOD.index(b"\xff\xff\xff\xff", 4) :], "BAD_ARROW", "no schema"),
    "schema only": (written([], table(1).schema), "EMPTY_BATCH", "no tuples"),
    "no rows": (wire.ipc(table(0)), "EMPTY_BATCH", "no tuples"),
    "two streams": (GOOD + GOOD, "BAD_ARROW", "after the end"),
    "bytes after the end": (GOOD + b"junk", "BAD_ARROW", "4 bytes after the end"),
    "missing column": (wire.ipc(table(3).drop_columns("price")), "MISSING_COLUMN", "'price' (float) is missing"),
    "unknown column": (wire.ipc(table(3).append_column("x", pa.nulls(3))), "UNKNOWN_COLUMN", "'x' is not in the"),
    "column twice": (wire.ipc(table(3).append_column("item", pa.nulls(3))), "DUPLICATE_COLUMN", "'item' is in the"),
    "text for a number": (wire.ipc(changed(price=pa.array(["1"]))), "WRONG_TYPE", "'price' is float"),
    "number for text": (wire.ipc(changed(name=pa.array([1]))), "WRONG_TYPE", "'name' is string"),
    "text for a key": (wire.ipc(changed(item=pa.array(["1"]))), "MIXED_KEYS", "'item' is int"),
    "list": (wire.ipc(changed(item=pa.array([[1]]))), "WRONG_TYPE", "'item' is list<item: int64>"),
    "struct": (wire.ipc(changed(item=pa.array([{"a": 1}]))), "WRONG_TYPE", "'item' is struct"),
    "map": (wire.ipc(changed(item=pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8())))), "WRONG_TYPE", "map<"),
    "union": (
        wire.ipc(changed(item=pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]))),
        "WRONG_TYPE",
        "sparse_union",
    ),
    "binary": (wire.ipc(changed(name=pa.array([b"x"]))), "WRONG_TYPE", "'name' is binary"),
    "string view": (wire.ipc(changed(name=pa.array(["x"], pa.string_view()))), "WRONG_TYPE", "string_view"),
    "run-end encoded": (
        wire.ipc(changed(item=pa.RunEndEncodedArray.from_arrays([3], [7]))),
        "WRONG_TYPE",
        "run_end_encoded",
    ),
    "decimal": (wire.ipc(changed(price=pa.array([1]).cast(pa.decimal128(25, 2)))), "WRONG_TYPE", "decimal128"),
    "duration": (wire.ipc(changed(item=pa.array([1], pa.duration("s")))), "WRONG_TYPE", "duration"),
    "extension": (
        wire.ipc(changed(item=pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())))),
        "WRONG_TYPE",
        "extension<arrow.bool8>",
    ),
    "deep nesting": (nested(60), "WRONG_TYPE", "'item' is list<"),
    "dictionary of lists": (wire.ipc(pa.table({"item": dictionary(pa.array([[1] * 99]), 900)})), "WRONG_TYPE", "list"),
    "dictionary of bytes": (wire.ipc(pa.table({"name": dictionary(pa.array([b"x"]), 3)})), "WRONG_TYPE", "binary"),
    "dictionary that unpacks to much": (
        wire.ipc(changed(name=dictionary(pa.array(["x" * 5000]), 900))),
        "BATCH_TOO_LARGE",
        "split it",
    ),
    "columns that share their bytes": (shared_buffers(64), "BATCH_TOO_LARGE", "split it"),
    "offsets past the end": (offsets(0, 3, 1000), "BAD_ARROW", "malformed Arrow data"),
    "offsets that fall": (offsets(0, 5, 3), "BAD_ARROW", "malformed Arrow data"),
    "offsets below zero": (offsets(-3, 3, 6), "BAD_ARROW", "malformed Arrow data"),
    "not UTF-8": (wire.ipc(bytes_as_text(b"ok", b"\xff\xfe")), "BAD_ARROW", "UTF8"),
    "half a letter": (wire.ipc(bytes_as_text(b"\xc3")), "BAD_ARROW", "UTF8"),
    "a name that is not UTF-8": (damaged(GOOD, b"price", b"pr\xffce"), "BAD_ARROW", "malformed Arrow data"),
    "2**40 rows": (claimed(1 << 40), "BATCH_TOO_LARGE", f"{1 << 40:,} tuples"),
    "2**63 - 1 rows": (claimed((1 << 63) - 1), "BATCH_TOO_LARGE", "tuples in one batch"),
    "-1 rows": (claimed(-1), "BAD_ARROW", "a record batch of -1 rows"),
    "too many rows": (wire.ipc(table(ROWS + 1)), "BATCH_TOO_LARGE", "1,001 tuples in one batch"),
    "too many rows in all": (
        written(table(ROWS + 1).to_batches(max_chunksize=100), table(1).schema),
        "BATCH_TOO_LARGE",
        "1,001 tuples in one batch",
    ),
    "compressed": (written(table(3).to_batches(), table(1).schema, compression="lz4"), "BAD_ARROW", "compressed"),
    "compressed dictionary": (
        written((t := changed(name=dictionary(pa.array(["x"]), 3))).to_batches(), t.schema, compression="zstd"),
        "BAD_ARROW",
        "compressed",
    ),
    "null key": (wire.ipc(changed(item=pa.array([1, None]))), "NULL_KEY", "'item', row 1: null"),
    "NaN key": (wire.ipc(changed(item=pa.array([1.0, np.nan]))), "NAN_KEY", "'item', row 1: NaN"),
    "half a key": (wire.ipc(changed(item=pa.array([1.5]))), "WRONG_TYPE", "1.5 is no 64-bit integer"),
    "key too large": (wire.ipc(changed(item=pa.array([1 << 63], pa.uint64()))), "WRONG_TYPE", "row 0"),
    "no time": (wire.ipc(changed(ts=pa.array([1, None], MICROS))), "NULL_TIME", "'ts', row 1: null"),
    "beyond any date": (wire.ipc(changed(ts=pa.array([0, 1 << 62], MICROS))), "WRONG_TYPE", "beyond any date"),
    "long text": (wire.ipc(changed(name=pa.array(["x", "x" * 40_000]))), "VALUE_TOO_LONG", "row 1: 40,000 bytes"),
}


async def attack(remote, requests):
    """Send batches, each in the middle of good ones; gives the refusals. Nothing of what is refused is in."""
    before = remote.stream.count
    both = [one for bad in requests for one in (bad, batch(1))]
    told = await remote.ingest(*both)
    assert len(told) == len(both)
    good, refused = told[1::2], told[::2]
    assert all(one.appended.accepted == 1 for one in good)
    assert remote.stream.count == before + len(good)
    await remote.well()
    return refused


def test_what_is_wrong_is_refused_with_a_reason_and_the_call_goes_on():
    async def body(remote):
        refused = await attack(remote, [batch(data) for data, _, _ in BAD.values()])
        for (name, (_, reason, message)), told in zip(BAD.items(), refused, strict=True):
            assert told.WhichOneof("outcome") == "refusal", name
            assert (name, told.refusal.reason) == (name, reason)
            assert message in told.refusal.message, name
            assert len(told.refusal.message) <= 2000
            assert issubclass(wire_errors.CLASSES[reason], BatchError)
        stats = await remote.stats()
        assert stats.batches == len(BAD) + 1

    run(body, max_batch_rows=ROWS, max_message_bytes=BYTES)


def flipped(places):
    data = bytearray(GOOD)
    for place, bit in places:
        data[place % len(data)] ^= 1 << bit
    return bytes(data)


def take(session: Session, data: bytes) -> bool:
    """Whether a batch was taken as a whole; otherwise it was refused as a whole, for a reason that is told."""
    stream = session.stream("s")
    before = stream.count, stream.watermark
    try:
        added = session.ingest("s", read_batch(data, ROWS, BYTES))
    except BatchError as problem:
        assert str(problem)
        assert (stream.count, stream.watermark) == before
        return False
    assert stream.count == before[0] + added.accepted
    return True


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 7)), min_size=1, max_size=4))
def test_flipped_bits_do_no_harm(places):
    session = stocked(5)
    take(session, flipped(places))
    assert take(session, GOOD)
    assert session.query("SELECT count(*) AS n FROM s").to_arrow()["n"].to_pylist() == [session.stream("s").count]


@settings(max_examples=examples(100))
@given(st.binary(max_size=300))
def test_noise_is_refused(data):
    assert not take(stocked(0), data)
    assert not take(stocked(0), b"\xff\xff\xff\xff" + struct.pack("<i", len(data)) + data)


def test_a_stream_cut_within_a_message_is_refused():
    session = stocked(0)
    two = written(table(4).to_batches(max_chunksize=2), table(1).schema)
    _, _, second, end = (cut for cut in range(len(two)) if two.startswith(b"\xff\xff\xff\xff", cut))
    # Arrow lets a stream end after any message: here after the first batch, and after the second.
    assert [cut for cut in range(len(two) + 1) if take(session, two[:cut])] == [second, end, len(two)]


def test_bits_flip_on_the_wire():
    async def body(remote):
        draw = np.random.default_rng(3)
        sent = [
            batch(flipped(zip(draw.integers(0, 1 << 16, 3), draw.integers(0, 8, 3), strict=True))) for _ in range(300)
        ]
        sent += [batch(GOOD[:cut]) for cut in range(0, len(GOOD), 9)]
        before = remote.stream.count
        told = await remote.ingest(*sent)
        assert len(told) == len(sent)
        assert remote.stream.count == before + sum(one.appended.accepted for one in told)
        assert {wire_errors.CLASSES[one.refusal.reason] for one in told if one.HasField("refusal")}
        await remote.well()

    run(body, max_batch_rows=ROWS, max_message_bytes=BYTES)


# --- odd, and good ------------------------------------------------------------------------------------------------


def unaligned(data, by):
    """With so many bytes more in front of the batch's body."""
    (size,) = struct.unpack_from("<i", data, 4)
    return data[:4] + struct.pack("<i", size + by) + data[8 : 8 + size] + bytes(by) + data[8 + size :]


ODD = {
    "plain": GOOD,
    "several batches": written(table(3).to_batches(max_chunksize=1), table(1).schema),
    "no end mark": GOOD[:-8],
    "growing dictionaries": delta_dictionaries(3),
    "a dictionary": wire.ipc(changed(name=table(3)["name"].dictionary_encode())),
    "a dictionary of numbers": wire.ipc(changed(item=table(3)["item"].dictionary_encode())),
    "large text": wire.ipc(changed(name=table(3)["name"].cast(pa.large_string()))),
    "narrow numbers": wire.ipc(changed(item=pa.array([0, 1, 2], pa.int8()), price=pa.array([0, 1, 2], pa.float16()))),
    "other columns first": wire.ipc(table(3).select(["name", "price", "item", "ts"])),
    "one byte out of line": unaligned(GOOD, 1),
    "four bytes out of line": unaligned(GOOD, 4),
    "unknown extension": written(
        table(3).to_batches(),
        table(3).schema.set(1, pa.field("item", pa.int64(), metadata={"ARROW:extension:name": "no.such"})),
    ),
    "much metadata": wire.ipc(table(3).replace_schema_metadata({"note": "x" * 10_000})),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_only_odd_is_read_as_it_is_meant(name):
    session = stocked(0)
    assert take(session, ODD[name])
    rows = session.query("SELECT ts, item, price FROM s ORDER BY ts").to_arrow()
    expected = table(3).select(["ts", "item", "price"])
    if name == "growing dictionaries":
        assert rows.num_rows == 3
    else:
        assert rows.cast(expected.schema).equals(expected)


# --- cost ---------------------------------------------------------------------------------------------------------


def test_a_dictionary_that_every_batch_refers_to_is_not_looked_through_for_each():
    """Ten thousand batches times a dictionary of a megabyte would be ten gigabytes to validate."""
    values = pa.array([f"v{i:06}" for i in range(100_000)])
    one = pa.record_batch({"name": pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), values)})
    with pytest.raises(BatchTooLarge, match="split it"):
        read_batch(written([one] * 10_000, one.schema), 1 << 20, 4 << 20)


def test_a_wide_batch_with_a_column_twice_is_told_so():
    """Looking for each name among all of them would be 400 million comparisons."""
    names = [f"{i:x}" for i in range(20_000)]
    data = wire.ipc(pa.table([pa.nulls(1)] * 20_001, names=[*names, names[-1]]))
    with pytest.raises(BatchError, match=f"'{names[-1]}' is in the batch 2 times"):
        stocked(0).ingest("s", read_batch(data, ROWS, 1 << 24))


def test_a_message_over_the_limit_is_refused_by_grpc():
    async def body(remote):
        before = remote.stream.count
        problem = await failed(remote.ingest(batch(wire.ipc(table(3)) + bytes(BYTES))))
        assert problem.code().name == "RESOURCE_EXHAUSTED"
        assert str(BYTES) in problem.details()
        assert remote.stream.count == before
        await remote.well()

    run(body, max_message_bytes=BYTES)
