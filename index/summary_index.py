"""A summary as its users see it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from index.bare import BareReader, BareState
from index.options import Options, Sizes
from index.read import Reader
from index.regions import Description, Matches, Region, Regions, Story, Window, ZoneInfo
from index.story import tell
from index.summary import SummaryState
from index.zone import buckets_of
from summaries.adt import Estimates
from summaries.errors import BadQuestion, UnknownName


class SummaryIndex:
    """The read side of one summary of a stream; `Stream.create_summary` makes it, `Stream.append` feeds it.

    Keys are int or string arrays, as the key column is. Windows are half-open `(start, end)` in microseconds of event
    time. Every method sees the stream between two batches.
    """

    def __init__(self, state: SummaryState | BareState, lock: RLock, options: Options) -> None:
        self.state = state
        self.options = options
        self._lock: Any = lock
        self.dropped = False
        self._reader: Reader | BareReader = BareReader(state) if isinstance(state, BareState) else Reader(state)

    @contextmanager
    def reading(self) -> Iterator[SummaryState | BareState]:
        """Its state between two batches, and only as long as there is a summary."""
        with self._lock:
            if self.dropped:
                raise UnknownName(f"summary {self.name!r} has been dropped")
            yield self.state

    @property
    def name(self) -> str:
        return self.state.identity.name

    @property
    def key(self) -> str:
        return self.state.identity.key

    @property
    def structure(self) -> str:
        return self.state.identity.sizes.structure

    @property
    def buckets(self) -> int:
        """Value buckets of a zone."""
        return self.state.identity.sizes.buckets

    @property
    def reach(self) -> int:
        """How far behind the watermark a tuple may be and still be kept, in microseconds, at least."""
        return self.state.identity.geometry.reaches[-1]

    @property
    def count(self) -> int:
        """Tuples kept."""
        with self.reading():
            return self.state.count

    def probe(self, keys: Any, window: Window = None) -> Matches:
        """Exactly the tuples that have one of the keys, each once for every time its key is asked for."""
        with self.reading():
            return self._reader.probe(keys, window)

    def fetch(
        self, keys: Any, window: Window = None, columns: list[str] | None = None
    ) -> tuple[NDArray[np.int32], pa.Table]:
        """`probe` and `Stream.take` in one: for each tuple the place of its key in `keys`, and its columns."""
        with self.reading():
            return self._reader.fetch(keys, window, columns)

    def regions(self, keys: Any, window: Window = None, search: str = "flat") -> Regions:
        """The cells that may hold tuples of each key, with an estimate and bounds; no cell that does is missing.

        `search` is how they are found, "flat" or "pyramid"; what is found is the same.
        """
        with self.reading():
            return self._reader.regions(keys, window, search)

    def visit(self, region: Region | tuple[int, int, int], window: Window = None) -> NDArray[np.int32]:
        """Log rows of a region, given as such or as (granularity, zone, bucket); `Stream.take` reads them."""
        with self.reading():
            return self._reader.visit(region, window)

    def estimate(self, keys: Any, window: Window = None) -> Estimates:
        """How many tuples of each key there are in the window: from the sketches, capped by what the postings know.

        Tuples that no sealed zone has yet are counted exactly.
        """
        with self.reading():
            return self._reader.estimate(keys, window)

    def estimate_hashed(self, hashes: NDArray[np.int64], window: Window = None) -> Estimates:
        """`estimate` of keys given by the hashes that the summary uses for them."""
        with self.reading():
            return self._reader.estimate_hashed(hashes, window)

    def describe(self, cells: bool = False) -> Description:
        """Granularities, zones with the reason for each, counts and bytes; with `cells` the tuples of every cell.

        Cells of sealed zones are known; only tuples of the open zone and late ones are counted for it.
        """
        with self.reading():
            state, identity = self.state, self.state.identity
            bare = isinstance(state, BareState)
            return Description(
                name=identity.name,
                key=identity.key,
                structure=identity.sizes.structure,
                spans=identity.geometry.spans,
                zones=() if isinstance(state, BareState) else tuple(_zones(state)),
                tuples=state.count,
                expired=state.expired,
                keys=0 if bare else state.postings.keys,  # type: ignore[union-attr]  # bare has none
                cuts={} if bare else dict(state.fine.cuts),  # type: ignore[union-attr]  # bare has none
                bytes=state.nbytes,
                ceiling=identity.sizes.ceiling,
                watermark=state.watermark,
                horizons=state.horizons,
                cells=_cells(state) if cells else None,
            )

    def story(self, granularity: int, zone: int) -> Story:
        """Why a zone begins and ends where it does, what it has absorbed, and when it collapses or expires.

        Raises `UnknownName` for a zone that is not there (never, or aged since), `BadQuestion` for a granularity that
        the summary does not have, and without structure.
        """
        with self.reading():
            if isinstance(self.state, BareState):
                raise BadQuestion(f"summary {self.name!r} has STRUCTURE none, and so no zones to tell of")
            depth = self.state.identity.geometry.depth
            if not isinstance(granularity, int) or not 1 <= granularity <= depth:
                raise BadQuestion(f"summary {self.name!r} has granularities 1 to {depth}, not {granularity!r}")
            found = (z for z in _zones(self.state) if (z.granularity, z.zone) == (granularity, zone))
            info = next(found, None)
            if info is None:
                raise UnknownName(f"no zone {zone} in G_{granularity}: never there, or aged since")
            return tell(self.state, info)


def _zones(state: SummaryState) -> list[ZoneInfo]:
    """Newest granularity first, oldest zone first."""
    out = []
    for block in state.fine.blocks.values():
        for zone in block.zones:
            out.append(ZoneInfo(1, zone.number, zone.first, zone.last + 1, zone.count, zone.reason))
        if block.aside:
            first, last = state.log.span(block.waiting()[1])
            out.append(ZoneInfo(1, block.late, first, last + 1, block.aside, "late"))
    if len(state.fine.open_rows):
        first, last = state.log.span(state.fine.open_rows)
        out.append(ZoneInfo(1, state.fine.number, first, last + 1, len(state.fine.open_rows), "open"))
    for granularity, zones in state.coarse.levels.items():
        length = state.identity.geometry.zone_length(granularity)
        for coarse in zones.values():
            out.append(
                ZoneInfo(granularity, coarse.number, coarse.start, coarse.start + length, coarse.count, "calendar")
            )
    return out


def _cells(state: SummaryState | BareState) -> NDArray[np.int64]:
    """Tuples by zone and bucket, in the order of `_zones`."""
    sizes = state.identity.sizes
    out: list[NDArray[np.int64]] = []
    if isinstance(state, SummaryState):
        fine = state.fine
        for block in fine.blocks.values():
            out += [fine.pool.cells[zone.slot] for zone in block.zones]
            if block.aside:
                out.append(_held(block.waiting()[0], sizes))
        if len(fine.open_rows):
            out.append(_held(state.log.hashes(state.identity.key, fine.open_rows, state.seed), sizes))
        out += [zone.cells for zones in state.coarse.levels.values() for zone in zones.values()]
    return np.stack(out) if out else np.zeros((0, sizes.buckets), np.int64)


def _held(hashes: NDArray[np.int64], sizes: Sizes) -> NDArray[np.int64]:
    return np.bincount(buckets_of(hashes, sizes), minlength=sizes.buckets).astype(np.int64)


def best_summary(summaries: Mapping[str, SummaryIndex], attribute: str) -> SummaryIndex | None:
    """The best summary of an attribute: one with structure before one without, then the one that reaches furthest."""
    found = [s for s in summaries.values() if s.key == attribute]
    structured = [s for s in found if s.structure != "none"]
    return max(structured or found, key=lambda s: (s.reach, s.name), default=None)
