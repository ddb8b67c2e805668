"""Rows by key for one side of a query: from a summary's postings, or from a directory built for the query."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from promising.errors import TokenExpired
from promising.index.postings import Postings
from promising.index.snapshot import Rows, Snapshot
from promising.index.summary_index import SummaryIndex
from promising.query.kernels.pairs import compact

Hashes: TypeAlias = NDArray[np.int64]
Counts: TypeAlias = NDArray[np.int64]
Hasher: TypeAlias = Callable[[Rows], tuple[Hashes, NDArray[np.bool_] | None]]
"""Key hashes of rows, and a mask of rows without a key."""

SLICE = 1 << 14  # tuples read between clock checks
ENTERED = 1 << 12  # tuples inserted between clock checks: each may be the first on its memory page
EXPECTED = 1 << 16  # initial capacity in keys
LINES = 1 << 17  # directory lines listed between clock checks
TALLIED = 4096  # bins of the histogram of rows per key
STEPS = 1 << 15  # steps along chains between clock checks


@dataclass(frozen=True)
class Lists:
    """Rows by key: key i has `rows[starts[i] : starts[i] + counts[i]]`."""

    rows: Rows
    starts: NDArray[np.int64]
    counts: Counts


class Keys:
    """The key directory of one side. Counts are exact for the snapshot if `exact`, else upper bounds."""

    def __init__(
        self,
        snapshot: Snapshot,
        hasher: Hasher,
        postings: Postings,
        *,
        exact: bool,
        summary: SummaryIndex | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.hasher = hasher
        self.postings = postings
        self.exact = exact
        self.summary = summary
        self._dense: NDArray[np.uint8] | None = None
        self._unchanged: tuple[int, int] | None = None
        self._seen = 0
        self._later: tuple[Hashes, Counts] = (np.empty(0, np.int64), np.empty(0, np.int64))  # keys that arrived later

    @classmethod
    def build(cls, snapshot: Snapshot, hasher: Hasher) -> Generator[None, None, "Keys"]:
        """Build a directory in one pass over the snapshot's tuples, in slices."""
        made = cls.empty(snapshot, hasher)
        yield from made.fill()
        return made

    @classmethod
    def empty(cls, snapshot: Snapshot, hasher: Hasher) -> "Keys":
        """A directory to be filled."""
        return cls(snapshot, hasher, Postings(snapshot.capacity, keys=min(snapshot.size, EXPECTED)), exact=True)

    def fill_from(self, parts: Iterator[Rows], keys: Hashes) -> Generator[None, None, None]:
        """Enter only the tuples with one of these keys; `parts` of the snapshot have them all."""
        for rows in parts:
            with self.snapshot.holding():
                hashes, _ = self.hasher(rows)
            found = np.isin(hashes, keys)
            self.postings.enter_all(hashes[found], rows[found])
            yield

    def fill(self) -> Generator[None, None, None]:
        """Enter the snapshot's tuples, in slices."""
        for first in range(0, self.snapshot.size, ENTERED):
            with self.snapshot.holding():
                rows = self.snapshot.rows_in(first, min(first + ENTERED, self.snapshot.size))
                hashes, missing = self.hasher(rows)
            if missing is not None:
                hashes, rows = hashes[~missing], rows[~missing]
            self.postings.enter_all(hashes, rows)
            yield

    def listed(self, least: int = 1, most: int = 1 << 31) -> Iterator[Hashes | None]:
        """Yield the keys that have from `least` to `most` rows, in parts.

        If lines move meanwhile, yields None and starts over; the third attempt is a single step.
        """
        for attempt in range(3):
            with self.snapshot.holding():
                version, lines, at = self.postings.version, self.postings.lines, 0
                step = LINES if self._tallied() is None else 8 * LINES
                found = self.postings.listed(0, lines, least, most) if attempt == 2 else None
            if found is not None:
                yield found
                return
            while at < lines:
                with self.snapshot.holding():
                    if self.postings.version != version:
                        break
                    found = self.postings.listed(at, min(at + step, lines), least, most, self._tallied())
                at += step
                yield found
            else:
                if self.postings.version == version:
                    return
            yield None

    def tallied(self) -> Generator[None, None, NDArray[np.int64]]:
        """Histogram of rows per key, the last bin open-ended. Only a hint: concurrent changes may falsify it."""
        with self.snapshot.holding():
            lines = self.postings.lines
            self._unchanged = (self.postings.version, self.snapshot.grown)
        sizes, dense = np.zeros(TALLIED, np.int64), np.zeros(lines, np.uint8)
        for at in range(0, lines, LINES):
            with self.snapshot.holding():
                stop = min(at + LINES, lines, self.postings.lines)
                if at < stop:
                    self.postings.tally(at, stop, sizes, dense)
            yield
        sizes[0] = 0
        self._dense = dense
        return sizes

    def _tallied(self) -> NDArray[np.uint8] | None:
        """The result of `tallied`, if still valid."""
        return self._dense if self._unchanged == (self.postings.version, self.snapshot.grown) else None

    @property
    def built(self) -> bool:
        """Whether it was built for this query from the snapshot's tuples."""
        return self.summary is None

    @property
    def held(self) -> int:
        """Bytes of postings that belong to the query: built for it, or released by the summary."""
        if not self.built and self.postings.until is None:
            return 0
        return self.postings.nbytes(self.snapshot.kept)

    def counts(self, hashes: Hashes) -> Counts:
        """Upper bounds of the rows per key, without tuples that arrived after the snapshot."""
        with self.snapshot.holding():
            _, counts, _ = self.postings.counts(hashes)
            if self.built or not self.snapshot.grown:
                return counts
            if self.summary is not None and self.summary.dropped:  # it has not indexed all later tuples
                raise TokenExpired(f"summary {self.summary.name!r} was dropped while this answer needed it; ask again")
            if self.snapshot.grown != self._seen:
                self._later = np.unique(self.hasher(self.snapshot.later(self.postings.until))[0], return_counts=True)
                self._seen = self.snapshot.grown
        known, since = self._later
        if not len(known):
            return counts
        at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        return np.maximum(counts - np.where(known[at] == hashes, since[at], 0), 0)

    def load(self, hashes: Hashes) -> Generator[None, None, Lists]:
        """The rows of these keys in the snapshot, newest first within each key."""
        rows_of: list[Rows] = []
        counts_of: list[Counts] = []
        at = 0
        while at < len(hashes):
            with self.snapshot.holding():
                newest, counts, total = self.postings.counts(hashes[at : at + STEPS])
                if total > STEPS:
                    fits = int(np.searchsorted(np.cumsum(counts), STEPS, side="right"))
                    newest, counts, total = newest[:fits], counts[:fits], int(counts[:fits].sum())
                if len(counts):
                    _, rows = self.postings.walk(newest, counts, total)
                    part = self._kept(rows, counts)
            if not len(counts):
                part = yield from self._long(hashes[at : at + 1])
            at += len(part.counts)
            rows_of.append(part.rows)
            counts_of.append(part.counts)
            if at < len(hashes):
                yield
        if len(rows_of) == 1:
            return part
        counts = np.concatenate(counts_of) if counts_of else np.empty(0, np.int64)
        rows = np.concatenate(rows_of) if rows_of else np.empty(0, np.int32)
        return Lists(rows, np.cumsum(counts) - counts, counts)

    def _long(self, hashes: Hashes) -> Generator[None, None, Lists]:
        """The rows of one key that has many, a slice of its chain at a time."""
        while True:
            parts: list[Rows] = []
            with self.snapshot.holding():
                newest, _, left = self.postings.counts(hashes)
                forgotten, row = self.postings.forgotten, int(newest[0])
            while left > 0:
                with self.snapshot.holding():
                    if self.postings.forgotten != forgotten:  # the end of the chain may have been reused
                        break
                    rows = np.empty(min(left, STEPS), np.int32)
                    row = self.postings.follow(row, rows)
                    parts.append(self._kept(rows, np.array([len(rows)])).rows)
                left -= len(rows)
                yield
            else:
                whole = np.concatenate([np.empty(0, np.int32), *parts])
                return Lists(whole, np.zeros(1, np.int64), np.array([len(whole)]))

    def _kept(self, rows: Rows, counts: Counts) -> Lists:
        """Drop rows outside the snapshot."""
        starts = np.cumsum(counts) - counts
        if self.built or (self.snapshot.everything and not self.snapshot.grown):
            return Lists(rows, starts, counts)
        kept = self.snapshot.admitted(rows)
        out = np.empty(len(rows), np.int32)
        counts = counts.copy()
        left = compact(rows, kept, starts, counts, out)
        return Lists(out[:left], starts, counts)


def finished(loading: Generator[None, None, Lists]) -> Lists:
    """The result of `Keys.load`, run without pausing."""
    while True:
        try:
            next(loading)
        except StopIteration as stop:
            lists: Lists = stop.value
            return lists
