"""Repair of a damaged store: removes what cannot be read, and rebuilds summaries accordingly."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from promising.errors import DataDamaged
from promising.index.check import check_stream, check_table
from promising.index.storage import records
from promising.index.storage.cold import Cold
from promising.index.storage.cold_place import place
from promising.index.storage.disk import Disk
from promising.index.storage.layout import (
    UNBOUNDED,
    Named,
    Progress,
    check_store,
    image_problem,
    named,
    no_progress,
    recovered,
    run_problem,
)
from promising.index.storage.manifest import Manifest
from promising.index.storage.store import MANIFEST, locked
from promising.index.storage.store_options import StoreOptions
from promising.index.storage.stream_store import StreamStore
from promising.index.storage.table_store import FOLDER, defined, entries_of, file_name, replayed
from promising.index.time_text import instant


def repair(path: str | os.PathLike[str], progress: Progress | None = None) -> list[str]:
    """Permanently drop what cannot be read; returns what it was, empty if there was nothing to do.

    Reads every file. Damaged files are moved or copied to `aside/`. The summaries of a stream that has lost something,
    or that contradict its tuples, are rebuilt; then two checkpoints are written, so that nothing refers to what was
    lost, and the damage is cleared. Can be rerun after an interruption. Acknowledged and readable data is never
    dropped, except that a table returns to the change before an unreadable one. A damaged manifest cannot be repaired:
    restore a backup.
    """
    root, tell = Path(path), progress or no_progress
    check_store(root)
    lock = locked(root)
    try:
        manifest = Manifest.open(root / MANIFEST, create=False)
        try:
            streams = named(manifest, root)
            out: list[str] = []
            for done, files in enumerate(streams):
                tell(done, len(streams), f"stream {files.name!r}")
                out += [f"stream {files.name!r}: {what}" for what in _Repair(root, manifest, files).run()]
            for name in manifest.all("table"):
                out += _repair_table(root, manifest, name)
            tell(len(streams), len(streams), "done")
            return out
        finally:
            manifest.close()
    finally:
        os.close(lock)


def _repair_table(root: Path, manifest: Manifest, name: str) -> Iterator[str]:
    """Return a table to its last readable change; later files are set aside."""
    disk, folder, aside = Disk(), root / FOLDER / name, root / "aside"
    table, entries = defined(manifest.get("table", name) or {}), entries_of(manifest, name)
    good = 0
    try:
        for entry in entries.values():
            replayed(disk, folder, entry, table)
            good = entry["last"]
        found = check_table(table)
        if found:
            raise DataDamaged(f"table {table.name!r} cannot be repaired: {found[0]}; restore a backup")
        return
    except DataDamaged as problem:
        if good == max(entries):
            raise
        said = str(problem)
    given_up = {last: entry for last, entry in entries.items() if last > good}
    disk.mkdir(aside)
    for entry in given_up.values():
        with suppress(DataDamaged):
            copy = aside / f"{name}-{file_name(entry['file'])}"
            disk.write_whole(copy, [disk.read(folder / file_name(entry["file"]))])
    with manifest.change() as change:
        for last in given_up:
            change.delete("change", f"{name}/{last:016x}")
        definition = manifest.get("table", name) or {}
        caps = [[stream, min(upto, good), position] for stream, upto, position in definition["caps"]]
        change.put("table", name, {**definition, "caps": caps})  # later changes will reuse these numbers
    for entry in given_up.values():
        disk.unlink(folder / file_name(entry["file"]))
    yield f"table {table.name!r}: given up: changes {good + 1:,} to {max(entries):,}: {said}; copies are in {aside}"


class _Repair:
    def __init__(self, root: Path, manifest: Manifest, files: Named) -> None:
        self.root = root
        self.manifest = manifest
        self.files = files
        self.disk = Disk()
        self.aside = root / "aside"

    def run(self) -> list[str]:
        """What was lost, and what was done about it."""
        known = self.manifest.get("store", "store") or {}
        options = StoreOptions(cold=known.get("cold"), checkpoint_bytes=UNBOUNDED, hot_tuples=UNBOUNDED)
        cold = Cold(self.disk, self.files.cold)
        numbers = self.files.checkpoints
        lost = bool(numbers) and all(image_problem(self.files.image(number)) for number in reversed(numbers))
        kept = recovered(self.files, self.manifest, self.root, self.disk, cold, options)
        try:
            out = [f"given up: {what}" for what in kept.stream.damages]
            out += [what for what in kept.report if what not in kept.stream.damages]
            out += self._orphans(kept) if lost else self._lost(kept, cold)
            if not out:  # otherwise its summaries contain lost tuples, as expected
                out = [f"not as it should be: {what}" for what in check_stream(kept.stream)]
            if out:
                kept.stream.rebuild()
                out.append("its summaries were made anew from its tuples")
                left = check_stream(kept.stream)
                if left:
                    raise DataDamaged(f"stream {self.files.name!r} cannot be repaired: {left[0]}; restore a backup")
                self._settle(kept)
            return out
        finally:
            kept.wal.close()

    def _lost(self, kept: StreamStore, cold: Cold) -> Iterator[str]:
        """Drop the unreadable runs of cold tuples."""
        with kept.stream.reading() as log:
            runs = list(log.runs)
        for run in runs:
            entry = self.files.runs.get(run)
            problem = "the manifest does not name it" if entry is None else run_problem(cold, run)
            if problem is None:
                continue
            where = self._set_aside(run)
            with kept.stream.reading() as log:
                tuples = log.lose(run)
            yield f"given up: {tuples:,} tuples{_between(entry, kept.stream.schema.time)}: {problem}{where}"

    def _orphans(self, kept: StreamStore) -> Iterator[str]:
        """Runs of a stream that lost all checkpoints: it is unknown which of their tuples the log has as well."""
        for run, entry in self.files.runs.items():
            where = self._set_aside(run)
            times = _between(entry, kept.stream.schema.time)
            yield f"given up: {entry['rows']:,} tuples{times}, which no checkpoint has{where}, to be added again"

    def _set_aside(self, run: int) -> str:
        """Copy the file of a run aside, if there is one; returns the message about it."""
        name = self.files.run(run)
        try:
            content = place(self.disk, self.files.cold).read_all(name)
        except DataDamaged:
            return ""
        self.disk.mkdir(self.aside)
        self.disk.write_whole(self.aside / f"{self.files.id}-{name}", [content])
        return f"; a copy is {self.aside / f'{self.files.id}-{name}'}"

    def _settle(self, kept: StreamStore) -> None:
        """A new segment and two checkpoints: then nothing refers to what is lost, nor to the previous log."""
        kept.wal.rotate()
        kept.wal.append(records.BEGIN, records.pack_json({"name": kept.stream.name}))
        kept.wal.sync()
        kept.stream.damages.clear()  # unreferenced files may now be deleted; the manifest forgets the damage at the end
        kept.checkpoint()
        kept.checkpoint()
        with self.manifest.change() as change:
            for key in self.manifest.all("damage"):
                if key.startswith(f"{self.files.id}/"):
                    change.delete("damage", key)


def _between(entry: dict[str, Any] | None, time: str) -> str:
    with suppress(KeyError, TypeError):
        first, last = (entry or {})["times"][time]
        return f" from {instant(first)} to {instant(last)}"
    return ""
