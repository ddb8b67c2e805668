"""Tuples for the steps of a standing plan, without a stream around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.query.scalar.compiled import Compiled, column
from promising.query.scalar.scope import Input
from promising.query.standing.deltas import NEG_EXP, POS, Counters, Deltas
from promising.query.standing.operators.leaf import Leaf
from promising.query.standing.operators.step import Step, Tick
from promising.query.standing.stores import Store

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """Columns of whole numbers by number of arrival, all there from the start."""

    columns: Mapping[str, Ints]

    def take(self, column: str, ids: Ints) -> pa.Array:
        return pa.array(self.columns[column][ids])


def whole(source: int, name: str) -> Compiled:
    """A column of whole numbers."""
    return column(Input(source, name, "int"))


@dataclass
class Running:
    """A plan at work: `times` of each leaf's tuples, and the store of what is shown."""

    node: Step
    leaves: Sequence[Leaf]
    times: Sequence[Ints]
    store: Store
    counters: Counters = field(default_factory=Counters)
    number: int = 0
    invalid: int = 0
    """Results that went before their time."""
    ended: int = 0
    """Results that went at their time, told or not."""

    def tick(self, now: int, firsts: Sequence[int], ends: Sequence[int]) -> Deltas:
        """Take in the tuples of each leaf from one number to another, and keep what is shown."""
        for leaf, times, first, end in zip(self.leaves, self.times, firsts, ends, strict=True):
            leaf.arrive(np.arange(first, end), times[first:end])
        self.number += 1
        deltas = self.node.step(Tick(now, self.number, self.counters))
        self.ended += self.store.expire(now)
        came = deltas.kinds == POS
        gone = ~came
        if gone.any():
            over = int(np.count_nonzero(deltas.kinds == NEG_EXP))
            self.ended += over
            self.invalid += int(np.count_nonzero(gone)) - over
            self.store.remove(deltas.ids[gone])
        if came.any():
            self.store.insert(deltas.ids[came], deltas.exp[came], self.number)
        return deltas
