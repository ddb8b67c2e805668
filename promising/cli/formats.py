"""Data on stdout: a table, or JSON lines, CSV or an Arrow stream for programs."""

import json
import sys
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from rich.table import Table
from rich.text import Text

from promising.cli.console import clean, out
from promising.cli.context import Output
from promising.cli.durations import short
from promising.cli.text_output import jsonable, print_columns, print_json, rich_columns
from promising.index.time_text import LEAST_TEXT, iso

ZERO = timedelta(0)


class Writer:
    """Writes one table to stdout, part by part; only the table format buffers rows, for its column widths.

    shown: rows that a table shows; None for all.
    """

    def __init__(self, output: Output, schema: pa.Schema, shown: int | None = None) -> None:
        self.output = output
        self.schema = schema
        self.shown = shown
        self.rows = 0
        self._kept: list[pa.Table] = []
        self._sink: Any = None

    def write(self, rows: pa.Table) -> None:
        """Write further rows."""
        self.rows += rows.num_rows
        if self.output is Output.TABLE:
            left = rows.num_rows if self.shown is None else self.shown - sum(t.num_rows for t in self._kept)
            if left > 0:
                self._kept.append(rows.slice(0, left))
        elif self.output is Output.JSON:
            write_lines(rows)
        elif rows.num_rows:
            self._open().write_table(_plain(rows) if self.output is Output.CSV else rows)

    def finish(self) -> None:
        """End the output."""
        if self.output is Output.TABLE:
            print_table(pa.concat_tables(self._kept) if self._kept else self.schema.empty_table())
            if self.shown is not None and self.rows > self.shown:
                out().print(Text(f"... {self.rows - self.shown:,} more rows", style="dim"))
        elif self.output is not Output.JSON:
            self._open().close()
            sys.stdout.buffer.flush()

    def _open(self) -> Any:
        if self._sink is None:
            sys.stdout.flush()
            if self.output is Output.CSV:
                self._sink = pyarrow.csv.CSVWriter(sys.stdout.buffer, _plain(self.schema.empty_table()).schema)
            else:
                self._sink = pa.ipc.new_stream(sys.stdout.buffer, self.schema)
        return self._sink


def write_table(output: Output, table: pa.Table) -> None:
    """Write a whole table."""
    writer = Writer(output, table.schema)
    writer.write(table)
    writer.finish()


def write_lines(rows: pa.Table) -> None:
    """Write rows as JSON, one object per line."""
    for row in _with_texts(rows).to_pylist():
        print_json(row)


def _iso(column: pa.ChunkedArray) -> pa.Array:
    """Instants as text, in UTC. Neither Python nor Arrow can format all years."""
    micros = column.cast(pa.timestamp("us")).cast(pa.int64())
    text = np.datetime_as_string(pc.fill_null(micros, 0).to_numpy().astype("datetime64[us]"))
    found = [LEAST_TEXT if one == "NaT" else one for one in text.tolist()]
    return pa.array(found, pa.string(), mask=micros.is_null().to_numpy())


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python values; instants as text if Python lacks the year of one."""
    try:
        return list(table.to_pylist())
    except (OverflowError, ValueError):
        return list(_with_texts(table).to_pylist())


def _with_texts(rows: pa.Table) -> pa.Table:
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(place, field.name, _iso(rows.column(place)))
        elif is_top(field.type) and pa.types.is_timestamp(field.type.value_type.field("value").type):
            rows = rows.set_column(place, field.name, pa.chunked_array([_iso_list(rows.column(place))]))
    return rows


def is_top(kind: pa.DataType) -> bool:
    """Whether it is the type of `approx_top_k`: values with their counts."""
    return bool(pa.types.is_list(kind) and pa.types.is_struct(kind.value_type))


def _iso_list(column: pa.ChunkedArray) -> pa.Array:
    """The same lists, with instants as text."""
    lists = column.combine_chunks()
    entries = lists.flatten()
    texts = _iso(pa.chunked_array([entries.field("value")]))
    parts = [texts, *(entries.field(at) for at in range(1, entries.type.num_fields))]
    named = [entries.type.field(at).name for at in range(entries.type.num_fields)]
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(parts, named), mask=lists.is_null())


def _plain(table: pa.Table) -> pa.Table:
    """The table with durations as seconds, and lists as JSON: Arrow's CSV writer does not support them."""
    for place, field in enumerate(table.schema):
        if is_top(field.type):
            texts = [
                None if v is None else json.dumps(jsonable(v), ensure_ascii=False)
                for v in _with_texts(table).column(place).to_pylist()
            ]
            table = table.set_column(place, field.name, pa.array(texts, pa.string()))
        if pa.types.is_duration(field.type):
            micros = table.column(place).cast(pa.duration("us")).cast(pa.int64())
            table = table.set_column(place, field.name, pc.divide(micros.cast(pa.float64()), 1e6))
    return table


