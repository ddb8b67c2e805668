"""Where in a batch the tuples are that each of many selections takes, and which they are.

A selection has terms, each the intervals of keys that it takes of one column. Selections, terms and intervals are lists
one in the other: those of entry `i` stand from `start[i]` to `start[i + 1]`. Of a batch there are, for each column, the
keys in order, which place in that order has which row, and which row has which place; rows without a key come last in
`rank`, beyond all that count. An interval of keys is then a stretch of places. So that the rows of a long stretch need
not be gone through one by one, `marks` has, for every STEP places, a bit for each row that comes before.
"""

import numpy as np

from promising.query.kernels.folds import BYTES, INTS
from promising.query.kernels.intern_table import FREE, HIGH, LOW, ONE, hash_text, same_text
from promising.summaries.kernels.jit import kernel

GONE, PLAIN, MORE = 0, 1, 2
"""States of a selection: dropped; its terms say all; they do not."""

FEW = 24  # so many rows are put in order by insertion
MARKS = 128  # at most so many for a column
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
SHIFT = np.uint64(58)
SIGN = np.uint64(1 << 63)
LAST = np.uint64(255)
BIT = np.zeros(64, np.int64)
BIT[((np.uint64(1) << np.arange(64, dtype=np.uint64)) * DE_BRUIJN) >> SHIFT] = np.arange(64)
"""The number of the one bit that is set in x, at x * DE_BRUIJN >> SHIFT."""


@kernel("int64(int64)")
def step_of(rows):
    """Places from mark to mark, for a batch of so many rows: a power of two."""
    step = 32
    while step * MARKS < rows:
        step *= 2
    return step


@kernel(f"int64({INTS}, int64[::1], uint64[:,::1], int32[:,::1], int64[:,::1])")
def sort_rows(keys, rows, words, places, counts):
    """Put `rows`, or all rows if that is empty, in order of their keys, byte by byte from the last one on.

    A byte that all keys share is passed over. `words` and `places` have two lines each, `counts` one of 256 for each
    byte. Returns the line of `places` that has the rows in the end. O(n) for each byte; equal keys stay in order.
    """
    n = rows.size if rows.size > 0 else keys.size
    counts[:] = 0
    for i in range(n):
        row = rows[i] if rows.size > 0 else i
        word = np.uint64(keys[row]) ^ SIGN
        words[0, i] = word
        places[0, i] = row
        for byte in range(8):
            counts[byte, (word >> np.uint64(8 * byte)) & LAST] += 1
    now = 0
    for byte in range(8):
        shift = np.uint64(8 * byte)
        if n == 0 or counts[byte, (words[now, 0] >> shift) & LAST] == n:
            continue
        at = 0
        for digit in range(256):
            count = counts[byte, digit]
            counts[byte, digit] = at
            at += count
        then = 1 - now
        for i in range(n):
            word = words[now, i]
            digit = (word >> shift) & LAST
            at = counts[byte, digit]
            counts[byte, digit] = at + 1
            words[then, at] = word
            places[then, at] = places[now, i]
        now = then
    return now


