"""Sinks for rows: passed through, sorted, or aggregated.

`nbytes` of each is what it needs to the end of the answer. `relieve` is called between slices, and `finish` after the
last; both yield after each step of work. What was `spilled` is in files until `close`; such an answer leaves through
`fresh`, like the rows of a `Plain`.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import Overflow
from promising.query.aggregate.aggregates import Groups
from promising.query.aggregate.certain import Certain
from promising.query.aggregate.estimators import Estimated, Sample, estimate
from promising.query.bound import RESULT, Bound
from promising.query.cells import Cells
from promising.query.limit_by import RowLimit, first_places
from promising.query.merge_sort import RUN, MergeSort, Parts
from promising.query.operators.extremes_first import ExtremesFirst
from promising.query.operators.key_limit import KeyLimit
from promising.query.operators.operator import Batch, Operator, Sampler
from promising.query.order import Direction, Term, sorting
from promising.query.pipeline import Pipeline
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.positions import offset_of
from promising.query.scalar.scope import Input
from promising.query.scalar.types import ARROW
from promising.query.spill import Spill
from promising.query.spilled_groups import SpilledGroups
from promising.query.steps import MANY, Load, Steps, drained

CROWDED, CROWDED_BYTES = 1 << 14, 1 << 22  # retained beyond a LIMIT before the worst are evicted
WORTH = 1 << 18  # bytes from which on spilling is worth its files


APPEARANCE = Term()  # the order of groups that are otherwise equal


class Shown(NamedTuple):
    rows: pa.Table
    lower: pa.Table | None = None
    upper: pa.Table | None = None


def schema(bound: Bound) -> pa.Schema:
    return pa.schema([(name, ARROW[o.kind]) for name, o in zip(bound.names, bound.outputs, strict=True)])


def no_rows(schema: pa.Schema) -> pa.Table:
    """An empty table; of many columns, in a fraction of the time of `empty_table`."""
    return pa.Table.from_batches([], schema)


class Fresh:
    """Rows to be sent with the next frame."""

    def __init__(self, schema: pa.Schema) -> None:
        self._empty = no_rows(schema)
        self._tables: list[pa.Table] = []
        self.rows = 0
        self.nbytes = 0

    def add(self, rows: pa.Table, size: int) -> None:
        """Add rows of so many bytes."""
        self._tables.append(rows)
        self.rows += rows.num_rows
        self.nbytes += size

    def take(self) -> Shown:
        """Rows added since the last call."""
        tables, self._tables, self.rows, self.nbytes = self._tables, [], 0, 0
        return Shown(pa.concat_tables(tables) if tables else self._empty)


class Plain:
    """Rows in order of arrival, up to the limits."""

    spilled = False

    def __init__(self, bound: Bound, pipeline: Pipeline) -> None:
        self.bound = bound
        self.pipeline = pipeline
        self.count = 0
        self.schema = schema(bound)
        self.fresh = Fresh(self.schema)
        self._by = None if bound.limit_by is None else RowLimit(bound.limit_by)
        self.by_key: KeyLimit | None = None  # instead of `_by`, if entries of the operator are its values

    @property
    def nbytes(self) -> int:
        by = self._by if self.by_key is None else self.by_key.rows
        return self.fresh.nbytes + (0 if by is None else by.nbytes)

    @property
    def full(self) -> bool:
        return self.bound.limit is not None and self.count >= self.bound.limit

    def add(self, batch: Batch) -> Steps[int]:
        """Add candidates, in steps; returns how many met the conditions."""
        batch = yield from self.pipeline.passing(batch)
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
            columns = yield from self.pipeline.computing(self.bound.outputs, batch)
            size = yield from _sizing(columns)
            self.fresh.add(pa.Table.from_arrays(columns, schema=self.schema), size)
            self.count += len(batch)
        return found

    def relieve(self, *, pressed: bool) -> Iterator[None]:
        """Its rows leave with the next frame."""
        return iter(())

    def finish(self) -> Iterator[None]:
        return iter(())

    def close(self) -> None:
        """There are no files."""


class Sorted:
    """Rows in the order of ORDER BY. Those beyond the limits are evicted whenever as many again have been added.

    Under pressure it spills: then its rows are merged at the end, and leave in parts.
    """

    def __init__(self, bound: Bound, pipeline: Pipeline, spill: Spill | None = None) -> None:
        self.bound = bound
        self.pipeline = pipeline
        self.schema = schema(bound)
        self.fresh = Fresh(self.schema)
        self.full = bound.limit == 0
        self.held = 0  # rows in memory
        by = () if bound.limit_by is None else bound.limit_by.columns
        self._wanted = [[o.value for o in bound.order], list(by), list(bound.outputs)]
        self._kept: deque[Parts] = deque()  # sort keys, values of LIMIT n BY, outputs
        self._size = 0
        self._settled = (bound.limit or 0, 0)  # rows and bytes after the last eviction
        self._spill = spill
        self._merge: MergeSort | None = None
        self._sent = 0
        self.ending = False  # the last rows are being sorted
        self.ended = False  # and have been

    @property
    def spilled(self) -> bool:
        return self._merge is not None

    @property
    def nbytes(self) -> int:
        """Sorting in memory needs all rows three times, at the end."""
        if self._merge is not None:
            return self._size + self._merge.nbytes + self.fresh.nbytes
        return 3 * self._size + 8 * (2 + len(self.bound.order)) * self.held

    @property
    def count(self) -> int:
        if self.spilled:
            return self._sent
        return self.held if self.bound.limit is None else min(self.held, self.bound.limit)

    @property
    def _limited(self) -> bool:
        return self.bound.limit is not None or self.bound.limit_by is not None

    def add(self, batch: Batch) -> Steps[int]:
        batch = yield from self.pipeline.passing(batch)
        if len(batch):
            made = iter((yield from self.pipeline.computing([e for part in self._wanted for e in part], batch)))
            parts = [list(islice(made, len(part))) for part in self._wanted]
            self._keep(parts, (yield from _sizing([a for part in parts for a in part])))
            rows, size = self._settled
            if self._limited and (self.held > 2 * rows + CROWDED or self._size > 2 * size + CROWDED_BYTES):
                yield from self._settling()
        return len(batch)

    def _keep(self, parts: Parts, size: int) -> None:
        self._kept.append(parts)
        self.held += len(parts[0][0])
        self._size += size

    def _settling(self) -> Steps[None]:
        """Sort all rows, in steps, and evict those beyond the limits: no row added later can bring one of them back.

        Until the last step the rows stay as they are, so it can be left halfway.
        """
        if not self._kept:
            return
        parts = yield from _joining(self._kept)
        order = yield from sorting(parts[0], self.bound.order)
        if self.bound.limit_by is not None:
            values = [column.take(pa.array(order)) for column in parts[1]]
            order = order[first_places(self.bound.limit_by, values, len(order))]
        sorted_parts = yield from _taking(parts, order[: self.bound.limit])
        size = yield from _sizing([a for part in sorted_parts for a in part])
        self._kept, self.held, self._size = deque(), 0, 0
        self._keep(sorted_parts, size)
        self._settled = (self.held, self._size)

    def relieve(self, *, pressed: bool) -> Iterator[None]:
        """Spill, in steps: all rows if memory is short and it gains enough, later ones when they make up a run."""
        if (
            self._spill is None
            or self.ending
            or not (self._size >= WORTH if pressed else self.spilled and self.held >= RUN)
        ):
            return
        if self._limited and self.held > self._settled[0]:
            yield from self._settling()
            yield
            if self._size < WORTH:
                return
        if self._merge is None:
            bound = self.bound
            self._merge = MergeSort(bound.order, bound.limit_by, bound.limit, self.schema, self._spill)
        yield from self._flush(self._merge)

    def _flush(self, merge: MergeSort) -> Iterator[None]:
        while self._kept:
            some = [self._kept.popleft()]
            rows = len(some[0][0][0])
            while self._kept and rows < RUN:
                some.append(self._kept.popleft())
                rows += len(some[-1][0][0])
            parts = _joined(some)
            self.held -= rows
            self._size -= sum(a.nbytes for each in some for part in each for a in part)
            del some
            yield from merge.add(parts)
        self._settled = (self.bound.limit or 0, 0)

    def finish(self) -> Iterator[None]:
        """After the last row, in steps: sort, or merge what was spilled into `fresh`."""
        if self._merge is None:
            self.ending = True
            yield from self._settling()
            self.ended = True
            return
        yield from self._flush(self._merge)
        for rows in self._merge.merged():
            if rows is not None:
                self.fresh.add(rows, rows.nbytes)
                self._sent += rows.num_rows
            yield

    def take(self) -> Shown:
        """All rows, if nothing was spilled."""
        if not self.ended:
            drained(self._settling())
        if not self._kept:
            return Shown(no_rows(self.schema))
        return Shown(pa.Table.from_arrays(self._kept[0][2], schema=self.schema))

    def close(self) -> None:
        if self._merge is not None:
            self._merge.close()
        self._kept.clear()


class Aggregated:
    """Aggregates: exact over what the worker has processed; the rest is estimated from a sample, if there is one.

    Under pressure groups spill: then there are no estimates, and the rows of the answer leave at the end, in parts.
    """

    full = False

    def __init__(self, bound: Bound, pipeline: Pipeline, spill: Spill | None = None) -> None:
        self.bound = bound
        self.pipeline = pipeline
        self.schema = schema(bound)
        self.fresh = Fresh(self.schema)
        self.groups = Groups([k.kind for k in bound.group_keys], bound.aggregates)
        self.count = 0
        self.sketched: Estimated | None = None  # the answer, if sketches gave it
        self._parts: list[tuple[list[pa.Array], list[pa.Array | None], NDArray[np.int64]]] = []
        self._drawn = 0  # bytes of `_parts`
        self.certain: Certain | None = None  # what a sampler reads for certain
        self._spill = spill
        self._rest: SpilledGroups | None = None
        self._merge: MergeSort | None = None
        self.ending = False  # the exact answer is being made
        self.final: Shown | None = None

    @property
    def ended(self) -> bool:
        return self.final is not None

    @property
    def spilled(self) -> bool:
        return self._rest is not None

    @property
    def nbytes(self) -> int:
        """A result is made twice: as aggregates, and as rows of the answer. A sample is read as a whole."""
        groups = self.groups if self._rest is None else self._rest
        result = 2 * 8 * groups.size * (len(self.bound.group_keys) + len(self.bound.aggregates))
        merge = 0 if self._merge is None else self._merge.nbytes
        certain = 0 if self.certain is None else self.certain.nbytes
        return 2 * self._drawn + certain + groups.nbytes + result + merge + self.fresh.nbytes

    def _columns(self, batch: Batch) -> tuple[list[pa.Array], list[pa.Array | None]]:
        made = self.pipeline.compute([*self.bound.group_keys, *self.bound.arguments], batch)
        keys = len(self.bound.group_keys)
        return made[:keys], made[keys:]

    def absorb(self, cells: Cells) -> None:
        """Begin with what cells answer."""
        self.groups = Groups([k.kind for k in self.bound.group_keys], self.bound.aggregates, exact=True)
        self.groups.absorb(cells.keys, cells.known)

    def add(self, batch: Batch) -> Steps[int]:
        """In one step: an estimate needs whole batches."""
        batch = self.pipeline.passed(batch)
        if len(batch) and self._rest is None:
            keys = self.pipeline.keys(self.bound.group_keys, batch)
            self.groups.add(keys, self.pipeline.compute(self.bound.arguments, batch), len(batch))
        elif len(batch):
            assert self._rest is not None
            self._rest.add(*self._columns(batch), len(batch))
        yield from ()
        return len(batch)

    def add_certain(self, batch: Batch) -> int:
        """Add rows that a sampler has read for certain; `draw` has their ranks."""
        batch = self.pipeline.passed(batch)
        if len(batch):
            assert self.certain is not None
            assert batch.draw is not None
            keys, arguments = self._columns(batch)
            self.groups.add(keys, arguments, len(batch))
            self.certain.add(arguments, batch.draw)
        return len(batch)

    def add_sample(self, batch: Batch) -> int:
        batch = self.pipeline.passed(batch)
        if len(batch):
            assert batch.draw is not None
            keys, arguments = self._columns(batch)
            self._parts.append((keys, arguments, batch.draw))
            self._drawn += sum(a.nbytes for a in (*keys, *arguments, batch.draw) if a is not None)
        return len(batch)

    def estimated(self, sampler: Sampler | None, worker: Operator, left: float, confidence: float) -> Estimated:
        """All aggregates, exact if nothing is left. `left` counts candidates about which nothing is known yet."""
        if self.sketched is not None:
            return self.sketched
        drawn, population = np.empty(0, np.bool_), left
        if sampler is not None and not left:
            drawn, population = sampler.rest(worker)
        keys, arguments, rows = self._sample(drawn)
        sample, draws = Sample(keys, arguments, len(rows)), int(drawn.sum())
        factors: dict[int, float] = {}
        if self.certain is not None and isinstance(sampler, ExtremesFirst):
            ranks = sampler.ranks(rows)
            factors, sampler.gains = self.certain.widened(sampler.certain, arguments, ranks, draws, population)
        with self._located():
            return estimate(self.groups, sample, draws, int(population), confidence, factors)

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Adds its place to the overflow of a sum."""
        try:
            yield
        except Overflow as problem:
            calls = zip(self.bound.aggregates, self.bound.calls, strict=True)
            at = next((c for a, c in calls if a.function == "sum" and a.kind == "int"), None)
            raise Overflow(problem.problem, self.bound.scope.sql, None if at is None else offset_of(at)) from None

    def _sample(self, left: NDArray[np.bool_]) -> tuple[list[pa.Array], list[pa.Array | None], NDArray[np.int64]]:
        """Draws that the worker has not yet reached: keys, arguments and which they are."""
        if len(self._parts) > 1:
            keys, arguments, draws = zip(*self._parts, strict=True)
            both = _joined(zip(keys, arguments, strict=True))
            self._parts = [(both[0], both[1], np.concatenate(draws))]
        if not self._parts:
            kinds = [ARROW[k.kind] for k in self.bound.group_keys]
            none = [None if a is None else pa.array([], ARROW[a.kind]) for a in self.bound.arguments]
            return [pa.array([], t) for t in kinds], none, np.empty(0, np.int64)
        keys_, arguments_, draws_ = self._parts[0]
        kept = left[draws_]
        if kept.all():
            return keys_, arguments_, draws_
        mask = pa.array(kept)
        return (
            [k.filter(mask) for k in keys_],
            [None if a is None else a.filter(mask) for a in arguments_],
            draws_[kept],
        )

    def shown(self, found: Estimated) -> Shown:
        """Apply HAVING, ORDER BY, LIMIT n BY, LIMIT and the select list to the aggregates."""
        return drained(self._showing(found))

    def _showing(self, found: Estimated) -> Steps[Shown]:
        """The same in steps."""
        bound = self.bound
        columns, places = yield from self._having(found.keys, found.value)
        if bound.order:
            keys = yield from _evaluating([o.value for o in bound.order], columns, len(places))
            order = yield from sorting(keys, bound.order)
            taken = yield from _taking([list(columns.values())], order)
            columns = dict(zip(columns, taken[0], strict=True))
            places = places[order]
        if bound.limit_by is not None:
            values = [c.evaluate(columns, len(places)) for c in bound.limit_by.columns]
            first = first_places(bound.limit_by, values, len(places))
            columns = {i: a.take(pa.array(first)) for i, a in columns.items()}
            places = places[first]
        places = places[: bound.limit]
        columns = {i: a.slice(0, len(places)) for i, a in columns.items()}
        outputs = yield from _evaluating(bound.outputs, columns, len(places))
        lower = yield from self._bound_table(found.lower, places)
        upper = lower if found.upper is found.lower else (yield from self._bound_table(found.upper, places))
        self.count = len(places)
        return Shown(pa.Table.from_arrays(outputs, schema=self.schema), lower, upper)

    def _having(
        self, keys: list[pa.Array], values: list[pa.Array]
    ) -> Steps[tuple[dict[Input, pa.Array], NDArray[np.int64]]]:
        """The columns of the groups that HAVING keeps, and which they are; in steps."""
        bound = self.bound
        rows = len(values[0]) if values else (len(keys[0]) if keys else 1)
        columns = {
            Input(RESULT, f"k{i}", k.kind): a for i, (k, a) in enumerate(zip(bound.group_keys, keys, strict=True))
        }
        columns |= {
            Input(RESULT, f"a{i}", a.result_kind): v
            for i, (a, v) in enumerate(zip(bound.aggregates, values, strict=True))
        }
        places: NDArray[np.int64] = np.arange(rows)
        if bound.having is not None:
            kept = bound.having.evaluate(columns, rows).cast(pa.bool_()).fill_null(False)
            places = np.flatnonzero(kept.to_numpy(zero_copy_only=False))
            taken = yield from _taking([list(columns.values())], places)
            columns = dict(zip(columns, taken[0], strict=True))
        return columns, places

    # --- spilling ------------------------------------------------------------------------------------------------

    def relieve(self, *, pressed: bool) -> Iterator[None]:
        """Under pressure, no new group enters memory any more, and the sample is dropped."""
        if self._rest is not None:
            self._rest.pressed = pressed
        elif pressed and self._spill is not None and self.groups.keyed and self.groups.nbytes >= WORTH:
            self._parts, self._drawn = [], 0
            self._rest = SpilledGroups(self.groups, self._spill)
            self.groups = self.groups.empty()
        return iter(())

    def finish(self) -> Iterator[None]:
        """After the last row, in steps: make the exact answer; aggregate what was spilled, and put the rows of the
        answer into `fresh`.
        """
        if self._rest is None:
            self.ending = True
            found = self.sketched
            if found is None:
                keys, values = yield from self._results()
                found = Estimated(keys, values, values, values, np.zeros(self.groups.size, np.int64), True)
            self.final = yield from self._showing(found)
            return
        bound = self.bound
        assert self._spill is not None
        orders: list[Direction] = [*bound.order, APPEARANCE]
        merge = self._merge = MergeSort(orders, bound.limit_by, bound.limit, self.schema, self._spill)

        def emit(groups: Groups, first: NDArray[np.int64]) -> Iterator[None]:
            with self._located():
                found = groups.result()
            columns, places = yield from self._having(found.keys, found.values)
            keys = [o.value.evaluate(columns, len(places)) for o in bound.order]
            by = () if bound.limit_by is None else bound.limit_by.columns
            values = [c.evaluate(columns, len(places)) for c in by]
            outputs = [o.evaluate(columns, len(places)) for o in bound.outputs]
            yield
            yield from merge.add([[*keys, pa.array(first[places])], values, outputs])

        yield from self._rest.finish(emit)
        for rows in merge.merged():
            if rows is not None:
                self.fresh.add(rows, rows.nbytes)
                self.count += rows.num_rows
            yield

    def close(self) -> None:
        for files in (self._rest, self._merge):
            if files is not None:
                files.close()

    def _results(self) -> Steps[tuple[list[pa.Array], list[pa.Array]]]:
        """The keys and the exact aggregates of all groups, in steps."""
        found, load = [], Load()
        for column in self.groups.columns_of_result():
            with self._located():
                found.append(column())
            if load.full(len(found[-1])):
                yield
        keys = len(self.bound.group_keys)
        return found[:keys], found[keys:]

    def _bound_table(self, bounds: list[pa.Array], places: NDArray[np.int64]) -> Steps[pa.Table]:
        columns, fields, load = [], [], Load()
        for name, output, at in zip(self.bound.names, self.bound.outputs, self.bound.shown, strict=True):
            made = pa.nulls(len(places), ARROW[output.kind]) if at is None else bounds[at].take(pa.array(places))
            columns.append(made)
            fields.append((name, made.type))
            if load.full(len(made)):
                yield
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _sizing(columns: Iterable[pa.Array]) -> Steps[int]:
    """Their bytes, in steps: of thousands of columns these take some milliseconds to count."""
    size, load = 0, Load()
    for column in columns:
        size += column.nbytes
        if load.full(0):
            yield
    return size


