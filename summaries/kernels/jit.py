"""How every compiled kernel of the house is made.

numba caches a kernel by the file it stands in. A kernel that calls another file's kernel, or takes a constant from it,
would go on running the old code after that other file changed. So the cache folder is named by a digest of every source
a kernel can reach: the files of its own folder and of this one. Change a byte in either, and nothing stale is found.
Where these files lie does not matter, so what one process has compiled serves every other on the machine, those that
import the house from a zip archive included, as the executors of a cluster do.
"""

import hashlib
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import caching, config

F = TypeVar("F", bound=Callable[..., Any])

HERE = Path(__file__).parent


def cache_root() -> Path:
    """Where compiled kernels are kept: `PROMISING_CACHE_DIR`, else the user's cache folder."""
    base = os.environ.get("PROMISING_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "promising" / "kernels"


def source_digest(folder: Path) -> str:
    """Digest of every kernel source reachable from `folder`, with the versions and settings that shape the code."""
    digest = hashlib.sha256(f"{sys.version}|{numba.__version__}|{config.BOUNDSCHECK}".encode())
    for place in dict.fromkeys((HERE, folder)):
        for name, text in sorted(_sources(place).items()):
            digest.update(name.encode() + b"\0" + text + b"\0")
    return digest.hexdigest()[:24]


def _sources(folder: Path) -> dict[str, bytes]:
    """The Python files of a folder, which may lie in a zip archive."""
    if folder.is_dir():
        return {path.name: path.read_bytes() for path in folder.glob("*.py")}
    archive = next(place for place in folder.parents if place.is_file())
    inside = folder.relative_to(archive).as_posix()
    with zipfile.ZipFile(archive) as packed:
        names = [Path(name) for name in packed.namelist()]
        return {
            name.name: packed.read(name.as_posix())
            for name in names
            if name.suffix == ".py" and name.parent.as_posix() == inside
        }


class ByContent(caching.UserProvidedCacheLocator):  # type: ignore[misc]  # numba is read without its types
    """A kernel is found in the cache folder by its name and line alone: the folder's name says which sources it has."""

    def get_cache_path(self) -> str:
        return str(config.CACHE_DIR)

    def get_source_stamp(self) -> str:
        return str(config.CACHE_DIR)

    @classmethod
    def from_function(cls, function: Any, file: str) -> "ByContent":
        return cls(function, file)


def _cache_folder(digest: str) -> Path | None:
    """Where kernels of these sources are kept: for a user without a folder of its own, among the temporary files.

    None if nowhere: numba would fall back to a folder without the digest.
    """
    spare = Path(tempfile.gettempdir()) / f"promising-{os.getuid()}"
    for root, private in ((cache_root(), False), (spare, True)):
        try:
            root.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
            found = root.lstat()
            if private and (found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700):
                continue  # what lies there is run: it must be nobody else's
            place = root / digest
            place.mkdir(exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK | os.X_OK):
            return place
    return None


_digests: dict[Path, str] = {}


def kernel(signature: Any, **options: Any) -> Callable[[F], F]:
    """Compile a function for one explicit signature, without the GIL, cached under the digest of its sources.

    A call with another type or stride raises `TypeError` instead of compiling a second version silently. With
    `NUMBA_DISABLE_JIT=1` the plain Python function runs.
    """

    def compile_one(function: F) -> F:
        folder = Path(function.__code__.co_filename).parent
        digest = _digests.get(folder)
        if digest is None:
            digest = _digests[folder] = source_digest(folder)
        place = _cache_folder(digest)
        before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
        config.CACHE_DIR = str(place)  # both are read by numba when it decorates; other code keeps its own
        config.CACHE_LOCATOR_CLASSES = f"{__name__}.{ByContent.__name__}"
        try:
            compiled: F = numba.njit(signature, cache=place is not None, nogil=True, **options)(function)
        finally:
            config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before
        return compiled

    return compile_one
