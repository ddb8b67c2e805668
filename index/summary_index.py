"""The public interface of a summary."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import BadQuestion, CeilingTooLow, StorageError, UnknownName
from promising.index.auto_structure import Auto
from promising.index.kernels.seal import extent
from promising.index.measure_figures import figure_of, figure_text, told_measures, zone_figures
from promising.index.measures import Kinds
from promising.index.options import AUTO, Options, Sizes
from promising.index.reader import Reader
from promising.index.regions import (
    Description,
    Matches,
    Region,
    Regions,
    Story,
    Window,
    ZoneInfo,
    check_window,
    cutting_in_words,
    structure_in_words,
)
from promising.index.story import tell
from promising.index.summary import SummaryState
from promising.index.unindexed import BareReader, BareState
from promising.index.zone import buckets_of
from promising.summaries.adt import Estimates

T = TypeVar("T")


class Home(Protocol):
    """The stream of a summary, as far as the choice of a structure needs it."""

    cpu: Callable[[], int]
    broken: bool

    def change(self, summary: "SummaryIndex", structure: str) -> SummaryState | BareState: ...


class SummaryIndex:
    """The read side of one summary of a stream; `Stream.create_summary` makes it, `Stream.append` feeds it.

    Keys are int or string arrays, as the key column is. Windows are half-open `(start, end)` in microseconds of event
    time. Every method sees the stream between two batches.
    """

    def __init__(
        self, state: SummaryState | BareState, lock: RLock, options: Options, auto: Auto | None, home: Home
    ) -> None:
        self.options = options
        self.auto = auto  # chooses the structure, with `STRUCTURE auto`
        self.building: str | None = None  # what a change of measures is at
        self.aging = 0  # CPU time of collapse and expiry since the last batch, with auto
        self.issued = 0  # zone numbers of `G_1` used by previous structures
        self._home = home
        self._lock: Any = lock
        self.dropped = False
        self.replace(state)

    def replace(self, state: SummaryState | BareState) -> None:
        """Continue with another state of the same tuples. The stream's lock is held."""
        self.state = state
        self._reader: Reader | BareReader = BareReader(state) if isinstance(state, BareState) else Reader(state)

    @contextmanager
    def reading(self) -> Iterator[SummaryState | BareState]:
        """Its state, locked between two batches; raises if it was dropped."""
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
    def kinds(self) -> Kinds:
        """What its zones measure."""
        return self.state.identity.kinds

    @property
    def measures(self) -> tuple[str, ...]:
        return tuple(str(kind.measure) for kind in self.kinds)

    @property
    def structure(self) -> str:
        return self.state.identity.sizes.structure

    @property
    def structure_text(self) -> str:
        """Its structure in words; if it was chosen, with the reason."""
        return self.structure if self.auto is None else structure_in_words(AUTO, self.structure, self.auto.why)

    @property
    def cutting(self) -> str:
        """Whether its zones follow the stream, in words."""
        return cutting_in_words(self.structure, self.state.fine.cuts) if isinstance(self.state, SummaryState) else ""

    @property
    def buckets(self) -> int:
        return self.state.identity.sizes.buckets

    @property
    def reach(self) -> int:
        """The span of GRANULARITY and COLLAPSE, in microseconds, by which the best of several summaries is chosen."""
        return self.state.identity.geometry.asked

    @property
    def count(self) -> int:
        with self.reading():
            return self.state.count

    def probe(self, keys: Any, window: Window = None) -> Matches:
        """Exactly the tuples with one of the keys, once per occurrence of the key in `keys`."""
        with self.reading():
            if self.auto is None or self.auto.skips("probe"):
                return self._reader.probe(keys, window)
            self.consider()
            found, spent = self._timed(lambda: self._reader.probe(keys, window))
            self.auto.probed(len(keys), len(found), *self._weight(window), spent)
            return found

    def fetch(
        self, keys: Any, window: Window = None, columns: list[str] | None = None
    ) -> tuple[NDArray[np.int32], pa.Table]:
        """`probe` and `Stream.take` in one: the index of each tuple's key in `keys`, and its columns."""
        with self.reading():
            if self.auto is None or self.auto.skips("probe"):
                return self._reader.fetch(keys, window, columns)
            self.consider()
            found, spent = self._timed(lambda: self._reader.fetch(keys, window, columns))
            self.auto.probed(len(keys), len(found[0]), *self._weight(window), spent)
            return found

    def regions(self, keys: Any, window: Window = None, search: str = "flat") -> Regions:
        """The cells that may hold each key, none missing, with bounds. search: "flat" or "pyramid", the same result."""
        with self.reading():
            if self.auto is None or self.auto.skips("look"):
                return self._reader.regions(keys, window, search)
            self.consider()
            found, spent = self._timed(lambda: self._reader.regions(keys, window, search))
            self.auto.looked(len(keys), len(self.state.log), spent)
            return found

    def visit(self, region: Region | tuple[int, int, int], window: Window = None) -> NDArray[np.int32]:
        """Log rows of a region, also given as (granularity, zone, bucket); `Stream.take` reads them."""
        with self.reading():
            if self.auto is None or self.auto.skips("visit"):
                return self._reader.visit(region, window)
            found = self._reader.visit(region, window)
            self.auto.visited(len(found), *self._weight(window))  # no change here: the region must stay valid
            return found

    def estimate(self, keys: Any, window: Window = None) -> Estimates:
        """Tuples of each key in the window, from the sketches, capped by postings if any; unsealed ones exactly."""
        with self.reading():
            return self._estimated(keys, window, lambda: self._reader.estimate(keys, window))

    def estimate_hashed(self, hashes: NDArray[np.int64], window: Window = None) -> Estimates:
        """`estimate` of keys given by their hashes."""
        with self.reading():
            return self._estimated(hashes, window, lambda: self._reader.estimate_hashed(hashes, window))

    def cpu(self) -> int:
        """The CPU time that `probed` is about, in nanoseconds."""
        return self._home.cpu()

    def probed(self, keys: int, tuples: int, window: Window, spent: int) -> None:
        """Count tuples of so many keys that were read in slices."""
        with self.reading():
            if self.auto is not None and not self.auto.skips("probe"):
                self.auto.probed(keys, tuples, *self._weight(window), spent)

    # --- STRUCTURE auto --------------------------------------------------------------------------------------------

    @property
    def measured(self) -> bool:
        """Whether to measure the next batch."""
        return self.auto is not None and self.auto.measuring

    def age(self, work: Callable[[], None]) -> None:
        """Run a part of collapse and expiry, and measure it."""
        if self.measured:
            self.aging += self._timed(work)[1]
        else:
            work()

    def inserted(self, tuples: int, spent: int | None) -> None:
        """A batch was inserted; its cost includes the preceding collapse and expiry."""
        if self.auto is None:
            return
        if spent is None:
            self.auto.inserted(tuples, None)
        else:
            cuts = self.state.fine.cuts if isinstance(self.state, SummaryState) else None
            self.auto.inserted(tuples, spent + self.aging, cuts)
        self.aging = 0

    def queried(self, tuples: int, budget: int | None = None) -> None:
        """A query is about to need rows by key, of so many tuples. A change may take a tenth of its budget."""
        with self.reading():
            if self.auto is not None:
                self.auto.queried(tuples)
                self.consider(None if budget is None else budget // 10)

    def consider(self, most: int | None = None) -> None:
        """Change the structure if that pays off and is expected to take at most `most` nanoseconds."""
        if self.auto is None or not self.auto.news or self._home.broken:
            return
        with self._lock:
            kept, cold = self._kept()
            chosen = self.auto.choice(kept, cold)
            if chosen is None or (most is not None and self.auto.rebuild(kept, cold) > most):
                return
            try:
                self.change(chosen, None)
            except (CeilingTooLow, MemoryError, StorageError) as problem:
                self.auto.stays(f"a change to {chosen} failed: {type(problem).__name__}")

    def change(self, structure: str, why: str | None = "it was asked for") -> None:
        """Change the structure. Answers do not change; regions found before become invalid."""
        with self.reading():
            if self.auto is None:
                raise BadQuestion(f"summary {self.name!r} was made with STRUCTURE {self.structure}, and keeps it")
            if structure == self.structure:
                return
            kept, cold = self._kept()
            state, spent = self._timed(lambda: self._home.change(self, structure))
            self.replace(state)
            self.auto.changed(structure, kept, cold, spent, why)

    def reason(self, why: str | None) -> None:
        """Restore the reason for the structure after a restart."""
        if self.auto is not None and why is not None:
            self.auto.why = why

    def _kept(self) -> tuple[int, int]:
        """Tuples in the log, and those of them on disk."""
        kept = len(self.state.log)
        return kept, kept - self.state.log.warm

    def _timed(self, work: Callable[[], T]) -> tuple[T, int]:
        began = self._home.cpu()
        return work(), self._home.cpu() - began

    def _estimated(self, keys: Any, window: Window, look: Callable[[], T]) -> T:
        if self.auto is None or self.auto.skips("estimate"):
            return look()
        self.consider()
        found, spent = self._timed(look)
        self.auto.estimated(len(keys), *self._weight(window), spent)
        return found

    def _weight(self, window: Window) -> tuple[int, int]:
        """Tuples in the window, assuming uniform times, and in the log."""
        kept = len(self.state.log)
        start, end = check_window(window)
        first, last = self.state.log.time_range
        first = max(first, self.state.oldest)
        inside = max(min(end, last + 1) - max(start, first), 0)
        return int(kept * inside / max(last + 1 - first, 1)), kept

    # --- description -----------------------------------------------------------------------------------------------

    def describe(self, cells: bool = False, show: str | None = None) -> Description:
        """Granularities, zones and reasons, counts, bytes.

        cells: with the tuples of every cell, counted only if unsealed. show: with a figure of every zone or cell, such
        as "avg(price)", of what is measured.
        """
        with self.reading():
            state, identity = self.state, self.state.identity
            figure = figure_of(self.name, self.kinds, show) if show else None
            bare = isinstance(state, BareState)
            geometry = identity.geometry
            deepest = 1 if isinstance(state, BareState) else state.coarse.deepest
            shown = max(min(geometry.depth, geometry.levels), deepest)
            return Description(
                name=identity.name,
                key=identity.key,
                structure=AUTO if identity.auto else identity.sizes.structure,
                now=identity.sizes.structure,
                why="" if self.auto is None else self.auto.why,
                spans=tuple(geometry.granularity * geometry.rate**i for i in range(shown)),
                zones=() if isinstance(state, BareState) else tuple(_zones(state)),
                tuples=state.count,
                expired=state.expired,
                keys=state.keys if isinstance(state, SummaryState) else 0,
                cuts={} if bare else dict(state.fine.cuts),  # type: ignore[union-attr]  # bare has none
                bytes=state.nbytes,
                ceiling=identity.sizes.ceiling,
                sketch_bytes=identity.sizes.sketches,
                tuple_bytes=identity.sizes.tuple_bytes,
                key_bytes=identity.sizes.key_bytes,
                watermark=state.watermark,
                horizons=state.horizons[:shown],
                cells=_cells(state) if cells else None,
                using="" if bare and not identity.auto else identity.using.upper(),
                measures=tuple(kind.measure.sql for kind in identity.kinds),
                postings=self.options.postings,
                building=self.building or "",
                show="" if figure is None else figure_text(*figure),
                shown=None if figure is None else zone_figures(state, *figure),
            )

    def story(self, granularity: int, zone: int) -> Story:
        """Why a zone begins and ends where it does, what it has absorbed, and when it collapses or expires.

        Raises `UnknownName` for a missing zone (never existed, or aged out), `BadQuestion` for an invalid granularity,
        and without structure.
        """
        with self.reading():
            if isinstance(self.state, BareState):
                now = "chosen STRUCTURE none for now" if self.auto is not None else "STRUCTURE none"
                raise BadQuestion(f"summary {self.name!r} has {now}, and so no zones to describe")
            depth = self.state.identity.geometry.levels
            if not isinstance(granularity, int) or not 1 <= granularity <= depth:
                raise BadQuestion(f"summary {self.name!r} has granularities 1 to {depth}, not {granularity!r}")
            found = (z for z in _zones(self.state) if (z.granularity, z.zone) == (granularity, zone))
            info = next(found, None)
            if info is None:
                raise UnknownName(f"no zone {zone} in G_{granularity}: never there, or aged since")
            return replace(tell(self.state, info), measures=told_measures(self.state, _zones(self.state), info))


def _zones(state: SummaryState) -> list[ZoneInfo]:
    """Finest granularity first, oldest zone first."""
    out = []
    for block in state.fine.blocks.values():
        for zone in block.zones:
            out.append(ZoneInfo(1, zone.number, zone.first, zone.last + 1, zone.count, zone.reason))
        if block.aside:
            first, last = state.log.span(block.waiting()[1])
            out.append(ZoneInfo(1, block.late, first, last + 1, block.aside, "late"))
    for ahead in state.fine.ahead.zones():
        first, last = extent(ahead.times)
        out.append(ZoneInfo(1, state.fine.ahead.number, first, last + 1, len(ahead.rows), "ahead"))
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
        out += [_held(ahead.hashes, sizes) for ahead in fine.ahead.zones()]
        if len(fine.open_rows):
            out.append(_held(state.log.hashes(state.identity.key, fine.open_rows, state.seed), sizes))
        out += [zone.cells for zones in state.coarse.levels.values() for zone in zones.values()]
    return np.stack(out) if out else np.zeros((0, sizes.buckets), np.int64)


def _held(hashes: NDArray[np.int64], sizes: Sizes) -> NDArray[np.int64]:
    return np.bincount(buckets_of(hashes, sizes), minlength=sizes.buckets).astype(np.int64)


def best_summary(summaries: Mapping[str, SummaryIndex], attribute: str) -> SummaryIndex | None:
    """The best summary of an attribute: with postings before with cells alone before neither, then by reach."""
    found = (s for s in summaries.values() if s.key == attribute)
    return max(found, key=lambda s: (s.structure != "none", s.options.postings, s.reach, s.name), default=None)
