"""A disk that fails when told to, and forgets what was not synced when the power goes."""

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from promising.errors import StorageError
from promising.index.storage.checksums import Bytes
from promising.index.storage.disk import Disk, Handle, translated

FREEING = ("truncate", "unlink")  # what a full disk still does


class Crash(BaseException):
    """The process ends here: nothing on the way out may touch the disk."""


@dataclass(eq=False)
class _File:
    """One file, under whatever name. `synced` is what survives for sure."""

    synced: bytes = b""
    failed: bool = False  # a sync of it failed: what was not synced by then may be gone, whatever later ones say
    gone: bytes | None = None  # what was in it when its last name went


@dataclass
class _Change:
    """To the names of a folder, and not synced yet: `new` is now this file, `old` and what was removed are not."""

    folder: Path
    new: Path | None
    old: Path | None
    file: _File | None


@dataclass(eq=False)
class _Fault:
    at: int
    code: int = 0  # 0: crash
    lasting: bool = False
    short: bool = False


@dataclass(eq=False)
class FlakyDisk(Disk):
    """Counts every call that changes something, in `calls` by name, and fails at the ones it is told to.

    What survives is what it says itself, so a sync does not wait for the medium.
    The n-th call from the start is number n, from 1 on. Calls must not come from two threads while a fault is set if
    a test is to repeat itself.
    """

    seed: int = 0
    calls: list[str] = field(default_factory=list)
    crashed: bool = False

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._lock = threading.RLock()
        self._fault: _Fault | None = None
        self._open: dict[Handle, _File] = {}
        self._names: dict[Path, _File] = {}
        self._safe: dict[Path, _File] = {}  # the names that survive for sure
        self._changes: list[_Change] = []

    # --- what a test tells it ---

    def fail_at(self, number: int, code: int = errno.ENOSPC, *, lasting: bool = False, short: bool = False) -> None:
        """Call `number` fails; with `lasting` all after it too, until `mend`. `short`: of a write a part is done."""
        self._fault = _Fault(number, code, lasting, short)

    def fail_next(self, code: int = errno.ENOSPC, *, lasting: bool = False, short: bool = False) -> None:
        self.fail_at(len(self.calls) + 1, code, lasting=lasting, short=short)

    def crash_at(self, number: int) -> None:
        """At call `number` the process ends: before it, after it, or in the middle if it is a write."""
        self._fault = _Fault(number)

    def mend(self) -> None:
        """No more faults."""
        self._fault = None

    def kill(self) -> None:
        """The process has ended: its files are closed, and as it left them. The disk can be used by the next one."""
        for handle in list(self._open):
            super().close(handle)
        self._open.clear()
        self.crashed = False
        self._fault = None

    def lose(self) -> None:
        """The power has gone: of what was not synced, anything may be lost."""
        self.kill()
        after = dict(self._safe)
        for change in self._changes:
            if self._random.random() < 0.5:
                _apply(change, after)
        contents = {path: self._left_of(file) for path, file in after.items()}
        for path in self._names.keys() | after.keys():
            if path in contents:
                path.write_bytes(contents[path])
            else:
                path.unlink(missing_ok=True)
        self._names.clear()
        self._safe.clear()
        self._changes.clear()

    def _left_of(self, file: _File) -> bytes:
        """What is in a file after the power went: what was synced, and a prefix of what was written since."""
        now = self._content(file)
        same = len(file.synced)
        if not now.startswith(file.synced):
            if self._random.random() < 0.5:
                return file.synced  # it was cut since, and that comes undone
            same = next((i for i, (a, b) in enumerate(zip(now, file.synced, strict=False)) if a != b), len(now))
        return now[: self._random.randint(same, len(now))]

    # --- what can fail ---

    @contextmanager
    def _call(self, name: str, path: Path, partly: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Count a call and let it fail, or crash before or after it, if it is to. `partly` does a part of it."""
        with self._lock:
            self._alive()
            self.calls.append(name)
            number, fault = len(self.calls), self._fault
            if fault is None or not (number == fault.at or (fault.lasting and number > fault.at)):
                yield
            elif not fault.code:
                self.crashed = True
                if self._random.random() < 0.5:
                    partly()
                else:
                    self.crashed = False  # for what the call is made of
                    try:
                        yield
                    finally:
                        self.crashed = True
                raise Crash
            elif fault.lasting and fault.code == errno.ENOSPC and name in FREEING:
                yield
            else:
                if fault.short:
                    partly()
                with translated(path):
                    raise OSError(fault.code, os.strerror(fault.code))

    def create(self, path: Path) -> Handle:
        with self._call("create", path):
            handle = super().create(path)
            self._open[handle] = self._names[path] = file = _File()
            self._changes.append(_Change(path.parent, path, None, file))
        return handle

    def append(self, path: Path) -> Handle:
        with self._call("append", path):
            handle = super().append(path)
            self._open[handle] = self._file(path)
        return handle

    def write(self, handle: Handle, parts: Sequence[Bytes]) -> None:
        def partly() -> None:
            content = b"".join(parts)
            Disk.write(self, handle, [content[: self._random.randrange(len(content) or 1)]])

        with self._call("write", handle.path, partly):
            super().write(handle, parts)

    def sync(self, handle: Handle) -> None:
        file = self._open[handle]
        try:
            with self._call("sync", handle.path):
                if not file.failed:
                    file.synced = self._content(file)
        except StorageError:
            file.failed = True
            raise

    def truncate(self, handle: Handle, size: int) -> None:
        with self._call("truncate", handle.path):
            super().truncate(handle, size)

    def rename(self, old: Path, new: Path) -> None:
        with self._call("rename", new):
            file = self._file(old)
            self._forget(new)
            super().rename(old, new)
            self._names[new] = self._names.pop(old)
            self._changes.append(_Change(new.parent, new, old, file))

    def unlink(self, path: Path) -> None:
        with self._call("unlink", path):
            self._forget(path)
            super().unlink(path)
            self._changes.append(_Change(path.parent, None, path, None))

    def sync_dir(self, path: Path) -> None:
        with self._call("sync_dir", path):
            for change in self._changes:
                if change.folder == path:
                    _apply(change, self._safe)
            self._changes = [change for change in self._changes if change.folder != path]

    def mkdir(self, path: Path) -> None:
        with self._call("mkdir", path):
            super().mkdir(path)

    # --- what cannot, but for a crash ---

    def close(self, handle: Handle) -> None:
        with self._lock:
            self._open.pop(handle, None)
            super().close(handle)

    def read(self, path: Path, offset: int = 0, length: int = -1) -> bytes:
        self._alive()
        return super().read(path, offset, length)

    def read_into(self, path: Path, offset: int, place: memoryview) -> int:
        self._alive()
        return super().read_into(path, offset, place)

    def size(self, path: Path) -> int:
        self._alive()
        return super().size(path)

    def names(self, path: Path) -> list[str]:
        self._alive()
        return super().names(path)

    def exists(self, path: Path) -> bool:
        self._alive()
        return super().exists(path)

    def _alive(self) -> None:
        if self.crashed:
            raise Crash

    # --- what it remembers ---

    def _file(self, path: Path) -> _File:
        """The file of this name; one that was there before is safe."""
        if path not in self._names:
            self._names[path] = self._safe[path] = _File(path.read_bytes())
        return self._names[path]

    def _content(self, file: _File) -> bytes:
        if file.gone is not None:
            return file.gone
        return next(path for path, other in self._names.items() if other is file).read_bytes()

    def _forget(self, path: Path) -> None:
        """The name goes; what was under it may yet come back."""
        if path.exists():
            self._file(path).gone = path.read_bytes()
            del self._names[path]


def _apply(change: _Change, names: dict[Path, _File]) -> None:
    if change.old is not None:
        names.pop(change.old, None)
    if change.new is not None and change.file is not None:
        names[change.new] = change.file
