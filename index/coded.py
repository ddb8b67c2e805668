"""A column of strings as codes of its dictionary, by row.

A chunk is coded as a whole, or its strings are in a heap: nearly distinct strings are not worth a dictionary.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.dictionary import Codes, Dictionary
from promising.index.kernels.dictionary import gather_codes, renumber
from promising.summaries.reserved import Reserved, longer

FEWEST = 1 << 17  # a dictionary of up to so many strings is always worth it


class Coded:
    """The codes of `capacity` rows in chunks of `chunk`; those of a chunk that is not coded are arbitrary."""

    def __init__(self, capacity: int, chunk: int) -> None:
        self.chunk = chunk
        self.dictionary = Dictionary()
        self._codes = Reserved(np.int32, capacity)
        self._used = np.full(capacity // chunk, -1, np.int64)  # rows written, by chunk; -1 if it is not coded

    def grow(self, chunks: int, used: Iterable[tuple[int, int]]) -> None:
        self._codes.grow(chunks * self.chunk, used)
        self._used = longer(self._used, chunks, -1)

    @property
    def array(self) -> Codes:
        """By row."""
        return self._codes.array

    @property
    def rows(self) -> int:
        """Rows in coded chunks."""
        return int(self._used[self._used > 0].sum())

    @property
    def nbytes(self) -> int:
        """What it counts as: a function of the strings in coded chunks alone."""
        return self.dictionary.nbytes + self.chunk_bytes * int((self._used >= 0).sum())

    @property
    def chunk_bytes(self) -> int:
        return 4 * self.chunk

    def worth(self) -> bool:
        """Whether the next chunk should be coded: not if there are more than half as many strings as rows."""
        return self.dictionary.live <= max(FEWEST, self.rows // 2)

    def has(self, start: int) -> bool:
        """Whether the chunk from that row on is coded."""
        return bool(self._used[start // self.chunk] >= 0)

    def used(self, start: int) -> int:
        """The rows of that coded chunk."""
        return int(self._used[start // self.chunk])

    @property
    def starts(self) -> set[int]:
        """The first rows of coded chunks."""
        return set((np.flatnonzero(self._used >= 0) * self.chunk).tolist())

    def marks(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of these rows are in coded chunks."""
        coded: NDArray[np.bool_] = self._used[rows // self.chunk] >= 0
        return coded

    def write(self, at: int, text: pa.LargeStringArray, nulls: NDArray[np.bool_] | None) -> None:
        """The strings of the rows from `at` on; a chunk is coded if its first rows are."""
        self.dictionary.enter(text, nulls, self.array[at : at + len(text)])
        self._used[at // self.chunk] = at % self.chunk + len(text)

    def release(self, starts: Iterable[int]) -> None:
        """Forget the chunks with these first rows, if they are coded."""
        for start in starts:
            if self.has(start):
                self.dictionary.leave(self._of(start))
                self._used[start // self.chunk] = -1
        if self.dictionary.worn:
            changed = self.dictionary.renumbered()
            for start in self.starts:
                renumber(self._of(start), changed)

    def packed(self, starts: Iterable[int]) -> tuple[pa.LargeStringArray, Codes]:
        """Distinct strings, and by row the number of one; of the coded ones among the chunks with these first rows."""
        return self.dictionary.packed(self.codes_of(starts))

    def unpack(self, chunks: Iterable[tuple[int, int]], text: pa.LargeStringArray, codes: Codes) -> None:
        """Restore `packed`, the only rows. chunks: the first row and the number of rows of each."""
        self.dictionary.unpack(text, codes)
        done = 0
        for start, used in chunks:
            self.array[start : start + used] = codes[done : done + used]
            self._used[start // self.chunk] = used
            done += used

    def _of(self, start: int) -> Codes:
        return self.array[start : start + self.used(start)]

    def codes(self, rows: NDArray[np.int32]) -> Codes:
        """Of rows in coded chunks; -1 for nulls."""
        out = np.empty(len(rows), np.int32)
        gather_codes(self.array, rows, out)
        return out

    def codes_of(self, starts: Iterable[int]) -> Codes:
        """Of the coded ones among the chunks with these first rows."""
        return np.concatenate([np.empty(0, np.int32), *(self._of(start) for start in starts if self.has(start))])
