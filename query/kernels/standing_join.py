"""Pairs of entries with equal codes, and selection among entries of a code."""

import numpy as np

from promising.query.kernels.entries import CODE, NEXT, NOTE
from promising.summaries.kernels.jit import kernel


@kernel("void(int32[::1], int32[:,::1], int32[:,::1], int32[:,::1], int32[::1], int32[::1])")
def partners(places, links, heads, others, mine, theirs):
    """For each entry, the other side's entries with its code; there must be room for all."""
    made = 0
    for i in range(places.size):
        code = links[places[i], CODE]
        if code < 0:  # just removed: its code is still encoded
            code = -1 - code
        other = heads[code, 0]
        while other >= 0:
            mine[made] = places[i]
            theirs[made] = other
            made += 1
            other = others[other, NEXT]


@kernel("int64(int32[::1], int32[:,::1], int32[:,::1])")
def partner_count(places, links, heads):
    """The number of pairs that `partners` finds."""
    total = 0
    for i in range(places.size):
        code = links[places[i], CODE]
        if code < 0:
            code = -1 - code
        total += heads[code, 1]
    return total


@kernel(
    "void(int32[::1], int32[::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[:,::1], int64[::1],"
    " int64[::1])"
)
def compose(left, right, left_ids, left_times, right_ids, right_times, ids, ts, exp):
    width = left_ids.shape[1]
    for i in range(left.size):
        a, b = left[i], right[i]
        for c in range(width):
            ids[i, c] = left_ids[a, c]
        for c in range(right_ids.shape[1]):
            ids[i, width + c] = right_ids[b, c]
        ts[i] = max(left_times[a, 0], right_times[b, 0])
        exp[i] = min(left_times[a, 1], right_times[b, 1])


@kernel("void(int32[::1], int32[::1], int64[:,::1], int32[:,::1], int64[:,::1], int32[:,::1])")
def credit(left, right, left_times, left_links, right_times, right_links):
    """Increment NOTE of the entry of each pair that ends first."""
    for i in range(left.size):
        a, b = left[i], right[i]
        if left_times[a, 1] < right_times[b, 1]:
            left_links[a, NOTE] += 1
        else:
            right_links[b, NOTE] += 1


@kernel("int64(int32[::1], int64[::1], int32[:,::1], int32[:,::1], int64[:,::1], int64, int64, int64, int32[::1])")
def choose(codes, wanted, heads, links, times, unnoted, sign, most, out):
    """Choose `wanted` entries per code, those that end first (`sign` 1) or last (-1); returns how many were found.

    They are in that order unless all are wanted. With `unnoted`, only those whose NOTE is 0. `most` is at least the
    length of the longest chain.
    """
    keys = np.empty(most, np.int64)
    held = np.empty(most, np.int32)
    made = 0
    for i in range(codes.size):
        count = 0
        best = np.int32(-1)
        key = np.int64(0)
        place = heads[codes[i], 0]
        while place >= 0:
            if unnoted == 0 or links[place, NOTE] == 0:
                end = times[place, 1] * sign
                if best < 0 or end < key:
                    best = place
                    key = end
                if wanted[i] > 1:
                    keys[count] = end
                    held[count] = place
                    count += 1
            place = links[place, NEXT]
        if wanted[i] == 1:
            if best >= 0:
                out[made] = best
                made += 1
        elif wanted[i] >= count:
            out[made : made + count] = held[:count]
            made += count
        elif wanted[i] > 1:
            order = np.argsort(keys[:count])
            for k in range(wanted[i]):
                out[made] = held[order[k]]
                made += 1
    return made


@kernel(
    "int64(int32[::1], int64[:,::1], int64[::1], int64[::1], int32[:,::1], int64[:,::1], int32[::1], int64[:,::1],"
    " int64[:,::1], int64[::1])"
)
def admit(codes, ids, ts, exp, heads, times, pending, spare_ids, spare_times, new):
    """distinct*: which arrivals are shown, and which is stored as the spare for when the shown one ends.

    The shown entry is the only one of its chain. `pending` is all -1 before and after. Without a spare, its end is at
    most that of the shown entry. `new` receives the arrivals to be shown; returns how many.
    """
    made = 0
    for i in range(codes.size):
        code = codes[i]
        place = heads[code, 0]
        if place < 0 and pending[code] < 0:
            pending[code] = i
            new[made] = i
            made += 1
            continue
        end = times[place, 1] if place >= 0 else exp[pending[code]]
        if exp[i] > end and exp[i] > spare_times[code, 1]:
            for c in range(ids.shape[1]):
                spare_ids[code, c] = ids[i, c]
            spare_times[code, 0] = ts[i]
            spare_times[code, 1] = exp[i]
    for i in range(made):
        pending[codes[new[i]]] = -1
    return made


@kernel("int64(int32[::1], int32[:,::1], int64[::1], int32[:,::1], int32[:,::1], int64[::1], int32[::1], int32[::1])")
def earlier_partners(places, links, order, heads, others, other_order, mine, theirs):
    """`partners`, restricted to earlier arrivals. Without any room, only counts them."""
    made = 0
    for i in range(places.size):
        code = links[places[i], CODE]
        if code < 0:
            code = -1 - code
        other = heads[code, 0]
        while other >= 0:
            if other_order[other] < order[places[i]]:
                if mine.size:
                    mine[made] = places[i]
                    theirs[made] = other
                made += 1
            other = others[other, NEXT]
    return made
