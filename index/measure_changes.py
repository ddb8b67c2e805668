"""A change of what a summary measures, built from its tuples in slices.

New measures are drafts, which nothing reads or stores, until all tuples are in them; then they become measures in one
step. Whatever ends the change before that leaves the previous measures.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from promising.errors import InUse
from promising.index.measures import Kinds, Measured, logged
from promising.index.summary import Identity, SummaryState
from promising.index.summary_builder import SummaryBuilder
from promising.index.summary_index import SummaryIndex
from promising.index.unindexed import BareState
from promising.index.zone import unpacked

SLICE = 1 << 15  # tuples


class Built(NamedTuple):
    """How far a change is: `tuples` of `total`."""

    tuples: int
    total: int


class MeasureChange:
    """The stream's lock is held in every method, and free between two steps.

    texts: the measures after the change. What is wrong with them is raised, and nothing changes.
    """

    def __init__(self, summary: SummaryIndex, builder: SummaryBuilder, texts: Iterable[str]) -> None:
        if summary.building is not None:
            raise InUse(f"summary {summary.name!r} is {summary.building}; wait until it is done")
        known = {kind.measure: kind for kind in summary.kinds}
        wanted = builder.kinds(texts)
        self.kept: Kinds = tuple(known[kind.measure] for kind in wanted if kind.measure in known)
        self.added: Kinds = tuple(kind for kind in wanted if kind.measure not in known)
        self.summary = summary
        self._builder = builder
        self._state: SummaryState | BareState | None = None
        self._identity = self._measuring()
        self._finished = False
        self._say(0, 0)

    @property
    def kinds(self) -> Kinds:
        """What is measured after the change."""
        return (*self.kept, *self.added)

    def _measuring(self) -> Identity:
        """The identity of the summary after the change; `CeilingTooLow` if its ceiling does not suffice."""
        return self._builder.measuring(self.summary.state.identity, self.kinds, self.summary.options)

    def step(self) -> bool:
        """Add a slice of tuples to the drafts; returns whether any are left. A state that was rebuilt begins again."""
        if self._state is not self.summary.state:
            self._begin(self.summary.state)
        state, tuples = self._state, SLICE
        if isinstance(state, SummaryState) and self.added:
            for measured in _all(state):
                while measured.pending and tuples > 0:
                    tuples -= _add(state, measured, tuples)
        left = _pending(state)
        self._say(self.built.total - left, self.built.total)
        return left > 0

    def _say(self, done: int, total: int) -> None:
        self.built = Built(done, total)
        names = ", ".join(kind.measure.sql for kind in self.added) or "fewer measures"
        self.summary.building = f"building {names}: {done:,} of {total:,} tuples"

    def _begin(self, state: SummaryState | BareState) -> None:
        self._state = state
        if isinstance(state, SummaryState) and self.added:
            state.measures.drafts = self.added
            state.fine.measure_all()
            for block in state.fine.blocks.values():
                block.whole.measured.begin(None)
                for zone in block.zones:
                    zone.measured.begin(zone.tuples.stretches)
            for zones in state.coarse.levels.values():
                for coarse in zones.values():
                    coarse.measured.begin(coarse.tuples.stretches)
        self._say(0, _pending(state))

    def prepare(self) -> None:
        """All of `finish` that may fail: future zones of `G_2` get the drafts of their zones of `G_1`."""
        self._identity = self._measuring()
        if isinstance(self._state, SummaryState):
            for block in self._state.fine.blocks.values():
                for zone in block.zones:
                    block.whole.measured.absorb_drafts(zone.measured)

    def finish(self) -> None:
        """Drafts become measures; those that were not kept are released."""
        state = self._state
        assert state is not None
        if isinstance(state, SummaryState):
            kept = [state.measures.kinds.index(kind) for kind in self.kept]
            for measured in _all(state):
                measured.end(kept)
            state.measures.kinds, state.measures.drafts = self.kinds, ()
        state.identity = self._identity
        self._state, self.summary.building, self._finished = None, None, True

    def end(self) -> None:
        """Release the drafts of a change that was not finished."""
        if self._finished:
            return
        self.summary.building = None
        if isinstance(self._state, SummaryState):
            self._state.measures.drafts = ()
            for measured in _all(self._state):
                measured.drafts, measured.pending = [], []
        self._state = None


def _all(state: SummaryState | BareState | None) -> Iterator[Measured]:
    """Those of every zone, and of every future zone of `G_2`."""
    if not isinstance(state, SummaryState):
        return
    for block in state.fine.blocks.values():
        yield block.whole.measured
        for zone in block.zones:
            yield zone.measured
    for zones in state.coarse.levels.values():
        for coarse in zones.values():
            yield coarse.measured


def _pending(state: SummaryState | BareState | None) -> int:
    return sum(_count(rows) for measured in _all(state) for rows in measured.pending)


def _add(state: SummaryState, measured: Measured, tuples: int) -> int:
    """Add up to so many pending tuples of a zone to its drafts; returns how many."""
    taken, rest = _split(measured.pending[0], tuples)
    rows = unpacked(taken)
    state.measures.add(state.measures.drafts, measured.drafts, logged(state.log, rows, state.hashes(rows)))
    measured.pending[:1] = [rest] if len(rest) else []
    return len(rows)


def _split(stretches: NDArray[np.int32], tuples: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The first tuples of ranges (first, last + 1), and the rest.

    >>> [part.tolist() for part in _split(np.array([[0, 4], [10, 20], [30, 31]], np.int32), 6)]
    [[[0, 4], [10, 12]], [[12, 20], [30, 31]]]
    """
    ends = np.cumsum(stretches[:, 1] - stretches[:, 0], dtype=np.int64)
    at = int(np.searchsorted(ends, tuples))
    taken, rest = stretches[: at + 1].copy(), stretches[at:].copy()
    if at == len(stretches):
        return taken, rest
    taken[at, 1] = rest[0, 0] = stretches[at, 1] - (ends[at] - tuples)
    return taken, rest[1:] if rest[0, 0] == rest[0, 1] else rest


def _count(stretches: NDArray[np.int32]) -> int:
    return int((stretches[:, 1] - stretches[:, 0]).sum(dtype=np.int64))
