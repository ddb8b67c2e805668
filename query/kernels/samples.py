"""Loops over a sample: moments, weighted quantiles, and what a number of hits tells about the population."""

import math

import numpy as np

from query.kernels.folds import before
from summaries.kernels.jit import kernel

HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


@kernel("void(int32[::1], float64[::1], float64[::1], float64[::1])")
def squares(ids, values, centres, out):
    """out[g] += (value - centre)^2 over the group's values. Without ids all are of group 0."""
    if ids.size == 0:
        total = 0.0
        for i in range(values.size):
            d = values[i] - centres[0]
            total += d * d
        out[0] += total
        return
    for i in range(values.size):
        g = np.uint32(ids[i])
        d = values[i] - centres[g]
        out[g] += d * d


@kernel("void(int32[::1], float64[::1], float64[::1], float64[::1], float64[::1], float64[::1])")
def cubes_and_fourths(ids, values, centres, inverse_scales, cubes, fourths):
    """The same for the third and fourth powers of ((value - centre) * inverse_scale)."""
    if ids.size == 0:
        third = 0.0
        fourth = 0.0
        for i in range(values.size):
            d = (values[i] - centres[0]) * inverse_scales[0]
            third += d * d * d
            fourth += d * d * d * d
        cubes[0] += third
        fourths[0] += fourth
        return
    for i in range(values.size):
        g = np.uint32(ids[i])
        d = (values[i] - centres[g]) * inverse_scales[g]
        cubes[g] += d * d * d
        fourths[g] += d * d * d * d


@kernel("int64(float64[::1], int64, int64, float64, boolean)")
def rank(values, start, stop, value, equal):
    """How many of the sorted values[start:stop] come before `value`; or do not come after it, if `equal`."""
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
    """Weight up to and with the i-th of its own side, where of equal values the other side's come first if `equal`."""
    return (i + 1) * weight + other_weight * rank(other, other_start, other_stop, own[start + i], equal)


@kernel("int64(float64[::1], int64, int64, float64, float64[::1], int64, int64, float64, boolean, float64)")
def within(own, start, stop, weight, other, other_start, other_stop, other_weight, equal, most):
    """How many of its own side have at most `most` as their weight up to and with them."""
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
    """A quantile of each group from values known in full and values drawn, each of which stands for `weight`.

    Both are sorted within their groups. `spread` is how many standard errors to each side. Bounds that lie beyond the
    values at hand, and values of empty groups, are NaN. See `query.estimators` for the formulas. O(log^2) a group.
    """
    for g in range(value.size):
        a, a_stop = known_starts[g], known_starts[g + 1]
        b, b_stop = drawn_starts[g], drawn_starts[g + 1]
        value[g] = lower[g] = upper[g] = np.nan
        hits = b_stop - b
        total = (a_stop - a) + weight * hits
        if a_stop - a + hits == 0:
            continue

        # The weight up to the middle of each value; the quantile is interpolated between two of these.
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

        # Woodruff: the error of the weight below the quantile, carried over to the values.
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
        # From the top: a value is the upper bound if what comes before it weighs at least this much.
        i = within(known, a, a_stop, 1.0, drawn, b, b_stop, weight, False, np.nextafter(middle + margin + 1.0, -1.0))
        j = within(drawn, b, b_stop, weight, known, a, a_stop, 1.0, True, np.nextafter(middle + margin + weight, -1.0))
        if i < a_stop - a:
            upper[g] = known[a + i]
        if j < hits and (i == a_stop - a or before(drawn[b + j], upper[g])):
            upper[g] = drawn[b + j]


@kernel("float64(float64)")
def stirling_error(n):
    """log(n!) less Stirling's formula for it."""
    if n <= 15.0:
        return math.lgamma(n + 1.0) - (n + 0.5) * math.log(n) + n - HALF_LOG_TAU
    square = n * n
    return (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - 1.0 / 1680 / square) / square) / square) / n


@kernel("float64(float64, float64)")
def deviance(x, mean):
    """x log(x / mean) + mean - x, without the cancellation where x is near the mean."""
    if abs(x - mean) < 0.1 * (x + mean):
        v = (x - mean) / (x + mean)
        total = (x - mean) * v
        term = 2.0 * x * v
        square = v * v
        for k in range(1, 1000):
            term *= square
            grown = total + term / (2 * k + 1)
            if grown == total:
                break
            total = grown
        return total
    return x * math.log(x / mean) + mean - x


@kernel("float64(float64, float64, float64, float64)")
def log_binomial(x, n, p, q):
    """log of the chance of x successes in n trials, q = 1 - p (Loader's saddle point, right to the last digits)."""
    if x == 0.0:
        return n * (math.log(q) if p >= 0.1 else math.log1p(-p)) if n > 0.0 else 0.0
    if x == n:
        return n * (math.log(p) if q >= 0.1 else math.log1p(-q))
    log_chance = stirling_error(n) - stirling_error(x) - stirling_error(n - x)
    log_chance -= deviance(x, n * p) + deviance(n - x, n * q)
    return log_chance - HALF_LOG_TAU + 0.5 * (math.log(n) - math.log(x) - math.log(n - x))


@kernel("float64(float64, float64, float64, float64)")
def at_most(x, marked, population, draws):
    """The chance that of `draws` units out of `population`, of which some are marked, at most x are marked."""
    x = min(x, marked, draws)
    if x < 0.0 or x < draws - (population - marked):
        return 0.0
    if x == min(marked, draws):
        return 1.0
    p = draws / population
    q = (population - draws) / population
    log_chance = log_binomial(x, marked, p, q) + log_binomial(draws - x, population - marked, p, q)
    term = math.exp(log_chance - log_binomial(draws, population, p, q))
    total = term
    while x > 0.0 and term > total * 1e-12:
        term *= x * (population - marked - draws + x) / ((marked - x + 1.0) * (draws - x + 1.0))
        total += term
        x -= 1.0
    return total


@kernel("void(int64[::1], int64, int64, float64, int64[::1], int64[::1])")
def marked_bounds(hits, draws, population, tail, lower, upper):
    """How many units of the population may be marked, given how many of the draws are: exact limits of confidence.

    Outside of them, what was seen or anything further out has a chance of `tail` at most. Needs 0 < draws < population.
    """
    for k in range(hits.size):
        h = hits[k]
        low, high = h, population - (draws - h)  # the most marked units with more than `tail` for at most h hits
        while low < high:
            middle = low + ((high - low + 1) >> 1)
            if at_most(float(h), float(middle), float(population), float(draws)) > tail:
                low = middle
            else:
                high = middle - 1
        upper[k] = low
        low, high = h, population - (draws - h)  # the fewest with more than `tail` for at least h hits
        while low < high:
            middle = low + ((high - low) >> 1)
            if 1.0 - at_most(float(h - 1), float(middle), float(population), float(draws)) > tail:
                high = middle
            else:
                low = middle + 1
        lower[k] = low
