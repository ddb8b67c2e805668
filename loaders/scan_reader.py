"""Reads a scan in an executor: row groups of cold files, and tuples in the service's memory.

Of a file, only the footer and the requested column chunks are read; each is verified before it is decoded.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from promising.errors import DataDamaged
from promising.index.scan_plan import Piece, Scan, ScanPlan
from promising.index.schema import TYPES
from promising.index.storage.cold_file import Footer, Run
from promising.index.storage.cold_place import Place, place
from promising.index.storage.disk import Disk

BYTES = 8 << 20  # read at once
ROWS = 1 << 13  # per batch for Spark: their strings, however long, fit 32-bit offsets
FILES = 16  # footers cached
FOOTERS: dict[tuple[str, int], Footer] = {}


class Scanning(Protocol):
    def plan_scan(self, sql: str, *, share: float = 1.0) -> ScanPlan: ...

    def fetch(self, stream: str, first: int, last: int, columns: list[str]) -> Iterator[pa.Table]: ...

    def query(self, sql: str) -> Any: ...


Connect = Callable[[], AbstractContextManager[Scanning]]  # opens a session on the service, here or, pickled, in a task


def read_piece(piece: Piece, scan: Scan, count: Callable[[int], object] = lambda read: None) -> Iterator[pa.Table]:
    """Matching tuples of a piece, in the scan's columns and the stream's types. `count` gets the bytes of each read."""
    folder, _, name = piece.path.rpartition("/")
    found = place(Disk(), folder if "://" in folder else Path(folder or "/"))
    run = Run(0, name, piece.path, piece.entry)
    footer = _footer(found, run, count)
    columns = [footer.index(column) for column in scan.columns]
    for groups in _together(footer, piece.groups, columns):
        chunks = [(group, column) for group in groups for column in columns]
        parts = dict(zip(chunks, _read(found, run, [footer.range(*c) for c in chunks], count), strict=True))
        for chunk, part in parts.items():
            run.check(footer, chunk, part)
        for group in groups:
            named = {
                name: run.values(footer, column, [group], [parts[group, column]]).cast(TYPES[scan.types[name]])
                for name, column in zip(scan.columns, columns, strict=True)
            }
            yield belonging(pa.table(named), scan)


def read_warm(service: Scanning, scan: Scan, first: int, last: int) -> Iterator[pa.Table]:
    """The matching tuples of a range of arrivals."""
    for table in service.fetch(scan.stream, first, last, scan.columns):
        yield belonging(table, scan)


def belonging(table: pa.Table, scan: Scan) -> pa.Table:
    """Only tuples in the time range of the scan."""
    if scan.time not in scan.columns:
        return table
    kind = TYPES["timestamp"]
    if scan.start is not None:
        table = table.filter(pc.greater_equal(table[scan.time], pa.scalar(scan.start, kind)))
    if scan.end is not None:
        table = table.filter(pc.less(table[scan.time], pa.scalar(scan.end, kind)))
    return table


def _footer(found: Place, run: Run, count: Callable[[int], object]) -> Footer:
    """The footer of a file; the last few are cached, because pieces of a file are often read one by one."""
    known = FOOTERS.get(key := (run.path, run.entry["footer_crc"]))
    if known is None:
        (data,) = _read(found, run, [(run.bytes - run.footer, run.footer)], count)
        known = FOOTERS[key] = run.parse_footer(data)
        while len(FOOTERS) > FILES:
            del FOOTERS[next(iter(FOOTERS))]
    return known


def _together(footer: Footer, groups: Sequence[int], columns: list[int]) -> Iterator[list[int]]:
    part: list[int] = []
    size = 0
    for group in groups:
        more = sum(footer.range(group, column)[1] for column in columns)
        if part and size + more > BYTES:
            yield part
            part, size = [], 0
        part.append(group)
        size += more
    if part:
        yield part


def _read(found: Place, run: Run, ranges: Sequence[tuple[int, int]], count: Callable[[int], object]) -> list[bytes]:
    try:
        parts = found.read(run.name, ranges)
    except DataDamaged as problem:
        raise DataDamaged(
            f"{run.path} is not there: its tuples have aged out since the scan was planned, and it has to be planned"
            " again, or this machine cannot see the place where the service keeps its cold tuples"
        ) from problem
    count(sum(map(len, parts)))
    return parts


# --- tasks of Spark ----------------------------------------------------------------------------------------------


def read_tasks(
    scan: str, tasks: Sequence[Sequence[dict[str, Any]]], connect: Connect, counter: Any, batches: Any
) -> Iterator[pa.RecordBatch]:
    """Reads, lazily, the tasks that Spark names by number: lists of pieces and arrivals. scan: JSON without pieces."""
    asked = Scan(**json.loads(scan))
    schema = pa.schema([(name, SPARK[asked.types[name]]) for name in asked.columns])
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for table in _task(asked, tasks[number], connect, counter.add):
                for start in range(0, table.num_rows, ROWS):
                    yield from table.slice(start, ROWS).cast(schema).combine_chunks().to_batches()


SPARK: dict[str, pa.DataType] = TYPES | {"string": pa.string()}
"""Types that Spark accepts; a timestamp without a zone is a TIMESTAMP_NTZ."""


def _task(
    scan: Scan, parts: Sequence[dict[str, Any]], connect: Connect, count: Callable[[int], object]
) -> Iterator[pa.Table]:
    warm = [part["warm"] for part in parts if "warm" in part]
    for part in parts:
        if "piece" in part:
            yield from read_piece(Piece(**part["piece"]), scan, count)
    if warm:
        with connect() as service:
            for first, last in warm:
                for table in read_warm(service, scan, first, last):
                    count(table.nbytes)
                    yield table
