"""Reading cold files: every piece is checked before it is decoded.

The manifest's entry has the CRC32C of the footer and of each column chunk, which together cover everything but the four
bytes of magic at the start.
"""

import base64
import io
import json
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from promising.errors import DataDamaged
from promising.index.schema import TYPES, Column
from promising.index.storage.checksums import crc32c
from promising.index.storage.column_chunks import ChunkBytes, decoded
from promising.index.storage.key_counts import KeyCounts

ZONE, BUCKET, ROW = "#zone", "#bucket", "#row"
GROUPS = "promising.groups"  # in the footer: the row group of each tuple, base64 of zstd of 1 or 2 bytes each
NANS = "promising.nans"  # in the footer: of columns of floats, the row groups with a NaN
KEY, COUNTS = "promising.key", "promising.counts"  # in the footer: what row groups know of the keys in that column
DTYPES = {"int": np.int64, "timestamp": np.int64, "float": np.float64, "bool": np.uint8, "int32": np.int32}
KINDS = {kind: name for name, kind in TYPES.items()} | {pa.int32(): "int32"}

Entry = dict[str, Any]
Chunk = tuple[int, int]  # row group, column


class Run:
    """A file, by its trusted manifest entry."""

    def __init__(self, serial: int, name: str, path: str, entry: Entry) -> None:
        self.serial = serial
        self.name = name
        self.path = path
        self.entry = entry
        self.rows: int = entry["rows"]
        self.bytes: int = entry["bytes"]
        self.footer: int = entry["footer"]
        self.groups: int = entry["groups"]
        self.parsed: Footer | None = None  # once it was read from
        self.lock = threading.Lock()  # for `parsed`
        self._footer_crc: int = entry["footer_crc"]
        self._crcs = np.frombuffer(base64.b64decode(entry["crcs"]), "<u4").reshape(self.groups, -1)
        times = [f", {name!r} from {_time(first)} to {_time(last)}" for name, (first, last) in entry["times"].items()]
        self._covers = "{:,} tuples of zones {} to {}".format(self.rows, *entry["zones"]) + "".join(times)

    def damaged(self, what: str) -> DataDamaged:
        return DataDamaged(f"{self.path} is damaged: {what}. It covers {self._covers}")

    def parse_footer(self, data: bytes) -> "Footer":
        if len(data) != self.footer or crc32c(data) != self._footer_crc:
            raise self.damaged(f"the footer, its last {self.footer} bytes, is cut off or fails its checksum")
        try:
            return Footer(data)
        except (pa.ArrowException, OSError, KeyError) as problem:
            raise self.damaged(f"the footer cannot be read ({problem})") from problem

    def check(self, footer: "Footer", chunk: Chunk, data: Any) -> None:
        group, column = chunk
        start, length = footer.range(group, column)
        if len(data) != length or crc32c(data) != self._crcs[group, column]:
            rows = int(footer.rows[group])
            name = list(footer.columns)[column]
            place = f"column {name!r} of {rows:,} tuples ({length} bytes from byte {start})"
            raise self.damaged(f"{place} is cut off or fails its checksum")

    def decode(self, footer: "Footer", pieces: Mapping[Chunk, bytes]) -> dict[Chunk, Any]:
        """Decode checked chunks: a Column each, Places for the column of rows."""
        found: dict[Chunk, Any] = {}
        for column in {column for _, column in pieces}:
            groups = [group for group, other in pieces if other == column]
            values = self.values(footer, column, groups, [pieces[group, column] for group in groups])
            start = 0
            for group in groups:
                rows = int(footer.rows[group])
                share = plain(values.slice(start, rows), footer.kinds[column])
                found[group, column] = places(share) if column == footer.columns[ROW] else share
                start += rows
        return found

    def values(self, footer: "Footer", column: int, groups: Sequence[int], pieces: Sequence[bytes]) -> pa.ChunkedArray:
        """The values of checked chunks of one column, in order; timestamps as int64."""
        heads = footer.heads[groups, column].tolist()
        chunks = map(ChunkBytes, footer.rows[groups].tolist(), heads, pieces)
        try:
            found = decoded(footer.kinds[column], footer.optional[column], list(chunks))
        except (pa.ArrowException, OSError) as problem:
            raise self.damaged(f"it cannot be decoded ({problem})") from problem
        rows = int(footer.rows[groups].sum())
        if len(found) != rows:
            raise self.damaged(f"row groups have {len(found):,} of {rows:,} tuples")
        return found


def group_type(groups: int) -> np.dtype[Any]:
    return np.dtype(np.uint8 if groups <= 256 else "<u2")


