"""Confidence limits, by group, from a simple random sample without replacement.

`draws` units were drawn out of `population`, 0 <= draws < population; f = draws / population.
"""

from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from promising.query.kernels.limits import margins, marked_bounds
from promising.query.kernels.samples import moments

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]

SURE = 50  # hits, and misses, from which the normal approximation of a count is as good as the exact law


def normal_quantile(confidence: float) -> float:
    """The number of standard errors on either side that cover this share of the normal distribution."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def count_bounds(hits: Counts, draws: int, population: int, confidence: float) -> tuple[Counts, Counts]:
    """Lower and upper limits of the hits in the population, given those among the draws.

    Few hits or few misses: exact hypergeometric limits (Clopper-Pearson without replacement). Else Wilson's, with z^2
    times (population - draws) / (population - 1). At least the hits seen, at most those plus everything not drawn.
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


def mean_margins(
    ids: NDArray[np.int32],
    values: Floats,
    sums: Floats,
    hits: Counts,
    shift: Floats,
    ratio: bool,
    draws: int,
    population: int,
    confidence: float,
) -> tuple[Floats, Floats]:
    """Margins of a mean: how far the population mean may lie below and above the sample mean.

    The variable is `value - shift` for draws that are hits, 0 for the others. `sums` and `hits` are the sum and number
    of values by group; without ids, all values are of group 0. With s the deviation, g the skewness and k the kurtosis
    of the variable over the draws:

    - The standard error is s * sqrt((1 - f) / (draws - 1)).
    - q is Student's quantile with 2 * draws / (k - 1) degrees of freedom, which matches the variance of s^2; times
      1 + 2 / hits, because few hits do not show the tails.
    - Hall's transformation removes the skewness of the studentised mean T. Without replacement it is
      T + A T^2 / 3 + A^2 T^3 / 27 + c with A = g (2 - f) / (2 r), c = g (1 - 2 f) / (6 r), r = sqrt(draws (1 - f)); its
      inverse at q and -q gives the two margins. With few hits, no margin is below q.

    The mean of a `ratio` depends on the hits only: at most hits - 1 degrees of freedom, and g is multiplied by
    1 + 8.5 / hits, because the skewness of a small sample is biased low (Bobee and Robitaille's correction).

    NaN where nothing is known: no hits, or few that are all equal. Many hits that are all equal count as proof.
    """
    below, above = np.empty(len(hits)), np.empty(len(hits))
    found = np.empty((len(hits), 4))
    moments(ids, values, sums, hits, shift, float(max(draws, 1)), found)
    margins(found, hits, ratio, float(draws), float(population), normal_quantile(confidence), below, above)
    return below, above
