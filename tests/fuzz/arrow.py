"""Damaged Arrow IPC streams, ingested as the service does it: refused as a whole, or added as Arrow reads them."""

import random
import struct
from collections import Counter
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from promising import wire
from promising.errors import BatchError
from promising.index import Options, Stream
from promising.server.batch_reader import BatchReader
from tests.fuzz.byte_mutations import flip, mutated, number
from tests.fuzz.cases import Broken, Subject, differs, typed

ROWS, BYTES = 1_000, 1 << 16  # limits of the reader
NOW = 100_000_000_000
FACTORS = {"s": 1_000_000, "ms": 1_000, "us": 1}
PLAIN = {"ts": "timestamp", "k": "int", "x": "float"}
RICH = {"ts": "timestamp", "k": "int", "x": "float", "d": "bool", "w": "string"}
MICROS = pa.timestamp("us")
OPTIONS = Options(buckets=4, depth=3, width=8, filter_bits=64)


def samples() -> list[tuple[dict[str, str], bytes]]:
    """Valid streams, and some of types that are refused; each with the columns of the stream it is for."""
    ts = pa.array([5_000_000 * i for i in range(6)], MICROS)
    k, x = (
        pa.array([1, 2, 3, 1, -(1 << 63), (1 << 63) - 1]),
        pa.array([0.5, -0.0, float("inf"), float("nan"), 1e308, 0]),
    )
    d, w = pa.array([True, None, False, True, True, None]), pa.array(["", "a", None, "größe", "😀" * 3, "a"])
    rich = {"ts": ts, "k": k, "x": x, "d": d, "w": w}
    plain = [
        {"ts": ts, "k": k, "x": x},
        {"x": x, "ts": ts.cast(pa.timestamp("us", "Asia/Kolkata")), "k": k},
        {"ts": ts.cast(pa.timestamp("ns")), "k": k.slice(0, 4).cast(pa.int8()), "x": x},
        {"ts": ts.cast(pa.timestamp("s")), "k": pa.array([1, 2, 3, 4, 5, 1 << 63], pa.uint64()), "x": k},
        {"ts": ts.cast(pa.int64()), "k": pa.array([1.0, 2.0, 3.0, 4.0, 5.5, 6.0]), "x": x.cast(pa.float32())},
        {"ts": ts, "k": k.dictionary_encode(), "x": pa.nulls(6)},
        {"ts": ts, "k": pa.array([1, 2, None, 3, 4, 5]), "x": pa.array([None, 1.5, None, 2.5, 3.5, 4.5])},
        {"ts": ts, "k": k.cast(pa.duration("us")), "x": x},
        {"ts": ts.cast(pa.date64()), "k": pa.array([[1], [], None, [2, 3], [4], [5]]), "x": x},
    ]
    texts = [
        rich,
        rich | {"w": w.cast(pa.large_string())},
        rich | {"w": w.dictionary_encode()},
        rich | {"w": w.cast(pa.binary())},
        rich | {"w": w.cast(pa.string_view())},
        rich | {"w": pa.nulls(6), "x": pa.nulls(6), "d": pa.nulls(6)},
        rich | {"w": pa.array([{"a": 1}] * 6), "d": pa.array([1, 0, 1, 0, 1, 0])},
        rich | {"x": pa.array([1, 2, 3, None, 5, 6], pa.float16())},
    ]
    found = []
    for types, tables in ((PLAIN, plain), (RICH, texts)):
        for columns in tables:
            rows = min(map(len, columns.values()))
            table = pa.table({name: column.slice(0, rows) for name, column in columns.items()})
            found += [(types, wire.ipc(table)), (types, _in_pieces(table))]
    return found


def _in_pieces(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=2):
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


SAMPLES = samples()


def messages(data: bytes) -> list[bytes]:
    """The messages of a valid stream, its end among them."""
    found, at = [], 0
    with pa.BufferReader(data) as source:
        reader = pa.ipc.MessageReader.open_stream(source)
        while at < len(data):
            with suppress(StopIteration):
                reader.read_next_message()
            found.append(data[at : source.tell()])
            at = source.tell()
    return found


