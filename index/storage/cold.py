"""Cold tuples: runs in Parquet files, of which only the requested column chunks are read.

A run is some hundred thousand tuples in order of arrival; run and offset address a tuple. Once a run was read from, its
footer stays in memory until the run is forgotten: 40 bytes per column chunk, and 1 or 2 per tuple for its row group.
Decoded chunks of all runs share one bounded cache.
"""

import itertools
import re
import threading
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from promising.errors import DataDamaged, StorageError, UnknownName
from promising.index.schema import Column
from promising.index.storage.cold_cache import Cache
from promising.index.storage.cold_file import (
    BUCKET,
    ROW,
    ZONE,
    Chunk,
    Entry,
    Footer,
    Places,
    Run,
    escaped,
    gather,
    nbytes,
)
from promising.index.storage.cold_layout import pack
from promising.index.storage.cold_place import Range, place
from promising.index.storage.column_chunks import MAGIC
from promising.index.storage.disk import Disk

SERIALS = itertools.count()  # file numbers, unique across streams that share a cache
FILE = re.compile(r"[0-9a-f]{16}\.parquet(\.tmp)?")


class Whole(NamedTuple):
    """A whole run, in order of arrival."""

    columns: dict[str, Column]
    zone: NDArray[np.int64]
    bucket: NDArray[np.int32]


