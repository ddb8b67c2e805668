"""Columns of strings are read as pyarrow reads them, and found in a table whatever their hashes share."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from promising.errors import ValueTooLong, WrongType
from promising.index.dictionary import Dictionary
from promising.index.kernels import dictionary as kernels
from promising.index.schema import LONGEST_STRING, Schema
from promising.summaries.kernels.text_table import HIGH, find, hash_text
from tests.tiers import examples

SCHEMA = Schema({"ts": "timestamp", "s": "string"}, "ts")
TEXTS = st.lists(st.one_of(st.text("ab\x7f", max_size=12), st.text(max_size=3), st.none()), min_size=1, max_size=20)


@given(TEXTS, st.sampled_from([pa.string(), pa.large_string()]), st.integers(0, 3), st.booleans())
@hypothesis_settings(max_examples=examples(100), deadline=None)
def test_valid_strings(texts, kind, cut, chunked):
    array = pa.array([*["é", None, "x"][:cut], *texts, "end"], kind).slice(cut, len(texts))
    column = SCHEMA.column("s", pa.chunked_array([array]) if chunked else array, False)
    assert column.text.type == pa.large_string()
    assert column.text.to_pylist() == texts
    assert (column.nulls is None) == (None not in texts)


def of(ends: list[int], data: bytes, kind: pa.DataType) -> pa.Array:
    offsets = np.array(ends, np.int32 if kind == pa.string() else np.int64)
    return pa.Array.from_buffers(kind, len(ends) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize(
    ("ends", "data"),
    [([0, 3, 1, 4], b"abcd"), ([0, 1, 9, 4], b"abcd"), ([0, 1, 2, 3], b"a\xffb"),
     ([0, 1, 2, 3], "aé".encode())],
)  # fmt: skip
def test_malformed_strings(kind, ends, data):
    with pytest.raises(WrongType, match="malformed Arrow data"):
        SCHEMA.column("s", of(ends, data, kind), False)


def test_a_string_that_is_too_long_in_either_encoding():
    for text in ("a" * (LONGEST_STRING + 1), "é" * (LONGEST_STRING // 2 + 1)):
        with pytest.raises(ValueTooLong, match="row 1"):
            SCHEMA.column("s", pa.array(["x", text]), False)
    for text in ("a" * LONGEST_STRING, "é" * (LONGEST_STRING // 2)):
        assert SCHEMA.column("s", pa.array(["x", text]), False).text.to_pylist() == ["x", text]


def test_strings_whose_hashes_begin_alike_are_told_apart():
    seed = np.uint64(7)
    arena, ends = np.frombuffer(b"onetwosix", np.uint8).copy(), np.array([0, 3, 6, 9], np.int64)
    h = int(hash_text(arena, np.uint64(3), np.uint64(6), seed))  # of "two"
    slots = np.zeros(8, np.uint64)
    for step, number in enumerate((0, 2, 1)):  # "one" and "six" lie where "two" is looked for
        slots[(h + step) & 7] = (h & int(HIGH)) | (number + 1)
    asked, offsets = np.frombuffer(b"two", np.uint8), np.array([0, 3], np.int64)
    codes = np.empty(1, np.int32)
    find(asked, offsets, np.empty(0, np.uint8), -2, seed, slots, arena, ends, codes)
    assert codes.tolist() == [1]
    hashes, refs, tally = np.zeros(3, np.uint64), np.ones(3, np.int64), np.array([3, 3, 9], np.int64)
    kernels.enter(asked, offsets, np.empty(0, np.uint8), seed, slots, arena, ends, hashes, refs, tally, 0, codes)
    assert codes.tolist() == [1]
    assert refs.tolist() == [1, 2, 1]
    slots[(h + 2) & 7] = 0
    find(asked, offsets, np.empty(0, np.uint8), -2, seed, slots, arena, ends, codes)
    assert codes.tolist() == [-2]


@given(st.lists(st.text("aé", max_size=30), min_size=1, max_size=8, unique=True), st.randoms(use_true_random=False))
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_the_strings_of_codes(texts, random):
    dictionary = Dictionary()
    dictionary.enter(pa.array(texts, pa.large_string()), None)
    codes = np.array([random.randrange(-1, len(texts)) for _ in range(random.randrange(40))], np.int32)
    taken = dictionary.take(codes)
    taken.validate(full=True)
    assert taken.to_pylist() == [None if code < 0 else texts[code] for code in codes.tolist()]
    assert taken.null_count == int((codes < 0).sum())
