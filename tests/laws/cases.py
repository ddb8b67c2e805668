"""What the laws need to know of each kind of summary: how to build it, what to feed it, what to ask it, what is true.

Sizes are small against the streams, so that collisions, evictions and forgetting happen in every one of them.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from promising.summaries import CountMin, CountSketch, Distinct, Exact, Frequent, Histogram, Quantile, Sample, Summary

Values = npt.NDArray[Any]
TUPLES = 600
KEYS = 150


@dataclass(frozen=True)
class Case:
    """One kind of summary.

    `build(seed)` is empty; `build(seed, other=True)` is empty too and may be added to it. `ask(values)` gives
    questions, `truth(values, question)` their right answers. `width` is how wide bounds are, as a share of what is
    known anyhow (1 is as good as no bounds at all), and `widest` what its mean over the streams may be.
    """

    name: str
    build: Callable[..., Summary]
    ask: Callable[[Values], list[tuple[Any, ...]]]
    truth: Callable[[Values, tuple[Any, ...]], float]
    width: Callable[[Values, Any], float]
    widest: float
    numeric: bool = False
    linear: bool = False
    """Adding is adding up: the sum of two summaries is, to the bit, the summary of both streams."""
    same_bytes: bool = True
    """Reading back and writing again gives the same bytes."""
    size_change: Callable[[], Summary] = Exact
    """A summary of the same kind and another size."""
    seeded: bool = True


def stream(rng: np.random.Generator, tuples: int = TUPLES) -> Values:
    """Keys with one of four shapes: skewed, even, one key in half of the tuples, all different."""
    shape = int(rng.integers(4))
    if shape == 0:
        weights = 1.0 / np.arange(1, KEYS + 1) ** 1.1
        return rng.choice(KEYS, tuples, p=weights / weights.sum()).astype(np.int64)
    if shape == 1:
        return rng.integers(KEYS, size=tuples)
    if shape == 2:
        return np.where(rng.random(tuples) < 0.5, 3, rng.integers(KEYS, size=tuples))
    return rng.permutation(tuples)


def some_keys(values: Values) -> list[tuple[Any, ...]]:
    """The most frequent key, five tuples' keys, and one key that never occurs."""
    hot = Counter(values.tolist()).most_common(1)[0][0]
    return [(key,) for key in [hot, *values[:5].tolist(), -1]]


def count_of(values: Values, question: tuple[Any, ...]) -> float:
    return float((values == question[0]).sum())


def of_total(values: Values, bounds: Any) -> float:
    return float(bounds.upper - bounds.lower) / values.size


def seeded(cls: Callable[..., Summary], **sizes: int) -> Callable[..., Summary]:
    return lambda seed, other=False: cls(**sizes, seed=seed)


def plain(cls: Callable[..., Summary], **sizes: Any) -> Callable[..., Summary]:
    return lambda seed, other=False: cls(**sizes)


def some_ranges(values: Values) -> list[tuple[Any, ...]]:
    ends = sorted(np.resize(values, 4).tolist())
    inner = (ends[1] - 0.25, ends[2] + 0.5)
    return [(ends[0], ends[1]), (ends[0], ends[3]), inner, (-np.inf, ends[2]), (ends[3], np.inf)]


def in_range(values: Values, question: tuple[Any, ...]) -> float:
    start, stop = question
    return float(((values >= start) & (values < stop)).sum())


def value_at(values: Values, question: tuple[Any, ...]) -> float:
    ordered = np.sort(values)
    return float(ordered[max(0, int(np.ceil(question[0] * ordered.size - 1e-9)) - 1)])


def strictly_between(values: Values, bounds: Any) -> float:
    return float(((values > bounds.lower) & (values < bounds.upper)).mean())


CASES = [
    Case(
        "count-sketch",
        seeded(CountSketch, depth=5, width=32),
        some_keys,
        count_of,
        of_total,
        widest=0.08,  # 2 * 1.86 deviations of a row, sqrt(F2 / 32) = 1 to 9 % of the tuples, cut off at 0
        linear=True,
        size_change=lambda: CountSketch(depth=5, width=64),
    ),
    Case(
        "count-min",
        seeded(CountMin, depth=4, width=32),
        some_keys,
        count_of,
        of_total,
        widest=0.025,  # an average counter holds 1/32 = 3 % of the tuples
        linear=True,
        size_change=lambda: CountMin(depth=3, width=32),
    ),
    Case("exact", plain(Exact), some_keys, count_of, of_total, widest=0.0, linear=True, seeded=False),
    Case(
        "histogram",
        plain(Histogram, low=5.0, high=515.0, bins=34),
        some_ranges,
        in_range,
        of_total,
        widest=0.25,  # two cut bins, or a tail
        numeric=True,
        linear=True,
        size_change=lambda: Histogram(5.0, 515.0, 17),
        seeded=False,
    ),
    Case(
        "sample",
        lambda seed, other=False: Sample(size=128, seed=2 * seed + other),
        some_keys,
        count_of,
        of_total,
        widest=0.1,  # 2 * 2.7 deviations of a share from 128 tuples, cut off at 0
        size_change=lambda: Sample(size=64),
        seeded=False,
    ),
    Case(
        "quantile",
        plain(Quantile, k=32),
        lambda values: [(rank,) for rank in (0.0, 0.01, 0.25, 0.5, 0.9, 1.0)],
        value_at,
        strictly_between,
        widest=0.1,  # twice the rank error that KLL states for k = 32, 7.9 %, cut off at the ends
        numeric=True,
        size_change=lambda: Quantile(64),
        seeded=False,
    ),
    Case(
        "distinct",
        seeded(Distinct, lg_k=6),
        lambda values: [()],
        lambda values, question: float(np.unique(values).size),
        lambda values, bounds: float(bounds.upper - bounds.lower) / np.unique(values).size,
        widest=0.6,  # four deviations of 1.04 / sqrt(64)
        linear=True,
        size_change=lambda: Distinct(lg_k=7),
    ),
    Case(
        "frequent",
        plain(Frequent, lg_k=5),
        some_keys,
        count_of,
        of_total,
        widest=0.05,  # half of 3.5 / 32, what the sketch states before it has seen anything
        same_bytes=False,
        size_change=lambda: Frequent(lg_k=6),
        seeded=False,
    ),
]
