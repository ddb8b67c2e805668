"""Value ranges of columns, implied by a query's conditions."""

import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from promising.query.bound import Bound
from promising.query.scalar.coercion import unify
from promising.query.scalar.compiled import column, value_of
from promising.query.scalar.expressions import compile_expression
from promising.query.scalar.positions import Place
from promising.query.scalar.scope import Input

LEAST, MOST = -math.inf, math.inf
Range = tuple[int | float, int | float]

_LOW, _HIGH = (exp.EQ, exp.GT, exp.GTE), (exp.EQ, exp.LT, exp.LTE)
_TURNED: dict[type[exp.Expression], type[exp.Expression]] = {
    exp.EQ: exp.EQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


def ranges(bound: Bound, side: int) -> dict[str, Range]:
    """Per column of numbers or times of a side: the range implied by conjuncts that compare it with constants.

    NaN is greater than any number: it is in a range without an upper end.
    """
    found: dict[str, Range] = {}
    for condition in bound.conditions:
        for name, (low, high) in _read(condition.unnest(), bound, side):
            least, most = found.get(name, (LEAST, MOST))
            found[name] = max(low, least), min(high, most)
    return found


def _read(node: exp.Expr, bound: Bound, side: int) -> list[tuple[str, Range]]:
    kind = type(node)
    if kind in _TURNED:
        one, other = node.this, node.args["expression"]
        for how, column_of, constant in ((kind, one, other), (_TURNED[kind], other, one)):
            name, values = _values(column_of, [constant], bound, side)
            if values and values[0] is not None:
                return [(name, (values[0] if how in _LOW else LEAST, values[0] if how in _HIGH else MOST))]
    elif kind is exp.Between:
        name, values = _values(node.this, [node.args["low"], node.args["high"]], bound, side)
        if values:
            low, high = values
            return [(name, (LEAST if low is None else low, MOST if high is None else high))]
    elif kind is exp.In and node.expressions:
        name, values = _values(node.this, node.expressions, bound, side)
        known = [value for value in values if value is not None]
        if values and len(known) == len(values):
            return [(name, (min(known), max(known)))]
    return []


@dataclass(frozen=True)
class Limit:
    """A condition that is true for just the values from `low` to `high`, None without a bound; not for NULL.

    open: the bound, of which there is one, is not included.
    """

    name: str
    low: int | float | None
    high: int | float | None
    open: bool = False


def limits(bound: Bound) -> list[Limit | None]:
    """Each condition of a query over one stream as a limit; None if it is none."""
    return [_limit(condition.unnest(), bound) for condition in bound.conditions]


def _limit(node: exp.Expr, bound: Bound) -> Limit | None:
    kind = type(node)
    if kind in _TURNED:
        one, other = node.this, node.args["expression"]
        for how, column_of, constant in ((kind, one, other), (_TURNED[kind], other, one)):
            name, (value, *_) = _compared(column_of, [constant], bound) or ("", [None])
            if value is not None:
                low, high = value if how in _LOW else None, value if how in _HIGH else None
                return Limit(name, low, high, how in (exp.GT, exp.LT))
    elif kind is exp.Between:
        name, (low_, high_) = _compared(node.this, [node.args["low"], node.args["high"]], bound) or ("", [None, None])
        if low_ is not None and high_ is not None:
            return Limit(name, low_, high_)
    return None


def _compared(
    one: exp.Expression, others: list[exp.Expression], bound: Bound
) -> tuple[str, list[int | float | None]] | None:
    found, made = _constants(one, others, bound, 0, ("int", "timestamp", "float"))
    if found is None:
        return None
    return found.name, _numbers(found, made)


def _values(
    one: exp.Expression, others: list[exp.Expression], bound: Bound, side: int
) -> tuple[str, list[int | float | None]]:
    """A column of `side` and its comparands as stored, None if not constant; empty unless compared in its own type."""
    found, made = _constants(one, others, bound, side, ("int", "timestamp", "float"))
    return ("", []) if found is None else (found.name, _numbers(found, made))


def _numbers(found: Input, values: list[Any]) -> list[int | float | None]:
    """Constants as numbers; None for those that are none, or NaN."""
    if found.kind != "float":
        return [_number(value) for value in values]
    numbers = [math.nan if value is None or not value.is_valid else float(value.as_py()) for value in values]
    return [None if math.isnan(number) else number for number in numbers]


def _constants(
    one: exp.Expression, others: list[exp.Expression], bound: Bound, side: int, kinds: tuple[str, ...]
) -> tuple[Input | None, list[Any]]:
    """A column of `side` of one of these types, if it is compared in it, and the comparands."""
    found = bound.scope.resolve(one) if isinstance(one, exp.Column) else None
    if found is None or found.source != side or found.kind not in kinds:
        return None, []
    parts = [column(found), *(compile_expression(other, bound.scope) for other in others)]
    kind, (_, *made) = unify(parts, "compare", Place.of(one, bound.scope.sql))
    return (found, [value_of(part) for part in made]) if kind == found.kind else (None, [])


def _number(value: Any) -> int | None:
    if value is None or not value.is_valid:
        return None
    return int(value.value if isinstance(value, pa.TimestampScalar) else value.as_py())
