"""How far estimates of single keys in random windows are from the truth: the error of zones, and of their edges."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.index.summary_index import SummaryIndex

Longs = NDArray[np.int64]
KEYS = 40
"""Keys of a window, drawn from the tuples around it: frequent ones more often."""


@dataclass(frozen=True)
class Errors:
    """Of estimates: mean absolute and mean squared difference from the true count, and the share within bounds.

    by_time: the mean absolute difference if zones across an edge counted by their share of time.
    """

    asked: int
    absolute: float
    squared: float
    held: float
    by_time: float


def window_errors(
    summary: SummaryIndex, times: Longs, keys: Any, span: int, windows: int, seed: int, until: int | None = None
) -> Errors:
    """Errors in random windows of `span` tuples. times, keys: of all tuples in order of time; until: of so many."""
    rng = np.random.default_rng(seed)
    most = (len(times) if until is None else until) - span
    asked, absolute, squared, held, by_time = 0, 0.0, 0.0, 0, 0.0
    for _ in range(windows):
        first = int(rng.integers(0, most))
        window = (int(times[first]), int(times[first + span]))
        if window[0] == window[1]:
            continue
        low, high = np.searchsorted(times, window)
        around = keys[max(0, first - 2 * span) : first + 3 * span]
        wanted = np.unique(rng.choice(around, KEYS))
        truth = (keys[low:high, None] == wanted).sum(axis=0)
        asked_for = wanted.tolist() if wanted.dtype == object else wanted
        found = summary.estimate(asked_for, window)
        asked += len(wanted)
        absolute += float(np.abs(found.value - truth).sum())
        squared += float(((found.value - truth) ** 2).sum())
        held += int(((found.lower <= truth) & (truth <= found.upper)).sum())
        by_time += float(np.abs(shared_by_time(summary, asked_for, window) - truth).sum())
    many = max(asked, 1)
    return Errors(asked, absolute / many, squared / many, held / many, by_time / many)


def shared_by_time(summary: SummaryIndex, keys: Any, window: tuple[int, int]) -> NDArray[np.float64]:
    """Estimates as they would be if every zone across an edge of the window counted by its share of time."""
    regions = summary.regions(keys)
    covered = np.minimum(regions.end, window[1]) - np.maximum(regions.start, window[0])
    share = np.clip(covered / (regions.end - regions.start), 0.0, 1.0)
    return np.bincount(regions.key, regions.estimate * share, len(keys)).astype(np.float64)
