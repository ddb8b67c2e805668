"""Validation of keys and counts; errors name the offending row.

A key is an integer that fits int64, or a string. A column of keys becomes either an int64 array or an Arrow
`large_string` array (UTF-8 bytes and int64 offsets).
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from promising.errors import BadCount, CorruptSummary, MixedKeys, NaNKey, NullKey, UnequalLengths, WrongType
from promising.summaries.frame import Reader, block, integers

Key: TypeAlias = int | str
Longs: TypeAlias = npt.NDArray[np.int64]
Keys: TypeAlias = Any  # an int64 array, or a `pyarrow.LargeStringArray` (pyarrow ships no types)

MOST = 1 << 62
"""Maximum tuples of a summary, so that no int64 counter can overflow."""

MOST_SPREAD = 1 << 32
STEP = 1 << 16

NO_KEYS: Longs = np.empty(0, np.int64)


def as_keys(values: Any) -> Keys:
    """Keys from a list, a numpy array or an Arrow array; copied only if the input cannot be used.

    >>> as_keys([3, -1])
    array([ 3, -1])
    >>> as_keys([3, None])
    Traceback (most recent call last):
    promising.errors.NullKey: row 1: a key is missing
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and not isinstance(values, np.ma.MaskedArray):
        return _longs(values)
    return _from_arrow(_to_arrow(values))


def _longs(values: npt.NDArray[Any]) -> Longs:
    if values.ndim != 1:
        raise WrongType(f"keys must be one column, got an array of shape {values.shape}")
    if values.dtype.kind == "u" and values.size and values.max() > np.iinfo(np.int64).max:
        row = int(np.argmax(values))
        raise WrongType(f"row {row}: key {values[row]} does not fit a 64-bit signed integer")
    longs = np.ascontiguousarray(values, np.int64)
    return longs if longs.flags.writeable else longs.copy()  # kernels do not accept read-only arrays


def _to_arrow(values: Any) -> Any:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise WrongType(f"a column of keys is wanted, got {values!r}")
    if not isinstance(values, np.ndarray):
        values = values.to_numpy() if hasattr(values, "to_numpy") else list(values)
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise WrongType(f"keys must be one column, got an array of shape {values.shape}")
    try:
        if isinstance(values, np.ma.MaskedArray):
            return pa.array(values.data, mask=np.ma.getmaskarray(values))
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _misfit(values, error) from None


def _misfit(values: Any, error: Exception) -> WrongType | NaNKey | NullKey | MixedKeys:
    """The error for the first row whose type differs from the first."""
    first: type | None = None
    for row, value in enumerate(values):
        if value is None:
            return NullKey(f"row {row}: a key is missing")
        if isinstance(value, float | np.floating) and np.isnan(value):
            return NaNKey(f"row {row}: the key is NaN")
        sort = _sort(value)
        if sort is None:
            return WrongType(f"row {row}: {value!r} is no key; keys are 64-bit integers or strings")
        first = first or sort
        if sort is not first:
            return MixedKeys(f"row {row}: {value!r} in a column of {'strings' if first is str else 'integers'}")
    return WrongType(f"no column of keys: {error}")


def _sort(value: Any) -> type | None:
    if isinstance(value, str):
        return str if value.isascii() or _encodable(value) else None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int if -(1 << 63) <= int(value) < (1 << 63) else None
    return None


def _encodable(value: str) -> bool:
    """Lone surrogates have no UTF-8 form, and so no hash."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _from_arrow(column: Any) -> Keys:
    if len(column) == 0:
        return pa.array([], pa.large_string()) if _is_text(column.type) else NO_KEYS
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise NullKey(f"row {row}: a key is missing")
    if _is_text(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_integer(column.type):
        return _longs(column.to_numpy(zero_copy_only=False))
    if pa.types.is_floating(column.type):
        missing = np.isnan(column.to_numpy(zero_copy_only=False))
        if missing.any():
            raise NaNKey(f"row {int(np.argmax(missing))}: the key is NaN")
    shown = column[:1].to_string(indent=0, skip_new_lines=True)
    raise WrongType(f"row 0: {shown} ({column.type}) is no key; keys are 64-bit integers or strings")


def _is_text(arrow_type: Any) -> bool:
    return bool(
        pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type)
    )


def as_numbers(values: Any) -> npt.NDArray[np.float64]:
    """Finite or infinite numbers as float64; NaN, nulls and other types are rejected."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if values.null_count:
            row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
            raise NullKey(f"row {row}: a value is missing")
        values = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    try:
        array = np.asarray(values)
    except ValueError:
        raise WrongType("values must be one column of numbers, got rows of different lengths") from None
    if array.size == 0:
        return np.empty(0, np.float64)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise WrongType(f"values must be one column of numbers, got {array.dtype} of shape {array.shape}")
    numbers = array.astype(np.float64)
    if np.isnan(numbers).any():
        raise NaNKey(f"row {int(np.argmax(np.isnan(numbers)))}: the value is NaN")
    return numbers


