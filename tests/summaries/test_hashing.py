"""The keyed hash against golden values, against the xxhash package, and against odd input."""

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from promising.errors import MixedKeys, NaNKey, NullKey, WrongType
from promising.summaries import hash_keys
from promising.summaries.hashing import inner_seed
from promising.summaries.kernels.hashing import filter_word, hash_bytes, hash_long, remix, row_word

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
longs = st.integers(LONG_MIN, LONG_MAX)

GOLDEN_LONGS = [
    0x80534700BA5D177E,
    0x72EEC4CC54751688,
    0xD08005E9645E2BD9,
    0xA5A91A812E5A431D,
    0x7C3A99143D7CA216,
]
GOLDEN_STRINGS = [
    0xC0A3E89CAA136ABA,
    0x92904F92D77CE4B2,
    0xE6B1268071E8CB47,
    0xA9CD4B66BD9EBCB8,
    0xE26BADFC6C114DBC,
]
GOLDEN_WORDS = [
    0x5692161D100B05E5,
    0x5692161D100B05E5,
    0xE4D971771B652C20,
]


def chained(key: bytes, seed: int) -> int:
    """Spark's chain, spelled with the xxhash package."""
    first = xxhash.xxh64_intdigest(seed.to_bytes(8, "little", signed=True), 42)
    return xxhash.xxh64_intdigest(key, first)


def bytes_of(key: int) -> bytes:
    return key.to_bytes(8, "little", signed=True)


@pytest.mark.kernel
def test_golden_values():
    """Fixed for good: hashes are on disk and in Spark jobs."""
    assert [int(word) for word in hash_keys([0, 1, -1, LONG_MIN, LONG_MAX], 0)] == GOLDEN_LONGS
    assert [int(word) for word in hash_keys(["", "a", "milk", "Grüße, 世界", "x" * 100], 12345)] == GOLDEN_STRINGS
    one = np.uint64(1)
    assert [int(word(one)) for word in (remix, row_word, filter_word)] == GOLDEN_WORDS


@pytest.mark.kernel
@given(key=longs, seed=longs)
def test_long_is_xxh64_of_its_bytes(key: int, seed: int):
    assert int(hash_long(np.int64(key), np.uint64(seed % (1 << 64)))) == xxhash.xxh64_intdigest(
        bytes_of(key), seed % (1 << 64)
    )
    assert hash_keys([key], seed).tolist() == [chained(bytes_of(key), seed)]


@pytest.mark.kernel
@given(data=st.binary(max_size=80), start=st.integers(0, 9), seed=st.integers(0, (1 << 64) - 1))
def test_bytes_are_xxh64(data: bytes, start: int, seed: int):
    """All lengths up to more than two stripes of 32, at any place in the buffer."""
    buffer = np.frombuffer(b"-" * start + data + b"-", np.uint8).copy()
    assert int(hash_bytes(buffer, start, start + len(data), np.uint64(seed))) == xxhash.xxh64_intdigest(data, seed)


@pytest.mark.kernel
@given(keys=st.lists(st.text(max_size=50), max_size=6), seed=longs)
def test_strings_hash_by_their_utf8(keys: list[str], seed: int):
    expected = [chained(key.encode(), seed) for key in keys]
    assert hash_keys(keys, seed).tolist() == expected
    assert hash_keys(np.array(keys, object), seed).tolist() == expected
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert hash_keys(pa.array(keys, kind), seed).tolist() == expected
    padded = pa.array(["before", *keys, "after"])
    assert hash_keys(padded[1 : 1 + len(keys)], seed).tolist() == expected
    assert hash_keys(pa.chunked_array([padded[1:3], padded[3:]]), seed).tolist() == hash_keys(padded[1:], seed).tolist()
    assert hash_keys(padded.dictionary_encode(), seed).tolist() == hash_keys(padded, seed).tolist()


@pytest.mark.kernel
@pytest.mark.parametrize(
    "keys",
    [
        [5, 7],
        (5, 7),
        range(5, 9, 2),
        np.array([5, 7], np.int8),
        np.array([5, 7], np.uint64),
        np.array([5, 7], ">i8"),
        np.array([5, 0, 7], np.int64)[::2],
        pa.array([5, 7], pa.int16()),
        pa.chunked_array([[5], [7]]),
        np.array([5, 7], object),
    ],
)
def test_integers_of_any_width_hash_as_bigint(keys: object):
    assert hash_keys(keys, 3).tolist() == [chained(bytes_of(5), 3), chained(bytes_of(7), 3)]


@pytest.mark.kernel
def test_read_only_columns_hash():
    column = np.arange(4)
    column.flags.writeable = False
    assert hash_keys(column, 0).tolist() == hash_keys(np.arange(4), 0).tolist()


@pytest.mark.kernel
def test_nothing_hashes_to_nothing():
    assert hash_keys([], 0).size == 0
    assert hash_keys(np.empty(0, np.int32), 0).size == 0
    assert hash_keys(pa.array([], pa.string()), 0).size == 0


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        ([1, None], NullKey, "row 1"),
        (pa.array(["a", None]), NullKey, "row 1"),
        (np.ma.masked_array([1, 2], [False, True]), NullKey, "row 1"),
        ([1.0, float("nan")], NaNKey, "row 1"),
        (np.array([1.0, np.nan]), NaNKey, "row 1"),
        (["a", float("nan")], NaNKey, "row 1"),
        (["a", 1], MixedKeys, "row 1: 1 in a column of strings"),
        ([1, 2, "a"], MixedKeys, "row 2: 'a' in a column of integers"),
        ([1.5], WrongType, "1.5"),
        (np.array([1.5]), WrongType, "1.5"),
        ([True, False], WrongType, "true"),
        ([1, True], WrongType, "row 1: True"),
        (np.array([True]), WrongType, "true"),
        ([1 << 63], WrongType, "row 0: 9223372036854775808"),
        (np.array([1, 1 << 63], np.uint64), WrongType, "row 1: key 9223372036854775808"),
        (["ok", "\ud800"], WrongType, "row 1"),
        ([b"bytes"], WrongType, "row 0"),
        (np.array(["2026-01-01"], "datetime64[us]"), WrongType, "2026-01-01"),
        (np.zeros((2, 2), np.int64), WrongType, "shape"),
        (np.array([["a"]]), WrongType, "shape"),
        ("milk", WrongType, "'milk'"),
        (5, WrongType, "5"),
    ],
)
def test_what_is_no_key_is_named(keys: object, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        hash_keys(keys, 0)


def test_seeds_are_64_bits():
    assert inner_seed(LONG_MIN) != inner_seed(LONG_MAX)
    for seed in (LONG_MIN - 1, LONG_MAX + 1):
        with pytest.raises(WrongType, match="seed"):
            hash_keys([1], seed)
