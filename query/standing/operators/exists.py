"""EXISTS and NOT EXISTS."""

from collections.abc import Sequence

import numpy as np

from promising.query.scalar.compiled import Compiled
from promising.query.standing.deltas import POS, Deltas
from promising.query.standing.operators.leaf import Leaf
from promising.query.standing.operators.multiplicity import NO_ENDS, Counted
from promising.query.standing.operators.step import Body, Tick, chosen, missing, split, told


class ExistsNode(Body):
    """Results of the left with (`negated`: without) a tuple of the right that has equal keys; NULL equals nothing."""

    def __init__(self, left: Body, right: Leaf, keys: Sequence[tuple[Compiled, Compiled]], negated: bool) -> None:
        self.left, self.right = left, right
        self.children = (left, right)
        self.mode = left.mode
        self.width = left.width
        self.span = left.span
        self.sources = left.sources
        self.negated = negated
        self._keys = (tuple(mine for mine, _ in keys), tuple(theirs for _, theirs in keys))
        kinds = [mine.kind for mine in self._keys[0]]
        self._held = Counted("not exists" if negated else "exists", kinds, left, right)

    def step(self, tick: Tick) -> Deltas:
        (left, right), time = self.pull(tick)
        if time is None:
            return told(tick, self.mode, [], self.width, 0, NO_ENDS)
        coder = self._held.coder
        _, came = split(left)
        # A NULL of the left gets a code too; no tuple of the right has it.
        mine = coder.enter(self.left.evaluate(self._keys[0], came.ids), len(came))
        _, came = split(right)
        arrays = self.right.evaluate(self._keys[1], came.ids)
        absent = missing(arrays, len(came))
        if absent is not None:
            arrays = [array.filter(~absent) for array in arrays]
            kept = np.ones(len(right), np.bool_)
            kept[np.flatnonzero(right.kinds == POS)[absent]] = False
            right = chosen(right, kept)
        theirs = coder.enter(arrays, len(arrays[0]) if arrays else len(came))
        parts, ends = self._held.apply(time, left, right, (mine, theirs))
        return told(tick, self.mode, parts, self.width, time, ends)

    def own_bytes(self) -> int:
        return self._held.nbytes

    def own_entries(self) -> int:
        return len(self._held)
