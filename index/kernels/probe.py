"""Reading filters: which zones may hold a key."""

import numpy as np

from promising.summaries.kernels.counts import bucket_of
from promising.summaries.kernels.hashing import filter_word
from promising.summaries.kernels.jit import kernel


@kernel("int64(uint64[:,::1], int64[::1], int64[::1], int64, int64, int64, uint8[::1], int64[::1], int64[::1])")
def survivors(sliced, groups, hashes, shift, probes, lg_slots, wanted, key, zone):
    """The zones that may hold each key: slots of `groups` (64 zones each) whose filter bits are all set.

    `wanted` selects the slots. Returns the number of pairs (index of the key, slot); they are written as far as `key`
    and `zone` have room. No zone that holds the key is omitted.
    """
    mask = np.uint64((1 << lg_slots) - 1)
    one = np.uint64(1)
    found = 0
    for i in range(hashes.size):
        base = bucket_of(hashes[i], shift) << lg_slots
        start = filter_word(np.uint64(hashes[i]))
        for g in groups:
            word = start
            left = ~np.uint64(0)
            for _ in range(probes):
                left &= sliced[g, base + np.int64(word & mask)]
                word >>= np.uint64(lg_slots)
            at = g * 64
            while left != 0:
                if left & one and wanted[at]:
                    if found < key.size:
                        key[found] = i
                        zone[found] = at
                    found += 1
                left >>= one
                at += 1
    return found


@kernel("void(int64[::1], int64, int64[:,::1])")
def filter_slots(hashes, lg_slots, out):
    """The slots of each key in its bucket's filter: out[j, i] is the j-th of key i."""
    mask = np.uint64((1 << lg_slots) - 1)
    for i in range(hashes.size):
        word = filter_word(np.uint64(hashes[i]))
        for j in range(out.shape[0]):
            out[j, i] = np.int64(word & mask)
            word >>= np.uint64(lg_slots)


@kernel("void(uint8[::1], int64[::1], int64, int64, int64, boolean[::1])")
def may_hold(bits, hashes, shift, probes, lg_slots, out):
    """Whether a plain filter laid out [bucket][slot] may hold each key."""
    mask = np.uint64((1 << lg_slots) - 1)
    for i in range(hashes.size):
        base = bucket_of(hashes[i], shift) << lg_slots
        word = filter_word(np.uint64(hashes[i]))
        hit = True
        for _ in range(probes):
            slot = base + np.int64(word & mask)
            hit = hit and (bits[slot >> 3] >> (slot & 7)) & 1 == 1
            word >>= np.uint64(lg_slots)
        out[i] = hit
