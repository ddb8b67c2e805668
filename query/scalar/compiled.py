"""Compiled expressions: functions from columns to a column, and how they are put together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import QueryError
from promising.query.scalar.scope import Input
from promising.query.scalar.types import ARROW, Kind

# An Arrow array with a value for each row, or an Arrow scalar that stands for all rows: constants are never spread
# out before the end, since the kernels of Arrow take both.
Value = Any


class Failure(Exception):
    """A row for which an expression has no value. Guards catch it, so what went wrong is only told when asked."""

    def __init__(self, tell: Callable[[], QueryError]) -> None:
        super().__init__()
        self.tell = tell


class ColumnFrame:
    """The rows that an expression is worked out for."""

    __slots__ = ("columns", "rows")

    def __init__(self, columns: Mapping[Input, pa.Array], rows: int) -> None:
        self.columns = columns
        self.rows = rows

    def filter(self, mask: pa.Array, inputs: frozenset[Input]) -> "ColumnFrame":
        """The rows where the mask, which has no nulls, is true, with these columns only."""
        rows = mask.true_count
        return (
            self if rows == self.rows else ColumnFrame({name: self.columns[name].filter(mask) for name in inputs}, rows)
        )


@dataclass(frozen=True)
class Compiled:
    """An expression ready to run.

    `run` gives the value of all rows of a frame or raises Failure; `can_fail` says that it may. `constant` says that
    every row has the same value, `guards` that a part runs on some rows only, so that a failed run may have cost more
    than one pass. `text` is what a string literal says: beside a value of another kind it is read as that kind.
    `column` is the column that it is, if it is nothing but one.
    """

    kind: Kind
    inputs: frozenset[Input]
    can_fail: bool
    constant: bool
    run: Callable[[ColumnFrame], Value]
    guards: bool = False
    text: str | None = None
    column: Input | None = None

    def evaluate(self, columns: Mapping[Input, pa.Array], rows: int) -> pa.Array:
        """The value for each of `rows` rows, as ARROW[kind]; `columns` holds at least `inputs`, each of its kind.

        Runs in the calling thread. Raises DivisionByZero, Overflow or BadCast at the place of the failing operator; no
        rows, no failure.
        """
        if rows == 0:
            return pa.array([], ARROW[self.kind])
        try:
            return spread(self.run(ColumnFrame(columns, rows)), rows)
        except Failure as failure:
            raise failure.tell() from None


def spread(value: Value, rows: int) -> pa.Array:
    """`value` as an array of that many rows."""
    if not isinstance(value, pa.Scalar):
        return value
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, value.type)


def overwrite(value: pa.Array, rows: NDArray[np.int64], new: pa.Array) -> pa.Array:
    """`value` with the rows of these numbers taken from `new`, in order."""
    index = np.arange(len(value))
    index[rows] = np.arange(len(value), len(value) + len(new))
    return pa.concat_arrays([value, new]).take(pa.array(index))


def column(source: Input) -> Compiled:
    return Compiled(source.kind, frozenset((source,)), False, False, lambda frame: frame.columns[source], column=source)


def literal(value: object, kind: Kind, text: str | None = None) -> Compiled:
    """A constant, from a Python value or an Arrow scalar of the kind's type."""
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, ARROW[kind])
    return Compiled(kind, frozenset(), False, True, lambda frame: scalar, text=text)


_ONE = ColumnFrame({}, 1)


def value_of(part: Compiled) -> pa.Scalar | None:
    """The value of a constant, None for what is no constant or fails."""
    if not part.constant or part.can_fail:
        return None
    return scalar_of(part.run(_ONE))


def scalar_of(value: Value) -> pa.Scalar:
    return value if isinstance(value, pa.Scalar) else value[0]


def apply(kind: Kind, parts: Sequence[Compiled], kernel: Callable[..., Value], can_fail: bool = False) -> Compiled:
    """`kernel` over the values of the parts. What is constant is worked out now, unless that fails.

    The kernel gives an array if any of its values is one, a scalar or an array of one row otherwise.
    """
    if len(parts) == 1:
        (only,) = parts
        return combine(kind, parts, lambda frame: kernel(only.run(frame)), can_fail)
    if len(parts) == 2:
        left, right = parts
        return combine(kind, parts, lambda frame: kernel(left.run(frame), right.run(frame)), can_fail)
    return combine(kind, parts, lambda frame: kernel(*[part.run(frame) for part in parts]), can_fail)


def combine(
    kind: Kind,
    parts: Sequence[Compiled],
    run: Callable[[ColumnFrame], Value],
    can_fail: bool = False,
    guards: bool = False,
) -> Compiled:
    """An expression over its parts, that `run` works out as a whole."""
    inputs = frozenset[Input]().union(*(part.inputs for part in parts))
    fails = can_fail or any(part.can_fail for part in parts)
    if all(part.constant for part in parts):
        try:
            return literal(scalar_of(run(_ONE)), kind)
        except Failure:
            # It may stand where no row gets to; it fails when one does.
            return Compiled(kind, inputs, True, True, run, guards)
    return Compiled(kind, inputs, fails, False, run, guards or any(part.guards for part in parts))
