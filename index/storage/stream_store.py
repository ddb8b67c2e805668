"""One stream on disk: its log, checkpoints and cold tuples; recovery and compaction."""

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from promising.errors import (
    StorageError,
    StorageUnavailable,
    UnknownName,
)
from promising.index.prepared_load import Attached
from promising.index.storage import records
from promising.index.storage.cold import Cold
from promising.index.storage.cooling import Cooling
from promising.index.storage.disk import Disk
from promising.index.storage.image import write_image
from promising.index.storage.last_checkpoint import restore_last
from promising.index.storage.manifest import Change, Manifest
from promising.index.storage.package import Package
from promising.index.storage.run_ahead import run_ahead
from promising.index.storage.segments import name_of
from promising.index.storage.store_options import StoreOptions
from promising.index.storage.wal import Wal
from promising.index.storage.wal_journal import Gone, WalJournal, changes, make_again
from promising.index.stream import Stream

logger = logging.getLogger("promising.storage")

COUNTED = (
    "wal_bytes",
    "wal_syncs",
    "wal_sync_seconds",
    "checkpoints",
    "checkpoint_seconds",
    "checkpoint_failures",
    "cold_bytes_read",
)
PAUSE = 5.0  # seconds after a failure before the next attempt
SHARE = 4  # of the last image's bytes, that the log has before the next: replaying it takes several times as long
KEPT = 2  # checkpoints: the last one, and the previous one in case it is unreadable


