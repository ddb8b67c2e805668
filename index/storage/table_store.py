"""A table in a store: each change is a file, written atomically and then named by the manifest; files are compacted."""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from promising.errors import DataDamaged, PromisingError, StorageError, UnknownName
from promising.index.row_versions import TableRecord
from promising.index.storage.checksums import crc32c, total
from promising.index.storage.disk import Disk
from promising.index.storage.manifest import Change, Manifest
from promising.index.storage.table_file import pack, unpack
from promising.index.table import Table

FOLDER = "tables"
MOST_FILES = 64
MOST_BYTES = 256 << 20
"""Number and bytes of change files, in addition to the table's own size, that trigger a compaction."""
SMALL = 4
PATIENCE = 16
"""Factor on MOST_FILES if the files have less than a SMALL-th of the table's bytes: a compaction costs more."""

logger = logging.getLogger("promising.storage")


def defined(entry: dict[str, Any]) -> Table:
    """An empty table, by its manifest entry."""
    options = {"retroactive": entry["retroactive"], "max_rows": entry["max_rows"]}
    return Table(entry["name"], dict(entry["types"]), entry["key"], **options)


def definition(table: Table) -> dict[str, Any]:
    """The manifest entry of a new table."""
    return {
        "name": table.name,
        "types": [[column, kind] for column, kind in table.schema.types.items()],
        "key": table.key,
        "retroactive": table.retroactive,
        "max_rows": table.max_rows,
        "caps": [],
    }


def file_name(number: int) -> str:
    return f"{number:016x}.arrow"


def entries_of(manifest: Manifest, name: str) -> dict[int, dict[str, Any]]:
    """The manifest's entries of a table's files, by the last change in each."""
    found = {key.partition("/"): entry for key, entry in manifest.all("change").items()}
    return {int(last, 16): entry for (owner, _, last), entry in found.items() if owner == name}


def read_change(disk: Disk, folder: Path, entry: dict[str, Any], table: Table) -> TableRecord:
    """The changes in one file, every checksum and number checked; raises `DataDamaged`."""
    path = folder / file_name(entry["file"])
    content = disk.read(path)
    if len(content) != entry["bytes"] or crc32c(content) != entry["crc"]:
        raise DataDamaged(f"{path} fails its checksum")
    try:
        record = unpack(content, table.schema)
    except DataDamaged as problem:
        raise DataDamaged(f"{path}: {problem}") from None
    if (record.first, record.last) != (entry["first"], entry["last"]):
        raise DataDamaged(f"{path} has changes {record.first + 1} to {record.last}, not those that it should have")
    return record


def replayed(disk: Disk, folder: Path, entry: dict[str, Any], table: Table) -> None:
    """Replay one file; after `DataDamaged` the table is unusable."""
    if not table.changes and not table.versions and entry["first"] and not entry["whole"]:
        raise DataDamaged(f"{folder}: the changes up to {entry['first']} are missing")
    record = read_change(disk, folder, entry, table)
    try:
        table.replay(record)
    except (PromisingError, ValueError, IndexError) as problem:
        raise DataDamaged(f"{folder / file_name(entry['file'])} does not fit the changes before: {problem}") from None


