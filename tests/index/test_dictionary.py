"""Dictionaries and coded columns against counters, and what memory they count as."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising.index.coded
import promising.index.columns
import promising.index.dictionary
from promising.errors import CeilingReached, ValueTooLong
from promising.index import Stream
from promising.index.check import check_stream
from promising.index.dictionary import OVERHEAD, Dictionary
from promising.testing import ManualClock
from tests.index.world import ColdShelf, cool, narrow_hashes, restarted, small_chunks
from tests.tiers import examples

words = st.one_of(
    st.none(),
    st.sampled_from(["", "a", "aa", "tea", "\0", "é" * 3, "日本", "x" * 300]),
    st.integers(0, 99).map(lambda n: f"word {n:03}"),
)


def entered(dictionary: Dictionary, column: list[str | None]) -> list[int]:
    text = pa.array(column, pa.large_string())
    nulls = np.array([w is None for w in column])
    codes: list[int] = dictionary.enter(text, nulls if nulls.any() else None).tolist()
    return codes


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.lists(words, max_size=120), st.floats(0, 1)), max_size=8), st.integers(0, 20))
def test_a_dictionary_counts_the_rows_of_each_string(steps, unused):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promising.index.dictionary, "UNUSED", unused)
        dictionary = Dictionary()
        rows: list[tuple[int, str | None]] = []
        for column, share in steps:
            text = pa.array(column, pa.large_string())
            nulls = np.array([w is None for w in column], np.bool_)
            leaving = rows[: int(share * len(rows))]
            gone = np.array([code for code, _ in leaving], np.int32)
            staying = Counter(w for _, w in [*rows[len(leaving) :], *((0, w) for w in column)] if w is not None)
            expected = sum(len(w.encode()) + OVERHEAD for w in staying)
            assert dictionary.nbytes_with(text, nulls, gone) == (expected, len(staying))
            dictionary.leave(gone)
            rows = rows[len(leaving) :]
            if dictionary.worn:
                changed = dictionary.renumbered()
                rows = [(code if code < 0 else int(changed[code]), word) for code, word in rows]
                assert len(dictionary) == dictionary.live
            rows += zip(entered(dictionary, column), column, strict=True)
            codes = np.array([code for code, _ in rows], np.int32)
            assert dictionary.take(codes).to_pylist() == [word for _, word in rows]
            assert dictionary.live == len(staying)
            assert dictionary.nbytes == expected
            assert dictionary.counts(codes)
            assert len(dictionary) <= 2 * max(dictionary.live, unused) + len(column)


@settings(max_examples=examples(60))
@given(
    st.integers(0, 12),
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 40), max_size=12), st.booleans()), max_size=10),
    st.integers(1, 9),
)
def test_strings_of_two_dictionaries_are_told_apart_by_hashes_that_do_not_collide(bits, steps, most):
    with pytest.MonkeyPatch.context() as patch:
        narrow_hashes(patch, bits)
        two = Dictionary(), Dictionary()
        for second, numbers, forget in steps:
            mine = two[second]
            codes = entered(mine, [f"{n}" for n in numbers])
            if forget:
                mine.leave(np.array(codes, np.int32))
                mine.renumbered()
            known = [d.strings.to_pylist() for d in two]
            hashes = [dict(zip(k, d.keys(7)[: len(d)].tolist(), strict=True)) for k, d in zip(known, two, strict=True)]
            together = hashes[0] | hashes[1]
            for a, b, those in ((0, 0, hashes[0]), (0, 1, together), (1, 0, together)):
                calls = 0
                while (found := two[a].told_apart_by(7, two[b], most)) is None:
                    calls += 1
                assert calls <= 4 * len(together) + 4
                assert found == (len(set(those.values())) == len(those))


def test_a_proof_hashes_no_more_strings_than_it_may_look_at():
    two = Dictionary(), Dictionary()
    for dictionary in two:
        entered(dictionary, [f"{n}" for n in range(100)])
    assert two[0].told_apart_by(7, two[1], 30) is None
    assert two[0]._hashed + two[1]._hashed == 30
    assert not all(two[1].keys(8)[:100] == 0) and two[1]._hashed == 100
    while (found := two[0].told_apart_by(7, two[1], 30)) is None:
        assert two[0]._hashed == two[0]._seated
    assert found


def stream_of(**more) -> Stream:
    return Stream("s", {"ts": "timestamp", "s": "string"}, "ts", clock=ManualClock(1 << 50), **more)


def test_nearly_distinct_strings_stay_in_heaps_and_others_are_coded(monkeypatch):
    small_chunks(monkeypatch, 64)
    monkeypatch.setattr(promising.index.coded, "FEWEST", 100)
    monkeypatch.setattr(promising.index.columns, "FEWEST", 100)
    stream = stream_of(keep=5000)
    log, shelf = stream._log, ColdShelf()
    coded = log._coded["s"]
    told: list[str | None] = [f"key {n}" if n % 7 else None for n in range(1000)]
    stream.append({"ts": [0] * 1000, "s": told})
    assert 2 <= len(coded.starts) <= 3
    assert len(log._heaps["s"]) == len(log._chunks) - len(coded.starts)
    assert log.dictionary("s", log.rows()) is None and log.coded("s", log.rows()) is None
    assert log.array("s", log.rows()).to_pylist() == told
    assert restarted(stream, ManualClock(1 << 50))._log.array("s", log.rows()).to_pylist() == told
    assert cool(stream, shelf, 300, 2)
    assert log.array("s", log.rows()).to_pylist() == told
    assert check_stream(stream) == []
    stream.append({"ts": [10_000] * 500, "s": ["again"] * 500})  # all others are released
    assert log.dictionary("s", log.rows()) is not None
    assert coded.dictionary.live == 1 and not log._heaps["s"]
    assert check_stream(stream) == []


def test_a_million_distinct_strings_in_one_batch():
    stream = stream_of()
    text = pa.array(np.arange(1 << 20)).cast(pa.string())
    stream.append({"ts": np.zeros(1 << 20, np.int64), "s": text})
    log = stream._log
    assert log._coded["s"].dictionary.live < promising.index.coded.FEWEST + 2 * log.chunk
    assert log.array("s", log.rows()).equals(text.cast(pa.large_string()))


def test_a_dictionary_shrinks_with_keep(monkeypatch):
    small_chunks(monkeypatch, 64)
    monkeypatch.setattr(promising.index.dictionary, "UNUSED", 32)
    stream = stream_of(keep=800)
    dictionary = stream._log._coded["s"].dictionary
    for at in range(0, 40_000, 100):
        stream.append({"ts": np.arange(at, at + 100), "s": [f"{at // 100} {n % 20}" for n in range(100)]})
        assert len(dictionary) < 700
    assert dictionary.version > 10
    assert stream.nbytes < 1 << 17


def test_few_long_strings_without_rows_are_forgotten():
    dictionary = Dictionary()
    entered(dictionary, [f"short {n}" for n in range(2000)])
    for turn in range(100):
        codes = entered(dictionary, [f"{turn} {n} " + "x" * 30_000 for n in range(10)])
        dictionary.leave(np.array(codes, np.int32))
        if dictionary.worn:
            dictionary.renumbered()
        assert dictionary._arena.nbytes < 5 << 20
    assert dictionary.strings.take(pa.array(range(2000))).to_pylist() == [f"short {n}" for n in range(2000)]


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.lists(words, min_size=1, max_size=90), st.integers(0, 300)), max_size=20), st.booleans())
def test_the_ceiling_of_strings_is_never_passed(steps, plain):
    with pytest.MonkeyPatch.context() as patch:
        small_chunks(patch, 64)
        patch.setattr(promising.index.dictionary, "UNUSED", 8)
        for module in (promising.index.coded, promising.index.columns):
            patch.setattr(module, "FEWEST", 20 if plain else 1 << 17)
        stream = stream_of(max_string_bytes=12_000, keep=500)
        log, now = stream._log, 0
        told: list[tuple[int, str | None]] = []
        for column, gap in steps:
            now += gap
            before = log.string_bytes
            try:
                stream.append({"ts": [now] * len(column), "s": column})
            except CeilingReached:
                assert log.string_bytes == before
                continue
            told += [(now, word) for word in column]
            assert log.string_bytes <= 12_000
            assert check_stream(stream) == []
            kept = len(log)
            assert log.array("s", log.rows()).to_pylist() == [word for _, word in told[len(told) - kept :]]
            assert restarted(stream, ManualClock(1 << 50))._log.string_bytes == log.string_bytes


def test_columns_of_nulls_and_of_empty_strings():
    stream = stream_of()
    for column in ([None] * 5, ["", None, "", "a", ""], [None] * 3):
        stream.append({"ts": [0] * len(column), "s": column})
    dictionary = stream._log._coded["s"].dictionary
    assert dictionary.strings.to_pylist() == ["", "a"] and dictionary.live == 2
    told = [*[None] * 5, "", None, "", "a", "", *[None] * 3]
    for each in (stream, restarted(stream, ManualClock(1 << 50))):
        assert each._log.array("s", each._log.rows()).to_pylist() == told
        assert check_stream(each) == []


@pytest.mark.parametrize("fewest", [20, 1 << 17])
def test_an_image_has_each_string_once_and_images_without_codes_are_read(monkeypatch, fewest):
    small_chunks(monkeypatch, 64)
    monkeypatch.setattr(promising.index.coded, "FEWEST", fewest)
    stream = stream_of(keep=400)
    for at in range(0, 1000, 50):
        stream.append({"ts": [at] * 30, "s": [None if n % 9 == 4 else f"word {at // 50} {n}" for n in range(30)]})
    image = stream.image()
    strings, told = image["log"]["strings"]["s"], stream._log.array("s", stream._log.rows()).to_pylist()
    marks = stream._log._coded["s"].marks(stream._log.rows()).tolist()
    known = {text for text, coded in zip(told, marks, strict=True) if coded and text is not None}
    assert len(strings["codes"]) == sum(marks) and len(strings["known_lengths"]) == len(known)
    assert all(marks) == (fewest > 20) and any(marks)
    sizes = [len(text or "") for text in told]
    image["log"]["strings"]["s"] = {
        "lengths": np.array(sizes, np.int64),
        "bytes": np.frombuffer("".join(text or "" for text in told).encode(), np.uint8),
        "rooms": strings["rooms"],
    }
    made = stream_of(keep=400)
    made.restore(image)
    for each in (made, restarted(stream, ManualClock(1 << 50))):
        assert each._log.array("s", each._log.rows()).to_pylist() == told
        assert each._log.string_bytes == stream._log.string_bytes
        assert check_stream(each) == []


def test_what_lies_under_a_null_is_no_string():
    """Neither too long, nor entered."""
    long = b"x" * 40_000 + b"ab"
    ends = np.array([0, 40_000, 40_001, 40_002], np.int64)
    valid = pa.py_buffer(np.packbits([False, True, True], bitorder="little"))
    text = pa.Array.from_buffers(pa.large_string(), 3, [valid, pa.py_buffer(ends), pa.py_buffer(long)])
    stream = stream_of()
    stream.append({"ts": [0, 0, 0], "s": text})
    assert stream._log.array("s", stream._log.rows()).to_pylist() == [None, "a", "b"]
    assert stream._log._coded["s"].dictionary.strings.to_pylist() == ["a", "b"]
    with pytest.raises(ValueTooLong, match="row 1: 32,769 bytes"):
        stream.append({"ts": [0, 0, 0], "s": ["", "é" * 16_384 + "a", "b"]})
