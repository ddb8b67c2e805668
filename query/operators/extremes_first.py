"""A random sample of a stream that begins with its extreme tuples.

A sum over heavy tails is decided by a few tuples that a sample is likely to miss. Those that `index.extremes` lists are
read for certain, the greatest first, as long as each is expected to spare draws; the rest is drawn uniformly. Which are
read depends on the tuples and on what was drawn before; the estimate is that of an exact part and a uniform sample of
the rest.
"""

import numpy as np
from numpy.typing import NDArray

from promising.index.extremes import BLOCK, Extremes
from promising.index.kernels.extremes import APART
from promising.index.snapshot import Snapshot
from promising.query.kernels.draw import permuted
from promising.query.operators.operator import Batch, Operator, Pace, Slices
from promising.query.operators.stream_scan import RandomScan

LISTED = 1 << 14  # tuples listed by column, at most
LEAST = 2.0  # of their values by the mean magnitude: no lesser one is worth it, for one draw in 16 is the most
HUGE = 1e300  # a mean magnitude that is beyond doubles counts as this
FIRST = 256  # tuples read for certain before anything is known of the rest
SHARE = 1 / 3  # of what is read, at most for certain
WORTH = 0.25  # draws that a tuple read for certain must be expected to spare
STEP = 4.0  # draws grow by this factor at most: early estimates of tails are poor
UNLISTED = np.iinfo(np.int64).max

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


class Ranked:
    """Extreme tuples by their numbers in a snapshot, the greatest first; each once.

    squares: of their scores, |value| / mean |value|, the greatest of their columns; 0 if it is not finite. apart: how
    many have such a value; they are first. unlisted: the squares of those left out, added up.
    certain: whether every value that is not finite is among them.
    """

    def __init__(self, snapshot: Snapshot, extremes: Extremes, names: list[str]) -> None:
        numbers, scores = [np.empty(0, np.int64)], [np.empty(0)]
        self.unlisted, hidden = 0.0, 0
        begin = (extremes.first + np.arange(extremes.blocks)) * BLOCK
        near = snapshot.overlaps(begin, begin + BLOCK)
        for name in names:
            sizes, arrivals, figures = extremes.of(name)
            found, at = sizes[near].ravel(), arrivals[near].ravel()
            hidden += int(figures[near, APART].sum()) - int(np.isinf(found).sum())
            mean = min(extremes.mean_size(name), HUGE) or 1.0
            great = (found > LEAST * mean) | np.isinf(found)
            found, at = found[great], at[great]
            if len(found) > LISTED:
                best = np.argpartition(-found, LISTED)
                rest = found[best[LISTED:]]
                hidden += int(np.isinf(rest).sum())
                self.unlisted += float(np.square(rest[np.isfinite(rest)] / mean).sum())
                found, at = found[best[:LISTED]], at[best[:LISTED]]
            place = snapshot.numbers_of(at)
            there = place >= 0
            numbers.append(place[there])
            scores.append(found[there] / mean)
        self.certain = not hidden
        number, score = np.concatenate(numbers), np.concatenate(scores)
        order = np.argsort(-score, kind="stable")
        number, score = number[order], score[order]
        by_number = np.argsort(number, kind="stable")
        again = by_number[1:][number[by_number[1:]] == number[by_number[:-1]]]  # of another column, with a lower score
        once = np.ones(len(number), np.bool_)
        once[again] = False
        self.numbers, score = number[once], score[once]
        self.apart = int(np.isinf(score).sum())
        self.squares = np.where(np.isinf(score), 0.0, np.square(score))
        self.beyond = np.concatenate((np.cumsum(self.squares[::-1])[::-1], [0.0])) + self.unlisted
        self._by_number = (np.cumsum(once) - 1)[by_number[once[by_number]]]
        self._sorted = self.numbers[self._by_number]

    def __len__(self) -> int:
        return len(self.numbers)

    def ranks(self, numbers: Longs) -> Longs:
        """The rank of each number; UNLISTED for others."""
        if not len(self):
            return np.full(len(numbers), UNLISTED)
        at = np.minimum(np.searchsorted(self._sorted, numbers), len(self) - 1)
        return np.where(self._sorted[at] == numbers, self._by_number[at], UNLISTED)

    @property
    def nbytes(self) -> int:
        return 5 * self.numbers.nbytes


class ExtremesFirst(RandomScan):
    """`certain` of the `ranked` tuples are read; the draws, in a uniformly random order, leave them out.

    gains: what an estimate found, by sum: the squares of its values per square of the score, and the mean square of a
    draw.
    """

    def __init__(self, snapshot: Snapshot, pace: Pace, seed: int, ranked: Ranked) -> None:
        super().__init__(snapshot, pace, seed)
        self.ranked = ranked
        self.certain = 0
        self.wanted = min(max(FIRST, ranked.apart), len(ranked))
        self.gains: list[tuple[float, float]] = []
        self._ranks: list[Longs] = []

    @property
    def nbytes(self) -> int:
        return 16 * self.drawn + self.ranked.nbytes

    @property
    def drawn(self) -> int:
        return self.done - self.certain

    def work(self) -> Slices:
        while self.certain < self.wanted or self.drawn < self.snapshot.size:
            yield self._certain() if self.certain < self.wanted else self._draw()

    def _certain(self) -> Batch:
        ranks = np.arange(self.certain, min(self.certain + self.pace(), self.wanted))
        batch = self._there(Batch((self.snapshot.rows_at(self.ranked.numbers[ranks]),), ranks, certain=True))
        self.certain += len(ranks)
        self.done += len(ranks)
        return batch

    def _draw(self) -> Batch:
        first = self.drawn
        numbers = np.empty(min(self.pace(), self.snapshot.size - first), np.int64)
        permuted(first, self.snapshot.size, self.seed, numbers)
        ranks = self.ranked.ranks(numbers)
        self._numbers.append(numbers)
        self._ranks.append(ranks)
        new = ranks >= self.certain
        batch = self._there(Batch((self.snapshot.rows_at(numbers[new]),), np.arange(first, first + len(new))[new]))
        self.done += len(numbers)
        return batch

    def planned(self, factor: float) -> int:
        draws = int(self.drawn * min(factor, STEP))
        for ratio, square in self.gains:
            least = WORTH * square * self.snapshot.size / max(draws, 1)
            if ratio > 0:
                worth = int(np.searchsorted(-self.ranked.squares[self.ranked.apart :], -least / ratio))
                self.wanted = max(self.wanted, min(self.ranked.apart + worth, int(draws * SHARE / (1 - SHARE))))
        return max(self.wanted + draws, self.done + 1)

    def ranks(self, draws: Longs) -> Longs:
        """The ranks of these draws."""
        self._ranks = [np.concatenate(self._ranks)] if self._ranks else [np.empty(0, np.int64)]
        return self._ranks[0][draws]

    def taken(self) -> Longs:
        """The numbers of the tuples read for certain, ascending."""
        return np.sort(self.ranked.numbers[: self.certain])

    def rest(self, worker: Operator) -> tuple[NDArray[np.bool_], float]:
        left, size = super().rest(worker)
        ahead = int((self.ranked.numbers[: self.certain] >= worker.done).sum())
        return left & (self.ranks(np.arange(len(left))) >= self.certain), size - ahead
