"""The equi-join of two windows without deferred probes and without individual expiry messages."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from promising.index.instants import BEGINNING
from promising.query.kernels import windows as kernels
from promising.query.kernels.windows import FIELDS, LATEST, METAS, ORDERED, START, STOP
from promising.query.scalar.compiled import Compiled
from promising.query.standing.deltas import POS, Deltas, Ids, Times
from promising.query.standing.operators.entry_store import Coder, Codes
from promising.query.standing.operators.leaf import Leaf
from promising.query.standing.operators.step import Body, Tick, chosen, missing, rows_of, told

LEAST = 64
NO_ENDS: Times = np.empty(0, np.int64)
NO_CODES: Codes = np.empty(0, np.int32)


class JoinWindow:
    """The tuples of one side, from the oldest live one to the newest. O(1) per tuple inserted and removed.

    A tuple that expires before an earlier arrival is retained until that one expires too, at most one window length;
    while there is such a tuple, each expiry scans all. Memory is proportional to what is stored.
    """

    def __init__(self, node: Leaf, keys: Sequence[Compiled]) -> None:
        self.node = node
        self.keys = tuple(keys)
        self.records: NDArray[np.int64] = np.empty((LEAST, FIELDS), np.int64)
        self.codes: Codes = np.empty(LEAST, np.int32)
        self.heads = _longer(np.empty((0, 2), np.int64), LEAST)
        self.meta: NDArray[np.int64] = np.zeros(METAS, np.int64)
        self.meta[LATEST], self.meta[ORDERED] = BEGINNING, 1

    def __len__(self) -> int:
        return int(self.meta[STOP] - self.meta[START])

    @property
    def nbytes(self) -> int:
        return self.records.nbytes + self.codes.nbytes + self.heads.nbytes

    def reserve(self, tuples: int, codes: int) -> None:
        """Make room for that many more tuples, and for codes below `codes`."""
        if codes > len(self.heads):
            self.heads = _longer(self.heads, 2 * codes)
        if len(self) + tuples > len(self.records):
            self._move(len(self) + tuples)

    def append(self, new: Deltas, codes: Codes) -> None:
        kernels.append(new.ids, new.ts, new.exp, codes, self.records, self.codes, self.heads, self.meta)

    def expire(self, now: int) -> Times:
        """Remove tuples that end at `now` or before: when results expired with them."""
        held = len(self)
        if not held:
            return NO_ENDS
        ends = np.empty(held, np.int64)
        ends = ends[: kernels.expire(now, self.records, self.codes, self.heads, self.meta, ends)]
        if len(self.records) > 16 * LEAST and 8 * len(self) < len(self.records):
            self._move(len(self))
        return ends

    def _move(self, needed: int) -> None:
        """Copy to new arrays of at least twice the needed size."""
        size = LEAST
        while size < 2 * needed:
            size *= 2
        held = self._held
        records, codes = np.empty((size, FIELDS), np.int64), np.empty(size, np.int32)
        to, at = held & (size - 1), held & (len(self.records) - 1)
        records[to], codes[to] = self.records[at], self.codes[at]
        self.records, self.codes = records, codes

    @property
    def _held(self) -> NDArray[np.int64]:
        return np.arange(self.meta[START], self.meta[STOP])

    def recode(self, kept: NDArray[np.int64], numbers: Codes) -> None:
        at = self._held & (len(self.records) - 1)
        self.codes[at] = numbers[self.codes[at]]
        self.heads = _longer(self.heads[kept], max(LEAST, 2 * len(kept)))


def _longer(heads: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    out = np.empty((size, 2), np.int64)
    out[:, 0], out[:, 1] = -1, 0
    out[: len(heads)] = heads
    return out


class WindowJoinNode(Body):
    """Pairs with equal keys that satisfy the residual; NULL equals nothing. Expiring tuples probe no partners."""

    def __init__(
        self, left: Leaf, right: Leaf, keys: Sequence[tuple[Compiled, Compiled]], residual: Sequence[Compiled] = ()
    ) -> None:
        self.mode = left.mode
        self.children = (left, right)
        self.width = 2
        spans = [side.span for side in (left, right) if side.span is not None]
        self.span = min(spans) if spans else None
        self.sources = dict(left.sources)
        self.sources.update({place: (rows, 1) for place, (rows, _) in right.sources.items()})
        self.residual = tuple(residual)
        self.coder = Coder([mine.kind for mine, _ in keys])
        self.left = JoinWindow(left, [mine for mine, _ in keys])
        self.right = JoinWindow(right, [theirs for _, theirs in keys])

    def step(self, tick: Tick) -> Deltas:
        (left, right), time = self.pull(tick)
        if time is None:
            return told(tick, self.mode, [], 2, 0, NO_ENDS)
        ends = [window.expire(time) for window in (self.left, self.right)]
        found = self._meet(tick, time, left, right)
        self._tidy()
        return told(tick, self.mode, found, 2, time, np.concatenate(ends))

    def _meet(self, tick: Tick, time: int, left: Deltas, right: Deltas) -> list[Deltas]:
        """Insert arrivals of both sides: their results with stored tuples, and with each other."""
        a, b = self.left, self.right
        left, mine = self._coded(a, left)
        right, theirs = self._coded(b, right)
        a.reserve(len(mine), self.coder.size)
        b.reserve(len(theirs), self.coder.size)
        a.append(left, mine)
        room = kernels.count(mine, b.heads) + kernels.count(theirs, a.heads)
        ids: Ids = np.empty((room, 2), np.int64)
        ts, exp = np.empty(room, np.int64), np.empty(room, np.int64)
        places = np.empty((2, room if self.residual else 0), np.int32)
        out = ids, ts, exp, places
        made = kernels.probe(mine, time, 0, a.records, a.meta, b.records, b.heads, b.meta, 0, *out)
        b.append(right, theirs)
        made = kernels.probe(theirs, time, 1, b.records, b.meta, a.records, a.heads, a.meta, made, *out)
        tick.counters.probes += made
        if not made:
            return []
        found = rows_of(ids[:made], ts[:made], exp[:made], POS)
        if self.residual:
            places = places[:, :made]
            kept = self.meets(self.residual, found.ids)
            if not kept.all():
                found, places = chosen(found, kept), places[:, np.flatnonzero(kept)]
            kernels.note(np.ascontiguousarray(places), a.records, b.records)
        return [found]

    def _coded(self, window: JoinWindow, new: Deltas) -> tuple[Deltas, Codes]:
        """Arrivals whose keys are not NULL, with their codes."""
        if not len(new):
            return new, NO_CODES
        arrays = window.node.evaluate(window.keys, new.ids)
        absent = missing(arrays, len(new))
        if absent is not None:
            new = chosen(new, ~absent)
            arrays = [array.filter(~absent) for array in arrays]
        return new, self.coder.enter(arrays, len(new))

    def _tidy(self) -> None:
        """Drop keys without tuples."""
        if not self.coder.crowded:
            return
        a, b = (window.heads[: self.coder.size, 1] for window in (self.left, self.right))
        changed = self.coder.renumber((a > 0) | (b > 0))
        if changed is not None:
            self.left.recode(*changed)
            self.right.recode(*changed)

    def own_bytes(self) -> int:
        return self.left.nbytes + self.right.nbytes + self.coder.nbytes

    def own_entries(self) -> int:
        return len(self.left) + len(self.right)