class Cold:
    """The cold tuples of a stream. Thread-safe; reads run in parallel.

    Damaged or missing data raises DataDamaged with the file and what it covers; an unreachable object store raises
    StorageUnavailable. `bytes_read` counts bytes read from disk or store, `hits` and `misses` cache lookups.
    """

    def __init__(
        self, disk: Disk, folder: Path | str, *, cache_bytes: int = 256 << 20, cache: Cache | None = None
    ) -> None:
        self._place = place(disk, folder)
        self._cache = cache or Cache(cache_bytes)
        self._runs: dict[int, Run] = {}
        self._removed = False
        self._lock = threading.Lock()
        self._bytes_read = 0

    @property
    def bytes_read(self) -> int:
        return self._bytes_read

    @property
    def hits(self) -> int:
        return self._cache.hits

    @property
    def misses(self) -> int:
        return self._cache.misses

    @property
    def cached_bytes(self) -> int:
        return self._cache.bytes

    @property
    def footer_bytes(self) -> int:
        """Bytes of the footers in memory."""
        return sum(run.parsed.nbytes for run in list(self._runs.values()) if run.parsed is not None)

    def write(
        self,
        run: int,
        types: dict[str, str],
        columns: dict[str, Column],
        zone: NDArray[np.int64],
        bucket: NDArray[np.int64],
        key: str,
        hashes: NDArray[np.int64] | None = None,
    ) -> Entry:
        """Write a run atomically, and open it; `open` needs the returned entry."""
        data, entry = pack(types, columns, zone, bucket, key, hashes)
        self._place.write(_name(run), data)
        self.open(run, entry)
        return entry

    def keep(self, run: int, data: bytes, entry: Entry) -> None:
        """As `write`, for a run that was packed elsewhere."""
        self._place.write(_name(run), data)
        self.open(run, entry)

    def open(self, run: int, entry: Entry) -> None:
        """Register a written run. Reads nothing."""
        self.forget(run)
        self._runs[run] = Run(next(SERIALS), _name(run), self._place.path(_name(run)), entry)

    def forget(self, run: int) -> None:
        """Forget a run; its file stays."""
        known = self._runs.pop(run, None)
        if known is not None:
            self._cache.drop(known.serial)

    def delete(self, run: int) -> None:
        """Forget a run and delete its file, if there is one."""
        self.forget(run)
        self._place.delete(_name(run))

    def tidy(self, known: Set[int]) -> None:
        """Delete the files of unknown runs; failures are left to the next call."""
        keep = {_name(run) for run in known}
        with suppress(StorageError):
            for name in self._place.names():
                if FILE.fullmatch(name) and name not in keep:
                    with suppress(StorageError):
                        self._place.delete(name)

    def remove(self) -> None:
        for run in list(self._runs):
            self.forget(run)
        self._removed = True
        self.tidy(set())

    def column(self, run: int, name: str, offsets: NDArray[np.int32]) -> Column:
        """Values of the tuples at these offsets, in order; reads only chunks of row groups with one of the tuples."""
        known = self._known(run)
        footer = self._footer(known)
        index, row = footer.index(name), footer.columns[ROW]
        if len(offsets) and not 0 <= int(offsets.min()) <= int(offsets.max()) < known.rows:
            raise IndexError(f"{known.path} has {known.rows} tuples; an offset is beyond")
        groups = footer.group_of[offsets]
        order = np.argsort(groups, kind="stable")
        edges = np.flatnonzero(np.diff(groups[order])) + 1
        shares = [share for share in np.split(order, edges) if len(share)]
        needed = [int(groups[share[0]]) for share in shares]
        found = self._chunks(known, footer, [(group, column) for group in needed for column in (index, row)])
        picked = []
        for group, share in zip(needed, shares, strict=True):
            where: Places = found[group, row]
            picked.append(where.at[np.searchsorted(where.rows, offsets[share])])
        return gather(footer.kinds[index], [found[group, index] for group in needed], picked, order)

    def file(self, run: int) -> tuple[Run, Footer]:
        """A run's file and footer, for external readers."""
        known = self._known(run)
        return known, self._footer(known)

    def group_of(self, run: int) -> NDArray[Any]:
        return self.file(run)[1].group_of

    def unread(self, run: int, names: Sequence[str]) -> NDArray[np.int64]:
        """By row group, the bytes to read for these columns: those of chunks that are not in the cache."""
        known, footer = self.file(run)
        columns = [*map(footer.index, names), footer.columns[ROW]]
        sizes = footer.sizes[:, columns].copy()
        for group, column in self._cache.held(known.serial):
            sizes[group, [at for at, other in enumerate(columns) if other == column]] = 0
        found: NDArray[np.int64] = sizes.sum(axis=1)
        return found

    def read_whole(self, run: int) -> Whole:
        """The run as written, every byte checked."""
        known = self._known(run)
        with _there(known):
            data = self._place.read_all(known.name)
        self._count(len(data))
        if len(data) != known.bytes:
            raise known.damaged(f"it has {len(data)} bytes instead of {known.bytes}")
        if not data.startswith(MAGIC):
            raise known.damaged(f"it starts with {data[:4]!r} and not with {MAGIC!r}")
        footer = known.parse_footer(data[-known.footer :])
        pieces: dict[Chunk, bytes] = {}
        for group in range(known.groups):
            for column, (start, length) in enumerate(footer.ranges(group)):
                pieces[group, column] = data[start : start + length]
                known.check(footer, (group, column), pieces[group, column])
        found = known.decode(footer, pieces)
        where: list[Places] = [found[group, footer.columns[ROW]] for group in range(known.groups)]
        order = np.concatenate([places.rows for places in where])

        def arrived(name: str) -> Column:
            column = footer.columns[name]
            chunks = [found[group, column] for group in range(known.groups)]
            return gather(footer.kinds[column], chunks, [places.at for places in where], order)

        columns = {name: arrived(escaped(name)) for name in footer.names()}
        zone, bucket = arrived(ZONE).values, arrived(BUCKET).values
        assert zone is not None and bucket is not None
        return Whole(columns, zone, bucket)

    # --- cache ---

    def _known(self, run: int) -> Run:
        found = self._runs.get(run)
        if found is None and self._removed:
            raise UnknownName("the stream has been dropped, and its tuples with it")
        if found is None:
            raise DataDamaged(f"{self._place.path(_name(run))} is not in the manifest; repair gives its tuples up")
        return found

    def _footer(self, known: Run) -> Footer:
        """Read on first use, and in memory until the run is forgotten."""
        with known.lock:
            if known.parsed is None:
                (data,) = self._read(known, [(known.bytes - known.footer, known.footer)])
                known.parsed = known.parse_footer(data)
            return known.parsed

    def _chunks(self, known: Run, footer: Footer, wanted: Sequence[Chunk]) -> dict[Chunk, Any]:
        """Chunks from the cache; missing ones are read together, checked, decoded and cached."""
        found = {chunk: self._cache.get((known.serial, *chunk)) for chunk in wanted}
        missing = [chunk for chunk, value in found.items() if value is None]
        if missing:
            pieces = dict(zip(missing, self._read(known, [footer.range(*chunk) for chunk in missing]), strict=True))
            for chunk, data in pieces.items():
                known.check(footer, chunk, data)
            for chunk, value in known.decode(footer, pieces).items():
                found[chunk] = value
                self._cache.put((known.serial, *chunk), value, nbytes(value))
        return found

    def _read(self, known: Run, ranges: Sequence[Range]) -> list[bytes]:
        with _there(known):
            found = self._place.read(known.name, ranges)
        self._count(sum(map(len, found)))
        return found

    def _count(self, read: int) -> None:
        with self._lock:
            self._bytes_read += read


@contextmanager
def _there(known: Run) -> Iterator[None]:
    """Reports a missing file with what it covers."""
    try:
        yield
    except DataDamaged as problem:
        raise known.damaged("it is missing; put it back from a backup, or repair") from problem


def _name(run: int) -> str:
    return f"{run:016x}.parquet"
