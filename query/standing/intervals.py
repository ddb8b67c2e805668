"""Conditions on one column as exact sets of intervals: a row satisfies the condition if its key lies in one of them.

The key of a value is a 64-bit integer that preserves the order of values. Numbers and times are their own keys. Floats
use their bits in comparison order, with a single zero and NaN last; false is 0, true is 1. Strings have equality only.
NULL has no key and lies in no interval.
"""

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from promising.query.aggregate.arrow_memory import raw, words
from promising.query.scalar.coercion import unify
from promising.query.scalar.compiled import Compiled, column, value_of
from promising.query.scalar.expressions import compile_expression
from promising.query.scalar.positions import Place
from promising.query.scalar.scope import Input
from promising.query.scalar.types import Kind

LEAST: Final = -(1 << 63)
MOST: Final = (1 << 63) - 1
KINDS: Final[frozenset[Kind]] = frozenset({"int", "float", "timestamp", "bool", "string"})

Intervals = list[tuple[int, int]]
"""(least key, greatest key), inclusive; ascending and disjoint."""

_TURNED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


@dataclass(frozen=True, slots=True)
class Term:
    """The values of one column that a query accepts: the keys in `intervals`, or for strings, these `texts`."""

    column: str
    kind: Kind
    intervals: Intervals
    texts: tuple[str, ...] = ()


def terms(predicates: Sequence[Compiled], conditions: Sequence[exp.Expression]) -> tuple[list[Term], list[Compiled]]:
    """One term per column for the conditions on single columns, and the remaining predicates.

    Checking the terms and then the rest, in order, finds the same rows and raises the same errors as checking all
    predicates in order: predicates after one that can fail are not moved.
    """
    found: dict[str, Term] = {}
    rest: list[Compiled] = []
    steady = True
    for predicate, condition in zip(predicates, conditions, strict=True):
        term = _term(predicate, condition) if steady else None
        if term is None:
            rest.append(predicate)
            steady = steady and not predicate.can_fail
        else:
            known = found.get(term.column)
            found[term.column] = term if known is None else _both(known, term)
    return list(found.values()), rest


def keys(array: pa.Array, kind: Kind) -> NDArray[np.int64]:
    """The key of each value, arbitrary where null; not for strings."""
    values = raw(array, kind)
    if kind != "float":
        return values
    bits = words(values)
    return bits ^ ((bits >> 63) & MOST)


def _key(value: Any) -> int:
    if isinstance(value, pa.TimestampScalar):
        return int(value.value)
    plain = value.as_py()
    return _float_key(plain) if isinstance(plain, float) else int(plain)


def _float_key(value: float) -> int:
    if math.isnan(value):
        value = math.nan
    (bits,) = struct.unpack("<q", struct.pack("<d", value + 0.0))
    return int(bits if bits >= 0 else bits ^ MOST)


def _narrowed(low: int, high: int) -> Intervals:
    """The integers whose keys as floats are in `low` to `high`."""
    first, last = _least(low), _least(high + 1) - 1
    return [(first, last)] if first <= last else []


def _least(key: int) -> int:
    """The least integer whose key as a float is at least `key`; MOST + 1 if there is none."""
    low, high = LEAST, MOST + 1
    while low < high:
        middle = (low + high) // 2
        if _float_key(float(middle)) < key:
            low = middle + 1
        else:
            high = middle
    return low


def _term(predicate: Compiled, condition: exp.Expression) -> Term | None:
    """The condition as a term of its only column; None if it is not a set of intervals."""
    if len(predicate.inputs) != 1 or predicate.can_fail:
        return None
    (only,) = predicate.inputs
    if only.kind not in KINDS:
        return None
    if only.kind == "string":
        texts = _texts(condition.unnest(), only)
        return None if texts is None else Term(only.name, "string", [], texts)
    found = _solve(condition, only)
    return None if found is None else Term(only.name, only.kind, found)


def _both(one: Term, other: Term) -> Term:
    texts = tuple(text for text in one.texts if text in other.texts)
    return Term(one.column, one.kind, _intersection(one.intervals, other.intervals), texts)


def _texts(node: exp.Expr, only: Input) -> tuple[str, ...] | None:
    if isinstance(node, exp.EQ):
        one, other = node.this.unnest(), node.expression.unnest()
        members, part = ([other], one) if isinstance(one, exp.Column) else ([one], other)
    elif isinstance(node, exp.In) and node.expressions:
        members, part = node.expressions, node.this.unnest()
    else:
        return None
    values = _values(part, members, only)
    return None if values is None else tuple(dict.fromkeys(value.as_py() for value in values[1]))


