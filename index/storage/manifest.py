"""What exists in a store: small entries in one SQLite file, read whole at open and changed in transactions.

SQLite guards what it is writing, not what it has written: a bit that flips on the disk is a wrong value and no error.
So every entry carries a CRC32C over its kind, key and content; one row has the number of entries and the sum of their
CRCs, which finds an entry that is gone or is of another time; and the schema must be, letter by letter, the one that
was written. After each change the log beside the file is emptied into it: SQLite takes a log that fails its checksum
for one that was never finished, and would go back to the state before without a word.
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

VERSION = 1
APPLICATION = 0x50544D46  # "PTMF"
TABLES = (
    "CREATE TABLE digest (version INTEGER, entries INTEGER, crcs INTEGER)",
    "CREATE TABLE entries (kind TEXT, key TEXT, content BLOB, crc INTEGER, PRIMARY KEY (kind, key)) WITHOUT ROWID",
)
WRAP = 1 << 62  # the sum of CRCs stays a SQLite integer

Entries = dict[tuple[str, str], bytes]


class Manifest:
    """Entries by kind and key, each a JSON object. Safe to use from several threads.

    A change is there after its block, on disk and in memory, or after an error in neither.
    """

    def __init__(self, path: Path, db: sqlite3.Connection, entries: Entries, fault: Callable[[str], None]) -> None:
        self._path = path
        self._db = db
        self._entries = entries
        self._crcs = sum(_crc(kind, key, content) for (kind, key), content in entries.items()) % WRAP
        self._fault = fault
        self.stale = False
        """Whether memory may have something else than SQLite, until the next change."""
        self._writing = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, create: bool, fault: Callable[[str], None] = lambda point: None) -> "Manifest":
        """Open the manifest, or make one if there is none and `create` says so; check all of it.

        `fault` is called with "before" and "after" around each commit, for tests to fail or stop there.
        """
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
        """The entries of a kind, sorted by key, all as of one moment."""
        entries = self._entries
        return {key: _parse(entries[of, key]) for of, key in sorted(entries) if of == kind}

    @contextmanager
    def change(self) -> Iterator["Change"]:
        """One transaction: done when the block ends well, not begun if it does not. Readers see all of it or nothing.

        Raises StorageFull or StorageUnavailable if it cannot be written; then nothing has changed.
        """
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
        """After a failure, or an interruption, of which nobody knows when it came: SQLite says what there is."""
        try:
            found = _entries(self._path, self._db)
        except (sqlite3.Error, DataDamaged) as problem:
            raise StorageUnavailable(f"{self._path} cannot be read: {problem}. Nothing was changed") from problem
        self._entries = found
        self._crcs = sum(_crc(kind, key, content) for (kind, key), content in found.items()) % WRAP
        self.stale = False

    def copy_to(self, path: Path) -> None:
        """A copy as of one moment, for a path where nothing is. Changes wait meanwhile."""
        if path.exists():
            raise StorageUnavailable(f"{path} is there already; a copy of the manifest overwrites nothing")
        with self._writing, _writing(path):
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
    """What a transaction is to do; the last word on an entry counts."""

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
    """SQLite takes a file of an unknown format for one that can only be read, and says so at the first change."""
    with path.open("rb") as file:
        modes = file.read(20)[18:]
    if modes not in (b"\1\1", b"\2\2"):
        _damaged(path, "it does not start as a database does")


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
    db.text_factory = bytes  # text that is no UTF-8 any more is damage, not an error of the driver
    try:
        db.execute("PRAGMA cell_size_check=ON")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
    except BaseException:
        db.close()
        raise
    return db


def _create(path: Path) -> None:
    """A new manifest under its name, or none: what has the name is always complete."""
    unfinished = path.with_name(path.name + ".new")
    with _writing(path):
        for left in (unfinished, *(unfinished.with_name(unfinished.name + end) for end in ("-wal", "-shm"))):
            left.unlink(missing_ok=True)
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
    """All entries, after every check there is."""
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
    """All entries, each checked."""
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
    """Move what is committed from the log into the file. It is durable in either: a failure waits for the next time."""
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
    """Errors of SQLite and the system, as what the caller can do about them."""
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
    """As `_writing`; but what SQLite cannot make sense of is damage."""
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
            _damaged(path, "its tables are not those of a manifest")  # SQLite said so, in the words of the damage
        except sqlite3.Error as problem:
            if _code(problem) not in refused:
                _damaged(path, str(problem))
            raise


def _code(problem: sqlite3.Error) -> int:
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF
