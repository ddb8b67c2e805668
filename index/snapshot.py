"""A stream as it stood at one moment, seen through a window.

A query works in slices and the stream goes on between them. Tuples that arrive later are not in the snapshot; rows keep
their place as long as nothing that the window needs has aged out, and when something has, the snapshot says so.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import TokenExpired, UnknownName
from promising.index import log as tuple_log
from promising.index.instants import BEGINNING, END
from promising.index.kernels.gather import admit, granularities, touched
from promising.index.postings import Postings
from promising.index.regions import Guess
from promising.index.stream import Stream
from promising.index.summary import SummaryState
from promising.index.summary_index import SummaryIndex

Rows = NDArray[np.int32]


class Snapshot:
    """The tuples of [start, end) that had arrived when it was taken.

    They are among the `size` tuples of a few whole chunks, numbered in order of arrival from 0 on; `rows_at` says where
    a number is and `admitted` whether it belongs. Everything but the attributes is to be asked inside `holding`.
    """

    def __init__(self, stream: Stream, start: int, end: int, summary: SummaryIndex | None = None) -> None:
        with stream.reading() as log:
            self.stream = stream
            self.oldest = stream.oldest
            self.start = start if self.oldest is None else max(start, self.oldest)
            self.end = end
            self.until = log.arrived
            self.kept = len(log)
            """Tuples in the log."""
            self._log = log
            self._chunk = tuple_log.CHUNK
            starts, used, earliest, latest = log.spans()
            near = (latest >= self.start) & (earliest < end)
            inside = (earliest >= self.start) & (latest < end)
            self._starts = starts[near]
            self._ends = np.cumsum(used[near])
            self._shifts = self._starts - (self._ends - used[near])  # from a number to its row, by chunk
            self.size = int(used[near].sum())
            self.whole = bool((inside | ~near).all())
            """Whether every one of the `size` tuples belongs."""
            self.everything = bool(inside.all())
            """Whether every tuple of the log belongs."""
            self._earliest = int(earliest[near].min(initial=END))
            self._latest = int(latest[near].max(initial=BEGINNING))
            self.tuples = self._count(used, earliest, latest, inside, near & ~inside)
            """How many tuples belong, with bounds that hold."""
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
        """Chunks across an edge of the window are taken to have their share in it."""
        sure = float(used[inside].sum())
        first, last = earliest[across], latest[across] + 1
        covered = np.maximum(np.minimum(last, self.end) - np.maximum(first, self.start), 0) / (last - first)
        return Guess(sure + float((used[across] * covered).sum()), sure, float(self.size))

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Keep the stream still for a slice of work."""
        with self.stream.reading():
            oldest = self.stream.oldest
            if oldest is not None and oldest > max(self.start, self._earliest):
                raise TokenExpired(
                    f"stream {self.stream.name!r} has let go of tuples from before {oldest}, which this answer still"
                    " needs; ask again"
                )
            yield

    @property
    def grown(self) -> int:
        """How many tuples have arrived since."""
        return self._log.arrived - self.until

    def rows_at(self, numbers: NDArray[np.int64]) -> Rows:
        """Where the tuples with these numbers are."""
        rows: NDArray[np.int64] = numbers + self._shifts[np.searchsorted(self._ends, numbers, side="right")]
        return rows.astype(np.int32)

    def rows_between(self, first: int, last: int) -> Rows:
        """Where the tuples numbered first..last are, those that do not belong included."""
        parts = []
        low = first
        for chunk in range(int(np.searchsorted(self._ends, first, side="right")), len(self._ends)):
            if low >= last:
                break
            high, shift = min(last, int(self._ends[chunk])), int(self._shifts[chunk])
            parts.append(np.arange(low + shift, high + shift, dtype=np.int32))
            low = high
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.empty(0, np.int32)])

    def rows_in(self, first: int, last: int) -> Rows:
        """Where the tuples numbered first..last are that belong."""
        rows = self.rows_between(first, last)
        return rows if self.whole else rows[self.admitted(rows)]

    def admitted(self, rows: Rows) -> NDArray[np.bool_]:
        """Which rows belong."""
        log = self._log
        if log.times is None:
            return (log.arrivals(rows) < self.until) & log.between(rows, self.start, self.end)
        out = np.empty(len(rows), np.bool_)
        lg = self._chunk.bit_length() - 1
        admit(rows, log.times, log.bases, lg, self.until, self.start, self.end, out)
        return out

    def granularity(self, rows: Rows) -> NDArray[np.int64]:
        """Of each row, by the horizons that held when the snapshot was taken."""
        out = np.empty(len(rows), np.int64)
        if self._log.times is not None:
            granularities(self._log.times, rows, self.horizons, out)
            return out
        earliest, latest = self._log.edges(rows)
        out[:] = self._granularity(latest)
        unsure = np.flatnonzero(out != self._granularity(earliest))
        out[unsure] = self._granularity(self._log.when(rows[unsure]))
        return out

    def _granularity(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Horizons fall: how many of them are later than a time."""
        rising = self.horizons[::-1]
        return 1 + len(rising) - np.searchsorted(rising, times, side="right")

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
        """The granularities that the snapshot's tuples can be in, in the same way."""
        first, last = max(self.start, self._earliest), min(self.end - 1, self._latest)
        newest, oldest = (1 + int((time < self.horizons).sum()) for time in (last, first))
        return sum(1 << g for g in range(newest, oldest + 1))

    def column(self, name: str, rows: Rows) -> pa.Array:
        """A column at these rows."""
        return self._log.array(name, rows)

    def hashes(self, name: str, rows: Rows) -> NDArray[np.int64]:
        """Key hashes of a column of whole numbers or strings."""
        return self._log.hashes(name, rows, self.stream.seed)

    def nulls(self, name: str, rows: Rows) -> NDArray[np.bool_] | None:
        """Which rows have no value in a column; None if none."""
        return self._log.nulls(name, rows)

    @property
    def capacity(self) -> int:
        """More than any row."""
        return self._log.capacity


def postings_of(summary: SummaryIndex) -> Postings | None:
    """The rows of every key, of all the stream keeps; `STRUCTURE none` has none."""
    if summary.dropped:
        raise UnknownName(f"summary {summary.name!r} has been dropped")
    return summary.state.postings if isinstance(summary.state, SummaryState) else None
