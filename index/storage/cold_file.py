"""Reading cold files: every piece is checked before it is decoded.

The manifest's entry has the CRC32C of the footer and of each column chunk, which together cover everything but the four
bytes of magic at the start.
"""

import base64
import io
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

ZONE, BUCKET, ROW = "#zone", "#bucket", "#row"
GROUPS = "promising.groups"  # in the footer: the row group of each tuple, base64 of zstd of 1 or 2 bytes each
MAGIC = b"PAR1"
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
        self.group_of: NDArray[Any] | None = None  # the row group of each tuple, lazily
        self.lock = threading.Lock()  # for `group_of`
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
            rows = footer.meta.row_group(group).num_rows
            name = list(footer.columns)[column]
            place = f"column {name!r} of {rows:,} tuples ({length} bytes from byte {start})"
            raise self.damaged(f"{place} is cut off or fails its checksum")

    def decode(self, footer: "Footer", pieces: Mapping[Chunk, bytes]) -> dict[Chunk, Any]:
        """Decode checked chunks: a Column each, Places for the column of rows."""
        by_start = {footer.range(*chunk)[0]: data for chunk, data in pieces.items()}
        found: dict[Chunk, Any] = {}
        try:
            file = pq.ParquetFile(Pieces(by_start), metadata=footer.meta, pre_buffer=False)
            for group, column in pieces:
                table = file.reader.read_row_group(group, column_indices=[column], use_threads=False)
                rows = footer.meta.row_group(group).num_rows
                if table.num_rows != rows:
                    raise self.damaged(f"a row group has {table.num_rows:,} of {rows:,} tuples")
                values = plain(table.column(0), footer.kinds[column])
                is_row = column == footer.columns[ROW]
                found[group, column] = places(values) if is_row else values
        except (pa.ArrowException, OSError) as problem:
            raise self.damaged(f"it cannot be decoded ({problem})") from problem
        return found


def group_type(groups: int) -> np.dtype[Any]:
    return np.dtype(np.uint8 if groups <= 256 else "<u2")


class Footer:
    """A parsed footer; `data` is the checked end of the file."""

    def __init__(self, data: bytes) -> None:
        self.meta = pq.read_metadata(io.BytesIO(data))
        schema = self.meta.schema.to_arrow_schema()
        self.kinds = [KINDS[field.type] for field in schema]
        self.columns = {name: index for index, name in enumerate(schema.names)}
        self._groups: bytes = self.meta.metadata[GROUPS.encode()]
        self.nbytes = 8 * (len(data) - len(self._groups)) + len(self._groups)  # approximate size when parsed

    def group_of(self, rows: int) -> NDArray[Any]:
        kind = group_type(self.meta.num_row_groups)
        packed = base64.b64decode(self._groups)
        return np.frombuffer(pa.decompress(packed, rows * kind.itemsize, "zstd", asbytes=True), kind)

    def names(self) -> list[str]:
        """The stream's columns, by their names in the stream."""
        return [name.removeprefix("#") for name in self.columns if name not in (ZONE, BUCKET, ROW)]

    def index(self, name: str) -> int:
        return self.columns[escaped(name)]

    def range(self, group: int, column: int) -> tuple[int, int]:
        return _range(self.meta.row_group(group).column(column))

    def extent(self, group: int, column: int) -> tuple[Any, Any] | None:
        """The least and the greatest value of a column chunk, as stored; None if the file does not have them."""
        found = self.meta.row_group(group).column(column).statistics
        return (found.min_raw, found.max_raw) if found is not None and found.has_min_max else None

    def ranges(self, group: int) -> list[tuple[int, int]]:
        found = self.meta.row_group(group)
        return [_range(found.column(column)) for column in range(found.num_columns)]


class Pieces(io.RawIOBase):
    """A file of which only pieces are available. Reading anything else is an error."""

    def __init__(self, pieces: Mapping[int, bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._at = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset if whence == io.SEEK_SET else 1 << 62  # its size is never used
        return self._at

    def read(self, size: int = -1) -> bytes:
        piece = self._pieces.get(self._at)
        if piece is None or len(piece) != size:
            raise OSError(f"bytes {self._at} to {self._at + size} are no column chunk")
        self._at += size
        return piece


class Places(NamedTuple):
    """The tuples of a row group: `rows` in order of arrival, `at` their positions in the group."""

    rows: NDArray[np.int32]
    at: NDArray[np.uint16]


def places(rows: Column) -> Places:
    assert rows.values is not None
    order = np.argsort(rows.values)
    return Places(rows.values[order], order.astype(np.uint16))


def plain(array: pa.ChunkedArray, kind: str) -> Column:
    """As in the log: zeros under nulls, and no mask if there are none."""
    one = array.chunk(0) if array.num_chunks == 1 else pa.concat_arrays(array.chunks)
    nulls = one.is_null().to_numpy(zero_copy_only=False) if one.null_count else None
    if kind == "string":
        return Column(None, one, nulls)
    if kind == "bool":
        one = one.cast(pa.uint8())
    elif kind == "timestamp":
        one = one.cast(pa.int64())
    return Column(one.fill_null(0).to_numpy() if one.null_count else one.to_numpy(), None, nulls)


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


def _range(chunk: Any) -> tuple[int, int]:
    start = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None:
        start = min(start, chunk.dictionary_page_offset)
    return start, chunk.total_compressed_size


def escaped(name: str) -> str:
    """The file's name for a stream's column."""
    return "#" + name if name.startswith("#") else name


def _time(micros: int | None) -> str:
    return "null" if micros is None else str(np.datetime64(micros, "us"))
