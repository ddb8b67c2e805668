"""CPU time of the work itself: the clock that budgets go by stands still while a kernel is compiled or loaded.

Which call of a process is the first to need a kernel is chance. Whoever makes it would pay for all that follow.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local

_thread = local()


def work_ns() -> int:
    """CPU time of this thread, in nanoseconds, without what went into compiling and loading kernels."""
    return time.thread_time_ns() - getattr(_thread, "loading", 0)


@contextmanager
def loading() -> Iterator[None]:
    """What is done inside does not count as work. May be entered again inside."""
    before = work_ns()
    try:
        yield
    finally:
        _thread.loading = time.thread_time_ns() - before
