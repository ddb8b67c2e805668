"""Anything with columns as one batch, or as a sequence of batches: the inputs of `ingest`.

Frames become Arrow without a copy where they have its memory layout. No library of frames is imported: pandas is
recognised by its methods, all others by Arrow's PyCapsule interface or the dataframe interchange protocol.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from promising.errors import BatchError, DuplicateColumn, EmptyBatch, MissingColumn, UnknownColumn, WrongType
from promising.index.regions import Appended

WANTED = (
    "a mapping of columns, a list of dicts, a pandas or Polars frame, an Arrow table, record batch or reader, or"
    " another object with __arrow_c_stream__"
)
MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def is_reader(given: Any) -> bool:
    """Whether it is read once, batch by batch: a RecordBatchReader, or an Arrow stream without a length."""
    if isinstance(given, pa.RecordBatchReader):
        return True
    return hasattr(given, "__arrow_c_stream__") and not hasattr(given, "__len__")


def batches_of(reader: Any) -> Iterator[pa.RecordBatch]:
    """The batches of a reader that have rows; raises EmptyBatch if none has."""
    if not isinstance(reader, pa.RecordBatchReader):
        reader = pa.RecordBatchReader.from_stream(reader)
    found = False
    for batch in reader:
        if batch.num_rows:
            found = True
            yield batch
    if not found:
        raise EmptyBatch("the reader has no tuples")


def as_batch(given: Any) -> Mapping[str, Any] | pa.Table | pa.RecordBatch:
    """The columns of a frame, table or list of dicts; a BatchError names the column, and the row of a list."""
    if isinstance(given, pa.Table | pa.RecordBatch):
        return _without_views(given)
    if isinstance(given, Mapping):
        return given
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return _of_rows(given)
    if _is_pandas(given):
        return _of_pandas(given)
    try:
        if hasattr(given, "__arrow_c_stream__"):
            return _without_views(pa.table(given))
        if hasattr(given, "__arrow_c_array__"):
            return _without_views(pa.record_batch(given))
        if hasattr(given, "__dataframe__"):
            from pyarrow.interchange import from_dataframe  # noqa: PLC0415  # for this protocol alone

            return from_dataframe(given)
    except Exception as problem:  # whatever the other library raises
        raise WrongType(f"the {type(given).__name__} cannot be read as Arrow: {problem}") from None
    raise WrongType(f"a batch is {WANTED}, not {type(given).__name__}")


def _without_views(table: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """The table with string views, which Polars exports and few of Arrow's functions take, as plain strings."""
    for at, field in enumerate(table.schema):
        if _has_views(field.type):
            column = table.column(at)
            chunks = [_plain(chunk) for chunk in (column.chunks if isinstance(table, pa.Table) else [column])]
            made = pa.chunked_array(chunks, pa.large_string()) if isinstance(table, pa.Table) else chunks[0]
            table = table.set_column(at, field.name, made)
    return table


def _has_views(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind.value_type if pa.types.is_dictionary(kind) else kind))


def _plain(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.DictionaryArray):
        return array.dictionary.cast(pa.large_string()).take(array.indices)
    return array.cast(pa.large_string())


def total(appended: Iterable[Appended]) -> Appended:
    """The sum of the results of the batches of a reader. An error says what was added before it."""
    accepted, number, refused = 0, 0, Counter[str]()
    each = iter(appended)
    while True:
        try:
            added = next(each, None)
        except BatchError as problem:
            if not number:
                raise
            raise type(problem)(
                f"batch {number} of the reader, the first is 0: {problem}; {accepted:,} tuples of the"
                " batches before it were added"
            ) from None
        if added is None:
            return Appended(accepted, dict(refused))
        number += 1
        accepted += added.accepted
        refused.update(added.refused)


def _of_rows(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Dicts of the same keys as columns."""
    if not rows:
        raise EmptyBatch("the batch has no tuples")
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise WrongType(f"row {at} is a {type(row).__name__}; in a list each row is a dict of columns")
        if row.keys() != rows[0].keys():
            for name in row:
                if name not in rows[0]:
                    raise UnknownColumn(f"row {at} has column {name!r}, which row 0 does not have")
            name = next(name for name in rows[0] if name not in row)
            raise MissingColumn(f"row {at} has no column {name!r}, which row 0 has; give None for a null")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _is_pandas(given: Any) -> bool:
    return hasattr(given, "iloc") and hasattr(given, "columns") and hasattr(given, "dtypes")


def _of_pandas(frame: Any) -> dict[str, Any]:
    """The columns of a pandas frame, without its index. NaN, NaT and NA are null, as pandas means them."""
    names = list(frame.columns)
    for name, times in Counter(names).items():
        if times > 1:
            raise DuplicateColumn(f"column {name!r} is in the frame {times} times")
        if not isinstance(name, str):
            raise UnknownColumn(f"column {name!r} of the frame has no name that is a string; rename it")
    return {name: _series(frame[name]) for name in names}


def _series(series: Any) -> Any:
    try:
        return pa.array(series, from_pandas=True)
    except MISFITS:  # an object column of mixed types: the check of single values names the row
        return [None if missing else value for value, missing in zip(series, series.isna(), strict=True)]
