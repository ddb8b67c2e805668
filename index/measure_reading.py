"""What the zones of a summary measured, in a window."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.errors import UnknownMeasure
from promising.index.measures import Measured, Measures, Rows, logged
from promising.index.regions import Window, check_window
from promising.index.summary import SummaryState
from promising.index.summary_index import SummaryIndex
from promising.index.unindexed import BareState
from promising.summaries.adt import Estimate
from promising.summaries.cells import CellKind, Measure

Bucket = Callable[[NDArray[np.int64]], NDArray[np.int64]]

NO_ROWS = np.empty(0, np.int32)


@dataclass(frozen=True)
class ZoneMeasures:
    """One zone: its tuples are dated `first` to `last`; `cells` counts them by value bucket, `states` by measure.

    States belong to the index: read them while its lock is held, and do not change them.
    """

    granularity: int
    zone: int
    first: int
    last: int
    tuples: int
    cells: NDArray[np.int64]
    states: dict[str, Any]


@dataclass(frozen=True)
class WindowMeasure:
    """One measure of the tuples in a window: the merged `state` of zones wholly inside, `zones` of them.

    rows: the tuples of the window that are in no such zone: at its edges, or in no sealed zone yet. `complete` reads
    them. covered: tuples that the state is of.
    """

    kind: CellKind[Any]
    state: Any
    zones: int
    covered: int
    rows: Rows


def known_measure(summary: SummaryIndex, measure: str | Measure) -> CellKind[Any]:
    """The kind of one of the summary's measures."""
    wanted = Measure.read(measure)
    for kind in summary.kinds:
        if kind.measure == wanted:
            return kind
    has = ", ".join(kind.measure.sql for kind in summary.kinds) or "none"
    raise UnknownMeasure(
        f"summary {summary.name!r} does not measure {wanted.sql}; its measures are: {has}; add it with ALTER SUMMARY"
        f' "{summary.name}" ADD MEASURES ({wanted.sql})'
    )


def zones(summary: SummaryIndex, window: Window = None) -> list[ZoneMeasures]:
    """Every zone with tuples in the window, inside or across its edges: finest first, oldest first. None without
    structure. Tuples in no sealed zone yet (the open zone, late and early ones) are in none of these."""
    start, end = check_window(window)
    with summary.reading() as state:
        if isinstance(state, BareState):
            return []
        return [zone for zone in _zones(state) if zone.last >= max(start, state.oldest) and zone.first < end]


def _zones(state: SummaryState) -> Iterator[ZoneMeasures]:
    for block in state.fine.blocks.values():
        for zone in block.zones:
            cells = state.fine.pool.cells[zone.slot]
            yield _zone(state, 1, zone.number, zone.first, zone.last, cells, zone.measured)
    for granularity, found in state.coarse.levels.items():
        for coarse in found.values():
            yield _zone(state, granularity, coarse.number, coarse.first, coarse.last, coarse.cells, coarse.measured)


def _zone(
    state: SummaryState,
    granularity: int,
    number: int,
    first: int,
    last: int,
    cells: NDArray[np.int64],
    measured: Measured,
) -> ZoneMeasures:
    states = dict(zip(state.measures.texts, measured.states, strict=True))
    return ZoneMeasures(granularity, number, first, last, int(cells.sum()), cells, states)


def window_measure(summary: SummaryIndex, measure: str | Measure, window: Window = None) -> WindowMeasure:
    """One measure of the tuples in the window: what the zones know, and the rows of which they know nothing."""
    with summary.reading() as state:
        merged = _Merged(state, known_measure(summary, measure), *check_window(window))
        return merged.parts.get(0) or merged.part(0)


def bucket_measures(
    summary: SummaryIndex, measure: str | Measure, window: Window, bucket: Bucket, most: int
) -> dict[int, WindowMeasure] | None:
    """The same of each bucket of time that has tuples, in order; zones across buckets count by their rows.

    bucket: names the buckets of times; a name never falls as time goes on. None: no zone is inside a bucket, or more
    than `most` rows are in none.
    """
    with summary.reading() as state:
        merged = _Merged(state, known_measure(summary, measure), *check_window(window), bucket, most)
        parts = merged.parts
        return dict(sorted(parts.items())) if any(part.zones for part in parts.values()) else None


def complete(summary: SummaryIndex, found: WindowMeasure) -> Any:
    """The state of all tuples in the window: its rows are read. Call it under the same lock as `window_measure`."""
    with summary.reading() as state:
        if len(found.rows):
            _add(state, found.kind, found.state, found.rows)
        return found.state