def as_counts(counts: Any, rows: int, held: int) -> Longs:
    """The number of tuples per row (1 without `counts`); the sum must fit beside the `held` ones."""
    if counts is None:
        checked = np.ones(rows, np.int64)
    else:
        array = np.asarray(counts)
        if array.size and (array.ndim != 1 or array.dtype.kind not in "iu"):
            raise WrongType(f"counts must be one column of integers, got {array.dtype} of shape {array.shape}")
        if array.size != rows:
            raise UnequalLengths(f"{rows} values, {array.size} counts")
        if array.size and array.max() > MOST:
            raise BadCount(f"row {int(np.argmax(array))}: {array.max()} tuples; a summary holds at most 2**62")
        checked = np.array(array, np.int64)
        if (checked < 0).any():
            row = int(np.argmax(checked < 0))
            raise BadCount(f"row {row}: count {checked[row]} is negative; tuples are taken away by subtract")
    check_room(float(checked.sum(dtype=np.float64)), held)
    return checked


def check_room(more: float, held: int) -> None:
    """Reject more than `MOST` tuples."""
    if held + more > MOST:
        raise BadCount(f"{held} tuples and {more:.0f} more; a summary holds at most 2**62")


def spread(counts: Longs) -> Iterator[Longs]:
    """The row of every single tuple, `counts[i]` times row i, in chunks that fit the cache; at most 2**32 tuples."""
    ends = np.cumsum(counts)
    tuples = int(ends[-1]) if ends.size else 0
    if tuples > MOST_SPREAD:
        raise BadCount(f"{tuples} tuples at once, each of which is drawn by itself; 2**32 is the most")
    pieces = range(0, tuples, STEP)
    return (np.searchsorted(ends, np.arange(at, min(at + STEP, tuples)), "right") for at in pieces)


def key_list(keys: Keys) -> list[Key]:
    listed: list[Key] = keys.tolist() if isinstance(keys, np.ndarray) else keys.to_pylist()
    return listed


def distinct_keys(keys: Keys, counts: Longs) -> tuple[Sequence[Key], Longs]:
    """The distinct keys with tuples, sorted, as Python objects, and their counts."""
    array = keys if isinstance(keys, np.ndarray) else np.array(key_list(keys), object)
    unique, where = np.unique(array, return_inverse=True)
    sums = np.zeros(unique.size, np.int64)
    np.add.at(sums, where, counts)
    kept = sums > 0
    return unique[kept].tolist(), sums[kept]


def key_bytes(keys: Keys) -> bytes:
    """A serialised column of keys, for `read_keys`."""
    if isinstance(keys, np.ndarray):
        return integers(0, keys.size) + keys.astype("<i8").tobytes()
    data, offsets = utf8(keys)
    return integers(1, len(keys)) + offsets.astype("<i8").tobytes() + block(data.tobytes())


def read_keys(reader: Reader) -> Keys:
    """The inverse of `key_bytes`; every offset and every UTF-8 byte is checked."""
    text, size = reader.integer(), reader.integer()
    if text == 0:
        return reader.integers(size)
    if text != 1 or size < 0:
        raise CorruptSummary(f"no column of keys: type {text}, {size} rows")
    offsets, data = reader.integers(size + 1), reader.block()
    column = pa.Array.from_buffers(pa.large_string(), size, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptSummary(f"no column of strings: {error}") from None
    return column


def utf8(column: Any) -> tuple[npt.NDArray[np.uint8], Longs]:
    """The bytes of a string column, and its offsets starting at 0."""
    _, ends, data = column.buffers()
    if len(column) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    text = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return text[offsets[0] : offsets[-1]].copy(), offsets - offsets[0]
