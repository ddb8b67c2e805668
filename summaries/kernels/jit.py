"""How every compiled kernel of the house is made: compiled when it is first called, or loaded from the cache.

numba caches a kernel by the file it stands in. A kernel that calls another file's kernel, or takes a constant from it,
would go on running the old code after that other file changed. So each kernel file has a cache folder of its own, named
by a digest of that file and of every kernel file it imports. Change a byte in one of them, and the kernels of that file
and of its importers are compiled again; those of other files are found as before.
Where these files lie does not matter, so what one process has compiled serves every other on the machine, those that
import the house from a zip archive included, as the executors of a cluster do.
"""

import hashlib
import linecache
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching, config
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from promising.summaries.kernels.clock import loading

F = TypeVar("F", bound=Callable[..., Any])

IMPORTED = re.compile(r"^from ([\w.]+\.kernels\.\w+) import ", re.MULTILINE)
"""How a kernel file imports another; `tests/test_house.py` holds every kernel file to it."""


def cache_root() -> Path:
    """Where compiled kernels are stored: `PROMISING_CACHE_DIR`, else the user's cache folder."""
    base = os.environ.get("PROMISING_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "promising" / "kernels"


_sources: dict[str, str] = {}
"""Texts of kernel files by module, as they were when they were imported: a file may change before its first call."""


def _remember(module: str, names: dict[str, Any]) -> None:
    if module not in _sources:
        _sources[module] = "".join(linecache.getlines(names["__file__"], names))  # out of an archive, too


_remember(__name__, globals())


def source_digest(module: str) -> str:
    """Digest of a kernel file and all kernel files it imports, with the versions and settings that shape the code."""
    reached, found = {module, __name__}, [module, __name__]
    for name in found:
        fresh = set(IMPORTED.findall(_sources.get(name, ""))) - reached
        reached |= fresh
        found += fresh
    digest = hashlib.sha256(f"{sys.version}|{numba.__version__}|{config.BOUNDSCHECK}|{module}".encode())
    for name in sorted(reached & _sources.keys()):  # one that is not there has no kernels, and hardly constants
        digest.update(name.encode() + b"\0" + _sources[name].encode() + b"\0")
    return digest.hexdigest()[:24]


class ByContent(caching.UserProvidedCacheLocator):  # type: ignore[misc]  # numba is read without its types
    """A kernel is found in the cache folder by its name and line alone: the folder's name says which sources it has."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._place = str(cache_folder(function))

    def get_cache_path(self) -> str:
        return self._place

    def get_source_stamp(self) -> str:
        return self._place

    @classmethod
    def from_function(cls, function: Any, file: str) -> "ByContent":
        return cls(function, file)


def cache_folder(function: Callable[..., Any]) -> Path | None:
    """Where the kernels of a function's file are stored: for a user without a home, among the temporary files.

    None if nowhere.
    """
    digest = source_digest(function.__module__)
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


class Kernel(CPUDispatcher):  # type: ignore[misc]  # numba is read without its types
    """A function with explicit signatures, compiled or loaded when it is first called, or when its caller is compiled.

    From then on a call goes the way of any function that numba compiled: nothing is added to it.
    """

    def __init__(self, function: Callable[..., Any], signature: Any, options: dict[str, Any]) -> None:
        super().__init__(function, targetoptions={"nopython": True, "nogil": True, "boundscheck": None, **options})
        self._signatures = signature if isinstance(signature, list) else [signature]

    @property
    def stored(self) -> bool:
        """Whether the cache has it, or there is no cache. numba names its files by the function and its line."""
        function = self.py_func
        place = cache_folder(function)
        pattern = f"*{function.__qualname__}-{function.__code__.co_firstlineno}.*.nbi"
        return place is None or any(True for _ in place.glob(pattern))

    def load(self) -> None:
        """Be ready to be called."""
        with loading(), global_compiler_lock:
            if self._can_compile:
                if cache_folder(self.py_func) is not None:
                    self._enable_caching()
                for signature in self._signatures:
                    super().compile(signature)
                self.disable_compile()

    def _enable_caching(self) -> None:
        before = config.CACHE_LOCATOR_CLASSES
        config.CACHE_LOCATOR_CLASSES = f"{__name__}.{ByContent.__name__}"  # other code keeps its own
        try:
            self.enable_caching()
        finally:
            config.CACHE_LOCATOR_CLASSES = before

    def compile(self, sig: Any) -> None:
        """For numba, when it compiles a caller: it compares the arguments with our signatures afterwards."""
        self.load()

    def _compile_for_args(self, *given: Any, **named: Any) -> "Kernel":
        """For numba, at the first call: what to call instead."""
        self.load()
        return self


kernels: list[Kernel] = []
"""Every kernel of the modules imported so far, callees before callers."""


def kernel(signature: Any, **options: Any) -> Callable[[F], F]:
    """Compile a function for one explicit signature, without the GIL, cached under the digest of its sources.

    A call with another type or stride raises `TypeError` instead of compiling a second version silently. With
    `NUMBA_DISABLE_JIT=1` the plain Python function runs.
    """

    def make(function: F) -> F:
        if config.DISABLE_JIT:
            return function
        _remember(function.__module__, function.__globals__)
        made = Kernel(function, signature, options)
        kernels.append(made)
        return cast(F, made)

    return make
