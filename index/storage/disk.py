"""All file operations of the store but SQLite's, so that a test can substitute a flaky disk."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from promising.errors import DataDamaged, StorageError, StorageFull, StorageUnavailable
from promising.index.storage.checksums import Bytes, total
from promising.index.storage.permissions import PRIVATE_FILE, PRIVATE_FOLDER

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_THERE = (FileNotFoundError, NotADirectoryError)
MOST_PARTS = 1024  # of one writev
TO_DO = {
    errno.EDQUOT: "raise the quota or remove files",
    errno.EFBIG: "raise the limit on the size of files",
    errno.EACCES: "let the service's user write and read there",
    errno.EPERM: "let the service's user write and read there",
    errno.EROFS: "mount it for writing",
    errno.EIO: "look at the system's log, the disk may be failing",
    errno.EMFILE: "raise the limit on open files",
    errno.ENFILE: "raise the limit on open files",
}


@dataclass(eq=False, slots=True)
class Handle:
    """A file open for appending, or for overwriting. `path` is for messages."""

    fd: int
    path: Path


class translated:  # reads as a keyword: `with translated(path):`
    """Translates every OSError of `path` to an error of the package."""

    __slots__ = ("path", "reading")

    def __init__(self, path: Path, *, reading: bool = False) -> None:
        self.path = path
        self.reading = reading

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not isinstance(error, OSError):
            return
        reason = os.strerror(error.errno) if error.errno else str(error)
        if self.reading and isinstance(error, NOT_THERE):
            raise DataDamaged(f"{self.path} is missing ({reason}); put it back from a backup, or repair") from error
        if error.errno in NO_SPACE:
            todo = TO_DO.get(error.errno, "free some space there")
            raise StorageFull(f"{self.path}: {reason}; {todo}, then it goes on") from error
        todo = TO_DO.get(error.errno or 0, "see to it")
        raise StorageUnavailable(f"{self.path}: {reason}; {todo}, then try again") from error


class Disk:
    """The real disk. Raises StorageFull, StorageUnavailable or, if a file to be read is missing, DataDamaged.

    What it creates is its owner's alone.
    """

    FILE, FOLDER = PRIVATE_FILE, PRIVATE_FOLDER  # permissions of what is created

    # --- modifying: about one system call each ---

    def create(self, path: Path) -> Handle:
        """Create a file; an error if it exists."""
        with translated(path):
            return Handle(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, self.FILE), path)

    def append(self, path: Path) -> Handle:
        """Open an existing file for appending."""
        with translated(path):
            return Handle(os.open(path, os.O_WRONLY | os.O_APPEND), path)

    def write(self, handle: Handle, parts: Sequence[Bytes]) -> None:
        """Write all bytes of the parts in order; on an error any prefix of them may be written."""
        with translated(handle.path):
            for first in range(0, len(parts), MOST_PARTS):
                some = list(parts[first : first + MOST_PARTS])
                left = total(some) - os.writev(handle.fd, some)
                if left:
                    _write_rest(handle.fd, some, left)

    def sync(self, handle: Handle) -> None:
        """Make writes durable. After an error, writes since the last sync are undefined, and a retry does not help."""
        with translated(handle.path):
            os.fdatasync(handle.fd)

    def truncate(self, handle: Handle, size: int) -> None:
        with translated(handle.path):
            os.ftruncate(handle.fd, size)

    def overwritable(self, path: Path) -> Handle:
        """Open a file for overwriting its start; it is created if it does not exist."""
        with translated(path):
            return Handle(os.open(path, os.O_CREAT | os.O_WRONLY, self.FILE), path)

    def overwrite(self, handle: Handle, content: bytes, *, sync: bool) -> None:
        """Replace the start of the file; a crash may leave any mixture of both contents."""
        with translated(handle.path):
            os.pwrite(handle.fd, content, 0)
            if sync:
                os.fdatasync(handle.fd)

    def rename(self, old: Path, new: Path) -> None:
        """Atomically replaces `new`."""
        with translated(new):
            os.replace(old, new)

    def unlink(self, path: Path) -> None:
        """Delete the file, if it exists."""
        with translated(path), suppress(FileNotFoundError):
            os.unlink(path)

    def sync_dir(self, path: Path) -> None:
        """Make created, renamed and deleted names of the folder durable."""
        with translated(path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def mkdir(self, path: Path) -> None:
        """Durably create the folder and its parents."""
        with translated(path):
            if path.is_dir():
                return
        self.mkdir(path.parent)
        with translated(path):
            path.mkdir(self.FOLDER, exist_ok=True)
        try:
            self.sync_dir(path.parent)
        except StorageError:
            with suppress(OSError):
                path.rmdir()  # else the next call would consider it durable
            raise

    # --- reading ---

    def close(self, handle: Handle) -> None:
        """Never fails: what matters was synced before."""
        fd, handle.fd = handle.fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def read(self, path: Path, offset: int = 0, length: int = -1) -> bytes:
        """`length` bytes from `offset` on, or fewer at the end of the file; the whole rest if negative."""
        with translated(path, reading=True), path.open("rb", buffering=0) as file:
            file.seek(offset)
            if length < 0:
                return file.read()
            parts = []
            while length and (part := file.read(length)):
                parts.append(part)
                length -= len(part)
            return b"".join(parts)

    def read_into(self, path: Path, offset: int, place: memoryview) -> int:
        """Fill the buffer from `offset` on; returns the bytes read, fewer at the end of the file."""
        done = 0
        with translated(path, reading=True):
            fd = os.open(path, os.O_RDONLY)
            try:
                while done < len(place) and (got := os.preadv(fd, [place[done:]], offset + done)):
                    done += got
            finally:
                os.close(fd)
        return done

    def expect(self, path: Path) -> None:
        """Prefetch a file. Errors are ignored."""
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(fd)

    def size(self, path: Path) -> int:
        with translated(path, reading=True):
            return path.stat().st_size

    def names(self, path: Path) -> list[str]:
        with translated(path, reading=True):
            return sorted(os.listdir(path))

    def exists(self, path: Path) -> bool:
        with translated(path):
            try:
                path.stat()
            except NOT_THERE:
                return False
            return True

    # --- composed ---

    def write_whole(self, path: Path, parts: Sequence[Bytes]) -> int:
        """Atomically and durably replace a file by these bytes; returns their number."""
        temporary = path.with_name(path.name + ".tmp")
        if self.exists(temporary):  # left by a crash
            self.unlink(temporary)
        try:
            handle = self.create(temporary)
            try:
                self.write(handle, parts)
                self.sync(handle)
            finally:
                self.close(handle)
            self.rename(temporary, path)
            self.sync_dir(path.parent)
        except StorageError:
            with suppress(StorageError):
                self.unlink(temporary)
            raise
        return total(parts)


class StagingDisk(Disk):
    """For packages, which one user writes and the service, another one, reads: permissions as the umask says."""

    FILE, FOLDER = 0o666, 0o777


def _write_rest(fd: int, parts: Sequence[Bytes], left: int) -> None:
    """The last `left` bytes of the parts, after a short write."""
    views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    skip = total(views) - left
    while views:
        while views and skip >= views[0].nbytes:
            skip -= views.pop(0).nbytes
        if views:
            views[0], skip = views[0][skip:], 0
            skip = os.writev(fd, views)
