"""AND, OR, CASE, COALESCE: parts that run only on the rows which the parts before them left undecided.

A part that cannot fail runs on all rows, since that is faster than picking some. A part that can fail is first tried on
all rows, too: most often nothing fails, and then the answer is the same. Only if it fails, or if few rows are left, the
undecided rows are picked. A part that itself holds such parts is not tried, or nesting would double the work
at each level.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from query.compiled import Compiled, Frame, Value, combine, spread
from query.types import Kind
from summaries.errors import QueryError

# Picking costs about as much as a few kernels; below one row in so many it pays.
_FEW = 8

Rows = NDArray[np.int64]


def conjunction(parts: Sequence[Compiled]) -> Compiled:
    """`a AND b AND ...`: a part does not run on rows where an earlier one is false."""
    return _chain(parts, pc.and_kleene, lambda value: pc.fill_null(value, True))


def disjunction(parts: Sequence[Compiled]) -> Compiled:
    """`a OR b OR ...`: a part does not run on rows where an earlier one is true."""
    return _chain(parts, pc.or_kleene, lambda value: pc.fill_null(pc.invert(value), True))


def coalesce(kind: Kind, parts: Sequence[Compiled]) -> Compiled:
    """The first value that is not NULL: a part does not run on rows where an earlier one has a value."""
    return _chain(parts, pc.coalesce, pc.is_null, kind)


def _chain(
    parts: Sequence[Compiled],
    join: Callable[[Value, Value], Value],
    undecided: Callable[[Value], Value],
    kind: Kind = "bool",
) -> Compiled:
    """The parts joined from left to right; `undecided` says where the value so far may still change."""

    def run(frame: Frame) -> Value:
        value = parts[0].run(frame)
        for part in parts[1:]:
            if not part.can_fail:
                value = join(value, part.run(frame))
                continue
            rows = picked(undecided(value), frame.rows)
            if not len(rows):
                continue
            whole = _try_whole(part, frame, len(rows))
            if whole is not None:
                value = join(value, whole)
                continue
            value = spread(value, frame.rows)
            new = join(value.take(pa.array(rows)), spread(part.run(frame.subset(rows, part.inputs)), len(rows)))
            value = _overwrite(value, rows, new)
        return value

    return combine(kind, parts, run, guards=any(part.can_fail for part in parts[1:]))


def case(kind: Kind, branches: Sequence[tuple[Compiled, Compiled]], default: Compiled) -> Compiled:
    """The value of the first branch whose condition is true, or the default."""
    parts = [part for branch in branches for part in branch] + [default]
    guards = any(part.can_fail for part in parts[1:])
    nested = any(part.guards for part in parts)

    def whole(frame: Frame) -> Value:
        conditions = [spread(condition.run(frame), frame.rows) for condition, _ in branches]
        values = [value.run(frame) for _, value in branches]
        return pc.case_when(pc.make_struct(*conditions), *values, default.run(frame))

    def by_branch(frame: Frame) -> Value:
        left: Rows = np.arange(frame.rows)
        pieces: list[tuple[Rows, pa.Array]] = []

        def add(value: Compiled, rows: Rows) -> None:
            if len(rows):
                pieces.append((rows, spread(value.run(frame.subset(rows, value.inputs)), len(rows))))

        for condition, value in branches:
            if not len(left):
                break
            hit = pc.fill_null(spread(condition.run(frame.subset(left, condition.inputs)), len(left)), False)
            chosen = hit.to_numpy(zero_copy_only=False)
            add(value, left[chosen])
            left = left[~chosen]
        add(default, left)
        order = np.argsort(np.concatenate([rows for rows, _ in pieces]))
        return pa.concat_arrays([array for _, array in pieces]).take(pa.array(order))

    def run(frame: Frame) -> Value:
        if not nested:
            try:
                return whole(frame)
            except QueryError:
                pass
        return by_branch(frame)

    return combine(kind, parts, run if guards else whole, guards=guards)


def picked(mask: Value, rows: int) -> Rows:
    """The numbers of the rows where the mask, which has no nulls, is true."""
    if isinstance(mask, pa.Scalar):
        return np.arange(rows if mask.as_py() else 0)
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _try_whole(part: Compiled, frame: Frame, undecided: int) -> Value | None:
    """The value of the part on all rows, or None if it has to be had on the undecided rows alone."""
    if undecided == frame.rows:
        return part.run(frame)
    if part.guards or undecided * _FEW < frame.rows:
        return None
    try:
        return part.run(frame)
    except QueryError:
        return None


def _overwrite(value: pa.Array, rows: Rows, new: pa.Array) -> pa.Array:
    """`value` with the given rows taken from `new`, in order."""
    index = np.arange(len(value))
    index[rows] = np.arange(len(value), len(value) + len(new))
    return pa.concat_arrays([value, new]).take(pa.array(index))
