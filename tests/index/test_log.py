"""The log: what goes in comes out, whatever the chunk, the batch and the type."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import CeilingReached, UnknownName
from promising.index import Options, Stream
from promising.index.check.log import check_chunks
from promising.index.log import CHUNK, TupleLog
from promising.index.schema import Schema
from promising.testing import ManualClock
from tests.index.world import small_chunks
from tests.tiers import examples

SCHEMA = {"ts": "timestamp", "s": "string", "b": "bool", "f": "float", "i": "int", "t": "timestamp"}

row = st.tuples(
    st.one_of(st.none(), st.text(max_size=12), st.just("ß" * 700)),
    st.one_of(st.none(), st.booleans()),
    st.one_of(st.none(), st.floats(allow_nan=False)),
    st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.one_of(st.none(), st.integers(-(1 << 60), 1 << 60)),
)
batches = st.lists(st.lists(row, min_size=1, max_size=20), min_size=1, max_size=12)


def as_columns(rows: list[tuple[Any, ...]], ts: int) -> dict[str, list[Any]]:
    return {"ts": [ts] * len(rows), **{n: [r[i] for r in rows] for i, n in enumerate(list(SCHEMA)[1:])}}


def as_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    times = table.column("t").cast("int64").to_pylist()
    return list(zip(*(table.column(n).to_pylist() for n in ("s", "b", "f", "i")), times, strict=True))


@settings(max_examples=examples(60))
@given(
    batches,
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["lists", "table", "sliced"]),
    st.randoms(use_true_random=False),
)
def test_round_trip(batches, chunk, form, random):
    """Also when batches are slices of larger tables, and when only some of a column's batches have nulls."""
    with pytest.MonkeyPatch.context() as patch:
        small_chunks(patch, chunk)
        stream = Stream("s", SCHEMA, "ts", clock=ManualClock(0), max_tuples=400)
        told: list[tuple[Any, ...]] = []
        for rows in batches:
            batch: Any = as_columns(rows, 0)
            if form != "lists":
                types = {
                    "ts": pa.timestamp("us"),
                    "s": pa.string(),
                    "b": pa.bool_(),
                    "f": pa.float64(),
                    "i": pa.int64(),
                }
                padded = as_columns([rows[-1], *rows, rows[0]], 0) if form == "sliced" else batch
                batch = pa.table({n: pa.array(v, types.get(n, pa.timestamp("us"))) for n, v in padded.items()})
                batch = batch.slice(1, len(rows)) if form == "sliced" else batch
            assert stream.append(batch).accepted == len(rows)
            told += rows
        assert as_rows(stream.take(stream._log.rows())) == told
        picked = [random.randrange(len(told)) for _ in range(30)]
        found = stream.take(stream._log.rows()[picked])
        assert as_rows(found) == [told[i] for i in picked]
        assert stream.count == len(told)


def test_batches_across_real_chunks():
    stream = Stream("s", {"ts": "timestamp", "s": "string", "i": "int"}, "ts", clock=ManualClock(0), max_tuples=60_000)
    n = 0
    for size in (CHUNK - 1, 2, CHUNK, 1, 5000):
        stream.append({"ts": [0] * size, "s": [f"s{i}" for i in range(n, n + size)], "i": np.arange(n, n + size)})
        n += size
    rng = np.random.default_rng(1)
    rows = rng.permutation(stream._log.rows())[:2000]
    rows = np.concatenate((rows, stream._log.rows()[[CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, n - 1]]))
    taken = stream.take(rows)
    assert taken.column("s").to_pylist() == [f"s{i}" for i in taken.column("i").to_pylist()]
    assert taken.column("i").to_pylist() == rows.tolist()


