"""Online backup of a store, and restore.

The manifest is copied as of one moment. The checkpoints and the log it needs are opened right after, so that they stay
readable even if the store removes them. Files of cold tuples and of tables never change; if one is removed before it is
copied, a newer manifest no longer names it, and the copy starts again, reusing what it has. Everything acknowledged
before the backup began is in it.
"""

import io
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from promising.errors import DataDamaged, NotAStore, StorageUnavailable
from promising.index.storage.checksums import crc32c
from promising.index.storage.cold_place import place
from promising.index.storage.disk import Disk, translated
from promising.index.storage.layout import (
    Named,
    Progress,
    check_store,
    image_problem,
    named,
    no_progress,
    run_problem,
    runs_of,
    wal_damages,
)
from promising.index.storage.manifest import Manifest
from promising.index.storage.permissions import PRIVATE_FOLDER, create_private, private_opener
from promising.index.storage.segments import first_of
from promising.index.storage.store import MANIFEST
from promising.index.storage.synced import NAME
from promising.index.storage.table_store import FOLDER, defined, entries_of, file_name, read_change

ATTEMPTS = 8
PIECE = 4 << 20
PART = ".part"


@dataclass
class BackupReport:
    """What was copied. `damages` are those of the source: the copy of a damaged store is damaged too."""

    streams: int = 0
    tables: int = 0
    files: int = 0
    bytes: int = 0
    attempts: int = 1
    damages: list[str] = field(default_factory=list)


def backup(
    source: str | os.PathLike[str], target: str | os.PathLike[str], progress: Progress | None = None
) -> BackupReport:
    """Copy a store, even in use, and its cold tuples to a new or empty directory, named once complete and durable."""
    return _copied(Path(source), Path(target), progress or no_progress, strict=False)


def restore(
    source: str | os.PathLike[str], target: str | os.PathLike[str], progress: Progress | None = None
) -> BackupReport:
    """Copy a backup to a new or empty directory; `DataDamaged` if a checksum fails."""
    return _copied(Path(source), Path(target), progress or no_progress, strict=True)


def _copied(source: Path, target: Path, progress: Progress, strict: bool) -> BackupReport:
    check_store(source)
    part = _prepared(source, target)
    with translated(part):
        try:
            report = _attempts(source, part, progress)
            if strict and report.damages:
                more = f", and {len(report.damages) - 1} more" if len(report.damages) > 1 else ""
                raise DataDamaged(
                    f"{source} is damaged: {report.damages[0]}{more}. Nothing was restored; repair it first, or take"
                    " another backup"
                )
            _sync_folders(part)
            os.rename(part, target)  # also over an empty directory
            _sync(target.parent)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return report


