"""`G_2` and further: zones of fixed length, whose summaries are a pure function of the tuples and the watermark."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from promising.index.geometry import Geometry
from promising.index.log import TupleLog
from promising.index.measures import Measures
from promising.index.options import Sizes
from promising.index.zone import CoarseZone


class Coarse:
    """All granularities but the first. `levels[i]` has the zones of `G_i` by number, floor(time / length)."""

    def __init__(self, geometry: Geometry, sizes: Sizes, log: TupleLog, measures: Measures) -> None:
        self.geometry = geometry
        self.measures = measures
        self._log = log
        self.sizes = sizes
        self.levels: dict[int, SortedDict[int, CoarseZone]] = {i: SortedDict() for i in range(2, geometry.levels + 1)}

    def _home(self, granularity: int, time: int) -> CoarseZone:
        length = self.geometry.zone_length(granularity)
        zones = self.levels[granularity]
        number = time // length
        zone = zones.get(number)
        if zone is None:
            zone = zones[number] = CoarseZone.empty(number, length, self.geometry, self.sizes, self.measures)
        return zone

    def insert(
        self,
        granularity: int,
        hashes: NDArray[np.int64],
        rows: NDArray[np.int32],
        times: NDArray[np.int64],
    ) -> None:
        """Insert late tuples, all of one granularity."""
        homes = times // self.geometry.zone_length(granularity)
        for home in np.unique(homes):
            where = homes == home
            first = int(times[where][0])
            zone = self._home(granularity, first)
            zone.insert(hashes[where], rows[where], times[where], self.sizes, self._log)
            zone.take("late", 0, int(where.sum()))

    def add(self, granularity: int, zone: CoarseZone) -> None:
        """Add a zone's content to the zone of this granularity that contains it; the caller keeps `zone`."""
        self._home(granularity, zone.start).absorb(zone)

    def receive(self, zone: CoarseZone, granularity: int) -> None:
        """Collapse a zone of the next finer granularity into the zone of this one that contains it."""
        zones = self.levels[granularity]
        number = zone.start // self.geometry.zone_length(granularity)
        if granularity == 2 and number not in zones:
            zones[number] = zone  # a block of G_1 is a zone of G_2
        else:
            self._home(granularity, zone.start).absorb(zone)

    def collapse(self, horizons: tuple[int, ...]) -> int:
        """Move zones behind their horizon one granularity on, finest first; returns the tuples dropped."""
        dropped = 0
        for granularity, zones in self.levels.items():
            while zones and zones.peekitem(0)[1].start < horizons[granularity - 1]:
                _, zone = zones.popitem(0)
                if granularity == self.geometry.levels:
                    dropped += zone.count
                else:
                    self.receive(zone, granularity + 1)
        return dropped

    def image(self, log: TupleLog) -> list[dict[str, Any]]:
        return [
            {"granularity": granularity, **zone.image(log)}
            for granularity, zones in self.levels.items()
            for zone in zones.values()
        ]

    def restore(self, image: list[dict[str, Any]]) -> None:
        for saved in image:
            self.levels[saved["granularity"]][saved["number"]] = CoarseZone.restored(
                saved, self.sizes.counts, self.measures
            )

    @property
    def deepest(self) -> int:
        """The last granularity that has zones; 1 if none has."""
        return max((granularity for granularity, zones in self.levels.items() if zones), default=1)

    @property
    def count(self) -> int:
        return sum(z.count for zones in self.levels.values() for z in zones.values())

    @property
    def nbytes(self) -> int:
        return sum(z.nbytes for zones in self.levels.values() for z in zones.values())
