"""Distinct strings of a column, numbered densely, with the number of rows that have each."""

import numpy as np

from promising.summaries.kernels.hashing import hash_bytes
from promising.summaries.kernels.jit import kernel
from promising.summaries.kernels.text_table import (
    BLOCK,
    BYTES,
    EIGHT,
    FREE,
    HIGH,
    INTS,
    LOW,
    ONE,
    guess,
    same_text,
    seek,
    word_at,
)

CODES = "Array(int32, 1, 'C', readonly=True)"


@kernel(
    f"int64({BYTES}, {INTS}, {BYTES}, uint64, uint64[::1], uint8[::1], int64[::1], uint64[::1], int64[::1], int64[::1],"
    " int64, int32[::1])"
)
def enter(data, offsets, nulls, seed, slots, arena, ends, hashes, refs, tally, start, codes):
    """The code of each string from `start` on, -1 where `nulls` (empty: none is), counted as one row more in `refs`.

    String `c` is `arena[ends[c]:ends[c + 1]]`, its hash `hashes[c]`. tally: the strings, those that rows have, and the
    bytes of those. Stops when full, and returns where.
    """
    mask = np.uint64(slots.size - 1)
    room = min(hashes.size, slots.size >> 1)
    count, live, size = tally[0], tally[1], tally[2]
    stopped = offsets.size - 1
    found, places, walks = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.int64), np.empty(BLOCK + 1, np.int64)
    begin = start
    while begin < stopped:
        block = min(BLOCK, stopped - begin)
        guess(data, offsets, begin, block, seed, slots, found, places, walks)
        for j in range(block):
            i = begin + j
            if nulls.size > 0 and nulls[i] != 0:
                codes[i] = -1
                continue
            first, last = np.uint64(offsets[i]), np.uint64(offsets[i + 1])
            code = places[j]
            at = np.uint64(max(code, 0))
            if code < 0 or not same_text(data, first, last, arena, np.uint64(ends[at]), np.uint64(ends[at + ONE])):
                code = seek(data, first, last, found[j], slots, arena, ends)
            if code < 0:
                length = offsets[i + 1] - offsets[i]
                if count == room or ends[count] + length > arena.size:
                    stopped = i
                    break
                to = np.uint64(ends[count])
                for k in range(last - first):
                    arena[to + k] = data[first + k]
                ends[count + 1] = ends[count] + length
                hashes[count] = found[j]
                refs[count] = 0
                code = np.int64(count)
                count += 1
                at = found[j] & mask
                while slots[at] != FREE:
                    at = (at + ONE) & mask
                slots[at] = (found[j] & HIGH) | np.uint64(count)
            at = np.uint64(code)
            if refs[at] == 0:
                live += 1
                size += ends[at + ONE] - ends[at]
            refs[at] += 1
            codes[i] = np.int32(code)
        begin += block
    tally[0], tally[1], tally[2] = count, live, size
    return stopped


@kernel(f"void({CODES}, int64[::1], int64[::1], int64[::1])")
def leave(codes, ends, refs, tally):
    """One row less for each of these codes."""
    live, size = tally[1], tally[2]
    for i in range(codes.size):
        if codes[i] >= 0:
            code = np.uint32(codes[i])
            refs[code] -= 1
            if refs[code] == 0:
                live -= 1
                size -= ends[code + np.uint32(1)] - ends[code]
    tally[1], tally[2] = live, size


@kernel("void(int32[::1], int32[::1])")
def renumber(codes, changed):
    for i in range(codes.size):
        if codes[i] >= 0:
            codes[i] = changed[np.uint32(codes[i])]


@kernel("int64(int32[::1], int32[::1], int32[::1])")
def number_anew(codes, changed, former):
    """Number codes by first appearance; returns how many.

    changed: -1 for each code, then its new one. former: the code that had each new one.
    """
    count = 0
    for i in range(codes.size):
        if codes[i] >= 0:
            code = np.uint32(codes[i])
            if changed[code] < 0:
                changed[code] = count
                former[count] = codes[i]
                count += 1
            codes[i] = changed[code]
    return count