def window_estimate(
    summary: SummaryIndex, measure: str | Measure, window: Window, *question: Any, cell: int = 0
) -> Estimate:
    """The answer of one measure about the tuples in a window, with bounds."""
    with summary.reading():
        found = window_measure(summary, measure, window)
        return found.kind.estimate(complete(summary, found), cell, *question)


def _add(state: SummaryState | BareState, kind: CellKind[Any], into: Any, rows: Rows) -> None:
    measures = Measures((kind,), state.identity.sizes.buckets)
    measures.add((kind,), (into,), logged(state.log, rows, state.hashes(rows)))


def _edges(state: SummaryState) -> Iterator[tuple[int, int]]:
    """The first and the last time of every zone."""
    for block in state.fine.blocks.values():
        if block.zones:
            yield block.whole.first, block.whole.last
        for zone in block.zones:
            yield zone.first, zone.last
    for zones in state.coarse.levels.values():
        for coarse in zones.values():
            yield coarse.first, coarse.last


class _Merged:
    """Collects one measure of one window, in `parts` by bucket; without buckets there is one, 0. There are none if no
    zone covers more than `most` rows."""

    def __init__(
        self,
        state: SummaryState | BareState,
        kind: CellKind[Any],
        start: int,
        end: int,
        bucket: Bucket | None = None,
        most: int | None = None,
    ) -> None:
        self.state = state
        self.kind = kind
        self.start, self.end = max(start, state.oldest), end
        self.parts: dict[int, WindowMeasure] = {}
        self.rows: list[Rows] = [NO_ROWS]
        self.names: dict[int, int] = {}  # of buckets, by the edges of zones
        if bucket is not None and isinstance(state, SummaryState):
            edges = np.unique(np.array(list(_edges(state)), np.int64).ravel())
            self.names = dict(zip(edges.tolist(), bucket(edges).tolist(), strict=True))
        if isinstance(state, BareState):
            self._loose(state.log.rows())
        else:
            self._structured(state, state.identity.kinds.index(kind))
        rows = np.concatenate(self.rows)
        if bucket is None:
            self._read(0, rows)
        elif most is not None and len(rows) > most:
            self.parts = {}
        elif len(rows):
            of = bucket(state.log.when(rows))
            order = np.argsort(of, kind="stable")
            names, firsts = np.unique(of[order], return_index=True)
            for name, some in zip(names.tolist(), np.split(rows[order], firsts[1:]), strict=True):
                self._read(name, some)

    def part(self, name: int) -> WindowMeasure:
        if name not in self.parts:
            cells = self.state.identity.sizes.buckets if self.kind.grain == "cell" else 1
            self.parts[name] = WindowMeasure(self.kind, self.kind.empty(cells), 0, 0, NO_ROWS)
        return self.parts[name]

    def _read(self, name: int, rows: Rows) -> None:
        self.parts[name] = replace(self.part(name), rows=rows)

    def _inside(self, first: int, last: int) -> bool:
        """Whether a zone is inside the window, and inside one bucket."""
        return first >= self.start and last < self.end and self.names.get(first) == self.names.get(last)

    def _structured(self, state: SummaryState, at: int) -> None:
        fine = state.fine
        for block in fine.blocks.values():
            whole = block.whole
            if block.zones and self._inside(whole.first, whole.last):
                self._take(whole.first, whole.measured.states[at], len(block.zones), whole.count)
            else:
                for zone in block.zones:
                    self._zone(zone.first, zone.last, zone.measured.states[at], zone.count, zone.tuples)
            self._loose(block.waiting()[1])
        for ahead in fine.ahead.zones():
            self._loose(ahead.rows)
        self._loose(fine.open_rows)
        for zones in state.coarse.levels.values():
            for coarse in zones.values():
                self._zone(coarse.first, coarse.last, coarse.measured.states[at], coarse.count, coarse.tuples)

    def _zone(self, first: int, last: int, measured: Any, count: int, tuples: Any) -> None:
        if first >= self.end or last < self.start:
            return
        if self._inside(first, last):
            self._take(first, measured, 1, count)
        else:
            self._loose(tuples.rows)

    def _take(self, first: int, state: Any, zones: int, count: int) -> None:
        name = self.names.get(first, 0)
        part = self.part(name)
        self.kind.absorb(part.state, state)
        self.parts[name] = replace(part, zones=part.zones + zones, covered=part.covered + count)

    def _loose(self, rows: Rows) -> None:
        if len(rows):
            self.rows.append(rows[self.state.log.between(rows, self.start, self.end)])
