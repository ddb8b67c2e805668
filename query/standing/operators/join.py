"""The equi-join of two windows."""

from collections.abc import Sequence

import numpy as np

from promising.query.kernels import standing_join as kernels
from promising.query.preference import BoundPreference
from promising.query.scalar.compiled import Compiled
from promising.query.standing.deltas import POS, Deltas, Ids, Mode, Times
from promising.query.standing.operators.deferred_probes import Waiting
from promising.query.standing.operators.entry_store import Coder, Entries, Places, slot_width
from promising.query.standing.operators.leaf import Leaf
from promising.query.standing.operators.step import Body, Tick, chosen, missing, rows_of, split, told

NO_ENDS: Times = np.empty(0, np.int64)


class Side:
    """One window of a join: its live tuples by key."""

    def __init__(self, node: Leaf, keys: Sequence[Compiled], mode: Mode) -> None:
        self.node = node
        self.keys = tuple(keys)
        self.entries = Entries(node.width, slot_width(node.length), mode is Mode.NTA)


class JoinNode(Body):
    """Pairs of tuples with equal keys that satisfy the residual; NULL equals nothing.

    The NOTE of an entry counts the results that expire with it, so that the time is emitted only when results expire.
    Expiring tuples probe no partners, except in `nta`.
    """

    def __init__(
        self,
        left: Leaf,
        right: Leaf,
        keys: Sequence[tuple[Compiled, Compiled]],
        residual: Sequence[Compiled] = (),
        preference: BoundPreference | None = None,
    ) -> None:
        self.preference = preference
        self.waiting: Waiting | None = None  # deferred probes, from the first tick with a budget on
        self._given_up = 0.0
        self._deferred = False
        self.mode = left.mode
        self.children = (left, right)
        self.width = left.width + right.width
        spans = [side.span for side in (left, right) if side.span is not None]
        self.span = min(spans) if spans else None
        self.sources = dict(left.sources)
        self.sources.update({place: (rows, left.width + at) for place, (rows, at) in right.sources.items()})
        self.residual = tuple(residual)
        self.coder = Coder([mine.kind for mine, _ in keys])
        self.sides = (
            Side(left, [mine for mine, _ in keys], self.mode),
            Side(right, [theirs for _, theirs in keys], self.mode),
        )

    def step(self, tick: Tick) -> Deltas:
        pulled, time = self.pull(tick)
        if time is None and self.pending:
            time = self.clock
        if time is None:
            return told(tick, self.mode, [], self.width, 0, NO_ENDS)
        if tick.allowance is not None and self.waiting is None:
            self.waiting = Waiting((self.sides[0].entries, self.sides[1].entries), self.preference)
        parts: list[Deltas] = []
        ends = NO_ENDS if self.mode is Mode.NTA else self._expire(time)
        came: list[Deltas] = []
        for number, deltas in enumerate(pulled):
            went, new = split(deltas)
            came.append(new)
            if len(went):
                parts += self._retract(tick, number, went)
        if tick.allowance is None and self.pending:
            parts += self._catch_up(tick)
        for number, new in enumerate(came):
            if len(new):
                places = self._enter(number, new)
                if self.waiting is not None:
                    self.waiting.enter(number, places, tick.allowance is not None)
                if len(places) and tick.allowance is None:
                    parts += self._probe(tick, number, *self.pairs(number, places), POS)
        if tick.allowance is not None:
            parts += self._catch_up(tick)
        self._tidy()
        return told(tick, self.mode, parts, self.width, time, ends)

    def _expire(self, time: int) -> Times:
        """Remove expired entries: when results expired with them."""
        ends: list[Times] = []
        gone = [side.entries.expire(time) for side in self.sides]
        if self.waiting is not None:
            self._given_up += self.waiting.over(gone)
        for number, places in enumerate(gone):
            if not len(places):
                continue
            entries = self.sides[number].entries
            ends.append(entries.times[places[entries.notes[places] > 0], 1])
        return np.concatenate(ends) if ends else NO_ENDS

    def _catch_up(self, tick: Tick) -> list[Deltas]:
        """Do deferred probes, the most promising first, while the allowance lasts."""
        assert self.waiting is not None
        parts: list[Deltas] = []
        while self.pending and (tick.allowance is None or tick.allowance()):
            for at, (number, places) in enumerate(self.waiting.best()):
                if at and tick.allowance is not None and not tick.allowance():
                    break
                parts += self._probe(tick, number, *self.waiting.pairs(number, places), POS)
                self.waiting.done(number, places)
            self.waiting.sweep()
        self._deferred |= self.pending
        return parts

    def _enter(self, number: int, new: Deltas) -> Places:
        """Insert arrivals whose keys are not NULL."""
        side = self.sides[number]
        arrays = side.node.evaluate(side.keys, new.ids)
        absent = missing(arrays, len(new))
        if absent is not None:
            new = chosen(new, ~absent)
            arrays = [array.filter(~absent) for array in arrays]
        codes = self.coder.enter(arrays, len(new))
        for one in self.sides:
            one.entries.codes(self.coder.size)
        return side.entries.insert(new.ids, new.ts, new.exp, codes)

    def _retract(self, tick: Tick, number: int, went: Deltas) -> list[Deltas]:
        """Remove tuples, and the results that contain them."""
        side = self.sides[number]
        places = side.entries.find(went.ids)
        there = places >= 0  # tuples without a key were never inserted
        places = places[there]
        side.entries.remove_at(places)
        if not len(places):
            return []
        mine, theirs = self.pairs(number, places)
        tick.counters.expiry_probes += len(mine)
        if self.waiting is not None:
            known = self.waiting.told(number, mine, theirs)
            self._given_up += self.waiting.leave(number, places)
            mine, theirs = mine[known], theirs[known]
        return self._probe(tick, number, mine, theirs, int(went.kinds[0]))

    def _probe(self, tick: Tick, number: int, mine: Places, theirs: Places, kind: int) -> list[Deltas]:
        tick.counters.probes += len(mine)
        if not len(mine):
            return []
        left, right = (mine, theirs) if number == 0 else (theirs, mine)
        made = self._composed(left, right, kind)
        if self.residual:
            kept = self.meets(self.residual, made.ids)
            if not kept.all():
                made, left, right = chosen(made, kept), left[kept], right[kept]
        if kind == POS and self.mode is not Mode.NTA:
            a, b = self.sides[0].entries, self.sides[1].entries
            kernels.credit(left, right, a.times, a.links, b.times, b.links)
        return [made]

    def pairs(self, number: int, places: Places) -> tuple[Places, Places]:
        """Entries of one side with all partners of the other."""
        side, other = self.sides[number].entries, self.sides[1 - number].entries
        room = kernels.partner_count(places, side.links, other.heads)
        mine, theirs = np.empty(room, np.int32), np.empty(room, np.int32)
        if room:
            kernels.partners(places, side.links, other.heads, other.links, mine, theirs)
        return mine, theirs

    def _composed(self, left: Places, right: Places, kind: int) -> Deltas:
        a, b = self.sides[0].entries, self.sides[1].entries
        ids: Ids = np.empty((len(left), self.width), np.int64)
        ts, exp = np.empty(len(left), np.int64), np.empty(len(left), np.int64)
        kernels.compose(left, right, a.ids, a.times, b.ids, b.times, ids, ts, exp)
        return rows_of(ids, ts, exp, kind)

    def _tidy(self) -> None:
        for number, side in enumerate(self.sides):
            moved = side.entries.shrink()
            if moved is not None and self.waiting is not None:
                self.waiting.moved(number, moved)
        if self.coder.crowded:
            a, b = (side.entries for side in self.sides)
            changed = self.coder.renumber((a.counts[: self.coder.size] > 0) | (b.counts[: self.coder.size] > 0))
            if changed is not None:
                a.recode(*changed)
                b.recode(*changed)

    @property
    def pending(self) -> bool:
        return self.waiting is not None and len(self.waiting) > 0

    @property
    def deferred(self) -> bool:
        return self._deferred

    @property
    def shed(self) -> float:
        return self._given_up

    def own_bytes(self) -> int:
        return sum(side.entries.nbytes for side in self.sides) + self.coder.nbytes

    def own_entries(self) -> int:
        return sum(len(side.entries) for side in self.sides)
