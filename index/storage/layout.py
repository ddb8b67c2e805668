"""The files that a manifest names, their locations, and read-only checks of each."""

import mmap
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promising.errors import DataDamaged, NotAStore
from promising.index.storage.checksums import Bytes
from promising.index.storage.cold import Cold
from promising.index.storage.disk import NOT_THERE, Disk, Handle, translated
from promising.index.storage.image import read_image
from promising.index.storage.manifest import Manifest
from promising.index.storage.replay import Damage
from promising.index.storage.segments import HEADER, Segment, first_of, name_of
from promising.index.storage.store import MANIFEST, settings_of
from promising.index.storage.store_options import StoreOptions
from promising.index.storage.stream_store import StreamStore
from promising.index.storage.wal import Wal
from promising.index.stream import Stream

Progress = Callable[[int, int, str], None]
"""Receives the progress of a long operation: bytes done, bytes in all, and the current item."""

UNBOUNDED = 1 << 62


def no_progress(done: int, total: int, what: str) -> None:
    """Report nothing."""


class StillDisk(Disk):
    """A read-only disk that discards changes; whole files are mapped, so images may be larger than memory."""

    def create(self, path: Path) -> Handle:
        return Handle(-1, path)

    def append(self, path: Path) -> Handle:
        return Handle(-1, path)

    def overwritable(self, path: Path) -> Handle:
        return Handle(-1, path)

    def overwrite(self, handle: Handle, content: bytes, *, sync: bool) -> None: ...

    def write(self, handle: Handle, parts: Sequence[Bytes]) -> None: ...

    def sync(self, handle: Handle) -> None: ...

    def truncate(self, handle: Handle, size: int) -> None: ...

    def rename(self, old: Path, new: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def sync_dir(self, path: Path) -> None: ...

    def mkdir(self, path: Path) -> None: ...

    def names(self, path: Path) -> list[str]:
        """Empty for a folder that would have been created."""
        with translated(path):
            try:
                return super().names(path)
            except DataDamaged:
                return []

    def read(self, path: Path, offset: int = 0, length: int = -1) -> bytes:
        if offset or length >= 0 or not self.size(path):
            return super().read(path, offset, length)
        with translated(path, reading=True), path.open("rb") as file:
            mapped: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return memoryview(mapped)  # type: ignore[return-value]  # as good as bytes to all that read whole files


class StillCold(Cold):
    def tidy(self, kept: Set[int]) -> None: ...

    def delete(self, run: int) -> None: ...


@dataclass(frozen=True)
class Named:
    """The files of one stream that a manifest names."""

    id: str
    stream: dict[str, Any]
    folder: Path
    checkpoints: dict[int, dict[str, Any]]
    runs: dict[int, dict[str, Any]]
    cold: Path | str  # folder or URL of the runs

    @property
    def name(self) -> str:
        return str(self.stream["name"])

    @property
    def start(self) -> int:
        """The first record of the log that some checkpoint needs."""
        return min((entry["lsn"] for entry in self.checkpoints.values()), default=0) + 1

    def image(self, number: int) -> Path:
        return self.folder / "checkpoint" / f"{number:016x}.image"

    @property
    def wal(self) -> Path:
        return self.folder / "wal"

    def run(self, run: int) -> str:
        return f"{run:016x}.parquet"


def named(manifest: Manifest, root: Path) -> list[Named]:
    """The files that must exist under `root`, by stream."""
    known = manifest.get("store", "store") or {}
    out = []
    for name, entry in manifest.all("stream").items():
        folder = root / "streams" / name
        url = known.get("cold")
        cold = folder / "cold" if url is None else f"{url}/{known['id']}/{name}"
        out.append(Named(name, entry, folder, _of(manifest, "checkpoint", name), _of(manifest, "cold", name), cold))
    return out


def _of(manifest: Manifest, kind: str, stream: str) -> dict[int, dict[str, Any]]:
    found = (key.partition("/") for key in manifest.all(kind))
    keys = {int(number, 16): f"{owner}/{number}" for owner, _, number in found if owner == stream}
    return {number: manifest.get(kind, key) or {} for number, key in sorted(keys.items())}


def check_store(path: Path) -> None:
    """Raises unless the directory looks like a store."""
    with translated(path):
        if not path.is_dir():
            raise NotAStore(f"{path} is no directory of a store: there is nothing, or a file")
        if not (path / MANIFEST).exists() and not (path / "streams").exists():
            raise NotAStore(f"{path} is no directory of a store: it has no {MANIFEST}")


# --- one file ------------------------------------------------------------------------------------------------------


def image_problem(path: Path) -> str | None:
    """The damage to a checkpoint, by its checksums."""
    try:
        read_image(StillDisk(), path)
    except DataDamaged as problem:
        return str(problem)
    return None


def wal_damages(folder: Path, start: int) -> tuple[list[Damage], Damage | None, int]:
    """The damage to a log from a record on, its torn end if it has one, and its last record."""
    wal = Wal(StillDisk(), folder, aside=folder)
    for _ in wal.recover(start):
        pass
    return wal.damages, wal.cut, wal.last


def wal_tails(folder: Path) -> list[Damage]:
    """Segments before the last one that end with something other than records."""
    disk, out = StillDisk(), []
    segments = sorted(first for name in disk.names(folder) if (first := first_of(name)) is not None)
    for first in segments[:-1]:
        path = folder / name_of(first)
        segment = Segment(str(path), first, disk.read(path))
        at: int = HEADER
        while at < len(segment.content):
            entry = segment.at(at, first)
            if isinstance(entry, str):
                left = len(segment.content) - at
                out.append(
                    Damage(str(path), f"{entry}, in the last {left} bytes; the segment after it has all of them")
                )
                break
            at = entry.end
    return out


def run_problem(cold: Cold, run: int) -> str | None:
    """The damage to a file of cold tuples, by its checksums."""
    try:
        cold.read_whole(run)
    except DataDamaged as problem:
        return str(problem)
    return None


def runs_of(files: Named) -> Cold:
    """The cold tuples of a stream, all runs open, read-only."""
    cold = StillCold(Disk(), files.cold, cache_bytes=0)
    for run, entry in files.runs.items():
        cold.open(run, entry)
    return cold


# --- one stream ----------------------------------------------------------------------------------------------------


def recovered(
    files: Named, manifest: Manifest, root: Path, disk: Disk, cold: Cold, options: StoreOptions
) -> StreamStore:
    """A stream, recovered as at a start."""
    known = manifest.get("store", "store") or {}
    given = settings_of(files.stream)
    stream = Stream(files.name, dict(files.stream["types"]), files.stream["time"], seed=known["seed"], **given)
    kept = StreamStore(disk, manifest, root, files.id, stream, cold, options)
    kept.recover()
    return kept


def leftovers(files: Named) -> list[Path]:
    """Files in a stream's folders that the manifest does not name, except for its log."""
    wanted = {files.image(number) for number in files.checkpoints}
    if isinstance(files.cold, Path):
        wanted |= {files.cold / files.run(run) for run in files.runs}
    found = []
    for part in ("checkpoint", "cold"):
        try:
            found += [path for path in sorted((files.folder / part).iterdir()) if path not in wanted]
        except NOT_THERE:
            continue
    return found
