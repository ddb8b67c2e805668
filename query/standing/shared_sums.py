"""Counts and sums of a window, shared by all aggregates over it, so that a tuple is not added to each.

A run of arrivals retains its sums until one of them expires; then the remaining ones are summed again, since rounded
sums cannot be subtracted. Runs are merged up to a size that takes some hundreds of microseconds to sum.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from promising.index.instants import END
from promising.query.standing.range_sums import Asked, Ranges, Sums, Values

if TYPE_CHECKING:
    from promising.query.standing.column_cache import StreamRows

LONGEST_STRETCH = 1 << 16  # maximum arrivals of a merged run


@dataclass
class _Stretch:
    """Arrivals `first` to `end`, of which the live ones are dated `least` to `most`, and their sums."""

    first: int
    end: int
    least: int
    most: int
    sums: Sums


class Totals:
    """The aggregates of one stream over windows of one length, identified by number."""

    def __init__(self, rows: "StreamRows", length: int) -> None:
        self._rows = rows
        self._length = length
        self._asked: dict[int, list[Asked]] = {}
        self._places: dict[int, list[int]] = {}
        self._ranges: Ranges | None = None
        self._sums = Sums(np.zeros((0, 3)), np.zeros((0, 3), np.int64))
        self._stretches: list[_Stretch] = []
        self._end = 0
        self._bound: int | None = None

    def __len__(self) -> int:
        return len(self._asked)

    def add(self, number: int, asked: list[Asked]) -> None:
        """Add counts and sums. The next look sums the window from scratch."""
        self._asked[number] = asked
        self._ranges, self._stretches = None, []

    def remove(self, number: int) -> None:
        del self._asked[number]
        self._ranges, self._stretches = None, []

    def of(self, number: int, now: int) -> list[tuple[float, float, int] | tuple[int, int, int]]:
        """The sums at a time, one for each that was asked for; see `Sums`."""
        self.look(now)
        return [
            tuple((self._sums.floats if one.kind == "float" else self._sums.ints)[place].tolist())
            for one, place in zip(self._asked[number], self._places[number], strict=True)
        ]

    def places(self, number: int) -> list[int]:
        """The rows of this one's sums in the result of the last `look`."""
        return self._places[number]

    def look(self, now: int) -> Sums:
        """Add new arrivals and remove expired ones; returns all sums."""
        bound = now - self._length
        if self._ranges is None:
            self._begin()
        elif self._end == self._rows.end and self._bound == bound:
            return self._sums
        try:
            self._advance(bound)
        except BaseException:
            self._ranges = None  # discard half-done work
            raise
        return self._sums

    def _advance(self, bound: int) -> None:
        ended = self._let_go(bound)
        came = self._take_in(bound)
        self._bound = bound
        assert self._ranges is not None
        if ended:
            self._sums = self._ranges.none()
            came = [stretch.sums for stretch in self._stretches]
        for sums in came:
            self._sums.join(sums)
        self._put_together()

    def _begin(self) -> None:
        known = self._rows.first
        every = [
            Asked(one.terms, one.argument, one.kind, one.first if one.first > known else 0)
            for asked in self._asked.values()
            for one in asked
        ]
        self._ranges = Ranges(every)
        places = iter(self._ranges.rows)
        self._places = {number: [next(places) for _ in asked] for number, asked in self._asked.items()}
        self._stretches = []
        self._sums = self._ranges.none()
        self._end = known

    def _let_go(self, bound: int) -> bool:
        """Remove tuples dated at or before the bound; returns whether there were any."""
        if all(stretch.least > bound for stretch in self._stretches):
            return False
        left = [stretch for stretch in self._stretches if stretch.most > bound]
        self._stretches = [s if s.least > bound else self._folded(s.first, s.end, bound) for s in left]
        return True

    def _take_in(self, bound: int) -> list[Sums]:
        """Add new arrivals; returns their sums."""
        first = len(self._stretches)
        at = max(self._end, self._rows.first)
        while at < self._rows.end:
            end = min(at + LONGEST_STRETCH, self._rows.end)
            self._stretches.append(self._folded(at, end, bound))
            at = end
        self._end = self._rows.end
        return [stretch.sums for stretch in self._stretches[first:]]

    def _folded(self, first: int, end: int, bound: int) -> _Stretch:
        """The live ones of these arrivals."""
        rows, ranges = self._rows, self._ranges
        assert ranges is not None
        first = max(first, rows.first)  # evicted arrivals have expired
        times, unread = rows.dated(first, end)
        if unread is None and int(times.min(initial=END)) > bound:
            sums = ranges.fold(
                lambda name: rows.span(name, first, end),
                end - first,
                lambda number: min(max(number - first, 0), end - first),
            )
        else:
            live = np.flatnonzero((times > bound) & (True if unread is None else ~unread))

            def left(name: str) -> Values:
                values, missing = rows.span(name, first, end)
                return values[live] if len(values) else values, None if missing is None else missing[live]

            sums = ranges.fold(left, len(live), lambda number: int(np.searchsorted(live, number - first)))
            times = times[live]
        return _Stretch(first, end, int(times.min(initial=END)), int(times.max(initial=bound)), sums)

    def _put_together(self) -> None:
        known = self._stretches
        while len(known) > 1 and 2 * (known[-1].end - known[-1].first) >= known[-2].end - known[-2].first:
            last, one = known[-1], known[-2]
            if last.end - one.first > LONGEST_STRETCH or one.end != last.first:
                break
            one.sums.join(last.sums)
            one.end = last.end
            one.least, one.most = min(one.least, last.least), max(one.most, last.most)
            known.pop()

    @property
    def nbytes(self) -> int:
        return sum(stretch.sums.nbytes for stretch in self._stretches)