def shuffled(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Messages in another order, or of another stream: schemas that lie about what follows."""
    ours, theirs = messages(data), messages(other)
    match rng.randrange(4):
        case 0:
            ours[0] = theirs[0]
        case 1:
            rng.shuffle(ours)
        case 2:
            ours.insert(rng.randint(0, len(ours)), rng.choice(theirs))
        case _:
            del ours[rng.randrange(len(ours))]
    return b"".join(ours)


def header(rng: random.Random, data: bytes) -> bytes:
    """A number in the headers becomes another: a length, an offset, a type, a count of nulls."""
    parts = messages(data)
    at = rng.randrange(len(parts) - 1)
    changed = bytearray(parts[at])
    (size,) = struct.unpack_from("<i", changed, 4)
    width = rng.choice((1, 2, 4, 8, 8))
    place = 8 + rng.randrange(max(size - width, 1))
    place -= place % width
    value = rng.choice((0, 1, 2, 3, 5, 6, 7, 8, 64, rng.randrange(256), (1 << 8 * width) - 1, 1 << 8 * width - 1))
    changed[place : place + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    parts[at] = bytes(changed)
    return b"".join(parts)


def body(rng: random.Random, data: bytes) -> bytes:
    """Values, offsets or validity that are others, under headers that are right."""
    parts = messages(data)
    at = rng.randrange(len(parts) - 1)
    (size,) = struct.unpack_from("<i", parts[at], 4)
    found = bytearray(parts[at][8 + size :])
    if found:
        rng.choice((flip, number))(rng, found)
    parts[at] = parts[at][: 8 + size] + bytes(found)
    return b"".join(parts)


class Given(NamedTuple):
    """A message for a stream of these columns. after: a valid one came before it on the same call."""

    types: dict[str, str]
    data: bytes
    after: bytes | None
    strict: bool


class Batches(Subject):
    """Each to a stream that has some tuples; what is refused leaves it as it was."""

    name: ClassVar[str] = "arrow"
    verdicts: ClassVar[dict[str, float]] = {"added": 0.15, "added in part": 0.003, "BadArrow": 0.2, "WrongType": 0.02}

    def __init__(self) -> None:
        self._streams: dict[int, Stream] = {}

    def input(self, rng: random.Random) -> Given:
        types, data = rng.choice(SAMPLES)
        after = rng.choice([good for kind, good in SAMPLES if kind is types]) if rng.random() < 0.3 else None
        if types is PLAIN and rng.random() < 0.5:
            data = after = rng.choice((SAMPLES[0][1], data))  # the next one like it may not be read by Arrow
        match rng.randrange(5):
            case 0:
                data = shuffled(rng, data, rng.choice(SAMPLES)[1])
            case 1:
                data = header(rng, data)
            case 2:
                data = body(rng, data)
            case _:
                data, _ = mutated(rng, data)
        return Given(types, data, after, rng.random() < 0.2)

    def judge(self, given: Given) -> str:
        stream = self._stream(given.types)
        before = _state(stream)
        reader = BatchReader(ROWS, BYTES)
        if given.after is not None:
            with suppress(BatchError):  # of a type that is refused
                reader.read(given.after, stream.schema.types)
        try:
            columns = reader.read(given.data, stream.schema.types)
            added = stream.append(columns, strict=given.strict)
        except BatchError as problem:
            differs(before, _state(stream), "a refused batch")
            return typed(problem)
        del self._streams[id(given.types)]
        return _check(given, stream, added)

    def _stream(self, types: dict[str, str]) -> Stream:
        made = self._streams.get(id(types))
        if made is None:
            made = self._streams[id(types)] = Stream("s", types, "ts", clock=lambda: NOW, seed=7)
            made.create_summary("k", "k", granularity=10_000_000, collapse=(2, 3), options=OPTIONS)
        return made


def _state(stream: Stream) -> list[Any]:
    return [stream.accepted, stream.kept, stream.watermark, stream.latest, stream.nbytes, stream.arrived]


def _check(given: Given, stream: Stream, added: Any) -> str:
    """What was added is what Arrow reads."""
    with pa.ipc.open_stream(pa.py_buffer(given.data)) as reader:
        table = reader.read_all()
    table.validate(full=True)
    expected = Counter(zip(*(_values(table[name], kind) for name, kind in given.types.items()), strict=True))
    found = stream.take(stream._log.rows())
    got = Counter(zip(*(_values(found[name], kind) for name, kind in given.types.items()), strict=True))
    refused = sum(added.refused.values())
    if added.accepted != got.total() or added.accepted + refused != expected.total() or got - expected:
        raise Broken(f"{added} of {table.num_rows} tuples; not sent: {got - expected}; not added: {expected - got}")
    stream.summaries["k"].estimate([1])
    return "added in part" if refused else "added"


def _values(column: pa.ChunkedArray, kind: str) -> list[Any]:
    """Values to compare; floats and the instants of finer clocks by what a column of that kind can hold of them."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kind == "timestamp" and pa.types.is_timestamp(column.type):
        unit, numbers = column.type.unit, column.cast(pa.int64()).to_pylist()
        if unit == "ns":
            return [number // 1_000 if number >= 0 else -(-number // 1_000) for number in numbers]
        return [number * FACTORS[unit] for number in numbers]
    values = column.to_pylist()
    if kind in ("int", "float") and not all(isinstance(value, int | float | None) for value in values):
        raise Broken(f"{column.type} was added as {kind}")
    if kind == "float":
        return [None if value is None else repr(float(value)) for value in values]
    return values if kind != "int" else [None if value is None else int(value) for value in values]
