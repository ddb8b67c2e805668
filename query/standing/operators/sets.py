"""INTERSECT and EXCEPT, with or without ALL."""

import pyarrow as pa

from promising.query.standing.deltas import Deltas, Ids
from promising.query.standing.operators.multiplicity import NO_ENDS, Counted, Rule
from promising.query.standing.operators.step import Step, Tick, split, told


class SetNode(Step):
    """Results of the left, with the multiplicity that the operation defines; NULL equals NULL."""

    def __init__(self, left: Step, right: Step, rule: Rule) -> None:
        self.children = (left, right)
        self.mode = left.mode
        self.width = left.width
        self.span = left.span
        self.kinds = left.kinds
        self.rule = rule
        self._held = Counted(rule, left.kinds, left, right)

    def step(self, tick: Tick) -> Deltas:
        pulled, time = self.pull(tick)
        if time is None:
            return told(tick, self.mode, [], self.width, 0, NO_ENDS)
        codes = []
        for child, part in zip(self.children, pulled, strict=True):
            _, came = split(part)
            codes.append(self._held.coder.enter(child.values(came.ids) if len(came) else [], len(came)))
        left, right = pulled
        parts, ends = self._held.apply(time, left, right, (codes[0], codes[1]))
        return told(tick, self.mode, parts, self.width, time, ends)

    def values(self, ids: Ids) -> list[pa.Array]:
        return self.children[0].values(ids)

    def own_bytes(self) -> int:
        return self._held.nbytes

    def own_entries(self) -> int:
        return len(self._held)