@settings(max_examples=examples(25))
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 90)), min_size=5, max_size=40),
    st.sampled_from([1, 2, 4, 8, 16]),
)
def test_chunks_are_reused_after_expiry(steps, chunk):
    """Rows are given back in order, used again, and never while a live tuple is there; marks of nulls do not linger."""
    with pytest.MonkeyPatch.context() as patch:
        small_chunks(patch, chunk)
        stream = Stream("s", SCHEMA, "ts", clock=ManualClock(1 << 40), max_tuples=45 * 60, keep=80)
        options = Options(buckets=1, depth=1, width=2, maxlength=256, filter_bits=64, coarse_bits=64)
        summary = stream.create_summary("a", "s", granularity=10, collapse=(2, 2), options=options)
        told: dict[int, tuple[Any, ...]] = {}
        times: dict[int, int] = {}
        now = n = 0
        for size, gap in steps:
            now += gap
            rows = [
                (
                    f"w{i % 7}" * (i % 5),
                    bool(i % 3) if i % 2 else None,
                    None if i % 4 else i / 4,
                    i,
                    None if i % 3 else i,
                )
                for i in range(n, n + size)
            ]
            stream.append(as_columns(rows, now))
            told.update(zip(range(n, n + size), rows, strict=True))
            times.update(dict.fromkeys(range(n, n + size), now))
            n += size
            kept = [i for i in told if times[i] >= summary.state.oldest]
            found = summary.probe([f"w{i}" * k for i in range(7) for k in range(1, 5)] + [""])
            assert sorted(as_rows(stream.take(found.rows)), key=lambda r: r[3]) == [told[i] for i in kept]
            log = stream._log
            assert len(log.rows()) == len(set(log.rows().tolist())) == stream.count
            assert list(check_chunks(log)) == []
            assert len(log._chunks) + len(log._free) == log.capacity // chunk


def test_memory_follows_what_is_kept(monkeypatch):
    small_chunks(monkeypatch, 256)
    stream = Stream(
        "s", {"ts": "timestamp", "s": "string"}, "ts", clock=ManualClock(1 << 50), max_tuples=20_000, keep=800
    )
    options = Options(buckets=1, depth=1, width=2, maxlength=256, filter_bits=64, coarse_bits=64)
    stream.create_summary("a", "s", granularity=100, collapse=(2, 2), options=options)
    seen = []
    for at in range(0, 40_000, 500):
        stream.append({"ts": np.arange(at, at + 500), "s": [f"{i:09d}" for i in range(500)]})
        seen.append((stream.nbytes, int(stream._log.rows().max())))
    warm = seen[10:]
    assert max(n for n, _ in warm) <= 2 * min(n for n, _ in warm)
    assert max(top for _, top in warm) < 4_000  # the lowest rows first


def test_a_full_log_refuses_until_time_makes_room(monkeypatch):
    small_chunks(monkeypatch, 64)
    stream = Stream("s", {"ts": "timestamp", "k": "int"}, "ts", clock=ManualClock(1 << 50), max_tuples=256, keep=800)
    options = Options(buckets=1, depth=1, width=2, maxlength=256, filter_bits=64, coarse_bits=64)
    stream.create_summary("a", "k", granularity=100, collapse=(2, 1), options=options)
    stream.append({"ts": [5] * 256, "k": [1] * 256})
    with pytest.raises(CeilingReached, match="1 tuples do not fit"):
        stream.append({"ts": [6], "k": [1]})
    assert (stream.refused, stream.count) == ({"ceiling_reached": 1}, 256)
    assert (
        stream.append({"ts": [1000] * 200, "k": [1] * 200}).accepted == 200
    )  # nothing of the first batch is kept then
    assert stream.count == 200


def test_the_ceiling_of_strings_holds_and_time_makes_room(monkeypatch):
    small_chunks(monkeypatch, 64)
    ceiling = 40_000
    clock = ManualClock(1 << 50)
    stream = Stream(
        "s", {"ts": "timestamp", "s": "string"}, "ts", clock=clock, max_tuples=4096, max_string_bytes=ceiling, keep=800
    )
    options = Options(buckets=1, depth=1, width=2, maxlength=256, filter_bits=64, coarse_bits=64)
    summary = stream.create_summary("a", "s", granularity=100, collapse=(2, 1), options=options)
    rng = np.random.default_rng(4)
    refused = 0
    for ts in range(200):
        words = ["x" * int(n) for n in rng.integers(0, 100, int(rng.integers(1, 90)))]
        before = stream.count
        try:
            stream.append({"ts": [ts % 50] * len(words), "s": words})
        except CeilingReached:
            refused += 1
            assert stream.count == before
        assert stream._log.string_bytes <= ceiling
    assert refused
    assert summary.count * 60 > ceiling // 4  # it was full when it began to refuse
    assert stream.append({"ts": [10_000], "s": ["y" * 1000]}).accepted == 1
    assert summary.count == stream.count == 1


@pytest.mark.kernel
def test_take_says_what_it_does_not_know():
    stream = Stream("s", {"ts": "timestamp"}, "ts", clock=ManualClock(0), max_tuples=10)
    stream.append({"ts": [0]})
    with pytest.raises(UnknownName, match="'x'"):
        stream.take(np.array([0], np.int32), ["x"])
    assert stream.take(np.empty(0, np.int32)).num_rows == 0


