"""Limits of confidence: what a simple random sample without replacement tells about the population it comes from.

`draws` units were drawn out of `population`, 0 <= draws < population; the fraction drawn is f = draws / population. All
functions work on arrays with an element for each group.
"""

from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from promising.query.kernels.limits import margins, marked_bounds
from promising.query.kernels.samples import moments

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]

SURE = 50  # hits, and misses, from which on the normal law is as good as the exact one for a count


def normal_quantile(confidence: float) -> float:
    """How many standard errors to each side hold this share of the normal law."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


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
    """How well a mean is known: how far that over the population may lie below and above that over the draws.

    The variable is `value - shift` for draws that are hits and 0 for the others. `sums` and `hits` are the values' sum
    and number by group; without ids all values are of group 0. With s the deviation, g the skewness and k the kurtosis
    of the variable over the draws:

    - The standard error is s * sqrt((1 - f) / (draws - 1)).
    - q is Student's quantile with 2 * draws / (k - 1) degrees of freedom, which is what the variance of s^2 amounts to;
      times 1 + 2 / hits, since few hits do not show how far the law reaches.
    - Hall's transformation takes the skewness out of the studentised mean T. Without replacement it is
      T + A T^2 / 3 + A^2 T^3 / 27 + c with A = g (2 - f) / (2 r), c = g (1 - 2 f) / (6 r), r = sqrt(draws (1 - f)); its
      inverse at q and -q gives the two margins. With few hits a margin is not drawn in below q.

    The mean of a `ratio` rests on the hits alone: it has hits - 1 degrees of freedom at most, and g is made larger by
    1 + 8.5 / hits, since a small sample's skewness is too small (Bobee and Robitaille's correction).

    NaN where nothing can be said: no hits, or few that are all equal. Many hits that are all equal count as proof.
    """
    below, above = np.empty(len(hits)), np.empty(len(hits))
    found = np.empty((len(hits), 4))
    moments(ids, values, sums, hits, shift, float(max(draws, 1)), found)
    margins(found, hits, ratio, float(draws), float(population), normal_quantile(confidence), below, above)
    return below, above
