"""One summary of a stream: its tuples by value and time, and their aging."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.errors import StorageError
from promising.index.coarse import Coarse
from promising.index.fine import Fine
from promising.index.geometry import Geometry
from promising.index.instants import BEGINNING
from promising.index.log import TupleLog
from promising.index.measures import Kinds, Measures
from promising.index.options import Options, Sizes
from promising.index.postings import Postings
from promising.index.prepared_load import Sum
from promising.index.unposted import Unposted


@dataclass
class Identity:
    name: str
    key: str
    geometry: Geometry
    sizes: Sizes
    auto: bool = False  # whether its structure may change
    kinds: Kinds = ()  # what its zones measure

    @property
    def using(self) -> str:
        """The kind of counts of its cells."""
        return self.sizes.counts.name


class SummaryState:
    """The write side: `advance`, then `insert`. `oldest` is the least time retained; `expired` counts the aged."""

    def __init__(self, identity: Identity, options: Options, log: TupleLog, seed: int, lateness: int) -> None:
        self.identity = identity
        self.options = options
        self.log = log
        self.seed = seed
        self.lateness = lateness
        self.horizons: tuple[int, ...] = ()
        self.floor: int | None = None  # older times had aged out before the summary was created
        self.watermark: int | None = None
        self._due: tuple[int, int] | None = None  # block of T_1 with the watermark, and the oldest time kept
        self.expired = 0
        self.postings: Postings | Unposted = Postings(log.capacity) if identity.sizes.postings else Unposted()
        geometry, sizes = identity.geometry, identity.sizes
        self.measures = Measures(identity.kinds, sizes.buckets)
        hasher = partial(log.hashes, identity.key, seed=seed)  # not a method of this object: that would be a cycle
        self.fine = Fine(sizes, options, geometry, log, self.postings, self.measures, hasher)
        self.coarse = Coarse(geometry, sizes, log, self.measures)

    @property
    def oldest(self) -> int:
        oldest = self.horizons[-1] if self.horizons else BEGINNING
        return oldest if self.floor is None else max(oldest, self.floor)

    @property
    def count(self) -> int:
        return self.fine.count + self.coarse.count

    def extended_by(self, watermark: int, least: int, greatest: int) -> bool:
        """Whether `advance` to that watermark moves nothing, and tuples of these times only extend the open zone."""
        still = self._due == self._due_at(watermark) and self.fine.limit == self._limit(watermark)
        return still and least >= max(self.horizons[0], self.oldest) and self.fine.extended_by(least, greatest)

    def _due_at(self, watermark: int) -> tuple[int, int]:
        geometry = self.identity.geometry
        return watermark // geometry.granularity, geometry.oldest(watermark)

    def advance(self, watermark: int) -> None:
        """Advance to a watermark, never backwards."""
        self.watermark = watermark
        due = self._due_at(watermark)
        if due != self._due:  # the other horizons move by whole blocks of T_1
            self._due = due
            self._collapse(watermark)
        limit = self._limit(watermark)
        if limit != self.fine.limit:
            near = self.fine.reach(limit)
            if len(near.rows):
                self._place(*near, limit - 1)

    def _limit(self, watermark: int) -> int:
        """Tuples from here on are ahead: after the block of the latest tuple that the lateness allows for."""
        length = self.identity.geometry.granularity
        return ((watermark + self.lateness) // length + 1) * length

    def _collapse(self, watermark: int) -> None:
        horizons = self.identity.geometry.horizons(watermark)
        self.horizons = horizons
        for zone in self.fine.collapse(horizons[0]):
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
        """Add tuples in the log, in order of arrival, dated `least` to `greatest`, at the watermark after them."""
        self.postings.reserve(self.log.capacity)
        oldest = self.oldest
        if least >= max(self.horizons[0], oldest):
            self.fine.insert(hashes, rows, times, least, greatest, posted=False)
            return
        self.postings.enter_all(hashes, rows)
        self._place(hashes, rows, times, greatest)

    def _place(
        self, hashes: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int64], greatest: int
    ) -> None:
        """Add tuples that have postings to the zones of their times."""
        oldest = self.oldest
        recent = times >= max(self.horizons[0], oldest)
        if recent.any():
            self.fine.insert(hashes[recent], rows[recent], times[recent], self.horizons[0], greatest, posted=True)
        above, least = self.horizons[0], int(times.min())
        for granularity in range(2, len(self.horizons) + 1):
            horizon = self.horizons[granularity - 1]
            where = (times >= max(horizon, oldest)) & (times < above)
            if where.any():
                self.coarse.insert(granularity, hashes[where], rows[where], times[where])
            above = horizon
            if horizon <= least:
                break
        self.expired += int((times < oldest).sum())

    def attach(
        self, hashes: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int64], sums: list[Sum] | None
    ) -> None:
        """Add tuples in the log as `insert` does: whole zones by precomputed `sums`, others one by one."""
        self.postings.reserve(self.log.capacity)
        self.postings.enter_all(hashes, rows)
        one_by_one = np.ones(len(times), np.bool_)
        for part in sums or ():
            if self.floor is not None and part.start < self.floor:
                continue  # some of its tuples had aged out before the summary was created
            inside = (times >= part.start) & (times < part.start + part.length)
            one_by_one &= ~inside
            zone = part.zone(
                rows[inside],
                hashes[inside],
                times[inside],
                self.identity.geometry,
                self.log,
                self.identity.sizes.counts,
                self.measures,
            )
            granularity = 1 + sum(part.start < horizon for horizon in self.horizons)
            if granularity > len(self.horizons):
                self.expired += zone.count
            else:
                self.coarse.add(granularity, zone)
        rest = np.flatnonzero(one_by_one)
        if len(rest):
            times = times[rest]
            self._place(hashes[rest], rows[rest], times, int(times.max()))

    def hashes(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """The hashes of the key at these rows."""
        return self.log.hashes(self.identity.key, rows, self.seed)

    def forget(self, rows: NDArray[np.int32]) -> None:
        """The log is about to release these rows, a chunk of its oldest arrivals."""
        if isinstance(self.postings, Postings):
            forget(self.postings, self.log, self.identity.key, self.seed, rows)

    def image(self) -> dict[str, Any]:
        return {
            "floor": self.floor,
            "watermark": self.watermark,
            "expired": self.expired,
            "postings": self.postings.image(self.log.stretches()),
            "fine": self.fine.image(),
            "coarse": self.coarse.image(self.log),
        }

    def restore(self, image: dict[str, Any]) -> None:
        """Restore from `image`, after the log."""
        self.floor, self.watermark, self.expired = image["floor"], image["watermark"], image["expired"]
        if self.watermark is not None:
            self._due = self._due_at(self.watermark)
            self.horizons = self.identity.geometry.horizons(self.watermark)
            self.fine.limit = self._limit(self.watermark)
        self.postings.reserve(self.log.capacity)
        self.postings.restore(image["postings"], self.log.stretches())
        self.fine.restore(image["fine"])
        self.coarse.restore(image["coarse"])

    @property
    def keys(self) -> int:
        """Distinct keys, as far as postings know them."""
        return self.postings.keys if isinstance(self.postings, Postings) else 0

    @property
    def counted_bytes(self) -> int:
        """Bytes of the counts of keys that grow with tuples."""
        kind = self.identity.sizes.counts
        if not kind.tuple_bytes:
            return 0
        whole = [block.whole.counts for block in self.fine.blocks.values()]
        coarse = [zone.counts for zones in self.coarse.levels.values() for zone in zones.values()]
        return sum(kind.nbytes(counts, 0) for counts in (self.fine.pool.counts, *whole, *coarse))

    @property
    def nbytes(self) -> int:
        return self.fine.nbytes + self.coarse.nbytes + self.postings.nbytes(len(self.log))


def forget(postings: Postings, log: TupleLog, key: str, seed: int, rows: NDArray[np.int32]) -> None:
    """Remove rows that the log is about to release, of the oldest chunk in the postings."""
    try:
        hashes = log.hashes(key, rows, seed)
    except StorageError:  # cold and unreadable: they are released all the same
        gone = np.zeros(log.capacity // log.chunk, np.bool_)
        gone[rows[0] // log.chunk] = True
        postings.purge(gone, log.chunk)
        return
    postings.forget(hashes)
