"""The manifest of a store: small entries in one SQLite file, read whole at open and changed in transactions.

SQLite protects writes, not stored data: a flipped bit is a wrong value and no error. So every entry has a CRC32C over
its kind, key and content; one row has the number of entries and the sum of their CRCs, which detects a missing or
outdated entry; and the schema must match exactly. After each change SQLite's log is checkpointed into the file: SQLite
treats a log with a bad checksum as unfinished, and would silently return to the previous state.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from promising.errors import DataDamaged, NewerFormat, NotAStore, StorageFull, StorageUnavailable
from promising.index.storage.checksums import crc32c
from promising.index.storage.disk import translated
from promising.index.storage.permissions import create_private

VERSION = 1
APPLICATION = 0x50544D46  # "PTMF"
TABLES = (
    "CREATE TABLE digest (version INTEGER, entries INTEGER, crcs INTEGER)",
    "CREATE TABLE entries (kind TEXT, key TEXT, content BLOB, crc INTEGER, PRIMARY KEY (kind, key)) WITHOUT ROWID",
)
WRAP = 1 << 62  # the sum of CRCs stays a SQLite integer

Entries = dict[tuple[str, str], bytes]


class Manifest:
    """Entries by kind and key, each a JSON object. Thread-safe; a change is atomic, on disk and in memory."""

    def __init__(self, path: Path, db: sqlite3.Connection, entries: Entries, fault: Callable[[str], None]) -> None:
        self._path = path
        self._db = db
        self._entries = entries
        self._crcs = sum(_crc(kind, key, content) for (kind, key), content in entries.items()) % WRAP
        self._fault = fault
        self.stale = False  # whether memory may differ from SQLite, until the next change
        self._writing = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, create: bool, fault: Callable[[str], None] = lambda point: None) -> "Manifest":
        """Open and check the manifest, or create it with `create`. `fault` is called before and after each commit."""
        with translated(path):
            there = path.exists()
        if not there:
            if not create:
                raise DataDamaged(f"{path} is missing; without it nothing of the store can be found")
            _create(path)
        with _reading(path):
            _check_modes(path)
            db = _connect(path)
            try:
                entries = _read(path, db)
            except BaseException:
                db.close()
                raise
        return cls(path, db, entries, fault)

    def close(self) -> None:
        with self._writing:
            self._db.close()

    def get(self, kind: str, key: str) -> dict[str, Any] | None:
        content = self._entries.get((kind, key))
        return None if content is None else _parse(content)

    def all(self, kind: str) -> dict[str, dict[str, Any]]:
        """The entries of a kind, sorted by key, as of one moment."""
        entries = self._entries
        return {key: _parse(entries[of, key]) for of, key in sorted(entries) if of == kind}

    @contextmanager
    def change(self) -> Iterator["Change"]:
        """One atomic transaction, committed at the end of the block; after a StorageError nothing has changed."""
        with self._writing:
            if self.stale:
                self._again()
            change = Change()
            yield change
            entries = self._entries.copy()
            crcs = self._crcs
            for (kind, key), content in change.steps.items():
                before = entries.pop((kind, key), None)
                if before is not None:
                    crcs -= _crc(kind, key, before)
                if content is not None:
                    entries[kind, key] = content
                    crcs += _crc(kind, key, content)
            crcs %= WRAP
            try:
                self._commit(change, len(entries), crcs)
            except BaseException:
                self.stale = True
                with suppress(StorageUnavailable):
                    self._again()
                raise
            self._entries, self._crcs = entries, crcs
            _empty_log(self._db)
            self._fault("after")

    def _again(self) -> None:
        """After a failure or interruption at an unknown point, reload what SQLite has."""
        try:
            found = _entries(self._path, self._db)
        except (sqlite3.Error, DataDamaged) as problem:
            raise StorageUnavailable(f"{self._path} cannot be read: {problem}. Nothing was changed") from problem
        self._entries = found
        self._crcs = sum(_crc(kind, key, content) for (kind, key), content in found.items()) % WRAP
        self.stale = False

    def copy_to(self, path: Path) -> None:
        """Copy to a new path as of one moment. Changes wait meanwhile."""
        if path.exists():
            raise StorageUnavailable(f"{path} is there already; a copy of the manifest overwrites nothing")
        with self._writing, _writing(path):
            create_private(path)
            copy = sqlite3.connect(path)
            try:
                self._db.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")  # all in one file, synced by SQLite
            except BaseException:
                copy.close()
                path.unlink(missing_ok=True)
                raise
            copy.close()
            _sync_folder(path)

    def _commit(self, change: "Change", entries: int, crcs: int) -> None:
        db = self._db
        with _writing(self._path):
            try:
                db.execute("BEGIN IMMEDIATE")
                for (kind, key), content in change.steps.items():
                    if content is None:
                        db.execute("DELETE FROM entries WHERE kind=? AND key=?", (kind, key))
                    else:
                        row = (kind, key, content, _crc(kind, key, content))
                        db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", row)
                db.execute("UPDATE digest SET entries=?, crcs=?", (entries, crcs))
                self._fault("before")
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise


class Change:
    """The steps of a transaction; the last one for an entry counts."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, str], bytes | None] = {}

    def put(self, kind: str, key: str, content: dict[str, Any]) -> None:
        text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self.steps[kind, key] = text.encode()

    def delete(self, kind: str, key: str) -> None:
        self.steps[kind, key] = None


