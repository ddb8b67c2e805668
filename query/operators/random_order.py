"""Candidates of a promising set in random order."""

from collections.abc import Generator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from promising.errors import Overflow
from promising.query.kernels import draw as kernels
from promising.query.key_rows import SLICE, Lists
from promising.query.operators.guided import Guided
from promising.query.operators.operator import Batch, Guess, Operator, Pace, Sampler, Slices
from promising.query.priority_queue import Queue

Draws: TypeAlias = Generator[tuple[NDArray[np.int32], NDArray[np.int64]] | None, None, None]
"""Entries and candidate numbers within them, slice by slice."""

READ = 1 << 15  # tuples read for entries between clock checks
MOST_UNITS = float(1 << 62)


class Drawing(Sampler):
    """Draws candidates without replacement.

    The probability of a candidate is proportional to its weight: its share of the entry's priority, or, unless
    `weighted`, the same for all. `done` counts the draws, including those of candidates that turn out not to exist.
    """

    def __init__(self, promising: Guided, seed: int, pace: Pace, *, weighted: bool) -> None:
        super().__init__(promising.snapshots, pace)
        self.promising = promising
        self.plan = promising.plan
        self.seed = np.uint64(seed & ((1 << 64) - 1))
        self.weighted = weighted
        self._entries = 0
        self._arenas: list[_Arena] = []
        self._drawn: list[tuple[NDArray[np.int32], NDArray[np.int64]]] = []

    def work(self) -> Slices:
        if not self.plan.planned:
            yield from self.plan.fill()
        if self.weighted:
            yield from self.plan.refine_all()
        members = self.plan.set.members()
        self._entries = len(members)
        yield None
        arenas = self._arenas = [_Arena(len(self.plan.set)) for _ in self.plan.sides]
        alike = not self.weighted or self.plan.even
        for drawn in self._all_alike(members) if alike else self._by_clock(members):
            if drawn is None:
                yield None
                continue
            ids, numbers = drawn
            for side, arena in enumerate(arenas):
                missing = np.unique(ids[arena.starts[ids] < 0])
                self.rank += len(missing) if side == 0 else 0
                ends = np.cumsum(self.plan.set.counts[side][missing])
                for part in np.split(missing, np.flatnonzero(np.diff(ends // READ)) + 1):
                    if len(part):
                        arena.add(part, (yield from self.promising.lists(side, part)))
                        yield None
            yield self._batch(arenas, ids, numbers)

    def _all_alike(self, members: NDArray[np.int32]) -> Draws:
        """Number all candidates; a permutation of the numbers is the order."""
        units = self.plan.set.units[members]
        if self.plan.total >= MOST_UNITS:
            raise Overflow(f"{self.plan.total:.3g} candidates are more than can be drawn from; narrow the WINDOW")
        yield None
        ends = np.cumsum(units)
        total = int(ends[-1]) if len(ends) else 0
        yield None
        drawn = 0
        while drawn < total:
            numbers = np.empty(min(self.pace(), total - drawn), np.int64)
            kernels.permuted(drawn, total, self.seed, numbers)
            drawn += len(numbers)
            at = np.searchsorted(ends, numbers, side="right")
            yield members[at], numbers - (ends[at] - units[at])

    def _by_clock(self, members: NDArray[np.int32]) -> Draws:
        """See `query/kernels/draw.py`."""
        entries = self.plan.set
        n = len(entries)
        clocks, weight = np.empty(n), np.zeros(n)
        for first in range(0, len(members), SLICE):
            part = members[first : first + SLICE]
            weight[part] = self._weights(part)
            yield None
        most = weight.max(initial=0.0)
        if most > 0:  # only ratios matter, and small ones must not underflow
            weight /= most
        for first in range(0, n, SLICE):
            at = slice(first, first + SLICE)
            kernels.set_clocks(clocks[at], entries.tie[at], entries.units[at], weight[at], self.seed)
            yield None
        queue = Queue()
        queue.add(0, n, clocks, entries.tie)
        queue.keep(members)
        yield None
        used = np.zeros(n, np.int64)
        columns = (clocks, entries.tie, entries.units, used, weight, self.seed)
        while queue.ready(clocks, entries.tie):
            ids, numbers = np.empty(self.pace(), np.int32), np.empty(self.pace(), np.int64)
            made = kernels.draw(queue.heap, queue.heaped, *columns, queue.least, queue.last, ids, numbers)
            yield ids[:made], numbers[:made]

    def _weights(self, ids: NDArray[np.int32]) -> NDArray[np.float64]:
        """The weight of a candidate of each entry: the entry's priority divided by its candidates."""
        entries = self.plan.set
        with np.errstate(all="ignore"):
            return np.maximum(np.nan_to_num(entries.priority[ids] / entries.units[ids]), 0.0)

    def _batch(self, arenas: "list[_Arena]", ids: NDArray[np.int32], numbers: NDArray[np.int64]) -> Batch:
        """Candidate n of an entry with p x q tuples is the pair (n // q, n % q)."""
        counts = self.plan.set.counts
        places = [numbers] if len(arenas) == 1 else [numbers // counts[1][ids], numbers % counts[1][ids]]
        there = np.ones(len(ids), np.bool_)
        for arena, place in zip(arenas, places, strict=True):
            there &= place < arena.counts[ids]
        draws = np.arange(self.done, self.done + len(ids))[there]
        self._drawn.append((ids, numbers))
        self.done += len(ids)
        self.read += len(draws)
        rows = [a.rows[a.starts[ids[there]] + p[there]] for a, p in zip(arenas, places, strict=True)]
        return Batch(tuple(rows), draws)

    def rest(self, worker: Operator) -> tuple[NDArray[np.bool_], float]:
        none = (np.empty(0, np.int32), np.empty(0, np.int64))
        ids, numbers = (np.concatenate(c) for c in zip(none, *self._drawn, strict=True))
        self._drawn = [(ids, numbers)]
        entries, until = self.plan.set, self.plan.until
        left = float((entries.units - until).astype(np.float64).sum())
        return numbers >= until[ids], left

    @property
    def entries(self) -> int:
        return self._entries

    @property
    def nbytes(self) -> int:
        kept = sum(a.rows.nbytes + 16 * len(a.starts) for a in self._arenas)
        return self.plan.nbytes + kept + 12 * self.done

    def remaining(self) -> Guess | None:
        if not self.plan.planned:
            return None
        left = max(self.plan.total - self.done, 0.0)
        return Guess(left, left if self.plan.exact else 0.0, left)


class _Arena:
    def __init__(self, entries: int) -> None:
        self.starts = np.full(entries, -1, np.int64)
        self.counts = np.zeros(entries, np.int64)
        self.rows = np.empty(1024, np.int32)
        self.used = 0

    def add(self, ids: NDArray[np.int32], lists: Lists) -> None:
        total = int(lists.counts.sum())
        if self.used + total > len(self.rows):
            grown = np.empty(2 * (self.used + total), np.int32)
            grown[: self.used] = self.rows[: self.used]
            self.rows = grown
        starts = np.cumsum(lists.counts) - lists.counts
        if np.array_equal(starts, lists.starts):
            self.rows[self.used : self.used + total] = lists.rows
        else:  # lists that share rows
            within = np.arange(total) - np.repeat(starts, lists.counts)
            self.rows[self.used : self.used + total] = lists.rows[np.repeat(lists.starts, lists.counts) + within]
        self.starts[ids] = self.used + starts
        self.counts[ids] = lists.counts
        self.used += total
