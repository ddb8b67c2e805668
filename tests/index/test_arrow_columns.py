"""Arrow columns are read where they lie if they lie as the log has them, and give the same tuples however they come."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from promising.index.schema import Schema

SCHEMA = Schema({"ts": "timestamp", "k": "int", "f": "float"}, "ts")
TIMES = np.arange(1_700_000_000_000_000, 1_700_000_000_000_010)
WHOLE: dict[str, tuple[NDArray[np.generic], pa.DataType]] = {
    "ts": (TIMES, pa.timestamp("us")),
    "k": (np.arange(-5, 5), pa.int64()),
    "f": (np.linspace(0.0, 1.0, 10), pa.float64()),
}


def plain(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


def sliced(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    return pa.array(np.concatenate([values[:3], values, values[:2]]), kind).slice(3, len(values))


def chunked(values: NDArray[np.generic], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values[:4], kind), pa.array(values[4:], kind)])


def in_one_chunk(values: NDArray[np.generic], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([sliced(values, kind)])


def misaligned(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(b"\0" + values.tobytes()).slice(1)])


def zoned(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.timestamp("us", "Europe/Berlin") if pa.types.is_timestamp(kind) else kind)


def finer(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values.astype(np.int64) * 1000, pa.timestamp("ns"))
    return pa.array(values, pa.float64())


@pytest.mark.parametrize("made", [plain, sliced, chunked, in_one_chunk, misaligned, zoned, finer])
def test_the_same_values_in_memory_that_a_kernel_takes(made: Callable[..., pa.Array]):
    read = SCHEMA.read(pa.table({name: made(*given) for name, given in WHOLE.items()}), frozenset({"k"}))
    for name, (values, _) in WHOLE.items():
        column = read.columns[name]
        assert column.values is not None and column.nulls is None
        assert column.values.dtype == values.dtype
        assert column.values.tolist() == values.tolist()
        assert column.values.flags.aligned and column.values.flags.c_contiguous
    assert (read.least, read.greatest) == (TIMES[0], TIMES[-1])


def test_a_column_in_place_is_not_copied():
    table = pa.table({name: plain(*given) for name, given in WHOLE.items()})
    for name, column in SCHEMA.columns(table, frozenset()).items():
        assert column.values is not None
        assert column.values.__array_interface__["data"][0] == table[name].chunk(0).buffers()[1].address
