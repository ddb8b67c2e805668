"""The view of ungrouped counts, sums and averages over one window; `shared_sums` maintains the sums."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from promising.errors import Overflow
from promising.index.instants import NEVER
from promising.query.aggregate.aggregates import Aggregate
from promising.query.bound import RESULT
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.scope import Input
from promising.query.scalar.types import ARROW
from promising.query.standing import plan
from promising.query.standing.deltas import Ids, Mode
from promising.query.standing.intervals import terms
from promising.query.standing.operators.group import ONE, Told, is_column
from promising.query.standing.range_sums import MOST_PLACES, Asked
from promising.query.standing.stream_source import StreamSource
from promising.query.standing.views import Changes, Planned, Seen, Selecting, View, may_wait, needed

FUNCTIONS = ("count", "sum", "avg")
NOTHING: Ids = np.empty((0, 2), np.int64)


def view_of(standing: plan.Standing, mode: Mode) -> View:
    """The kind of view that suits a query."""
    root = standing.root
    if isinstance(root, plan.StandingSelect) and isinstance(root.body, plan.Window) and not root.distinct:
        if not root.grouped:
            return Selecting(standing, mode)
        if mode is Mode.PIGGYBACK and not may_wait(standing):
            asked = _asked(root, root.body)
            if asked is not None:
                return Aggregating(standing, mode, asked)
    return Planned(standing, mode)


def _asked(select: plan.StandingSelect, window: plan.Window) -> list[Asked] | None:
    """One `Asked` per aggregate; None unless the query needs only counts and sums over ranges."""
    if select.keys or select.having is not None or window.length is None or any(o.can_fail for o in select.outputs):
        return None
    found, rest = terms(window.predicates, window.conditions)
    if rest or any(term.kind == "string" for term in found):
        return None
    made = []
    for aggregate, argument in zip(select.aggregates, select.arguments, strict=True):
        name = None if argument is None else _column(argument)
        if aggregate.function not in FUNCTIONS or (argument is not None and name is None):
            return None
        made.append(Asked(tuple(found), name, aggregate.kind))
    return made if all(one.places <= MOST_PLACES for one in made) else None


def _column(argument: Compiled) -> str | None:
    if len(argument.inputs) != 1:
        return None
    (only,) = argument.inputs
    return only.name if is_column(argument, only) else None


class Aggregating(View):
    """One row with the id (0, version): the aggregates of the live window, computed on demand."""

    keyed = True
    width = 2

    def __init__(self, standing: plan.Standing, mode: Mode, asked: list[Asked]) -> None:
        super().__init__(standing, mode)
        assert isinstance(standing.root, plan.StandingSelect)
        self._select = standing.root
        self._asked = asked
        self._inputs = [Input(RESULT, f"a{at}", one.result_kind) for at, one in enumerate(self._select.aggregates)]
        self._told = [Told(kind) for kind in standing.kinds]
        self._version = 0
        self._told_at = 0
        self._looked: tuple[int, int] | None = None

    def open(self, sources: Callable[[plan.Window], StreamSource]) -> None:
        (window,) = plan.windows(self._select)
        source = sources(window)
        # The reader gets no conditions: the sums check them, not the stream's selections.
        reader = source.enter(replace(window, predicates=(), conditions=()), needed(self._select))
        self._readers = [reader]
        different = {one.argument: replace(one, first=reader.first) for one in self._asked}
        self._place = [list(different).index(one.argument) for one in self._asked]
        self._totals = source.totals_of(window)
        self._totals.add(reader.number, list(different.values()))

    def close(self) -> None:
        for reader in self._readers:
            self._totals.remove(reader.number)
        super().close()

    @property
    def now(self) -> int:
        return self._readers[0].source.clock

    @property
    def tick(self) -> int:
        return self._readers[0].source.number

    @property
    def changed(self) -> int:
        self._look()
        return self._told_at

    def fill(self, number: int) -> None: ...

    def since(self, seen: Seen | None, *, same: bool) -> Changes:
        self._look()
        anew = seen is None or not same
        if seen is not None and not anew and seen.tick >= self._told_at:
            return Changes(False, NOTHING, NOTHING[:, 0], NOTHING)
        return Changes(anew, np.array([[0, self._version]]), np.array([NEVER]), NOTHING)

    def _look(self) -> None:
        """Report a new version if the row has changed."""
        if self._looked == (self.tick, self.now):
            return
        sums = self._totals.of(self._readers[0].number, self.now)
        values = [
            pa.array([_value(one, sums[at])], ARROW[one.result_kind])
            for one, at in zip(self._select.aggregates, self._place, strict=True)
        ]
        columns = dict(zip(self._inputs, values, strict=True))
        row = [output.evaluate(columns, 1) for output in self._select.outputs]
        self._looked = self.tick, self.now
        if self._version and all(told.same(ONE, value)[0] for told, value in zip(self._told, row, strict=True)):
            return
        for told, value in zip(self._told, row, strict=True):
            told.put(ONE, value)
        self.went = self.came  # each version replaces the previous one
        self.came = self._version = self._version + 1
        self._told_at = self.tick

    def rows(self, ids: Ids) -> pa.Table:
        at = np.zeros(len(ids), np.int32)
        return pa.Table.from_arrays([told.get(at) for told in self._told], schema=self.schema)

    @property
    def size(self) -> int:
        self._look()  # fail here if it would fail later
        return 1

    @property
    def nbytes(self) -> int:
        return 0

    @property
    def store(self) -> str:
        return "sums"


def _value(aggregate: Aggregate, found: tuple[float, float, int] | tuple[int, int, int]) -> float | int | None:
    """The value of an aggregate from its sums: (sum, rounding error, count) of floats, (high, low, count) of others."""
    high, low, count = found
    if aggregate.function == "count":
        return int(count)
    if not count:
        return None
    if aggregate.kind == "float":
        total = high + low if math.isfinite(high) else high
        return total / count if aggregate.function == "avg" else total
    if aggregate.function == "avg":
        return (high * 2.0**32 + low) / count
    whole = (int(high) << 32) + int(low)
    if not -(1 << 63) <= whole < 1 << 63:
        raise Overflow(f"sum {whole} does not fit 64 bits")
    return whole
