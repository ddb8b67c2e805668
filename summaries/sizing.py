"""From accuracy targets to sketch sizes: the binomial tail behind the median of rows, and size limits."""

import math
from functools import cache

from promising.errors import BadSize

DEEPEST = 63
WIDEST = 1 << 24


def tail(depth: int, p: float) -> float:
    """P[Binomial(depth, p) >= (depth + 1) / 2]: the probability that most of an odd number of rows err.

    >>> tail(5, 0.5)
    0.5
    """
    return math.fsum(math.comb(depth, k) * p**k * (1 - p) ** (depth - k) for k in range((depth + 1) // 2, depth + 1))


@cache
def tail_point(depth: int, chance: float) -> float:
    """The largest p with `tail(depth, p) <= chance`, from below to 50 bits; at most 1/2."""
    low, high = 0.0, 0.5
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(depth, middle) <= chance else (low, middle)
    return low


def power_of_two(least: float) -> int:
    """The least power of two, 2 or more, that is at least `least`."""
    return 1 << max(1, math.ceil(math.log2(max(least, 1.0))))


def check_target(error: float, confidence: float) -> None:
    if not 0 < error < 1:
        raise BadSize(f"error {error}: a share of the whole is wanted, above 0 and below 1")
    if not 0 < confidence <= 1 - 1e-12:
        raise BadSize(f"confidence {confidence}: a chance is wanted, above 0 and below 1")


def fewest_counters(widths: dict[int, int]) -> tuple[int, int]:
    """Of the (depth, width) that reach a target, the one with the fewest counters, then rows."""
    possible = {depth: width for depth, width in widths.items() if width <= WIDEST}
    if not possible:
        raise BadSize(f"no sketch is that accurate: it would need {min(widths.values())} columns, {WIDEST} is the most")
    return min(possible.items(), key=lambda size: (size[0] * size[1], size[0]))
