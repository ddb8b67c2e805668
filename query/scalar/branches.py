"""AND, OR, CASE, COALESCE: parts are evaluated only on rows that earlier parts left undecided.

A part that cannot fail runs on all rows, which is faster than filtering. A part that can fail is first tried on all
rows, because failures are rare. Only if it fails, or few rows are left, are the undecided rows filtered. A part that
itself contains such parts is not tried: nesting would double the work at each level.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from promising.query.scalar.compiled import ColumnFrame, Compiled, Failure, Value, combine, overwrite, spread
from promising.query.scalar.scope import Input
from promising.query.scalar.types import Kind

_FEW = 8  # filtering costs about as much as a few kernels; it pays below one row in this many


def conjunction(parts: Sequence[Compiled]) -> Compiled:
    """`a AND b AND ...`: a part is not evaluated on rows where an earlier one is false."""
    return _chain(parts, pc.and_kleene, lambda value: pc.fill_null(value, True))


def disjunction(parts: Sequence[Compiled]) -> Compiled:
    """`a OR b OR ...`: a part is not evaluated on rows where an earlier one is true."""
    return _chain(parts, pc.or_kleene, lambda value: pc.fill_null(pc.invert(value), True))


def coalesce(kind: Kind, parts: Sequence[Compiled]) -> Compiled:
    """The first non-null value: a part is not evaluated on rows where an earlier one has a value."""
    return _chain(parts, pc.coalesce, pc.is_null, kind)


def _chain(
    parts: Sequence[Compiled],
    join: Callable[[Value, Value], Value],
    undecided: Callable[[Value], Value],
    kind: Kind = "bool",
) -> Compiled:
    """The parts joined left to right; `undecided` marks rows whose value may still change."""

    def run(frame: ColumnFrame) -> Value:
        value = parts[0].run(frame)
        for part in parts[1:]:
            if not part.can_fail:
                value = join(value, part.run(frame))
                continue
            mask = spread(undecided(value), frame.rows)
            left = mask.true_count
            if not left:
                continue
            whole = _try_whole(part, frame, left)
            if whole is not None:
                value = join(value, whole)
                continue
            value = spread(value, frame.rows)
            new = join(value.filter(mask), spread(part.run(frame.filter(mask, part.inputs)), left))
            value = overwrite(value, np.flatnonzero(mask.to_numpy(zero_copy_only=False)), new)
        return value

    return combine(kind, parts, run, guards=any(part.can_fail for part in parts[1:]))


def _try_whole(part: Compiled, frame: ColumnFrame, left: int) -> Value | None:
    """The value of the part on all rows, or None if it must run on the undecided rows only."""
    if left == frame.rows:
        return part.run(frame)
    if part.guards or left * _FEW < frame.rows:
        return None
    try:
        return part.run(frame)
    except Failure:
        return None


def case(kind: Kind, branches: Sequence[tuple[Compiled, Compiled]], default: Compiled) -> Compiled:
    parts = [part for branch in branches for part in branch] + [default]
    inputs = frozenset[Input]().union(*(part.inputs for part in parts))
    guards = any(part.can_fail for part in parts[1:])
    nested = any(part.guards for part in parts)

    def whole(frame: ColumnFrame) -> Value:
        conditions = [spread(condition.run(frame), frame.rows) for condition, _ in branches]
        values = [value.run(frame) for _, value in branches]
        return pc.case_when(pc.make_struct(*conditions), *values, default.run(frame))

    def by_branch(frame: ColumnFrame) -> Value:
        left = np.arange(frame.rows)
        pieces: list[pa.Array] = []
        order: list[NDArray[np.int64]] = []
        for condition, value in branches:
            hit = pc.fill_null(spread(condition.run(frame), frame.rows), False)
            chosen = hit.to_numpy(zero_copy_only=False)
            if hit.true_count:
                pieces.append(spread(value.run(frame.filter(hit, value.inputs)), hit.true_count))
                order.append(left[chosen])
            left = left[~chosen]
            if not len(left):
                break
            frame = frame.filter(pc.invert(hit), inputs)
        else:
            pieces.append(spread(default.run(frame), len(left)))
            order.append(left)
        places = np.concatenate(order)
        index = np.empty_like(places)
        index[places] = np.arange(len(places))
        return pa.concat_arrays(pieces).take(pa.array(index))

    def run(frame: ColumnFrame) -> Value:
        if not nested:
            try:
                return whole(frame)
            except Failure:
                pass
        return by_branch(frame)

    return combine(kind, parts, run if guards else whole, guards=guards)
