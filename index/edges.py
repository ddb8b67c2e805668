"""The part of a zone that lies in a window: a zone across an edge counts by its tuples there.

Chunks of the log know their bounds of time, so that only the chunks across an edge are read, and only in memory. Of
cold ones the part is estimated, by the calendar ladder if there is one, else by time: nothing here reads a disk.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from promising.index.ladder import Ladder
from promising.index.log import TupleLog
from promising.index.zone import CoarseZone, FineZone

Floats = NDArray[np.float64]


class Inside(NamedTuple):
    """Of a zone's tuples, the share inside a window and outside of it: at least and at most so many."""

    share: float
    least: int
    most: int

    def of(self, count: int, value: Floats, lower: Floats, upper: Floats) -> tuple[Floats, Floats, Floats]:
        """Estimates and bounds of some of the zone's `count` tuples, for those of them inside."""
        low = np.maximum(lower - (count - self.least), 0.0)
        high = np.minimum(upper, self.most)
        return np.clip(value * self.share, low, high), low, high


def inside(log: TupleLog, zone: FineZone | CoarseZone, start: int, end: int, ladder: Ladder | None) -> Inside:
    """The part of a zone dated `start` to `end` - 1; exact if no chunk across an edge is cold."""
    count = zone.count
    least, unsure = log.inside(zone.tuples.ranges, start, end)
    if not len(unsure.rows):
        return Inside(least / count, least, least)
    first, last = np.maximum(unsure.earliest, zone.first), np.minimum(unsure.latest, zone.last)
    part = _between(np.maximum(first, start), np.minimum(last + 1, end), ladder)
    whole = np.maximum(_between(first, last + 1, ladder), 1e-9)
    likely = least + float((unsure.rows * np.clip(part / whole, 0.0, 1.0)).sum())
    return Inside(likely / count, least, least + int(unsure.rows.sum()))


def _between(starts: NDArray[np.int64], ends: NDArray[np.int64], ladder: Ladder | None) -> Floats:
    """How much lies between these times: tuples by the ladder, else time."""
    ends = np.maximum(starts, ends)
    if ladder is None or not ladder.size:
        return (ends - starts).astype(np.float64)
    return ladder.before(ends) - ladder.before(starts)
