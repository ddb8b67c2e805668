"""Exact postings: the rows of every key, independent of zones."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.index.image_arrays import joined, pour
from promising.index.kernels import postings as kernels
from promising.summaries.reserved import Reserved

LEAST = 1 << 10
NO_KEYS, NO_SIZES = np.empty(0, np.int64), np.empty(0, np.int32)


class Postings:
    """A directory of keys and, per key, a chain through the log's rows; `index/kernels/postings.py` has the layout.

    It has every row of the log, including those too old for the summary. `keys`: expected number; with room for them,
    no insert waits for the directory to grow.
    """

    def __init__(self, capacity: int, keys: int = 0) -> None:
        self._chain = Reserved(np.int32, capacity)
        self._heads = np.zeros(4, np.int64)
        self.version = 0  # changes whenever a directory line moves or is removed
        self.forgotten = 0  # rows released so far
        self.until: int | None = None  # the first arrival that it does not receive; None while it receives all
        self._allot(max(LEAST, 1 << (2 * (keys + kernels.AHEAD)).bit_length() if keys else 0))

    @property
    def _older(self) -> NDArray[np.int32]:
        return self._chain.array

    def reserve(self, capacity: int) -> None:
        """Have place for rows below `capacity`, the log's."""
        if capacity > len(self._chain.array):
            self._chain.grow(capacity, [(0, len(self._chain.array))])

    def _allot(self, lines: int) -> None:
        self._entries = np.zeros((lines, 4), np.int64)
        self._small = self._entries.view(np.int32)
        self._tags = np.zeros(lines, np.uint8)

    def _resize(self, lines: int) -> None:
        self.version += 1
        old, old_small = self._entries, self._small
        self._allot(lines)
        kernels.rehash(old, old_small, self._entries, self._small, self._tags)

    def begin_zone(self) -> None:
        self._heads[kernels.KEYS] = 0

    @property
    def zone_keys(self) -> int:
        return int(self._heads[kernels.KEYS])

    def enter(
        self,
        hashes: NDArray[np.int64],
        rows: NDArray[np.int32],
        start: int,
        stop: int,
        zone: int,
        keys: NDArray[np.int64],
        sizes: NDArray[np.int32],
    ) -> None:
        """Add rows[start:stop] to their keys, and to the open zone's `keys` and `sizes` unless `zone` is -1."""
        args = (self._older, self._heads, keys, sizes, hashes, rows)
        while True:
            start = kernels.enter(self._entries, self._small, self._tags, *args, start, stop, zone)
            if start == stop:
                return
            self._resize(2 * len(self._entries))

    def enter_all(self, hashes: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        self.enter(hashes, rows, 0, len(rows), -1, NO_KEYS, NO_SIZES)

    def take_back(self, hashes: NDArray[np.int64], sizes: NDArray[np.int32]) -> None:
        """Subtract the newest tuples from the open zone's sizes."""
        kernels.take_back(self._entries, self._small, hashes, len(hashes), sizes)

    def note(self, hashes: NDArray[np.int64], zone: int, keys: NDArray[np.int64], sizes: NDArray[np.int32]) -> None:
        """Count tuples entered before as the open zone's."""
        kernels.note(self._entries, self._small, self._heads, keys, sizes, hashes, len(hashes), zone)

    def open_sizes(self, hashes: NDArray[np.int64], zone: int, sizes: NDArray[np.int32]) -> NDArray[np.int64]:
        out = np.empty(len(hashes), np.int64)
        kernels.open_sizes(self._entries, self._small, sizes, hashes, zone, out)
        return out

    def forget(self, hashes: NDArray[np.int64]) -> None:
        """Drop the oldest row of each of these keys, as the log releases rows in order of arrival."""
        self.version += 1
        self.forgotten += len(hashes)
        missing = kernels.forget(self._entries, self._small, self._tags, self._heads, hashes)
        assert missing == 0, f"{missing} rows left the log that no posting knew"
        if len(self._entries) > LEAST and self._heads[kernels.USED] * 8 < len(self._entries):
            self._resize(len(self._entries) // 2)

    def purge(self, gone: NDArray[np.bool_], chunk: int) -> None:
        """Drop the rows of these oldest chunks without knowing their keys: slow. gone: by chunk number."""
        sizes = np.zeros(len(self._entries), np.int64)
        kernels.count_gone(self._small, self._older, gone, chunk.bit_length() - 1, sizes)
        found = np.flatnonzero(sizes)
        self.forget(np.repeat(self._entries[found, 0], sizes[found]))

    def counts(self, hashes: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64], int]:
        """Newest row and number of rows of each key, and the total."""
        newest = np.empty(len(hashes), np.int32)
        counts = np.empty(len(hashes), np.int64)
        total = kernels.find_keys(self._entries, self._small, self._tags, self._heads, hashes, newest, counts)
        return newest, counts, total

    @property
    def lines(self) -> int:
        """Size of the directory, including empty lines."""
        return len(self._entries)

    @property
    def most(self) -> int:
        """An upper bound on the rows of any key."""
        return int(self._heads[kernels.MOST])

    def tally(self, start: int, stop: int, sizes: NDArray[np.int64], dense: NDArray[np.uint8]) -> None:
        """Count the keys of lines `start..stop` by rows into `sizes` (last: more); dense[line] = rows, at most 255."""
        kernels.tally(self._small, self._tags, start, stop, sizes, dense)

    def listed(
        self, start: int, stop: int, least: int = 1, most: int = 1 << 31, dense: NDArray[np.uint8] | None = None
    ) -> NDArray[np.int64]:
        """Hashes of keys in lines `start..stop` with `least` to `most` rows. dense: from `tally`, if still valid."""
        out = np.empty(stop - start, np.int64)
        between = (start, stop, least, most, out)
        if dense is None:
            found = kernels.listed(self._entries, self._small, self._tags, *between)
        else:
            found = kernels.listed_dense(self._entries, self._small, dense, *between)
        return out[:found]

    def follow(self, row: int, rows: NDArray[np.int32]) -> int:
        """Fill `rows` with `row` and the next older ones of its key; returns the following one."""
        return int(kernels.follow(self._older, row, rows))

    def walk(
        self, newest: NDArray[np.int32], counts: NDArray[np.int64], total: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """All rows of the keys that `counts` found: (index of the key, row)."""
        probe, rows = np.empty(total, np.int32), np.empty(total, np.int32)
        kernels.walk(self._older, newest, counts, probe, rows)
        return probe, rows

    def image(self, stretches: list[tuple[int, int]]) -> dict[str, Any]:
        """The state as a tree of arrays; the log has rows in these ranges."""
        heads = self._heads.copy()
        heads[kernels.FETCHED] = 0
        older = np.concatenate([np.empty(0, np.int32), *(self._older[first:last] for first, last in stretches)])
        return {"older": older, "entries": self._entries.copy(), "tags": self._tags.copy(), "heads": heads}

    def restore(self, image: dict[str, Any], stretches: list[tuple[int, int]]) -> None:
        pour(image["older"], [self._older[first:last] for first, last in joined(stretches)])
        self._allot(len(image["tags"]))
        pour(image["entries"], [self._entries])
        pour(image["tags"], [self._tags])
        self._heads[:] = image["heads"]

    @property
    def keys(self) -> int:
        return int(self._heads[kernels.USED])

    def nbytes(self, rows: int) -> int:
        return self._entries.nbytes + self._tags.nbytes + 4 * rows
