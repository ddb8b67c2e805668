"""DISTINCT."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.instants import BEGINNING
from promising.query.kernels.standing_join import admit
from promising.query.standing.deltas import NEG_EXP, POS, Deltas, Ids, Mode, nothing
from promising.query.standing.operators.entry_store import LEAST, Coder, Codes, Entries, slot_width
from promising.query.standing.operators.multiplicity import NO_ENDS, Counted
from promising.query.standing.operators.step import Step, Tick, rows_of, split, told

NOT_YET = BEGINNING  # the end of a spare that is none


class DistinctNode(Step):
    """One result of the input for each distinct row; NULL equals NULL.

    `retracted`: the input may retract results, so all of them are stored. Otherwise only the shown result of each row
    is stored, and at most one that outlives it (distinct*).
    """

    def __init__(self, child: Step, retracted: bool) -> None:
        self.child = child
        self.children = (child,)
        self.mode = child.mode
        self.width = child.width
        self.span = child.span
        self.kinds = child.kinds
        self._held: Counted | Outliving
        self._held = Counted("distinct", child.kinds, child, None) if retracted else Outliving(child)

    def step(self, tick: Tick) -> Deltas:
        (below,), time = self.pull(tick)
        if time is None:
            return told(tick, self.mode, [], self.width, 0, NO_ENDS)
        _, came = split(below)
        codes = self._held.coder.enter(self.child.values(came.ids) if len(came) else [], len(came))
        if isinstance(self._held, Counted):
            none = nothing(self.width)
            parts, ends = self._held.apply(time, below, none, (codes, codes[:0]))
        else:
            parts, ends = self._held.apply(time, came, codes)
        return told(tick, self.mode, parts, self.width, time, ends)

    def values(self, ids: Ids) -> list[pa.Array]:
        return self.child.values(ids)

    def own_bytes(self) -> int:
        return self._held.nbytes

    def own_entries(self) -> int:
        return len(self._held)


class Outliving:
    """The state of distinct*: for each row the shown result and, of those that outlive it, the last to expire."""

    def __init__(self, child: Step) -> None:
        self.mode = child.mode
        self.coder = Coder(child.kinds)
        self.shown = Entries(child.width, slot_width(child.span), False)
        self._pending = np.full(LEAST, -1, np.int32)
        self._spare_ids: Ids = np.zeros((LEAST, child.width), np.int64)
        self._spare_times: NDArray[np.int64] = np.full((LEAST, 2), NOT_YET, np.int64)

    def apply(self, time: int, came: Deltas, codes: Codes) -> tuple[list[Deltas], NDArray[np.int64]]:
        """Apply changes: the output changes, and when results expired."""
        parts: list[Deltas] = []
        self._codes(self.coder.size)
        ended = self.shown.expire(time)
        ends = self.shown.times[ended, 1]
        if len(ended):
            freed = self.shown.codes_at(ended)
            if self.mode is Mode.NTA:
                parts.append(rows_of(self.shown.ids[ended], self.shown.times[ended, 0], ends, NEG_EXP))
            next_codes = freed[self._spare_times[freed, 1] > time]
            if len(next_codes):
                times = self._spare_times[next_codes]
                parts.append(
                    self._show(self._spare_ids[next_codes], times[:, 0].copy(), times[:, 1].copy(), next_codes)
                )
            self._spare_times[freed] = NOT_YET
        if len(came):
            new = np.empty(len(came), np.int64)
            made = admit(
                codes,
                came.ids,
                came.ts,
                came.exp,
                self.shown.heads,
                self.shown.times,
                self._pending,
                self._spare_ids,
                self._spare_times,
                new,
            )
            if made:
                new = new[:made]
                parts.append(self._show(came.ids[new], came.ts[new], came.exp[new], codes[new]))
        self.shown.shrink()
        if self.coder.crowded:
            changed = self.coder.renumber(self.shown.counts[: self.coder.size] > 0)
            if changed is not None:
                kept, _ = changed
                self.shown.recode(*changed)
                self._spare_ids, self._spare_times = self._spare_ids[kept], self._spare_times[kept]
                self._pending = self._pending[kept]
                self._codes(LEAST)
        return parts, ends

    def _show(self, ids: Ids, ts: NDArray[np.int64], exp: NDArray[np.int64], codes: Codes) -> Deltas:
        self.shown.insert(ids, ts, exp, codes)
        return rows_of(ids, ts, exp, POS)

    def _codes(self, count: int) -> None:
        self.shown.codes(count)
        known = len(self._pending)
        if count > known:
            size = max(count, 2 * known)
            self._pending = np.full(size, -1, np.int32)
            ids, times = self._spare_ids, self._spare_times
            self._spare_ids = np.zeros((size, ids.shape[1]), np.int64)
            self._spare_times = np.full((size, 2), NOT_YET, np.int64)
            self._spare_ids[:known], self._spare_times[:known] = ids, times

    @property
    def nbytes(self) -> int:
        own = self._pending.nbytes + self._spare_ids.nbytes + self._spare_times.nbytes
        return self.shown.nbytes + own + self.coder.nbytes

    def __len__(self) -> int:
        return len(self.shown) + int(np.count_nonzero(self._spare_times[: self.coder.size, 1] > NOT_YET))
