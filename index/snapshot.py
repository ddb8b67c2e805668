"""A snapshot of a stream, seen through a window.

A query works in slices, and the stream advances between them. Later tuples are not in the snapshot. Rows are stable
until something that the window needs has aged out; then the snapshot raises an error.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import TokenExpired, UnknownName
from promising.index import log as tuple_log
from promising.index.dictionary import CodedStrings
from promising.index.instants import BEGINNING, END
from promising.index.kernels.gather import admit, granularities, touched
from promising.index.postings import Postings
from promising.index.regions import Guess
from promising.index.stream import Stream
from promising.index.summary import SummaryState
from promising.index.summary_index import SummaryIndex
from promising.index.time_text import instant

Rows = NDArray[np.int32]


class Snapshot:
    """The tuples of [start, end) that had arrived when it was taken.

    They are among the `size` tuples of a few whole chunks, numbered from 0 in order of arrival; `rows_at` maps numbers
    to rows, `admitted` filters them. Call methods inside `holding` only.
    """

    def __init__(
        self, stream: Stream, start: int, end: int, summary: SummaryIndex | None = None, *, now: int | None = None
    ) -> None:
        """now: from where ages are counted; None: the end of the window."""
        with stream.reading() as log:
            self.stream = stream
            self.oldest = stream.oldest
            self.start = start if self.oldest is None else max(start, self.oldest)
            self.end = end
            self.now = end - 1 if now is None else now
            self.until = log.arrived
            self.kept = len(log)  # tuples in the log
            self._log = log
            self._chunk = tuple_log.CHUNK
            starts, used, earliest, latest = log.spans()
            near = (latest >= self.start) & (earliest < end)
            inside = (earliest >= self.start) & (latest < end)
            self._starts = starts[near]
            self._ends = np.cumsum(used[near])
            self._shifts = self._starts - (self._ends - used[near])  # from a number to its row, by chunk
            bases, runs, _ = log.homes()
            self._bases = bases[near]  # arrivals before each chunk
            self.cold = int(used[near & (runs >= 0)].sum())  # tuples on disk
            self._edges = earliest[near], latest[near]
            self.size = int(used[near].sum())
            self.whole = bool((inside | ~near).all())  # whether all of the `size` tuples belong
            self.everything = bool(inside.all())  # whether every tuple of the log belongs
            self.in_memory = log.in_memory(self._starts)  # whether no tuple has to be read from disk
            self._earliest = int(earliest[near].min(initial=END))
            self._latest = int(latest[near].max(initial=BEGINNING))
            self.tuples = self._count(used, earliest, latest, inside, near & ~inside)
            """Number of tuples that belong, with certain bounds."""
            state = None if summary is None else summary.state
            self.horizons = np.array(state.horizons if state is not None else (), np.int64)

    def _count(
        self,
        used: NDArray[np.int64],
        earliest: NDArray[np.int64],
        latest: NDArray[np.int64],
        inside: NDArray[np.bool_],
        across: NDArray[np.bool_],
    ) -> Guess:
        """Chunks across an edge of the window count in proportion."""
        sure = float(used[inside].sum())
        first, last = earliest[across], latest[across] + 1
        covered = np.maximum(np.minimum(last, self.end) - np.maximum(first, self.start), 0) / (last - first)
        return Guess(sure + float((used[across] * covered).sum()), sure, float(self.size))

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Lock the stream for a slice of work."""
        with self.stream.reading():
            oldest = self.stream.oldest
            if oldest is not None and oldest > max(self.start, self._earliest):
                raise TokenExpired(
                    f"stream {self.stream.name!r} has removed the tuples before {instant(int(oldest))}, which this"
                    " answer still needs; ask again"
                )
            yield

    @property
    def earliest(self) -> int:
        """No tuple that belongs is dated before."""
        return max(self.start, self._earliest)

    @property
    def grown(self) -> int:
        """Tuples that have arrived since."""
        return self._log.arrived - self.until

    def rows_at(self, numbers: NDArray[np.int64]) -> Rows:
        rows: NDArray[np.int64] = numbers + self._shifts[np.searchsorted(self._ends, numbers, side="right")]
        return rows.astype(np.int32)

    def numbers_of(self, arrivals: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of tuples by arrival; -1 for those of other chunks."""
        if not len(self._bases):
            return np.full(len(arrivals), -1)
        chunk = np.maximum(np.searchsorted(self._bases, arrivals, side="right") - 1, 0)
        within = arrivals - self._bases[chunk]
        firsts = self._ends - np.diff(self._ends, prepend=0)
        used = self._ends - firsts
        return np.where((within >= 0) & (within < used[chunk]), firsts[chunk] + within, -1)

    def overlaps(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which ranges of arrivals, from starts[i] to ends[i] - 1, may have tuples of it."""
        lasts = self._bases + np.diff(self._ends, prepend=0)
        found: NDArray[np.bool_] = np.searchsorted(lasts, starts, side="right") < np.searchsorted(self._bases, ends)
        return found

    def rows_between(self, first: int, last: int) -> Rows:
        """The rows of tuples first..last, including those that do not belong."""
        parts = []
        low = first
        for chunk in range(int(np.searchsorted(self._ends, first, side="right")), len(self._ends)):
            if low >= last:
                break
            high, shift = min(last, int(self._ends[chunk])), int(self._shifts[chunk])
            parts.append(np.arange(low + shift, high + shift, dtype=np.int32))
            low = high
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.empty(0, np.int32)])

    def parts(self, until: int, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ranges of numbers (first, last + 1, old) with every tuple that arrived at `until` or later, and every earlier
        one, then `old` is 1, dated in one of the disjoint ascending ranges from starts[i] to ends[i] - 1."""
        earliest, latest = self._edges
        firsts = self._ends - np.diff(self._ends, prepend=0)
        near = np.searchsorted(ends, earliest, side="right") < np.searchsorted(starts, latest, side="right")
        cut = np.clip(firsts + until - self._bases, firsts, self._ends)
        old = np.stack((firsts, np.where(near, cut, firsts), np.ones_like(cut)), axis=1)
        new = np.stack((cut, self._ends, np.zeros_like(cut)), axis=1)
        both = np.stack((old, new), axis=1).reshape(-1, 3)
        found: NDArray[np.int64] = both[both[:, 0] < both[:, 1]]
        return found

    def dated(self, rows: Rows, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows are dated in one of the disjoint ascending ranges."""
        times = self._log.when(rows)
        found: NDArray[np.bool_] = np.searchsorted(starts, times, side="right") > np.searchsorted(
            ends, times, side="right"
        )
        return found

    def rows_in(self, first: int, last: int) -> Rows:
        rows = self.rows_between(first, last)
        return rows if self.whole else rows[self.admitted(rows)]

    def admitted(self, rows: Rows) -> NDArray[np.bool_]:
        log = self._log
        if log.times is None:
            return (log.arrivals(rows) < self.until) & log.between(rows, self.start, self.end)
        out = np.empty(len(rows), np.bool_)
        lg = self._chunk.bit_length() - 1
        admit(rows, log.times, log.bases, lg, self.until, self.start, self.end, out)
        return out

    def granularity(self, rows: Rows, horizons: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """One more than the horizons, descending, that a row is behind; by those of the snapshot, its granularity."""
        horizons = self.horizons if horizons is None else horizons
        out = np.empty(len(rows), np.int64)
        if self._log.times is not None:
            granularities(self._log.times, rows, horizons, out)
            return out
        earliest, latest = self._log.edges(rows)
        out[:] = _behind(latest, horizons)
        unsure = np.flatnonzero(out != _behind(earliest, horizons))
        out[unsure] = _behind(self._log.when(rows[unsure]), horizons)
        return out

    def later(self, before: int | None = None) -> Rows:
        """The rows that have arrived since, up to that arrival number."""
        rows = self._log.rows_from(self.until)
        return rows if before is None else rows[self._log.arrivals(rows) < before]

    def touched(self, rows: Rows) -> int:
        """The granularities of these rows: bit g is set for granularity g."""
        if self._log.times is not None:
            return int(touched(self._log.times, rows, self.horizons))
        return sum(1 << int(g) for g in np.unique(self.granularity(rows)))

    @property
    def reached(self) -> int:
        """The possible granularities of the snapshot's tuples, likewise."""
        first, last = max(self.start, self._earliest), min(self.end - 1, self._latest)
        newest, oldest = (1 + int((time < self.horizons).sum()) for time in (last, first))
        return sum(1 << g for g in range(newest, oldest + 1))

    def column(self, name: str, rows: Rows) -> pa.Array:
        return self._log.array(name, rows)

    def coded(self, name: str, rows: Rows) -> CodedStrings | None:
        """A column of strings as codes; None if not all of it is in codes."""
        return self._log.coded(name, rows)

    def hashes(self, name: str, rows: Rows) -> NDArray[np.int64]:
        """Key hashes of an integer or string column."""
        return self._log.hashes(name, rows, self.stream.seed)

    def told_apart(self, name: str, other: "Snapshot", others_name: str, most: int) -> bool | None:
        """Whether two strings of these columns are equal if their hashes are, for all tuples of both snapshots.

        Looks at up to `most` strings; None if there are more. Call it with both streams locked.
        """
        mine, theirs = self._log.dictionary(name, self._starts), other._log.dictionary(others_name, other._starts)
        seed = self.stream.seed
        if mine is None or theirs is None or seed != other.stream.seed:
            return False
        return mine.told_apart_by(seed, theirs, most)

    def nulls(self, name: str, rows: Rows) -> NDArray[np.bool_] | None:
        return self._log.nulls(name, rows)

    @property
    def capacity(self) -> int:
        """Greater than any row."""
        return self._log.capacity


def _behind(times: NDArray[np.int64], horizons: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of (descending) horizons later than a time, plus one."""
    rising = horizons[::-1]
    return 1 + len(rising) - np.searchsorted(rising, times, side="right")


def postings_of(summary: SummaryIndex) -> Postings | None:
    """The postings of all the stream retains; None without structure, and with `postings = off`."""
    if summary.dropped:
        raise UnknownName(f"summary {summary.name!r} has been dropped")
    found = summary.state.postings if isinstance(summary.state, SummaryState) else None
    return found if isinstance(found, Postings) else None
