"""The join of a stream with a table on its primary key."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from promising.index.table import Table
from promising.query.scalar.compiled import Compiled
from promising.query.standing.deltas import NEG_INV, POS, Deltas, Ids, Mode, Times
from promising.query.standing.operators.entry_store import Coder, Entries, Places, slot_width
from promising.query.standing.operators.leaf import Leaf
from promising.query.standing.operators.step import Body, Tick, chosen, missing, rows_of, split, told

Versions = NDArray[np.int64]


class TableJoinNode(Body):
    """Pairs of a tuple and a row version; NULL equals nothing.

    Without RETROACTIVE, a tuple keeps the row that was current when it arrived, and no tuples are stored, except in
    `nta` and for the expiry of results. With it, the tuples of the window are stored by key: deleted rows retract their
    results, new rows join the stored tuples.
    """

    def __init__(
        self, leaf: Leaf, stream: str, table: Table, place: int, key: Compiled, residual: Sequence[Compiled] = ()
    ) -> None:
        self.leaf, self.table, self.stream = leaf, table, stream
        self.children = (leaf,)
        self.mode = leaf.mode
        self.width = 2
        self.span = leaf.span
        self.key = key
        self.residual = tuple(residual)
        self.sources = {**leaf.sources, place: (table, 1)}
        self._coder = Coder([key.kind])
        self._held = Entries(1, slot_width(leaf.length), leaf.mode is Mode.NTA)
        self._version = self._held.extra(np.int64)
        self._seen = table.changes
        self._ends = Ends()

    @property
    def seen(self) -> int:
        """The last change of the table that the results reflect; any, if the table is not retroactive."""
        return self._seen if self.table.retroactive else self.table.changes

    @property
    def _versions(self) -> Versions:
        """The version of the row that each tuple is shown with, -1 for none."""
        return self._held.extras[self._version]  # type: ignore[return-value]  # made as int64

    def step(self, tick: Tick) -> Deltas:
        (below,), time = self.pull(tick)
        retroactive = self.table.retroactive
        ends = self._ends.over(time) if time is not None else np.empty(0, np.int64)
        parts: list[Deltas] = []
        if time is not None and self.mode is not Mode.NTA and retroactive:
            self._held.expire(time)
        went, came = split(below)
        if len(went):
            parts += self._retract(went)
        if retroactive and self.table.changes != self._seen:
            parts += self._changed()
        if len(came):
            parts += self._arrived(came)
        if parts and self.mode not in (Mode.NTA, Mode.ITA):
            for part in parts:
                self._ends.add(part.exp[part.kinds == POS])
        if time is None and parts:  # `ita`: the table changed while no tuple arrived
            time = tick.now if self.clock is None else self.clock
        self._tidy()
        return told(tick, self.mode, parts, self.width, time if time is not None else 0, ends)

    def _retract(self, went: Deltas) -> list[Deltas]:
        places = self._held.find(went.ids)
        there = places >= 0  # tuples without a key or a row were never inserted
        places, went = places[there], chosen(went, there)
        versions = self._versions[places]
        self._held.remove_at(places)
        shown = versions >= 0
        if not shown.any():
            return []
        ids = np.column_stack((went.ids[shown, 0], versions[shown]))
        return [Deltas(ids, went.ts[shown], went.exp[shown], went.kinds[shown], None)]

    def _changed(self) -> list[Deltas]:
        """Results inserted and retracted because rows changed."""
        with self.table.lock:
            born, died = self.table.since(self._seen)
            self._seen = self.table.changes
        parts: list[Deltas] = []
        places, _ = self._of(died)
        if len(places):
            shown = places[self._versions[places] >= 0]
            if len(shown):
                parts.append(self._results(shown, NEG_INV))
                self._versions[shown] = -1
        places, versions = self._of(born)
        if len(places):
            self._versions[places] = versions
            parts += self._met(places)
        return parts

    def _of(self, versions: Versions) -> tuple[Places, Versions]:
        """The tuples that have the keys of these versions, and the version of each."""
        if not len(versions):
            return np.empty(0, np.int32), versions
        keys = self.table.take(self.table.key, versions)
        codes = self._coder.enter([keys], len(versions))
        self._held.codes(self._coder.size)
        which, places = self._held.members(codes)
        return places, versions[which]

    def _arrived(self, came: Deltas) -> list[Deltas]:
        arrays = self.leaf.evaluate([self.key], came.ids)
        absent = missing(arrays, len(came))
        if absent is not None:
            came, arrays = chosen(came, ~absent), [arrays[0].filter(~absent)]
        retroactive = self.table.retroactive
        seqs = np.ascontiguousarray(came.ids[:, 0])
        change = np.full(len(seqs), self._seen) if retroactive else self.table.change_at(self.stream, seqs)
        versions = self.table.find(arrays[0], change)
        if not retroactive:
            found = versions >= 0
            came, versions = chosen(came, found), versions[found]
            ids = np.column_stack((came.ids[:, 0], versions))
            if self.residual:
                kept = self.meets(self.residual, ids)
                came, ids, versions = chosen(came, kept), ids[kept], versions[kept]
            if self.mode is Mode.NTA:
                places = self._held.insert(came.ids, came.ts, came.exp, np.zeros(len(came), np.int32))
                self._versions[places] = versions
            return [rows_of(ids, came.ts, came.exp, POS)] if len(ids) else []
        codes = self._coder.enter(arrays, len(came))
        self._held.codes(self._coder.size)
        places = self._held.insert(came.ids, came.ts, came.exp, codes)
        self._versions[places] = versions
        return self._met(places[versions >= 0])

    def _met(self, places: Places) -> list[Deltas]:
        """Results of tuples with their rows, if they satisfy the residual."""
        if not len(places):
            return []
        made = self._results(places, POS)
        if self.residual:
            kept = self.meets(self.residual, made.ids)
            self._versions[places[~kept]] = -1
            made = chosen(made, kept)
        return [made]

    def _results(self, places: Places, kind: int) -> Deltas:
        ids: Ids = np.column_stack((self._held.ids[places, 0], self._versions[places]))
        times = self._held.times[places]
        return rows_of(ids, times[:, 0].copy(), times[:, 1].copy(), kind)

    def _tidy(self) -> None:
        self._held.shrink()
        if self._coder.crowded:
            self._held.codes(self._coder.size)
            changed = self._coder.renumber(self._held.counts[: self._coder.size] > 0)
            if changed is not None:
                self._held.recode(*changed)

    @property
    def reads_tables(self) -> bool:
        return True

    def own_bytes(self) -> int:
        return self._held.nbytes + self._coder.nbytes + self._ends.nbytes

    def own_entries(self) -> int:
        return len(self._held)


class Ends:
    """The distinct times at which results expire."""

    def __init__(self) -> None:
        self._sorted: Times = np.empty(0, np.int64)
        self._new: list[Times] = []
        self._first = 0  # index of the first pending one

    def add(self, ends: Times) -> None:
        if len(ends):
            self._new.append(ends)

    def over(self, now: int) -> Times:
        """The times that have passed since the last call."""
        if self._new:
            # Most arrive in order, so the existing prefix is unchanged.
            new = np.unique(np.concatenate(self._new))
            left = self._sorted[self._first :]
            at = int(np.searchsorted(left, new[0]))
            mixed = np.unique(np.concatenate([left[at:], new])) if at < len(left) else new
            self._sorted = np.concatenate([left[:at], mixed])
            self._new, self._first = [], 0
        last = int(np.searchsorted(self._sorted, now, "right"))
        out = self._sorted[self._first : last]
        self._first = max(last, self._first)
        return out

    @property
    def nbytes(self) -> int:
        return self._sorted.nbytes