def _crc(kind: str, key: str, content: bytes) -> int:
    return crc32c(json.dumps([kind, key]).encode(), content)


def _parse(content: bytes) -> dict[str, Any]:
    parsed = json.loads(content)
    assert isinstance(parsed, dict)
    return parsed


def _check_modes(path: Path) -> None:
    """SQLite opens a file of unknown format read-only, and reports it only at the first change."""
    with path.open("rb") as file:
        modes = file.read(20)[18:]
    if modes not in (b"\1\1", b"\2\2"):
        _damaged(path, "it does not start as a database does")


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
    db.text_factory = bytes  # text that is not UTF-8 is damage, not a driver error
    try:
        db.execute("PRAGMA cell_size_check=ON")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
    except BaseException:
        db.close()
        raise
    return db


def _create(path: Path) -> None:
    """Create a manifest atomically."""
    unfinished = path.with_name(path.name + ".new")
    with _writing(path):
        for left in (unfinished, *(unfinished.with_name(unfinished.name + end) for end in ("-wal", "-shm"))):
            left.unlink(missing_ok=True)
        create_private(unfinished)
        db = _connect(unfinished)
        try:
            db.execute("BEGIN")
            for table in TABLES:
                db.execute(table)
            db.execute("INSERT INTO digest VALUES (?, 0, 0)", (VERSION,))
            db.execute(f"PRAGMA application_id={APPLICATION}")
            db.execute(f"PRAGMA user_version={VERSION}")
            db.execute("COMMIT")
        finally:
            db.close()  # the last connection empties the log and syncs
        os.replace(unfinished, path)
        _sync_folder(path)


def _read(path: Path, db: sqlite3.Connection) -> Entries:
    """All entries, after all checks."""
    tables = [sql.decode("utf-8", "replace") for (sql,) in db.execute("SELECT sql FROM sqlite_master ORDER BY name")]
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        if tables == list(TABLES):
            _damaged(path, "its application id is not that of a manifest")
        raise NotAStore(f"{path} is a database of something else; choose another directory")
    if version > VERSION and tables != list(TABLES):
        raise NewerFormat(f"{path} has format {version}; this release reads up to {VERSION}")
    if tables != list(TABLES):
        _damaged(path, "its tables are not those of a manifest")
    digests = db.execute("SELECT version, entries, crcs FROM digest").fetchall()
    if len(digests) != 1 or digests[0][0] != version:
        _damaged(path, "its digest is not that of this format")
    if version > VERSION:
        raise NewerFormat(f"{path} has format {version}; this release reads up to {VERSION}")
    for (said,) in db.execute("PRAGMA quick_check"):
        if said != b"ok":
            _damaged(path, said.decode("utf-8", "replace"))
    entries = _entries(path, db)
    crcs = sum(_crc(kind, key, content) for (kind, key), content in entries.items())
    if digests[0] != (VERSION, len(entries), crcs % WRAP):
        _damaged(path, f"it has {len(entries)} entries that are not the {digests[0][1]} last written")
    _empty_log(db)
    return entries


def _entries(path: Path, db: sqlite3.Connection) -> Entries:
    entries: Entries = {}
    for kind, key, content, crc in db.execute("SELECT kind, key, content, crc FROM entries"):
        try:
            of, name = kind.decode(), key.decode()
            good = _crc(of, name, content) == crc
        except (AttributeError, TypeError, UnicodeDecodeError):  # of another type than was written
            good = False
        if not good:
            _damaged(path, f"entry {kind!r} {key!r} fails its checksum")
        entries[of, name] = content
    return entries


def _empty_log(db: sqlite3.Connection) -> None:
    """Move committed changes from SQLite's log to the file. Both are durable: a failure is left to the next time."""
    with suppress(sqlite3.Error):
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _damaged(path: Path, what: str) -> NoReturn:
    raise DataDamaged(f"{path} is damaged: {what}. It says what is in the store; restore it from a copy")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Translates errors of SQLite and the system."""
    try:
        with translated(path):
            yield
    except sqlite3.Error as problem:
        code = _code(problem)
        if code == sqlite3.SQLITE_FULL:
            raise StorageFull(f"{path} cannot be written: {problem}. Make space; nothing was changed") from problem
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            _damaged(path, str(problem))
        raise StorageUnavailable(f"{path} cannot be written: {problem}. Nothing was changed; try again") from problem


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """As `_writing`; but what SQLite cannot read is damage."""
    refused = (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    )
    with _writing(path):
        try:
            yield
        except UnicodeDecodeError:
            _damaged(path, "its tables are not those of a manifest")  # SQLite's message has the damaged bytes
        except sqlite3.Error as problem:
            if _code(problem) not in refused:
                _damaged(path, str(problem))
            raise


def _code(problem: sqlite3.Error) -> int:
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF
