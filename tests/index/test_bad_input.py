"""Bad input: its own exception, a message that names column, row and value, the store as it was, the tuples counted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from promising import errors
from promising.index import Options, Stream
from promising.index.time_text import instant
from promising.testing import ManualClock
from tests.index.world import fingerprint

SCHEMA = {"ts": "timestamp", "k": "int", "s": "string", "b": "bool", "f": "float", "n": "int", "t": "timestamp"}
NOW = 100_000
NAN = float("nan")
ODD: list[Any] = [(5,), (NAN, 5)]  # no windows
SMALL = Options(buckets=4, depth=3, width=8, maxlength=256, filter_bits=256, coarse_bits=512)


def batch(tuples: int = 3, /, **changed: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "ts": np.arange(NOW, NOW + tuples),
        "k": list(range(tuples)),
        "s": [f"w{i}" for i in range(tuples)],
        "b": [True] * tuples,
        "f": [0.5] * tuples,
        "n": [7] * tuples,
        "t": [0] * tuples,
    }
    return {**whole, **changed}


def without(name: str) -> dict[str, Any]:
    return {k: v for k, v in batch().items() if k != name}


@pytest.fixture
def stream() -> Stream:
    """With tuples in every granularity, aside, and in the open zone."""
    made = Stream("s", SCHEMA, "ts", max_future=50, clock=ManualClock(NOW), max_tuples=1000, keep=1600)
    for name, key, structure in (("a", "k", "adaptive"), ("g", "s", "grid"), ("o", "k", "none")):
        made.create_summary(name, key, granularity=100, collapse=(2, 3), structure=structure, options=SMALL)
    made.append(batch(300, ts=np.linspace(NOW - 900, NOW, 300).astype(np.int64)))
    made.append(batch(300, ts=np.full(300, NOW)))
    made.append(batch(4, ts=[NOW - 120, NOW - 110, NOW - 500, NOW - 800]))
    return made


def offsets_past_the_end() -> pa.Array:
    """Offsets whose ends look right and whose middle points far outside the buffer."""
    offsets = pa.py_buffer(np.array([0, 1, 1 << 30, 3], np.int32).tobytes())
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])


def not_utf8() -> pa.Array:
    offsets = pa.py_buffer(np.array([0, 1, 2, 3], np.int32).tobytes())
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"a\xffc")])


def twice() -> pa.Table:
    given = {**batch(), "ts": pa.array(batch()["ts"], pa.timestamp("us"))}
    table = pa.table({n: pa.array(v) for n, v in given.items()})
    return table.append_column("n", table.column("n"))


Case = tuple[str, Any, type[errors.BatchError], list[str], int]
CASES: list[Case] = [
    ("missing column", without("f"), errors.MissingColumn, ["'f'", "float"], 3),
    ("missing key", without("k"), errors.MissingColumn, ["'k'"], 3),
    ("missing time", without("ts"), errors.MissingColumn, ["'ts'"], 3),
    ("unknown column", batch(zz=[1, 2, 3]), errors.UnknownColumn, ["'zz'"], 3),
    ("column named by a number", {**batch(), 5: [1, 2, 3]}, errors.UnknownColumn, ["5"], 3),
    ("column twice", twice(), errors.DuplicateColumn, ["'n'"], 3),
    ("rows that are no dicts", [1, 2, 3], errors.WrongType, ["row 0", "int"], 3),
    ("nothing", None, errors.WrongType, ["NoneType"], 0),
    ("scalar", batch(n=5), errors.WrongType, ["'n'", "int"], 0),
    ("text for a column", batch(s="abc"), errors.WrongType, ["'s'", "str"], 3),
    ("a set has no order", batch(k={1, 2, 3}), errors.WrongType, ["'k'", "set"], 3),
    ("two dimensions", batch(k=np.zeros((3, 2), np.int64)), errors.WrongType, ["'k'", "2 dimensions"], 3),
    ("lists in a column", batch(n=[[1], [2], [3]]), errors.WrongType, ["'n'", "row 0", "[1]"], 3),
    ("unequal lengths", batch(f=[0.5]), errors.UnequalLengths, ["f 1", "k 3"], 3),
    ("no tuples", {name: [] for name in SCHEMA}, errors.EmptyBatch, ["no tuples"], 0),
    ("null key", batch(k=[1, None, 3]), errors.NullKey, ["'k'", "row 1", "null"], 3),
    ("null string key", batch(s=pa.array(["a", "b", None])), errors.NullKey, ["'s'", "row 2", "null"], 3),
    ("nothing but nulls", batch(k=pa.nulls(3)), errors.NullKey, ["'k'", "row 0"], 3),
    ("masked key", batch(k=np.ma.masked_array([1, 2, 3], [False, False, True])), errors.NullKey, ["'k'", "row 2"], 3),
    ("null time", batch(ts=[NOW, None, NOW]), errors.NullTime, ["'ts'", "row 1", "null"], 3),
    ("not a time", batch(ts=np.array([1, 2, "NaT"], "M8[us]")), errors.NullTime, ["'ts'", "row 2"], 3),
    ("NaN key", batch(k=[1.0, 2.0, NAN]), errors.NaNKey, ["'k'", "row 2", "NaN"], 3),
    ("NaN key in numpy", batch(k=np.array([1.0, NAN, 3.0])), errors.NaNKey, ["'k'", "row 1", "NaN"], 3),
    ("NaN key in Arrow", batch(k=pa.array([NAN, 1.0, 3.0])), errors.NaNKey, ["'k'", "row 0", "NaN"], 3),
    ("NaN string key", batch(s=["a", NAN, "b"]), errors.NaNKey, ["'s'", "row 1", "NaN"], 3),
    ("string among ints", batch(k=[1, 2, "3"]), errors.MixedKeys, ["'k'", "row 2", "'3'"], 3),
    ("int among strings", batch(s=["a", 2, "3"]), errors.MixedKeys, ["'s'", "row 1", "2"], 3),
    ("objects", batch(k=np.array([1, "x", 3], object)), errors.MixedKeys, ["'k'", "row 1", "'x'"], 3),
    ("ints for strings", batch(s=np.arange(3)), errors.MixedKeys, ["'s'", "row 0", "int64"], 3),
    ("Arrow strings for ints", batch(k=pa.array(["a", "b", "c"])), errors.MixedKeys, ["'k'", "string"], 3),
    ("bool key", batch(k=[1, True, 3]), errors.WrongType, ["'k'", "row 1", "True"], 3),
    ("bool keys", batch(k=np.array([True, False, True])), errors.WrongType, ["'k'", "row 0", "True"], 3),
    ("half a key", batch(k=[1, 2.5, 3]), errors.WrongType, ["'k'", "row 1", "2.5"], 3),
    ("half a key in numpy", batch(k=np.array([1, 2, 3.5])), errors.WrongType, ["'k'", "row 2", "3.5"], 3),
    ("infinite key", batch(k=np.array([1, np.inf, 3.5])), errors.WrongType, ["'k'", "row 1", "inf"], 3),
    ("key past 64 bits", batch(k=[1, 2, 1 << 64]), errors.WrongType, ["'k'", "row 2", str(1 << 64)], 3),
    ("unsigned", batch(k=np.array([0, 1 << 63, 1], np.uint64)), errors.WrongType, ["'k'", "row 1", str(1 << 63)], 3),
    (
        "Arrow unsigned",
        batch(n=pa.array([0, 1, 1 << 63], pa.uint64())),
        errors.WrongType,
        ["'n'", "row 2", str(1 << 63)],
        3,
    ),
    ("huge float", batch(n=np.array([0.0, -1e19, 1.0])), errors.WrongType, ["'n'", "row 1", "-1e+19"], 3),
    ("NaN for an int", batch(n=[1.0, NAN, 2.0]), errors.WrongType, ["'n'", "row 1", "nan"], 3),
    ("text for a float", batch(f=[0.5, "x", 1.5]), errors.WrongType, ["'f'", "row 1", "'x'"], 3),
    ("decimals", batch(f=pa.array([1, 2, 3], pa.decimal128(5))), errors.WrongType, ["'f'", "decimal"], 3),
    ("ints for bools", batch(b=np.arange(3)), errors.WrongType, ["'b'", "row 0", "int64"], 3),
    ("bytes", batch(s=["a", b"b", "c"]), errors.WrongType, ["'s'", "row 1", "b'b'"], 3),
    ("half a surrogate", batch(s=["a", "b", "\ud800"]), errors.WrongType, ["'s'", "row 2"], 3),
    (
        "malformed Arrow",
        lambda: batch(s=offsets_past_the_end()),
        errors.WrongType,
        ["'s'", "malformed", str(1 << 30)],
        3,
    ),
    ("not UTF-8", lambda: batch(s=not_utf8()), errors.WrongType, ["'s'", "malformed", "index 1"], 3),
    ("long string", batch(s=["a", "é" * 16385, "c"]), errors.ValueTooLong, ["'s'", "row 1", "32,770"], 3),
    ("time as text", batch(ts=["noon", "one", "two"]), errors.WrongType, ["'ts'", "row 0", "'noon'"], 3),
    ("half a microsecond", batch(ts=[1.5, 2.0, 3.0]), errors.WrongType, ["'ts'", "row 0", "1.5"], 3),
    ("float times", batch(ts=np.array([1.0, 2.0, 3.0])), errors.WrongType, ["'ts'", "row 0", "float64"], 3),
    ("after all time", batch(ts=[NOW, 1 << 62, NOW]), errors.WrongType, ["'ts'", "row 1", str(1 << 62)], 3),
    ("before all time", batch(ts=[NOW, NOW, -(1 << 63)]), errors.WrongType, ["'ts'", "row 2", str(-(1 << 63))], 3),
    ("seconds too many", batch(t=np.array([0, 1 << 60, 0], "M8[s]")), errors.WrongType, ["'t'", "row 1"], 3),
    (
        "Arrow seconds too many",
        batch(ts=pa.array([NOW, 0, 1 << 60], pa.timestamp("s"))),
        errors.WrongType,
        ["'ts'", "row 2", str(1 << 60)],
        3,
    ),
    ("more than fits", batch(20_000, ts=np.full(20_000, NOW)), errors.CeilingReached, ["20,000", "16,384"], 20_000),
]


@pytest.mark.parametrize(("given", "error", "said", "tuples"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_bad_batch_is_refused_whole(stream, given, error, said, tuples):
    before = fingerprint(stream)
    with pytest.raises(error) as caught:
        stream.append(given() if callable(given) else given)  # what is malformed cannot be printed
    assert type(caught.value) is error
    for word in said:
        assert word in str(caught.value)
    assert fingerprint(stream) == before
    assert stream.refused == {error.reason: tuples}
    assert stream.append(batch()).accepted == 3


def test_the_fingerprint_sees_a_tuple(stream):
    before = fingerprint(stream)
    stream.append(batch(1, ts=[NOW - 700]))
    assert fingerprint(stream) != before


def test_reasons_are_told_apart():
    reasons = [e.reason for e in errors.BatchError.__subclasses__()]
    assert len(reasons) == len(set(reasons))


class TestTimes:
    """Tuples too old or too far ahead: left out and counted one by one, or refused with their batch."""

    def oldest(self, stream: Stream) -> int:
        horizon: int = stream.summaries["a"].describe().horizons[-1]
        return horizon

    def test_counted(self, stream):
        oldest, before = self.oldest(stream), stream.summaries["a"].count
        times = [oldest - 1, NOW + 51, oldest, NOW + 50, -(1 << 60), 1 << 60]
        out = stream.append(batch(6, ts=times))
        assert (out.accepted, out.refused) == (2, {"too_old": 2, "too_far_ahead": 2})
        assert stream.refused == out.refused
        assert stream.watermark == NOW, "the clock"
        assert stream.summaries["a"].count in (before + 2, before + 1)  # the watermark moved on

    def test_counted_to_the_last(self, stream):
        before = fingerprint(stream)
        out = stream.append(batch(2, ts=[NOW + 51, -5]))
        assert (out.accepted, out.refused) == (0, {"too_far_ahead": 1, "too_old": 1})
        assert fingerprint(stream) == before

    def test_a_tuple_makes_the_next_too_old(self, stream):
        stream.clock.set(10 * NOW)
        out = stream.append(batch(3, ts=[NOW, 5 * NOW, NOW]))
        assert (out.accepted, out.refused) == (2, {"too_old": 1})

    def test_strict_too_old(self, stream):
        oldest, before = self.oldest(stream), fingerprint(stream)
        with pytest.raises(errors.TooOld, match=f"'ts', row 1: {instant(oldest - 1)} is before {instant(oldest)}"):
            stream.append(batch(ts=[NOW, oldest - 1, NOW]), strict=True)
        assert fingerprint(stream) == before
        assert stream.refused == {"too_old": 3}

    def test_strict_too_far_ahead(self, stream):
        before = fingerprint(stream)
        with pytest.raises(errors.TooFarAhead, match=f"'ts', row 2: {instant(NOW + 51)} is 51 microseconds ahead"):
            stream.append(batch(ts=[NOW, NOW, NOW + 51]), strict=True)
        assert fingerprint(stream) == before
        assert stream.refused == {"too_far_ahead": 3}

    def test_strict_takes_what_is_in_time(self, stream):
        times = [self.oldest(stream), NOW, NOW]
        assert stream.append(batch(ts=times), strict=True).accepted == 3

    @pytest.mark.parametrize("watermark", [1 << 70, -(1 << 62), 1.5, "noon", None])
    def test_watermarks(self, stream, watermark):
        before = fingerprint(stream)
        with pytest.raises(errors.WrongType, match="watermark"):
            stream.advance(watermark)
        assert fingerprint(stream) == before


class TestDefinitions:
    @pytest.mark.parametrize(
        ("changed", "error", "said"),
        [
            ({"granularity": 0}, errors.BadGranularity, "0 micro"),
            ({"granularity": -5}, errors.BadGranularity, "-5"),
            ({"granularity": 1.5}, errors.BadGranularity, "1.5"),
            ({"collapse": (1, 3)}, errors.BadCollapse, "got 1"),
            ({"collapse": (4, 0)}, errors.BadCollapse, "got 0"),
            ({"collapse": (2.5, 2)}, errors.BadCollapse, "2.5"),
            ({"collapse": (2,)}, errors.BadCollapse, r"not \(2,\)"),
            ({"collapse": "42"}, errors.BadCollapse, "not '42'"),
            ({"collapse": (2, 63)}, errors.BadCollapse, r"COLLAPSE\(2, 63\)"),
            ({"collapse": (1 << 40, 2)}, errors.BadCollapse, "further than time"),
            ({"key": "zz"}, errors.BadSchema, "'zz'"),
            ({"key": "f"}, errors.BadSchema, "'f' is of type float"),
            ({"key": "b"}, errors.BadSchema, "'b' is of type bool"),
            ({"key": "ts"}, errors.BadSchema, "'ts' is of type timestamp"),
            ({"structure": "tree"}, errors.BadStructure, "'tree'"),
            ({"name": "a"}, errors.DuplicateName, "'a'"),
            ({"options": Options(ceiling=1000)}, errors.CeilingTooLow, "1,000"),
        ],
    )
    def test_summaries(self, stream, changed, error, said):
        given = {"name": "new", "key": "k", "granularity": 100, "collapse": (2, 3), **changed}
        before = fingerprint(stream)
        with pytest.raises(error, match=said):
            stream.create_summary(given.pop("name"), given.pop("key"), **given)
        assert fingerprint(stream) == before
        assert set(stream.summaries) == {"a", "g", "o"}

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("buckets", 3), ("buckets", 0), ("buckets", 8192), ("buckets", 2.0), ("depth", 4), ("depth", 17),
            ("depth", -1), ("width", 1), ("width", 48), ("maxlength", 255), ("maxlength", 32768), ("maxlength", "9"),
            ("tolerance", 0.0), ("tolerance", NAN), ("effect", -1.0), ("filter_bits", 32), ("filter_bits", 256),
            ("coarse_bits", 1000), ("probes", 0), ("probes", 5),
        ],
    )  # fmt: skip
    def test_options(self, name, value):
        with pytest.raises(errors.BadOptions, match=f"{name}.*{value}" if name != "filter_bits" else name):
            Options(**{name: value})

    def test_a_ceiling_that_suffices_is_the_ceiling(self, stream):
        made = stream.create_summary("new", "k", granularity=100, options=SMALL)
        least = made.describe().ceiling
        with pytest.raises(errors.CeilingTooLow, match=f"{least:,}"):
            tight = Options(**{**vars(SMALL), "ceiling": least - 1})
            stream.create_summary("tight", "k", granularity=100, options=tight)
        fits = Options(**{**vars(SMALL), "ceiling": least})
        assert stream.create_summary("fits", "k", granularity=100, options=fits).describe().ceiling == least

    def test_a_key_with_nulls_among_the_tuples(self, stream):
        stream.append(batch(n=[1, None, 3]))
        with pytest.raises(errors.NullKey, match="'n'"):
            stream.create_summary("new", "n", granularity=100)
        assert "new" not in stream.summaries

    @pytest.mark.parametrize(
        ("schema", "time", "said"),
        [
            ({}, "ts", "at least one"),
            ({"ts": "date"}, "ts", "'ts' has unknown type 'date'"),
            ({"ts": "int"}, "ts", "'ts' is of type int"),
            ({"a": "timestamp"}, "ts", "'ts' does not exist"),
        ],
    )
    def test_schemas(self, schema, time, said):
        with pytest.raises(errors.BadSchema, match=said):
            Stream("s", schema, time)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"lateness": -1},
            {"lateness": 1 << 62},
            {"lateness": 1.5},
            {"max_future": -1},
            {"max_tuples": 0},
            {"max_tuples": 1 << 31},
        ],
    )
    def test_streams(self, wrong):
        with pytest.raises(errors.BadOptions, match="got"):
            Stream("s", SCHEMA, "ts", **wrong)

    def test_a_lateness_of_too_many_blocks(self):
        made = Stream("s", SCHEMA, "ts", lateness=10**9)
        with pytest.raises(errors.BadOptions, match="lateness"):
            made.create_summary("a", "k", granularity=10)


QUESTIONS: list[tuple[str, Callable[[Stream], Any], type[errors.PromisingError], str]] = [
    ("window", lambda s: s.summaries["a"].probe([1], (5, 4)), errors.BadWindow, "ends at 4"),
    ("window of regions", lambda s: s.summaries["a"].regions([1], (5, 4)), errors.BadWindow, "ends at 4"),
    ("window of an estimate", lambda s: s.summaries["g"].estimate(["a"], (5, 4)), errors.BadWindow, "ends at 4"),
    ("window without structure", lambda s: s.summaries["o"].probe([1], (5, 4)), errors.BadWindow, "ends at 4"),
    ("no window", lambda s: s.summaries["a"].probe([1], ODD[0]), errors.BadWindow, r"\(5,\)"),
    ("window of NaN", lambda s: s.summaries["a"].probe([1], ODD[1]), errors.BadWindow, "nan"),
    ("zone", lambda s: s.summaries["a"].visit((1, 10**6, 0)), errors.UnknownName, "zone 1000000"),
    ("zone of G_2", lambda s: s.summaries["a"].visit((2, -1, 0)), errors.UnknownName, "zone -1 in G_2"),
    ("granularity", lambda s: s.summaries["a"].visit((9, 0, 0)), errors.UnknownName, "G_9"),
    ("bucket", lambda s: s.summaries["a"].visit((1, 1, 4)), errors.UnknownName, "bucket 4"),
    ("negative bucket", lambda s: s.summaries["a"].visit((1, 1, -1)), errors.UnknownName, "bucket -1"),
    ("region without structure", lambda s: s.summaries["o"].visit((1, 1, 0)), errors.UnknownName, "region"),
    ("search", lambda s: s.summaries["a"].regions([1], None, "deep"), errors.UnknownName, "'deep'"),
    ("search without structure", lambda s: s.summaries["o"].regions([1], None, "deep"), errors.UnknownName, "'deep'"),
    ("row", lambda s: s.take(np.array([0, 1 << 20], np.int32)), errors.UnknownName, "row 1048576 .place 1"),
    ("row of more than 32 bits", lambda s: s.take(np.array([1 << 32])), errors.UnknownName, "row 4294967296"),
    ("row without a tuple", lambda s: s.take(np.array([604], np.int32)), errors.UnknownName, "row 604"),
    ("negative row", lambda s: s.take(np.array([-1], np.int32)), errors.UnknownName, "row -1"),
    ("rows that are none", lambda s: s.take(np.array([0.5])), errors.WrongType, "float64"),
    ("window after all time", lambda s: s.summaries["a"].visit((9, 0, 0), (2**70, 2**71)), errors.UnknownName, "G_9"),
    ("column", lambda s: s.take(np.array([0], np.int32), ["zz"]), errors.UnknownName, "'zz'"),
    ("column to fetch", lambda s: s.summaries["a"].fetch([1], columns=["zz"]), errors.UnknownName, "'zz'"),
    ("summary", lambda s: s.drop_summary("zz"), errors.UnknownName, "'zz'"),
    ("string keys", lambda s: s.summaries["a"].probe(["x"]), errors.WrongType, "'k' is int"),
    ("int keys", lambda s: s.summaries["g"].regions([4]), errors.WrongType, "'s' is string"),
    ("keys without structure", lambda s: s.summaries["o"].estimate(["x"]), errors.WrongType, "'k' is int"),
    ("float keys", lambda s: s.summaries["a"].probe([0.5]), errors.WrongType, "row 0"),
    ("bool keys", lambda s: s.summaries["a"].probe([True]), errors.WrongType, "row 0"),
    ("mixed keys", lambda s: s.summaries["a"].probe([1, "x"]), errors.MixedKeys, "row 1"),
    ("null keys", lambda s: s.summaries["a"].probe([1, None]), errors.NullKey, "row 1"),
]


@pytest.mark.parametrize(("ask", "error", "said"), [q[1:] for q in QUESTIONS], ids=[q[0] for q in QUESTIONS])
def test_bad_questions(stream, ask, error, said):
    before = fingerprint(stream)
    with pytest.raises(error, match=said):
        ask(stream)
    assert fingerprint(stream) == before


def test_questions_without_an_answer(stream):
    for summary, key in (
        (stream.summaries["a"], [10**6]),
        (stream.summaries["g"], ["none"]),
        (stream.summaries["o"], [-1]),
    ):
        assert len(summary.probe(key)) == 0
        assert len(summary.probe([])) == len(summary.regions([])) == len(summary.estimate([]).value) == 0
        assert len(summary.probe(key, (-(1 << 80), 1 << 80))) == 0
        assert len(summary.regions(key, (5, 5))) == 0
    assert len(stream.summaries["a"].probe([1], (-(1 << 80), 1 << 80))) == len(stream.summaries["a"].probe([1]))
    assert stream.summaries["a"].estimate([1], (-(1 << 80), 1 << 80)).value > 0
