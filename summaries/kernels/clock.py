"""CPU time without kernel compilation and loading, so that the first caller of a kernel does not pay for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local

_thread = local()


def work_ns() -> int:
    """CPU time of this thread in nanoseconds, without compiling and loading kernels."""
    return time.thread_time_ns() - getattr(_thread, "loading", 0)


@contextmanager
def loading() -> Iterator[None]:
    """Excludes its block from `work_ns`. Reentrant."""
    before = work_ns()
    try:
        yield
    finally:
        _thread.loading = time.thread_time_ns() - before