# --- for people --------------------------------------------------------------------------------------------------


def print_table(table: pa.Table, bounds: tuple[pa.Table, pa.Table] | None = None) -> None:
    """Print a table, wrapped to the terminal, or in full width without one."""
    columns = [[clean(field.name, ""), *cells(table, place, bounds)] for place, field in enumerate(table.schema)]
    print_columns(columns, [right(field.type) for field in table.schema])


def rich_table(table: pa.Table, bounds: tuple[pa.Table, pa.Table] | None = None) -> Table:
    """A table for a terminal."""
    columns = [[clean(field.name, ""), *cells(table, place, bounds)] for place, field in enumerate(table.schema)]
    return rich_columns(columns, [right(field.type) for field in table.schema])


def right(kind: pa.DataType) -> bool:
    """Whether values of a type are right-aligned."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_duration(kind))


def cells(table: pa.Table, place: int, bounds: tuple[pa.Table, pa.Table] | None = None) -> list[str]:
    """The values of a column as text, followed by their bounds where these are known and differ."""
    values = _pylist(table.column(place))
    if bounds is None:
        return [cell(value) for value in values]
    lower, upper = (_pylist(bound.column(place)) for bound in bounds)
    return [
        cell(value) if low is None or high is None or low == high else f"{rough(value)} ({rough(low)} to {rough(high)})"
        for value, low, high in zip(values, lower, upper, strict=True)
    ]


def _pylist(column: pa.ChunkedArray) -> list[Any]:
    if is_top(column.type):
        return list(_with_texts(pa.table({"": column})).column(0).to_pylist())
    if pa.types.is_timestamp(column.type):
        return [None if v is None else Micros(v) for v in column.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()]
    return list(column.to_pylist())


class Micros(int):
    """An instant, in microseconds since the epoch."""


def cell(value: Any) -> str:
    """A value as shown in a table."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return clean(value, "")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Micros):
        return time_text(value)
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list):
        return ", ".join(_counted(**one) for one in value)
    if isinstance(value, timedelta):
        sign = "-" if value < ZERO else ""
        return sign + short(round(abs(value) / timedelta(microseconds=1)))
    return clean(str(value), "")


def _counted(value: Any, count: int, lower: int, upper: int) -> str:
    """A value of `approx_top_k` with its count, and with the bounds if these differ."""
    return f"{cell(value)}: {count:,}" + ("" if lower == upper else f" ({lower:,} to {upper:,})")


def rough(value: Any) -> str:
    """An inexact value, without digits that mean nothing."""
    return f"{value:.5g}" if isinstance(value, float) and abs(value) < 1e5 else cell(value)


def time_text(micros: int) -> str:
    """An instant in UTC, without fractions if it is a whole second.

    >>> time_text(86_400_000_000), time_text(1_500_000)
    ('1970-01-02 00:00:00', '1970-01-01 00:00:01.500000')
    """
    return iso(micros).replace("T", " ").removesuffix(".000000")
