"""Moments of a sample, and quantiles of a sample combined with exact values."""

import math

import numpy as np

from promising.query.kernels.folds import FLOATS, before
from promising.summaries.kernels.jit import kernel

# columns of the moments
DEVIATION, SKEWNESS, KURTOSIS, CENTRE = range(4)


@kernel(f"void(int32[::1], {FLOATS}, float64[::1], int64[::1], float64[::1], float64, float64[:,::1])")
def moments(ids, values, sums, hits, shift, draws, out):
    """Moments by group of a variable that is `value - shift` for draws that are hits, 0 for all others.

    `sums` and `hits` are the sum and number of the values; without ids, all values are of group 0. The centre is shift
    plus the mean of the variable. Two passes avoid cancellation.
    """
    groups = hits.size
    single = ids.size == 0 and values.size > 0
    for g in range(groups):
        out[g, CENTRE] = shift[g] + (sums[g] - shift[g] * hits[g]) / draws
        out[g, DEVIATION] = out[g, SKEWNESS] = out[g, KURTOSIS] = 0.0
    if single:
        centre = out[0, CENTRE]
        square = 0.0
        for i in range(values.size):
            d = values[i] - centre
            square += d * d
        out[0, DEVIATION] = square
    else:
        for i in range(values.size):
            g = np.uint32(ids[i])
            d = values[i] - out[g, CENTRE]
            out[g, DEVIATION] += d * d
    for g in range(groups):
        mean = out[g, CENTRE] - shift[g]
        out[g, DEVIATION] = math.sqrt((out[g, DEVIATION] + (draws - hits[g]) * mean * mean) / draws)
    if single:
        centre = out[0, CENTRE]
        scale = 1.0 / out[0, DEVIATION] if out[0, DEVIATION] > 0.0 else 0.0
        third = 0.0
        fourth = 0.0
        for i in range(values.size):
            d = (values[i] - centre) * scale
            third += d * d * d
            fourth += d * d * d * d
        out[0, SKEWNESS] = third
        out[0, KURTOSIS] = fourth
    else:
        for i in range(values.size):
            g = np.uint32(ids[i])
            if out[g, DEVIATION] > 0.0:
                d = (values[i] - out[g, CENTRE]) / out[g, DEVIATION]
                out[g, SKEWNESS] += d * d * d
                out[g, KURTOSIS] += d * d * d * d
    for g in range(groups):
        if out[g, DEVIATION] > 0.0:
            d = (out[g, CENTRE] - shift[g]) / out[g, DEVIATION]
            misses = draws - hits[g]
            out[g, SKEWNESS] = (out[g, SKEWNESS] - misses * d * d * d) / draws
            out[g, KURTOSIS] = (out[g, KURTOSIS] + misses * d * d * d * d) / draws


@kernel("int64(float64[::1], int64, int64, float64, boolean)")
def rank(values, start, stop, value, equal):
    """How many of the sorted values[start:stop] are less than `value`, or not greater, if `equal`."""
    low, high = start, stop
    while low < high:
        middle = (low + high) >> 1
        if before(values[middle], value) or (equal and not before(value, values[middle])):
            low = middle + 1
        else:
            high = middle
    return low - start


@kernel("float64(float64[::1], int64, int64, float64, float64[::1], int64, int64, float64, boolean, int64)")
def weight_to(own, start, stop, weight, other, other_start, other_stop, other_weight, equal, i):
    """Cumulative weight up to the i-th of its own side; among equal values the other side's come first if `equal`."""
    return (i + 1) * weight + other_weight * rank(other, other_start, other_stop, own[start + i], equal)


