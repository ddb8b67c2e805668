"""Fading: by what factor the priority of an entry falls with the age of its tuples.

A fade divides the times of a snapshot into bands, numbered from 1 on, the newest first. An entry that fades is confined
to one band of each side.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from promising.index.instants import BEGINNING
from promising.index.regions import Region
from promising.index.snapshot import Snapshot

Bands = NDArray[np.int64]

AGES = np.concatenate((np.arange(0, 4, 0.25), np.arange(4, 20), 20 * 2.0 ** np.arange(5)))
"""Where the bands of a half life begin, in half lives: quarters up to 4, whole ones up to 20, then 20, 40, ... 320."""


class Fade(Protocol):
    def horizons(self, snapshot: Snapshot) -> NDArray[np.int64]:
        """A time is in the band that is one more than the number of horizons, descending, that are later."""

    def factor(self, bands: Sequence[Bands]) -> NDArray[np.float64]:
        """The factor of entries confined to a band on each side: the product of those of the sides."""

    def bands(self, snapshot: Snapshot, region: Region) -> tuple[int, int]:
        """The first and the last band that a region reaches into."""

    def __str__(self) -> str:
        """As EXPLAIN shows it."""


@dataclass(frozen=True)
class FadeFactor:
    """`FADE FACTOR a`: a band is a granularity, and each step back multiplies the priority by `a`."""

    a: float

    def horizons(self, snapshot: Snapshot) -> NDArray[np.int64]:
        return snapshot.horizons

    def factor(self, bands: Sequence[Bands]) -> NDArray[np.float64]:
        steps = sum(bands) - len(bands)
        out: NDArray[np.float64] = np.power(self.a, steps, dtype=np.float64)
        return out

    def bands(self, snapshot: Snapshot, region: Region) -> tuple[int, int]:
        return region.granularity, region.granularity

    def __str__(self) -> str:
        return f"fading by {self.a:g} a granularity"


@dataclass(frozen=True)
class HalfLife:
    """`FADE HALF LIFE span`: the priority halves with every span, in microseconds, between a tuple and the end of the
    window. Ages are rounded down to the next of `AGES`, so that a band is narrower where it matters more.
    """

    span: int

    def horizons(self, snapshot: Snapshot) -> NDArray[np.int64]:
        edges = (max(snapshot.now + 1 - math.ceil(age * self.span), BEGINNING) for age in AGES[1:].tolist())
        return np.fromiter(edges, np.int64, len(AGES) - 1)

    def factor(self, bands: Sequence[Bands]) -> NDArray[np.float64]:
        out: NDArray[np.float64] = np.exp2(-sum(AGES[b - 1] for b in bands))
        return out

    def bands(self, snapshot: Snapshot, region: Region) -> tuple[int, int]:
        horizons = self.horizons(snapshot)
        return 1 + int((region.end - 1 < horizons).sum()), 1 + int((region.start < horizons).sum())

    def __str__(self) -> str:
        return f"priority halves with every {self.span / 1e6:g} s of age"