def _evaluating(expressions: Sequence[Compiled], columns: dict[Input, pa.Array], rows: int) -> Steps[list[pa.Array]]:
    """The values of expressions, in steps."""
    found, load = [], Load()
    for expression in expressions:
        found.append(expression.evaluate(columns, rows))
        if load.full(rows):
            yield
    return found


def _joined(slices: Iterable[Sequence[list[Any]]]) -> list[list[Any]]:
    """Groups of columns, in slices, as whole columns. A column may be None."""
    return drained(_joining(list(slices)))


def _joining(slices: Collection[Sequence[list[Any]]]) -> Steps[list[list[Any]]]:
    """The same in steps."""
    found: list[list[Any]] = []
    load = Load(4 * MANY)
    for part in zip(*slices, strict=True):
        found.append([])
        for columns in zip(*part, strict=True):
            found[-1].append(None if columns[0] is None else pa.concat_arrays(columns))
            if load.full(0 if columns[0] is None else len(found[-1][-1])):
                yield
    return found


def _taking(parts: Parts, order: NDArray[np.int64]) -> Steps[Parts]:
    """The rows of these places, in steps."""
    found: Parts = []
    load = Load()
    for part in parts:
        found.append([])
        for column in part:
            pieces = []
            for first in range(0, max(len(order), 1), MANY):
                places = pa.array(order[first : first + MANY])
                pieces.append(column.take(places))
                if load.full(len(places)):
                    yield
            found[-1].append(pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces))
    return found
