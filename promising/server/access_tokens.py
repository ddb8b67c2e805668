"""Access tokens and their roles: an SQLite file of hashes."""

import hashlib
import hmac
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from promising.errors import BadRequest, BadSettings, DuplicateName, UnknownName
from promising.settings import Role

ROLES = frozenset(get_args(Role))
LATEST = 253_402_300_799  # seconds: the end of year 9999
LONGEST_LIFE = 100 * 366 * 86_400  # seconds
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SECRET = re.compile(r"prm_([0-9a-f]{12})_([0-9a-f]{64})")
WAIT_SECONDS = 5.0  # for another writing process

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
    """An authenticated caller and its roles."""

    name: str
    roles: frozenset[str]

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
    """The tokens of one file. Any number of processes may share it; each sees changes at its next access.

    A secret has 256 random bits, so one round of SHA-256 without salt is enough. The first `create` creates the file,
    readable by its owner only. Thread-safe.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None

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
        with self._connected(make=True) as database:
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
        with self._connected() as database:
            rows = database.execute("SELECT name, roles, created, expires, hash FROM tokens ORDER BY name").fetchall()
            return [
                Token(name, _roles(name, roles, stored), _date(created), None if expires is None else _date(expires))
                for name, roles, created, expires, stored in rows
            ]

    def revoke(self, name: str) -> None:
        """Delete a token: further calls with it are refused."""
        with self._connected() as database:
            if database.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount == 0:
                raise UnknownName(f"there is no token {name!r}")

    def check(self, secret: str) -> Caller | None:
        """The owner of a secret; None if unknown or expired. One indexed look-up, some microseconds."""
        form = SECRET.fullmatch(secret)
        if form is None:
            return None
        with self._connected() as database:
            row = database.execute(
                "SELECT name, roles, hash, expires FROM tokens WHERE id = ?", (form.group(1),)
            ).fetchone()
            if row is None:
                return None
            name, roles, stored, expires = row
            found = Caller(name, _roles(name, roles, stored))
            until = None if expires is None else _date(expires).timestamp()
        if not hmac.compare_digest(stored, _hash(secret)) or (until is not None and self._clock() >= until):
            return None
        return found

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None

    @contextmanager
    def _connected(self, *, make: bool = False) -> Iterator[sqlite3.Connection]:
        """The open file, under the lock; the block is committed and synced, or rolled back if it raises."""
        with self._lock:
            try:
                if self._database is None:
                    self._database = self._open(make=make)
                with self._database:
                    yield self._database
            except (sqlite3.Error, ValueError) as problem:  # an entry is damaged, or the message of SQLite quotes one
                raise BadSettings(f"auth.tokens: {self.path} cannot be used: {problem}") from None

    def _open(self, *, make: bool) -> sqlite3.Connection:
        try:
            os.close(os.open(self.path, os.O_RDWR | (os.O_CREAT if make else 0), 0o600))
        except FileNotFoundError:
            hint = "its folder is not there" if make else "it is not there; `promising token create` makes it"
            raise BadSettings(f"auth.tokens: {self.path}: {hint}") from None
        except OSError as problem:
            raise BadSettings(f"auth.tokens: {self.path}: {problem.strerror}") from None
        database = sqlite3.connect(self.path, timeout=WAIT_SECONDS, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.execute(SCHEMA)
        except BaseException:
            database.close()
            raise
        return database


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _roles(name: object, roles: object, stored: object) -> frozenset[str]:
    """The roles of an entry; ValueError if it is none that `create` makes."""
    if isinstance(name, str) and isinstance(roles, str) and isinstance(stored, bytes) and NAME.fullmatch(name):
        found = frozenset(roles.split(","))
        if found <= ROLES:
            return found
    raise ValueError(f"the entry {str(name)[:64]!r} is damaged; restore the file, or create its tokens again")


def _date(seconds: object) -> datetime:
    if not isinstance(seconds, int) or not 0 <= seconds <= LATEST:
        raise ValueError(f"{seconds!r} is no time; restore the file, or create its tokens again")
    return datetime.fromtimestamp(seconds, UTC)
