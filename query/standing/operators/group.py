"""GROUP BY: incrementally maintained aggregates."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.instants import BEGINNING, NEVER
from promising.query.aggregate.aggregates import Aggregate
from promising.query.aggregate.arrow_memory import present, raw
from promising.query.bound import RESULT
from promising.query.scalar.compiled import ColumnFrame, Compiled
from promising.query.scalar.scope import Input
from promising.query.scalar.types import ARROW, Kind
from promising.query.standing.deltas import NEG_INV, POS, Deltas, Ids, Mode
from promising.query.standing.operators.entry_store import LEAST, Coder, Codes, Entries, Places, slot_width
from promising.query.standing.operators.multiplicity import NO_ENDS
from promising.query.standing.operators.running_aggregates import Argument, Running, grown, kept_up, running, worked_out
from promising.query.standing.operators.step import Body, Step, Tick, rows_of, split, told, truth

"""A time at which nothing has ended: that of a group over nothing, where no time was told yet."""

ONE: Codes = np.zeros(1, np.int32)


class Told:
    """The last reported value of one aggregate, by group."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        dtype: Any = object if kind == "string" else np.float64 if kind == "float" else np.int64
        self._values: NDArray[Any] = np.zeros(1, dtype)
        self._there = np.zeros(1, np.uint8)

    def grow(self, size: int) -> None:
        self._values, self._there = grown(self._values, size), grown(self._there, size)

    def put(self, groups: Codes, array: pa.Array) -> None:
        values, there = self._raw(array)
        self._values[groups], self._there[groups] = values, there

    def _raw(self, array: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        there = present(array)
        if self.kind == "string":
            values = np.empty(len(array), object)
            values[:] = array.to_pylist()
        else:
            values = raw(array, self.kind)
        return values, np.ones(len(array), np.uint8) if there is None else there

    def get(self, groups: Codes) -> pa.Array:
        values, missing = self._values[groups], self._there[groups] == 0
        if self.kind == "null":
            return pa.nulls(len(groups))
        if self.kind == "string":
            return pa.array(values, ARROW["string"], mask=missing)
        if self.kind == "bool":
            return pa.array(values == 1, mask=missing)
        return pa.array(values, mask=missing).view(ARROW[self.kind])

    def same(self, groups: Codes, array: pa.Array) -> NDArray[np.bool_]:
        new, there = self._raw(array)
        old = self._values[groups]
        if self.kind == "float":  # compare bits, so that NaN equals itself
            old, new = old.view(np.int64), np.ascontiguousarray(new).view(np.int64)
        equal = old == new
        out: NDArray[np.bool_] = (self._there[groups] == there) & (equal | (there == 0))
        return out

    def keep(self, kept: NDArray[np.int64]) -> None:
        self._values, self._there = self._values[kept], self._there[kept]

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + self._there.nbytes


class GroupNode(Step):
    """One result for each non-empty group that satisfies HAVING: (group number, version).

    A changed group is retracted and inserted with the next version; an unchanged one emits nothing. Without keys there
    is one group from the first tick on, even if empty.
    """

    width = 2

    def __init__(
        self,
        body: Body,
        keys: Sequence[Compiled],
        aggregates: Sequence[Aggregate],
        arguments: Sequence[Compiled | None],
        outputs: Sequence[Compiled],
        having: Compiled | None = None,
    ) -> None:
        self.body = body
        self.children = (body,)
        self.mode = body.mode
        self.keys, self.aggregates, self.arguments = tuple(keys), tuple(aggregates), tuple(arguments)
        self.outputs, self.having = tuple(outputs), having
        self.kinds = tuple(one.kind for one in self.outputs)
        self.coder = Coder([key.kind for key in self.keys])
        self.entries = Entries(body.width, slot_width(body.span), True)
        self._kept: dict[Compiled, Argument] = {}
        self._running: list[Running | None] = []
        for aggregate, value in zip(self.aggregates, self.arguments, strict=True):
            held = None
            if value is not None and kept_up(aggregate):
                assert aggregate.kind is not None
                held = self._kept.get(value) or Argument(self.entries, aggregate.kind)
                self._kept[value] = held
            self._running.append(running(aggregate, held, self.entries))
        self._told = [Told(aggregate.result_kind) for aggregate in self.aggregates]
        self._key_inputs = [Input(RESULT, f"k{at}", key.kind) for at, key in enumerate(self.keys)]
        self._inputs = [Input(RESULT, f"a{at}", one.result_kind) for at, one in enumerate(self.aggregates)]
        bare = {one for one in self._inputs if any(is_column(output, one) for output in self.outputs)}
        self._all_shown = bare == set(self._inputs)  # then every change of an aggregate changes the row
        self._numbers = np.zeros(LEAST, np.int64)  # increases with the code
        self._versions = np.zeros(LEAST, np.int64)
        self._shown = np.zeros(LEAST, np.bool_)
        self._known = 0
        self._next = 0
        self._begun = False

    def step(self, tick: Tick) -> Deltas:
        (below,), time = self.pull(tick)
        touched: list[Codes] = []
        if time is not None:
            went, came = split(below)
            if self.mode is not Mode.NTA:
                touched.append(self._leave(self.entries.expire(time)))
            if len(went):
                touched.append(self._leave(self.entries.remove(went.ids)))
            if len(came):
                touched.append(self._enter(came))
        if not self._begun:
            self._begun = True
            if not self.keys:
                self._grow()
                touched.append(ONE)
                time = BEGINNING if time is None else time
        if time is None:
            return told(tick, self.mode, [], self.width, 0, NO_ENDS)
        touched = [codes for codes in touched if len(codes)]
        parts = self._tell(self.coder.different(touched), time) if touched else []
        self._tidy()
        return told(tick, self.mode, parts, self.width, time, NO_ENDS)

    def _leave(self, places: Places) -> Codes:
        groups = self.entries.codes_at(places)
        if len(places):
            for one in self._running:
                if one is not None:
                    one.went(groups, places)
        return groups

    def _enter(self, came: Deltas) -> Codes:
        kept = list(self._kept)
        arrays = self.body.evaluate([*self.keys, *kept], came.ids)
        groups = self.coder.enter(arrays[: len(self.keys)], len(came))
        self._grow()
        places = self.entries.insert(came.ids, came.ts, came.exp, groups)
        for argument, array in zip(self._kept.values(), arrays[len(self.keys) :], strict=True):
            argument.keep(places, array)
        for one in self._running:
            if one is not None:
                one.came(groups, places, self.coder.size)
        return groups

    def _grow(self) -> None:
        size = self.coder.size
        if size == self._known:
            return
        self.entries.codes(size)
        self._numbers, self._versions = grown(self._numbers, size), grown(self._versions, size)
        self._shown = grown(self._shown, size)
        for one in self._told:
            one.grow(size)
        self._numbers[self._known : size] = np.arange(self._next, self._next + size - self._known)
        self._next += size - self._known
        self._known = size

    def _tell(self, groups: Codes, time: int) -> list[Deltas]:
        """The output changes, given the groups that changed."""
        shown = self._shown[groups]
        alive = self.entries.counts[groups] > 0 if self.keys else np.ones(len(groups), np.bool_)
        gone = [groups[shown & ~alive]]
        groups, shown = groups[alive], shown[alive]
        new = self._aggregates(groups)
        same = shown.copy()
        for one, values in zip(self._told, new, strict=True):
            same &= one.same(groups, values)
        if same.any():
            moved = ~same
            groups, shown = groups[moved], shown[moved]
            new = [values.filter(moved) for values in new]
        columns = self._columns(groups, new)
        if self.having is not None and len(groups):
            meets = truth(self.having.evaluate(columns, len(groups)))
            gone.append(groups[shown & ~meets])
            if not meets.all():
                groups, shown = groups[meets], shown[meets]
                new = [values.filter(meets) for values in new]
                columns = {one: values.filter(meets) for one, values in columns.items()}
        looked_at = not self._all_shown and bool(shown.any())
        same = self._unchanged(groups, columns, shown) if looked_at else np.zeros(len(groups), np.bool_)
        for one, values in zip(self._told, new, strict=True):
            one.put(groups, values)
        if same.any():
            groups, shown = groups[~same], shown[~same]
        parts: list[Deltas] = []
        retracted = np.concatenate((*gone, groups[shown]))
        if len(retracted):
            parts.append(self._results(retracted, NEG_INV, time))
        self._shown[gone[0]] = False
        self._shown[gone[-1]] = False
        if len(groups):
            self._versions[groups] += 1
            self._shown[groups] = True
            parts.append(self._results(groups, POS, time))
        return parts

    def _aggregates(self, groups: Codes) -> list[pa.Array]:
        members: tuple[NDArray[np.int32], Places] | None = None
        out: list[pa.Array] = []
        for one, aggregate, argument in zip(self._running, self.aggregates, self.arguments, strict=True):
            if one is not None:
                out.append(one.values(groups))
                continue
            if members is None:
                members = self.entries.members(groups)
            assert argument is not None
            which, places = members
            (values,) = self.body.evaluate([argument], self.entries.ids[places])
            out.append(worked_out(aggregate, which, len(groups), values))
        return out

    def _columns(self, groups: Codes, aggregates: Sequence[pa.Array]) -> dict[Input, pa.Array]:
        columns = dict(zip(self._inputs, aggregates, strict=True))
        if self.keys:
            columns.update(zip(self._key_inputs, self.coder.decode(groups), strict=True))
        return columns

    def _unchanged(self, groups: Codes, columns: dict[Input, pa.Array], shown: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Groups whose outputs are unchanged although an aggregate has changed."""
        same = shown.copy()
        old = dict(columns)
        old.update((one, known.get(groups)) for one, known in zip(self._inputs, self._told, strict=True))
        at = groups[shown]
        if not shown.all():
            columns = {one: values.filter(shown) for one, values in columns.items()}
            old = {one: values.filter(shown) for one, values in old.items()}
        equal = np.ones(len(at), np.bool_)
        for output in self.outputs:
            before, after = output.evaluate(old, len(at)), output.evaluate(columns, len(at))
            column = Told(output.kind)
            column.grow(len(at))
            column.put(np.arange(len(at), dtype=np.int32), before)
            equal &= column.same(np.arange(len(at), dtype=np.int32), after)
        same[shown] = equal
        return same

    def _results(self, groups: Codes, kind: int, time: int) -> Deltas:
        ids = np.empty((len(groups), 2), np.int64)
        ids[:, 0], ids[:, 1] = self._numbers[groups], self._versions[groups]
        return rows_of(ids, np.full(len(groups), time, np.int64), np.full(len(groups), NEVER, np.int64), kind)

    def values(self, ids: Ids) -> list[pa.Array]:
        groups = np.searchsorted(self._numbers[: self._known], ids[:, 0]).astype(np.int32)
        columns = self._columns(groups, [one.get(groups) for one in self._told])
        return [one.evaluate(columns, len(ids)) for one in self.outputs]

    def _tidy(self) -> None:
        self.entries.shrink()
        if not self.coder.crowded:
            return
        changed = self.coder.renumber(self.entries.counts[: self.coder.size] > 0)
        if changed is None:
            return
        kept, _ = changed
        self.entries.recode(*changed)
        for one in self._running:
            if one is not None:
                one.keep(kept)
        for told_with in self._told:
            told_with.keep(kept)
        self._numbers, self._versions = self._numbers[kept], self._versions[kept]
        self._shown = self._shown[kept]
        self._known = len(kept)

    def own_bytes(self) -> int:
        kept = sum(one.nbytes for one in self._running if one is not None)
        return self.entries.nbytes + self.coder.nbytes + kept + sum(one.nbytes for one in self._told)

    def own_entries(self) -> int:
        return len(self.entries)


def is_column(output: Compiled, one: Input) -> bool:
    if output.inputs != {one} or output.can_fail:
        return False
    mark = pa.nulls(1, ARROW[one.kind])
    return output.run(ColumnFrame({one: mark}, 1)) is mark
