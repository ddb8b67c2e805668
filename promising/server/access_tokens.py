"""Access tokens and their roles: an SQLite file of hashes."""

import errno
import hashlib
import hmac
import os
import re
import secrets
import shlex
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import quote

from promising.errors import BadRequest, BadSettings, DuplicateName, UnknownName
from promising.index.storage.permissions import PRIVATE_FILE, create_private, user
from promising.settings import Role

ROLES = frozenset(get_args(Role))
LATEST = 253_402_300_799  # seconds: the end of year 9999
LONGEST_LIFE = 100 * 366 * 86_400  # seconds
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SECRET = re.compile(r"prm_([0-9a-f]{12})_([0-9a-f]{64})")
WAIT_SECONDS = 5.0  # for another writing process
TICK_SECONDS = 2.0  # of the clock of any file system, at most

SCHEMA = """
CREATE TABLE IF NOT EXISTS tokens (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    roles TEXT NOT NULL,
    hash BLOB NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Caller:
    """A caller and its roles. `by`: what it is known by; a token and a certificate of one name are two clients."""

    name: str
    roles: frozenset[str]
    by: Literal["token", "certificate", "address", "nothing"] = "token"

    @property
    def client(self) -> str:
        """Whose limits and resume tokens apply."""
        return f"{self.by}:{self.name}"

    def may(self, role: str) -> bool:
        """Whether the caller has the role; an admin has every role."""
        return role in self.roles or "admin" in self.roles


@dataclass(frozen=True)
class Token:
    """A token without its secret."""

    name: str
    roles: frozenset[str]
    created: datetime
    expires: datetime | None


class TokenStore:
    """The tokens of one file. Any number of processes may share it; each sees changes, and another file renamed to its
    path, at its next access.

    A secret has 256 random bits, so one round of SHA-256 without salt is enough. The first `create` creates the file,
    readable by its owner only. It is one file, with a rollback journal during a change: a write-ahead log beside it
    would be taken for that of a file renamed to its path. Thread-safe.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None  # detects changes by others
        self._seen: tuple[object, ...] = ()  # of the file when its tokens were read
        self._settled = False  # whether any later change alters the times of the file
        self._tokens: dict[str, tuple[str, frozenset[str], bytes, float | None]] = {}

    def create(self, name: str, roles: str | Iterable[str], expires_seconds: float | None = None) -> str:
        """Create a token; returns the secret, which is not stored."""
        given = frozenset([roles] if isinstance(roles, str) else roles)
        if not NAME.fullmatch(name):
            raise BadRequest("a token's name has 1 to 64 letters, digits, dots, dashes and underscores", "name")
        if not given or given - ROLES:
            raise BadRequest(f"a role is one of {', '.join(sorted(ROLES))}", "role")
        if expires_seconds is not None and not 0 < expires_seconds <= LONGEST_LIFE:
            raise BadRequest("a token expires after some time, within a hundred years", "expires")
        number = secrets.token_hex(6)
        secret = f"prm_{number}_{secrets.token_hex(32)}"
        now = int(self._clock())
        expires = None if expires_seconds is None else now + max(1, int(expires_seconds))
        row = (number, name, ",".join(sorted(given)), _hash(secret), now, expires)
        with self._changing(make=True) as database:
            try:
                database.execute(
                    "INSERT INTO tokens (id, name, roles, hash, created, expires) VALUES (?,?,?,?,?,?)", row
                )
            except sqlite3.IntegrityError:
                raise DuplicateName(
                    f"there is a token {name!r} already; revoke it first, or pick another name"
                ) from None
        return secret

    def list(self) -> list[Token]:
        """All tokens by name, expired ones included."""
        with self._changing() as database:
            rows = database.execute("SELECT name, roles, created, expires, hash FROM tokens ORDER BY name").fetchall()
            return [
                Token(name, _roles(name, roles, stored), _date(created), None if expires is None else _date(expires))
                for name, roles, created, expires, stored in rows
            ]

    def revoke(self, name: str) -> None:
        """Delete a token, durably: further calls with it are refused, and a service ends those that run."""
        with self._changing() as database:
            if database.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount == 0:
                raise UnknownName(f"there is no token {name!r}")

    def check(self, secret: str, *, wait: bool = True) -> Caller | None:
        """The owner of a secret; None if unknown or expired. Some microseconds, unless the file has changed."""
        form = SECRET.fullmatch(secret)
        if form is None:
            return None
        self.refresh(wait=wait)
        found = self._tokens.get(form.group(1))
        if found is None:
            return None
        name, roles, stored, expires = found
        if not hmac.compare_digest(stored, _hash(secret)) or (expires is not None and self._clock() >= expires):
            return None
        return Caller(name, roles)

    def refresh(self, *, wait: bool = True) -> None:
        """Read what has changed. Without `wait` it raises BlockingIOError while another process writes to the file."""
        if not self._lock.acquire(timeout=WAIT_SECONDS if wait else 0):
            raise self._locked() if wait else BlockingIOError
        try:
            with self._translated():
                self._read(wait)
        except BlockingIOError:
            if wait:
                raise self._locked() from None
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        with self._lock:
            self._close()

    # --- the file --------------------------------------------------------------------------------------------------

    def _read(self, wait: bool) -> None:
        """Read the tokens, if the file has changed since.

        A change within the same tick of the file system's clock leaves the times as they are, so for some seconds after
        a change SQLite is asked too.
        """
        try:
            now, found = self._clock(), os.stat(self.path)
            stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if self._database is not None and self._seen[:1] == (stamp,):
                if self._settled:
                    return
                if self._seen[1] == _version(self._database, wait):
                    self._settled = now - max(found.st_mtime, found.st_ctime) > TICK_SECONDS
                    return
            self._close()
            database = self._database = self._open(wait=wait)
            version = _version(database, wait)
            rows = database.execute("SELECT id, name, roles, hash, expires FROM tokens").fetchall()
            self._tokens = {
                number: (
                    name,
                    _roles(name, roles, stored),
                    stored,
                    None if expires is None else _date(expires).timestamp(),
                )
                for number, name, roles, stored, expires in rows
            }
            self._seen = (stamp, version)
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        self._seen, self._settled = (), False
        if self._database is not None:
            self._database.close()
            self._database = None

    @contextmanager
    def _changing(self, *, make: bool = False) -> Iterator[sqlite3.Connection]:
        """The file, opened for the block, which is committed and synced, or rolled back if it raises."""
        try:
            with self._lock, self._translated():
                database = self._open(make=make)
                try:
                    with database:
                        yield database
                finally:
                    database.close()
        except BlockingIOError:
            raise self._locked() from None

    def _open(self, *, make: bool = False, wait: bool = True) -> sqlite3.Connection:
        if make:
            with suppress(FileExistsError):
                create_private(self.path)
        elif not self._tighten().st_size:
            raise BadSettings(f"auth.tokens: {self.path} is empty; `promising token create` makes a token")
        elif not os.access(self.path, os.R_OK):
            raise PermissionError(errno.EACCES, f"{user(os.geteuid())} may not read it")
        database = sqlite3.connect(
            f"file:{quote(bytes(self.path.absolute()))}?mode=rw",
            uri=True,
            timeout=WAIT_SECONDS if wait else 0,
            check_same_thread=False,
        )
        try:
            database.execute("PRAGMA journal_mode=DELETE")  # earlier releases used a write-ahead log
            database.execute("PRAGMA synchronous=EXTRA")  # a revoked token stays so after a power failure
            if make:
                self._tighten()
                database.execute(SCHEMA)
        except BaseException:
            database.close()
            raise
        return database

    def _tighten(self) -> os.stat_result:
        """Make the file its owner's alone. One that root owns, and only root may change, is as good as one's own."""
        found, me = os.stat(self.path), os.geteuid()
        of_root = found.st_uid == 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if me not in (0, found.st_uid) and not of_root:
            owner = user(found.st_uid)
            raise BadSettings(
                f"auth.tokens: {self.path} belongs to {owner}, and this process runs as {user(me)}: run it as {owner},"
                f" or, as root, run `chown {user(me)} {shlex.quote(str(self.path.absolute()))}`"
            )
        if me in (0, found.st_uid) and stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
            os.chmod(self.path, PRIVATE_FILE)
            found = os.stat(self.path)
        return found

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError:
            raise
        except FileNotFoundError:
            there = self.path.parent.is_dir()
            hint = "it is not there; `promising token create` makes it" if there else "its folder is not there"
            raise BadSettings(f"auth.tokens: {self.path}: {hint}") from None
        except OSError as problem:
            raise BadSettings(f"auth.tokens: {self.path}: {problem.strerror}") from None
        except sqlite3.Error as problem:
            if getattr(problem, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                raise BlockingIOError from None
            raise BadSettings(f"auth.tokens: {self.path} cannot be used: {problem}") from None
        except ValueError as problem:  # an entry is damaged, or the message of SQLite quotes one
            raise BadSettings(
                f"auth.tokens: {self.path} is damaged: {problem}; restore the file, or create its tokens again"
            ) from None

    def _locked(self) -> BadSettings:
        return BadSettings(
            f"auth.tokens: {self.path} has been locked by another process for {WAIT_SECONDS:g} seconds; stop it"
        )


def _version(database: sqlite3.Connection, wait: bool) -> Any:
    """Changes with each commit of another connection."""
    database.execute(f"PRAGMA busy_timeout={int(WAIT_SECONDS * 1000) if wait else 0}")
    return database.execute("PRAGMA data_version").fetchall()


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _roles(name: object, roles: object, stored: object) -> frozenset[str]:
    """The roles of an entry; ValueError if it is none that `create` makes."""
    if isinstance(name, str) and isinstance(roles, str) and isinstance(stored, bytes) and NAME.fullmatch(name):
        found = frozenset(roles.split(","))
        if found <= ROLES:
            return found
    raise ValueError(f"the entry {str(name)[:64]!r} is not one that was written")


def _date(seconds: object) -> datetime:
    if not isinstance(seconds, int) or not 0 <= seconds <= LATEST:
        raise ValueError(f"{seconds!r} is not a time")
    return datetime.fromtimestamp(seconds, UTC)
