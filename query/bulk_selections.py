"""Many selections over one window: the window is read and sorted once, and each selection is a slice of it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from promising.query.bound import Bound
from promising.query.planner import snapshots_of
from promising.query.query_memory import Account
from promising.query.result_sinks import schema
from promising.query.scalar.scope import Input, Scope

FEWEST = 8  # selections from which sorting a window pays off
TURNED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE}
NUMBER = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ)


@dataclass
class Range:
    """A range of a column's values; equivalent to the conditions numbered in `exactly`."""

    column: Input
    low: float | int | None = None
    high: float | int | None = None
    low_open: bool = False
    high_open: bool = False
    exactly: tuple[int, ...] = ()


def shared(bounds: Sequence[Bound], account: Account | None = None) -> Iterator[tuple[int, pa.Table]]:
    """Answers, with query numbers, for queries that share a sorted window: at least `FEWEST` per window.

    account: of the windows' memory.
    """
    groups: dict[tuple[int, int | None, Input], list[tuple[int, Range]]] = defaultdict(list)
    for number, bound in enumerate(bounds):
        found = _range(bound, bound.scope)
        if found is not None:
            groups[id(bound.sources[0].stream), bound.window, found.column].append((number, found))
    for (_, _, column), members in groups.items():
        if len(members) >= FEWEST:
            window = _Window(bounds[members[0][0]], column)
            for number, found in members:
                rows = window.select(bounds[number], found)
                if account is not None:
                    account.hold(window.nbytes + rows.nbytes)
                    account.check(spills=False)
                yield number, rows


def _range(bound: Bound, scope: Scope) -> Range | None:
    """The range of a plain selection, on the column with the most range conditions."""
    special = bound.grouped or bound.order or bound.preference is not None or bound.budget is not None
    if bound.join is not None or special or bound.limit_by is not None:
        return None
    found: dict[Input, Range] = {}
    for number, condition in enumerate(bound.conditions):
        part = condition.unnest()
        made = _between(part, scope) if isinstance(part, exp.Between) else _compared(part, scope)
        if made is not None:
            _narrow(found.setdefault(made.column, Range(made.column)), made, number)
    return max(found.values(), key=lambda r: len(r.exactly), default=None)


def _between(node: exp.Between, scope: Scope) -> Range | None:
    column = _column(node.this, scope)
    low, high = (_value(node.args[k], column) for k in ("low", "high"))
    if column is None or low is None or high is None or node.args.get("symmetric"):
        return None
    return Range(column, low, high)


def _compared(node: exp.Expr, scope: Scope) -> Range | None:
    if not isinstance(node, NUMBER):
        return None
    sides: tuple[exp.Expr, exp.Expr] = (node.this, node.expression)
    kind: type[exp.Expr] = type(node)
    column = _column(sides[0], scope)
    if column is None:
        sides = sides[::-1]
        column = _column(sides[0], scope)
        kind = TURNED.get(kind, kind)
    value = _value(sides[1], column)
    if column is None or value is None:
        return None
    if kind is exp.EQ:
        return Range(column, value, value)
    if kind in (exp.GT, exp.GTE):
        return Range(column, low=value, low_open=kind is exp.GT)
    return Range(column, high=value, high_open=kind is exp.LT)


def _narrow(into: Range, more: Range, number: int) -> None:
    if more.low is not None and (into.low is None or (more.low, more.low_open) > (into.low, into.low_open)):
        into.low, into.low_open = more.low, more.low_open
    if more.high is not None and (
        into.high is None or (more.high, not more.high_open) < (into.high, not into.high_open)
    ):
        into.high, into.high_open = more.high, more.high_open
    into.exactly = (*into.exactly, number)


def _column(node: exp.Expr, scope: Scope) -> Input | None:
    if not isinstance(node, exp.Column):
        return None
    found = scope.resolve(node)
    return found if found.kind in ("int", "float") else None


def _value(node: exp.Expr, column: Input | None) -> float | int | None:
    """A literal that compares exactly with the column."""
    sign = 1
    if isinstance(node, exp.Neg):
        sign, node = -1, node.this
    if column is None or not isinstance(node, exp.Literal) or node.is_string:
        return None
    if node.this.isdigit():
        whole = sign * int(node.this)
        if column.kind == "int":
            return whole if abs(whole) < 1 << 63 else None
        return float(whole) if abs(whole) <= 1 << 53 else None
    return sign * float(node.this) if column.kind == "float" else None


class _Window:
    """A window's tuples sorted by one column; nulls are excluded because no range contains them."""

    def __init__(self, bound: Bound, column: Input) -> None:
        (self._snapshot,) = snapshots_of(bound, [])
        snapshot = self._snapshot
        with snapshot.holding():
            rows = snapshot.rows_in(0, snapshot.size)
            missing = snapshot.nulls(column.name, rows)
            if missing is not None:
                rows = rows[~missing]
            values = snapshot.column(column.name, rows)
        self.values: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        order = np.argsort(self.values)  # NaN sorts last, as the greatest value
        self.values = self.values[order]
        self._rows = rows[order]
        self._columns: dict[str, pa.Array] = {column.name: pa.array(self.values)}

    @property
    def nbytes(self) -> int:
        return sum(int(a.nbytes) for a in (self.values, self._rows, *self._columns.values()))

    def _column(self, name: str) -> pa.Array:
        if name not in self._columns:
            with self._snapshot.holding():
                self._columns[name] = self._snapshot.column(name, self._rows)
        return self._columns[name]

    def select(self, bound: Bound, found: Range) -> pa.Table:
        first, last = 0, len(self.values)
        if found.low is not None:
            first = int(np.searchsorted(self.values, found.low, side="right" if found.low_open else "left"))
        if found.high is not None:
            last = int(np.searchsorted(self.values, found.high, side="left" if found.high_open else "right"))
        last = max(first, last)
        inputs = {i for c in (*bound.outputs, *bound.predicates) for i in c.inputs}
        columns = {i: self._column(i.name).slice(first, last - first) for i in inputs}
        rows = last - first
        for number, predicate in enumerate(bound.predicates):
            if number in found.exactly or not rows:
                continue
            kept = predicate.evaluate(columns, rows).cast(pa.bool_()).fill_null(False)
            columns = {i: a.filter(kept) for i, a in columns.items()}
            rows = kept.true_count
        if bound.limit is not None and rows > bound.limit:
            rows = bound.limit
            columns = {i: a.slice(0, rows) for i, a in columns.items()}
        outputs = [o.evaluate(columns, rows) for o in bound.outputs]
        return pa.Table.from_arrays(outputs, schema=schema(bound))
