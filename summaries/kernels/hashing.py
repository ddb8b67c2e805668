"""XXH64 as in Spark, and the words derived from it.

`hash_long` and `hash_bytes` are Spark's `XxHash64Function.hashLong` and `hashUnsafeBytes`. `xxhash64(seed, key)` in
Spark SQL chains them: the hash of the (bigint) seed under 42 seeds the hash of the key.

One hash `h` of a key is used everywhere: its top bits choose the bucket, `row_word(h)` the columns and signs of a
sketch, `filter_word(h)` the slots of a filter. For 8-byte keys every step is invertible: two integers have the same
hash under the same seed only if they are equal.
"""

import numpy as np

from promising.summaries.kernels.jit import kernel

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
MIX1 = np.uint64(0xBF58476D1CE4E5B9)
MIX2 = np.uint64(0x94D049BB133111EB)
FILTER_SALT = np.uint64(0x9E3779B97F4A7C15)


@kernel("uint64(uint64, uint64)", inline="always")
def rotl(x, n):
    return (x << n) | (x >> (np.uint64(64) - n))


@kernel("uint64(uint64)")
def avalanche(h):
    h = (h ^ (h >> np.uint64(33))) * P2
    h = (h ^ (h >> np.uint64(29))) * P3
    return h ^ (h >> np.uint64(32))


@kernel("uint64(int64, uint64)")
def hash_long(key, seed):
    """XXH64 of the 8 bytes of `key`."""
    h = seed + P5 + np.uint64(8)
    h ^= rotl(np.uint64(key) * P2, np.uint64(31)) * P1
    return avalanche(rotl(h, np.uint64(27)) * P1 + P4)


@kernel("void(int64[::1], uint64, uint64[::1])")
def hash_longs(keys, seed, out):
    for i in range(keys.size):
        out[i] = hash_long(keys[i], seed)


@kernel("uint64(uint8[::1], int64, int64)")
def word_at(data, at, size):
    """The little-endian word of `size` bytes at `at`."""
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@kernel("uint64(uint64, uint64)")
def merge_lane(h, lane):
    h ^= rotl(lane * P2, np.uint64(31)) * P1
    return h * P1 + P4


@kernel("uint64(uint8[::1], int64, int64, uint64)")
def hash_bytes(data, start, stop, seed):
    """XXH64 of `data[start:stop]`."""
    at = start
    if stop - start >= 32:
        a = seed + P1 + P2
        b = seed + P2
        c = seed
        d = seed - P1
        while at + 32 <= stop:
            a = rotl(a + word_at(data, at, 8) * P2, np.uint64(31)) * P1
            b = rotl(b + word_at(data, at + 8, 8) * P2, np.uint64(31)) * P1
            c = rotl(c + word_at(data, at + 16, 8) * P2, np.uint64(31)) * P1
            d = rotl(d + word_at(data, at + 24, 8) * P2, np.uint64(31)) * P1
            at += 32
        h = rotl(a, np.uint64(1)) + rotl(b, np.uint64(7)) + rotl(c, np.uint64(12)) + rotl(d, np.uint64(18))
        h = merge_lane(merge_lane(merge_lane(merge_lane(h, a), b), c), d)
    else:
        h = seed + P5
    h += np.uint64(stop - start)
    while at + 8 <= stop:
        h ^= rotl(word_at(data, at, 8) * P2, np.uint64(31)) * P1
        h = rotl(h, np.uint64(27)) * P1 + P4
        at += 8
    if at + 4 <= stop:
        h ^= word_at(data, at, 4) * P1
        h = rotl(h, np.uint64(23)) * P2 + P3
        at += 4
    while at < stop:
        h ^= np.uint64(data[at]) * P5
        h = rotl(h, np.uint64(11)) * P1
        at += 1
    return avalanche(h)


@kernel("void(uint8[::1], int64[::1], uint64, uint64[::1])")
def hash_strings(data, offsets, seed, out):
    """Hash the UTF-8 strings `data[offsets[i]:offsets[i + 1]]`."""
    for i in range(offsets.size - 1):
        out[i] = hash_bytes(data, offsets[i], offsets[i + 1], seed)


@kernel("uint64(uint64)")
def remix(h):
    """The next word of a key's stream of hash words (the finaliser of splitmix64, a bijection)."""
    h = (h ^ (h >> np.uint64(30))) * MIX1
    h = (h ^ (h >> np.uint64(27))) * MIX2
    return h ^ (h >> np.uint64(31))


@kernel("uint64(uint64)")
def row_word(h):
    return remix(h)


@kernel("uint64(uint64)")
def filter_word(h):
    return remix(h ^ FILTER_SALT)
