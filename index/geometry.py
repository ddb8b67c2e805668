"""The time dimension: spans, horizons and zones, as pure functions of timestamp and watermark.

`G_i` spans `T_i = T_1 * rate^(i-1)`. The border between `G_i` and `G_(i+1)` at watermark w is `horizon_i`, the greatest
multiple of `T_i` that is at least `T_1 + ... + T_i` before w. A timestamp belongs to the finest granularity whose
horizon it is not behind. The last granularity has what the stream retains beyond: all of the past, or with KEEP the
zones that do not end before it. All times are integers, microseconds since the epoch.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from promising.errors import BadCollapse, BadGranularity
from promising.index.instants import BEGINNING, END, FARTHEST
from promising.index.time_text import readable

PARTS = 64  # a power of two
SHARE = 8  # no zone is longer than this part of what the stream keeps


def kept_since(watermark: int, keep: int, step: int) -> int:
    """The least time retained: the start of the step that holds the instant `keep` before the watermark."""
    return (watermark - keep) // step * step


@dataclass(frozen=True)
class Geometry:
    """The time dimension of one summary: `GRANULARITY granularity AND COLLAPSE(rate, depth)`.

    depth: granularities that were asked for. Where the stream keeps more than they span, further ones of the same rate
    follow, so that their number grows with the logarithm of the span. keep: how long the stream keeps tuples; None: for
    ever. Then zones are not longer than an eighth of it.

    >>> g = Geometry(granularity=60, rate=4, depth=3)
    >>> g.spans[:3]
    (60, 240, 960)
    >>> g.horizons(2000)[:3]
    (1920, 1680, 0)
    >>> Geometry(granularity=60, rate=4, depth=3, keep=2000).horizons(2000)
    (1920, 1680, 0)
    """

    granularity: int
    rate: int
    depth: int
    keep: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.granularity, int):
            raise BadGranularity(f"GRANULARITY must be whole microseconds, got {self.granularity!r}")
        if not isinstance(self.rate, int) or not isinstance(self.depth, int):
            raise BadCollapse(f"COLLAPSE needs a whole rate and depth, got {self.rate!r} and {self.depth!r}")
        if self.granularity <= 0:
            raise BadGranularity(f"GRANULARITY must be positive, got {self.granularity} microseconds")
        if self.rate < 2:
            raise BadCollapse(f"COLLAPSE needs a rate of at least 2 (zones per granularity), got {self.rate}")
        if self.depth < 1:
            raise BadCollapse(f"COLLAPSE needs a depth of at least 1 (granularities), got {self.depth}")
        if self.depth > 62 or self.granularity * self.rate**self.depth >= FARTHEST:
            raise BadCollapse(
                f"COLLAPSE({self.rate}, {self.depth}) of {self.granularity} microseconds reaches back further than time"
                " goes; lower the rate, the depth or the granularity"
            )
        if self.keep is not None and SHARE * self.granularity > self.keep:
            raise BadGranularity(
                f"GRANULARITY is {readable(self.granularity)}, but the stream keeps {readable(self.keep)}: zones are"
                f" removed whole, so it is at most an eighth of that, {readable(self.keep // SHARE)}"
            )

    @cached_property
    def levels(self) -> int:
        """The number of granularities, at least 2."""
        longest = FARTHEST - 1 if self.keep is None else self.keep // SHARE
        zone, levels = self.granularity, 1  # the length of a zone of the next granularity
        while zone <= longest:
            zone, levels = zone * self.rate, levels + 1
        return levels

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """`T_1, T_2, ...` of every granularity but the last, which has the rest."""
        return tuple(self.granularity * self.rate**i for i in range(self.levels - 1))

    @cached_property
    def reaches(self) -> tuple[int, ...]:
        """`T_1, T_1 + T_2, ...`: how far before the watermark a block of `G_i` must end to leave it."""
        return tuple(accumulate(self.spans))

    @cached_property
    def parts(self) -> int:
        """The spans by which a zone of `G_2` and further counts its tuples: at most 64, and nested as zones are."""
        return min(self.granularity & -self.granularity, PARTS)

    @property
    def asked(self) -> int:
        """The span of the granularities that were asked for."""
        return sum(self.granularity * self.rate**i for i in range(self.depth))

    def horizons(self, watermark: int) -> tuple[int, ...]:
        """`horizon_1, horizon_2, ...` of every granularity, descending; the last is `oldest`."""
        borders = ((watermark - r) // t * t for t, r in zip(self.spans, self.reaches, strict=True))
        return (*(max(border, BEGINNING) for border in borders), self.oldest(watermark))

    def oldest(self, watermark: int) -> int:
        """The least timestamp retained."""
        return BEGINNING if self.keep is None else kept_since(watermark, self.keep, self.spans[-1])

    @property
    def most_zones(self) -> int:
        """An upper bound on the zones of `G_2` and all after it at once."""
        last = 0 if self.keep is None else self.keep // self.spans[-1]
        return (self.levels - 1) * (2 * self.rate + 2) + last

    def zones(self, watermark: int) -> list[tuple[int, int]]:
        """(from, length) of each granularity's zones at that watermark, finest first; for `zone_starts`."""
        return [
            (horizon, self.zone_length(max(granularity, 2)))
            for granularity, horizon in enumerate(self.horizons(watermark), 1)
        ]

    def zone_length(self, granularity: int) -> int:
        """Length of a zone of `G_i`, i >= 2: `T_(i-1)`."""
        return self.spans[granularity - 2]


def zone_starts(times: NDArray[np.int64], zones: list[tuple[int, int]]) -> NDArray[np.int64]:
    """The start of each time's zone; 0 for times before all of them."""
    out = np.zeros(len(times), np.int64)
    above = END
    for horizon, length in zones:
        inside = (times >= horizon) & (times < above)
        out[inside] = times[inside] // length * length
        above = horizon
    return out
