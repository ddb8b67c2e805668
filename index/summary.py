"""One summary of a stream: where its tuples are in value and time, and how they age."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from index.coarse import Coarse
from index.fine import Fine
from index.geometry import Geometry
from index.log import TupleLog
from index.options import Options, Sizes
from index.postings import Postings


@dataclass
class Identity:
    """What a summary is called and built from."""

    name: str
    key: str
    geometry: Geometry
    sizes: Sizes


class SummaryState:
    """The write side. The stream calls `advance`, then `insert`; readers are in `index/read.py`.

    `oldest` is the least timestamp kept. `expired` counts tuples that were accepted and have left since.
    """

    def __init__(self, identity: Identity, options: Options, log: TupleLog, seed: int) -> None:
        self.identity = identity
        self.log = log
        self.seed = seed
        self.horizons: tuple[int, ...] = ()
        self.floor: int | None = None
        """What is older had aged out of the stream before the summary was made."""
        self.watermark: int | None = None
        self._block: int | None = None  # of T_1, that the watermark is in
        self.expired = 0
        self.postings = Postings(log.capacity)
        geometry, sizes = identity.geometry, identity.sizes
        self.fine = Fine(sizes, options, geometry.granularity, log.times, self.postings)
        self.coarse = Coarse(geometry, sizes)

    @property
    def oldest(self) -> int:
        oldest = self.horizons[-1] if self.horizons else -(1 << 62)
        return oldest if self.floor is None else max(oldest, self.floor)

    @property
    def count(self) -> int:
        """Tuples kept."""
        return self.fine.count + self.coarse.count

    def advance(self, watermark: int) -> None:
        """Age to a watermark no less than the last one."""
        self.watermark = watermark
        block = watermark // self.identity.geometry.granularity
        if block == self._block:  # horizons move by whole blocks of T_1
            return
        self._block = block
        horizons = self.identity.geometry.horizons(watermark)
        self.horizons = horizons
        for zone in self.fine.collapse(horizons[0]):
            if len(horizons) == 1:
                self.expired += zone.count
            else:
                self.coarse.receive(zone, 2)
        self.expired += self.coarse.collapse(horizons)

    def insert(
        self,
        hashes: NDArray[np.int64],
        rows: NDArray[np.int32],
        times: NDArray[np.int64],
        least: int,
        greatest: int,
    ) -> None:
        """Add tuples that are in the log, in order of arrival, at the watermark that holds after them.

        No time is before `least` or after `greatest`.
        """
        oldest = self.oldest
        if least >= max(self.horizons[0], oldest):
            self.fine.insert(hashes, rows, times, least, greatest, posted=False)
            return
        self.postings.enter_all(hashes, rows)
        recent = times >= max(self.horizons[0], oldest)
        if recent.any():
            self.fine.insert(hashes[recent], rows[recent], times[recent], self.horizons[0], greatest, posted=True)
        above = self.horizons[0]
        for granularity in range(2, len(self.horizons) + 1):
            horizon = self.horizons[granularity - 1]
            where = (times >= max(horizon, oldest)) & (times < above)
            if where.any():
                self.coarse.insert(granularity, hashes[where], rows[where], times[where])
            above = horizon
        self.expired += int((times < oldest).sum())

    def forget(self, rows: NDArray[np.int32]) -> None:
        """The log is about to give these rows back, the oldest arrivals it has."""
        self.postings.forget(self.log.hashes(self.identity.key, rows, self.seed))

    @property
    def nbytes(self) -> int:
        return self.fine.nbytes + self.coarse.nbytes + self.postings.nbytes(len(self.log))
