"""Rows as of the insertion of their results."""

import numpy as np
import pyarrow as pa

from promising.query.standing.deltas import Deltas, Ids
from promising.query.standing.operators.entry_store import Entries, slot_width
from promising.query.standing.operators.group import Told
from promising.query.standing.operators.step import Step, Tick, split


class KeptNode(Step):
    """The results of its input, each stored with its row until the end is reported.

    In `ita` the steps below may be ahead of the view: a result may have expired there, its group may have new values,
    and its row of a table may be deleted.
    """

    def __init__(self, child: Step) -> None:
        self.child = child
        self.children = (child,)
        self.mode = child.mode
        self.width = child.width
        self.span = child.span
        self.kinds = child.kinds
        self._held = Entries(child.width, slot_width(child.span), True)
        self._columns = [Told(kind) for kind in child.kinds]

    def step(self, tick: Tick) -> Deltas:
        deltas = self.child.step(tick)
        if deltas.time is not None:
            self._held.expire(deltas.time)
        went, came = split(deltas)
        if len(went):
            self._held.remove(went.ids)
        if len(came):
            places = self._held.insert(came.ids, came.ts, came.exp, np.zeros(len(came), np.int32))
            for column, values in zip(self._columns, self.child.values(came.ids), strict=True):
                column.grow(len(self._held.ids))
                column.put(places, values)
        self._tidy()
        return deltas

    def _tidy(self) -> None:
        moved = self._held.shrink()
        if moved is not None:
            old = np.flatnonzero(moved >= 0)
            for column in self._columns:
                column.keep(old[np.argsort(moved[old])])

    def values(self, ids: Ids) -> list[pa.Array]:
        places = self._held.find(ids)
        return [column.get(places) for column in self._columns]

    def own_bytes(self) -> int:
        return self._held.nbytes + sum(column.nbytes for column in self._columns)

    def own_entries(self) -> int:
        return len(self._held)
