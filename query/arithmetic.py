"""Arithmetic on numbers, timestamps and intervals: what goes with what, and failures that say which values failed."""

from collections.abc import Callable
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from query.coercion import to_kind
from query.compiled import Compiled, Value, apply, literal
from query.failures import first_failure
from query.places import Place
from query.types import NAMES, NUMBERS, Kind
from summaries.errors import DivisionByZero, Overflow, QueryError, TypeMismatch

Operator = Literal["+", "-", "*", "/", "%"]

_CHECKED: Final[dict[Operator, Callable[[Value, Value], Value]]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide_checked,
    "%": pc.remainder_checked,
}
# A float that grows beyond all bounds becomes infinite, which is no failure.
_FLOAT: Final[dict[Operator, Callable[[Value, Value], Value]]] = {
    **_CHECKED,
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
}
# What the operators do beside numbers.
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
    """`left operator right`. `/` is the division of floats, `%` has the sign of the dividend.

    Integers, timestamps and intervals that leave 64 bits are an Overflow, a divisor of zero is a DivisionByZero.
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

    def run(a: Value, b: Value) -> Value:
        try:
            return kernel(a, b)
        except pa.ArrowInvalid as error:
            x, y = first_failure(kernel, a, b)
            raise _failure(str(error), f"{x} {operator} {y}", place) from None

    return apply(kind, parts, run, can_fail=True)


def negate(part: Compiled, place: Place) -> Compiled:
    return _unary("-", pc.negate, pc.negate_checked, part, place, intervals=True)


def absolute(part: Compiled, place: Place) -> Compiled:
    return _unary("abs ", pc.abs, pc.abs_checked, part, place, intervals=False)


def _unary(
    sign: str,
    kernel: Callable[[Value], Value],
    checked: Callable[[Value], Value],
    part: Compiled,
    place: Place,
    intervals: bool,
) -> Compiled:
    if part.kind == "null":
        return literal(None, "int")
    if part.kind == "float":
        return apply("float", [part], kernel)
    if part.kind != "int" and not (intervals and part.kind == "interval"):
        raise place.error(TypeMismatch, f"{sign.strip()} needs a number, not {NAMES[part.kind]}")

    def run(a: Value) -> Value:
        try:
            return checked(a)
        except pa.ArrowInvalid as error:
            (x,) = first_failure(checked, a)
            raise _failure(str(error), f"{sign}({x})", place) from None

    return apply(part.kind, [part], run, can_fail=True)


def _failure(reason: str, shown: str, place: Place) -> QueryError:
    if "zero" in reason:
        return place.error(DivisionByZero, f"division by zero: {shown}")
    return place.error(Overflow, f"{shown} does not fit 64 bits")


def _kind_with_null(operator: Operator, left: Kind, right: Kind, place: Place) -> Kind:
    """NULL takes whatever kind lets the operator work on the other operand."""
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
