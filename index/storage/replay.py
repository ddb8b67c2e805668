"""Reads a log after a stop or a crash: everything readable, and a description of the rest."""

from bisect import bisect_right
from collections.abc import Generator, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from promising.errors import StorageError
from promising.index.storage.buffer_pool import Blocks
from promising.index.storage.checksums import crc32c
from promising.index.storage.disk import Disk
from promising.index.storage.segments import HEADER, SEAL, Segment, first_of, name_of


class Record(NamedTuple):
    """A record of the log. The payload is a view of the segment's bytes, 8-byte aligned."""

    lsn: int
    kind: int
    payload: memoryview


class Damage(NamedTuple):
    """A file, and what of it cannot be read."""

    path: str
    what: str


class _End(NamedTuple):
    """The end of a segment: of its good part, what is wrong there, and whether it is sealed."""

    good: int
    why: str | None
    sealed: bool


class Replay:
    """One pass over the segments of a folder. `synced`: a record that was on disk, with all before it; 0: unknown.

    After `records` is exhausted, `last` is the newest record, `damages` and `cut` describe what could not be read, and
    the rest is durable.
    """

    def __init__(self, disk: Disk, folder: Path, aside: Path, synced: int = 0) -> None:
        self.segments: list[int] = []
        self.last = 0
        self.open_end: tuple[Path, int] | None = None  # the newest segment, if it ends properly, and its salt
        self.damages: list[Damage] = []
        self.cut: Damage | None = None
        self._disk = disk
        self._folder = folder
        self._aside = aside
        self._synced = synced
        self._blocks = Blocks()
        self._next = 0

    def records(self, start: int) -> Iterator[Record]:
        """The records from `start` on, in order. Missing ones are reported in `damages`."""
        self._disk.mkdir(self._folder)
        for name in self._disk.names(self._folder):
            if name.endswith(".wal.tmp"):
                self._disk.unlink(self._folder / name)
            elif (first := first_of(name)) is not None:
                self.segments.append(first)
        self.segments.sort()
        needed = self.segments[max(bisect_right(self.segments, start) - 1, 0) :]
        if needed and needed[0] > start:
            path = self._folder / name_of(start)
            self._missing(path, start, needed[0] - 1, "the log starts after that; a segment is missing")
        for first, limit in zip_longest(needed, needed[1:]):
            self._next = first
            yield from self._segment(first, limit, start)
        if not needed and self._synced >= start:
            self._missing(self._folder / name_of(start), start, self._synced, "there is no file")
            self._next = self._synced + 1
        self.last = max(self._next - 1, start - 1)

    def _segment(self, first: int, limit: int | None, start: int) -> Iterator[Record]:
        """One segment, up to the first record of the next one (`limit`); None: it is the newest."""
        path = self._folder / name_of(first)
        content = self._blocks.of(self._disk.size(path))
        content = content[: self._disk.read_into(path, 0, content)]
        if limit is not None:
            self._disk.expect(self._folder / name_of(limit))
        segment = Segment(str(path), first, content)
        found = len(self.damages)
        if segment.problem is not None:
            self.damages.append(Damage(str(path), f"{segment.problem}; its records are read as far as they can be"))
        end = yield from self._entries(path, segment, limit, start)
        due = max(self._synced + 1, start) if limit is None else limit  # records before a checkpoint's end were synced
        lost = self._next < due and (limit is None or limit > start)
        if lost:
            gone = end.why is None and end.sealed
            why = "there is no file" if gone else end.why or "the file ends before that"
            self._missing(self._folder / name_of(self._next) if gone else path, self._next, due - 1, why)
        if limit is None:
            self._tidy(path, segment, end, lost)
            if lost:
                self._next = due  # the lost numbers stay unused, so that the loss is detected next time too
            elif end.sealed or (segment.problem is not None and end.good == HEADER):
                if end.sealed:
                    after = self._folder / name_of(self._next)
                    what = f"all records from {self._next} on are lost: there is no file"
                    self.damages.append(Damage(str(after), what))
                self._next += 1  # the same
        if len(self.damages) > found:
            self._set_aside(path, content, found)

    def _entries(self, path: Path, segment: Segment, limit: int | None, start: int) -> Generator[Record, None, _End]:
        good = HEADER
        while good < len(segment.content) and (limit is None or self._next < limit):
            entry = segment.at(good, self._next)
            why = None
            if isinstance(entry, str):
                why, after = entry, segment.after(good, self._next)
                if after is None:
                    return _End(good, why, False)
                entry = after
            if limit is not None and entry.lsn >= limit and entry.kind != SEAL:
                return _End(good, why, False)
            if entry.lsn > max(self._next, start):
                why = f"{why or 'the next one is another'}, between bytes {good} and {entry.start}"
                self._missing(path, max(self._next, start), entry.lsn - 1, why)
            good, self._next = entry.end, entry.lsn
            if entry.kind == SEAL:
                return _End(good, None, True)
            self._next += 1
            if entry.lsn >= start:
                yield Record(entry.lsn, entry.kind, entry.payload)
        return _End(good, None, False)

    def _tidy(self, path: Path, segment: Segment, end: _End, damaged: bool) -> None:
        """Truncate the newest segment after its last whole record and sync it: a killed process may not have.

        A damaged one stays as it was found, and is not sealed.
        """
        good = not damaged and (segment.problem is None or end.good > HEADER)
        handle = self._disk.append(path)
        try:
            if good and end.good < len(segment.content):
                self._disk.truncate(handle, end.good)
                lost = len(segment.content) - end.good
                why = (
                    f"the last {lost} bytes, from byte {end.good} on, are no whole record ({end.why}) and were cut off"
                )
                self.cut = Damage(str(path), f"{why}; the log ends with record {self._next - 1}")
            self._disk.sync(handle)
        finally:
            self._disk.close(handle)
        self._disk.sync_dir(self._folder)
        if segment.problem is None and not end.sealed and not damaged:
            self.open_end = path, segment.salt

    def _missing(self, path: Path, first: int, last: int, why: str) -> None:
        which = f"record {first} is" if first == last else f"records {first} to {last} are"
        self.damages.append(Damage(str(path), f"{which} missing: {why}"))

    def _set_aside(self, path: Path, content: memoryview, found: int) -> None:
        """Copy a damaged segment aside, under a name with its checksum, and report it."""
        copy = self._aside / f"{path.stem}-{crc32c(content):08x}{path.suffix}"
        try:
            self._disk.mkdir(self._aside)
            if not self._disk.exists(copy):
                self._disk.write_whole(copy, [content])
            if not self._disk.exists(copy):  # a check that changes nothing makes no copy
                return
            said = f"a copy of the file as found is {copy}"
        except StorageError as problem:
            said = f"no copy of the file could be set aside ({problem})"
        self.damages[found:] = [Damage(path, f"{what}; {said}") for path, what in self.damages[found:]]