class Footer:
    """What a file's footer says, in arrays: a parsed one takes ten times as much memory. `data`: the checked end.

    By row group: `rows`. By row group and column: `starts` and `sizes` of the chunk, `heads`: its bytes before the data
    pages. group_of: the row group of each tuple, in order of arrival. key: the column whose keys are counted; None in
    files of earlier releases, and where no summary gave the order.
    """

    def __init__(self, data: bytes) -> None:
        meta = pq.read_metadata(io.BytesIO(data))
        schema = meta.schema.to_arrow_schema()
        self.kinds = [KINDS[field.type] for field in schema]
        self.columns = {name: index for index, name in enumerate(schema.names)}
        self.optional = [meta.schema.column(index).max_definition_level > 0 for index in range(meta.num_columns)]
        shape = meta.num_row_groups, meta.num_columns
        self.rows = np.empty(shape[0], np.int64)
        self.starts, self.sizes, self.heads = (np.empty(shape, np.int64) for _ in range(3))
        self._bounds = np.zeros((*shape, 2), np.int64)  # the least and the greatest number
        self._bounds[:, :, 0] = 1  # none
        floats = self._bounds.view(np.float64)
        nans = json.loads(meta.metadata.get(NANS.encode(), b"{}"))
        for group in range(shape[0]):
            found = meta.row_group(group)
            self.rows[group] = found.num_rows
            for column in range(shape[1]):
                chunk = found.column(column)
                first = pages = chunk.data_page_offset
                if chunk.dictionary_page_offset is not None:
                    first = min(first, chunk.dictionary_page_offset)
                place = group, column
                self.starts[place], self.sizes[place] = first, chunk.total_compressed_size
                self.heads[place] = pages - first
                if DTYPES.get(self.kinds[column]) is np.int64 and (known := chunk.statistics) and known.has_min_max:
                    self._bounds[place] = known.min_raw, known.max_raw
                if self.kinds[column] == "float":
                    floats[place] = 1.0, 0.0
                    if (known := chunk.statistics) and known.has_min_max:
                        sure = group not in nans.get(schema.names[column], range(shape[0]))
                        floats[place] = known.min_raw, known.max_raw if sure else math.inf
        kind = group_type(shape[0])
        packed = base64.b64decode(meta.metadata[GROUPS.encode()])
        total = int(self.rows.sum())
        self.group_of: NDArray[Any] = np.frombuffer(
            pa.decompress(packed, total * kind.itemsize, "zstd", asbytes=True), kind
        )
        self.key = None if KEY.encode() not in meta.metadata else meta.metadata[KEY.encode()].decode()
        self._counts = base64.b64decode(meta.metadata[COUNTS.encode()]) if self.key is not None else b""
        arrays = (self.rows, self.starts, self.sizes, self.heads, self._bounds, self.group_of)
        self.nbytes = sum(int(array.nbytes) for array in arrays) + len(self._counts)

    def counts(self) -> KeyCounts | None:
        """What row groups know of their keys, unpacked."""
        return None if self.key is None else KeyCounts.unpacked(self._counts, len(self.rows))

    def names(self) -> list[str]:
        """The stream's columns, by their names in the stream."""
        return [name.removeprefix("#") for name in self.columns if name not in (ZONE, BUCKET, ROW)]

    def index(self, name: str) -> int:
        return self.columns[escaped(name)]

    def range(self, group: int, column: int) -> tuple[int, int]:
        return int(self.starts[group, column]), int(self.sizes[group, column])

    def extent(self, group: int, column: int) -> tuple[int | float, int | float] | None:
        """Bounds of a column chunk of numbers, NaN as infinity; None if the file does not have them."""
        bounds = self._bounds[group, column]
        low, high = (bounds.view(np.float64) if self.kinds[column] == "float" else bounds).tolist()
        return (low, high) if low <= high else None

    def ranges(self, group: int) -> list[tuple[int, int]]:
        return [self.range(group, column) for column in range(len(self.columns))]


class Places(NamedTuple):
    """The tuples of a row group: `rows` in order of arrival, `at` their positions in the group."""

    rows: NDArray[np.int32]
    at: NDArray[np.uint16]


def places(rows: Column) -> Places:
    assert rows.values is not None
    order = np.argsort(rows.values)
    return Places(rows.values[order], order.astype(np.uint16))


def plain(array: pa.ChunkedArray, kind: str) -> Column:
    """A copy as in the log: zeros under nulls, and no mask if there are none."""
    one = array.chunk(0) if array.num_chunks == 1 else pa.concat_arrays(array.chunks)
    nulls = one.is_null().to_numpy(zero_copy_only=False) if one.null_count else None
    if kind == "string":
        return Column(None, one.take(pa.array(np.arange(len(one)))), nulls)
    if kind == "bool":
        one = one.cast(pa.uint8())
    elif kind == "timestamp":
        one = one.cast(pa.int64())
    return Column(np.array(one.fill_null(0).to_numpy() if one.null_count else one.to_numpy()), None, nulls)


def gather(kind: str, chunks: Sequence[Column], picked: Sequence[NDArray[np.uint16]], order: NDArray[Any]) -> Column:
    """One column of the values picked from each chunk; the i-th value goes to index `order[i]`."""
    if kind == "string":
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        pieces = [chunk.text.take(pa.array(at)) for chunk, at in zip(chunks, picked, strict=True)]
        text = pa.concat_arrays(pieces or [pa.array([], TYPES[kind])]).take(pa.array(back))
        return Column(None, text, text.is_null().to_numpy(zero_copy_only=False) if text.null_count else None)
    values = np.empty(len(order), DTYPES[kind])
    nulls = np.zeros(len(order), np.bool_)
    start = 0
    for chunk, at in zip(chunks, picked, strict=True):
        assert chunk.values is not None
        share = order[start : start + len(at)]
        values[share] = chunk.values[at]
        if chunk.nulls is not None:
            nulls[share] = chunk.nulls[at]
        start += len(at)
    return Column(values, None, nulls if nulls.any() else None)


def nbytes(value: Column | Places) -> int:
    if isinstance(value, Places):
        return value.rows.nbytes + value.at.nbytes
    size = value.text.nbytes if value.values is None else value.values.nbytes
    return int(size) + (0 if value.nulls is None else value.nulls.nbytes)


def escaped(name: str) -> str:
    """The file's name for a stream's column."""
    return "#" + name if name.startswith("#") else name


def _time(micros: int | None) -> str:
    return "null" if micros is None else str(np.datetime64(micros, "us"))
