"""Folds a slice of values into the state of their groups.

`ids[i]` is the group of value `i`; nulls are already removed. Integer sums are `(high << 32) + low`: neither word can
overflow within a slice, and `carry` brings `low` back below 2^32 after each.
"""

import numpy as np

from promising.summaries.kernels.jit import kernel
from promising.summaries.kernels.text_table import BYTES, INTS

FLOATS = "Array(float64, 1, 'C', readonly=True)"

LOW = np.int64(0xFFFFFFFF)


@kernel("void(int32[::1], int64[::1])")
def tally(ids, counts):
    for i in range(ids.size):
        counts[np.uint32(ids[i])] += 1


@kernel(f"void(int32[::1], {FLOATS}, int64[::1], float64[:,::1])")
def add_floats(ids, values, counts, sums):
    """sums[g, 0] is the plain sum, sums[g, 1] its rounding error: together accurate to about the last bit."""
    for i in range(ids.size):
        g = np.uint32(ids[i])
        value = values[i]
        before = sums[g, 0]
        after = before + value
        gained = after - before
        sums[g, 1] += (before - (after - gained)) + (value - gained)
        sums[g, 0] = after
        counts[g] += 1


@kernel(f"void(int32[::1], {INTS}, int64[::1], int64[:,::1])")
def add_ints(ids, values, counts, sums):
    for i in range(ids.size):
        g = np.uint32(ids[i])
        sums[g, 0] += values[i] >> 32
        sums[g, 1] += values[i] & LOW
        counts[g] += 1


@kernel(f"void({INTS}, int64[::1])")
def total_ints(values, out):
    high = np.int64(0)
    low = np.int64(0)
    for i in range(values.size):
        high += values[i] >> 32
        low += values[i] & LOW
    out[0] = high
    out[1] = low


@kernel("void(int64[:,::1])")
def carry(sums):
    for g in range(sums.shape[0]):
        sums[g, 0] += sums[g, 1] >> 32
        sums[g, 1] &= LOW


@kernel(
    [
        f"void(int32[::1], {INTS}, uint8[::1], int64[::1])",
        f"void(int32[::1], {FLOATS}, uint8[::1], float64[::1])",
    ]
)
def least(ids, values, seen, best):
    """NaN is greater than every number, so any number replaces it."""
    for i in range(ids.size):
        g = np.uint32(ids[i])
        if seen[g] == 0 or values[i] < best[g] or best[g] != best[g]:
            best[g] = values[i]
            seen[g] = 1


@kernel(
    [
        f"void(int32[::1], {INTS}, uint8[::1], int64[::1])",
        f"void(int32[::1], {FLOATS}, uint8[::1], float64[::1])",
    ]
)
def greatest(ids, values, seen, best):
    """NaN is greater than every number, so it is never replaced."""
    for i in range(ids.size):
        g = np.uint32(ids[i])
        if seen[g] == 0 or values[i] > best[g] or values[i] != values[i]:
            best[g] = values[i]
            seen[g] = 1


@kernel(f"int64({BYTES}, int64, int64, {BYTES}, int64, int64)")
def compare(a, a_start, a_stop, b, b_start, b_stop):
    """Negative, 0 or positive as the bytes a[a_start:a_stop] sort before, equal or after those of b."""
    common = min(a_stop - a_start, b_stop - b_start)
    for k in range(common):
        if a[a_start + k] != b[b_start + k]:
            return np.int64(a[a_start + k]) - np.int64(b[b_start + k])
    return (a_stop - a_start) - (b_stop - b_start)


@kernel(
    f"int64(int32[::1], {BYTES}, {INTS}, int64, uint8[::1], uint8[::1], int64[::1], int64[::1], int64[::1], int32[::1])"
)
def best_strings(ids, data, offsets, sign, seen, arena, starts, stops, rows, changed):
    """Find the groups with a new least (`sign` 1) or greatest (-1) string, and its row in the slice.

    The current string of a group is `arena[starts[g]:stops[g]]`. `rows` must be -1; `changed` receives the groups.
    Returns how many.
    """
    count = 0
    for i in range(ids.size):
        g = np.uint32(ids[i])
        row = rows[g]
        if row >= 0:
            better = compare(data, offsets[i], offsets[i + 1], data, offsets[row], offsets[row + 1]) * sign < 0
        elif seen[g] != 0:
            better = compare(data, offsets[i], offsets[i + 1], arena, starts[g], stops[g]) * sign < 0
        else:
            better = True
        if better:
            if row < 0:
                changed[count] = ids[i]
                count += 1
            rows[g] = i
    return count


@kernel(f"int64(int32[::1], {BYTES}, {INTS}, uint8[::1], uint8[::1], int64[::1], int64[::1], int64[::1], int64)")
def keep_strings(changed, data, offsets, seen, arena, starts, stops, rows, at):
    """Copy the new strings to the arena from `at` on and reset `rows` to -1. Returns the new end."""
    for c in range(changed.size):
        g = np.uint32(changed[c])
        first, last = offsets[rows[g]], offsets[rows[g] + 1]
        starts[g] = at
        for k in range(last - first):
            arena[at + k] = data[first + k]
        at += last - first
        stops[g] = at
        seen[g] = 1
        rows[g] = -1
    return at


@kernel("int64(uint8[::1], int64[::1], int64[::1], uint8[::1])")
def pack_strings(arena, starts, stops, out):
    """Copy every group's string to `out`, contiguously. Returns their total length."""
    at = 0
    for g in range(starts.size):
        size = stops[g] - starts[g]
        for k in range(size):
            out[at + k] = arena[starts[g] + k]
        starts[g] = at
        at += size
        stops[g] = at
    return at


@kernel("void(int32[::1], float64[::1], int64[::1], float64[::1])")
def scatter(ids, values, ends, out):
    """Values by group, in input order. `ends[g]` is the start of group g on entry, its end on return."""
    for i in range(ids.size):
        g = np.uint32(ids[i])
        out[ends[g]] = values[i]
        ends[g] += 1


@kernel("boolean(float64, float64)", inline="always")
def before(a, b):
    """a < b, with NaN greater than every number."""
    return a < b or (np.isnan(b) and not np.isnan(a))


@kernel("void(int64[::1], float64[::1], int64[::1], float64[::1], float64[::1])")
def merge(a_starts, a, b_starts, b, out):
    """Merge the sorted values of each group. Group g of `a` is a[a_starts[g]:a_starts[g + 1]]."""
    at = 0
    for g in range(b_starts.size - 1):
        i, i_stop = a_starts[g], a_starts[g + 1]
        j, j_stop = b_starts[g], b_starts[g + 1]
        while i < i_stop or j < j_stop:
            if j == j_stop or (i < i_stop and not before(b[j], a[i])):
                out[at] = a[i]
                i += 1
            else:
                out[at] = b[j]
                j += 1
            at += 1
