"""Input validation: a batch becomes typed arrays, or an error that names the column, the row and the value."""

import math
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from promising.errors import (
    BadSchema,
    DuplicateColumn,
    EmptyBatch,
    MissingColumn,
    MixedKeys,
    NaNKey,
    NullKey,
    NullTime,
    UnequalLengths,
    UnknownColumn,
    ValueTooLong,
    WrongType,
)
from promising.index.frames import as_batch
from promising.index.instants import FARTHEST

TYPES: dict[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.large_string(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us"),
}
KEY_TYPES = ("int", "string")
AS_IT_IS = {"int": np.dtype(np.int64), "timestamp": np.dtype(np.int64), "float": np.dtype(np.float64)}
LONGEST_STRING = 1 << 15
AT_ONCE = 1 << 14  # strings whose lengths are compared at once

Batch: TypeAlias = Any
"""Whatever `frames.as_batch` takes: a mapping of columns, a frame, an Arrow table or record batch, a list of dicts."""


def text_bytes(columns: Mapping[str, "Column"]) -> int:
    """Bytes of the strings in these columns."""
    return sum(column.text.nbytes for column in columns.values() if column.text is not None)


def tuples_of(batch: Any) -> int:
    """The apparent number of tuples of a batch, valid or not."""
    if isinstance(batch, pa.Table | pa.RecordBatch):
        return int(batch.num_rows)
    try:
        return max((len(c) for c in batch.values()), default=0) if isinstance(batch, Mapping) else len(batch)
    except TypeError:
        return 0


class Column(NamedTuple):
    """One column of a batch: int64, float64 or uint8 `values`, or strings in `text`; `nulls` may be None."""

    values: NDArray[Any] | None
    text: Any  # a pyarrow.LargeStringArray, or None
    nulls: NDArray[np.bool_] | None

    def filtered(self, kept: NDArray[np.bool_]) -> "Column":
        return Column(
            None if self.values is None else self.values[kept],
            None if self.text is None else self.text.filter(pa.array(kept)),
            None if self.nulls is None else self.nulls[kept],
        )


@dataclass(frozen=True)
class Fields:
    types: dict[str, str]

    def __post_init__(self) -> None:
        if not self.types:
            raise BadSchema("there must be at least one column")
        for name, kind in self.types.items():
            if kind not in TYPES:
                raise BadSchema(f"column {name!r} has unknown type {kind!r}; types are {', '.join(TYPES)}")

    def columns(self, batch: Batch, keys: frozenset[str]) -> dict[str, Column]:
        """The batch as typed columns of equal length > 0, `keys` without nulls; an error has no side effects."""
        batch = as_batch(batch)
        if isinstance(batch, Mapping):
            given = dict(batch)
        else:
            names = Counter(batch.schema.names)
            for name, times in names.items():
                if times > 1:
                    raise DuplicateColumn(f"column {name!r} is in the batch {times} times")
            given = dict(zip(names, batch.columns, strict=True))
        if given.keys() != self.types.keys():
            self._refuse_names(given)
        columns = {name: self.column(name, given[name], name in keys) for name in self.types}
        lengths = [_length(column) for column in columns.values()]
        if min(lengths) != max(lengths):
            said = ", ".join(f"{name} {length}" for name, length in zip(columns, lengths, strict=True))
            raise UnequalLengths(f"columns differ in length: {said}")
        if lengths[0] == 0:
            raise EmptyBatch("the batch has no tuples")
        for name in keys:
            _refuse_nulls(columns[name], name, NullKey, "a key")
        return columns

    def _refuse_names(self, given: dict[str, Any]) -> None:
        for name in given:
            if name not in self.types:
                raise UnknownColumn(f"column {name!r} is not in the schema ({', '.join(self.types)})")
        for name in self.types:
            if name not in given:
                raise MissingColumn(f"column {name!r} ({self.types[name]}) is missing from the batch")

    def column(self, name: str, given: Any, is_key: bool) -> Column:
        """One column of any length, with nulls. `is_key` makes errors refer to a key."""
        kind = self.types[name]
        is_key = is_key and kind in KEY_TYPES
        if _is_plain(given, kind):
            return Column(given, None, None)
        if isinstance(given, np.ma.MaskedArray):
            given = given.tolist()  # masked values are null
        if isinstance(given, np.ndarray) and given.dtype.kind in "iufbM":
            return _from_numpy(name, given, kind, is_key)
        if not isinstance(given, pa.Array | pa.ChunkedArray):
            given = _to_arrow(name, given, kind, is_key)
        return _from_arrow(name, given, kind, is_key)


@dataclass(frozen=True)
class Schema(Fields):
    """Names and types of a stream's columns, and the event-time column."""

    time: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.types.get(self.time) != "timestamp":
            found = self.types.get(self.time)
            said = f"is of type {found}" if found else "does not exist"
            raise BadSchema(f"the time column {self.time!r} {said}; it must be one of the timestamp columns")

    def check_key(self, key: str) -> None:
        kind = self.types.get(key)
        if kind is None:
            raise BadSchema(f"no column {key!r} to summarise; columns are {', '.join(self.types)}")
        if kind not in KEY_TYPES:
            raise BadSchema(f"column {key!r} is of type {kind}; a key must be of type {' or '.join(KEY_TYPES)}")

    def read(self, batch: Batch, keys: frozenset[str]) -> "Read":
        """The batch as typed columns of equal length > 0; an error has no side effects."""
        columns = self.columns(batch, keys)
        return Read(columns, *self._check_times(columns[self.time]))

    def _check_times(self, column: Column) -> tuple[NDArray[np.int64], int, int]:
        from promising.index.kernels.seal import extent  # noqa: PLC0415  # compiled: not for those who only send columns

        _refuse_nulls(column, self.time, NullTime, "the event time")
        assert column.values is not None
        least, greatest = extent(column.values)
        if least < -FARTHEST or greatest > FARTHEST:
            row = int(np.argmax(np.abs(column.values.astype(np.float64)) > FARTHEST))
            raise WrongType(
                f"column {self.time!r}, row {row}: {column.values[row]} is beyond any date; times are microseconds"
            )
        return column.values, least, greatest


class Read(NamedTuple):
    columns: dict[str, Column]
    times: NDArray[np.int64]
    least: int
    greatest: int


def _is_plain(given: Any, kind: str) -> bool:
    """Whether an array has the memory layout of the log."""
    if type(given) is not np.ndarray or given.dtype is not AS_IT_IS.get(kind):
        return False
    return bool(given.ndim == 1 and given.flags.c_contiguous)


def _length(column: Column) -> int:
    return len(column.text if column.values is None else column.values)


def _refuse_nulls(column: Column, name: str, error: type[Exception], what: str) -> None:
    if column.nulls is not None:
        raise error(f"column {name!r}, row {int(np.argmax(column.nulls))}: null, but {what} must have a value")


def _whole(name: str, values: NDArray[Any], is_key: bool) -> NDArray[np.int64]:
    """Integers stored as floats, as pandas does."""
    bad = np.isnan(values)
    if bad.any():
        row = int(np.argmax(bad))
        if is_key:
            raise NaNKey(f"column {name!r}, row {row}: NaN is no key (a missing integer that became a float?)")
        raise WrongType(f"column {name!r}, row {row}: NaN in an int column; use a null instead")
    bad = (values != np.floor(values)) | (np.abs(values) >= 2.0**63)
    if bad.any():
        row = int(np.argmax(bad))
        raise WrongType(f"column {name!r}, row {row}: {values[row]} is no 64-bit integer")
    return values.astype(np.int64)


def _from_numpy(name: str, given: NDArray[Any], kind: str, is_key: bool) -> Column:
    if given.ndim != 1:
        raise WrongType(f"column {name!r} has {given.ndim} dimensions; a column has one")
    dtype = given.dtype
    values: NDArray[Any] | None = None
    nulls = None
    if kind == "timestamp" and dtype.kind == "M":
        nulls = np.isnat(given)
        nulls = nulls if nulls.any() else None
        micros = given.astype("datetime64[us]")
        if np.datetime_data(dtype)[0] in ("Y", "M", "W", "D", "h", "m", "s", "ms"):
            lost = (micros.astype(dtype) != given) & ~np.isnat(given)  # numpy overflows silently
            if lost.any():
                row = int(np.argmax(lost))
                raise WrongType(f"column {name!r}, row {row}: {given[row]} is beyond any date")
        values = micros.view(np.int64)
        if nulls is not None:
            values = np.where(nulls, 0, values)
    elif kind in ("int", "timestamp") and dtype.kind in "iu":
        if dtype.kind == "u" and given.size and int(given.max()) >= 1 << 63:
            row = int(np.argmax(given >= np.uint64(1 << 63)))
            raise WrongType(f"column {name!r}, row {row}: {given[row]} does not fit a signed 64-bit integer")
        values = given.astype(np.int64, copy=False)
    elif kind == "int" and dtype.kind == "f":
        values = _whole(name, given, is_key)
    elif kind == "float" and dtype.kind in "iuf":
        values = given.astype(np.float64, copy=False)
    elif kind == "bool" and dtype.kind == "b":
        values = given.view(np.uint8)
    if values is None:
        error = MixedKeys if is_key and kind == "string" else WrongType
        raise error(f"column {name!r} is {kind} but the batch has {dtype} (row 0: {given[0] if given.size else None})")
    return Column(np.ascontiguousarray(values), None, nulls)


def _to_arrow(name: str, given: Any, kind: str, is_key: bool) -> pa.Array:
    if isinstance(given, str | bytes | Mapping | Set) or (np.ndim(given) == 0 and isinstance(given, np.ndarray)):
        raise WrongType(f"column {name!r} is a {type(given).__name__}, not an array")
    try:
        values = list(given) if not isinstance(given, np.ndarray) else given.tolist()
    except TypeError:
        raise WrongType(f"column {name!r} is a {type(given).__name__}, not an array") from None
    if is_key:
        wanted: type = int if kind == "int" else str
        for row, value in enumerate(values):
            if isinstance(value, float) and math.isnan(value):
                raise NaNKey(f"column {name!r}, row {row}: NaN is no key (a missing integer that became a float?)")
            if isinstance(value, str if kind == "int" else int | float):
                raise MixedKeys(f"column {name!r}, row {row}: {value!r} among {kind} keys; a key column has one type")
            if value is not None and not isinstance(value, wanted | np.integer | float | np.str_):
                raise WrongType(f"column {name!r}, row {row}: {value!r} is no {kind}")
    if kind != "bool":
        for row, value in enumerate(values):
            if isinstance(value, bool | np.bool_):
                raise WrongType(f"column {name!r}, row {row}: {value!r} is no {kind}")
    if kind in ("int", "timestamp"):  # pyarrow would truncate fractions
        for row, value in enumerate(values):
            if isinstance(value, float | np.floating) and not float(value).is_integer():
                raise WrongType(f"column {name!r}, row {row}: {value!r} is no {kind}")
    if kind == "timestamp" and any(isinstance(v, int | np.integer) for v in values):
        kind = "int"
    try:
        return pa.array(values, type=TYPES[kind])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as problem:
        for row, value in enumerate(values):
            try:
                pa.scalar(value, type=TYPES[kind])
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError):
                raise WrongType(f"column {name!r}, row {row}: {value!r} is no {kind}") from None
        raise WrongType(f"column {name!r}: {problem}") from None


