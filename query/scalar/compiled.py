"""Compiled expressions: functions from columns to a column, and their composition."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import QueryError
from promising.query.scalar.scope import Input
from promising.query.scalar.types import ARROW, Kind

# An Arrow array with one value per row, or a scalar for all rows. Arrow's kernels take both, so constants are expanded
# only at the end.
Value = Any


class Failure(Exception):
    """An expression has no value for some row. Guards catch it, so the error is built only on demand."""

    def __init__(self, tell: Callable[[], QueryError]) -> None:
        super().__init__()
        self.tell = tell


class ColumnFrame:
    __slots__ = ("columns", "rows")

    def __init__(self, columns: Mapping[Input, pa.Array], rows: int) -> None:
        self.columns = columns
        self.rows = rows

    def filter(self, mask: pa.Array, inputs: frozenset[Input]) -> "ColumnFrame":
        """Only these columns, and the rows where the mask, which has no nulls, is true."""
        rows = mask.true_count
        return (
            self if rows == self.rows else ColumnFrame({name: self.columns[name].filter(mask) for name in inputs}, rows)
        )


@dataclass(frozen=True)
class Compiled:
    """An expression ready to run.

    `run` returns the value for all rows of a frame, or raises Failure, if `can_fail`. `constant`: every row has the
    same value. `guards`: a part runs on some rows only, so a failed run may have cost more than one pass. `text`: of a
    string literal, which is parsed when combined with another type. `column`: if the expression is just a column.
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
        """The value for each of `rows` rows, as ARROW[kind]; `columns` holds at least `inputs`, each of its type.

        Runs in the calling thread. Raises DivisionByZero, Overflow or BadCast with the position; never without rows.
        """
        if rows == 0:
            return pa.array([], ARROW[self.kind])
        try:
            return spread(self.run(ColumnFrame(columns, rows)), rows)
        except Failure as failure:
            raise failure.tell() from None


def spread(value: Value, rows: int) -> pa.Array:
    if not isinstance(value, pa.Scalar):
        return value
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, value.type)


def overwrite(value: pa.Array, rows: NDArray[np.int64], new: pa.Array) -> pa.Array:
    """`value` with these rows replaced by `new`, in order."""
    index = np.arange(len(value))
    index[rows] = np.arange(len(value), len(value) + len(new))
    return pa.concat_arrays([value, new]).take(pa.array(index))


@lru_cache(1 << 12)
def column(source: Input) -> Compiled:
    return Compiled(source.kind, frozenset((source,)), False, False, lambda frame: frame.columns[source], column=source)


def literal(value: object, kind: Kind, text: str | None = None) -> Compiled:
    """A constant, from a Python value or an Arrow scalar of that type."""
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, ARROW[kind])
    return Compiled(kind, frozenset(), False, True, lambda frame: scalar, text=text)


_ONE = ColumnFrame({}, 1)


def value_of(part: Compiled) -> pa.Scalar | None:
    """The value of a constant; None if not constant or failing."""
    if not part.constant or part.can_fail:
        return None
    return scalar_of(part.run(_ONE))


def scalar_of(value: Value) -> pa.Scalar:
    return value if isinstance(value, pa.Scalar) else value[0]


def apply(kind: Kind, parts: Sequence[Compiled], kernel: Callable[..., Value], can_fail: bool = False) -> Compiled:
    """`kernel` over the values of the parts; constants are folded unless that fails.

    The kernel returns an array if any argument is one, otherwise a scalar or an array of one row.
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
    """An expression over its parts, evaluated by `run` as a whole."""
    inputs = frozenset[Input]().union(*[part.inputs for part in parts if part.inputs])
    constant, fails, guarded = True, can_fail, guards
    for part in parts:
        constant, fails, guarded = constant and part.constant, fails or part.can_fail, guarded or part.guards
    if constant:
        try:
            return literal(scalar_of(run(_ONE)), kind)
        except Failure:
            # No row may ever reach it; it fails when one does.
            return Compiled(kind, inputs, True, True, run, guards)
    return Compiled(kind, inputs, fails, False, run, guarded)
