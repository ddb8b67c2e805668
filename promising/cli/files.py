"""Read tuples from files, batch by batch: CSV, JSON lines, Parquet."""

import csv
import io
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import typer

from promising.cli.choices import Format
from promising.errors import BatchError

HEAD = 1 << 20  # bytes from which the types of text files are inferred
BLOCK = 1 << 20  # bytes of a text file per batch
LONGEST = 1 << 24  # bytes of a line
ROWS = 1 << 16  # rows of a Parquet file per batch
SHOWN = 60  # characters of a value in a message
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


SUFFIXES = {
    ".csv": Format.CSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
}
TYPES = {"timestamp": "timestamp", "int64": "whole number of 64 bits", "double": "number", "bool": "boolean"}
MISREAD = re.compile(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+)[^:]*: (.*)", re.DOTALL)
MISPARSED = re.compile(r"CSV parse error: Row #(\d+): (.*)", re.DOTALL)


def format_of(path: str) -> Format | None:
    """The format by the suffix of a file's name, ignoring a compression suffix."""
    suffixes = [s.lower() for s in Path(path).suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return SUFFIXES.get(suffixes[-1]) if suffixes else None


def format_for(path: str, said: Format | None) -> Format:
    """The format of a file: as given, else by its name."""
    found = said or format_of(path)
    if found is None:
        known = ", ".join(SUFFIXES)
        raise typer.BadParameter(
            f"{path}: the extension is not one of a known format ({known}); add --format csv, jsonl or parquet"
        )
    if path == "-" and found is Format.PARQUET:
        raise typer.BadParameter("Parquet is read from its end, so stdin will not do; give a file")
    return found


@dataclass
class FileSource:
    """A file to read tuples from.

    fields: names and types, inferred from the beginning of a text file.
    size: how much there is to read, in the unit of `done`; None if unknown.

    Text is read and parsed a block at a time: Arrow's own streaming readers read ahead on threads, which would still
    read from a pipe when the program ends.
    """

    path: str
    format: Format
    fields: dict[str, pa.DataType] = field(default_factory=dict)
    size: int | None = None
    done: int = 0
    _file: Any = None
    _head: bytes = b""
    _rows: int = 0
    _lines: int = 0  # before the current block

    def __post_init__(self) -> None:
        if self.path != "-":
            os.stat(self.path)  # its error names the file only
        try:
            if self.format is Format.PARQUET:
                self._file = pyarrow.parquet.ParquetFile(self.path)
                schema, self.size = self._file.schema_arrow, self._file.metadata.num_rows
            else:
                schema = self._sniff()
        except (pa.ArrowException, OSError) as problem:
            raise BatchError(f"{self.name} is no {self.format.value} file: {_first_line(problem)}") from None
        if len(set(schema.names)) < len(schema.names):
            twice = next(name for name in schema.names if schema.names.count(name) > 1)
            raise BatchError(f"{self.name} has two fields {twice!r}; a field is meant by its name")
        self.fields = dict(zip(schema.names, schema.types, strict=True))

    @property
    def name(self) -> str:
        """The name in messages."""
        return "stdin" if self.path == "-" else self.path

    def _sniff(self) -> pa.Schema:
        """Read the beginning of a text file, and infer names and types from it."""
        if self.path == "-":
            self._file = sys.stdin.buffer
        else:
            packed = PACKED.get(Path(self.path).suffix.lower())
            self._file = pa.input_stream(self.path, compression=packed)
            self.size = None if packed else os.path.getsize(self.path) or None  # a named pipe has none
        self._head = self._file.read(HEAD)
        if not self._head.strip():
            raise BatchError(f"{self.name} is empty")
        lines = self._head if len(self._head) < HEAD else self._head[: self._head.rfind(b"\n") + 1]
        if not lines:
            raise BatchError(f"{self.name} has a first line of more than {HEAD:,} bytes")
        if self.format is Format.CSV:
            return pyarrow.csv.read_csv(pa.BufferReader(lines), convert_options=_conversion()).schema
        return pyarrow.json.read_json(pa.BufferReader(lines)).schema

    def batches(self, wanted: dict[str, pa.DataType]) -> Iterator[pa.Table]:
        """The wanted fields of all rows, in batches; text is converted to the given types."""
        try:
            for batch in self._packed(wanted) if self.format is Format.PARQUET else self._text(wanted):
                if batch.num_rows:
                    yield batch
                self._rows += batch.num_rows
        except (pa.ArrowException, OSError) as problem:
            where = f", after row {self._rows:,}" if self._rows else ""
            raise BatchError(f"{self.name}{where}: {_first_line(problem)}") from None

    def _packed(self, wanted: dict[str, pa.DataType]) -> Iterator[pa.Table]:
        for batch in self._file.iter_batches(ROWS, columns=list(wanted)):
            self.done += batch.num_rows
            yield pa.Table.from_batches([batch]).select(list(wanted))

    def _text(self, wanted: dict[str, pa.DataType]) -> Iterator[pa.Table]:
        blocks = self._blocks()
        if self.format is Format.JSONL:
            parsing = pyarrow.json.ParseOptions(explicit_schema=pa.schema(wanted), unexpected_field_behavior="ignore")
            reading = pyarrow.json.ReadOptions(block_size=LONGEST)
            for block in blocks:
                yield pyarrow.json.read_json(pa.BufferReader(block), reading, parsing).select(list(wanted))
            return
        names: list[str] = []  # from the header in the first block
        for block in blocks:
            try:
                table = _parsed(block, names, wanted)
            except pa.ArrowInvalid:
                raise BatchError(self._misread(block, names, wanted)) from None
            yield table
            names = list(self.fields)

    def _misread(self, block: bytes, names: list[str], wanted: dict[str, pa.DataType]) -> str:
        """What is wrong with a block of a CSV file, and where: the block is read again in row order."""
        told = _refusal(block, names, wanted)
        if "expected no zone offset" in told and (found := MISREAD.match(told)):
            # One invalid time hides that all others have a zone; those are not the error.
            zoned = {list(self.fields)[int(found[1])]: pa.timestamp("us", "UTC")}
            told = _refusal(block, names, wanted | zoned) or told
        if found := MISREAD.match(told):
            place, row, kind, why = found.groups()
            if value := re.fullmatch("invalid value '(.*)'", why, re.DOTALL):
                why = f"{_cut(value[1])!r} is no {TYPES.get(kind, kind)}"
            return f"{self.name}, line {self._lines + _line(block, int(row)):,}, {list(self.fields)[int(place)]}: {why}"
        if found := MISPARSED.match(told):
            return f"{self.name}, line {self._lines + _line(block, int(found[1])):,}: {_cut(found[2])}"
        return f"{self.name}, after line {self._lines:,}: {_cut(told)}"

    def _blocks(self) -> Iterator[bytes]:
        """The text in non-empty blocks, cut between lines."""
        rest, self._head = self._head, b""
        while True:
            more = self._file.read(BLOCK)
            text = rest + more
            end = text.rfind(b"\n") + 1 if more else len(text)
            if len(text) - end > LONGEST:
                raise BatchError(f"{self.name} has a line of more than {LONGEST:,} bytes")
            block, rest = text[:end], text[end:]
            self.done += len(block)
            if block.strip():
                yield block
            self._lines += block.count(b"\n")
            if not more:
                return

    def close(self) -> None:
        """Close the file."""
        if self._file is not None and self.path != "-":
            self._file.close()


def _conversion(**more: Any) -> Any:
    """How CSV text is read: an empty field is null, "" is an empty string, NA and the like are text."""
    return pyarrow.csv.ConvertOptions(
        null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False, **more
    )


def _parsed(block: bytes, names: list[str], wanted: dict[str, pa.DataType], threads: bool = True) -> pa.Table:
    reading = pyarrow.csv.ReadOptions(block_size=LONGEST, column_names=names, use_threads=threads)
    conversion = _conversion(column_types=wanted, include_columns=list(wanted))
    return pyarrow.csv.read_csv(pa.BufferReader(block), reading, convert_options=conversion)


def _refusal(block: bytes, names: list[str], wanted: dict[str, pa.DataType]) -> str:
    """Why Arrow cannot read a block, or None. On one thread it reports the row."""
    try:
        _parsed(block, names, wanted, threads=False)
    except pa.ArrowInvalid as problem:
        return str(problem)
    return ""


def _line(block: bytes, row: int) -> int:
    """The line on which a row of a CSV block begins. Both count from 1; empty lines are not rows."""
    csv.field_size_limit(LONGEST)
    reader = csv.reader(io.StringIO(block.decode("utf-8", "replace"), newline=""))
    line = 1
    for cells in reader:
        row -= bool(cells)
        if row == 0:
            break
        line = reader.line_num + 1
    return line


def _cut(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= SHOWN else line[:SHOWN] + "..."


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().splitlines()[0]
