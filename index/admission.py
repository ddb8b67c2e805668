"""Admission of the tuples of a batch by event time, in order of arrival. Pure functions: no lock, clock or state.

A tuple is too far ahead if it is dated more than `max_future` after the clock. It is too old if, at the watermark
before it, the stream no longer keeps its time. Only accepted tuples advance the watermark, so the split into batches
does not matter.
"""

from collections.abc import Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from promising.errors import BadOptions, TooFarAhead, TooOld
from promising.index.geometry import SHARE, Geometry, kept_since
from promising.index.instants import BEGINNING, FARTHEST
from promising.index.progress import Pace
from promising.index.time_text import instant, readable, rounded

Times = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Retention(NamedTuple):
    """What a stream retains.

    keep: how long tuples are retained; None: for ever. geometries: of the summaries, whose zones are removed whole.
    floor: older times have been removed; None if nothing has.
    """

    keep: int | None
    geometries: Set[Geometry]
    floor: int | None

    def oldest(self, watermark: int) -> int | None:
        """The least time retained at that watermark; None while nothing has been removed."""
        if self.keep is None:
            return self.floor
        least = min(kept_since(watermark, self.keep, step) for step in self._steps)
        return least if self.floor is None else max(least, self.floor)

    @property
    def _steps(self) -> set[int]:
        """What is removed at once: the longest zones of the summaries; without any, an eighth of what is kept."""
        assert self.keep is not None
        return {g.spans[-1] for g in self.geometries} or {self.keep // SHARE}

    def oldest_at(self, watermarks: Times) -> Times:
        """`oldest` of many watermarks; `BEGINNING` while nothing ages."""
        oldest = np.full(len(watermarks), BEGINNING)
        if self.keep is not None:
            oldest = np.minimum.reduce([(watermarks - self.keep) // step * step for step in self._steps])
        return oldest if self.floor is None else np.maximum(oldest, self.floor)


def check_keep(keep: int | None, lateness: int) -> int | None:
    """A valid KEEP, or `BadOptions`; None keeps everything."""
    if keep is None:
        return None
    if not isinstance(keep, int) or not 0 < keep <= FARTHEST:
        raise BadOptions(f"KEEP must be whole microseconds, more than 0, got {keep!r}; KEEP ALL removes nothing")
    if keep < SHARE:
        raise BadOptions(f"KEEP must be at least {readable(SHARE)}, got {readable(keep)}; KEEP ALL removes nothing")
    if keep < lateness:
        raise BadOptions(
            f"KEEP {readable(keep)} is shorter than LATENESS {readable(lateness)}: tuples that are still expected would"
            " be refused; keep at least as long"
        )
    return keep


class Judged(NamedTuple):
    """Which tuples of a batch are too far ahead, and which too old; None if none are. No tuple is both."""

    ahead: Mask | None
    old: Mask | None

    @property
    def refused(self) -> dict[str, int]:
        reasons = (("too_far_ahead", self.ahead), ("too_old", self.old))
        return {reason: int(mask.sum()) for reason, mask in reasons if mask is not None}

    @property
    def taken(self) -> Mask | None:
        """Which tuples are accepted; None if all are."""
        masks = [mask for mask in self if mask is not None]
        return ~np.logical_or.reduce(masks) if masks else None


def judge(
    times: Times,
    least: int,
    greatest: int,
    retention: Retention,
    pace: Pace,
    *,
    max_future: int,
    column: str,
    strict: bool = False,
) -> Judged:
    """Check a batch with times from `least` to `greatest`; if `strict`, raise `TooFarAhead` or else `TooOld`."""
    now = pace.now
    limit = now + max_future
    ahead = times > limit if greatest > limit else None
    if ahead is not None and strict:
        row = int(np.argmax(ahead))
        found = int(times[row])
        raise TooFarAhead(
            f"column {column!r}, row {row}: {instant(found)} is {rounded(found - now)} ahead of the clock;"
            f" {readable(max_future)} is the most"
        )
    oldest_yet = retention.oldest(pace.bound(min(greatest, limit)))
    if oldest_yet is None or least >= oldest_yet:
        return Judged(ahead, None)
    counting = times if ahead is None else np.where(ahead, BEGINNING, times)
    before = pace.before(counting, min(greatest, limit))
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
            f" stream's data begins at watermark {instant(int(before[row]))}"
        )
    return Judged(ahead, old)
