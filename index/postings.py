"""The exact route: every key's rows, whatever the zones say."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.index.image_arrays import joined, pour
from promising.index.kernels import postings as kernels

LEAST = 1 << 10
NO_KEYS, NO_SIZES = np.empty(0, np.int64), np.empty(0, np.int32)


class Postings:
    """A directory of keys and, per key, a chain through the log's rows. See `index/kernels/postings.py` for the layout.

    Holds every row of the log, those too old for the summary included, until the log gives it back. `keys` is how many
    keys to expect: with room for them from the start, no row waits until the directory has grown.
    """

    def __init__(self, capacity: int, keys: int = 0) -> None:
        self._older = np.empty(capacity, np.int32)
        self._heads = np.zeros(4, np.int64)
        self.version = 0
        """Changes whenever a line of the directory moves or goes."""
        self.forgotten = 0
        """Rows given back so far."""
        self.until: int | None = None
        """The arrival number from which on it is not told of tuples any more; None while it is."""
        self._allot(max(LEAST, 1 << (2 * (keys + kernels.AHEAD)).bit_length() if keys else 0))

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
        """Forget the keys of the open zone."""
        self._heads[kernels.KEYS] = 0

    @property
    def zone_keys(self) -> int:
        """Keys counted for the open zone."""
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
        """Add rows to their keys, and to no zone."""
        self.enter(hashes, rows, 0, len(rows), -1, NO_KEYS, NO_SIZES)

    def take_back(self, hashes: NDArray[np.int64], sizes: NDArray[np.int32]) -> None:
        """Leave tuples, the last to come, out of the open zone's sizes."""
        kernels.take_back(self._entries, self._small, hashes, len(hashes), sizes)

    def note(self, hashes: NDArray[np.int64], zone: int, keys: NDArray[np.int64], sizes: NDArray[np.int32]) -> None:
        """Count tuples entered before as the open zone's."""
        kernels.note(self._entries, self._small, self._heads, keys, sizes, hashes, len(hashes), zone)

    def open_sizes(self, hashes: NDArray[np.int64], zone: int, sizes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Exactly how many tuples of each key the open zone has."""
        out = np.empty(len(hashes), np.int64)
        kernels.open_sizes(self._entries, self._small, sizes, hashes, zone, out)
        return out

    def forget(self, hashes: NDArray[np.int64]) -> None:
        """Drop the oldest row of each of these keys, as the log gives the rows back in order of arrival."""
        self.version += 1
        self.forgotten += len(hashes)
        missing = kernels.forget(self._entries, self._small, self._tags, self._heads, hashes)
        assert missing == 0, f"{missing} rows left the log that no posting knew"
        if len(self._entries) > LEAST and self._heads[kernels.USED] * 8 < len(self._entries):
            self._resize(len(self._entries) // 2)

    def purge(self, gone: NDArray[np.bool_], chunk: int) -> None:
        """Drop the rows of these chunks, the oldest that there are, without knowing their keys: slow.

        gone: by number of chunk.
        """
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
        """Size of the directory, empty lines included."""
        return len(self._entries)

    @property
    def most(self) -> int:
        """No key has more rows."""
        return int(self._heads[kernels.MOST])

    def tally(self, start: int, stop: int, sizes: NDArray[np.int64], dense: NDArray[np.uint8]) -> None:
        """Add to sizes[n] how many keys of lines `start..stop` have n rows; the last counts all that have more.

        dense[line] becomes that number, up to 255, 0 if the line is empty.
        """
        kernels.tally(self._small, self._tags, start, stop, sizes, dense)

    def listed(
        self, start: int, stop: int, least: int = 1, most: int = 1 << 31, dense: NDArray[np.uint8] | None = None
    ) -> NDArray[np.int64]:
        """Hashes of the keys in lines `start..stop` that have from `least` to `most` rows.

        dense: what `tally` wrote, if nothing has changed since.
        """
        out = np.empty(stop - start, np.int64)
        between = (start, stop, least, most, out)
        if dense is None:
            found = kernels.listed(self._entries, self._small, self._tags, *between)
        else:
            found = kernels.listed_dense(self._entries, self._small, dense, *between)
        return out[:found]

    def follow(self, row: int, rows: NDArray[np.int32]) -> int:
        """Fill `rows` with `row` and the next older ones of its key; returns the one after them."""
        return int(kernels.follow(self._older, row, rows))

    def walk(
        self, newest: NDArray[np.int32], counts: NDArray[np.int64], total: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """All rows of the keys that `counts` found: (index of the key, row)."""
        probe, rows = np.empty(total, np.int32), np.empty(total, np.int32)
        kernels.walk(self._older, newest, counts, probe, rows)
        return probe, rows

    def image(self, stretches: list[tuple[int, int]]) -> dict[str, Any]:
        """All there is to know, as a tree of arrays; the log has rows in these stretches."""
        heads = self._heads.copy()
        heads[kernels.FETCHED] = 0
        older = np.concatenate([np.empty(0, np.int32), *(self._older[first:last] for first, last in stretches)])
        return {"older": older, "entries": self._entries.copy(), "tags": self._tags.copy(), "heads": heads}

    def restore(self, image: dict[str, Any], stretches: list[tuple[int, int]]) -> None:
        """Become what `image` was made of."""
        pour(image["older"], [self._older[first:last] for first, last in joined(stretches)])
        self._allot(len(image["tags"]))
        pour(image["entries"], [self._entries])
        pour(image["tags"], [self._tags])
        self._heads[:] = image["heads"]

    @property
    def keys(self) -> int:
        """Distinct keys."""
        return int(self._heads[kernels.USED])

    def nbytes(self, rows: int) -> int:
        """Bytes in use for a log of that many rows."""
        return self._entries.nbytes + self._tags.nbytes + 4 * rows
