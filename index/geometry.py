"""The time dimension: spans, horizons and zones, as pure functions of timestamp and watermark.

`G_i` spans `T_i = T_1 * rate^(i-1)`. The border between `G_i` and `G_(i+1)` at watermark w is `horizon_i`, the greatest
multiple of `T_i` that is at least `T_1 + ... + T_i` before w. A timestamp belongs to the finest granularity whose
horizon it is not behind; behind `horizon_m` it is dropped. All times are integers, microseconds since the epoch.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from promising.errors import BadCollapse, BadGranularity
from promising.index.instants import END, FARTHEST


@dataclass(frozen=True)
class Geometry:
    """The time dimension of one summary: `GRANULARITY granularity AND COLLAPSE(rate, depth)`.

    >>> g = Geometry(granularity=60, rate=4, depth=3)
    >>> g.spans
    (60, 240, 960)
    >>> g.horizons(2000)
    (1920, 1680, 0)
    """

    granularity: int
    rate: int
    depth: int

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

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """`T_1 .. T_m`."""
        return tuple(self.granularity * self.rate**i for i in range(self.depth))

    @cached_property
    def reaches(self) -> tuple[int, ...]:
        """`T_1, T_1 + T_2, ...`: how far before the watermark a block of `G_i` must end to leave it."""
        return tuple(sum(self.spans[: i + 1]) for i in range(self.depth))

    def horizons(self, watermark: int) -> tuple[int, ...]:
        """`horizon_1 .. horizon_m`, descending."""
        return tuple((watermark - r) // t * t for t, r in zip(self.spans, self.reaches, strict=True))

    def oldest(self, watermark: int) -> int:
        """The least timestamp retained."""
        return (watermark - self.reaches[-1]) // self.spans[-1] * self.spans[-1]

    def oldest_at(self, watermarks: NDArray[np.int64]) -> NDArray[np.int64]:
        return (watermarks - self.reaches[-1]) // self.spans[-1] * self.spans[-1]

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