def _longest(ends: NDArray[np.int64]) -> int:
    """The greatest length of the strings between these offsets, measured in parts that fit into a cache; more than any
    string has if an offset is less than the one before it.
    """
    sizes = np.empty(min(AT_ONCE, len(ends) - 1), np.int64)
    longest = 0
    for first in range(0, len(ends) - 1, AT_ONCE):
        part = ends[first : first + AT_ONCE + 1]
        found = np.subtract(part[1:], part[:-1], out=sizes[: len(part) - 1])
        longest = max(longest, int(found.view(np.uint64).max()))
    return longest


def _sound_text(given: pa.Array | pa.ChunkedArray) -> pa.LargeStringArray | None:
    """Strings that three fast passes find valid and short enough: no nulls, ASCII. None: they must be checked one by
    one, which takes five times as long.
    """
    if isinstance(given, pa.ChunkedArray):
        if given.num_chunks != 1:
            return None
        given = given.chunk(0)
    if not (pa.types.is_string(given.type) or pa.types.is_large_string(given.type)) or not len(given):
        return None
    try:
        given.validate()
    except pa.ArrowInvalid:
        return None
    text = given.cast(pa.large_string())
    valid, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    size = 0 if data is None else len(data)
    if valid is not None or ends[0] < 0 or ends[-1] > size or _longest(ends) > LONGEST_STRING:
        return None
    if ends[-1] > ends[0] and np.frombuffer(data, np.int8)[ends[0] : ends[-1]].min() < 0:
        return None
    return text


