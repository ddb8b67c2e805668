"""Parts of open-addressing tables of strings.

String `n` is `arena[ends[n]:ends[n + 1]]`. A slot is `FREE`, else the upper half of the string's hash and, in the lower
half, its number plus one: comparing hashes rules out most other strings without reading them. The hash has a secret
seed, so that nobody can make strings collide.
"""

import numpy as np

from promising.summaries.kernels.hashing import P1, P2, remix
from promising.summaries.kernels.jit import kernel

# Arrow's memory may be read-only; writable arrays are accepted, too.
BYTES = "Array(uint8, 1, 'C', readonly=True)"
INTS = "Array(int64, 1, 'C', readonly=True)"

LOW = np.uint64(0xFFFFFFFF)
HIGH = np.uint64(0xFFFFFFFF00000000)
ONE = np.uint64(1)
FREE = np.uint64(0)
EIGHT = np.uint64(8)

BLOCK = 256  # strings looked up together


@kernel(f"uint64({BYTES}, uint64)", inline="always")
def word_at(data, at):
    """The 8 bytes at `at`. Unrolled, with an unsigned index, this compiles to one load."""
    return (
        np.uint64(data[at])
        | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[at + np.uint64(7)]) << np.uint64(56)
    )


@kernel(f"uint64({BYTES}, uint64, uint64, uint64)", inline="always")
def hash_text(data, start, stop, seed):
    """A hash of data[start:stop] for such a table only, much faster than the shared one. Its last words overlap."""
    h = seed ^ ((stop - start) * P1)
    if stop - start >= EIGHT:
        at = start
        while at + EIGHT < stop:
            h = (h ^ word_at(data, at)) * P2
            h ^= h >> np.uint64(32)
            at += EIGHT
        return remix(h ^ word_at(data, stop - EIGHT))
    rest = FREE
    at = start
    while at < stop:
        rest = (rest << EIGHT) | np.uint64(data[at])
        at += ONE
    return remix(h ^ rest)


@kernel(f"boolean({BYTES}, uint64, uint64, {BYTES}, uint64, uint64)", inline="always")
def same_text(a, a_start, a_stop, b, b_start, b_stop):
    if a_stop - a_start != b_stop - b_start:
        return False
    i = a_start
    j = b_start
    if a_stop - a_start >= EIGHT:
        while i + EIGHT < a_stop:
            if word_at(a, i) != word_at(b, j):
                return False
            i += EIGHT
            j += EIGHT
        return word_at(a, a_stop - EIGHT) == word_at(b, b_stop - EIGHT)
    while i < a_stop:
        if a[i] != b[j]:
            return False
        i += ONE
        j += ONE
    return True


@kernel(
    f"void({BYTES}, {INTS}, int64, int64, uint64, uint64[::1], uint64[::1], int64[::1], int64[::1])", inline="always"
)
def guess(data, offsets, begin, size, seed, slots, hashes, places, walks):
    """The hash of each of `size` strings from `begin` on, and the number of the first one in the table that has its
    upper half; -1 if none has.

    Each pass is a loop of loads that do not wait for each other: the processor has many of them in flight. The few
    strings whose first slot is another's are left for a loop of their own.
    """
    mask = np.uint64(slots.size - 1)
    for j in range(size):
        hashes[j] = hash_text(data, np.uint64(offsets[begin + j]), np.uint64(offsets[begin + j + 1]), seed)
    left = 0
    for j in range(size):
        slot = slots[hashes[j] & mask]
        places[j] = np.int64(slot & LOW) - 1
        walks[left] = j
        left += (slot ^ hashes[j]) & HIGH != FREE
    for k in range(left):
        h = hashes[walks[k]]
        at = h & mask
        while slots[at] != FREE and (slots[at] ^ h) & HIGH != FREE:
            at = (at + ONE) & mask
        places[walks[k]] = np.int64(slots[at] & LOW) - 1


@kernel(f"int64({BYTES}, uint64, uint64, uint64, uint64[::1], {BYTES}, {INTS})")
def seek(data, first, last, h, slots, arena, ends):
    """The number of a string with that hash in the table, -1 if it is not there."""
    mask = np.uint64(slots.size - 1)
    at = h & mask
    while slots[at] != FREE:
        if (slots[at] ^ h) & HIGH == FREE:
            known = (slots[at] & LOW) - ONE
            if same_text(data, first, last, arena, np.uint64(ends[known]), np.uint64(ends[known + ONE])):
                return np.int64(known)
        at = (at + ONE) & mask
    return np.int64(-1)


@kernel(
    [
        f"void({BYTES}, {INTS}, {BYTES}, int64, uint64, uint64[::1], {BYTES}, {INTS}, int32[::1])",
        f"void({BYTES}, {INTS}, {BYTES}, int64, uint64, uint64[::1], {BYTES}, {INTS}, int64[::1])",
    ]
)
def find(data, offsets, nulls, unknown, seed, slots, arena, ends, codes):
    """The number of each string, -1 where `nulls` (empty: none is), `unknown` if it is not in the table."""
    found, places, walks = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.int64), np.empty(BLOCK + 1, np.int64)
    for begin in range(0, offsets.size - 1, BLOCK):
        block = min(BLOCK, offsets.size - 1 - begin)
        guess(data, offsets, begin, block, seed, slots, found, places, walks)
        for j in range(block):
            i = begin + j
            if nulls.size > 0 and nulls[i] != 0:
                codes[i] = -1
                continue
            code = places[j]
            if code >= 0:
                first, last = np.uint64(offsets[i]), np.uint64(offsets[i + 1])
                at = np.uint64(code)
                if not same_text(data, first, last, arena, np.uint64(ends[at]), np.uint64(ends[at + ONE])):
                    code = seek(data, first, last, found[j], slots, arena, ends)
            codes[i] = unknown if code < 0 else code
