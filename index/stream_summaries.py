"""The summaries of one stream: they come and go, change their structure, and age together."""

from collections.abc import Mapping
from functools import partial
from threading import RLock
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from promising.index.auto_structure import Auto
from promising.index.geometry import Geometry
from promising.index.log import TupleLog
from promising.index.options import AUTO, Options
from promising.index.postings import Postings
from promising.index.summary import SummaryState, forget
from promising.index.summary_builder import SummaryBuilder
from promising.index.summary_index import Home, SummaryIndex
from promising.index.unindexed import BareState


class StreamSummaries:
    """Whoever calls holds the stream's lock.

    keys: the columns that they are of. geometries: how far they reach back.
    """

    def __init__(self, log: TupleLog, lateness: int, seed: int, lock: RLock, home: Home) -> None:
        self.builder = SummaryBuilder(log, lateness, seed)
        self.by_name: dict[str, SummaryIndex] = {}
        self.keys: frozenset[str] = frozenset()
        self.geometries: frozenset[Geometry] = frozenset()
        self.left: WeakKeyDictionary[Postings, str] = WeakKeyDictionary()
        """Postings of before a change that are still read, and their keys."""
        self._log = log
        self._lock = lock
        self._home = home

    def add(self, state: SummaryState | BareState, options: Options) -> SummaryIndex:
        """One more, or another one of the same name."""
        identity = state.identity
        auto = Auto(options.buckets, identity.sizes.structure, maxlength=options.maxlength) if identity.auto else None
        made = self.by_name[identity.name] = SummaryIndex(state, self._lock, options, auto, self._home)
        self._changed()
        return made

    def drop(self, name: str) -> None:
        """Its readers are told that it is gone."""
        self.by_name.pop(name).dropped = True
        self._changed()

    def _changed(self) -> None:
        self.keys = frozenset(summary.key for summary in self.by_name.values())
        self.geometries = frozenset(summary.state.identity.geometry for summary in self.by_name.values())

    def changed(self, summary: SummaryIndex, structure: str, watermark: int | None) -> SummaryState | BareState:
        """The state of one with `STRUCTURE auto` in another structure, built of the tuples that there are.

        What reads the postings it had goes on with them: they are told of no tuple that comes, but of those that go,
        for as long as somebody holds them. If it fails, nothing has changed.
        """
        old = summary.state
        identity = self.builder.restructured(old.identity, structure, summary.options)
        state = self.builder.filled(identity, summary.options, watermark, old.floor, summary.issued)
        ever = old.count + old.expired
        if isinstance(state, BareState):
            state.accepted = ever
        else:
            state.expired = ever - state.count
        if isinstance(old, SummaryState):
            old.postings.until = self._log.arrived
            self.left[old.postings] = old.identity.key
        return state

    def rebuild(self, watermark: int | None, oldest: int | None) -> None:
        """Make each anew from the tuples that there are; what is older than `oldest` has aged out of the stream."""
        for name, summary in self.by_name.copy().items():
            old, options = summary.state.identity, summary.options
            identity = self.builder.identity(
                name, old.key, old.geometry, AUTO if old.auto else old.sizes.structure, options
            )
            self.add(self.builder.filled(identity, options, watermark, oldest), options)
            summary.dropped = True

    # --- tuples come and go --------------------------------------------------------------------------------------

    def insert(
        self,
        hashes: Mapping[str, NDArray[np.int64]],
        rows: NDArray[np.int32],
        times: NDArray[np.int64],
        least: int,
        greatest: int,
    ) -> None:
        """Add tuples that are in the log, at the watermark after them; see `SummaryState.insert`. hashes: by key."""
        for summary in self.by_name.values():
            measured = summary.measured
            began = self._home.cpu() if measured else 0
            summary.state.insert(hashes[summary.key], rows, times, least, greatest)
            summary.inserted(len(rows), self._home.cpu() - began if measured else None)

    def advance(self, watermark: int) -> None:
        """Age to a watermark no less than the last one."""
        for summary in self.by_name.values():
            summary.age(partial(summary.state.advance, watermark))

    def forget(self, rows: NDArray[np.int32]) -> None:
        """The log is about to give these rows back, a chunk of the oldest arrivals it has."""
        for summary in self.by_name.values():
            summary.age(partial(summary.state.forget, rows))
        for postings, key in self.left.items():
            known = rows[self._log.arrivals(rows) < (postings.until or 0)]
            if len(known):
                forget(postings, self._log, key, self.builder.seed, known)
