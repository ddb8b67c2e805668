"""Confidence limits by group; for the formulas see `query.aggregate.confidence`."""

import math

import numpy as np

from promising.query.kernels.samples import CENTRE, DEVIATION, KURTOSIS, SKEWNESS
from promising.summaries.kernels.jit import kernel

HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
FEW = 100  # hits below which a sample's skewness is not trusted to tighten a bound
FLAT = 1e-12  # relative deviations this small are rounding errors


@kernel("float64(float64, float64)")
def student(z, freedom):
    """Student's quantile for the normal quantile z: a series, within 2 % from 2 degrees of freedom on, at 95 %."""
    z2 = z * z
    a = (z2 + 1.0) / 4.0
    b = ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0
    c = (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0
    d = ((((79.0 * z2 + 776.0) * z2 + 1482.0) * z2 - 1920.0) * z2 - 945.0) / 92160.0
    return z * (1.0 + (a + (b + (c + d / freedom) / freedom) / freedom) / freedom)


@kernel("float64(float64, float64, float64)", inline="always")
def unbent(q, bend, moved):
    """The T at which T + bend T^2 / 3 + bend^2 T^3 / 27 + moved, which increases in T, equals q."""
    if abs(bend) < 1e-9:
        return q - moved
    cube = 1.0 + bend * (q - moved)
    return 3.0 / bend * (math.copysign(abs(cube) ** (1.0 / 3.0), cube) - 1.0)


@kernel("void(float64[:,::1], int64[::1], boolean, float64, float64, float64, float64[::1], float64[::1])")
def margins(moments, hits, ratio, draws, population, z, below, above):
    """How far the population mean may lie below and above the sample mean; NaN if unknown."""
    rest = 1.0 - draws / population
    for g in range(hits.size):
        deviation = moments[g, DEVIATION]
        flat = deviation <= FLAT * abs(moments[g, CENTRE])
        below[g] = above[g] = np.nan
        if hits[g] < 1 or (flat and hits[g] < FEW) or not math.isfinite(deviation) or draws < 2.0:
            continue
        if flat:
            below[g] = above[g] = 0.0
            continue
        skewness = moments[g, SKEWNESS]
        freedom = 2.0 * draws / max(moments[g, KURTOSIS] - 1.0, 1e-9)
        if ratio:
            skewness *= 1.0 + 8.5 / hits[g]
            freedom = min(freedom, hits[g] - 1.0)
        q = student(z, max(min(freedom, draws - 1.0), 2.0)) * (1.0 + 2.0 / hits[g])
        root = math.sqrt(draws * rest)
        bend = skewness * (1.0 + rest) / (2.0 * root)
        moved = skewness * (2.0 * rest - 1.0) / (6.0 * root)
        low = unbent(q, bend, moved)
        high = -unbent(-q, bend, moved)
        if hits[g] < FEW:
            low = max(low, q)
            high = max(high, q)
        error = deviation * math.sqrt(rest / (draws - 1.0))
        below[g] = error * low
        above[g] = error * high


@kernel("float64(float64)")
def stirling_error(n):
    """log(n!) minus Stirling's approximation."""
    if n <= 15.0:
        return math.lgamma(n + 1.0) - (n + 0.5) * math.log(n) + n - HALF_LOG_TAU
    square = n * n
    return (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - 1.0 / 1680 / square) / square) / square) / n


@kernel("float64(float64, float64)")
def deviance(x, mean):
    """x log(x / mean) + mean - x, without cancellation for x near the mean."""
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
    """Log probability of x successes in n trials, q = 1 - p (Loader's saddle point, accurate to the last digits)."""
    if x == 0.0:
        return n * (math.log(q) if p >= 0.1 else math.log1p(-p)) if n > 0.0 else 0.0
    if x == n:
        return n * (math.log(p) if q >= 0.1 else math.log1p(-q))
    log_chance = stirling_error(n) - stirling_error(x) - stirling_error(n - x)
    log_chance -= deviance(x, n * p) + deviance(n - x, n * q)
    return log_chance - HALF_LOG_TAU + 0.5 * (math.log(n) - math.log(x) - math.log(n - x))


@kernel("float64(float64, float64, float64, float64)")
def chance_of(x, marked, population, draws):
    """Probability that exactly x of `draws` units out of `population`, `marked` of them marked, are marked."""
    p = draws / population
    q = (population - draws) / population
    log_chance = log_binomial(x, marked, p, q) + log_binomial(draws - x, population - marked, p, q)
    return math.exp(log_chance - log_binomial(draws, population, p, q))


@kernel("float64(float64, float64, float64, float64)")
def at_most(x, marked, population, draws):
    """Probability that at most x are marked. Summed from x outwards, in the direction of decreasing terms."""
    least = max(0.0, draws - (population - marked))
    most = min(marked, draws)
    if x < least:
        return 0.0
    if x >= most:
        return 1.0
    if x * population < draws * marked:
        term = total = chance_of(x, marked, population, draws)
        while x > least and term > total * 1e-12:
            term *= x * (population - marked - draws + x) / ((marked - x + 1.0) * (draws - x + 1.0))
            total += term
            x -= 1.0
        return total
    x += 1.0
    term = total = chance_of(x, marked, population, draws)
    while x < most and term > total * 1e-12:
        term *= (marked - x) * (draws - x) / ((x + 1.0) * (population - marked - draws + x + 1.0))
        total += term
        x += 1.0
    return 1.0 - total


@kernel("void(int64[::1], int64, int64, float64, int64[::1], int64[::1])")
def marked_bounds(hits, draws, population, tail, lower, upper):
    """Exact confidence limits of the marked units in the population, given those among the draws.

    Beyond them, the observation or a more extreme one has probability at most `tail`. Needs 0 < draws < population.
    """
    for k in range(hits.size):
        h = hits[k]
        low, high = h, population - (draws - h)  # most marked units with P(at most h hits) > tail
        while low < high:
            middle = low + ((high - low + 1) >> 1)
            if at_most(float(h), float(middle), float(population), float(draws)) > tail:
                low = middle
            else:
                high = middle - 1
        upper[k] = low
        low, high = h, population - (draws - h)  # fewest with P(at least h hits) > tail
        while low < high:
            middle = low + ((high - low) >> 1)
            if 1.0 - at_most(float(h - 1), float(middle), float(population), float(draws)) > tail:
                high = middle
            else:
                low = middle + 1
        lower[k] = low
