"""Stored data is its owner's alone: directories have the mode 0700, files 0600."""

import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from promising.errors import StorageUnavailable

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def create_private(path: Path) -> None:
    """Create an empty file for SQLite, which gives its logs and journals the permissions of their database."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE_FILE))


def private_opener(path: str, flags: int) -> int:
    """For `open`."""
    return os.open(path, flags, PRIVATE_FILE)


def make_private(root: Path, prefixes: tuple[str, ...]) -> None:
    """Tighten everything in a directory whose name there has one of the prefixes. Links are not followed."""
    for path, found in _below(root, prefixes):
        tighten(root, Path(path), found)


def tighten(root: Path, path: Path, found: os.stat_result) -> None:
    """Reduce the permissions of one path to its owner's. root: named in the advice.

    Raises StorageUnavailable if it belongs to another user, or retains the permissions.
    """
    me, quoted = os.geteuid(), shlex.quote(str(root.absolute()))
    if found.st_uid != me:
        owner = user(found.st_uid)
        raise StorageUnavailable(
            f"{path} belongs to {owner}, and this process runs as {user(me)}: run it as {owner}, or, as root, run"
            f" `chown -R {user(me)} {quoted}`"
        )
    folder = stat.S_ISDIR(found.st_mode)
    mode = stat.S_IMODE(found.st_mode)
    wanted = mode & (PRIVATE_FOLDER if folder else PRIVATE_FILE)
    if mode == wanted:
        return
    reason = "the file system stores no permissions"
    with suppress(FileNotFoundError):
        try:
            os.chmod(path, wanted)
        except FileNotFoundError:
            return
        except OSError as problem:
            reason = problem.strerror or str(problem)
        if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
            raise StorageUnavailable(
                f"{path} is open to other users (mode {mode:04o}), which cannot be changed: {reason}; run"
                f" `chmod -R go= {quoted}`, or choose another directory"
            )


def user(number: int) -> str:
    """The name of a user, or its number."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _below(folder: Path | str, prefixes: tuple[str, ...] = ("",)) -> Iterator[tuple[str, os.stat_result]]:
    """Folders before their contents."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink() or not entry.name.startswith(prefixes):
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield entry.path, found
            if stat.S_ISDIR(found.st_mode):
                yield from _below(entry.path)
