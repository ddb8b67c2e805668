"""Sinks for rows: passed through, sorted, or aggregated."""

from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import Overflow
from promising.query.aggregate.aggregates import Groups
from promising.query.aggregate.estimators import Estimated, Sample, estimate
from promising.query.bound import RESULT, Bound
from promising.query.limit_by import RowLimit, first_places
from promising.query.operators.key_limit import KeyLimit
from promising.query.operators.operator import Batch, Operator, Sampler
from promising.query.order import sorted_places
from promising.query.pipeline import Pipeline
from promising.query.scalar.positions import offset_of
from promising.query.scalar.scope import Input
from promising.query.scalar.types import ARROW

CROWDED = 1 << 14  # rows retained beyond a LIMIT before the worst are evicted


class Shown(NamedTuple):
    rows: pa.Table
    lower: pa.Table | None = None
    upper: pa.Table | None = None


def schema(bound: Bound) -> pa.Schema:
    return pa.schema([(name, ARROW[o.kind]) for name, o in zip(bound.names, bound.outputs, strict=True)])


def no_rows(schema: pa.Schema) -> pa.Table:
    """An empty table; of many columns, in a fraction of the time of `empty_table`."""
    return pa.Table.from_batches([], schema)


class Plain:
    """Rows in order of arrival, up to the limits."""

    def __init__(self, bound: Bound, pipeline: Pipeline) -> None:
        self.bound = bound
        self.pipeline = pipeline
        self.count = 0
        self.schema = schema(bound)
        self._fresh: list[pa.Table] = []
        self._by = None if bound.limit_by is None else RowLimit(bound.limit_by)
        self.by_key: KeyLimit | None = None  # instead of `_by`, if entries of the operator are its values

    @property
    def nbytes(self) -> int:
        by = self._by if self.by_key is None else self.by_key.rows
        fresh: int = sum(t.nbytes for t in self._fresh)
        return fresh + (0 if by is None else by.nbytes)

    @property
    def full(self) -> bool:
        return self.bound.limit is not None and self.count >= self.bound.limit

    def add(self, batch: Batch) -> int:
        """Add candidates; returns how many met the conditions."""
        batch = self.pipeline.passed(batch)
        found = len(batch)
        if found and self.by_key is not None:
            batch = batch.where(self.by_key.admit(batch.rows))
        elif found and self._by is not None:
            assert self.bound.limit_by is not None
            columns = self.pipeline.compute(self.bound.limit_by.columns, batch)
            batch = batch.where(self._by.admit(columns, found))
        if self.bound.limit is not None and len(batch) > self.bound.limit - self.count:
            batch = Batch(tuple(r[: self.bound.limit - self.count] for r in batch.rows))
        if len(batch):
            columns = self.pipeline.compute(self.bound.outputs, batch)
            self._fresh.append(pa.Table.from_arrays(columns, schema=self.schema))
            self.count += len(batch)
        return found

    @property
    def waiting(self) -> int:
        return sum(t.num_rows for t in self._fresh)

    def take(self) -> Shown:
        """Rows added since the last call."""
        fresh, self._fresh = self._fresh, []
        return Shown(pa.concat_tables(fresh) if fresh else no_rows(self.schema))


class Sorted:
    """Rows in the order of ORDER BY. Those beyond the limits are evicted whenever as many again have been added."""

    def __init__(self, bound: Bound, pipeline: Pipeline) -> None:
        self.bound = bound
        self.pipeline = pipeline
        self.schema = schema(bound)
        self.full = bound.limit == 0
        by = () if bound.limit_by is None else bound.limit_by.columns
        self._wanted = [[o.value for o in bound.order], list(by), list(bound.outputs)]
        self._kept: list[list[list[pa.Array]]] = []  # sort keys, values of LIMIT n BY, outputs
        self._held = 0
        self._settled = bound.limit or 0  # rows after the last eviction

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for part in self._kept for columns in part for a in columns)

    @property
    def held(self) -> int:
        return self._held

    @property
    def count(self) -> int:
        return self._held if self.bound.limit is None else min(self._held, self.bound.limit)

    def add(self, batch: Batch) -> int:
        batch = self.pipeline.passed(batch)
        if len(batch):
            made = iter(self.pipeline.compute([e for part in self._wanted for e in part], batch))
            self._kept.append([list(islice(made, len(part))) for part in self._wanted])
            self._held += len(batch)
            limited = self.bound.limit is not None or self.bound.limit_by is not None
            if limited and self._held > 2 * self._settled + CROWDED:
                self._merge()
        return len(batch)

    def _merge(self) -> list[pa.Array]:
        """Sort all rows and evict those beyond the limits: no row added later can bring one of them back."""
        if not self._kept:
            return [pa.array([], f.type) for f in self.schema]
        parts = [[pa.concat_arrays(c) for c in zip(*part, strict=True)] for part in zip(*self._kept, strict=True)]
        order = sorted_places(parts[0], self.bound.order)
        if self.bound.limit_by is not None:
            values = [column.take(pa.array(order)) for column in parts[1]]
            order = order[first_places(self.bound.limit_by, values, len(order))]
        places = pa.array(order[: self.bound.limit])
        self._kept = [[[column.take(places) for column in part] for part in parts]]
        self._held = self._settled = len(places)
        return self._kept[0][2]

    def take(self) -> Shown:
        return Shown(pa.Table.from_arrays(self._merge(), schema=self.schema))