class StreamStore:
    """Stores one stream. Files take effect once the manifest names them, and are deleted once it no longer does."""

    def __init__(
        self,
        disk: Disk,
        manifest: Manifest,
        root: Path,
        name: str,
        stream: Stream,
        cold: Cold,
        options: StoreOptions,
        syncers: Executor | None = None,
    ) -> None:
        self.stream = stream
        self.name = name
        self.cold = cold
        self.report: list[str] = []  # what recovery had to cut or set aside
        self.checkpoints = self.failures = 0
        self.checkpoint_seconds = 0.0
        self.checkpointed: float | None = None  # wall-clock time of the last checkpoint
        self.failed: str | None = None  # why the last checkpoint failed, if it did
        self._disk = disk
        self._manifest = manifest
        self._aside = root / "aside"
        self._images = root / "streams" / name / "checkpoint"
        self._folder = root / "streams" / name
        self._options = options
        self._syncers = syncers
        self._busy = threading.Lock()
        self._cooling = Cooling(cold, options)
        self._dropped = threading.Event()
        self._closed = False
        self._naming = threading.Lock()  # held while the manifest records a checkpoint, or the drop
        self._unsaved: dict[int, dict[str, Any]] = {}  # runs that the manifest does not name yet
        self._loaded = 0  # checkpoints still to be written for a load
        self._covered = 0  # the last record in the last checkpoint
        self._unreadable: set[int] = set()  # checkpoints that the manifest still names
        self._image_bytes = 0  # of the last checkpoint: large ones are written less often
        self._tried = 0  # the last checkpoint number, never reused
        self._retry = 0.0
        log = self._folder / "wal"
        relaxed = options.sync == "relaxed"
        self.wal = Wal(disk, log, aside=self._aside, segment_bytes=options.segment_bytes, relaxed=relaxed)

    # --- recovery --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Create the log of a new stream; from now on its loss is detected."""
        self.recover(new=True)
        self.wal.append(records.BEGIN, records.pack_json({"name": self.stream.name}))
        self.wal.sync()

    def recover(self, new: bool = False) -> None:
        """Recover the stream, and report what could not be."""
        for folder in ("wal", "checkpoint", "cold"):
            self._disk.mkdir(self._folder / folder)
        self._tidy()
        damages = [entry["what"] for _, entry in sorted(self._entries("damage").items())]
        known = len(damages)
        self._restore(damages)
        with self.stream.reading() as log:
            log.reader, runs = self.cold, log.runs
        for run in runs:
            entry = self._manifest.get("cold", self._key(run))
            if entry is None:
                damages.append(f"run {run} of cold tuples is not in the manifest: its tuples are lost")
            else:
                self.cold.open(run, entry)
        with run_ahead(changes(self.wal.recover(self._covered + 1))) as groups:
            for group in groups:
                for lsn, problem in make_again(self.stream, group):
                    damages.append(f"record {lsn} of the log could not be used: {problem}")
        if self.wal.cut is not None:
            self.report.append(f"{self.wal.cut.path}: {self.wal.cut.what}")
        damages += [f"{found.path}: {found.what}" for found in self.wal.damages]
        if not self.wal.segments and not new:
            damages.append(f"{self._folder / 'wal'}: there is no log; records after {self._covered}, if any, are lost")
        self.stream.damages[:] = dict.fromkeys(damages)
        self.stream.journal = WalJournal(self.wal, self._syncers, self._cooling.pace)
        if len(self.stream.damages) > known:
            self.report += self.stream.damages[known:]
            with self._manifest.change() as change:
                for number, what in enumerate(self.stream.damages):
                    change.put("damage", self._key(number), {"what": what})
        self._sync()
        if self._unreadable:
            with suppress(StorageError):  # the previous one suffices until the next
                self.checkpoint()

    def _sync(self) -> None:
        """Rewrite the newest segment, in another thread if possible, since waiting for a batch includes it."""

        def sync() -> None:
            with suppress(StorageError):  # the next waiter retries
                self.wal.sync()

        if self._syncers is None:
            sync()
        elif self.wal.durable < self.wal.last:
            self._syncers.submit(sync)

    def _restore(self, damages: list[str]) -> None:
        """Restore the last readable checkpoint."""
        log = self._folder / "wal"
        found = restore_last(
            self._disk,
            self.stream,
            self._entries("checkpoint"),
            self._image,
            self._set_aside,
            lambda: name_of(1) in self._disk.names(log),
        )
        self.stream, self._unreadable = found.stream, found.unreadable
        self.report += found.report
        damages += found.damages
        if found.entry is not None:
            self._covered, self._image_bytes = found.entry["lsn"], found.entry["bytes"]
            self.checkpointed = found.entry.get("at")

    def _set_aside(self, path: Path) -> None:
        if self._disk.exists(path):
            self._disk.mkdir(self._aside)
            self._disk.rename(path, self._aside / f"{self.name}-{path.name}")

    def _tidy(self) -> None:
        """Delete files that the manifest does not name, left by a crash."""
        named = {self._image(number).name for number in self._entries("checkpoint")}
        for name in self._disk.names(self._images):
            if name not in named:
                self._disk.unlink(self._images / name)
        self.cold.tidy(set(self._entries("cold")))

    # --- checkpoints -----------------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether a checkpoint is due: there is much log to replay, or too much in memory."""
        if time.monotonic() < self._retry:
            return False
        if self.wal.bytes_since(self._covered) >= max(self._options.checkpoint_bytes, self._image_bytes // SHARE):
            return True
        return self._cooling.due(self.stream)

    def checkpoint(self, force: bool = True) -> bool:
        """Write a checkpoint and evict old tuples; returns whether one was written. After an error, no change."""
        with self._busy:
            began = time.monotonic()
            self.failed = None
            try:
                written = self._checkpoint(force)
            except StorageError as problem:
                self.failures += 1
                self.failed = str(problem)
                self._retry = time.monotonic() + PAUSE
                raise
            if written:
                self.checkpoints += 1
                self.checkpoint_seconds += time.monotonic() - began
            return written

    def _check_open(self) -> None:
        if self._closed:
            raise StorageUnavailable(f"{self._folder} is closed; open the store again")

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """During a drop: no checkpoint is recorded, nor afterwards if the drop succeeds."""
        with self._naming:
            yield
            self._dropped.set()

    def _checkpoint(self, force: bool) -> bool:
        self._check_open()
        if self._dropped.is_set():
            return False
        try:
            for run, made in self._cooling.runs(self.stream, self._next_run):
                self._unsaved[run] = made
        except StorageError as problem:  # cold storage may be unreachable, and the log must not grow for it
            self.failed = str(problem)
            self._retry = time.monotonic() + PAUSE
        with self.stream.reading() as log:
            covered = self.wal.last
            if covered == self._covered and not self._unsaved and not force:
                return False
            image, definitions = {"lsn": covered, **self.stream.image()}, self.stream.definitions()
            runs, loads = log.runs, self.stream.has_loads()
        self.wal.sync()
        named = self._entries("checkpoint")
        number = self._tried = max(max(named, default=0), self._tried) + 1
        before = {old: entry for old, entry in named.items() if old not in self._unreadable}
        bytes_written = write_image(self._disk, self._image(number), image)
        kept = dict(sorted(before.items())[-(KEPT - 1) :])
        entry: dict[str, Any] = {
            "lsn": covered,
            "bytes": bytes_written,
            "at": round(time.time(), 3),
            "runs": runs,
            "summaries": definitions,
            "keep": image["keep"],
            "loads": loads or any(known.get("loads") for known in named.values()),
        }
        needed = {run for known in (entry, *kept.values()) for run in known["runs"]}
        if self.stream.damages:  # keep everything that a repair might use
            needed |= self._entries("cold").keys()
        gone = [run for run in self._entries("cold") if run not in needed]
        with self._naming, self._manifest.change() as change:
            if self._dropped.is_set():
                return False  # the files are deleted with the rest
            change.put("checkpoint", self._key(number), entry)
            for old in named.keys() - kept.keys():
                change.delete("checkpoint", self._key(old))
            for run, made in self._unsaved.items():
                if run in needed:
                    change.put("cold", self._key(run), made)
            for run in gone:
                change.delete("cold", self._key(run))
        gone += [run for run in self._unsaved if run not in needed]
        self._unsaved = {}
        self._loaded = max(self._loaded - 1, 0)
        self._covered, self._image_bytes = covered, bytes_written
        self._unreadable = set()
        self.checkpointed = entry["at"]
        for old in before.keys() - kept.keys():
            self._disk.unlink(self._image(old))
        for run in gone:
            self.cold.delete(run)
        if kept:
            self.wal.trim(min(known["lsn"] for known in kept.values()) + 1)
        return True

    # --- loads -----------------------------------------------------------------------------------------------------

    def attach(self, package: Package, token: str) -> Attached:
        """Attach a load, its files as runs of cold tuples; durable on return. A crash before leaves nothing of it."""
        with self._busy:
            self._check_open()
            package.check(self.stream)
            found = self.stream.loaded(token, package.digest)
            if found is None:
                found = self._attach(package, token)
                self.stream.catch_up_all()
        while self._loaded and self.checkpoint():  # the load is not in the log, so every checkpoint must have it
            pass
        return found

    def _attach(self, package: Package, token: str) -> Attached:
        runs: dict[int, dict[str, Any]] = {}
        parts = []
        next_run = self._next_run()
        with self.stream.reading() as log:
            small = log.chunk // 2  # fewer tuples would waste their own chunk
        try:
            for entry in package.parts:
                files, run = package.read(entry), None
                if entry["rows"] >= small:
                    run = next_run + len(runs)
                    runs[run] = entry["file"]
                    self.cold.keep(run, files[0], entry["file"])
                parts.append(package.part(entry, files, self.stream, run))
            with self.stream.reading():
                if self._dropped.is_set():
                    raise UnknownName(f"stream {self.stream.name!r} has been dropped")
                self._unsaved.update(runs)
                self._loaded = KEPT
                return self.stream.attach(package.load(token, parts))
        except BaseException:
            if not self.stream.broken and not self.stream.has_loads(token):
                self._loaded = 0
                for run in runs:
                    self._unsaved.pop(run, None)
                    with suppress(StorageError):
                        self.cold.delete(run)
            raise

    def stats(self) -> dict[str, float]:
        """Counts since the start, by the names in `COUNTED`."""
        log, counts = self.wal, (self.checkpoints, self.checkpoint_seconds, self.failures)
        return dict(
            zip(
                COUNTED,
                (log.bytes_written, log.syncs, log.sync_seconds, *counts, self.cold.bytes_read),
                strict=True,
            )
        )

    # --- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write a last checkpoint if possible, and close the files."""
        try:
            self.checkpoint(force=False)
        except StorageError as problem:
            self.report.append(f"no checkpoint at the end: {problem}; the log has it all")
        with self._busy:
            self._closed = True
        self.wal.close()

    def forget(self, change: Change) -> None:
        """Remove all its entries from the manifest."""
        change.delete("stream", self.name)
        for kind in ("checkpoint", "cold", "damage"):
            for number in self._entries(kind):
                change.delete(kind, self._key(number))

    def remove(self, wait: bool = True) -> bool:
        """Delete a dropped stream's files, or leave them to the next start. Without `wait`, not during a checkpoint."""
        if not self._busy.acquire(blocking=wait):
            return False
        try:
            with self.stream.reading():
                self.stream.journal = Gone(self.stream.name)
            self.wal.close()
            self.cold.remove()
            for part in ("wal", "checkpoint"):
                for name in self._disk.names(self._folder / part):
                    self._disk.unlink(self._folder / part / name)
        except StorageError as problem:
            logger.warning("files of a dropped stream are left for the next start: %s", problem)
        finally:
            self._busy.release()
        return True

    # --- names -----------------------------------------------------------------------------------------------------

    def _key(self, number: int) -> str:
        return f"{self.name}/{number:016x}"

    def _entries(self, kind: str) -> dict[int, dict[str, Any]]:
        """The manifest's entries of one kind for this stream, by number."""
        found = {}
        for key, entry in self._manifest.all(kind).items():
            owner, _, number = key.partition("/")
            if owner == self.name:
                found[int(number, 16)] = entry
        return found

    def _next_run(self) -> int:
        return max((*self._entries("cold"), *self._unsaved), default=0) + 1

    def _image(self, number: int) -> Path:
        return self._images / f"{number:016x}.image"