@kernel(f"void(int32[::1], {CODES}, int32[::1])")
def gather_codes(column, rows, out):
    for i in range(rows.size):
        out[i] = column[np.uint32(rows[i])]


@kernel(f"UniTuple(int64, 2)({INTS}, {CODES}, int64[::1])")
def lay_out(offsets, codes, ends):
    """ends[i]: where the string of code i begins among those of all codes. Returns their bytes, and how many are -1."""
    at = nulls = 0
    ends[0] = 0
    for i in range(codes.size):
        if codes[i] < 0:
            nulls += 1
        else:
            code = np.uint32(codes[i])
            at += offsets[code + np.uint32(1)] - offsets[code]
        ends[i + 1] = at
    return at, nulls


@kernel(f"void({BYTES}, {INTS}, {CODES}, int64[::1], uint8[::1])")
def copy_text(data, offsets, codes, ends, out):
    """Copy the string of each code to its place in `out`, by words: the next string overwrites what is too much."""
    safe, room = data.size - 8, out.size - 8
    for i in range(codes.size):
        if codes[i] < 0:
            continue
        code = np.uint32(codes[i])
        first, last = np.uint64(offsets[code]), np.uint64(offsets[code + np.uint32(1)])
        to = np.uint64(ends[i])
        if np.int64(last) <= safe and ends[i + 1] <= room:
            while first < last:
                word = word_at(data, first)
                for k in range(8):
                    out[to + np.uint64(k)] = np.uint8(word >> np.uint64(8 * k))
                first += EIGHT
                to += EIGHT
        else:
            for k in range(last - first):
                out[to + k] = data[first + k]


@kernel("void(uint64[::1], int64, int64, uint64[::1])")
def seat(hashes, first, last, slots):
    """Enter the distinct strings `first` to `last` into slots."""
    mask = np.uint64(slots.size - 1)
    for i in range(first, last):
        at = hashes[i] & mask
        while slots[at] != FREE:
            at = (at + ONE) & mask
        slots[at] = (hashes[i] & HIGH) | np.uint64(i + 1)


@kernel("void(uint8[::1], int64[::1], uint64, int64, int64, uint64[::1])")
def hash_keys(arena, ends, seed, first, last, keys):
    """keys[c]: the key hash of string `c`."""
    for code in range(first, last):
        keys[code] = hash_bytes(arena, ends[code], ends[code + 1], seed)


@kernel(f"void(uint64[::1], {CODES}, int64[::1])")
def gather_keys(keys, codes, out):
    """The key hash of each code; of -1, that of nothing."""
    for i in range(codes.size):
        out[i] = 0 if codes[i] < 0 else np.int64(keys[np.uint32(codes[i])])


@kernel("boolean(uint64[::1], int64, int64, uint64[::1])")
def seat_keys(keys, first, last, slots):
    """Enter the strings `first` to `last`, which are distinct, by key hash; returns whether no two share one."""
    mask = np.uint64(slots.size - 1)
    alone = True
    for code in range(first, last):
        h = keys[code]
        at = h & mask
        while slots[at] != FREE:
            if (slots[at] ^ h) & HIGH == FREE and keys[(slots[at] & LOW) - ONE] == h:
                alone = False
            at = (at + ONE) & mask
        slots[at] = (h & HIGH) | np.uint64(code + 1)
    return alone


@kernel("boolean(uint64[::1], uint8[::1], int64[::1], int64, int64, uint64[::1], uint64[::1], uint8[::1], int64[::1])")
def no_clash(keys, arena, ends, first, last, slots, other_keys, other_arena, other_ends):
    """Whether no string `first` to `last` has the key hash of another string in the table whose slots these are."""
    mask = np.uint64(slots.size - 1)
    for code in range(first, last):
        h = keys[code]
        at = h & mask
        while slots[at] != FREE:
            if (slots[at] ^ h) & HIGH == FREE:
                known = (slots[at] & LOW) - ONE
                if other_keys[known] == h and not same_text(
                    arena,
                    np.uint64(ends[code]),
                    np.uint64(ends[code + 1]),
                    other_arena,
                    np.uint64(other_ends[known]),
                    np.uint64(other_ends[known + ONE]),
                ):
                    return False
            at = (at + ONE) & mask
    return True
