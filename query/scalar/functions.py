"""Scalar functions: argument types and kernel by node."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from promising.errors import Overflow, QueryError, TypeMismatch, Unsupported
from promising.query.scalar import arithmetic, branches, comparisons, string_functions, time_functions
from promising.query.scalar.casts import cast
from promising.query.scalar.coercion import to_kind, unify
from promising.query.scalar.compiled import Compiled, Value, apply, literal, value_of
from promising.query.scalar.kernel_errors import checked
from promising.query.scalar.positions import Place
from promising.query.scalar.types import ARROW, NAMES, NUMBERS, Kind


@dataclass(frozen=True)
class Call:
    """A function call: its node, its position, and the compiler of its arguments."""

    node: exp.Expression
    place: Place
    compile: Callable[[exp.Expression], Compiled]

    @property
    def name(self) -> str:
        return self.node.sql_name().lower() if isinstance(self.node, exp.Func) else "||"

    def argument(self, name: str, *kinds: Kind) -> Compiled:
        """An argument of one of these types; NULL takes the first."""
        made = self.compile(self.node.args[name])
        if made.kind == "null":
            return literal(None, kinds[0])
        if made.kind not in kinds:
            raise self.place.error(TypeMismatch, f"{self.name} takes {NAMES[kinds[0]]}, not {NAMES[made.kind]}")
        return made

    def number(self, name: str = "this") -> Compiled:
        made = self.compile(self.node.args[name])
        if made.kind not in (*NUMBERS, "null"):
            raise self.place.error(TypeMismatch, f"{self.name} takes a number, not {NAMES[made.kind]}")
        return made

    def constant(self, name: str) -> int | None:
        """An argument that must be a constant integer; None for NULL."""
        value = value_of(self.argument(name, "int"))
        if value is None:
            raise self.place.error(Unsupported, f"the {name} of {self.name} must be a constant")
        number: int | None = value.as_py()
        return number

    def all(self) -> list[Compiled]:
        first = [self.node.this] if self.node.args.get("this") is not None else []
        return [self.compile(argument) for argument in (*first, *self.node.expressions)]


# --- numbers -----------------------------------------------------------------------------------------------------


def _of_float(kernel: Callable[[Value], Value]) -> Callable[[Call], Compiled]:
    """A total function on floats (the result may be NaN or infinite)."""
    return lambda call: apply("float", [to_kind(call.number(), "float")], kernel)


def _power(call: Call) -> Compiled:
    return apply("float", [to_kind(call.number(name), "float") for name in ("this", "expression")], pc.power)


def _sign(call: Call) -> Compiled:
    """-1, 0 or 1; 0 for NaN."""
    part = call.number()
    if part.kind == "float":
        return apply("int", [part], lambda v: pc.if_else(pc.is_nan(v), 0.0, pc.sign(v)).cast(pa.int64()))
    return apply("int", [to_kind(part, "int")], lambda v: pc.sign(v).cast(pa.int64()))


def _round(call: Call) -> Compiled:
    """Rounded to that many decimals, negative left of the point; ties away from zero."""
    part = call.number()
    digits = call.constant("decimals") if call.node.args.get("decimals") is not None else 0
    if digits is None:
        return literal(None, "int" if part.kind == "null" else part.kind)
    if part.kind == "float":
        return apply("float", [part], lambda value: _round_floats(value, digits))
    part = to_kind(part, "int")
    if digits >= 0:
        return part

    def tell(reason: str, value: str) -> QueryError:
        return call.place.error(Overflow, f"{value} rounded to {digits} decimals does not fit 64 bits")

    return apply("int", [part], checked(lambda value: _round_integers(value, -digits), tell), can_fail=True)


def _round_floats(value: Value, digits: int) -> Value:
    if digits == 0:
        return pc.round(value, 0, "half_towards_infinity")
    unit = 10.0 ** abs(digits) if abs(digits) <= 308 else math.inf
    scaled = pc.multiply(value, unit) if digits > 0 else pc.divide(value, unit)
    whole = pc.round(scaled, 0, "half_towards_infinity")
    rounded = pc.divide(whole, unit) if digits > 0 else pc.multiply(whole, unit)
    # Too many digits after the point change nothing; too many before it leave zero.
    beyond = value if digits > 0 else pc.if_else(pc.is_finite(value), 0.0, value)
    return pc.if_else(pc.is_finite(rounded), rounded, beyond)


def _round_integers(value: Value, zeros: int) -> Value:
    if zeros > 19:
        return pc.multiply(value, 0)
    unit = 10**zeros
    if zeros == 19:
        # The unit itself does not fit: what would round up to it fails, everything else is zero.
        away = pc.or_(pc.greater_equal(value, unit // 2), pc.less_equal(value, -(unit // 2)))
        return pc.multiply_checked(pc.if_else(away, 2**62, 0), 4)
    rest = pc.remainder(value, unit)
    half = pa.scalar(unit // 2)
    up = pc.if_else(pc.greater_equal(rest, half), unit, pc.if_else(pc.less_equal(rest, pc.negate(half)), -unit, 0))
    return pc.add_checked(pc.subtract(value, rest), up)


# --- any kind ----------------------------------------------------------------------------------------------------


def _coalesce(call: Call) -> Compiled:
    kind, parts = unify(call.all(), "choose between", call.place)
    return branches.coalesce(kind, parts)


def _nullif(call: Call) -> Compiled:
    part, other = (call.compile(call.node.args[name]) for name in ("this", "expression"))
    equal = comparisons.compare("=", part, other, call.place)
    none = pa.scalar(None, ARROW[part.kind])
    return apply(part.kind, [equal, part], lambda same, value: pc.if_else(pc.fill_null(same, False), none, value))


def _extreme(operator: comparisons.Comparison) -> Callable[[Call], Compiled]:
    """The least or greatest non-null argument."""

    def build(call: Call) -> Compiled:
        kind, parts = unify(call.all(), "compare", call.place)
        if kind == "null":
            return literal(None, kind)
        before = comparisons.comparison(operator, kind)

        def run(best: Value, *others: Value) -> Value:
            for other in others:
                better = pc.coalesce(before(other, best), pc.is_null(best))
                best = pc.if_else(better, other, best)
            return best

        return apply(kind, parts, run)

    return build


# --- strings -----------------------------------------------------------------------------------------------------


def _of_string(kind: Kind, kernel: Callable[[Value], Value]) -> Callable[[Call], Compiled]:
    return lambda call: apply(kind, [call.argument("this", "string")], kernel)


def _substring(call: Call) -> Compiled:
    part, start = call.argument("this", "string"), call.constant("start")
    ends = call.node.args.get("length") is not None
    length = call.constant("length") if ends else None
    if start is None or (ends and length is None):
        return literal(None, "string")
    return apply("string", [part], string_functions.slicer(start, length))


def _texts(call: Call, parts: Sequence[Compiled]) -> Iterator[Compiled]:
    for part in parts:
        if part.kind == "interval":
            raise call.place.error(TypeMismatch, f"{call.name} takes strings, not an interval")
        yield cast(part, "string", call.place)


def _concat(call: Call) -> Compiled:
    """Concatenation of the arguments; NULL counts as empty."""
    return apply("string", list(_texts(call, call.all())), string_functions.join_all)


def _joined(call: Call) -> Compiled:
    """`a || b`: NULL if either is."""
    parts = [call.compile(call.node.args[name]) for name in ("this", "expression")]
    return apply("string", list(_texts(call, parts)), string_functions.join)


def _starts_with(call: Call) -> Compiled:
    return apply(
        "bool", [call.argument(name, "string") for name in ("this", "expression")], string_functions.starts_with
    )


# --- time --------------------------------------------------------------------------------------------------------


def _date_trunc(call: Call) -> Compiled:
    unit = call.node.text("unit")
    kernel = time_functions.truncation(unit)
    if kernel is None:
        raise call.place.error(Unsupported, f"date_trunc to {unit.lower()!r} is not offered")
    return apply("timestamp", [call.argument("this", "timestamp")], kernel)


def _extract(call: Call) -> Compiled:
    unit = call.node.text("this")
    part = call.argument("expression", "timestamp", "interval")
    found = time_functions.field(unit, part.kind)
    if found is None:
        raise call.place.error(Unsupported, f"{unit.lower()} of {NAMES[part.kind]} is not offered")
    return apply(found[0], [part], found[1])


def _field(unit: str) -> Callable[[Call], Compiled]:
    def build(call: Call) -> Compiled:
        found = time_functions.field(unit, "timestamp")
        assert found is not None
        return apply(found[0], [call.argument("this", "timestamp")], found[1])

    return build


FUNCTIONS: Final[dict[type[exp.Expression], Callable[[Call], Compiled]]] = {
    exp.Abs: lambda call: arithmetic.absolute(call.compile(call.node.this), call.place),
    exp.Floor: _of_float(pc.floor),
    exp.Ceil: _of_float(pc.ceil),
    exp.Round: _round,
    exp.Sign: _sign,
    exp.Sqrt: _of_float(pc.sqrt),
    exp.Ln: _of_float(pc.ln),
    exp.Exp: _of_float(pc.exp),
    exp.Pow: _power,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Least: _extreme("<"),
    exp.Greatest: _extreme(">"),
    exp.Lower: _of_string("string", pc.utf8_lower),
    exp.Upper: _of_string("string", pc.utf8_upper),
    exp.Length: _of_string("int", lambda text: pc.utf8_length(text).cast(pa.int64())),
    exp.Trim: _of_string("string", string_functions.trim),
    exp.Substring: _substring,
    exp.Concat: _concat,
    exp.DPipe: _joined,
    exp.StartsWith: _starts_with,
    exp.DateTrunc: _date_trunc,
    exp.Extract: _extract,
    exp.Year: _field("YEAR"),
    exp.Quarter: _field("QUARTER"),
    exp.Month: _field("MONTH"),
    exp.Week: _field("WEEK"),
    exp.Day: _field("DAY"),
    exp.Hour: _field("HOUR"),
    exp.Minute: _field("MINUTE"),
    exp.Second: _field("SECOND"),
}