def _first_bad(array: pa.Array, wanted: pa.DataType) -> int:
    """The first row that cannot be cast, by bisection."""
    good, bad = 0, len(array)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            array.slice(good, middle - good).cast(wanted)
            good = middle
        except pa.ArrowInvalid:
            bad = middle
    return good


def lies_alike(source: pa.DataType, kind: str) -> bool:
    """Whether a non-null Arrow array of that type has the log's memory layout of a column of that kind."""
    if kind not in AS_IT_IS:
        return False
    micros = kind == "timestamp" and pa.types.is_timestamp(source) and source.unit == "us"  # in any time zone
    return bool(micros or source == TYPES[kind])


def _in_place(given: pa.Array | pa.ChunkedArray, kind: str) -> NDArray[Any] | None:
    """A read-only view of an Arrow array with the log's memory layout; None if it has another."""
    if isinstance(given, pa.ChunkedArray):
        if given.num_chunks != 1:
            return None
        given = given.chunk(0)
    if not lies_alike(given.type, kind) or given.null_count or not len(given):
        return None
    values = np.frombuffer(given.buffers()[1], AS_IT_IS[kind], len(given), given.offset * AS_IT_IS[kind].itemsize)
    return values if values.flags.aligned else values.copy()  # kernels accept aligned arrays only


