"""Memory that is free goes back to the system when the service has nothing to do.

Three keep it otherwise: Python's collector lets cycles lie until enough objects have piled up, and does not know how
much Arrow data they hold; Arrow keeps pages for the next batch; so does the C library, for each thread.
"""

import ctypes
import gc

import pyarrow as pa

IDLE = 2.0  # seconds without work after which memory is given back: under load it would be taken again at once
WORTH = 1.01  # times the memory that was kept the last time; less is not worth the effort


def keep_loaded() -> None:
    """Leave all that there is now out of further collections. What a process has loaded stays anyway, and to look
    through some 200,000 objects takes a tenth of a second in which nothing else runs, at the expense of whoever is at
    work.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Return free memory to the system. Where `keep_loaded` was called, what was kept is looked through as well."""
    if gc.get_freeze_count():
        keep_loaded()
    else:
        gc.collect()
    give_back_arrow()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def give_back_arrow() -> None:
    """Return what Arrow keeps for the thread that calls this."""
    pa.default_memory_pool().release_unused()
