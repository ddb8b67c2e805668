"""UNION ALL."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.query.standing.deltas import Deltas, Ids, Mode, joined, nothing
from promising.query.standing.operators.step import Step, Tick, handed


class UnionNode(Step):
    """Results of all branches: branch number, the branch's ids, zero padding."""

    def __init__(self, branches: Sequence[Step]) -> None:
        self.children = tuple(branches)
        self.mode = branches[0].mode
        self.kinds = branches[0].kinds
        spans = [branch.span for branch in branches if branch.span is not None]
        self.span = max(spans) if len(spans) == len(branches) else None
        self.width = 1 + max(branch.width for branch in branches)

    def step(self, tick: Tick) -> Deltas:
        parts, time = self.pull(tick)
        wide = [self._widened(branch, part) for branch, part in enumerate(parts) if len(part)]
        if not wide and (self.mode is Mode.ITA or all(part.time is None for part in parts)):
            time = None
        return handed(tick, joined(wide, time) if wide else nothing(self.width, time))

    def _widened(self, branch: int, part: Deltas) -> Deltas:
        ids = np.zeros((len(part), self.width), np.int64)
        ids[:, 0] = branch
        ids[:, 1 : 1 + part.ids.shape[1]] = part.ids
        return Deltas(ids, part.ts, part.exp, part.kinds, part.time)

    def values(self, ids: Ids) -> list[pa.Array]:
        order: list[NDArray[np.int64]] = []
        found: list[list[pa.Array]] = []
        for branch, child in enumerate(self.children):
            mine = np.flatnonzero(ids[:, 0] == branch)
            if len(mine) or (not len(ids) and branch == 0):
                found.append(child.values(np.ascontiguousarray(ids[mine, 1 : 1 + child.width])))
                order.append(mine)
        if len(found) == 1:
            return found[0]
        back = np.empty(len(ids), np.int64)
        back[np.concatenate(order)] = np.arange(len(ids))
        place = pa.array(back)
        return [pa.concat_arrays(parts).take(place) for parts in zip(*found, strict=True)]
