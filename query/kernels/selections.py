"""Finds the tuples of a batch that each of many selections takes.

A selection has terms; a term has the key intervals that it accepts in one column. These are nested lists: the members
of entry `i` are at `start[i]` to `start[i + 1]`. For each column of a batch there are the sorted keys, the row at each
place of that order, and the place of each row; rows without a key have a `rank` beyond all others. A key interval is
then a range of places. To avoid visiting each row of a long range, `marks` has, for every STEP places, a bitmap of the
preceding rows.
"""

import numpy as np

from promising.summaries.kernels.jit import kernel
from promising.summaries.kernels.text_table import FREE, INTS, ONE

GONE, PLAIN, MORE = 0, 1, 2  # states of a selection: dropped; fully described by its terms; not fully

FEW = 24  # up to this many rows are sorted by insertion
MARKS = 128  # maximum per column
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
SHIFT = np.uint64(58)
SIGN = np.uint64(1 << 63)
LAST = np.uint64(255)
BIT = np.zeros(64, np.int64)
BIT[((np.uint64(1) << np.arange(64, dtype=np.uint64)) * DE_BRUIJN) >> SHIFT] = np.arange(64)
"""The position of the only bit set in x, at x * DE_BRUIJN >> SHIFT."""


@kernel("int64(int64)")
def step_of(rows):
    """Places between marks for a batch of this size: a power of two."""
    step = 32
    while step * MARKS < rows:
        step *= 2
    return step


@kernel(f"int64({INTS}, int64[::1], uint64[:,::1], int32[:,::1], int64[:,::1])")
def sort_rows(keys, rows, words, places, counts):
    """Stable radix sort of `rows` (all rows if empty) by key, O(n) per byte; bytes that all keys share are skipped.

    `words` and `places` have two lines each, `counts` one of 256 per byte. Returns the line of `places` with the
    result.
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
    """Index a column: `places` are its rows by ascending key."""
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
    """How many of the first `count` keys of column `c`, in ascending order, are less than `key`."""
    base = 0
    left = count
    while left > 1:
        half = left >> 1
        x = keys[c, base + half - 1]
        # x < key as a mask, from the sign of the difference: a branch would be mispredicted every other time.
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
    """The range `first` to `last` of places for each interval of the selections from `begin` to `end`.

    `chosen` is the term with the fewest rows, -1 without terms, and `size` the number of those rows.
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
    """Whether a place is in one of the ranges from `begin` to `end`, which are ascending and disjoint."""
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
    """Whether a row meets all terms from `begin` to `end`, except for term `but`."""
    for t in range(begin, end):
        if t != but and not inside(pieces[t], pieces[t + 1], first, last, rank[columns[t], row]):
            return False
    return True


@kernel("void(int32[:,::1], int64, int64, int64, int64, uint64[::1])", inline="always")
def flip(order, c, begin, end, low, bits):
    """Flip the bits of the rows at places `begin` to `end`, ignoring rows before `low`."""
    for place in range(begin, end):
        row = order[c, place]
        if row >= low:
            bits[row >> 6] ^= ONE << np.uint64(row & 63)


@kernel("void(int64, int64, int64, int64, int32[:,::1], uint64[:,:,::1], int64, uint64[::1])")
def add_stretch(c, begin, end, low, order, marks, step, bits):
    """Set the bits, all clear, of rows at places `begin` to `end` that are at least `low`, a multiple of 64."""
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
    """Write the position of each set bit from `low` on, plus `base`, to `out[at:]`, and clear all; returns the end."""
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
    """Write the rows from `low` on that meet all terms of selection `s`, plus `base`, ascending, to `out[at:]`.

    `bits` has two bits per row, all 0 before and after. Returns the end. O(rows written), plus a mark's words per term
    if more than FEW rows meet each.
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
    """`collect` for each selection of `which`; `ends[i]` is the end of its rows. Returns how many there are."""
    at = 0
    for i in range(which.size):
        s = which[i]
        if size[s] > 0:
            at = collect(
                s, terms, columns, pieces, first, last, chosen, size, order, rank, marks, low, base, bits, out, at
            )
        ends[i] = at
    return at
