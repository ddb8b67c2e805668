"""The memory that the tuples of all streams of an installation may take."""

import os
from threading import Lock
from weakref import WeakKeyDictionary

from promising.errors import CeilingReached

PRESSED = 0.75  # share of the limit from which on tuples go to disk early


class Memory:
    """Counts the bytes of tuples and postings in memory, by stream; sketches are bounded by their summaries."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: WeakKeyDictionary[object, int] = WeakKeyDictionary()  # dropped streams leave it by themselves
        self._lock = Lock()

    def hold(self, owner: object, size: int) -> None:
        """`owner` now has so many bytes."""
        with self._lock:
            self._held[owner] = size

    @property
    def used(self) -> int:
        with self._lock:
            return sum(self._held.values())

    @property
    def pressed(self) -> bool:
        """Whether tuples should go to disk even where a stream has few."""
        return self.used > PRESSED * self.limit

    def claim(self, owner: object, size: int, more: int, tuples: int, *, durable: bool) -> None:
        """`owner` has `size` bytes and adds so many tuples of `more` bytes; refused if they would exceed the limit."""
        with self._lock:
            self._held[owner] = size
            used = sum(self._held.values())
            if used + more <= self.limit:
                self._held[owner] += more
                return
        way = (
            "older tuples are on their way to disk: send it again later; a shorter GRANULARITY lets them leave sooner"
            if durable
            else "give the service a data directory, so that older tuples go to disk"
        )
        raise CeilingReached(
            f"{tuples:,} tuples need {more:,} bytes, and the streams have {used:,} of the {self.limit:,} that the"
            f" setting memory_bytes allows; {way}, or raise memory_bytes"
        )


def half_of_machine() -> int:
    """Half of the memory of this machine, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
