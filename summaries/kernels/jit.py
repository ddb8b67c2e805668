"""How every compiled kernel of the house is made.

numba caches a kernel by the file it stands in. A kernel that calls another file's kernel, or takes a constant from it,
would go on running the old code after that other file changed. So the cache folder is named by a digest of every source
a kernel can reach: the files of its own folder and of this one. Change a byte in either, and nothing stale is found.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config

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
        for path in sorted(place.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def _writable(place: Path) -> bool:
    """Whether the cache can be kept there. If not there is none: numba would fall back to one without the digest."""
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(place, os.W_OK | os.X_OK)


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
        place = cache_root() / digest
        before = config.CACHE_DIR
        config.CACHE_DIR = str(place)  # read by numba when it decorates; other code keeps its own
        try:
            compiled: F = numba.njit(signature, cache=_writable(place), nogil=True, **options)(function)
        finally:
            config.CACHE_DIR = before
        return compiled

    return compile_one