def _prepared(source: Path, target: Path) -> Path:
    """A new directory beside the target, which is missing or empty."""
    part = target.with_name(target.name + PART)
    with translated(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise NotAStore(f"{target} is there and not empty; choose a new directory")
        if source.resolve() in (target.resolve(), *target.resolve().parents):
            raise NotAStore(f"{target} lies in the store that is to be copied; choose a directory outside")
        if part.exists():
            raise NotAStore(f"{part} is left of a copy that was not finished, or is being made; remove it first")
        target.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir(PRIVATE_FOLDER)
    return part


def _attempts(source: Path, part: Path, progress: Progress) -> BackupReport:
    before: set[str] = set()
    had: dict[Path, dict[str, Any]] = {}
    for attempt in range(1, ATTEMPTS + 1):
        copy = _Copy(source, part, progress, had)
        try:
            gone = copy.run()
        except DataDamaged:
            if attempt > 1:
                raise
            continue
        if attempt == 1 and copy.report.damages:  # it may have been read during a write
            continue
        if gone <= before:  # named by two manifests and absent: missing, not removed
            copy.report.attempts = attempt
            copy.report.damages += [f"{path} is missing" for path in sorted(gone)]
            return copy.report
        before = gone
    raise StorageUnavailable(
        f"{source} removes files faster than they can be copied, such as {min(gone)}; try again when it has less to do"
    )


class _Copy:
    """One attempt. Immutable files that an earlier attempt copied are not copied again."""

    def __init__(self, source: Path, part: Path, progress: Progress, had: dict[Path, dict[str, Any]]) -> None:
        self.source = source
        self.part = part
        self.report = BackupReport()
        self._progress = progress
        self._had = had  # cold files copied by earlier attempts, with their manifest entries
        self._done = self._total = 0
        self._gone: set[str] = set()

    def run(self) -> set[str]:
        """Copy everything in the current manifest; returns what was absent."""
        self._clear()
        _snapshot(self.source / MANIFEST, self.part / MANIFEST)
        manifest = Manifest.open(self.part / MANIFEST, create=False)
        with closing(manifest), ExitStack() as held:
            there = named(manifest, self.source)
            opened = {files.id: self._open(files, held) for files in there}
            self._settle(manifest)
            here = named(manifest, self.part)
            self._total = sum(size for sizes in opened.values() for _, size, _ in sizes)
            self._total += sum(entry["bytes"] for files in there for entry in files.runs.values())
            self._total += sum(entry["bytes"] for entry in manifest.all("change").values())
            for files, copied in zip(there, here, strict=True):
                self._stream(files, copied, opened[files.id])
                self.report.streams += 1
            for name in manifest.all("table"):
                self._table(manifest, name)
                self.report.tables += 1
        self._count(self.part / MANIFEST)
        self._check(here)
        self._progress(self._total, self._total, "done")
        return self._gone

    def _clear(self) -> None:
        """Remove files that change between attempts."""
        for path in (
            *self.part.glob(MANIFEST + "*"),
            *self.part.glob("streams/*/wal/*"),
            *self.part.glob(f"{FOLDER}/*/*"),
        ):
            path.unlink()

    def _settle(self, manifest: Manifest) -> None:
        """The copy has its cold tuples in its own directory."""
        known = manifest.get("store", "store")
        if known is None:
            raise DataDamaged(f"{self.source / MANIFEST} does not say whose store it is")
        if known["cold"] is not None:
            with manifest.change() as change:
                change.put("store", "store", {**known, "cold": None})

    # --- a stream --------------------------------------------------------------------------------------------------

    def _open(self, files: Named, held: ExitStack) -> list[tuple[BinaryIO, int, Path]]:
        """Checkpoints and log of a stream: the file, its current size, and its path within the store."""
        out: list[tuple[BinaryIO, int, Path]] = []
        for number in files.checkpoints:
            file = self._held(files.image(number), held)
            if file is not None:
                out.append((file, os.fstat(file.fileno()).st_size, files.image(number).relative_to(self.source)))
        with suppress(FileNotFoundError):  # read before the log, which then has at least that much
            mark = (files.wal / NAME).read_bytes()
            out.append((io.BytesIO(mark), len(mark), (files.wal / NAME).relative_to(self.source)))
        known: set[str] = set()
        while new := self._segments(files) - known:
            # A segment ends with a seal once there is a next one: so look for another after each size.
            for name in sorted(new):
                file = self._held(files.wal / name, held)
                if file is not None:
                    out.append((file, os.fstat(file.fileno()).st_size, (files.wal / name).relative_to(self.source)))
            known |= new
        if not known:  # every stream has a log
            self._gone.add(str(files.wal))
        return out

    def _segments(self, files: Named) -> set[str]:
        try:
            found = [name for name in os.listdir(files.wal) if first_of(name) is not None]
        except FileNotFoundError:
            return set()
        older = [name for name in sorted(found) if (first_of(name) or 0) <= files.start]
        return set(found) - set(older[:-1])

    def _held(self, path: Path, held: ExitStack) -> BinaryIO | None:
        try:
            return held.enter_context(path.open("rb"))
        except FileNotFoundError:
            self._gone.add(str(path))
            return None

    def _stream(self, files: Named, copied: Named, opened: list[tuple[BinaryIO, int, Path]]) -> None:
        for folder in ("wal", "checkpoint", "cold"):
            Disk().mkdir(copied.folder / folder)
        for file, size, within in opened:
            self._copy(_pieces(file, size), self.part / within, size)
        assert isinstance(copied.cold, Path)
        where = place(Disk(), files.cold)
        for run, entry in files.runs.items():
            path = copied.cold / files.run(run)
            if path.exists() and self._had[path] != entry:  # the number of a deleted run was reused
                path.unlink()
            self._had[path] = entry
            if path.exists():
                self._advance(entry["bytes"], path)
                self._count(path)
                continue
            try:
                content = where.read_all(files.run(run))
            except DataDamaged:
                self._gone.add(where.path(files.run(run)))
                continue
            self._copy(_pieces(io.BytesIO(content), len(content)), path, entry["bytes"])
        wanted = {copied.image(n) for n in copied.checkpoints} | {copied.cold / copied.run(r) for r in copied.runs}
        for path in (*copied.folder.glob("checkpoint/*"), *copied.folder.glob("cold/*")):
            if path not in wanted:  # of an earlier attempt
                path.unlink()

    def _table(self, manifest: Manifest, name: str) -> None:
        within = Path(FOLDER) / name
        Disk().mkdir(self.part / within)
        table = defined(manifest.get("table", name) or {})
        for entry in entries_of(manifest, name).values():
            path = within / file_name(entry["file"])
            try:
                content = (self.source / path).read_bytes()
            except FileNotFoundError:
                self._gone.add(str(self.source / path))
                continue
            self._copy(_pieces(io.BytesIO(content), len(content)), self.part / path, len(content))
            try:
                read_change(Disk(), self.part / within, entry, table)
            except DataDamaged as problem:
                self.report.damages.append(str(problem).replace(str(self.part), str(self.source)))

    def _copy(self, pieces: Iterator[bytes], path: Path, size: int) -> None:
        """Write a file, sync it, and verify it."""
        if path.exists():
            self._advance(size, path)
        else:
            sums = []
            unfinished = path.with_name(path.name + PART)
            with open(unfinished, "wb", opener=private_opener) as file:
                for piece in pieces:
                    sums.append(crc32c(piece))
                    file.write(piece)
                    self._advance(len(piece), path)
                file.flush()
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # read back from the medium, if possible
            with unfinished.open("rb") as written:
                found = [crc32c(piece) for piece in _pieces(written, os.fstat(written.fileno()).st_size)]
            if found != sums:
                raise StorageUnavailable(f"{path} is not what was written to it; look at the disk of the backup")
            unfinished.rename(path)
        self._count(path)

    def _advance(self, size: int, path: Path) -> None:
        self._done += size
        self._progress(min(self._done, self._total), self._total, path.name)

    def _count(self, path: Path) -> None:
        self.report.files += 1
        self.report.bytes += path.stat().st_size

    # --- verification ----------------------------------------------------------------------------------------------

    def _check(self, streams: list[Named]) -> None:
        """Check every checksum of the copy: a failure was in the source too."""
        for files in streams:
            problems = [image_problem(files.image(n)) for n in files.checkpoints if files.image(n).exists()]
            problems += [f"{found.path}: {found.what}" for found in wal_damages(files.wal, files.start)[0]]
            cold = runs_of(files)
            assert isinstance(files.cold, Path)
            problems += [run_problem(cold, run) for run in files.runs if (files.cold / files.run(run)).exists()]
            here, there = str(self.part), str(self.source)
            self.report.damages += [problem.replace(here, there) for problem in problems if problem is not None]


def _snapshot(source: Path, target: Path) -> None:
    """The manifest as of one moment, by SQLite's backup; writers continue."""
    if not source.exists():
        raise DataDamaged(f"{source} is missing; without it nothing of the store can be found")
    # Without a WAL file nobody has it open: immutable mode creates no files and needs no write permission.
    mode = "mode=ro" if source.with_name(source.name + "-wal").exists() else "mode=ro&immutable=1"
    create_private(target)
    try:
        with _closed(f"file:{quote(str(source.resolve()))}?{mode}") as there, _closed(str(target)) as here:
            there.backup(here)
            here.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as problem:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise DataDamaged(f"{source} is damaged: {problem}. It says what is in the store") from problem
        raise StorageUnavailable(f"{source} cannot be read: {problem}; try again") from problem


@contextmanager
def _closed(name: str) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(name, timeout=10, uri=name.startswith("file:"), isolation_level=None)
    try:
        yield db
    finally:
        db.close()


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The first `size` bytes, in equal pieces but the last."""
    file.seek(0)
    while size and (piece := file.read(min(PIECE, size))):
        yield piece
        size -= len(piece)


def _sync_folders(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for name in names:
            _sync(Path(folder) / name)
        _sync(Path(folder))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
