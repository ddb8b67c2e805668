"""Parts of open-addressing tables of strings.

A slot is `FREE`, else the upper half of the string's hash and, in the lower half, its number plus one: comparing hashes
rules out most other strings without reading them. The hash has a secret seed, so that nobody can make strings collide.
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