def _from_arrow(name: str, given: pa.Array | pa.ChunkedArray, kind: str, is_key: bool) -> Column:
    text = _sound_text(given) if kind == "string" else None
    if text is not None:
        return Column(None, text, None)
    try:
        given.validate(full=True)
    except pa.ArrowInvalid as problem:
        raise WrongType(f"column {name!r} is malformed Arrow data: {problem}") from None
    values = _in_place(given, kind)
    if values is not None:
        return Column(values, None, None)
    array = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
    if isinstance(array, pa.ChunkedArray):  # a chunked array without chunks combines to one
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    source = array.type
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if kind == "string":
        if not (pa.types.is_string(source) or pa.types.is_large_string(source) or pa.types.is_null(source)):
            error = MixedKeys if is_key else WrongType
            raise error(f"column {name!r} is string but the batch has {source}")
        text = array.cast(pa.large_string())
        longest = pc.max(pc.binary_length(text)).as_py() or 0
        if longest > LONGEST_STRING:
            row = pc.index(pc.binary_length(text), longest).as_py()
            raise ValueTooLong(
                f"column {name!r}, row {row}: {longest:,} bytes; the store takes strings of up to {LONGEST_STRING:,}"
            )
        return Column(None, text, nulls)
    fits = {
        "int": pa.types.is_integer(source) or pa.types.is_floating(source),
        "float": pa.types.is_integer(source) or pa.types.is_floating(source),
        "bool": pa.types.is_boolean(source),
        "timestamp": pa.types.is_timestamp(source) or pa.types.is_integer(source),
    }[kind] or pa.types.is_null(source)
    if not fits:
        error = MixedKeys if is_key and pa.types.is_string(source) else WrongType
        raise error(f"column {name!r} is {kind} but the batch has {source}")
    if pa.types.is_null(source):
        array = pa.nulls(len(array), TYPES[kind])
        source = array.type
    if kind == "int" and pa.types.is_floating(source):
        filled = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
        return Column(_whole(name, filled.astype(np.float64), is_key), None, nulls)
    wanted = {"float": pa.float64(), "timestamp": pa.timestamp("us")}.get(kind, pa.int64())
    try:
        if kind == "bool":
            filled = pc.fill_null(array, False).to_numpy(zero_copy_only=False).view(np.uint8)
        elif kind == "timestamp" and pa.types.is_timestamp(source):
            filled = pc.fill_null(
                array.cast(pa.timestamp("us", source.tz), safe=source.unit != "ns").cast(pa.int64()), 0
            )
            filled = filled.to_numpy(zero_copy_only=False)
        else:
            whole = pa.float64() if kind == "float" else pa.int64()
            filled = pc.fill_null(array.cast(whole), 0).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as problem:
        raise WrongType(f"column {name!r}, row {_first_bad(array, wanted)}: {problem}") from None
    return Column(np.ascontiguousarray(filled), None, nulls)
