"""Verification of a store: every checksum, every invariant, and every summary recomputed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from promising.errors import DataDamaged, StoreInUse
from promising.index.check import check_stream, check_table
from promising.index.storage.disk import Disk
from promising.index.storage.layout import (
    UNBOUNDED,
    Named,
    Progress,
    StillCold,
    StillDisk,
    check_store,
    image_problem,
    leftovers,
    named,
    no_progress,
    recovered,
    run_problem,
    runs_of,
    wal_damages,
    wal_tails,
)
from promising.index.storage.manifest import Manifest
from promising.index.storage.segments import first_of
from promising.index.storage.store import LOCK, MANIFEST, locked
from promising.index.storage.store_options import StoreOptions
from promising.index.storage.table_store import FOLDER, defined, entries_of, file_name, read_change, replayed

Severity = Literal["error", "warning"]


class Finding(NamedTuple):
    """A problem. An error is a loss, or a wrong answer; a warning is neither."""

    severity: Severity
    path: str
    what: str


def verify(path: str | os.PathLike[str], progress: Progress | None = None) -> list[Finding]:
    """All problems of a store; empty if there are none. Changes nothing but the lock.

    Every file is read and checked; every stream is recovered in memory, one at a time, as at a start, and its summaries
    are recomputed from its tuples. Raises `StoreInUse` while a process has the store open: verify a backup instead.
    """
    root = Path(path)
    check_store(root)
    try:
        lock = locked(root)
    except StoreInUse as problem:
        raise StoreInUse(f"{problem}; or make a backup of it as it runs, and verify that") from None
    try:
        with tempfile.TemporaryDirectory(prefix="promising-verify-") as scratch:
            return list(_findings(root, Path(scratch), progress or no_progress))
    finally:
        os.close(lock)


def _findings(root: Path, scratch: Path, progress: Progress) -> Iterator[Finding]:
    try:
        manifest = _manifest(root, scratch)
    except DataDamaged as problem:
        yield Finding("error", str(root / MANIFEST), str(problem))
        return
    try:
        streams = named(manifest, root)
        done, total = 0, sum(_size(files) for files in streams)
        for files in streams:
            progress(done, total, f"the files of stream {files.name!r}")
            found = list(_files(files))
            yield from found
            progress(done + _size(files) // 2, total, f"the summaries of stream {files.name!r}")
            said = tuple(finding.path for finding in found)
            yield from (f for f in _stream(files, manifest, root) if not f.what.startswith(said))
            done += _size(files)
        for name in manifest.all("table"):
            yield from _table(manifest, root, name)
        yield from _unknown(root, {files.id for files in streams}, set(manifest.all("table")))
        progress(total, total, "done")
    finally:
        manifest.close()


def _manifest(root: Path, scratch: Path) -> Manifest:
    """The manifest, from a copy: opening one may write to it."""
    for end in ("", "-wal"):
        if (root / (MANIFEST + end)).exists():
            shutil.copyfile(root / (MANIFEST + end), scratch / (MANIFEST + end))
    if not (scratch / MANIFEST).exists():
        raise DataDamaged(f"{root / MANIFEST} is missing; without it nothing of the store can be found")
    try:
        return Manifest.open(scratch / MANIFEST, create=False)
    except DataDamaged as problem:
        raise DataDamaged(str(problem).replace(str(scratch), str(root))) from None


def _size(files: Named) -> int:
    """Approximate bytes to read of a stream."""
    wal = sum(path.stat().st_size for path in files.wal.glob("*.wal")) if files.wal.is_dir() else 0
    entries = (*files.checkpoints.values(), *files.runs.values())
    return wal + sum(int(entry["bytes"]) for entry in entries)


def _files(files: Named) -> Iterator[Finding]:
    """The checksums of every file, whether a start needs it or not."""
    for number in files.checkpoints:
        problem = image_problem(files.image(number))
        if problem is not None:
            yield Finding("error", str(files.image(number)), problem)
    segments = [first for path in files.wal.glob("*.wal") if (first := first_of(path.name)) is not None]
    damages, cut, _ = wal_damages(files.wal, min([files.start, *segments]))
    for damage in damages:
        yield Finding("error", damage.path, damage.what)
    damaged = {damage.path for damage in damages}
    for tail in wal_tails(files.wal):
        if tail.path not in damaged:
            yield Finding("warning", tail.path, tail.what)
    if cut is not None:
        yield Finding("warning", cut.path, f"a record was being written when the process ended: {cut.what}")
    cold = runs_of(files)
    for run in files.runs:
        problem = run_problem(cold, run)
        if problem is not None:
            yield Finding("error", f"{files.cold}/{files.run(run)}", problem)
    for path in leftovers(files):
        yield Finding("warning", str(path), "the manifest does not name it; the next start removes it")


def _stream(files: Named, manifest: Manifest, root: Path) -> Iterator[Finding]:
    """Problems found in recovering a stream, and violated invariants."""
    disk = StillDisk()
    options = StoreOptions(checkpoint_bytes=UNBOUNDED, hot_tuples=UNBOUNDED)
    kept = recovered(files, manifest, root, disk, StillCold(Disk(), files.cold), options)
    where = str(files.folder)
    yield from (Finding("error", where, what) for what in kept.stream.damages)
    yield from (Finding("error", where, f"stream {files.name!r}: {what}") for what in check_stream(kept.stream))


def _table(manifest: Manifest, root: Path, name: str) -> Iterator[Finding]:
    """The checksum of every file of a table, and problems in replaying its changes."""
    folder, disk = root / FOLDER / name, StillDisk()
    table, entries = defined(manifest.get("table", name) or {}), entries_of(manifest, name)
    whole = True
    for entry in entries.values():
        try:
            if whole:
                replayed(disk, folder, entry, table)
            else:
                read_change(disk, folder, entry, table)
        except DataDamaged as problem:
            whole = False
            yield Finding("error", str(folder / file_name(entry["file"])), f"table {table.name!r}: {problem}")
    if whole:
        yield from (Finding("error", str(folder), f"table {table.name!r}: {what}") for what in check_table(table))
    named = {file_name(entry["file"]) for entry in entries.values()}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name not in named:
            yield Finding("warning", str(path), "the manifest does not name it; the next start removes it")


def _unknown(root: Path, streams: set[str], tables: set[str]) -> Iterator[Finding]:
    """Files in the directory that are not in the manifest."""
    ours = (LOCK, MANIFEST, MANIFEST + "-wal", MANIFEST + "-shm", "streams", FOLDER, "aside")
    for path in sorted(root.iterdir()):
        if path.name not in ours:
            yield Finding("warning", str(path), "no store has put it there")
    for folder, known, what in (("streams", streams, "stream"), (FOLDER, tables, "table")):
        for path in sorted((root / folder).iterdir()) if (root / folder).is_dir() else ():
            if path.name not in known and any(part.is_file() for part in path.rglob("*")):
                yield Finding("warning", str(path), f"it is of no {what}; the next start removes its files")
    if (root / "aside").is_dir():
        for path in sorted((root / "aside").iterdir()):
            yield Finding("warning", str(path), "it is damaged and was set aside; remove it when it is of no use")