@pytest.mark.kernel
def test_an_empty_log():
    log = TupleLog(Schema({"ts": "timestamp", "s": "string"}, "ts"), 10, 1000)
    assert len(log) == len(log.rows()) == 0
    assert not log.has_nulls("s")
    assert log.take(log.rows()).num_rows == 0
    assert log.release(1 << 60) == []


# --- strings at random rows, and what chunks hold ----------------------------------------------------------------

WORDS = [None, "", "", "a", "tea", "é" * 3, "日本 " * 5, "x" * 300]


@pytest.mark.parametrize("chunk", [1, 2, 16, 64])
@pytest.mark.parametrize("seed", range(4))
def test_strings_are_gathered_from_many_chunks_in_any_order(monkeypatch, chunk, seed):
    """Empty ones, nulls and repeated rows among them; also from chunks that have been used again."""
    small_chunks(monkeypatch, chunk)
    rng = np.random.default_rng(seed)
    schema = {"ts": "timestamp", "s": "string", "k": "int"}
    stream = Stream("s", schema, "ts", clock=ManualClock(1 << 50), max_tuples=1024, keep=800)
    options = Options(buckets=1, depth=1, width=2, maxlength=256, filter_bits=64, coarse_bits=64)
    stream.create_summary("a", "k", granularity=100, collapse=(2, 1), options=options)
    for turn in range(4):
        words = [WORDS[int(i)] for i in rng.integers(0, len(WORDS), 300)]
        stream.append({"ts": [1000 * turn + t for t in range(300)], "s": words, "k": range(300)})
        log = stream._log
        by_row = dict(zip(log.rows().tolist(), words[-len(log.rows()) :], strict=True))
        for n in (0, 1, 2, 50, 700):
            rows = rng.choice(log.rows(), n)
            assert log.array("s", rows).to_pylist() == [by_row[r] for r in rows.tolist()]
            plain = log._strings("s", rows)
            plain.validate(full=True)
            assert plain.to_pylist() == [by_row[r] or "" for r in rows.tolist()]
            missing = log.nulls("s", rows)
            expected = [by_row[r] is None for r in rows.tolist()]
            assert ([False] * n if missing is None else missing.tolist()) == expected
        falling = log.rows()[::-1].copy()
        assert log.array("s", falling).to_pylist() == [by_row[r] for r in falling.tolist()]


def test_strings_that_are_all_empty():
    stream = Stream("s", {"ts": "timestamp", "s": "string"}, "ts", clock=ManualClock(0), max_tuples=40_000)
    stream.append({"ts": [0] * 20_000, "s": [""] * 20_000})
    rows = np.array([19_999, 0, CHUNK, CHUNK - 1], np.int32)
    assert stream.take(rows, ["s"]).column("s").to_pylist() == [""] * 4


@settings(max_examples=examples(40))
@given(
    st.lists(st.lists(st.integers(-9, 30), min_size=1, max_size=20), min_size=1, max_size=8),
    st.sampled_from([1, 4, 16]),
)
def test_spans_and_counts_say_what_the_chunks_hold(steps, chunk):
    with pytest.MonkeyPatch.context() as patch:
        small_chunks(patch, chunk)
        stream = Stream(
            "s", {"ts": "timestamp", "k": "int"}, "ts", clock=ManualClock(1 << 50), max_tuples=1024, keep=80
        )
        options = Options(buckets=1, depth=1, width=2, maxlength=256, filter_bits=64, coarse_bits=64)
        stream.create_summary("a", "k", granularity=10, collapse=(2, 2), options=options)
        log, now, arrived = stream._log, 0, 0
        for step in steps:
            times = [now + t for t in step]
            done = stream.append({"ts": times, "k": [1] * len(times)})
            now, arrived = max(now, *times), arrived + done.accepted
            starts, used, earliest, latest = log.spans()
            held = [log._times[s : s + n] for s, n in zip(starts.tolist(), used.tolist(), strict=True)]
            assert log.rows().tolist() == [r for s, n in zip(starts, used, strict=True) for r in range(s, s + n)]
            assert earliest.tolist() == [int(t.min()) for t in held]
            assert latest.tolist() == [int(t.max()) for t in held]
            assert log.arrived == arrived
            bases = log.bases[starts // chunk] + used
            assert bases.tolist() == (arrived - np.cumsum(used[::-1])[::-1] + used).tolist()
            everything = np.concatenate(held)
            for oldest in (None, now - 40, now - 7, now, now + 1):
                count = len(everything) if oldest is None else int((everything >= oldest).sum())
                assert log.count_from(oldest) == count
            assert stream.oldest is not None
            assert stream.kept == int((everything >= stream.oldest).sum())
