"""Evaluates conditions and expressions on slices of candidates."""

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from promising.index.cold_pruning import ColdPruning
from promising.index.dictionary import CodedStrings
from promising.index.snapshot import Snapshot
from promising.query.bound import Bound
from promising.query.column_ranges import ranges
from promising.query.operators.operator import Batch
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.scope import Input
from promising.query.steps import COLUMN, Steps, drained

CELLS = 1 << 19  # rows times columns of one step


class Pipeline:
    """Of tuples on disk, those of row groups that cannot meet the conditions are not read: `pruning`, by side."""

    def __init__(self, bound: Bound, snapshots: list[Snapshot]) -> None:
        self.bound = bound
        conditions = [ranges(bound, number) if snapshot.cold else {} for number, snapshot in enumerate(snapshots)]
        self.pruning = [
            ColdPruning(s, wanted) if wanted else None for s, wanted in zip(snapshots, conditions, strict=True)
        ]
        self.snapshots = snapshots
        self._sources = dict(enumerate(snapshots))
        self._touched = [0 for _ in snapshots]
        self._reached = [s.reached for s in snapshots]

    @property
    def granularities(self) -> tuple[int, ...]:
        mask = 0
        for touched in self._touched:
            mask |= touched
        return tuple(g for g in range(1, 64) if mask >> g & 1)

    def passed(self, batch: Batch) -> Batch:
        """Candidates that meet every condition; each is evaluated only on those that met the previous ones."""
        return drained(self.passing(batch))

    def passing(self, batch: Batch) -> Steps[Batch]:
        """The same in steps."""
        for side, pruning in enumerate(self.pruning):
            if pruning is not None:
                with pruning.snapshot.holding():
                    kept = pruning.possible(batch.rows[side])
                batch = batch if kept is None else batch.where(kept)
        self._touch(batch)
        predicates, first = self.bound.predicates, 0
        while first < len(predicates) and len(batch):
            last = first + _step(batch)
            batch = passing(predicates[first:last], self._sources, batch)
            first = last
            if first < len(predicates):
                yield
        return batch

    def compute(self, expressions: Sequence[Compiled | None], batch: Batch) -> list[pa.Array | None]:
        return drained(self.computing(expressions, batch))

    def computing(self, expressions: Sequence[Compiled | None], batch: Batch) -> Steps[list[pa.Array | None]]:
        """The values of expressions, in steps; of those without an expression, None."""
        columns: dict[Input, pa.Array] = {}
        found: list[pa.Array | None] = []
        while len(found) < len(expressions):
            if found:
                yield
            some = expressions[len(found) : len(found) + _step(batch)]
            wanted = {i for e in some if e is not None for i in e.inputs}
            columns |= _fetch(wanted - columns.keys(), self._sources, batch)
            found += [None if e is None else e.evaluate(columns, len(batch)) for e in some]
        return found

    def keys(self, expressions: Sequence[Compiled], batch: Batch) -> list[pa.Array | CodedStrings]:
        """The same for keys of groups: columns of strings as codes, if they are stored as such."""
        found = [self._coded(e, batch) for e in expressions]
        others = iter(self.compute([e for e, f in zip(expressions, found, strict=True) if f is None], batch))
        return [next(others) if f is None else f for f in found]

    def _coded(self, expression: Compiled, batch: Batch) -> CodedStrings | None:
        column = expression.column
        if column is None or column.kind != "string":
            return None
        snapshot = self.snapshots[column.source]
        with snapshot.holding():
            return snapshot.coded(column.name, batch.rows[column.source])

    def _touch(self, batch: Batch) -> None:
        """Record the granularities read, until all have been seen."""
        for number, (snapshot, rows) in enumerate(zip(self.snapshots, batch.rows, strict=True)):
            if self._touched[number] != self._reached[number] and len(rows):
                with snapshot.holding():
                    self._touched[number] |= snapshot.touched(rows)


def _step(batch: Batch) -> int:
    """Expressions of one step."""
    return max(CELLS // (COLUMN + len(batch)), 1)


def passing(predicates: Iterable[Compiled], sources: Mapping[int, Snapshot], batch: Batch) -> Batch:
    """Candidates that meet every condition; `sources` has a snapshot for each column of the batch, by its number."""
    for predicate in predicates:
        if not len(batch):
            break
        found = predicate.evaluate(_fetch(predicate.inputs, sources, batch), len(batch))
        kept = found.cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)
        if not kept.all():
            batch = batch.where(kept)
    return batch


def _fetch(inputs: Iterable[Input], sources: Mapping[int, Snapshot], batch: Batch) -> dict[Input, pa.Array]:
    out: dict[Input, pa.Array] = {}
    for (number, snapshot), rows in zip(sources.items(), batch.rows, strict=True):
        mine = [i for i in inputs if i.source == number]
        if mine:
            with snapshot.holding():
                out |= {i: snapshot.column(i.name, rows) for i in mine}
    return out
