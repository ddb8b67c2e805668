"""Sealing a zone: its tuples by bucket, and its filter."""

import numpy as np

from promising.summaries.kernels.counts import bucket_of
from promising.summaries.kernels.hashing import filter_word
from promising.summaries.kernels.jit import kernel


@kernel("void(int64[::1], int64, int32[::1], int64[::1], int32[::1])")
def order_by_bucket(hashes, shift, rows, starts, order):
    """Stable counting sort: bucket b's rows are order[starts[b]:starts[b + 1]], in the order given."""
    starts[:] = 0
    for i in range(rows.size):
        starts[bucket_of(hashes[i], shift) + 1] += 1
    for b in range(starts.size - 1):
        starts[b + 1] += starts[b]
    cursor = starts[:-1].copy()
    for i in range(rows.size):
        b = bucket_of(hashes[i], shift)
        order[cursor[b]] = rows[i]
        cursor[b] += 1


@kernel("void(int64[::1], int64, int32[::1], int64[::1], int32[::1])")
def place_by_bucket(hashes, shift, rows, ends, order):
    """A part of that sort: append rows to their buckets in `order`, of which `ends` has the ends so far."""
    for i in range(rows.size):
        b = bucket_of(hashes[i], shift)
        order[ends[b]] = rows[i]
        ends[b] += 1


@kernel("void(int64[::1], int64, int64, int64, uint8[::1])")
def filter_keys(keys, shift, probes, lg_slots, bits):
    """Set every key's bits in a plain filter laid out [bucket][slot]."""
    mask = np.uint64((1 << lg_slots) - 1)
    for g in range(keys.size):
        h = keys[g]
        base = bucket_of(h, shift) << lg_slots
        word = filter_word(np.uint64(h))
        for _ in range(probes):
            slot = base + np.int64(word & mask)
            bits[slot >> 3] |= np.uint8(1 << (slot & 7))
            word >>= np.uint64(lg_slots)


@kernel("void(int64[::1], int64, int64, int64, int64, uint64[::1])")
def filter_sliced(keys, shift, probes, lg_slots, bit, sliced):
    """Set every key's bits in column `bit` of the bit-sliced filter of 64 zones."""
    mine = np.uint64(1) << np.uint64(bit)
    mask = np.uint64((1 << lg_slots) - 1)
    for g in range(keys.size):
        h = keys[g]
        base = bucket_of(h, shift) << lg_slots
        word = filter_word(np.uint64(h))
        for _ in range(probes):
            sliced[base + np.int64(word & mask)] |= mine
            word >>= np.uint64(lg_slots)


@kernel("UniTuple(int64, 2)(Array(int64, 1, 'C', readonly=True))")
def extent(times):
    """Least and greatest of at least one time."""
    least = times[0]
    greatest = times[0]
    for i in range(times.size):
        least = min(least, times[i])
        greatest = max(greatest, times[i])
    return least, greatest


@kernel("UniTuple(int64, 2)(int64[::1], int32[::1], int64)")
def time_range(times, rows, count):
    """Least and greatest event time of `count` > 0 log rows."""
    least = times[rows[0]]
    greatest = least
    consecutive = True
    for i in range(count):
        consecutive &= rows[i] - rows[0] == i
    if consecutive:  # nearly always, and then nothing is gathered
        for i in range(rows[0], rows[0] + count):
            t = times[i]
            least = min(least, t)
            greatest = max(greatest, t)
    else:
        for i in range(count):
            t = times[rows[i]]
            least = min(least, t)
            greatest = max(greatest, t)
    return least, greatest
