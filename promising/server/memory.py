"""Returns free memory to the system when the service is idle.

Otherwise it is retained in three places: Python's collector leaves cycles until enough objects have accumulated, not
knowing how much Arrow data they hold; Arrow caches pages for the next batch; so does the C library, per thread.
"""

import ctypes
import gc

import pyarrow as pa

IDLE = 2.0  # seconds without work before memory is returned: under load it would be allocated again at once
WORTH = 1.01  # growth since the last release that makes another worthwhile


def keep_loaded() -> None:
    """Exclude all current objects from garbage collection: loaded modules stay anyway, and traversing some 200,000
    objects would stop all threads for a tenth of a second.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def collect() -> None:
    """Release cycles. Also collects objects excluded by `keep_loaded`."""
    if gc.get_freeze_count():
        keep_loaded()
    else:
        gc.collect()


def give_back_arrow() -> None:
    """Return Arrow's cached memory of the calling thread; nobody else can."""
    pa.default_memory_pool().release_unused()


def trim() -> None:
    """Return the C library's free memory to the system."""
    trimmed = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trimmed is not None:
        trimmed(0)