class Aggregated:
    """Aggregates: exact over what the worker has processed; the rest is estimated from a sample, if there is one."""

    full = False

    def __init__(self, bound: Bound, pipeline: Pipeline) -> None:
        self.bound = bound
        self.pipeline = pipeline
        self.schema = schema(bound)
        self.groups = Groups([k.kind for k in bound.group_keys], bound.aggregates)
        self.count = 0
        self._parts: list[tuple[list[pa.Array], list[pa.Array | None], NDArray[np.int64]]] = []

    @property
    def nbytes(self) -> int:
        drawn: int = sum(a.nbytes for keys, arguments, _ in self._parts for a in (*keys, *arguments) if a is not None)
        return drawn + 64 * self.groups.size * (1 + len(self.bound.aggregates))

    def _columns(self, batch: Batch) -> tuple[list[pa.Array], list[pa.Array | None]]:
        made = self.pipeline.compute([*self.bound.group_keys, *self.bound.arguments], batch)
        keys = len(self.bound.group_keys)
        return made[:keys], made[keys:]

    def add(self, batch: Batch) -> int:
        batch = self.pipeline.passed(batch)
        if len(batch):
            self.groups.add(*self._columns(batch), len(batch))
        return len(batch)

    def add_sample(self, batch: Batch) -> int:
        batch = self.pipeline.passed(batch)
        if len(batch):
            assert batch.draw is not None
            self._parts.append((*self._columns(batch), batch.draw))
        return len(batch)

    def estimated(self, sampler: Sampler | None, worker: Operator, left: float, confidence: float) -> Estimated:
        """All aggregates, exact if nothing is left. `left` counts candidates about which nothing is known yet."""
        drawn, population = np.empty(0, np.bool_), left
        if sampler is not None and not left:
            drawn, population = sampler.rest(worker)
        keys, arguments, rows = self._sample(drawn)
        sample = Sample(keys, arguments, rows)
        try:
            return estimate(self.groups, sample, int(drawn.sum()), int(population), confidence)
        except Overflow as problem:
            calls = zip(self.bound.aggregates, self.bound.calls, strict=True)
            at = next((c for a, c in calls if a.function == "sum" and a.kind == "int"), None)
            raise Overflow(problem.problem, self.bound.scope.sql, None if at is None else offset_of(at)) from None

    def _sample(self, left: NDArray[np.bool_]) -> tuple[list[pa.Array], list[pa.Array | None], int]:
        """Draws that the worker has not yet reached."""
        if len(self._parts) > 1:
            keys, arguments, draws = zip(*self._parts, strict=True)
            self._parts = [(_joined(keys), _joined(arguments), np.concatenate(draws))]
        if not self._parts:
            kinds = [ARROW[k.kind] for k in self.bound.group_keys]
            none = [None if a is None else pa.array([], ARROW[a.kind]) for a in self.bound.arguments]
            return [pa.array([], t) for t in kinds], none, 0
        keys_, arguments_, draws_ = self._parts[0]
        kept = left[draws_]
        if kept.all():
            return keys_, arguments_, len(draws_)
        mask = pa.array(kept)
        return (
            [k.filter(mask) for k in keys_],
            [None if a is None else a.filter(mask) for a in arguments_],
            int(kept.sum()),
        )

    def shown(self, found: Estimated) -> Shown:
        """Apply HAVING, ORDER BY, LIMIT n BY, LIMIT and the select list to the aggregates."""
        bound = self.bound
        rows = len(found.value[0]) if found.value else (len(found.keys[0]) if found.keys else 1)
        columns = {
            Input(RESULT, f"k{i}", k.kind): a for i, (k, a) in enumerate(zip(bound.group_keys, found.keys, strict=True))
        }
        columns |= {
            Input(RESULT, f"a{i}", a.result_kind): v
            for i, (a, v) in enumerate(zip(bound.aggregates, found.value, strict=True))
        }
        places: NDArray[np.int64] = np.arange(rows)
        if bound.having is not None:
            kept = bound.having.evaluate(columns, rows).cast(pa.bool_()).fill_null(False)
            places = np.flatnonzero(kept.to_numpy(zero_copy_only=False))
        taken = pa.array(places)
        columns = {i: a.take(taken) for i, a in columns.items()}
        if bound.order:
            keys = [o.value.evaluate(columns, len(places)) for o in bound.order]
            order = sorted_places(keys, bound.order)
            columns = {i: a.take(pa.array(order)) for i, a in columns.items()}
            places = places[order]
        if bound.limit_by is not None:
            values = [c.evaluate(columns, len(places)) for c in bound.limit_by.columns]
            first = first_places(bound.limit_by, values, len(places))
            columns = {i: a.take(pa.array(first)) for i, a in columns.items()}
            places = places[first]
        places = places[: bound.limit]
        columns = {i: a.slice(0, len(places)) for i, a in columns.items()}
        outputs = [o.evaluate(columns, len(places)) for o in bound.outputs]
        self.count = len(places)
        return Shown(
            pa.Table.from_arrays(outputs, schema=self.schema),
            self._bound_table(found.lower, places),
            self._bound_table(found.upper, places),
        )

    def _bound_table(self, bounds: list[pa.Array], places: NDArray[np.int64]) -> pa.Table:
        columns, fields = [], []
        for name, output, number in zip(self.bound.names, self.bound.outputs, self.bound.shown, strict=True):
            made = (
                pa.nulls(len(places), ARROW[output.kind]) if number is None else bounds[number].take(pa.array(places))
            )
            columns.append(made)
            fields.append((name, made.type))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _joined(parts: tuple[list[pa.Array | None], ...]) -> list[pa.Array | None]:
    return [None if column[0] is None else pa.concat_arrays(column) for column in zip(*parts, strict=True)]