def _solve(node: exp.Expr, only: Input) -> Intervals | None:
    """The keys for which the condition is true. It is false for all other keys, and NULL without a key."""
    node = node.unnest()
    if isinstance(node, exp.And | exp.Or):
        parts = [_solve(part, only) for part in _operands(node)]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        if isinstance(node, exp.Or):
            return _union(pair for part in known for pair in part)
        result = known[0]
        for part in known[1:]:
            result = _intersection(result, part)
        return result
    if isinstance(node, exp.Not):
        inner = _solve(node.this, only)
        return None if inner is None else _complement(inner)
    if isinstance(node, exp.Column):
        return [(1, 1)] if only.kind == "bool" else None
    return _compared(node, only)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of one connector; iterative, since a chain may have thousands."""
    kind, waiting, found = type(node), [node], []
    while waiting:
        part = waiting.pop().unnest()
        if isinstance(part, kind):
            waiting += [part.args["expression"], part.this]
        else:
            found.append(part)
    return found


def _compared(node: exp.Expr, only: Input) -> Intervals | None:
    """The keys for which a comparison of the column with constants holds."""
    how = type(node)
    if how in _TURNED:
        part, member = node.this.unnest(), node.args["expression"].unnest()
        if not isinstance(part, exp.Column):
            how, part, member = _TURNED[how], member, part
        members = [member]
    elif isinstance(node, exp.Between):
        part, members = node.this.unnest(), [node.args["low"], node.args["high"]]
    elif isinstance(node, exp.In) and node.expressions:
        part, members = node.this.unnest(), node.expressions
    else:
        return None
    values = _values(part, members, only)
    if values is None:
        return None
    kind, scalars = values
    points = [_key(scalar) for scalar in scalars]
    if how is exp.Between:
        found = [(points[0], points[1])]
    elif how in (exp.EQ, exp.In):
        if how is exp.In and any(isinstance(v := s.as_py(), float) and math.isnan(v) for s in scalars):
            return None  # a long list may not treat two NaNs as equal
        found = [(point, point) for point in points]
    elif how is exp.NEQ:
        found = [(LEAST, points[0] - 1), (points[0] + 1, MOST)]
    elif how in (exp.GT, exp.GTE):
        found = [(points[0] + (how is exp.GT), MOST)]
    else:
        found = [(LEAST, points[0] - (how is exp.LT))]
    if kind != only.kind:
        found = [pair for low, high in found for pair in _narrowed(low, high)]
    return _union(found)


class _Constants:
    """The scope of constants: it has no columns."""

    sql = ""

    def resolve(self, node: exp.Column) -> Input:
        raise AssertionError("a constant names no column")

    def replace(self, node: exp.Expression) -> Input | None:
        return None


def _values(part: exp.Expr, members: Sequence[exp.Expression], only: Input) -> tuple[Kind, list[Any]] | None:
    """The kind of the comparison and the values; None if not constants, NULL, or not ordered like the column."""
    if not isinstance(part, exp.Column) or any(member.find(exp.Column) is not None for member in members):
        return None
    parts = [column(only), *(compile_expression(member, _Constants()) for member in members)]
    kind, (_, *made) = unify(parts, "compare", Place("", None))
    if kind != only.kind and (only.kind, kind) != ("int", "float"):
        return None
    values = [value_of(one) for one in made]
    if any(value is None or not value.is_valid for value in values):
        return None
    return kind, values


def _union(pairs: Iterable[tuple[int, int]]) -> Intervals:
    """Intervals in any order, possibly empty or out of range, normalised."""
    result: Intervals = []
    for low, high in sorted((max(low, LEAST), min(high, MOST)) for low, high in pairs):
        if low > high:
            continue
        if result and low <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(high, result[-1][1])
        else:
            result.append((low, high))
    return result


def _intersection(one: Intervals, other: Intervals) -> Intervals:
    result, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low <= high:
            result.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return result


def _complement(pairs: Intervals) -> Intervals:
    ends = [LEAST - 1, *(end for pair in pairs for end in pair), MOST + 1]
    return [(low + 1, high - 1) for low, high in zip(ends[::2], ends[1::2], strict=True) if low + 1 <= high - 1]
