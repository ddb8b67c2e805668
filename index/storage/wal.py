"""The write-ahead log of a stream: records that were appended and waited for survive any crash."""

import os
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

from promising.errors import StorageError, StorageUnavailable
from promising.index.storage.buffer_pool import Copies
from promising.index.storage.checksums import Bytes, crc32c, total
from promising.index.storage.disk import Disk, Handle
from promising.index.storage.replay import Damage, Record, Replay
from promising.index.storage.segments import HEADER, SEAL, first_of, name_of, padded, record_header, segment_header
from promising.index.storage.synced import SyncedMark

__all__ = ["Damage", "Record", "Wal"]

SEGMENT_BYTES = 64 << 20
MARKS = 64  # by segment, to compute the bytes after a record


class _Kept(NamedTuple):
    """A record not known to be durable; `body` is the payload and its padding."""

    lsn: int
    kind: int
    length: int
    crc: int
    body: Bytes


class Wal:
    """Records in segments, numbered from 1 on without gaps (lsn).

    `recover` comes first, and is read to its end. Then any thread may append and wait. Records that were waited for
    survive a power failure; of the others a prefix does. One sync serves all waiting threads (group commit).

    After a failed sync, writes since the last good one are undefined. So these records are retained, and the next call
    writes them to a new segment, under the same numbers: from its first record on a segment overrides the previous one.
    While that fails, every call raises, and nothing is lost.
    """

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        *,
        aside: Path,
        segment_bytes: int = SEGMENT_BYTES,
        relaxed: bool = False,
    ) -> None:
        self.damages: list[Damage] = []
        self.cut: Damage | None = None
        self.bytes_written = 0
        self.syncs = 0
        self.sync_seconds = 0.0
        self._disk = disk
        self._folder = folder
        self._aside = aside
        self._segment_bytes = segment_bytes
        self._relaxed = relaxed
        self._lock = threading.Condition(threading.Lock())
        self._ready = False
        self._segments: list[int] = []  # their first records
        self._handle: Handle | None = None  # of the newest segment; None: the next record starts another one
        self._sealable: tuple[Path, int] | None = None  # the previous segment, if it ends properly, and its salt
        self._salt = 0
        self._size = 0
        self._last = 0
        self._durable = 0
        self._kept: deque[_Kept] = deque()
        self._copies = Copies()
        self._syncing = False
        self._left: list[Handle] = []  # to be closed when no sync uses them
        self._closed = False
        self._mark = SyncedMark(disk, folder)
        self._failures = 0
        self._failure: StorageError | None = None
        self._bytes = 0
        self._marks: list[tuple[int, int]] = [(0, 0)]  # a record, and the bytes up to it

    @property
    def last(self) -> int:
        return self._last

    @property
    def durable(self) -> int:
        """The newest record known to be durable, with all before it."""
        return self._durable

    @property
    def segments(self) -> list[int]:
        """The first record of every segment."""
        return list(self._segments)

    def bytes_since(self, lsn: int) -> int:
        """Approximate bytes of records after this one."""
        with self._lock:
            at = bisect_right(self._marks, (lsn, inf))
            return self._bytes - self._marks[max(at - 1, 0)][1]

    # --- read ---

    def recover(self, start: int = 1) -> Iterator[Record]:
        """The records from `start` on, in order; an empty or missing folder is a new log.

        A torn record at the end is cut off and reported in `cut`, unless it is known to have been synced. Other damage
        is reported in `damages`, with a copy of the file set aside, and the records after it follow.

        The newest segment may be in the system's memory only, and after a failed sync the system may not know that it
        is not on the medium. So it counts as not durable: the first `sync` writes it again.
        """
        replay = Replay(self._disk, self._folder, self._aside, self._mark.read())
        newest = self._newest()
        for record in replay.records(start):
            self._note(record.lsn, HEADER + padded(len(record.payload)))
            if record.lsn >= newest:
                filling = bytes(padded(len(record.payload)) - len(record.payload))
                body = bytes(record.payload) + filling if filling else record.payload
                self._kept.append(_Kept(record.lsn, record.kind, len(record.payload), crc32c(body), body))
            yield record
        if replay.damages:
            self._kept.clear()
        self.damages, self.cut = replay.damages, replay.cut
        self._segments, self._sealable = replay.segments, replay.open_end
        self._last = replay.last
        self._durable = self._kept[0].lsn - 1 if self._kept else replay.last
        self._ready = True

    def _newest(self) -> int:
        """The first record of the newest segment; 0 if there is none."""
        if not self._disk.exists(self._folder):
            return 0
        found = (first_of(name) for name in self._disk.names(self._folder))
        return max((first for first in found if first is not None), default=0)

    # --- write ---

    def append(self, kind: int, parts: Sequence[Bytes]) -> int:
        """Write a record, without a sync; returns its number. On an error it is not in the log.

        The parts are copied, so that they may change afterwards; that is a tenth of the cost of writing them.
        """
        length = total(parts)
        body = self._copies.of([*parts, bytes(padded(length) - length)], padded(length))
        crc = crc32c(body)
        with self._lock:
            assert self._ready, "recover first"
            self._check_open()
            handle = self._room(HEADER + len(body))
            size, last = self._size, self._last
            try:
                self._last = last + 1
                self._size = size + HEADER + len(body)
                self._kept.append(_Kept(self._last, kind, length, crc, body))
                self._disk.write(handle, [record_header(self._last, kind, length, self._salt, crc), body])
            except BaseException:
                self._last, self._size = last, size
                while self._kept and self._kept[-1].lsn > last:
                    self._kept.pop()
                try:
                    self._disk.truncate(handle, size)
                except BaseException:  # it may end with half a record: the next one goes to another segment
                    self._give_up()
                raise
            self._note(self._last, HEADER + len(body))
            self.bytes_written += HEADER + len(body)
            return self._last

    def wait(self, lsn: int) -> None:
        """Return when all records up to this one are durable; at once if the log is relaxed."""
        if not self._relaxed:
            self._settle(lsn)

    def sync(self) -> None:
        """Return when everything appended is durable."""
        self._settle(self._last)

    def trim(self, before: int) -> None:
        """Delete the segments with only older records; the newest always stays."""
        with self._lock:
            assert self._ready, "recover first"
            gone = [first for first, after in zip(self._segments, self._segments[1:], strict=False) if after <= before]
        for first in gone:  # oldest first: a crash leaves no hole
            self._disk.unlink(self._folder / name_of(first))
            with self._lock:
                self._segments = [other for other in self._segments if other != first]
        with self._lock:
            at = bisect_right(self._marks, (before, inf)) - 1
            del self._marks[: max(at, 0)]

    def rotate(self) -> None:
        """Make everything durable; the next record starts a new segment."""
        try:
            self.sync()
        finally:
            with self._lock:
                while self._syncing:
                    self._lock.wait()
                self._mark.write(self._durable, sync=True)
                self._give_up()

    def close(self) -> None:
        """Make everything durable and accept no more. Files are closed even on an error."""
        try:
            self.rotate()
        finally:
            with self._lock:
                self._closed = True
                self._mark.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StorageUnavailable(f"{self._folder} is closed; open the store again")

    def _settle(self, lsn: int) -> None:
        with self._lock:
            failures = self._failures
            while self._durable < min(lsn, self._last):
                self._check_open()
                if self._failures != failures and self._failure is not None:
                    raise type(self._failure)(str(self._failure)) from self._failure
                if self._syncing:
                    self._lock.wait()
                elif self._handle is None:
                    self._start()
                else:
                    self._lead(self._handle)

    def _lead(self, handle: Handle) -> None:
        """Sync for all waiters, without the lock, so that others can append."""
        target = self._last
        self._syncing = True
        self._lock.release()
        try:
            self._timed_sync(handle)
        except BaseException as problem:
            self._lock.acquire()
            self._fail(problem)
            raise
        else:
            self._lock.acquire()
            self._settled(target)
        finally:
            self._syncing = False
            while self._left:
                self._disk.close(self._left.pop())
            self._lock.notify_all()

    def _timed_sync(self, handle: Handle) -> None:
        """Never two at a time."""
        since = time.perf_counter()
        self._disk.sync(handle)
        self.syncs += 1
        self.sync_seconds += time.perf_counter() - since

    def _settled(self, lsn: int) -> None:
        self._durable = lsn
        self._mark.write(lsn)
        while self._kept and self._kept[0].lsn <= lsn:
            self._copies.done(self._kept.popleft().body)
        self._lock.notify_all()

    def _fail(self, problem: BaseException) -> None:
        self._give_up()
        self._failures += 1
        self._failure = problem if isinstance(problem, StorageError) else None
        self._lock.notify_all()

    def _give_up(self) -> None:
        """Abandon the segment; the next one starts with the records not known to be durable."""
        if self._handle is not None:
            if self._syncing:
                self._left.append(self._handle)
            else:
                self._disk.close(self._handle)
        self._handle = self._sealable = None

    def _room(self, needed: int) -> Handle:
        """The segment for a record of so many bytes, a new one if needed."""
        while True:
            full = self._size > HEADER and self._size + needed > self._segment_bytes
            if self._handle is not None and not full:
                return self._handle
            if self._syncing:
                self._lock.wait()
            elif self._handle is None:
                self._start()
            else:
                self._finish(self._handle)

    def _finish(self, handle: Handle) -> None:
        """Sync a full segment, before there is another, and leave it."""
        try:
            if self._durable < self._last:
                self._timed_sync(handle)
        except BaseException as problem:
            self._fail(problem)
            raise
        self._settled(self._last)
        self._mark.write(self._durable, sync=True)
        self._give_up()
        self._sealable = handle.path, self._salt

    def _start(self) -> None:
        """Atomically create a durable segment that starts with the retained records."""
        first = self._durable + 1
        path = self._folder / name_of(first)
        temporary = path.with_name(path.name + ".tmp")
        salt = int.from_bytes(os.urandom(4), "little")
        parts: list[Bytes] = [segment_header(first, salt)]
        for lsn, kind, length, crc, body in self._kept:
            parts += [record_header(lsn, kind, length, salt, crc), body]
        handle = None
        try:
            if self._disk.exists(temporary):
                self._disk.unlink(temporary)
            handle = self._disk.create(temporary)
            self._disk.write(handle, parts)
            self._timed_sync(handle)
            self._disk.rename(temporary, path)  # also over one of the same name, of which nothing is durable
            self._disk.sync_dir(self._folder)
        except BaseException as problem:
            if handle is not None:
                self._disk.close(handle)
                with suppress(StorageError):
                    self._disk.unlink(temporary)
            sealable = self._sealable
            self._fail(problem)
            self._sealable = sealable
            raise
        handle.path = path
        self._handle, self._salt, self._size = handle, salt, sum(map(len, parts))
        self._segments = [other for other in self._segments if other < first] + [first]
        self._settled(self._last)
        self._seal(path, first)

    def _seal(self, path: Path, first: int) -> None:
        """Seal the previous segment, so that the loss of the next one is detected. Failures are harmless."""
        before, self._sealable = self._sealable, None
        if before is None or before[0] == path:
            return
        with suppress(StorageError):
            handle = self._disk.append(before[0])
            try:
                self._disk.write(handle, [record_header(first, SEAL, 0, before[1], crc32c())])
            finally:
                self._disk.close(handle)

    def _note(self, lsn: int, size: int) -> None:
        self._bytes += size
        if self._bytes - self._marks[-1][1] > self._segment_bytes // MARKS:
            self._marks.append((lsn, self._bytes))
