"""The Parquet layout of a run of cold tuples.

Tuples are sorted by zone, heat, bucket, key and arrival. The heat of a tuple is the frequency of its key in its zone,
rounded down to a power of two, descending: so queries for frequent keys read few row groups with little else in them. A
row group is a cell, or several small neighbouring cells of a zone. Beside the stream's columns a file has "#zone",
"#bucket" and "#row", the tuple's offset in order of arrival; a stream's column whose name starts with `#` gets another
one. The footer has the row group of each tuple, in order of arrival, and what each row group knows of its keys. Equal
tuples give equal bytes: pyarrow writes no date, only its version.
"""

import base64
import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from promising.index.schema import TYPES, Column
from promising.index.storage.checksums import crc32c
from promising.index.storage.cold_file import (
    BUCKET,
    COUNTS,
    GROUPS,
    KEY,
    NANS,
    ROW,
    ZONE,
    Entry,
    Footer,
    escaped,
    group_type,
)
from promising.index.storage.key_counts import count_keys

SMALL = 2048  # rows up to which neighbouring cells share a row group
LARGE = 65_536  # maximum rows of a group: positions in it are 16 bits
MOST_GROUPS = 1024  # beyond, groups span zones: each costs a footer entry per column
SAMPLE = 4096  # rows sampled to decide on a dictionary


def pack(
    types: Mapping[str, str],
    columns: Mapping[str, Column],
    zone: NDArray[np.int64],
    bucket: NDArray[np.int64],
    key: str,
    hashes: NDArray[np.int64] | None = None,
) -> tuple[pa.Buffer, Entry]:
    """The file, and its manifest entry. hashes: of the keys; without them row groups do not know their keys."""
    order, heat = arranged(columns[key], zone, bucket)
    arrays = {name: in_order(columns[name], kind, order) for name, kind in types.items()}
    known = None if hashes is None else (key, hashes[order])
    return pack_arranged(types, arrays, zone[order], bucket[order], heat, order, known)


def pack_arranged(
    types: Mapping[str, str],
    columns: Mapping[str, pa.Array],
    zone: NDArray[np.int64],
    bucket: NDArray[np.int64],
    heat: NDArray[np.int8],
    order: NDArray[np.int64],
    known: tuple[str, NDArray[np.int64]] | None,
) -> tuple[pa.Buffer, Entry]:
    """`pack` of tuples in the order of `arranged`. order: of arrival. known: the key, and the hash of each tuple's."""
    rows = len(zone)
    if rows == 0:
        raise ValueError("a run has at least one tuple")
    arrays = {escaped(name): columns[name] for name in types}
    arrays[ZONE] = pa.array(zone)
    arrays[BUCKET] = pa.array(bucket).cast(pa.int32())
    arrays[ROW] = pa.array(order.astype(np.int32))
    table = pa.table(arrays)
    starts = group_starts(zone, bucket, heat)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name, array in arrays.items() if _repeats(array)],
        write_statistics=True,
        write_page_index=False,  # all bytes are in a column chunk or in the footer
    ) as writer:
        for start, stop in zip(starts, [*starts[1:], rows], strict=True):
            writer.write_table(table.slice(start, stop - start), row_group_size=LARGE)
        writer.add_key_value_metadata({GROUPS: _group_of(order, starts)})
        writer.add_key_value_metadata({NANS: json.dumps(_nans(arrays, starts))})
        if known is not None:
            counts = base64.b64encode(count_keys(known[1], starts).packed()).decode()
            writer.add_key_value_metadata({KEY: known[0], COUNTS: counts})
    data = sink.getvalue()
    times = {}
    for name, kind in types.items():
        if kind == "timestamp":
            ends = pc.min_max(arrays[escaped(name)].cast(pa.int64())).as_py()
            times[name] = [ends["min"], ends["max"]]
    entry = {"rows": rows, "bytes": data.size, "zones": [int(zone[0]), int(zone[-1])], "times": times}
    return data, entry | _sums(memoryview(data))


