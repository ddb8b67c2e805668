"""Limits of confidence: what a simple random sample without replacement tells about the population it comes from.

`draws` units were drawn out of `population`, 0 <= draws < population; the fraction drawn is f = draws / population. All
functions work on arrays with an element for each group.
"""

from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from query.kernels.samples import cubes_and_fourths, marked_bounds, squares

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]

SURE = 50  # hits, and misses, from which on the normal law is as good as the exact one for a count
FEW = 100  # hits under which a sample's own skewness is not trusted to draw a bound in
LEAST_FREEDOM = 2.0
FLAT = 1e-12  # a spread that small, relative to the values, is rounding


def normal_quantile(confidence: float) -> float:
    """How many standard errors to each side hold this share of the normal law."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def student_quantile(z: float, freedom: Floats) -> Floats:
    """The same for Student's law: its series in 1 / freedom, within 1 % from 2 degrees of freedom on at 95 %."""
    z2 = z * z
    terms = (
        (z2 + 1) / 4,
        ((5 * z2 + 16) * z2 + 3) / 96,
        (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384,
        ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160,
    )
    ratio = np.ones_like(freedom)
    for k, term in enumerate(terms):
        ratio += term / freedom ** (k + 1)
    return z * ratio


def count_bounds(hits: Counts, draws: int, population: int, confidence: float) -> tuple[Counts, Counts]:
    """Lower and upper limit of how many units of the population are hits, given how many of the draws are.

    Few hits or few misses: exact limits of the hypergeometric law (Clopper and Pearson's for draws without
    replacement). Else Wilson's, with z^2 times (population - draws) / (population - 1). Never less than the hits seen,
    never more than those and all that was not drawn.
    """
    if draws == 0:
        return np.zeros_like(hits), np.full_like(hits, population)
    square = normal_quantile(confidence) ** 2 * (population - draws) / max(population - 1, 1)
    share = hits / draws
    centre = (share + square / (2 * draws)) / (1 + square / draws)
    half = np.sqrt(square * (share * (1 - share) + square / (4 * draws)) / draws) / (1 + square / draws)
    lower = np.floor(population * (centre - half)).astype(np.int64)
    upper = np.ceil(population * (centre + half)).astype(np.int64)
    rare = np.minimum(hits, draws - hits) < SURE
    if rare.any():
        kinds, place = np.unique(hits[rare], return_inverse=True)
        low, high = np.empty_like(kinds), np.empty_like(kinds)
        marked_bounds(kinds, draws, population, (1 - confidence) / 2, low, high)
        lower[rare], upper[rare] = low[place], high[place]
    most = hits + (population - draws)
    return np.clip(lower, hits, most), np.clip(upper, hits, most)


class Spread:
    """Moments of a variable that is `value - shift` for draws that are hits and 0 for the others."""

    def __init__(
        self, ids: NDArray[np.int32], values: Floats, sums: Floats, hits: Counts, shift: Floats, draws: int
    ) -> None:
        """`sums` and `hits` are the values' sum and number by group; without ids all values are of group 0."""
        misses = draws - hits
        mean = (sums - shift * hits) / draws
        centre = shift + mean
        square = np.zeros(len(hits))
        squares(ids, values, centre, square)
        self.deviation: Floats = np.sqrt((square + misses * mean**2) / draws)
        self.flat: NDArray[np.bool_] = self.deviation <= FLAT * np.abs(centre)
        scale = 1 / np.where(self.flat, 1.0, self.deviation)
        third, fourth = np.zeros(len(hits)), np.zeros(len(hits))
        cubes_and_fourths(ids, values, centre, scale, third, fourth)
        self.skewness: Floats = (third - misses * (mean * scale) ** 3) / draws
        self.kurtosis: Floats = (fourth + misses * (mean * scale) ** 4) / draws


def mean_margins(
    spread: Spread, hits: Counts, free: NDArray[np.int64], draws: int, population: int, confidence: float
) -> tuple[Floats, Floats]:
    """How far the mean of the variable over the population may lie below and above the mean over the draws.

    With s the deviation, g the skewness and k the kurtosis of the variable over the draws:

    - The standard error is s * sqrt((1 - f) / (draws - 1)).
    - q is Student's quantile with 2 * draws / (k - 1) degrees of freedom, which is what the variance of s^2 amounts to,
      but at most `free`; times 1 + 2 / hits, since few hits do not show how far the law reaches.
    - Hall's transformation takes the skewness out of the studentised mean T. Without replacement it is
      T + A T^2 / 3 + A^2 T^3 / 27 + c with A = g (2 - f) / (2 r), c = g (1 - 2 f) / (6 r), r = sqrt(draws (1 - f)); its
      inverse at q and -q gives the two margins. With few hits a margin is not drawn in below q.

    NaN where nothing can be said: no hits, or few that are all equal. From `FEW` on, equal values count as proof.
    """
    fraction = draws / population
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        error = spread.deviation * np.sqrt((1 - fraction) / max(draws - 1, 1))
        freedom = np.clip(2 * draws / np.maximum(spread.kurtosis - 1, 1e-9), LEAST_FREEDOM, np.maximum(free, LEAST_FREEDOM))
        q = student_quantile(normal_quantile(confidence), freedom) * (1 + 2 / np.maximum(hits, 1))
        root = np.sqrt(draws * (1 - fraction))
        bend = spread.skewness * (2 - fraction) / (2 * root)
        moved = spread.skewness * (1 - 2 * fraction) / (6 * root)
        straight = np.abs(bend) < 1e-9
        safe = np.where(straight, 1.0, bend)
        below = np.where(straight, q - moved, (np.cbrt(1 + safe * (q - moved)) - 1) * 3 / safe)
        above = np.where(straight, q + moved, (1 - np.cbrt(1 - safe * (q + moved))) * 3 / safe)
        few = hits < FEW
        below, above = np.where(few, np.maximum(below, q), below), np.where(few, np.maximum(above, q), above)
        error = np.where((hits < 1) | (spread.flat & few), np.nan, np.where(spread.flat, 0.0, error))
        return error * below, error * above
