"""Closing a zone: order, sketch, filters and time range against plain Python."""

import numpy as np
import pytest
from numpy.typing import NDArray

from promising.index.kernels.seal import extent, filter_keys, filter_sliced, order_by_bucket, time_range
from promising.summaries.kernels.counts import bucket_of, count_into, pour, sketch_keys
from tests.index.kernels.plain import bucket, filtered, sketch, some_hashes

pytestmark = pytest.mark.kernel

SIZES = [(1, 1, 2), (4, 3, 16), (64, 5, 64), (2, 9, 1 << 12)]


def shift(buckets: int) -> int:
    return 64 - (buckets.bit_length() - 1)


def grouped(hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    keys, counts = np.unique(hashes, return_counts=True)
    return keys, counts.astype(np.int32)


@pytest.mark.parametrize("buckets", [1, 2, 64, 4096])
def test_the_bucket_is_the_top_bits_of_the_hash(buckets):
    hashes = [*some_hashes(50, 50, 1).tolist(), 0, -1, 1 << 62, -(1 << 63)]
    assert [int(bucket_of(np.int64(h), shift(buckets))) for h in hashes] == [bucket(h, buckets) for h in hashes]


@pytest.mark.parametrize("buckets", [1, 8, 64])
def test_rows_are_ordered_by_bucket_and_keep_their_order_within(buckets):
    hashes = some_hashes(300, 40, 2)
    rows = np.random.default_rng(2).permutation(300).astype(np.int32)
    starts, order = np.full(buckets + 1, 99, np.int64), np.empty(300, np.int32)
    order_by_bucket(hashes, shift(buckets), rows, starts, order)
    homes = np.array([bucket(h, buckets) for h in hashes.tolist()])
    for b in range(buckets):
        assert order[starts[b] : starts[b + 1]].tolist() == rows[homes == b].tolist()


@pytest.mark.parametrize("kind", [np.int16, np.int32])
@pytest.mark.parametrize(("buckets", "depth", "width"), SIZES)
def test_a_key_counts_where_its_bits_say(buckets, depth, width, kind):
    counters = np.zeros(buckets * depth * width, kind)
    hashes = some_hashes(60, 9, 3)
    for h, count in zip(*grouped(hashes), strict=True):
        count_into(counters, h, count, bucket(int(h), buckets), depth, width.bit_length() - 1, True)
    assert (counters.reshape(buckets, depth, width) == sketch(hashes.tolist(), buckets, depth, width)).all()


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
@pytest.mark.parametrize(("buckets", "depth", "width"), SIZES)
def test_a_sketch_by_keys_and_sizes_is_the_sketch_tuple_by_tuple(buckets, depth, width, dtype):
    hashes = some_hashes(200, 30, 4)
    counters, cells = np.zeros(buckets * depth * width, dtype), np.zeros(buckets, np.int64)
    for part in (hashes[:120], hashes[120:]):  # it adds to what is there
        sketch_keys(*grouped(part), shift(buckets), depth, width.bit_length() - 1, counters, cells)
    assert (counters.reshape(buckets, depth, width) == sketch(hashes.tolist(), buckets, depth, width)).all()
    assert cells.tolist() == np.bincount([bucket(h, buckets) for h in hashes.tolist()], minlength=buckets).tolist()


@pytest.mark.parametrize(("buckets", "probes", "slots"), [(1, 1, 64), (8, 2, 16), (64, 4, 1024)])
def test_a_filter_has_the_bits_of_its_keys_and_no_others(buckets, probes, slots):
    hashes = some_hashes(40, 40, 5)
    bits = np.zeros(buckets * slots // 8, np.uint8)
    filter_keys(hashes, shift(buckets), probes, slots.bit_length() - 1, bits)
    seen = np.unpackbits(bits, bitorder="little").astype(np.bool_).reshape(buckets, slots)
    assert (seen == filtered(hashes.tolist(), buckets, probes, slots)).all()


@pytest.mark.parametrize("bit", [0, 17, 63])
def test_a_sliced_filter_gets_the_bits_of_one_zone_and_keeps_the_others(bit):
    buckets, probes, slots = 8, 2, 32
    hashes = some_hashes(40, 40, bit)
    sliced = np.full(buckets * slots, 1 << 5, np.uint64)
    filter_sliced(hashes, shift(buckets), probes, 5, bit, sliced)
    mine = (sliced >> np.uint64(bit)) & np.uint64(1)
    assert (mine.reshape(buckets, slots) == filtered(hashes.tolist(), buckets, probes, slots)).all()
    assert ((sliced & ~np.uint64(1 << bit)) == np.uint64(1 << 5)).all()


def test_counters_of_sixteen_bits_are_poured_into_those_of_thirty_two():
    total = np.array([1, -2, 1 << 30], np.int32)
    pour(np.array([32767, -32768, 5], np.int16), total)
    assert total.tolist() == [32768, -32770, (1 << 30) + 5]


def test_the_extent_of_times():
    times = np.array([5, -3, 9, 9, 0], np.int64)
    assert extent(times) == (-3, 9)
    assert extent(times[2:3]) == (9, 9)


@pytest.mark.parametrize(
    "rows",
    [[4], [4, 5, 6, 7], [7, 2, 30, 11], [9, 3, 11], [9, 30, 11]],
    ids=["one", "consecutive", "scattered", "back and forth", "first and last as if consecutive"],
)
def test_the_time_range_of_rows(rows):
    times = np.random.default_rng(6).permutation(40).astype(np.int64) * 10 - 100
    held = np.array([*rows, 0, 39], np.int32)  # what stands behind the rows does not count
    seen = [int(times[r]) for r in rows]
    assert time_range(times, held, len(rows)) == (min(seen), max(seen))
