"""The tuples of many keys, in slices, so that the stream goes on between them."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.asked_keys import check_keys
from promising.index.postings import Postings
from promising.index.reader import matching
from promising.index.regions import Window, check_window
from promising.index.summary import SummaryState
from promising.index.summary_index import SummaryIndex
from promising.index.unindexed import BareState
from promising.index.unposted import candidates, cells_with
from promising.summaries.hashing import hash_checked
from promising.summaries.keys import as_keys

SLICE = 1 << 15
"""Tuples handled under one lock of the stream, and tuples of a slice."""
ATTEMPTS = 3
"""To list the rows of a long key in steps; the last attempt is a single step."""

Rows = NDArray[np.int32]
Ints = NDArray[np.int64]
Slices = Iterator[tuple[Rows, pa.Table]]


def probing(
    index: SummaryIndex, keys: Any, window: Window = None, columns: list[str] | None = None
) -> Iterator[pa.Table | None]:
    """`SummaryIndex.fetch` in slices of at most `SLICE` tuples, at least one slice; None after work without any.

    The first column, `probe`, is the index of a tuple's key in `keys`. Each different key is looked up once: the copies
    of a slice follow it, so keys that are there repeatedly are not in order. Memory: a slice, and four bytes for each
    tuple of one key.
    """
    return _Probing(index, keys, window, columns).run()


class _Probing:
    def __init__(self, index: SummaryIndex, keys: Any, window: Window, columns: list[str] | None) -> None:
        self.index = index
        self.window = window
        self.spent = 0
        with index.reading() as state:
            asked = check_keys(keys, index.key, state.log.schema)
            self.names = state.log.names(columns)
            self.range = check_window(window)
            index.consider()
            self.arrived = state.log.arrived
        encoded = pa.array(asked).dictionary_encode()
        self.keys = as_keys(encoded.dictionary)  # the different ones, in the order of their first places
        which = encoded.indices.to_numpy()
        self.places = np.argsort(which, kind="stable").astype(np.int32)  # of each key, one after the other
        self.copies = np.bincount(which, minlength=len(self.keys)).astype(np.int64)
        self.starts = np.cumsum(self.copies) - self.copies
        self.hashes = hash_checked(self.keys, state.seed).view(np.int64)
        self.nothing = np.empty(0, np.int32), pa.table({})

    def run(self) -> Iterator[pa.Table | None]:
        found, some = 0, False
        for which, rows in self._slices():
            found += len(which)
            if not len(which):
                yield None
            for part in self._copied(which, rows):
                some = True
                yield part
        self.index.probed(len(self.keys), found, self.window, self.spent)
        if not some:
            with self.index.reading() as state:
                none = np.empty(0, np.int32)
                empty = _shown(none, state.log.take(none, self.names))
            yield empty

    @contextmanager
    def _looking(self) -> Iterator[SummaryState | BareState]:
        with self.index.reading() as state:
            began = self.index.cpu()
            yield state
            self.spent += self.index.cpu() - began

    def _copied(self, which: Rows, found: pa.Table) -> Iterator[pa.Table]:
        """The tuples of a slice once for each place of their keys."""
        if len(self.places) == len(self.keys):
            if len(which):
                yield _shown(which, found)
            return
        ends = np.cumsum(self.copies[which])
        total = int(ends[-1]) if len(ends) else 0
        for first in range(0, total, SLICE):
            at = np.arange(first, min(first + SLICE, total))
            rows = np.searchsorted(ends, at, side="right")
            key = which[rows]
            copy = at - (ends[rows] - self.copies[key])
            yield _shown(self.places[self.starts[key] + copy], found.take(pa.array(rows)))

    def _slices(self) -> Iterator[tuple[Rows, pa.Table]]:
        """Indexes of different keys, and their tuples. The structure may change in between."""
        at = 0
        while at < len(self.keys):
            with self._looking() as state:
                next_, part = (len(self.keys), None) if _postings(state) is None else self._next(state, at)
            if part is not None:
                yield part
            elif next_ > at:
                yield from self._scanned(at, next_)
            else:
                next_ = at + 1
                yield from self._long(at)
            at = next_

    def _next(self, state: SummaryState | BareState, at: int) -> tuple[int, tuple[Rows, pa.Table] | None]:
        """The first key that is left over, and the tuples of those before it; no tuples if one key has too many."""
        postings = _postings(state)
        assert postings is not None
        newest, counts, total = postings.counts(self.hashes[at : at + SLICE])
        if total > SLICE:
            fits = int(np.searchsorted(np.cumsum(counts), SLICE, side="right"))
            newest, counts, total = newest[:fits], counts[:fits], int(counts[:fits].sum())
        if not len(counts):
            return at, None
        return at + len(counts), self._tuples(state, at, *postings.walk(newest, counts, total))

    def _tuples(self, state: SummaryState | BareState, at: int, which: Rows, rows: Rows) -> tuple[Rows, pa.Table]:
        """The tuples of candidate rows that really have their key, `which` counted from `at`."""
        which, rows = matching(state, self.keys[at:], which, rows, *self.range)
        return which + np.int32(at), state.log.take(rows, self.names)

    def _long(self, at: int) -> Iterator[tuple[Rows, pa.Table]]:
        """The tuples of a key that has many, newest first."""
        listed = yield from self._listed(at)
        if listed is None:
            yield from self._scanned(at, at + 1)
            return
        rows, bases = listed
        for first in range(0, len(rows), SLICE):
            part = rows[first : first + SLICE]
            with self._looking() as state:
                part = part[state.log.unchanged(part, bases)]
                found = self._tuples(state, at, np.zeros(len(part), np.int32), part)
            yield found

    def _listed(self, at: int) -> Generator[tuple[Rows, pa.Table], None, tuple[Rows, Ints] | None]:
        """The rows of a key, and what `unchanged` needs to recognise them; None if there is no structure any more."""
        for attempt in range(1, ATTEMPTS + 1):
            rows, done, row, postings, forgotten = np.empty(0, np.int32), 0, 0, None, 0
            while postings is None or done < len(rows):
                with self._looking() as state:
                    known = _postings(state)
                    if known is None:
                        return None
                    if postings is None:
                        postings, forgotten = known, known.forgotten
                        newest, _, total = postings.counts(self.hashes[at : at + 1])
                        rows, row, bases = np.empty(total, np.int32), int(newest[0]), state.log.bases.copy()
                    elif known is not postings or postings.forgotten != forgotten:
                        break  # the end of the chain may have been reused
                    step = rows[done : None if attempt == ATTEMPTS else done + SLICE]
                    row = postings.follow(row, step) if len(step) else row
                    done += len(step)
                yield self.nothing
            else:
                return rows, bases
        raise AssertionError("the last attempt is a single step")

    def _scanned(self, first: int, last: int) -> Iterator[tuple[Rows, pa.Table]]:
        """The tuples of these keys without postings: by cells, or without those from the whole log."""
        wanted = _Wanted(self.hashes[first:last])
        with self._looking() as state:
            bases = state.log.bases.copy()
            cells = cells_with(state, wanted.hashes, *self.range) if isinstance(state, SummaryState) else None
            sizes = state.identity.sizes
        if cells is not None:
            yield from self._by_cells(first, wanted, candidates(cells, sizes, state.hashes, SLICE), bases)
            return
        at = 0
        while at < self.arrived:
            with self._looking() as state:
                rows, at = state.log.next_rows(at, min(SLICE, self.arrived - at))
                found = self._tuples(state, first, *wanted.among(state.hashes(rows), rows))
            yield found

    def _by_cells(self, first: int, wanted: "_Wanted", reading: Iterator[Rows], bases: Ints) -> Slices:
        """In the order of postings: by key, newest first. Memory: eight bytes for each tuple found."""
        which, rows = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        while True:
            with self._looking() as state:
                part = next(reading, None)
                if part is None:
                    break
                part = part[state.log.unchanged(part, bases)]
                key, found = wanted.among(state.hashes(part), part)
            which.append(key)
            rows.append(found)
            yield self.nothing
        key, row = np.concatenate(which), np.concatenate(rows)
        with self._looking() as state:
            order = np.lexsort((-state.log.arrivals(row), key))
        for at in range(0, len(order), SLICE):
            places = order[at : at + SLICE]
            with self._looking() as state:
                places = places[state.log.unchanged(row[places], bases)]
                tuples = self._tuples(state, first, key[places], row[places])
            yield tuples


class _Wanted:
    """Hashes of keys, some of them perhaps equal, that rows are looked for."""

    def __init__(self, hashes: Ints) -> None:
        self._order = np.argsort(hashes, kind="stable")
        self.hashes = hashes[self._order]

    def among(self, hashes: Ints, rows: Rows) -> tuple[Rows, Rows]:
        """(index of the key, row) for each key with the hash of a row."""
        low = np.searchsorted(self.hashes, hashes, side="left")
        counts = np.searchsorted(self.hashes, hashes, side="right") - low
        which = np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
        return self._order[which].astype(np.int32), np.repeat(rows, counts)


def _postings(state: SummaryState | BareState) -> Postings | None:
    found = state.postings if isinstance(state, SummaryState) else None
    return found if isinstance(found, Postings) else None


def _shown(places: Rows, found: pa.Table) -> pa.Table:
    return found.add_column(0, pa.field("probe", pa.int32()), pa.array(places, pa.int32()))
