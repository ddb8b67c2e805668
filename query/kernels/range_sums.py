"""Counts and sums over many ranges of columns at once.

The ends of all ranges cut a column into pieces: a value is in piece `p` if `p` cuts are not greater than it. A tuple is
added at one place, given by the pieces of its values, however many ranges there are; a range is a sum of places. Trees
over the places make that O(log cuts) per range. Nothing is ever subtracted: no digits are lost, and NaN affects only
the ranges it belongs to.

A tree over `n` places has `2 n` nodes: node `i` is the sum of nodes `2 i` and `2 i + 1`, place `p` is node `n + p`. A
node is a row of three: for floats the sum, its rounding error, and the count; for integers the sum as `(high << 32) +
low`, and the count.
"""

import numpy as np

from promising.query.kernels.folds import FLOATS, LOW
from promising.summaries.kernels.jit import kernel
from promising.summaries.kernels.text_table import INTS

MOST_CUTS = 8  # per slot of a table; with more, a search is faster


@kernel("uint64(float64, float64, float64, float64)", inline="always")
def slot_of(value, start, scale, last):
    """Increases with the value, from 0 to `last`; arbitrary for NaN."""
    at = (value - start) * scale
    at = at if at < last else last
    at = at if at > 0.0 else 0.0
    return np.uint64(np.uint32(np.int32(at)))


@kernel([f"void({FLOATS}, float64[::1], int64, int32[::1])", f"void({INTS}, int64[::1], int64, int32[::1])"])
def search(values, cuts, number, pieces):
    """The number of cuts not greater than each value. Branch-free, one step for all values, so that they overlap."""
    for i in range(values.size):
        pieces[i] = 0
    left = np.int64(number)
    while left > 0:
        half = (left + 1) >> 1
        for i in range(values.size):
            piece = np.int64(pieces[i])
            pieces[i] = piece + (half if cuts[np.uint64(piece + half - 1)] <= values[i] else 0)
        left -= half


@kernel(
    [
        f"void({FLOATS}, float64[::1], int64, int32[::1], float64, float64, int64, int32[::1])",
        f"void({INTS}, int64[::1], int64, int32[::1], float64, float64, int64, int32[::1])",
    ]
)
def locate(values, cuts, number, table, start, scale, most, pieces):
    """The piece of each value; NaN is greater than every number.

    The `number` cuts are followed by MOST_CUTS that no value reaches (for integers, only the greatest does).
    `table[slot]` is the number of cuts in earlier slots; no slot has more than `most`, and 0 means that there is no
    table.
    """
    if most == 0:
        search(values, cuts, number, pieces)
        for i in range(values.size):
            if np.isnan(values[i]):
                pieces[i] = number
        return
    last = np.float64(table.size - 1)
    for i in range(values.size):
        value = values[i]
        before = np.uint64(np.uint32(table[slot_of(np.float64(value), start, scale, last)]))
        piece = before
        for step in range(np.uint64(most)):  # counted, not searched: a branch that depends on a value is more expensive
            piece += np.uint64(cuts[before + step] <= value)
        pieces[i] = number if np.isnan(value) else min(np.int64(piece), number)


@kernel(f"void({INTS}, int64, int32[::1], int32[::1])")
def locate_near(values, start, table, pieces):
    """The piece of each integer if all cuts are close together: `table[v - start]`."""
    last = np.int64(table.size - 1)
    end = start + last
    for i in range(values.size):
        pieces[i] = table[np.uint64(max(min(values[i], end), start) - start)]


@kernel("void(int32[::1], int32[::1], int32[::1])")
def go_on(pieces, nodes, places):
    """Add to each tuple's place the share of its piece of a column."""
    for i in range(pieces.size):
        places[i] += nodes[np.uint32(pieces[i])]


@kernel("void(float64[:,::1], uint64, float64, float64, float64)", inline="always")
def add_to(sums, at, value, lost, number):
    before = sums[at, 0]
    after = before + value
    gained = after - before
    sums[at, 0] = after
    sums[at, 1] += ((before - (after - gained)) + (value - gained)) + lost
    sums[at, 2] += number


@kernel(f"void(int32[::1], int32[::1], {FLOATS}, float64[:,::1])")
def fold_floats(places, nodes, values, sums):
    for i in range(places.size):
        add_to(sums, np.uint64(np.uint32(nodes[np.uint32(places[i])])), values[i], 0.0, 1.0)


@kernel(f"void(int32[::1], int32[::1], {INTS}, int64[:,::1])")
def fold_ints(places, nodes, values, sums):
    """Valid for fewer than 2^31 values; `low` may then exceed 2^32."""
    for i in range(places.size):
        at = np.uint64(np.uint32(nodes[np.uint32(places[i])]))
        sums[at, 0] += values[i] >> 32
        sums[at, 1] += values[i] & LOW
        sums[at, 2] += 1


@kernel("void(int32[::1], int32[::1], int64[:,::1])")
def fold_rows(places, nodes, sums):
    for i in range(places.size):
        sums[np.uint64(np.uint32(nodes[np.uint32(places[i])])), 2] += 1


@kernel("void(float64[:,::1], int64, int64[::1], int32[::1], float64[:,::1])")
def range_floats(sums, width, ends, nodes, out):
    """Sum up trees of `width` nodes each, then per range the nodes up to its end, into a zeroed row of `out`."""
    for base in range(0, sums.shape[0], width):
        for i in range((width >> 1) - 1, 0, -1):
            for j in (2 * i, 2 * i + 1):
                add_to(sums, np.uint64(base + i), sums[base + j, 0], sums[base + j, 1], sums[base + j, 2])
    at = 0
    for r in range(ends.size):
        while at < ends[r]:
            node = np.uint64(np.uint32(nodes[at]))
            add_to(out, np.uint64(r), sums[node, 0], sums[node, 1], sums[node, 2])
            at += 1


@kernel("void(int64[:,::1], int64, int64[::1], int32[::1], int64[:,::1])")
def range_ints(sums, width, ends, nodes, out):
    """`range_floats` for integers; `low` ends below 2^32."""
    for base in range(0, sums.shape[0], width):
        for i in range((width >> 1) - 1, 0, -1):
            for c in range(3):
                sums[base + i, c] += sums[base + 2 * i, c] + sums[base + 2 * i + 1, c]
    at = 0
    for r in range(ends.size):
        while at < ends[r]:
            node = np.uint64(np.uint32(nodes[at]))
            for c in range(3):
                out[r, c] += sums[node, c]
            at += 1
        out[r, 0] += out[r, 1] >> 32
        out[r, 1] &= LOW


@kernel("void(float64[:,::1], float64[:,::1])")
def join_floats(into, more):
    for i in range(into.shape[0]):
        add_to(into, np.uint64(i), more[i, 0], more[i, 1], more[i, 2])


@kernel("void(int64[:,::1], int64[:,::1])")
def join_ints(into, more):
    for i in range(into.shape[0]):
        low = into[i, 1] + more[i, 1]
        into[i, 0] += more[i, 0] + (low >> 32)
        into[i, 1] = low & LOW
        into[i, 2] += more[i, 2]