class TableStore:
    """The files of one table, and the journal of its changes."""

    def __init__(self, disk: Disk, manifest: Manifest, root: Path, name: str, table: Table) -> None:
        self.name = name
        self.table = table
        self.folder = root / FOLDER / name
        self._disk = disk
        self._manifest = manifest
        self._entries: dict[int, dict[str, Any]] = {}  # of the manifest, by the last change
        self._next = 0  # number of the next file, which the manifest cannot name
        self._gone = False

    def begin(self) -> None:
        """Start a new table."""
        self._disk.mkdir(self.folder)
        self.table.journal = self

    def recover(self) -> None:
        """Replay all changes. If one cannot be read, the table is set aside: it is empty, and refuses to be used."""
        self._disk.mkdir(self.folder)
        entries = self._entries = entries_of(self._manifest, self.name)
        named = {file_name(entry["file"]) for entry in entries.values()}
        for name in self._disk.names(self.folder):
            if name not in named:
                self._disk.unlink(self.folder / name)
        self._next = 1 + max((entry["file"] for entry in entries.values()), default=-1)
        for entry in entries.values():
            try:
                replayed(self._disk, self.folder, entry, self.table)
            except DataDamaged as problem:
                self.table = defined(self._definition())
                self.table.damage = (
                    f"table {self.table.name!r} is set aside: {problem}. Restore a backup, or stop the service and"
                    f" repair the store: then the table is as it was after change {entry['first']}"
                )
                break
        for stream, upto, position in self._definition()["caps"]:
            self.table.cap(stream, position, upto)
        self.table.journal = self

    def changed(self, record: TableRecord) -> None:
        """Log a change; durable on return."""
        if self._gone:
            raise UnknownName(f"table {self.table.name!r} was dropped")
        if self.table.damage is not None:
            raise DataDamaged(self.table.damage)
        self._write(record, whole=False)

    def done(self) -> None:
        """Compact the table if it has many files. A failure is harmless, and retried later."""
        sizes = [entry["bytes"] for entry in self._entries.values() if not entry["whole"]]
        files, size = len(sizes), sum(sizes)
        whole = sum(entry["bytes"] for entry in self._entries.values() if entry["whole"])
        many = files > MOST_FILES and (size * SMALL > whole or files > MOST_FILES * PATIENCE)
        if many or (files > 1 and size > MOST_BYTES + whole):
            try:
                self.fold()
            except StorageError as problem:
                logger.warning("table %r is not written anew: %s", self.table.name, problem)

    def fold(self) -> None:
        """Compact the table to one file."""
        with self.table.lock:
            old = self._entries
            if not old:
                return
            self._write(self.table.image(), whole=True)
            for entry in old.values():
                with suppress(StorageError):  # the next start removes it
                    self._disk.unlink(self.folder / file_name(entry["file"]))

    def settle(self, stream: str, arrived: int) -> bool:
        """Limit the arrivals recorded up to now; returns whether that must be recorded. See `cap`."""
        if self.table.damage is None:
            return self.table.cap(stream, arrived)
        caps = self._definition()["caps"]  # what its changes have recorded is unknown
        return not any((name, upto) == (stream, self._last) and most <= arrived for name, upto, most in caps)

    def reaches(self, stream: str) -> bool:
        """Whether a change may have recorded arrivals of the stream."""
        return self.table.damage is not None or bool(self.table.reach(stream))

    @property
    def _last(self) -> int:
        """The number of the last change."""
        return self.table.changes if self.table.damage is None else max(self._entries)

    def cap(self, change: Change, positions: dict[str, int]) -> None:
        """Record that these streams had no more arrivals before any change so far."""
        entry = self._definition()
        entry["caps"] += [[stream, self._last, position] for stream, position in positions.items()]
        change.put("table", self.name, entry)

    def forget(self, change: Change) -> None:
        """Remove all its entries from the manifest."""
        change.delete("table", self.name)
        for last in self._entries:
            change.delete("change", f"{self.name}/{last:016x}")

    def remove(self) -> None:
        """Delete the files of a dropped table; failures are left to the next start."""
        self._gone = True
        with suppress(StorageError):
            for name in self._disk.names(self.folder):
                self._disk.unlink(self.folder / name)

    def _definition(self) -> dict[str, Any]:
        entry = self._manifest.get("table", self.name)
        assert entry is not None
        return entry

    def _write(self, record: TableRecord, *, whole: bool) -> None:
        """Write a file for the record, and its manifest entry. `whole`: it replaces all others."""
        content = pack(record, self.table.schema)
        number, self._next = self._next, self._next + 1
        entry = {
            "file": number,
            "first": record.first,
            "last": record.last,
            "whole": whole,
            "bytes": total([content]),
            "crc": crc32c(content),
        }
        key = f"{self.name}/{record.last:016x}"
        path = self.folder / file_name(number)
        self._disk.write_whole(path, [content])
        try:
            with self._manifest.change() as change:
                if whole:
                    self.forget(change)
                    change.put("table", self.name, {**self._definition(), "caps": []})
                change.put("change", key, entry)
        except StorageError:
            if self._manifest.get("change", key) != entry:
                if not self._manifest.stale:  # else it is unknown whether the file is named
                    with suppress(StorageError):
                        self._disk.unlink(path)
                raise
        self._entries = {record.last: entry} if whole else {**self._entries, record.last: entry}
