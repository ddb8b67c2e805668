"""The summaries of one stream: creation, removal, change of structure, aging."""

from collections.abc import Mapping
from functools import partial
from threading import RLock
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from promising.errors import StorageError
from promising.index.auto_structure import Auto
from promising.index.extremes import Extremes
from promising.index.geometry import Geometry
from promising.index.ladder import BEHIND, Ladder
from promising.index.log import TupleLog
from promising.index.options import AUTO, Options
from promising.index.postings import Postings
from promising.index.summary import Identity, SummaryState, forget
from promising.index.summary_builder import SummaryBuilder
from promising.index.summary_index import Home, SummaryIndex
from promising.index.unindexed import BareState
from promising.summaries.moment_cells import MomentCells


class StreamSummaries:
    """The caller holds the stream's lock. keys: the summarised columns. geometries: how far back they reach.

    ladder, extremes: of the columns of which a summary has moments; None without any.
    """

    def __init__(self, log: TupleLog, lateness: int, seed: int, limited: bool, lock: RLock, home: Home) -> None:
        self.builder = SummaryBuilder(log, lateness, seed, log.limit if limited else None)
        self.by_name: dict[str, SummaryIndex] = {}
        self.keys: frozenset[str] = frozenset()
        self.geometries: frozenset[Geometry] = frozenset()
        self.left: WeakKeyDictionary[Postings, str] = WeakKeyDictionary()
        """Previous postings that still have readers, and their keys."""
        self.ladder: Ladder | None = None
        self.extremes: Extremes | None = None
        self._log = log
        self._lock = lock
        self._home = home

    @property
    def tuple_bytes(self) -> int:
        """Bytes that a tuple adds to all summaries, without its key."""
        states = (summary.state for summary in self.by_name.values())
        sizes = [state.identity.sizes for state in states if isinstance(state, SummaryState)]
        return sum((8 if s.postings else 4) + s.counts.tuple_bytes for s in sizes)

    @property
    def postings_bytes(self) -> int:
        """Bytes of postings, of the places of tuples in cells, of exact counts, of the ladder and of extreme tuples."""
        found = (summary.state for summary in self.by_name.values())
        states = [state for state in found if isinstance(state, SummaryState)]
        tuples = len(self._log)
        own = sum(part.nbytes for part in (self.ladder, self.extremes) if part is not None)
        return own + sum(s.postings.nbytes(tuples) + 4 * tuples + s.counted_bytes for s in states)

    def add(self, state: SummaryState | BareState, options: Options) -> SummaryIndex:
        """Add or replace a summary."""
        identity = state.identity
        auto = Auto(options.buckets, identity.sizes.structure, maxlength=options.maxlength) if identity.auto else None
        made = self.by_name[identity.name] = SummaryIndex(state, self._lock, options, auto, self._home)
        self._changed()
        return made

    def drop(self, name: str) -> None:
        """Drop a summary; its readers get an error."""
        self.by_name.pop(name).dropped = True
        self._changed()

    def _changed(self) -> None:
        self.keys = frozenset(summary.key for summary in self.by_name.values())
        self.geometries = frozenset(summary.state.identity.geometry for summary in self.by_name.values())
        self.climb()

    def climb(self, *, anew: bool = False) -> None:
        """Have a ladder and the extremes of the measured columns.

        anew: tuples have left or returned other than by age.
        """
        kinds = [kind for summary in self.by_name.values() for kind in summary.kinds]
        found = {kind.measure.column for kind in kinds if isinstance(kind, MomentCells)}
        columns = {name: type_ for name, type_ in self._log.schema.types.items() if name in found}
        if anew or columns != ({} if self.ladder is None else self.ladder.columns):
            self.ladder = Ladder(columns) if columns else None
            self.extremes = Extremes(columns) if columns else None

    def catch_up(self, most: int) -> bool:
        """Add up to about so many tuples to the ladder and the extremes; returns whether some are left. One that cannot
        be read stays behind: queries that need the tuple report it."""
        if self.ladder is None or self.extremes is None:
            return False
        try:
            done = self.ladder.follow(self._log, most, warm=False)
            return not (self.extremes.follow(self._log, most, warm=False) and done)
        except StorageError:
            return False

    def changed(self, summary: SummaryIndex, structure: str, watermark: int | None) -> SummaryState | BareState:
        """The state of a `STRUCTURE auto` summary in another structure, rebuilt from the stored tuples."""
        identity = self.builder.restructured(summary.state.identity, structure, summary.options)
        return self._rebuilt(summary, identity, watermark, summary.state.floor)

    def refilled(self, watermark: int, floor: int | None) -> list[SummaryState | BareState]:
        """The states of all summaries, in their order, at another watermark; for `reshape`."""
        return [self._rebuilt(s, s.state.identity, watermark, floor) for s in self.by_name.values()]

    def kept(self, keep: int | None) -> frozenset[Geometry]:
        """The geometries for a stream that keeps this long."""
        return frozenset(self.builder.kept(s.state.identity, keep, s.options).geometry for s in self.by_name.values())

    def reshaped(self, keep: int | None, watermark: int | None, floor: int | None) -> list[SummaryState | BareState]:
        """The states of all summaries, in their order, for a stream that keeps this long; for `reshape`."""
        return [
            self._rebuilt(summary, self.builder.kept(summary.state.identity, keep, summary.options), watermark, floor)
            for summary in self.by_name.values()
        ]

    def reshape(self, states: list[SummaryState | BareState]) -> None:
        for summary, state in zip(self.by_name.values(), states, strict=True):
            summary.replace(state)
        self._changed()
        self.climb(anew=True)
        self.catch_up(len(self._log))

    def _rebuilt(
        self, summary: SummaryIndex, identity: Identity, watermark: int | None, floor: int | None
    ) -> SummaryState | BareState:
        """The state of a summary with another identity, rebuilt from the stored tuples.

        Readers of the old postings keep them: those receive no new tuples, but releases, while they are referenced. On
        an error nothing changes.
        """
        old = summary.state
        issued = old.fine.issued if isinstance(old, SummaryState) else summary.issued
        state = self.builder.filled(identity, summary.options, watermark, floor, issued)
        summary.issued = issued
        ever = old.count + old.expired
        if isinstance(state, BareState):
            state.accepted = ever
        else:
            state.expired = ever - state.count
        if isinstance(old, SummaryState) and isinstance(old.postings, Postings):
            old.postings.until = self._log.arrived
            self.left[old.postings] = old.identity.key
        return state

    def rebuild(self, watermark: int | None, oldest: int | None) -> None:
        """Rebuild all from the stored tuples; tuples before `oldest` have aged out of the stream."""
        for name, summary in self.by_name.copy().items():
            old, options = summary.state.identity, summary.options
            identity = self.builder.identity(
                name,
                old.key,
                old.geometry,
                AUTO if old.auto else old.sizes.structure,
                options,
                kinds=old.kinds,
                using=old.using,
            )
            self.add(self.builder.filled(identity, options, watermark, oldest), options)
            summary.dropped = True
        self.climb(anew=True)
        self.catch_up(len(self._log))

    # --- insertion and aging -------------------------------------------------------------------------------------

    def insert(
        self,
        hashes: Mapping[str, NDArray[np.int64]],
        rows: NDArray[np.int32],
        times: NDArray[np.int64],
        least: int,
        greatest: int,
    ) -> None:
        """Add tuples in the log, at the watermark after them; see `SummaryState.insert`. hashes: by key."""
        for summary in self.by_name.values():
            measured = summary.measured
            began = self._home.cpu() if measured else 0
            summary.state.insert(hashes[summary.key], rows, times, least, greatest)
            summary.inserted(len(rows), self._home.cpu() - began if measured else None)
        if self.ladder is not None and self._log.arrived - self.ladder.until > BEHIND:
            self.ladder.follow(self._log, 2 * BEHIND + len(rows), warm=True)
            if self.extremes is not None:
                self.extremes.follow(self._log, 2 * BEHIND + len(rows), warm=True)

    def extended_by(self, watermark: int, least: int, greatest: int) -> bool:
        """Whether `advance` to that watermark moves nothing, and tuples of these times only extend the open zones."""
        return all(s.state.extended_by(watermark, least, greatest) for s in self.by_name.values())

    def advance(self, watermark: int) -> None:
        """Advance to a watermark, never backwards."""
        for summary in self.by_name.values():
            summary.age(partial(summary.state.advance, watermark))

    def released(self, oldest: int) -> None:
        """The log has released tuples, all before `oldest`."""
        if self.ladder is not None:
            self.ladder.forget(oldest)
        if self.extremes is not None:
            self.extremes.forget(self._log.first_arrival)

    def forget(self, rows: NDArray[np.int32]) -> None:
        """The log is about to release these rows, a chunk of its oldest arrivals."""
        for summary in self.by_name.values():
            summary.age(partial(summary.state.forget, rows))
        for postings, key in self.left.items():
            known = rows[self._log.arrivals(rows) < (postings.until or 0)]
            if len(known):
                forget(postings, self._log, key, self.builder.seed, known)
