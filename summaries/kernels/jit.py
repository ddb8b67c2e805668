"""Kernels are compiled at their first call, or loaded from the cache.

numba caches a kernel by its own file. A kernel that uses another file's kernel or constant would run stale code after
that file changed. So each kernel file has its own cache folder, named by a digest of the file and of every kernel file
it imports: a changed byte recompiles the kernels of that file and of its importers only. The digest is independent of
the location, so all processes of a machine share the cache, including those that import from a zip archive, as the
executors of a cluster do.
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
"""How a kernel file imports another; `tests/test_house.py` enforces it."""


def cache_root() -> Path:
    """The cache folder: `PROMISING_CACHE_DIR`, else the user's."""
    base = os.environ.get("PROMISING_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "promising" / "kernels"


_sources: dict[str, str] = {}
"""Kernel files by module, as imported: a file may change before its first call."""


def _remember(module: str, names: dict[str, Any]) -> None:
    if module not in _sources:
        _sources[module] = "".join(linecache.getlines(names["__file__"], names))  # works for archives
        for imported in IMPORTED.findall(_sources[module]):  # it may have constants and no kernels
            _remember(imported, vars(sys.modules[imported]))


_remember(__name__, globals())


def source_digest(module: str) -> str:
    """Digest of a kernel file and all kernel files it imports, with the versions and settings that affect the code."""
    reached, found = {module, __name__}, [module, __name__]
    for name in found:
        fresh = set(IMPORTED.findall(_sources[name])) - reached
        reached |= fresh
        found += fresh
    digest = hashlib.sha256(f"{sys.version}|{numba.__version__}|{config.BOUNDSCHECK}|{module}".encode())
    for name in sorted(reached):
        digest.update(name.encode() + b"\0" + _sources[name].encode() + b"\0")
    return digest.hexdigest()[:24]


class ByContent(caching.UserProvidedCacheLocator):  # type: ignore[misc]  # numba is read without its types
    """Finds a kernel in the cache folder by name and line only: the folder's name identifies the sources."""

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
    """The cache folder of a function's file; without a home, in the temporary folder. None if not writable."""
    digest = source_digest(function.__module__)
    spare = Path(tempfile.gettempdir()) / f"promising-{os.getuid()}"
    for root, private in ((cache_root(), False), (spare, True)):
        try:
            root.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
            found = root.lstat()
            if private and (found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700):
                continue  # its content is executed: it must belong to this user
            place = root / digest
            place.mkdir(exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK | os.X_OK):
            return place
    return None


class Kernel(CPUDispatcher):  # type: ignore[misc]  # numba is read without its types
    """A function with explicit signatures, compiled or loaded at first use; later calls have no overhead."""

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
        with loading(), global_compiler_lock:
            if self._can_compile:
                if cache_folder(self.py_func) is not None:
                    self._enable_caching()
                for signature in self._signatures:
                    super().compile(signature)
                self.disable_compile()

    def _enable_caching(self) -> None:
        before = config.CACHE_LOCATOR_CLASSES
        config.CACHE_LOCATOR_CLASSES = f"{__name__}.{ByContent.__name__}"  # other code keeps its own setting
        try:
            self.enable_caching()
        finally:
            config.CACHE_LOCATOR_CLASSES = before

    def compile(self, sig: Any) -> None:
        """numba calls this when it compiles a caller; it checks the arguments against our signatures afterwards."""
        self.load()

    def _compile_for_args(self, *given: Any, **named: Any) -> "Kernel":
        """numba calls this at the first call, and then calls the result."""
        self.load()
        return self


kernels: list[Kernel] = []
"""All kernels of the modules imported so far, callees before callers."""


def kernel(signature: Any, **options: Any) -> Callable[[F], F]:
    """Compile a function for one explicit signature, without the GIL, cached under the digest of its sources.

    A call with another type or stride raises `TypeError` instead of silently compiling another version. With
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
