"""Columns that grow at their end, and what can be done with columns: where the rows of a table are."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from promising.index.schema import TYPES, Column

Places = NDArray[np.int64]
DTYPES: dict[str, type[Any]] = {"int": np.int64, "float": np.float64, "bool": np.uint8, "timestamp": np.int64}
LEAST = 16  # values that there is room for


class Growing:
    """An array that grows at its end, at a cost that does not depend on its length."""

    def __init__(self, dtype: type[Any], values: NDArray[Any] | None = None) -> None:
        self._room = np.empty(LEAST, dtype) if values is None else values
        self._size = 0 if values is None else len(values)

    @property
    def values(self) -> NDArray[Any]:
        """All of it; a view, good until something is appended."""
        return self._room[: self._size]

    @property
    def nbytes(self) -> int:
        return self._room.nbytes

    def append(self, more: NDArray[Any]) -> None:
        size = self._size + len(more)
        if size > len(self._room):
            room = np.empty(max(size, 2 * len(self._room)), self._room.dtype)
            room[: self._size] = self.values
            self._room = room
        self._room[self._size : size] = more
        self._size = size

    def __len__(self) -> int:
        return self._size


class GrowingColumn:
    """The values of one column, nulls among them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._values = Growing(np.uint8 if kind == "string" else DTYPES[kind])  # of strings, their bytes
        self._ends = Growing(np.int64, np.zeros(1, np.int64))
        self._nulls: Growing | None = None
        self._size = 0

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + self._ends.nbytes + (0 if self._nulls is None else self._nulls.nbytes)

    def append(self, column: Column) -> None:
        if column.values is not None:
            self._values.append(column.values)
            size = len(column.values)
        else:
            text = column.text.fill_null("") if column.nulls is not None else column.text
            size = len(text)
            offsets, bytes_ = text.buffers()[1:]
            if size:
                ends = np.frombuffer(offsets, np.int64, size + 1, text.offset * 8)
                if ends[-1] > ends[0]:
                    self._values.append(np.frombuffer(bytes_, np.uint8)[ends[0] : ends[-1]])
                self._ends.append(ends[1:] - ends[0] + self._ends.values[-1])
        if column.nulls is not None and self._nulls is None:
            self._nulls = Growing(np.bool_, np.zeros(self._size, np.bool_))
        if self._nulls is not None:
            self._nulls.append(np.zeros(size, np.bool_) if column.nulls is None else column.nulls)
        self._size += size

    def take(self, places: Places) -> Column:
        """The values at these places, in that order; memory of its own."""
        nulls = None if self._nulls is None else self._nulls.values[places]
        if nulls is not None and not nulls.any():
            nulls = None
        if self.kind != "string":
            return Column(self._values.values[places], None, nulls)
        buffers = [None, pa.py_buffer(self._ends.values), pa.py_buffer(self._values.values)]
        text = pa.Array.from_buffers(pa.large_string(), self._size, buffers).take(pa.array(places))
        if nulls is not None:
            text = pc.if_else(pa.array(nulls), pa.scalar(None, pa.large_string()), text)
        return Column(None, text, nulls)

    def keep(self, places: Places) -> None:
        """Forget all values but these."""
        left = GrowingColumn(self.kind)
        left.append(self.take(places))
        self.__dict__.update(left.__dict__)


def to_arrow(kind: str, column: Column) -> pa.Array:
    """A column as an array of its type."""
    if column.values is None:
        return column.text
    if kind == "bool":
        return pa.array(column.values.view(np.bool_), mask=column.nulls)
    valid = None if column.nulls is None else pa.py_buffer(np.packbits(~column.nulls, bitorder="little"))
    return pa.Array.from_buffers(TYPES[kind], len(column.values), [valid, pa.py_buffer(column.values)])


def chosen(column: Column, places: Places) -> Column:
    """The values at these places of a column."""
    nulls = None if column.nulls is None else column.nulls[places]
    if nulls is not None and not nulls.any():
        nulls = None
    if column.values is not None:
        return Column(column.values[places], None, nulls)
    return Column(None, column.text.take(pa.array(places)), nulls)


def same(kind: str, left: Column, right: Column) -> NDArray[np.bool_]:
    """Where two columns have the same: a null is as a null, and a NaN as a NaN of the same bits."""
    none = np.zeros(length(left), np.bool_)
    nulls = none if left.nulls is None else left.nulls, none if right.nulls is None else right.nulls
    if kind == "string":
        equal = pc.equal(left.text.fill_null(""), right.text.fill_null("")).to_numpy(zero_copy_only=False)
    else:
        assert left.values is not None
        assert right.values is not None
        bits = np.uint8 if kind == "bool" else np.int64
        equal = left.values.view(bits) == right.values.view(bits)
    return np.asarray(np.where(nulls[0] | nulls[1], nulls[0] & nulls[1], equal))


def length(column: Column) -> int:
    return len(column.text if column.values is None else column.values)
