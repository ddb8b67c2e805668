"""The output columns of a SELECT without groups."""

from collections.abc import Sequence

import pyarrow as pa

from promising.query.scalar.compiled import Compiled
from promising.query.standing.deltas import Deltas, Ids
from promising.query.standing.operators.step import Body, Step, Tick


class ProjectNode(Step):
    """The outputs over a body's unchanged results; it is not counted as an edge."""

    def __init__(self, body: Body, outputs: Sequence[Compiled]) -> None:
        self.body = body
        self.outputs = tuple(outputs)
        self.children = (body,)
        self.width = body.width
        self.mode = body.mode
        self.span = body.span
        self.kinds = tuple(one.kind for one in self.outputs)

    def step(self, tick: Tick) -> Deltas:
        return self.body.step(tick)

    def values(self, ids: Ids) -> list[pa.Array]:
        return self.body.evaluate(self.outputs, ids)
