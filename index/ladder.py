"""The calendar ladder of a stream: moments of measured columns by aligned spans of event time.

Spans are minutes for the last day, hours for the last month (31 days), and days before that; they never overlap, and
each tuple is in one. Moments depend on no order, so a ladder answers alike however its tuples arrived. It follows the
log in order of arrival: tuples that arrived before `until` are in it, later ones are not.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.index.instants import BEGINNING, END
from promising.index.kernels.ladder import DAY, HOUR, MINUTE, span_runs
from promising.index.log import TupleLog
from promising.summaries.moments import Moments

BY_MINUTE, BY_HOUR = DAY, 31 * DAY  # how far back spans are minutes, and hours
BEHIND = 1 << 16  # tuples that may have arrived since before batches add them
LEAST = 64  # spans that there is room for
FEW = 1 << 10  # runs of tuples in one span, of which a batch seldom has more
MOST = 1 << 17  # spans from which on no tuples are added: 350 years of days

Longs = NDArray[np.int64]


class Ladder:
    """Columns are numbers or timestamps, by name with their types. The caller holds the stream's lock.

    Of span i, up to `size`: it begins at `starts[i]`, and holds `tuples[i]` tuples, dated `first[i]` to `last[i]`;
    `moments[column]` has a group for each. Spans are in no order.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.columns = dict(columns)
        self.until = 0
        self.size = 0
        self.minutes = self.hours = BEGINNING  # from when on spans are minutes, and hours; earlier ones are days
        self._room(LEAST)

    def _room(self, spans: int) -> None:
        """Empty arrays for so many spans."""
        self.starts = np.zeros(spans, np.int64)
        self.tuples = np.zeros(spans, np.int64)
        self.first = np.full(spans, END)
        self.last = np.full(spans, BEGINNING)
        self.moments = {name: Moments(spans, kind, squares=False) for name, kind in self.columns.items()}
        self._sorted = np.empty(0, np.int64)  # the spans in order of time
        self._ordered = np.empty(0, np.int64)  # and when they begin

    # --- follow --------------------------------------------------------------------------------------------------

    def follow(self, log: TupleLog, most: int, *, warm: bool) -> bool:
        """Add up to about so many tuples that have arrived since; `warm`: only those in memory.

        Returns whether none is left. A ladder of `MOST` spans stays behind, until some are released: later tuples are
        read instead.
        """
        if self.until < log.arrived:
            self._advance(int(log.spans()[3].max(initial=BEGINNING)))
        for rows, after in log.following(self.until, most, warm=warm):
            if self.size >= MOST:
                break
            if len(rows):
                self.add(log, rows)
            self.until = after
        return self.until >= log.arrived or self.size >= MOST

    def add(self, log: TupleLog, rows: NDArray[np.int32]) -> None:
        """Add these tuples, all or, if one cannot be read, none."""
        times = log.view(log.schema.time, rows)
        columns = [(moments, log.view(name, rows), log.nulls(name, rows)) for name, moments in self.moments.items()]
        runs = np.empty((FEW, 4), np.int64)
        count = span_runs(times, self.minutes, self.hours, runs)
        if count < 0:
            runs = np.empty((len(times), 4), np.int64)
            count = span_runs(times, self.minutes, self.hours, runs)
        at, starts, first, last = runs[:count].T
        spans, which = np.unique(starts, return_inverse=True)
        groups = self._enter(spans)[which].astype(np.int32)
        bounds = np.append(at, len(times))
        np.add.at(self.tuples, groups, np.diff(bounds))
        np.minimum.at(self.first, groups, first)
        np.maximum.at(self.last, groups, last)
        for moments, values, nulls in columns:
            moments.add_runs(groups, bounds, values, nulls)

    def _enter(self, starts: Longs) -> Longs:
        """The spans that begin then, in ascending order; new ones are empty."""
        at = np.minimum(np.searchsorted(self._ordered, starts), max(len(self._ordered) - 1, 0))
        new = starts if not len(self._ordered) else starts[self._ordered[at] != starts]
        if len(new):
            self._grow(self.size + len(new))
            self.starts[self.size : self.size + len(new)] = new
            self.size += len(new)
            self._sort()
        found: Longs = self._sorted[np.searchsorted(self._ordered, starts)]
        return found

    def _sort(self) -> None:
        self._sorted = np.argsort(self.starts[: self.size])
        self._ordered = self.starts[self._sorted]

    def _grow(self, spans: int) -> None:
        have = len(self.starts)
        if spans <= have:
            return
        more = max(spans, 2 * have) - have
        self.starts = np.concatenate((self.starts, np.zeros(more, np.int64)))
        self.tuples = np.concatenate((self.tuples, np.zeros(more, np.int64)))
        self.first = np.concatenate((self.first, np.full(more, END)))
        self.last = np.concatenate((self.last, np.full(more, BEGINNING)))
        for moments in self.moments.values():
            moments.grow(have + more)

    # --- age -----------------------------------------------------------------------------------------------------

    def _advance(self, latest: int) -> None:
        """A tuple is dated `latest`: older spans become longer."""
        minutes = (latest // HOUR) * HOUR - BY_MINUTE
        if minutes > self.minutes:
            self.minutes, self.hours = minutes, (latest // DAY) * DAY - BY_HOUR
            self._merge(self._sorted)

    def forget(self, oldest: int) -> None:
        """Tuples before `oldest` are released: remove spans without others, if they are many."""
        gone = self.last[: self.size] < oldest
        if 4 * int(gone.sum()) > self.size:
            self._merge(np.flatnonzero(~gone))

    def _merge(self, kept: Longs) -> None:
        """Keep these spans, merged to the lengths that they have now."""
        if not len(kept):
            self.size = 0
            self._room(LEAST)
            return
        old, first, last, tuples = self.moments, self.first[kept], self.last[kept], self.tuples[kept]
        old_starts = self.starts[kept]
        lengths = np.where(old_starts >= self.minutes, MINUTE, np.where(old_starts >= self.hours, HOUR, DAY))
        starts, places = np.unique(old_starts - old_starts % lengths, return_inverse=True)
        into = places.astype(np.int32)
        if np.array_equal(starts, self._ordered):
            return
        self.size = len(starts)
        self._room(max(LEAST, self.size))
        self.starts[: self.size] = starts
        np.add.at(self.tuples, into, tuples)
        np.minimum.at(self.first, into, first)
        np.maximum.at(self.last, into, last)
        for name, moments in self.moments.items():
            moments.merge(old[name].take(kept), into)
        self._sort()

    # --- read ----------------------------------------------------------------------------------------------------

    def within(self, start: int, end: int) -> Longs:
        """The spans with tuples dated `start` to `end` - 1 or across these edges, in order of time."""
        spans = self._sorted
        found: Longs = spans[(self.last[spans] >= start) & (self.first[spans] < end)]
        return found

    def merged(self, column: str, spans: Longs, into: NDArray[np.int32], groups: int) -> Moments:
        """The moments of spans, added up by group."""
        made = Moments(groups, self.columns[column], squares=False)
        made.merge(self.moments[column].take(spans), into)
        return made

    @property
    def nbytes(self) -> int:
        return 5 * self.starts.nbytes + sum(moments.nbytes for moments in self.moments.values())

    # --- to disk and back ----------------------------------------------------------------------------------------

    def image(self) -> dict[str, Any]:
        spans = self._sorted
        arrays = {name: getattr(self, name)[spans] for name in ("starts", "tuples", "first", "last")}
        moments = {name: of.take(spans).image() for name, of in self.moments.items()}
        edges = {"until": self.until, "minutes": self.minutes, "hours": self.hours}
        return {**edges, **arrays, "columns": dict(self.columns), "moments": moments}

    def restore(self, image: dict[str, Any] | None) -> None:
        """Restore from `image`, if it is of the same columns; otherwise it starts anew."""
        if image is None or image["columns"] != self.columns:
            return
        self.until, self.minutes, self.hours = image["until"], image["minutes"], image["hours"]
        self.starts, self.tuples, self.first, self.last = (
            image[name].copy() for name in ("starts", "tuples", "first", "last")
        )
        self.size = len(self.starts)
        for name, kind in self.columns.items():
            self.moments[name] = Moments.restore(image["moments"][name], kind, squares=False)
        self._sort()