@kernel(f"void({INTS}, int32[::1], int64[::1], int32[::1], int32[::1], uint64[:,::1])")
def arrange(keys, places, ordered, order, rank, marks):
    """Put a column in order: `places` are its rows, from the least key on."""
    n = rank.size
    step = step_of(n)
    for i in range(n):
        rank[i] = n
    for i in range(places.size):
        row = places[i]
        ordered[i] = keys[row]
        order[i] = row
        rank[row] = i
    for w in range(marks.shape[1]):
        marks[0, w] = FREE
    for m in range(1, places.size // step + 1):
        for w in range(marks.shape[1]):
            marks[m, w] = marks[m - 1, w]
        for i in range((m - 1) * step, m * step):
            marks[m, order[i] >> 6] |= ONE << np.uint64(order[i] & 63)


@kernel("int64(int64[:,::1], int64, int64, int64)", inline="always")
def places_below(keys, c, count, key):
    """How many of the first `count` keys of column `c`, which rise, are less than `key`."""
    base = 0
    left = count
    while left > 1:
        half = left >> 1
        x = keys[c, base + half - 1]
        # x < key as a mask, from the sign of their difference: as a branch it would be guessed wrong every other time.
        base += half & (((x & ~key) | (~(x ^ key) & (x - key))) >> 63)
        left -= half
    if left == 1 and keys[c, base] < key:
        base += 1
    return base


@kernel(
    "void(uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:,::1], int64[::1], int64,"
    " int64, int64, int32[::1], int32[::1], int64[::1], int32[::1])"
)
def locate(states, terms, columns, pieces, low, high, keys, counts, rows, begin, end, first, last, chosen, size):
    """The stretch `first` to `last` of each interval of the selections from `begin` to `end`.

    `chosen` is the term with the fewest rows, -1 for a selection without terms, and `size` how many rows those are.
    """
    for s in range(begin, end):
        chosen[s] = -1
        size[s] = 0
        if states[s] == GONE:
            continue
        best = rows
        for t in range(terms[s], terms[s + 1]):
            c = columns[t]
            count = counts[c]
            total = 0
            for i in range(pieces[t], pieces[t + 1]):
                a = places_below(keys, c, count, low[i])
                b = count
                if high[i] < 0x7FFFFFFFFFFFFFFF:
                    b = places_below(keys, c, count, high[i] + 1)
                first[i] = a
                last[i] = b
                total += b - a
            if chosen[s] < 0 or total < best:
                chosen[s] = t
                best = total
        size[s] = best


@kernel("boolean(int64, int64, int32[::1], int32[::1], int64)", inline="always")
def inside(begin, end, first, last, place):
    """Whether a place lies in one of the stretches from `begin` to `end`, which rise without overlap."""
    if end - begin == 1:
        return first[begin] <= place < last[begin]
    low = begin
    high = end
    while low < high:
        middle = (low + high) >> 1
        if first[middle] <= place:
            low = middle + 1
        else:
            high = middle
    return low > begin and place < last[low - 1]


@kernel("boolean(int64, int64, int64, int64[::1], int64[::1], int32[::1], int32[::1], int32[:,::1], int64)")
def meets(begin, end, but, columns, pieces, first, last, rank, row):
    """Whether a row meets all terms from `begin` to `end`, but one that is not asked."""
    for t in range(begin, end):
        if t != but and not inside(pieces[t], pieces[t + 1], first, last, rank[columns[t], row]):
            return False
    return True


@kernel("void(int32[:,::1], int64, int64, int64, int64, uint64[::1])", inline="always")
def flip(order, c, begin, end, low, bits):
    """Turn the bits of the rows from place `begin` to `end`, those before `low` aside."""
    for place in range(begin, end):
        row = order[c, place]
        if row >= low:
            bits[row >> 6] ^= ONE << np.uint64(row & 63)


@kernel("void(int64, int64, int64, int64, int32[:,::1], uint64[:,:,::1], int64, uint64[::1])")
def add_stretch(c, begin, end, low, order, marks, step, bits):
    """Set the bits of the rows from place `begin` to `end`, none of which is set; `low`, the first that counts, has the
    first bit of a word."""
    if end - begin <= step:
        flip(order, c, begin, end, low, bits)
        return
    i, j = begin // step, end // step
    for w in range(low >> 6, bits.size):
        bits[w] ^= marks[c, i, w] ^ marks[c, j, w]
    flip(order, c, i * step, begin, low, bits)
    flip(order, c, j * step, end, low, bits)


@kernel("int64(uint64[::1], int64, int64, int64[::1], int64)")
def empty_out(bits, low, base, out, at):
    """Write the number of each bit that is set from `low` on, plus `base`, from `out[at]` on; clear them all. Where it
    ended."""
    ignored = (ONE << np.uint64(low & 63)) - ONE
    for w in range(low >> 6, bits.size):
        word = bits[w] & ~ignored
        bits[w] = FREE
        ignored = FREE
        start = base + (w << 6)
        while word != FREE:
            out[at] = start + BIT[((word & (~word + ONE)) * DE_BRUIJN) >> SHIFT]
            at += 1
            word &= word - ONE
    return at


@kernel(
    "int64(int64, int64[::1], int64[::1], int64[::1], int32[::1], int32[::1], int64[::1], int32[::1], int32[:,::1],"
    " int32[:,::1], uint64[:,:,::1], int64, int64, uint64[:,::1], int64[::1], int64)"
)
def collect(s, terms, columns, pieces, first, last, chosen, size, order, rank, marks, low, base, bits, out, at):
    """Write the rows from `low` on that meet all terms of selection `s`, each plus `base`, rising, from `out[at]` on.

    `bits` has two bits for each row, all of them 0, and so they are left. Returns where the writing ended. O(rows
    written), and if more than a FEW meet each of the terms, the words of a mark for each.
    """
    begin, end = terms[s], terms[s + 1]
    n = rank.shape[1]
    t = chosen[s]
    if t < 0:
        for row in range(low, n):
            out[at] = base + row
            at += 1
        return at
    if size[s] <= FEW:
        c = columns[t]
        made = at
        for i in range(pieces[t], pieces[t + 1]):
            for place in range(first[i], last[i]):
                row = np.int64(order[c, place])
                if row >= low and meets(begin, end, t, columns, pieces, first, last, rank, row):
                    seq = base + row
                    j = made
                    while j > at and out[j - 1] > seq:
                        out[j] = out[j - 1]
                        j -= 1
                    out[j] = seq
                    made += 1
        return made
    step = step_of(n)
    start = low & ~63
    kept, other = bits[0], bits[1]
    for i in range(pieces[t], pieces[t + 1]):
        add_stretch(columns[t], first[i], last[i], start, order, marks, step, kept)
    for u in range(begin, end):
        if u == t:
            continue
        for i in range(pieces[u], pieces[u + 1]):
            add_stretch(columns[u], first[i], last[i], start, order, marks, step, other)
        for w in range(start >> 6, kept.size):
            kept[w] &= other[w]
            other[w] = FREE
    return empty_out(kept, low, base, out, at)


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int32[::1], int32[::1], int64[::1], int32[::1],"
    " int32[:,::1], int32[:,::1], uint64[:,:,::1], int64, int64, uint64[:,::1], int64[::1], int64[::1])"
)
def collect_all(
    which, terms, columns, pieces, first, last, chosen, size, order, rank, marks, low, base, bits, out, ends
):
    """The rows from `low` on of each selection of `which`, one after the other, as `collect` writes them.

    `ends[i]` is where those of selection `which[i]` end. Returns how many there are.
    """
    at = 0
    for i in range(which.size):
        s = which[i]
        if size[s] > 0:
            at = collect(
                s, terms, columns, pieces, first, last, chosen, size, order, rank, marks, low, base, bits, out, at
            )
        ends[i] = at
    return at


@kernel(f"void({BYTES}, {INTS}, uint8[::1], uint64, uint64[::1], uint8[::1], int64[::1], int64[::1])")
def codes_of(data, offsets, present, seed, slots, arena, ends, codes):
    """The code of each string that is in a table as `promising.query.kernels.intern_table.intern` fills it, else -1."""
    mask = np.uint64(slots.size - 1)
    for i in range(offsets.size - 1):
        codes[i] = -1
        if present.size > 0 and present[i] == 0:
            continue
        first, last = np.uint64(offsets[i]), np.uint64(offsets[i + 1])
        h = hash_text(data, first, last, seed)
        at = h & mask
        while slots[at] != FREE:
            if (slots[at] ^ h) & HIGH == FREE:
                code = (slots[at] & LOW) - ONE
                if same_text(data, first, last, arena, np.uint64(ends[code]), np.uint64(ends[code + ONE])):
                    codes[i] = code
                    break
            at = (at + ONE) & mask
