"""Distinct rows of words, and distinct strings, numbered in order of first appearance.

Tables are open-addressing. A slot is 0 if free, else the upper half of the row's hash and, in the lower half, the row's
number plus one: comparing hashes rules out most other rows without reading them. The hash has a secret seed, so that
keys cannot be made to collide; the numbers do not depend on it.
"""

import numpy as np

from promising.summaries.kernels.hashing import remix
from promising.summaries.kernels.jit import kernel
from promising.summaries.kernels.text_table import BYTES, FREE, HIGH, INTS, LOW, ONE, hash_text, same_text


@kernel("uint64(int64[:,::1], int64, uint64)")
def hash_row(words, i, seed):
    h = seed
    for w in range(words.shape[0]):
        h = remix(h ^ np.uint64(words[w, i]))
    return h


@kernel("boolean(int64[:,::1], int64, int64[:,::1], uint64)", inline="always")
def same_row(words, i, stored, at):
    for w in range(words.shape[0]):
        if stored[at, w] != words[w, i]:
            return False
    return True


@kernel("int64(int64[:,::1], uint64, uint64[::1], int64[:,::1], int64[::1], int64, int32[::1])")
def enter(words, seed, slots, stored, used, start, ids):
    """Number the rows from `start` on, inserting new ones (`used[0]` is their number); when full, returns where."""
    mask = np.uint64(slots.size - 1)
    room = min(stored.shape[0], slots.size >> 1)
    count = used[0]
    for i in range(start, words.shape[1]):
        h = hash_row(words, i, seed)
        at = h & mask
        while True:
            slot = slots[at]
            if slot == FREE:
                if count == room:
                    used[0] = count
                    return i
                for w in range(words.shape[0]):
                    stored[count, w] = words[w, i]
                ids[i] = count
                count += 1
                slots[at] = (h & HIGH) | np.uint64(count)
                break
            if (slot ^ h) & HIGH == FREE:
                number = (slot & LOW) - ONE
                if same_row(words, i, stored, number):
                    ids[i] = number
                    break
            at = (at + ONE) & mask
    used[0] = count
    return words.shape[1]


@kernel("void(int64[:,::1], uint64, uint64[::1], int64[:,::1], int32[::1])")
def find(words, seed, slots, stored, ids):
    """The number of each row, or -1."""
    mask = np.uint64(slots.size - 1)
    for i in range(words.shape[1]):
        h = hash_row(words, i, seed)
        at = h & mask
        ids[i] = -1
        while slots[at] != FREE:
            if (slots[at] ^ h) & HIGH == FREE:
                number = (slots[at] & LOW) - ONE
                if same_row(words, i, stored, number):
                    ids[i] = number
                    break
            at = (at + ONE) & mask


@kernel("void(uint64[::1], int64, uint64[::1])")
def seat(hashes, count, slots):
    """Fill free slots with the first `count` rows, which are distinct."""
    mask = np.uint64(slots.size - 1)
    for i in range(count):
        at = hashes[i] & mask
        while slots[at] != FREE:
            at = (at + ONE) & mask
        slots[at] = (hashes[i] & HIGH) | np.uint64(i + 1)


@kernel("void(int64[:,::1], int64, uint64, uint64[::1])")
def seat_rows(stored, count, seed, slots):
    mask = np.uint64(slots.size - 1)
    for i in range(count):
        h = seed
        for w in range(stored.shape[1]):
            h = remix(h ^ np.uint64(stored[i, w]))
        at = h & mask
        while slots[at] != FREE:
            at = (at + ONE) & mask
        slots[at] = (h & HIGH) | np.uint64(i + 1)


@kernel(
    f"int64({BYTES}, {INTS}, uint8[::1], uint64, uint64[::1], uint8[::1], int64[::1], uint64[::1], int64[::1],"
    " int64, int64[::1])"
)
def intern(data, offsets, present, seed, slots, arena, ends, hashes, used, start, codes):
    """The code of each string from `start` on, -1 if not `present` (empty: all are).

    String `c` is `arena[ends[c]:ends[c + 1]]`, its hash `hashes[c]`; `used[0]` is their number. Stops when full, and
    returns where.
    """
    mask = np.uint64(slots.size - 1)
    room = min(hashes.size, slots.size >> 1)
    count = used[0]
    for i in range(start, offsets.size - 1):
        if present.size > 0 and present[i] == 0:
            codes[i] = -1
            continue
        first, last = offsets[i], offsets[i + 1]
        h = hash_text(data, np.uint64(first), np.uint64(last), seed)
        at = h & mask
        while True:
            slot = slots[at]
            if slot == FREE:
                if count == room or ends[count] + last - first > arena.size:
                    used[0] = count
                    return i
                for k in range(last - first):
                    arena[ends[count] + k] = data[first + k]
                ends[count + 1] = ends[count] + last - first
                hashes[count] = h
                codes[i] = count
                count += 1
                slots[at] = (h & HIGH) | np.uint64(count)
                break
            if (slot ^ h) & HIGH == FREE:
                code = (slot & LOW) - ONE
                a, b = np.uint64(ends[code]), np.uint64(ends[code + ONE])
                if same_text(data, np.uint64(first), np.uint64(last), arena, a, b):
                    codes[i] = code
                    break
            at = (at + ONE) & mask
    used[0] = count
    return offsets.size - 1


@kernel("int64(Array(int32, 1, 'C', readonly=True), int64[::1], int64, int64, int32[::1])")
def lacking(codes, translated, unknown, awaited, out):
    """Collects the codes translated as `unknown`, once each, marks them as `awaited`, and returns their number."""
    count = 0
    for i in range(codes.size):
        if codes[i] >= 0 and translated[np.uint32(codes[i])] == unknown:
            translated[np.uint32(codes[i])] = awaited
            out[count] = codes[i]
            count += 1
    return count
