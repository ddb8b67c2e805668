"""Every file operation of the store but SQLite's, so that a test can put a flaky disk in the place of the real one."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from promising.errors import DataDamaged, StorageError, StorageFull, StorageUnavailable
from promising.index.storage.checksums import Bytes, total

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
    """A file open for writing at its end. `path` is for messages."""

    fd: int
    path: Path


class translated:  # reads as a word of the language: `with translated(path):`
    """What the system says of `path`, as an error of the house: the one place where an OSError ends."""

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
    """The real disk. Whatever it cannot do raises StorageFull, StorageUnavailable or, for a file that should be there
    to be read, DataDamaged."""

    # --- what changes something: one system call each, or nearly ---

    def create(self, path: Path) -> Handle:
        """A new file; it is an error if there is one."""
        with translated(path):
            return Handle(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644), path)

    def append(self, path: Path) -> Handle:
        """A file that is there, to be written at its end."""
        with translated(path):
            return Handle(os.open(path, os.O_WRONLY | os.O_APPEND), path)

    def write(self, handle: Handle, parts: Sequence[Bytes]) -> None:
        """All bytes of the parts, one after the other; on an error any prefix of them may be there."""
        with translated(handle.path):
            for first in range(0, len(parts), MOST_PARTS):
                some = list(parts[first : first + MOST_PARTS])
                left = total(some) - os.writev(handle.fd, some)
                if left:
                    _write_rest(handle.fd, some, left)

    def sync(self, handle: Handle) -> None:
        """What was written is on the medium. After an error nothing is known of what was written since the last
        time, and to try again does not help: the system may have let it go."""
        with translated(handle.path):
            os.fdatasync(handle.fd)

    def truncate(self, handle: Handle, size: int) -> None:
        with translated(handle.path):
            os.ftruncate(handle.fd, size)

    def rename(self, old: Path, new: Path) -> None:
        """Whatever was at `new` is replaced, at once or not at all."""
        with translated(new):
            os.replace(old, new)

    def unlink(self, path: Path) -> None:
        """The file is gone, also if it was not there."""
        with translated(path), suppress(FileNotFoundError):
            os.unlink(path)

    def sync_dir(self, path: Path) -> None:
        """Names made, changed and removed in the folder are on the medium."""
        with translated(path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def mkdir(self, path: Path) -> None:
        """The folder and those above it are there, and on the medium."""
        with translated(path):
            if path.is_dir():
                return
        self.mkdir(path.parent)
        with translated(path):
            path.mkdir(exist_ok=True)
        try:
            self.sync_dir(path.parent)
        except StorageError:
            with suppress(OSError):
                path.rmdir()  # else the next call would take it for safe
            raise

    # --- what changes nothing ---

    def close(self, handle: Handle) -> None:
        """Never fails: what matters was synced before."""
        fd, handle.fd = handle.fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def read(self, path: Path, offset: int = 0, length: int = -1) -> bytes:
        """`length` bytes from `offset` on, or fewer if the file ends before; all that follows if it is negative."""
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
        """Fill the place, of bytes, from `offset` on; how many there were, fewer if the file ends before."""
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
        """A file will be read soon, all of it: the system may begin. Nothing is wrong if it cannot."""
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
        """The names in a folder, sorted."""
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
        """A file of these bytes, on the medium, in the place of what was there; how many they are.

        On an error there is what was there or what should be, never a part of it.
        """
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
