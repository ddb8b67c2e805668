"""Arithmetic on numbers, timestamps and intervals: type rules, and errors that name the failing values."""

from collections.abc import Callable
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from promising.errors import DivisionByZero, Overflow, QueryError, TypeMismatch
from promising.query.scalar.coercion import to_kind
from promising.query.scalar.compiled import Compiled, Value, apply, literal
from promising.query.scalar.kernel_errors import checked
from promising.query.scalar.positions import Place
from promising.query.scalar.types import NAMES, NUMBERS, Kind

Operator = Literal["+", "-", "*", "/", "%"]


def _nonzero(kernel: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """`kernel`, rejecting a zero divisor. Arrow's own check is slow on many zeros."""

    def run(a: Value, b: Value) -> Value:
        zero = pc.and_(pc.equal(b, pa.scalar(0, b.type)), pc.is_valid(a))
        if (zero if isinstance(zero, pa.Scalar) else pc.any(zero)).as_py():
            raise pa.ArrowInvalid("divide by zero")
        return kernel(a, b)

    return run


_CHECKED: Final[dict[Operator, Callable[[Value, Value], Value]]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "%": _nonzero(pc.remainder_checked),
}
# A float that overflows becomes infinite, which is not an error.
_FLOAT: Final[dict[Operator, Callable[[Value, Value], Value]]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": _nonzero(pc.divide),
    "%": _nonzero(pc.remainder),
}
# Operators on other types than numbers.
_TIMES: Final[dict[tuple[Operator, Kind, Kind], Kind]] = {
    ("+", "timestamp", "interval"): "timestamp",
    ("+", "interval", "timestamp"): "timestamp",
    ("+", "interval", "interval"): "interval",
    ("-", "timestamp", "interval"): "timestamp",
    ("-", "timestamp", "timestamp"): "interval",
    ("-", "interval", "interval"): "interval",
    ("*", "interval", "int"): "interval",
    ("*", "int", "interval"): "interval",
}


def binary(operator: Operator, left: Compiled, right: Compiled, place: Place) -> Compiled:
    """`left operator right`. `/` is float division, `%` has the sign of the dividend.

    Beyond 64 bits, integers, timestamps and intervals raise Overflow; a zero divisor raises DivisionByZero.
    """
    if "null" in (left.kind, right.kind):
        return literal(None, _kind_with_null(operator, left.kind, right.kind, place))
    if left.kind in NUMBERS and right.kind in NUMBERS:
        kind: Kind = "int" if left.kind == right.kind == "int" and operator != "/" else "float"
        kernel = (_CHECKED if kind == "int" else _FLOAT)[operator]
        parts = [to_kind(left, kind), to_kind(right, kind)]
        if kind == "float" and operator in ("+", "-", "*"):
            return apply(kind, parts, kernel)
    else:
        found = _TIMES.get((operator, left.kind, right.kind))
        if found is None:
            raise _refuse(operator, left.kind, right.kind, place)
        kind, kernel, parts = found, _CHECKED[operator], [left, right]

    def tell(reason: str, a: str, b: str) -> QueryError:
        if "zero" in reason:
            return place.error(DivisionByZero, f"division by zero: {a} {operator} {b}")
        return place.error(Overflow, f"{a} {operator} {b} does not fit 64 bits")

    return apply(kind, parts, checked(kernel, tell), can_fail=True)


def negate(part: Compiled, place: Place) -> Compiled:
    return _unary("-", pc.negate, pc.negate_checked, part, place, ("int", "interval"))


def absolute(part: Compiled, place: Place) -> Compiled:
    return _unary("abs", pc.abs, pc.abs_checked, part, place, ("int",))


def _unary(
    sign: str,
    plain: Callable[[Value], Value],
    kernel: Callable[[Value], Value],
    part: Compiled,
    place: Place,
    kinds: tuple[Kind, ...],
) -> Compiled:
    if part.kind == "null":
        return literal(None, "int")
    if part.kind == "float":
        return apply("float", [part], plain)
    if part.kind not in kinds:
        raise place.error(TypeMismatch, f"{sign} needs a number, not {NAMES[part.kind]}")

    def tell(reason: str, a: str) -> QueryError:
        return place.error(Overflow, f"{sign}({a}) does not fit 64 bits")

    return apply(part.kind, [part], checked(kernel, tell), can_fail=True)


def _kind_with_null(operator: Operator, left: Kind, right: Kind, place: Place) -> Kind:
    """NULL takes a type for which the operator is defined with the other operand."""
    if operator == "/":
        fits: set[Kind] = {"float"} if {left, right} <= NUMBERS | {"null"} else set()
    elif {left, right} <= NUMBERS | {"null"}:
        fits = {"float"} if "float" in (left, right) else {"int"}
    else:
        fits = {
            kind for (o, a, b), kind in _TIMES.items() if o == operator and left in (a, "null") and right in (b, "null")
        }
    if not fits:
        raise _refuse(operator, left, right, place)
    return min(fits)


def _refuse(operator: Operator, left: Kind, right: Kind, place: Place) -> TypeMismatch:
    return place.error(TypeMismatch, f"{operator} does not work on {NAMES[left]} and {NAMES[right]}")
