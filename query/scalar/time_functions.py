"""Kernels of time functions: fields of a timestamp, and truncation. Weeks start on Monday."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from promising.query.scalar.compiled import Value
from promising.query.scalar.types import ARROW, Kind

_MINUTE: Final = 60_000_000


def _int(kernel: Callable[[Value], Value]) -> Callable[[Value], Value]:
    return lambda value: kernel(value).cast(pa.int64())


def _in_minute(unit: int) -> Callable[[Value], Value]:
    """The number of units of so many microseconds within the current minute."""
    return lambda value: pc.divide(pc.modulo(value.cast(pa.int64()), _MINUTE), unit)


def _epoch(value: Value) -> Value:
    """Seconds, with fraction."""
    return pc.divide(value.cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)


_FIELDS: Final[dict[str, Callable[[Value], Value]]] = {
    "YEAR": _int(pc.year),
    "QUARTER": _int(pc.quarter),
    "MONTH": _int(pc.month),
    "WEEK": _int(pc.iso_week),
    "DAY": _int(pc.day),
    "HOUR": _int(pc.hour),
    "MINUTE": _int(pc.minute),
    "SECOND": _in_minute(1_000_000),
    "MILLISECOND": _in_minute(1_000),
    "MICROSECOND": _in_minute(1),
    "DOW": _int(lambda value: pc.day_of_week(value, count_from_zero=True, week_start=7)),
    "ISODOW": _int(lambda value: pc.day_of_week(value, count_from_zero=False, week_start=1)),
    "DOY": _int(pc.day_of_year),
    "ISOYEAR": _int(pc.iso_year),
}
_OTHER_NAMES: Final = {"DAYOFWEEK": "DOW", "DAYOFYEAR": "DOY", "WEEKOFYEAR": "WEEK"}
_FIXED: Final[dict[str, int]] = {
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": _MINUTE,
    "HOUR": 60 * _MINUTE,
    "DAY": 1_440 * _MINUTE,
    "WEEK": 7 * 1_440 * _MINUTE,
}
_MONDAY: Final = 3 * 1_440 * _MINUTE  # the epoch is a Thursday
_CALENDAR: Final = ("MONTH", "QUARTER", "YEAR")


def unit_of(word: str) -> str:
    word = word.upper()
    word = word if word in _FIELDS else word.removesuffix("S")
    return _OTHER_NAMES.get(word, word)


def field(word: str, kind: Kind) -> tuple[Kind, Callable[[Value], Value]] | None:
    """The type of a field and the kernel that extracts it from a timestamp or interval; None for an unknown field."""
    if word.upper() == "EPOCH":
        return "float", _epoch
    kernel = _FIELDS.get(unit_of(word)) if kind == "timestamp" else None
    return None if kernel is None else ("int", kernel)


def truncation(word: str) -> Callable[[Value], Value] | None:
    """The kernel that truncates a timestamp to a unit; None for an unknown unit."""
    unit = unit_of(word)
    if unit == "MICROSECOND":
        return lambda value: value
    if unit in _FIXED:
        length, shift = _FIXED[unit], _MONDAY if unit == "WEEK" else 0

        def cut(value: Value) -> Value:
            micros = value.cast(pa.int64())
            past = pc.modulo(pc.add(micros, shift) if shift else micros, length)
            return pc.subtract(micros, past).cast(ARROW["timestamp"])

        return cut
    if unit in _CALENDAR:
        return lambda value: pc.floor_temporal(value, unit=unit.lower())
    return None