@kernel("int64(float64[::1], int64, int64, float64, float64[::1], int64, int64, float64, boolean, float64)")
def within(own, start, stop, weight, other, other_start, other_stop, other_weight, equal, most):
    """How many of its own side have a cumulative weight of at most `most`."""
    low, high = np.int64(0), stop - start
    while low < high:
        middle = (low + high) >> 1
        if weight_to(own, start, stop, weight, other, other_start, other_stop, other_weight, equal, middle) <= most:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(
    "void(int64[::1], float64[::1], int64[::1], float64[::1], float64, float64, float64, float64, float64[::1],"
    " float64[::1], float64[::1])"
)
def quantiles(known_starts, known, drawn_starts, drawn, weight, spread, draws, at, value, lower, upper):
    """A quantile per group, from exact values and sampled values of weight `weight`, both sorted within groups.

    `spread` is the number of standard errors to each side. Bounds beyond the known values, and values of empty groups,
    are NaN. For the formulas see `query.aggregate.estimators`. O(log^2) per group.
    """
    for g in range(value.size):
        a, a_stop = known_starts[g], known_starts[g + 1]
        b, b_stop = drawn_starts[g], drawn_starts[g + 1]
        value[g] = lower[g] = upper[g] = np.nan
        hits = b_stop - b
        total = (a_stop - a) + weight * hits
        if a_stop - a + hits == 0:
            continue

        # Cumulative weights at the middle of each value; the quantile is interpolated between two of them.
        first = weight if hits and (a == a_stop or before(drawn[b], known[a])) else 1.0
        last = weight if hits and (a == a_stop or not before(drawn[b_stop - 1], known[a_stop - 1])) else 1.0
        target = 0.5 * first + at * (total - 0.5 * first - 0.5 * last)
        i = within(known, a, a_stop, 1.0, drawn, b, b_stop, weight, False, target + 0.5)
        j = within(drawn, b, b_stop, weight, known, a, a_stop, 1.0, True, target + 0.5 * weight)
        low_at = -np.inf
        low = high = np.nan
        high_at = np.inf
        if i > 0:
            low_at = weight_to(known, a, a_stop, 1.0, drawn, b, b_stop, weight, False, i - 1) - 0.5
            low = known[a + i - 1]
        if j > 0:
            place = weight_to(drawn, b, b_stop, weight, known, a, a_stop, 1.0, True, j - 1) - 0.5 * weight
            if place >= low_at:
                low_at = place
                low = drawn[b + j - 1]
        if i < a_stop - a:
            high_at = weight_to(known, a, a_stop, 1.0, drawn, b, b_stop, weight, False, i) - 0.5
            high = known[a + i]
        if j < hits:
            place = weight_to(drawn, b, b_stop, weight, known, a, a_stop, 1.0, True, j) - 0.5 * weight
            if place < high_at:
                high_at = place
                high = drawn[b + j]
        if low_at == -np.inf:
            value[g] = high
        elif high_at == np.inf or low == high or low_at == target:
            value[g] = low
        else:
            share = (target - low_at) / (high_at - low_at)
            value[g] = low * (1.0 - share) + high * share
        if hits < 2 or np.isnan(value[g]):
            continue

        # Woodruff: the error of the weight below the quantile, translated to values.
        under = rank(drawn, b, b_stop, value[g], True)
        mean = (under - at * hits) / draws
        square = (under * (1.0 - at) ** 2 + (hits - under) * at**2) / draws
        margin = spread * weight * math.sqrt(draws * max(square - mean * mean, 0.0))
        middle = at * total
        i = within(known, a, a_stop, 1.0, drawn, b, b_stop, weight, False, middle - margin)
        j = within(drawn, b, b_stop, weight, known, a, a_stop, 1.0, True, middle - margin)
        if i > 0:
            lower[g] = known[a + i - 1]
        if j > 0 and (i == 0 or before(lower[g], drawn[b + j - 1])):
            lower[g] = drawn[b + j - 1]
        # From the top: a value is the upper bound if its predecessors weigh at least this much.
        i = within(known, a, a_stop, 1.0, drawn, b, b_stop, weight, False, np.nextafter(middle + margin + 1.0, -1.0))
        j = within(drawn, b, b_stop, weight, known, a, a_stop, 1.0, True, np.nextafter(middle + margin + weight, -1.0))
        if i < a_stop - a:
            upper[g] = known[a + i]
        if j < hits and (i == a_stop - a or before(drawn[b + j], upper[g])):
            upper[g] = drawn[b + j]
