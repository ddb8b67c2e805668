"""A bounded LRU cache of decoded cold data."""

import threading
from collections import OrderedDict
from typing import Any

Key = tuple[int, ...]  # the file's serial number first


class Cache:
    """Values by key, together at most `limit` bytes. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._kept: OrderedDict[Key, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Any:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                self.misses += 1
                return None
            self.hits += 1
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: Key, value: Any, size: int) -> None:
        """Cache the value, if it fits at all, evicting the least recently used."""
        with self._lock:
            self._remove(key)
            if size > self.limit:
                return
            while self.bytes + size > self.limit:
                self._remove(next(iter(self._kept)))
            self._kept[key] = value, size
            self.bytes += size

    def held(self, serial: int) -> list[Key]:
        """The keys of a file's values, without its serial number. No value counts as used."""
        with self._lock:
            return [key[1:] for key in self._kept if key[0] == serial]

    def drop(self, serial: int) -> None:
        with self._lock:
            for key in [key for key in self._kept if key[0] == serial]:
                self._remove(key)

    def _remove(self, key: Key) -> None:
        _, size = self._kept.pop(key, (None, 0))
        self.bytes -= size
