"""Ahead-of-time compilation of all kernels, in parallel, into the user's shared cache."""

import os
import pkgutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from importlib import import_module
from multiprocessing import get_context

from promising.summaries.kernels import jit

PACKAGES = ("promising.summaries.kernels", "promising.index.kernels", "promising.query.kernels")


@cache
def every_kernel() -> tuple[jit.Kernel, ...]:
    """Callees before callers. Empty with `NUMBA_DISABLE_JIT=1`."""
    for package in PACKAGES:
        for module in pkgutil.iter_modules(import_module(package).__path__):
            import_module(f"{package}.{module.name}")
    return tuple(kernel for kernel in jit.kernels if kernel.py_func.__module__.startswith(PACKAGES))


def load_all() -> None:
    """Load all kernels, so that no call waits for one. Takes a second if all are compiled."""
    if any(not kernel.stored for kernel in every_kernel()):
        compile_all()
    for kernel in every_kernel():
        kernel.load()


def compile_all(told: Callable[[int, int], None] = lambda done, of: None) -> int:
    """Compile kernels that are not cached, in one process per core; returns how many.

    told: called with the number done and the total.
    """
    missing = [number for number, kernel in enumerate(every_kernel()) if not kernel.stored]
    if not missing:
        return 0
    told(0, len(missing))
    workers = min(len(os.sched_getaffinity(0)), len(missing))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for done, one in enumerate(as_completed([pool.submit(_load, number) for number in missing]), 1):
            one.result()
            told(done, len(missing))
    return len(missing)


def _load(number: int) -> None:
    """In its own process: numba compiles one function at a time per process."""
    every_kernel()[number].load()
