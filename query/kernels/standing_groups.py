"""Incremental aggregates of groups: tuples are added and removed.

`groups[i]` is the group of the entry at `places[i]`; `values` and `there` (0: NULL) are by place. `sign` is 1 for
added, -1 for removed tuples.
"""

import numpy as np

from promising.query.kernels.entries import NEXT
from promising.summaries.kernels.jit import kernel

LOW = np.int64(0xFFFFFFFF)
SMALL = 2.0**-54


@kernel("void(int32[::1], int32[::1], uint8[::1], int64, int64[::1])")
def count_there(groups, places, there, sign, counts):
    for i in range(groups.size):
        if there[places[i]] != 0:
            counts[groups[i]] += sign


@kernel("void(int32[::1], int32[::1], int64[::1], uint8[::1], int64, int64[::1], int64[:,::1])")
def sum_ints(groups, places, values, there, sign, counts, sums):
    """Exact sums as (high, low): high * 2^32 + low, 0 <= low < 2^32."""
    for i in range(groups.size):
        p = places[i]
        if there[p] != 0:
            g = groups[i]
            counts[g] += sign
            low = sums[g, 1] + sign * (values[p] & LOW)
            sums[g, 0] += sign * (values[p] >> 32) + (low >> 32)
            sums[g, 1] = low & LOW


@kernel("void(float64[:,::1], int64, float64)", inline="always")
def add_float(sums, g, value):
    """sums[g] is (high, low, lost): the sum is high + low, `lost` bounds its rounding error."""
    high, low = sums[g, 0], sums[g, 1]
    total = high + value
    back = total - high
    rest = (high - (total - back)) + (value - back)
    both = low + rest
    back = both - low
    sums[g, 2] += abs((low - (both - back)) + (rest - back))
    high = total + both
    sums[g, 1] = both - (high - total)
    sums[g, 0] = high


@kernel("void(int32[::1], int32[::1], float64[::1], uint8[::1], int64, int64[::1], float64[:,::1], int64[:,::1])")
def sum_floats(groups, places, values, there, sign, counts, sums, odd):
    """`odd[g]` counts NaN, infinities and negative infinities, which are excluded from the sum."""
    for i in range(groups.size):
        p = places[i]
        if there[p] == 0:
            continue
        g = groups[i]
        value = values[p]
        counts[g] += sign
        if np.isnan(value):
            odd[g, 0] += sign
        elif np.isinf(value):
            odd[g, 1 if value > 0 else 2] += sign
        else:
            add_float(sums, g, sign * value)
        if counts[g] == 0:
            sums[g, 0] = sums[g, 1] = sums[g, 2] = 0.0


@kernel("void(int32[::1], int32[:,::1], int32[:,::1], float64[::1], uint8[::1], float64[:,::1])")
def sum_anew(groups, heads, links, values, there, sums):
    """Recompute sums that overflowed, or whose rounding error could affect the last bit."""
    for i in range(groups.size):
        g = groups[i]
        if sums[g, 2] <= SMALL * abs(sums[g, 0]) and np.isfinite(sums[g, 0]):
            continue
        sums[g, 0] = sums[g, 1] = sums[g, 2] = 0.0
        place = heads[g, 0]
        while place >= 0:
            if there[place] != 0 and np.isfinite(values[place]):
                add_float(sums, g, values[place])
            place = links[place, NEXT]


@kernel(
    [
        "void(int32[::1], int32[::1], int64[::1], uint8[::1], int64, int64[::1], int64[::1], uint8[::1])",
        "void(int32[::1], int32[::1], float64[::1], uint8[::1], int64, int64[::1], float64[::1], uint8[::1])",
    ]
)
def best_came(groups, places, values, there, sign, counts, best, stale):
    """The least (`sign` 1) or greatest (-1) value; NaN is greater than every number. `stale` groups stay stale."""
    for i in range(groups.size):
        p = places[i]
        if there[p] == 0:
            continue
        g = groups[i]
        value = values[p]
        counts[g] += 1
        if counts[g] == 1:
            best[g] = value
            stale[g] = 0
        elif sign > 0:
            if value < best[g] or np.isnan(best[g]):
                best[g] = value
        elif value > best[g] or np.isnan(value):
            best[g] = value


@kernel(
    [
        "void(int32[::1], int32[::1], int64[::1], uint8[::1], int64[::1], int64[::1], uint8[::1])",
        "void(int32[::1], int32[::1], float64[::1], uint8[::1], int64[::1], float64[::1], uint8[::1])",
    ]
)
def best_went(groups, places, values, there, counts, best, stale):
    """A group that loses a value equal to its best becomes stale."""
    for i in range(groups.size):
        p = places[i]
        if there[p] == 0:
            continue
        g = groups[i]
        counts[g] -= 1
        if values[p] == best[g] or (np.isnan(values[p]) and np.isnan(best[g])):
            stale[g] = 1


@kernel(
    [
        "void(int32[::1], int32[:,::1], int32[:,::1], int64[::1], uint8[::1], int64, int64[::1], uint8[::1])",
        "void(int32[::1], int32[:,::1], int32[:,::1], float64[::1], uint8[::1], int64, float64[::1], uint8[::1])",
    ]
)
def best_anew(groups, heads, links, values, there, sign, best, stale):
    for i in range(groups.size):
        g = groups[i]
        if stale[g] == 0:
            continue
        stale[g] = 0
        first = True
        place = heads[g, 0]
        while place >= 0:
            if there[place] != 0:
                value = values[place]
                if first:
                    best[g] = value
                    first = False
                elif sign > 0:
                    if value < best[g] or np.isnan(best[g]):
                        best[g] = value
                elif value > best[g] or np.isnan(value):
                    best[g] = value
            place = links[place, NEXT]
