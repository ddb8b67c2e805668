"""CAST: conversions between types, and the text formats of values."""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promising.errors import BadCast, QueryError, TypeMismatch
from promising.query.scalar.compiled import Compiled, Value, apply, literal, overwrite
from promising.query.scalar.kernel_errors import checked
from promising.query.scalar.positions import Place
from promising.query.scalar.types import ARROW, NAMES, Kind

_TEXT: Final = ARROW["string"]
_BLANKS: Final = " \t\n\v\f\r"  # allowed around a number in a string
# Floats at least this large, or smaller than that, are written with an exponent, or nearly so.
_LARGE: Final = 1e15
_SMALL: Final = 1e-4
_TRUE: Final = ("true", "t", "yes", "y", "1")
_FALSE: Final = ("false", "f", "no", "n", "0")


def cast(part: Compiled, kind: Kind, place: Place) -> Compiled:
    """`CAST(part AS kind)`. Raises TypeMismatch if there is no such cast; a value that cannot be cast is a BadCast."""
    if part.kind == kind:
        return part if part.text is None else literal(part.text, "string")
    if part.kind == "null":
        return literal(None, kind)
    sure = _SURE.get((part.kind, kind))
    if sure is not None:
        return apply(kind, [part], sure)
    kernel = _RISKY.get((part.kind, kind))
    if kernel is None:
        raise place.error(TypeMismatch, f"{NAMES[part.kind]} cannot be cast to {NAMES[kind]}")
    quote = "'" if part.kind == "string" else ""

    def tell(reason: str, value: str) -> QueryError:
        return place.error(BadCast, f"{quote}{value}{quote} cannot be cast to {NAMES[kind]}")

    return apply(kind, [part], checked(kernel, tell), can_fail=True)


def read_literal(text: str, kind: Kind) -> pa.Scalar | None:
    """A string literal as a value of that type; None if it is not one."""
    kernel = _RISKY.get(("string", kind))
    try:
        return None if kernel is None else kernel(pa.array([text], _TEXT))[0]
    except pa.ArrowInvalid:
        return None


def widen(value: Value) -> Value:
    """Integers as the nearest floats; by default Arrow refuses integers beyond 2**53."""
    return value.cast(pa.float64(), safe=False)


def _array(value: Value) -> pa.Array:
    return pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value


def _float_to_int(value: Value) -> Value:
    """The nearest integer, ties to even; rejects NaN and overflow."""
    return pc.round(value, round_mode="half_to_even").cast(pa.int64())


def _float_to_string(value: Value) -> pa.Array:
    """The shortest text that parses to the same float."""
    array = _array(value)
    size = pc.abs(array)
    whole = pc.and_(pc.equal(pc.trunc(size), size), pc.less(size, _LARGE))
    dot, none = pa.scalar(".0", _TEXT), pa.scalar("", _TEXT)
    text = pc.binary_join_element_wise(array.cast(_TEXT), pc.if_else(whole, dot, none), none)
    # Arrow's threshold and notation for exponents differ from others'; NumPy's are right, but slow.
    odd = pc.or_(pc.greater_equal(size, _LARGE), pc.and_(pc.less(size, _SMALL), pc.not_equal(size, 0.0)))
    rows = np.flatnonzero(pc.fill_null(odd, False).to_numpy(zero_copy_only=False))
    if not len(rows):
        return text
    return overwrite(text, rows, pa.array(array.take(pa.array(rows)).to_numpy().astype(str), _TEXT))


def _timestamp_to_string(value: Value) -> Value:
    """To the second, with a fraction only if there is one."""
    return pc.replace_substring_regex(value.cast(_TEXT), r"\.?0+$", "")


def _string_to_int(value: Value) -> pa.Array:
    """Optional sign, decimal digits, surrounding blanks; a fraction is rounded, ties away from zero."""
    text = pc.utf8_trim(_array(value), _BLANKS)
    if pc.any(pc.match_substring(text, "x", ignore_case=True)).as_py():
        raise pa.ArrowInvalid("hexadecimal")
    try:
        return text.cast(pa.int64())
    except pa.ArrowInvalid:
        # A plus sign, a fraction, or not a number.
        parts = pc.extract_regex(text, r"^(?P<sign>[+-]?)(?P<whole>\d*)\.?(?P<rest>\d*)$")
    if parts.null_count > text.null_count or pc.any(pc.match_substring_regex(text, r"^[+-]?\.?$")).as_py():
        raise pa.ArrowInvalid("no number")
    sign, whole, rest = (pc.struct_field(parts, name) for name in ("sign", "whole", "rest"))
    none = pa.scalar("", _TEXT)
    minus = pc.equal(sign, pa.scalar("-", _TEXT))
    digits = pc.if_else(pc.equal(whole, none), pa.scalar("0", _TEXT), whole)
    number = pc.binary_join_element_wise(pc.if_else(minus, sign, none), digits, none).cast(pa.int64())
    away = pc.if_else(pc.match_substring_regex(rest, "^[5-9]"), pc.if_else(minus, -1, 1), 0)
    return pc.add_checked(number, away)


def _string_to_float(value: Value) -> Value:
    return pc.utf8_trim(value, _BLANKS).cast(pa.float64())


def _string_to_timestamp(value: Value) -> Value:
    """`2026-01-31`, then a blank or T and `10:00[:00[.123456]]`, then an optional Z. Finer digits are truncated."""
    try:
        return value.cast(ARROW["timestamp"])
    except pa.ArrowInvalid:
        plain = pc.replace_substring_regex(value, r"(:\d\d)Z$", r"\1")
        return pc.replace_substring_regex(plain, r"(\.\d{1,6})\d*Z?$", r"\1").cast(ARROW["timestamp"])


def _string_to_bool(value: Value) -> pa.Array:
    text = _array(value)
    found = pc.index_in(pc.ascii_lower(text), value_set=pa.array([*_TRUE, *_FALSE], _TEXT))
    if found.null_count > text.null_count:
        raise pa.ArrowInvalid("no boolean")
    return pc.less(found, len(_TRUE))


_SURE: Final[dict[tuple[Kind, Kind], Callable[[Value], Value]]] = {
    ("int", "float"): widen,
    ("int", "string"): lambda value: value.cast(_TEXT),
    ("int", "bool"): lambda value: pc.not_equal(value, 0),
    ("float", "string"): _float_to_string,
    ("float", "bool"): lambda value: pc.not_equal(value, 0.0),
    ("bool", "int"): lambda value: value.cast(pa.int64()),
    ("bool", "float"): lambda value: value.cast(pa.float64()),
    ("bool", "string"): lambda value: value.cast(_TEXT),
    ("timestamp", "string"): _timestamp_to_string,
}
_RISKY: Final[dict[tuple[Kind, Kind], Callable[[Value], Value]]] = {
    ("float", "int"): _float_to_int,
    ("string", "int"): _string_to_int,
    ("string", "float"): _string_to_float,
    ("string", "bool"): _string_to_bool,
    ("string", "timestamp"): _string_to_timestamp,
}
