"""The location of cold files: a local folder, or an object store under an fsspec url."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from fsspec.core import url_to_fs

from promising.errors import BadOptions, DataDamaged, StorageUnavailable
from promising.index.storage.disk import Disk

Range = tuple[int, int]  # first byte, number of bytes


class Place(Protocol):
    """Immutable files by name, written atomically. Reading a missing one raises DataDamaged."""

    def path(self, name: str) -> str: ...

    def write(self, name: str, data: Any) -> None: ...

    def read(self, name: str, ranges: Sequence[Range]) -> list[bytes]: ...

    def read_all(self, name: str) -> bytes: ...

    def delete(self, name: str) -> None: ...

    def names(self) -> list[str]: ...


def place(disk: Disk, folder: Path | str) -> Place:
    """A path, or a url; `file://` is treated as a path, and as durable."""
    if isinstance(folder, str) and folder.startswith("file://"):
        folder = Path(folder.removeprefix("file://"))
    if isinstance(folder, Path) or "://" not in folder:
        return LocalFolder(disk, Path(folder))
    return ObjectStore(folder)


class LocalFolder:
    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def write(self, name: str, data: Any) -> None:
        self._disk.mkdir(self._folder)
        self._disk.write_whole(self._folder / name, [memoryview(data)])

    def read(self, name: str, ranges: Sequence[Range]) -> list[bytes]:
        return [self._disk.read(self._folder / name, start, length) for start, length in ranges]

    def read_all(self, name: str) -> bytes:
        return self._disk.read(self._folder / name)

    def delete(self, name: str) -> None:
        self._disk.unlink(self._folder / name)

    def names(self) -> list[str]:
        return self._disk.names(self._folder) if self._disk.exists(self._folder) else []


class ObjectStore:
    """One put per file; ranges are requested together, so that stores can answer in parallel."""

    def __init__(self, url: str) -> None:
        try:
            self._system, self._root = url_to_fs(url)
        except (ImportError, ValueError) as problem:
            raise BadOptions(f"cold tuples cannot be stored at {url}: {problem}") from problem
        self._url = url.rstrip("/")

    def path(self, name: str) -> str:
        return f"{self._url}/{name}"

    def write(self, name: str, data: Any) -> None:
        with self._reached(name):
            try:
                self._system.pipe_file(self._within(name), bytes(data))
            except FileNotFoundError:  # some file systems need the folder created
                self._system.makedirs(self._root, exist_ok=True)
                self._system.pipe_file(self._within(name), bytes(data))

    def read(self, name: str, ranges: Sequence[Range]) -> list[bytes]:
        with self._reached(name, reading=True):
            starts = [start for start, _ in ranges]
            stops = [start + length for start, length in ranges]
            found = self._system.cat_ranges([self._within(name)] * len(ranges), starts, stops, on_error="raise")
            return [bytes(part) for part in found]

    def read_all(self, name: str) -> bytes:
        with self._reached(name, reading=True):
            return bytes(self._system.cat_file(self._within(name)))

    def delete(self, name: str) -> None:
        with self._reached(name), suppress(FileNotFoundError):
            self._system.rm_file(self._within(name))

    def names(self) -> list[str]:
        with self._reached(""), suppress(FileNotFoundError):
            self._system.invalidate_cache(self._root)
            return [path.rpartition("/")[2] for path in self._system.ls(self._root, detail=False)]
        return []

    def _within(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    @contextmanager
    def _reached(self, name: str, *, reading: bool = False) -> Iterator[None]:
        """Translates all errors of a store, except for a missing file, to StorageUnavailable."""
        try:
            yield
        except Exception as problem:
            if reading and isinstance(problem, FileNotFoundError):
                raise DataDamaged(f"{self.path(name)} is missing; put it back from a backup, or repair") from problem
            said = f"{type(problem).__name__}: {problem}"
            raise StorageUnavailable(f"{self.path(name)} cannot be reached ({said}); try again later") from problem