def group_starts(zone: NDArray[np.int64], bucket: NDArray[np.int64], heat: NDArray[np.int8]) -> list[int]:
    """The first row of each row group, for tuples sorted by zone, heat and bucket."""
    starts = _starts(zone, bucket, heat)
    return starts if len(starts) <= MOST_GROUPS else _starts(np.zeros_like(zone), bucket, heat)


def _starts(zone: NDArray[np.int64], bucket: NDArray[np.int64], heat: NDArray[np.int8]) -> list[int]:
    zones = np.flatnonzero(zone[1:] != zone[:-1]) + 1
    cells = np.flatnonzero((bucket[1:] != bucket[:-1]) | (heat[1:] != heat[:-1])) + 1
    edges = np.union1d(zones, cells).tolist()
    news = {0, *zones.tolist()}
    starts: list[int] = []
    for start, stop in zip([0, *edges], [*edges, len(zone)], strict=True):
        if start in news or stop - starts[-1] > SMALL:
            starts.append(start)
        starts += range(starts[-1] + LARGE, stop, LARGE)
    return starts


def arranged(
    key: Column, zone: NDArray[np.int64], bucket: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Rows by zone, heat, bucket, key and arrival; and the heat of each, in that order."""
    values = key.values
    if values is None:
        values = pc.rank(key.text, tiebreaker="dense").to_numpy()
    elif key.nulls is not None:
        values = np.where(key.nulls, 0, values)
    order = np.lexsort((values, bucket, zone))
    zone, values = zone[order], values[order]
    news = np.flatnonzero((zone[1:] != zone[:-1]) | (values[1:] != values[:-1])) + 1
    counts = np.diff(np.concatenate(([0], news, [len(zone)])))
    heat = np.repeat((np.frexp(counts)[1] - 1).astype(np.int8), counts)
    zones = np.cumsum(np.concatenate(([False], zone[1:] != zone[:-1])))
    by_heat = np.argsort(zones * 64 - heat, kind="stable")
    return order[by_heat], heat[by_heat]


def _nans(arrays: Mapping[str, pa.Array], starts: list[int]) -> dict[str, list[int]]:
    """By column of floats, the row groups with a NaN, of which Parquet's bounds say nothing."""
    found = {}
    for name, array in arrays.items():
        if pa.types.is_floating(array.type):
            at = np.flatnonzero(pc.is_nan(array).fill_null(False).to_numpy(zero_copy_only=False))
            found[name] = np.unique(np.searchsorted(starts, at, side="right") - 1).tolist()
    return found


def _group_of(order: NDArray[np.int64], starts: list[int]) -> str:
    """The row group of each tuple in order of arrival, so that finding a tuple does not read all positions."""
    group_of = np.empty(len(order), group_type(len(starts)))
    group_of[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(order)]))
    return base64.b64encode(pa.compress(group_of.tobytes(), "zstd", asbytes=True)).decode()


def in_order(column: Column, kind: str, order: NDArray[np.int64]) -> pa.Array:
    nulls = None if column.nulls is None else column.nulls[order]
    if column.values is None:
        text = column.text.take(pa.array(order))
        return text if nulls is None else pc.if_else(pa.array(nulls), pa.scalar(None, text.type), text)
    values = column.values[order]
    return pa.array(values != 0 if kind == "bool" else values, mask=nulls).cast(TYPES[kind])


def _repeats(array: pa.Array) -> bool:
    """Whether a dictionary pays off. Never for floats: NaNs must keep their bits, however it compares them."""
    if pa.types.is_floating(array.type) or pa.types.is_boolean(array.type):
        return False
    return bool(pc.count_distinct(array.slice(0, SAMPLE)).as_py() * 8 <= min(len(array), SAMPLE))


def _sums(data: memoryview) -> Entry:
    length = int.from_bytes(data[-8:-4], "little") + 8
    footer = Footer(bytes(data[-length:]))
    groups, columns = footer.starts.shape
    sums = np.empty((groups, columns), "<u4")
    for group in range(groups):
        for column, (start, size) in enumerate(footer.ranges(group)):
            sums[group, column] = crc32c(data[start : start + size])
    return {
        "footer": length,
        "footer_crc": crc32c(data[-length:]),
        "groups": groups,
        "crcs": base64.b64encode(sums.tobytes()).decode(),
    }
