"""The memory of Arrow arrays, for kernels, and of states that grow with the number of groups."""

from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.query.scalar.types import Kind

Ids: TypeAlias = NDArray[np.int32]  # the group of each row
Numbers: TypeAlias = NDArray[Any]  # int64 or float64

A = TypeVar("A", bound=np.generic)

NAN = np.float64("nan")


def widened(state: NDArray[A], groups: int) -> NDArray[A]:
    """`state` with room for at least `groups`, new ones zero. Grows by doubling, so O(1) per group."""
    if len(state) >= groups:
        return state
    wider = np.zeros((max(groups, 2 * len(state)), *state.shape[1:]), state.dtype)
    wider[: len(state)] = state
    return wider


def bits(buffer: pa.Buffer, offset: int, rows: int) -> NDArray[np.uint8]:
    first = offset >> 3
    packed = np.frombuffer(buffer, np.uint8)[first : (offset + rows + 7) >> 3]
    return np.unpackbits(packed, bitorder="little")[offset - 8 * first :][:rows]


def present(array: pa.Array) -> NDArray[np.uint8] | None:
    """A mask of non-null values; None if there are no nulls."""
    if array.null_count == 0:
        return None
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.uint8)
    return bits(array.buffers()[0], array.offset, len(array))


def raw(array: pa.Array, kind: Kind) -> Numbers:
    """The values in memory, zero-copy for numbers; arbitrary where null."""
    if kind == "null" or not len(array):  # such arrays may have no buffer
        return np.zeros(len(array), np.float64 if kind == "float" else np.int64)
    if kind == "bool":
        return bits(array.buffers()[1], array.offset, len(array)).astype(np.int64)
    dtype = np.float64 if kind == "float" else np.int64
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def text(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of a string column, and the offsets of its strings."""
    _, offsets, data = array.buffers()
    if not len(array):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), places


def words(numbers: Numbers) -> NDArray[np.int64]:
    """An integer per number, equal if and only if the numbers are: NaN and zero are canonical."""
    if numbers.dtype == np.int64:
        return numbers
    plain = numbers + 0.0  # -0.0 + 0.0 is 0.0
    missing = np.isnan(plain)
    if missing.any():
        plain[missing] = NAN
    return plain.view(np.int64)


class Column:
    """An argument of a slice, without nulls. Its parts are computed on demand and cached."""

    def __init__(self, array: pa.Array, kind: Kind) -> None:
        self.kind = kind
        self._array = array
        there = present(array)
        self._there = None if there is None else there.view(np.bool_)
        self.rows = len(array) - array.null_count
        self._numbers: Numbers | None = None
        self._ids: Ids | None = None

    @property
    def numbers(self) -> Numbers:
        """The values; booleans as 0 and 1, times in microseconds."""
        if self._numbers is None:
            values = raw(self._array, self.kind)
            self._numbers = values if self._there is None else values[self._there]
        return self._numbers

    @property
    def floats(self) -> NDArray[np.float64]:
        floats: NDArray[np.float64] = self.numbers.astype(np.float64, copy=False)
        return floats

    @property
    def strings(self) -> pa.Array:
        return self._array if self._there is None else self._array.drop_null()

    def ids(self, ids: Ids | None) -> Ids:
        """The groups of the values, given those of the slice's rows."""
        if self._ids is None:
            if ids is None:
                self._ids = np.zeros(self.rows, np.int32)
            else:
                self._ids = ids if self._there is None else ids[self._there]
        return self._ids
