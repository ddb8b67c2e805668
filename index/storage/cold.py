"""Cold tuples: runs of them in Parquet files, of which only the column chunks that are asked for are read.

A run is some hundred thousand tuples that arrived one after the other; a tuple is addressed by its run and its offset
in it, in order of arrival. Per open run 1 or 2 bytes a tuple stay in memory once it was read from: the row group of
each. Footers and decoded chunks of all runs share one cache of stated size.
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
    MAGIC,
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
from promising.index.storage.disk import Disk

SERIALS = itertools.count()  # of files, wherever they are: several streams may share a cache
FILE = re.compile(r"[0-9a-f]{16}\.parquet(\.tmp)?")


class Whole(NamedTuple):
    """All of a run, in order of arrival."""

    columns: dict[str, Column]
    zone: NDArray[np.int64]
    bucket: NDArray[np.int32]


class Cold:
    """The cold tuples of a stream. Safe to use from several threads; reads run side by side.

    What is damaged or gone raises DataDamaged with the file and what it covers; an object store that cannot be reached
    StorageUnavailable. `bytes_read` counts what was asked of the disk or store and came; `hits` and `misses` count
    chunks and footers looked up in the cache.
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

    def write(
        self,
        run: int,
        types: dict[str, str],
        columns: dict[str, Column],
        zone: NDArray[np.int64],
        bucket: NDArray[np.int64],
        key: str,
    ) -> Entry:
        """Write a run, whole or not at all, and open it; the entry is what `open` needs to find it whole again."""
        data, entry = pack(types, columns, zone, bucket, key)
        self._place.write(_name(run), data)
        self.open(run, entry)
        return entry

    def keep(self, run: int, data: bytes, entry: Entry) -> None:
        """Write a run that was packed elsewhere, as `write` does."""
        self._place.write(_name(run), data)
        self.open(run, entry)

    def open(self, run: int, entry: Entry) -> None:
        """Make a written run known. Nothing is read yet."""
        self.forget(run)
        self._runs[run] = Run(next(SERIALS), _name(run), self._place.path(_name(run)), entry)

    def forget(self, run: int) -> None:
        """Let go of a run; its file stays."""
        known = self._runs.pop(run, None)
        if known is not None:
            self._cache.drop(known.serial)

    def delete(self, run: int) -> None:
        """Let go of a run and of its file, if there is one."""
        self.forget(run)
        self._place.delete(_name(run))

    def tidy(self, known: Set[int]) -> None:
        """Remove the files of runs that are not known, as far as that works: what is left goes the next time."""
        keep = {_name(run) for run in known}
        with suppress(StorageError):
            for name in self._place.names():
                if FILE.fullmatch(name) and name not in keep:
                    with suppress(StorageError):
                        self._place.delete(name)

    def remove(self) -> None:
        """Let go of all runs and of their files, as `tidy` does."""
        for run in list(self._runs):
            self.forget(run)
        self._removed = True
        self.tidy(set())

    def column(self, run: int, name: str, offsets: NDArray[np.int32]) -> Column:
        """The values of the tuples with these offsets, in that order.

        Reads the chunks of this column, and of where tuples are, in the row groups that have one of the tuples.
        """
        known = self._known(run)
        footer = self._footer(known)
        index, row = footer.index(name), footer.columns[ROW]
        if len(offsets) and not 0 <= int(offsets.min()) <= int(offsets.max()) < known.rows:
            raise IndexError(f"{known.path} has {known.rows} tuples; an offset is beyond")
        groups = self._group_of(known, footer)[offsets]
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
        """A run's file and what it says of itself, for those who read it themselves."""
        known = self._known(run)
        return known, self._footer(known)

    def group_of(self, run: int) -> NDArray[Any]:
        """The row group of each tuple of a run, by offset."""
        known, footer = self.file(run)
        return self._group_of(known, footer)

    def read_whole(self, run: int) -> Whole:
        """The run as it was written, every byte of the file checked."""
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

    # --- what is kept ---

    def _known(self, run: int) -> Run:
        found = self._runs.get(run)
        if found is None and self._removed:
            raise UnknownName("the stream has been dropped, and its tuples with it")
        if found is None:
            raise DataDamaged(f"{self._place.path(_name(run))} is not in the manifest; repair gives its tuples up")
        return found

    def _footer(self, known: Run) -> Footer:
        kept: Footer | None = self._cache.get((known.serial,))
        if kept is None:
            (data,) = self._read(known, [(known.bytes - known.footer, known.footer)])
            kept = known.parse_footer(data)
            self._cache.put((known.serial,), kept, kept.nbytes)
        return kept

    def _group_of(self, known: Run, footer: Footer) -> NDArray[Any]:
        """The row group of each tuple of a run, by offset."""
        with known.lock:
            if known.group_of is None:
                known.group_of = footer.group_of(known.rows)
            return known.group_of

    def _chunks(self, known: Run, footer: Footer, wanted: Sequence[Chunk]) -> dict[Chunk, Any]:
        """Chunks from the cache; those not there are read together, checked, decoded and kept."""
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
    """A file that is gone is gone with what it covers."""
    try:
        yield
    except DataDamaged as problem:
        raise known.damaged("it is missing; put it back from a backup, or repair") from problem


def _name(run: int) -> str:
    return f"{run:016x}.parquet"
