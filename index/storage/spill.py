"""Files of rows that queries have no room for in memory: a folder of the store that is emptied at every start.

A file is an Arrow IPC stream without its end. Where its batches begin, and their checksums, are in memory only: nobody
reads the file of another process.
"""

import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Lock

import pyarrow as pa

from promising.errors import DataDamaged, LimitReached, StorageError, StorageUnavailable
from promising.index.storage.checksums import crc32c
from promising.index.storage.disk import Disk, translated

FOLDER = "spill"
RETRY = 1.0  # seconds after which other queries may have released their files


class SpillFolder:
    """Creates files, and counts their bytes: at most `limit`, so that queries leave the disk to the log.

    limit: 0 is half of what is free when the store opens.
    """

    def __init__(self, disk: Disk, root: Path, limit: int) -> None:
        self.disk = disk
        self.folder = root / FOLDER
        self.limit = limit
        self._lock = Lock()
        self._used = 0
        if not limit:
            with translated(root):
                self.limit = shutil.disk_usage(root).free // 2

    @property
    def used(self) -> int:
        """Bytes of all files."""
        with self._lock:
            return self._used

    def clear(self) -> None:
        """Delete the files of an earlier process."""
        if self.disk.exists(self.folder):
            for name in self.disk.names(self.folder):
                self.disk.unlink(self.folder / name)

    def create(self, schema: pa.Schema) -> "SpilledRows":
        self.disk.mkdir(self.folder)
        return SpilledRows(self, schema)

    def claim(self, size: int) -> None:
        with self._lock:
            if self._used + size > self.limit:
                raise LimitReached(
                    f"queries have {self._used:,} bytes in {self.folder}, and storage.spill_bytes allows"
                    f" {self.limit:,}: ask again when others have ended, or for less",
                    RETRY,
                )
            self._used += size

    def release(self, size: int) -> None:
        with self._lock:
            self._used -= size


class SpilledRows:
    """One file. Each operation opens it, so any number of queries needs no more handles than threads."""

    def __init__(self, folder: SpillFolder, schema: pa.Schema) -> None:
        self._folder = folder
        self._disk = folder.disk
        self._schema = schema
        self._path = folder.folder / f"{secrets.token_hex(8)}.arrow"
        self._batches: list[tuple[int, int, int]] = []  # offset, size, checksum
        self._size = 0
        self._closed = False
        handle = self._disk.create(self._path)
        self._disk.close(handle)
        try:
            self._append(memoryview(schema.serialize()))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._batches)

    def write(self, batch: pa.RecordBatch) -> None:
        data = memoryview(batch.serialize())
        at = self._size
        self._append(data)
        self._batches.append((at, data.nbytes, crc32c(data)))

    def _append(self, data: memoryview) -> None:
        self._folder.claim(data.nbytes)
        self._size += data.nbytes
        handle = self._disk.append(self._path)
        try:
            self._disk.write(handle, [data])
        finally:
            self._disk.close(handle)

    def read(self, number: int) -> pa.RecordBatch:
        at, size, checksum = self._batches[number]
        found = pa.allocate_buffer(size)
        place = memoryview(found).cast("B")
        try:
            read = self._disk.read_into(self._path, at, place)
        except DataDamaged:
            raise StorageUnavailable(f"{self._path} was removed while a query needed it; ask again") from None
        if read != size or crc32c(place) != checksum:
            raise StorageUnavailable(f"{self._path} was changed while a query needed it; ask again")
        return pa.ipc.read_record_batch(found, self._schema)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(StorageError):  # then it is deleted at the next start, and counts until then
            self._disk.unlink(self._path)
            self._folder.release(self._size)
