"""The part of a zone that lies in a window: a zone across an edge counts by its tuples there.

Of a zone of `G_1` the tuples are in memory and are counted: chunks of the log know their bounds of time, so only those
across an edge are read. Later zones count by their spans, so that it does not matter which tuples are cold. Nothing
here reads a disk.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from promising.index.log import TupleLog
from promising.index.zone import CoarseZone, FineZone

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


class Inside(NamedTuple):
    """Of a zone's tuples, the likely share inside a window; at least and at most so many are."""

    share: float
    least: int
    most: int

    def of(self, count: int, value: Floats, lower: Floats, upper: Floats) -> tuple[Floats, Floats, Floats]:
        """Estimates and bounds of some of the zone's `count` tuples, for those of them inside."""
        low = np.maximum(lower - (count - self.least), 0.0)
        high = np.minimum(upper, self.most)
        return np.clip(value * self.share, low, high), low, high


def inside(log: TupleLog, zone: FineZone | CoarseZone, start: int, end: int) -> Inside:
    """The part of a zone dated `start` to `end` - 1; exact in `G_1`."""
    if isinstance(zone, FineZone):
        least, cold = log.inside(zone.tuples.ranges, start, end)
        if not len(cold.rows):
            return Inside(least / zone.count, least, least)
        return _shared(zone, start, end, least, cold.rows, cold.earliest, cold.latest)
    if zone.spans is None:  # of an older image
        counts, begins = np.array([zone.count], np.int64), np.array([zone.first], np.int64)
        return _shared(zone, start, end, 0, counts, begins, begins + (zone.last - zone.first))
    begins = zone.start + zone.span * np.arange(len(zone.spans))
    return _shared(zone, start, end, 0, zone.spans, begins, begins + (zone.span - 1))


def _shared(
    zone: FineZone | CoarseZone, start: int, end: int, sure: int, counts: Longs, firsts: Longs, lasts: Longs
) -> Inside:
    """`sure` tuples inside, and `counts` dated `firsts` to `lasts`: across an edge these count by time."""
    first, after = np.maximum(firsts, zone.first), np.minimum(lasts, zone.last) + 1
    covered = np.minimum(after, end) - np.maximum(first, start)
    part = np.clip(covered / np.maximum(after - first, 1), 0.0, 1.0)
    least = sure + int(counts[part == 1.0].sum())
    most = sure + int(counts[part > 0.0].sum())
    return Inside((sure + float((counts * part).sum())) / zone.count, least, most)
