"""SIMPLE-SHJ, the paper's opponent: a symmetric hash join of two streams, compiled as our own kernels are.

A tuple that arrives is put into the table and looks for its partners among the tuples of the other side that came
before. One line of the table (open addressing, linear probing, at most half full) has a key and the newest row of
either side, so putting in and looking up take one search. The rows of a key hang together newest first; a walk ends at
the first row that has left the window, which is all that expiry costs. (Times beside the links, in one array, were
tried, and were slower.) The table has room for every key and every row from the start: it never grows, and nothing is
ever copied.

Pairs come out as row numbers, in the order of arrival of their later tuple.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from promising.summaries.kernels.jit import kernel

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]
Sides = NDArray[np.int8]

FOREVER = 1 << 61
"""The window of a whole-stream join."""
ROOM = 1 << 16
"""Pairs that are made before the clock is asked again, at most."""
ARRIVALS = 1 << 10
"""Arrivals that are worked before the clock is asked again, at most."""
EVERY, NO_PROBE = 0, 1


@kernel(
    "int64(int8[::1], int32[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64, int64[::1], int32[:, ::1],"
    " int32[::1], int32[::1], int64, int64, int64[::1], int32[::1], int32[::1])",
)
def advance(
    side: Sides,
    row: Rows,
    keys_a: Ints,
    keys_b: Ints,
    ts_a: Ints,
    ts_b: Ints,
    window: int,
    lines: Ints,
    heads: NDArray[np.int32],
    older_a: Rows,
    older_b: Rows,
    last: int,
    mode: int,
    place: Ints,
    out_a: Rows,
    out_b: Rows,
) -> int:
    """Work arrivals up to number `last`, or until there is no room for pairs; returns how many pairs were made.

    older: for each row that was put in the next older row of its key, or -1.
    place = (arrival, row of the other side to go on from, or -1 if the arrival is yet to be put in), kept up to date.
    mode: with NO_PROBE arrivals are put in and look for nobody.
    """
    mask = lines.size - 1
    room = out_a.size
    made = 0
    at = place[0]
    partner = place[1]
    while at < last:
        mine = row[at]
        of_a = side[at] == 0
        now = ts_a[mine] if of_a else ts_b[mine]
        if partner < 0:
            key = keys_a[mine] if of_a else keys_b[mine]
            mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
            line = np.int64(mixed >> np.uint64(32)) & mask
            while (heads[line, 0] >= 0 or heads[line, 1] >= 0) and lines[line] != key:
                line = (line + 1) & mask
            lines[line] = key
            if of_a:
                older_a[mine] = heads[line, 0]
                heads[line, 0] = mine
                partner = heads[line, 1]
            else:
                older_b[mine] = heads[line, 1]
                heads[line, 1] = mine
                partner = heads[line, 0]
            if mode == NO_PROBE:
                partner = -1
        if of_a:
            while partner >= 0 and now - ts_b[partner] < window:
                if made == room:
                    place[0], place[1] = at, partner
                    return made
                out_a[made] = mine
                out_b[made] = partner
                made += 1
                partner = older_b[partner]
        else:
            while partner >= 0 and now - ts_a[partner] < window:
                if made == room:
                    place[0], place[1] = at, partner
                    return made
                out_a[made] = partner
                out_b[made] = mine
                made += 1
                partner = older_a[partner]
        partner = -1
        at += 1
    place[0], place[1] = at, -1
    return made


@dataclass(frozen=True)
class Side:
    """What the join needs of a stream, by row: rows are in order of time."""

    keys: Ints
    ts: Ints


class SimpleShj:
    """The join at work. Of two tuples with one key each comes out once, if their times are less than `window` apart."""

    def __init__(self, a: Side, b: Side, side: Sides, row: Rows, window: int = FOREVER, room: int = ROOM) -> None:
        """side, row: the arrivals, both streams merged by time (see `logs.arrivals`)."""
        self.a, self.b, self.side, self.row, self.window = a, b, side, row, window
        most = len(a.keys) + len(b.keys)
        self._lines = np.full(1 << max(2 * most, 2).bit_length(), 0, np.int64)  # all pages are touched beforehand
        self._heads = np.full((len(self._lines), 2), -1, np.int32)
        self._older = np.full(len(a.keys), -1, np.int32), np.full(len(b.keys), -1, np.int32)
        self._place = np.array([0, -1], np.int64)
        self._out = np.full(room, 0, np.int32), np.full(room, 0, np.int32)

    @property
    def worked(self) -> int:
        """Arrivals that are done with."""
        return int(self._place[0])

    @property
    def done(self) -> bool:
        return self.worked == len(self.row)

    def _step(self, last: int, mode: int) -> tuple[Rows, Rows]:
        a, b = self.a, self.b
        given = self.side, self.row, a.keys, b.keys, a.ts, b.ts, self.window, self._lines, self._heads, *self._older
        made = advance(*given, last, mode, self._place, *self._out)
        return self._out[0][:made], self._out[1][:made]

    def run(
        self, budget_ns: int | None = None, clock: Callable[[], int] = time.thread_time_ns, until: int | None = None
    ) -> Iterator[tuple[Rows, Rows]]:
        """Pairs in slices, each valid until the next, up to arrival `until`, or until the CPU time is spent.

        The time that whoever takes the slices spends in between counts. A slice that is begun is finished.
        """
        end = len(self.row) if until is None else min(until, len(self.row))
        began = clock()
        while self.worked < end:
            if budget_ns is not None and clock() - began >= budget_ns:
                return
            yield self._step(min(self.worked + ARRIVALS, end), EVERY)

    def skip(self, until: int) -> None:
        """Put arrivals in up to number `until` without looking for their partners; one half done is done with."""
        if self._place[1] >= 0:  # it is in the table already
            self._place[:] = self._place[0] + 1, -1
        if self.worked < until:
            self._step(until, NO_PROBE)
