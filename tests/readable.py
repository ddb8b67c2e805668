"""Waiting for output, in a process that may have more than a thousand files open: `select.select` refuses to."""

import select
from typing import IO


def readable(source: int | IO[str] | IO[bytes], seconds: float) -> bool:
    """Whether there is something to read, or an end, within so many seconds."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
