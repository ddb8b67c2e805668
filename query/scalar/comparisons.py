"""Comparisons, IN and LIKE, in three-valued logic. Strings compare by bytes.

Floats are totally ordered, as in DuckDB: NaN equals NaN and is greater than every other value; -0.0 equals 0.0.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promising.errors import TypeMismatch, Unsupported
from promising.query.scalar.coercion import to_kind, unify
from promising.query.scalar.compiled import Compiled, Value, apply, literal, value_of
from promising.query.scalar.positions import Place
from promising.query.scalar.types import ARROW, NAMES, Kind

Comparison = Literal["=", "<>", "<", "<=", ">", ">="]
Kernel = Callable[[Value, Value], Value]

_PLAIN: Final[dict[Comparison, Kernel]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_OPPOSITE: Final[dict[Comparison, Comparison]] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}

LONGEST_PATTERN = 500  # characters of a LIKE with wildcards inside: it is compiled anew for every slice of rows
SET_FROM = 16  # members from which a set lookup is faster than comparisons


def compare(operator: Comparison, left: Compiled, right: Compiled, place: Place) -> Compiled:
    kind, (a, b) = unify([left, right], "compare", place)
    if kind == "null":
        return literal(None, "bool")
    if kind != "float":
        return apply("bool", [a, b], _PLAIN[operator])
    return apply("bool", [a, b], comparison(operator, kind, _never_nan(left, a), _never_nan(right, b)))


def _never_nan(written: Compiled, part: Compiled) -> bool:
    """Whether `part`, which is `written` as a float, cannot contain NaN."""
    if written.kind == "int":
        return True
    value = value_of(part)
    return value is not None and not (value.is_valid and math.isnan(value.as_py()))


def comparison(operator: Comparison, kind: Kind, left_sure: bool = False, right_sure: bool = False) -> Kernel:
    """The kernel that compares two values of that type. A side is sure if it cannot contain NaN.

    IEEE comparisons with NaN are false (`<>` true), so if one side is sure, they or their negated opposite are correct.
    """
    plain = _PLAIN[operator]
    if kind != "float" or (left_sure and right_sure):
        return plain
    if left_sure or right_sure:
        # NaN on the unsure side is greatest: true for `NaN > x` and `x < NaN`.
        if operator in ((">", ">=") if right_sure else ("<", "<=")):
            opposite = _PLAIN[_OPPOSITE[operator]]
            return lambda a, b: pc.invert(opposite(a, b))
        return plain

    def total(a: Value, b: Value) -> Value:
        result = plain(a, b)
        if not (_has_nan(a) and _has_nan(b)) and operator in ("=", "<>"):
            return result
        if not (_has_nan(a) or _has_nan(b)):
            return result
        x, y = pc.is_nan(a), pc.is_nan(b)
        if operator in ("=", "<>"):
            both = pc.and_(x, y)
            return pc.or_(result, both) if operator == "=" else pc.and_(result, pc.invert(both))
        # In addition to pairs of numbers: NaN is last, and equal to itself.
        extra = pc.and_(y, pc.invert(x)) if operator in ("<", "<=") else pc.and_(x, pc.invert(y))
        if operator in ("<=", ">="):
            extra = pc.or_(extra, pc.and_(x, y))
        return pc.or_(result, extra)

    return total


def _has_nan(value: Value) -> bool:
    """Whether the values may contain NaN; a null may count as one."""
    if isinstance(value, pa.Scalar):
        return bool(value.is_valid and math.isnan(value.as_py()))
    return bool(np.isnan(value.to_numpy(zero_copy_only=False)).any())


def between(part: Compiled, low: Compiled, high: Compiled, place: Place) -> Compiled:
    kind, (x, a, b) = unify([part, low, high], "compare", place)
    if kind == "null":
        return literal(None, "bool")
    if kind != "float":
        return apply("bool", [x, a, b], lambda x, a, b: pc.and_kleene(pc.greater_equal(x, a), pc.less_equal(x, b)))
    after = comparison(">=", kind, _never_nan(part, x), _never_nan(low, a))
    before = comparison("<=", kind, _never_nan(part, x), _never_nan(high, b))
    return apply("bool", [x, a, b], lambda x, a, b: pc.and_kleene(after(x, a), before(x, b)))


def member(part: Compiled, members: Sequence[Compiled], place: Place) -> Compiled:
    """`part IN (members)`: NULL if there is no match and `part` or a member is NULL."""
    kind, (x, *others) = unify([part, *members], "compare", place)
    if kind == "null":
        return literal(None, "bool")
    values = [value_of(other) for other in others]
    if len(values) >= SET_FROM and all(value is not None for value in values):
        return apply("bool", [x], _in_set(pa.array([v.as_py() for v in values if v is not None], ARROW[kind])))
    sure = kind != "float" or _never_nan(part, x)
    equal = [comparison("=", kind, sure, sure or _never_nan(*pair)) for pair in zip(members, others, strict=True)]

    def run(value: Value, *others: Value) -> Value:
        found = equal[0](value, others[0])
        for kernel, other in zip(equal[1:], others[1:], strict=True):
            found = pc.or_kleene(found, kernel(value, other))
        return found

    return apply("bool", [x, *others], run)


def member_of(part: Compiled, values: Sequence[int] | Sequence[float] | Sequence[str]) -> Compiled:
    """`part IN (values)`, which are strings as `part` is, or numbers as it is."""
    kind: Kind = "float" if part.kind == "int" and isinstance(values[0], float) else part.kind
    if kind == "float":
        values = [float(value) for value in values]
    return apply("bool", [to_kind(part, kind)], _in_set(pa.array(values, ARROW[kind])))


def _in_set(members: pa.Array) -> Callable[[Value], Value]:
    has_null = members.null_count > 0
    none = pa.scalar(None, pa.bool_())
    floats = pa.types.is_floating(members.type)
    # The set distinguishes -0.0 from 0.0; adding zero unifies them.
    known = pc.add(members, 0.0).drop_null() if floats else members.drop_null()

    def run(value: Value) -> Value:
        found = pc.is_in(pc.add(value, 0.0) if floats else value, value_set=known)
        if has_null:
            found = pc.if_else(found, True, none)
        if not isinstance(value, pa.Scalar) and value.null_count == 0:
            return found
        return pc.if_else(pc.is_valid(value), found, none)

    return run


def like(part: Compiled, pattern: Compiled, ignore_case: bool, place: Place) -> Compiled:
    """`part LIKE pattern`, for a constant pattern: `%` matches any text, `_` any character; there is no escape."""
    for side in (part, pattern):
        if side.kind not in ("string", "null"):
            raise place.error(TypeMismatch, f"LIKE needs strings, not {NAMES[side.kind]}")
    if "null" in (part.kind, pattern.kind):
        return literal(None, "bool")
    value = value_of(pattern)
    if value is None:
        raise place.error(Unsupported, "LIKE with a pattern that is no constant is not offered")
    if not value.is_valid:
        return literal(None, "bool")
    inner = value.as_py().strip("%")
    if len(inner) > LONGEST_PATTERN and ("%" in inner or "_" in inner):
        raise place.error(
            Unsupported,
            f"a LIKE pattern of {len(inner):,} characters with wildcards inside; {LONGEST_PATTERN} is the most: test"
            " parts of it, joined by AND",
        )
    if not ignore_case:
        return apply("bool", [part], matcher(value.as_py()))
    match = matcher(pc.utf8_lower(value).as_py())
    return apply("bool", [part], lambda text: match(pc.utf8_lower(text)))


def matcher(pattern: str) -> Callable[[Value], Value]:
    """The cheapest kernel that matches a LIKE pattern."""
    body, front, back = pattern.strip("%"), pattern.startswith("%"), pattern.endswith("%")
    if "%" in body or "_" in body:
        wild = {"%": ".*", "_": "."}
        inner = "".join(wild.get(c) or re.escape(c) for c in body)
        expression = "(?s)" + ("" if front else r"\A") + inner + ("" if back else r"\z")
        return lambda text: pc.match_substring_regex(text, expression)
    if front and back:
        return lambda text: pc.match_substring(text, body)
    if front:
        return lambda text: pc.ends_with(text, body)
    if back:
        return lambda text: pc.starts_with(text, body)
    return lambda text: pc.equal(text, pa.scalar(body, text.type))
