"""Which tuples of a batch a stream takes: judged by their event times alone, one after the other in order of arrival.

Pure functions of times: no lock, no clock, no state. A tuple is too far ahead if it is dated later than the clock by
more than `max_future`. It is too old if, at the watermark before it, its time has aged out of every summary. Only a
tuple that is taken moves the watermark, so how tuples are split into batches changes nothing.
"""

from collections.abc import Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from promising.errors import TooFarAhead, TooOld
from promising.index.geometry import Geometry
from promising.index.instants import BEGINNING
from promising.index.time_text import instant, readable, rounded

Times = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Retention(NamedTuple):
    """What a stream has reached, and what it retains.

    watermark: None as long as there is none. lateness: how far the watermark stays behind the latest event time.
    geometries: of the summaries; a time is retained as long as one of them does, and for good without any.
    floor: what is older has aged out, whatever summaries come and go; None as long as nothing has.
    """

    watermark: int | None
    lateness: int
    geometries: Set[Geometry]
    floor: int | None

    @property
    def start(self) -> int:
        """The watermark, or a time so early that nothing is too old."""
        return BEGINNING if self.watermark is None else self.watermark

    def reached(self, latest: int) -> int:
        """The watermark after a tuple of that time: it never moves back."""
        return max(latest - self.lateness, self.start)

    def watermarks(self, times: Times) -> Times:
        """The watermark before each tuple, if all of them are taken in this order."""
        before = np.empty(len(times), np.int64)
        before[:1] = self.start
        np.maximum.accumulate(times[:-1], out=before[1:])
        before[1:] -= self.lateness
        return np.maximum(before, self.start, out=before)

    def oldest(self, watermark: int) -> int | None:
        """The least time retained at that watermark; None as long as nothing ages."""
        least = min((g.oldest(watermark) for g in self.geometries), default=None)
        if least is None or self.floor is None:
            return self.floor if least is None else least
        return max(least, self.floor)

    def oldest_at(self, watermarks: Times) -> Times:
        """`oldest` of many watermarks; `BEGINNING` as long as nothing ages."""
        oldest = np.full(len(watermarks), BEGINNING)
        if self.geometries:
            oldest = np.minimum.reduce([g.oldest_at(watermarks) for g in self.geometries])
        return oldest if self.floor is None else np.maximum(oldest, self.floor)


class Judged(NamedTuple):
    """Which tuples of a batch are too far ahead, and which too old; None if none are. No tuple is both."""

    ahead: Mask | None
    old: Mask | None

    @property
    def refused(self) -> dict[str, int]:
        """How many are refused, by reason."""
        reasons = (("too_far_ahead", self.ahead), ("too_old", self.old))
        return {reason: int(mask.sum()) for reason, mask in reasons if mask is not None}

    @property
    def taken(self) -> Mask | None:
        """Which tuples are taken; None if all are."""
        masks = [mask for mask in self if mask is not None]
        return ~np.logical_or.reduce(masks) if masks else None


def judge(
    times: Times,
    least: int,
    greatest: int,
    retention: Retention,
    *,
    now: int,
    max_future: int,
    column: str,
    strict: bool = False,
) -> Judged:
    """Judge the tuples of a batch, of which the times lie from `least` to `greatest`.

    now: what the clock reads. strict: the first tuple that is too far ahead, or else too old, raises `TooFarAhead` or
    `TooOld`, which names the `column` of the times.
    """
    limit = now + max_future
    ahead = times > limit if greatest > limit else None
    if ahead is not None and strict:
        row = int(np.argmax(ahead))
        found = int(times[row])
        raise TooFarAhead(
            f"column {column!r}, row {row}: {instant(found)} is {rounded(found - now)} ahead of the clock;"
            f" {readable(max_future)} is the most"
        )
    oldest_yet = retention.oldest(retention.reached(greatest))
    if oldest_yet is None or least >= oldest_yet:
        return Judged(ahead, None)
    before = retention.watermarks(times if ahead is None else np.where(ahead, BEGINNING, times))
    oldest = retention.oldest_at(before)
    old = times < oldest
    if ahead is not None:
        old &= ~ahead
    if not old.any():
        return Judged(ahead, None)
    if strict:
        row = int(np.argmax(old))
        raise TooOld(
            f"column {column!r}, row {row}: {instant(int(times[row]))} is before {instant(int(oldest[row]))}, where the"
            f" oldest granularity begins at watermark {instant(int(before[row]))}"
        )
    return Judged(ahead, old)
