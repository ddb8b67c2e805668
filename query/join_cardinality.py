"""The number of rows of a join, estimated from samples of both windows and from postings.

J is the sum over keys k of a_k b_k, the tuples of k in either window. Both windows are sampled uniformly without
replacement. Each key belongs to one of three classes, decided by the directories alone and so independent of the
samples:

    looked up on side 0    a_k is counted exactly, and summed over the sampled tuples of side 1
    looked up on side 1    the same with the sides exchanged
    sampled                no directory, or too many tuples on both sides: the pairs between the two samples count

The keys that a pilot sample finds frequent on both sides are counted exactly beforehand, and are no part of the rest.
Those that it finds frequent on one side are looked up on the other, where the sample may miss them.
A key that both directories can answer is looked up where it is rarer, so a key with few tuples on one side and many
on the other adds hardly any variance. The estimate is unbiased. Conditions that read one side apply to sampled and to
counted tuples; a condition that reads both is tried on one random partner of each sampled tuple.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from promising.errors import PromisingError, UnknownName
from promising.index import SummaryIndex
from promising.index.sketches import Sketched, window_sketch
from promising.index.snapshot import Rows, Snapshot, postings_of
from promising.query.bound import Bound
from promising.query.kernels.draw import permuted
from promising.query.key_rows import Counts, Hasher, Hashes, Keys, Lists, finished
from promising.query.operators.operator import Batch, Guess
from promising.query.pipeline import passing
from promising.query.scalar.compiled import Compiled
from promising.summaries.adt import BOUNDS
from promising.summaries.sizing import tail_point

LEAST, FIRST, MOST = 1 << 10, 1 << 11, 1 << 16  # tuples sampled per side: with any budget, at first, and at most
SHARE = 0.1  # of the budget that may be spent on samples
COST = 500  # rough nanoseconds per tuple sampled of each side, smaller samples before included
PILOT, HEAVY, FREQUENT = 1 << 9, 32, 4  # tuples of the pilot sample, most keys it names, their pairs in it at least
STEPS = 4  # tuples of heavy keys that are read, times the size of the largest sample
APART = 8.0  # draws per sampled tuple at most, where the window has only a part of its chunks
WALKED = 32  # tuples of a key, in and out of the window, that are read to count those inside
LISTED = 1 << 15  # tuples of the keys of an IN list that are read to count them
PAIRS = 1 << 16  # pairs of two whole windows on which a condition is tried
NARROW = 1.3  # upper / lower at which sampling ends
REACH = 2.8  # standard errors to either bound: sums over keys are skewed, and sampling ends where it looks narrow
UNSEEN = 3.0  # tuples that the sample expects of a key are all missed with probability exp(-3): 5 %

Floats = NDArray[np.float64]
NONE: Hashes = np.empty(0, np.int64)
MANY = np.iinfo(np.int64).max  # tuples of a key, without a directory


@dataclass
class _Side:
    snapshot: Snapshot
    hasher: Hasher
    keys: Keys | None
    conditions: list[Compiled]
    most: float  # tuples of any key
    counted: bool  # whether the directory's counts are those of the window and the conditions

    def passing(self, number: int, rows: Rows) -> NDArray[np.bool_]:
        return _met(self.conditions, {number: self.snapshot}, rows)

    def steps(self, hashes: Hashes) -> Counts:
        """Tuples to read in order to count those of each key."""
        assert self.keys is not None
        return np.zeros(len(hashes), np.int64) if self.counted else self.keys.counts(hashes)

    def exact(self, number: int, hashes: Hashes) -> tuple[Counts, Lists | None]:
        """Tuples of each key in the window that meet the side's conditions; and where they are, if they were read."""
        assert self.keys is not None
        if self.counted:
            return self.keys.counts(hashes), None
        lists = finished(self.keys.load(hashes))
        if not self.conditions:
            return lists.counts, lists
        owner = np.repeat(np.arange(len(hashes)), lists.counts)
        kept = self.passing(number, lists.rows)
        counts = np.bincount(owner[kept], minlength=len(hashes))
        return counts, Lists(lists.rows[kept], np.cumsum(counts) - counts, counts)


@dataclass
class _Sample:
    """`drawn` of `population` tuples; those that belong and meet the side's conditions have `rows` and `hashes`."""

    rows: Rows
    hashes: Hashes
    drawn: int
    population: int
    place: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # of each row's key among all

    @property
    def scale(self) -> float:
        return self.population / self.drawn

    @property
    def whole(self) -> bool:
        return self.drawn == self.population


def conditions(bound: Bound) -> list[Compiled]:
    """The conditions that tuples with equal keys may fail; string keys are compared again, as hashes may collide."""
    keys = [k.condition.unnest() for k in (bound.join, bound.constants) if k is not None]
    return [p for p, c in zip(bound.predicates, bound.conditions, strict=True) if c.unnest() not in keys]


class JoinCardinality:
    """Estimates with bounds that hold with a probability of 95 %. Nothing is counted before the first question.

    The samples grow until the bounds are narrow, within a tenth of `budget` (nanoseconds of CPU time).
    """

    def __init__(
        self,
        bound: Bound,
        snapshots: list[Snapshot],
        hashers: list[Hasher],
        restrict: Hashes | None,
        budget: int | None,
        seed: int,
    ) -> None:
        self.bound = bound
        self.snapshots = snapshots
        self.hashers = hashers
        self.restrict = None if restrict is None else np.unique(restrict)
        self.most = MOST if budget is None else max(LEAST, min(int(budget * SHARE / COST), MOST))
        self.seed = seed
        self.conditions = conditions(bound)
        self._known: dict[bool, Guess] = {}

    def pairs(self) -> Guess:
        """Pairs with equal keys, before other conditions."""
        return self._estimate(())

    def rows(self) -> Guess:
        """Pairs that also meet all conditions."""
        return self._estimate(self.conditions)

    def _estimate(self, conditions: Sequence[Compiled]) -> Guess:
        asked = bool(conditions)
        if asked not in self._known:
            a, b = (s.tuples.upper for s in self.snapshots)
            try:
                found = self._sampled(conditions) if all(s.in_memory for s in self.snapshots) else None
            except PromisingError:  # tuples aged out, or a condition fails on some pair: the query itself reports it
                found = None
            if found is None:
                found = sketched(self.bound, self.snapshots)
                found = Guess(found.value, 0.0, found.upper) if conditions else found
            self._known[asked] = Guess(*(min(max(x, 0.0), a * b) for x in found))
        return self._known[asked]

    def _sampled(self, conditions: Sequence[Compiled]) -> Guess:
        parts: list[list[Compiled]] = [[], [], []]  # conditions on side 0, on side 1, and the others
        for condition in conditions:
            read = {i.source for i in condition.inputs}
            parts[next(iter(read)) if len(read) == 1 else 2].append(condition)
        both = parts[2]
        sides = [self._side(n, parts[n], alone=not parts[n] and not both) for n in range(2)]
        if self.restrict is not None and not both:
            found = self._listed(sides)
            if found is not None:
                return found
        size = min(FIRST, self.most)
        sure, heavy, looked_up = self._frequent(sides, both)
        while True:
            samples = [self._sample(n, side, size, heavy) for n, side in enumerate(sides)]
            draw = _Draw(samples, sides, looked_up, both, self.seed)
            found = Guess(*(sure + x for x in draw.estimate()))
            if size >= self.most or found.upper <= NARROW * found.lower or all(s.whole for s in draw.samples):
                return found
            wide = (found.upper - found.lower) / (NARROW - 1) / max(found.value, 1.0)  # falls with the root of the size
            size = min(int(size * min(max(1.5 * wide**2, 2.0), 16.0)), self.most)

    def _side(self, number: int, conditions: list[Compiled], *, alone: bool) -> _Side:
        snapshot, hasher = self.snapshots[number], self.hashers[number]
        assert self.bound.join is not None
        summary, keys = self.bound.join.summaries[number], None
        postings = None if summary is None else postings_of(summary)
        if postings is not None:
            keys = Keys(snapshot, hasher, postings, exact=snapshot.everything, summary=summary)
        most = float(snapshot.size if keys is None else keys.postings.most)
        return _Side(snapshot, hasher, keys, conditions, most, alone and snapshot.everything)

    def _frequent(self, sides: list[_Side], both: list[Compiled]) -> tuple[float, Hashes, list[Hashes]]:
        """The exact number of pairs of keys that are frequent on both sides, these keys, and by side the keys to be
        counted there, as they are frequent on the other.

        Pilot samples name them; they are no part of the samples that estimate the rest, so no bias comes from them.
        """
        if any(s.keys is None for s in sides) or all(s.snapshot.size <= self.most for s in sides):
            return 0.0, NONE, [NONE, NONE]
        pilots = [self._sample(n, side, PILOT, NONE, first=True).hashes for n, side in enumerate(sides)]
        hashes, place = np.unique(np.concatenate(pilots), return_inverse=True)
        halves = np.split(place, [len(pilots[0])])
        seen = [np.bincount(half, minlength=len(hashes)) for half in halves]

        def cheapest(chosen: NDArray[np.bool_], weight: NDArray[np.int64], read: list[_Side]) -> NDArray[np.int64]:
            """The weightiest of the chosen keys, as many as can be counted on those sides."""
            order = np.argsort(-weight, kind="stable")
            order = order[chosen[order]][:HEAVY]
            return order[np.cumsum(sum(side.steps(hashes[order]) for side in read)) <= STEPS * self.most]

        pairs = seen[0] * seen[1]
        heavy = cheapest((pairs >= FREQUENT) & (not both), pairs, sides)
        left = np.ones(len(hashes), np.bool_)
        left[heavy] = False
        looked_up = [
            hashes[cheapest(left & (seen[1 - n] >= FREQUENT) & (seen[n] < seen[1 - n]), seen[1 - n], [side])]
            for n, side in enumerate(sides)
        ]
        a, b = (side.exact(n, hashes[heavy])[0].astype(np.float64) for n, side in enumerate(sides))
        return float((a * b).sum()), hashes[np.sort(heavy)], looked_up

    def _sample(self, number: int, side: _Side, size: int, without: Hashes, *, first: bool = False) -> _Sample:
        """Tuples of a random order of the window's chunks, after the pilot: a larger sample contains a smaller one."""
        snapshot = side.snapshot
        apart = min(snapshot.size / max(snapshot.tuples.value, 1.0), APART)  # draws per tuple in the window
        size = min(int(size * apart), snapshot.size)
        start = 0 if first or PILOT + size >= snapshot.size else PILOT
        numbers = np.empty(size, np.int64)
        permuted(start, snapshot.size, np.uint64((self.seed + number) & ((1 << 64) - 1)), numbers)
        with snapshot.holding():
            rows = snapshot.rows_at(np.sort(numbers))
            if not snapshot.whole:
                rows = rows[snapshot.admitted(rows)]
            hashes, missing = side.hasher(rows)
        kept = np.ones(len(rows), np.bool_) if missing is None else ~missing
        if self.restrict is not None:
            kept &= np.isin(hashes, self.restrict)
        if len(without):
            kept &= ~np.isin(hashes, without)
        rows, hashes = rows[kept], hashes[kept]
        if side.conditions:
            kept = side.passing(number, rows)
            rows, hashes = rows[kept], hashes[kept]
        return _Sample(rows, hashes, max(len(numbers), 1), max(snapshot.size, 1))

    def _listed(self, sides: list[_Side]) -> Guess | None:
        """The exact number for the keys of an IN list, if both directories count them quickly."""
        assert self.restrict is not None
        counts = []
        for number, side in enumerate(sides):
            if side.keys is None:
                return None
            if side.steps(self.restrict).sum() > LISTED:
                return None
            counts.append(side.exact(number, self.restrict)[0].astype(np.float64))
        total = float((counts[0] * counts[1]).sum())
        return Guess(total, total, total)


class _Draw:
    """One estimate from two samples."""

    def __init__(
        self,
        samples: list[_Sample],
        sides: list[_Side],
        looked_up: list[Hashes],
        both: list[Compiled],
        seed: int,
    ) -> None:
        self.samples = samples
        self.sides = sides
        self.looked_up = looked_up
        self.both = both
        self.rng = np.random.default_rng(seed)
        hashes, place = np.unique(np.concatenate([s.hashes for s in samples]), return_inverse=True)
        self.hashes: Hashes = hashes
        samples[0].place, samples[1].place = np.split(place, [len(samples[0].hashes)])
        self.found = [np.bincount(s.place, minlength=len(hashes)).astype(np.float64) for s in samples]
        self.exact = all(s.whole for s in samples)

    def estimate(self) -> Guess:
        if self.exact and not self.both:
            total = float((self.found[0] * self.found[1]).sum())
            return Guess(total, total, total)
        if self.exact and (self.found[0] * self.found[1]).sum() <= PAIRS:
            total = float(self._all_pairs())
            return Guess(total, total, total)
        counts = [np.full(len(self.hashes), MANY) if s.keys is None else s.keys.counts(self.hashes) for s in self.sides]
        looked_up = self._classes(counts)
        value = variance = unseen = 0.0
        for number in range(2):  # tuples of this side are summed over, their partners counted on the other
            mine, other = self.samples[number], self.samples[1 - number]
            partners = np.where(looked_up == -1, self.found[1 - number] * other.scale, 0.0)
            there = np.flatnonzero((looked_up == 1 - number) & (self.found[number] > 0))
            lists = self._count(1 - number, partners, there)
            each = partners[mine.place]
            if self.both:
                each = each * self._meets(number, each, looked_up, there, lists)
            value += mine.scale * float(each.sum() if number else each[looked_up[mine.place] != -1].sum())
            mean = float(each.sum()) / mine.drawn
            spread = max(float((each**2).sum()) / mine.drawn - mean**2, 0.0)
            left = 1 - mine.drawn / mine.population
            # A partner drawn at random is a second stage of sampling, which a whole first stage does not make exact.
            variance += (1.0 if self.both else left) * mine.population**2 * spread / max(mine.drawn - 1, 1)
            missed = (looked_up != number) & (self.found[number] == 0)  # but found on the other side
            most = np.minimum(counts[number][missed], UNSEEN * mine.scale) * self.found[1 - number][missed]
            nowhere = UNSEEN * mine.scale * min(self.sides[1 - number].most, UNSEEN * mine.scale)
            unseen += left * max(nowhere, other.scale * float(most.max(initial=0.0)))
        reach = REACH * math.sqrt(variance)
        return Guess(value, max(value - reach, 0.0), value + reach + unseen)

    def _classes(self, counts: list[Counts]) -> NDArray[np.int8]:
        """By key, the side on which its tuples are counted; -1 for neither. counts: those of the directories."""
        able = [
            (np.full(len(c), s.counted) if s.keys is not None else np.zeros(len(c), np.bool_)) | (c <= WALKED)
            for c, s in zip(counts, self.sides, strict=True)
        ]
        out = np.full(len(self.hashes), -1, np.int8)
        out[able[1]] = 1
        out[able[0] & (~able[1] | (counts[0] <= counts[1]))] = 0
        for number, hashes in enumerate(self.looked_up):
            out[np.isin(self.hashes, hashes) & (out == -1)] = number
        return out

    def _count(self, number: int, partners: Floats, there: NDArray[np.int64]) -> Lists | None:
        if not len(there):
            return None
        partners[there], lists = self.sides[number].exact(number, self.hashes[there])
        return lists

    def _meets(
        self,
        number: int,
        each: Floats,
        looked_up: NDArray[np.int8],
        there: NDArray[np.int64],
        lists: Lists | None,
    ) -> NDArray[np.bool_]:
        """Whether each sampled tuple and one random partner meet the conditions that read both sides."""
        mine, other = self.samples[number], self.samples[1 - number]
        order = np.argsort(other.place, kind="stable")
        starts = np.searchsorted(other.place[order], np.arange(len(self.hashes)))
        counts = self.found[1 - number].astype(np.int64)
        pool = other.rows[order]
        if lists is not None:
            starts[there] = len(pool) + lists.starts
            counts[there] = lists.counts
            pool = np.concatenate((pool, lists.rows))
        out = np.zeros(len(each), np.bool_)
        at = np.flatnonzero(each > 0)
        chosen = (self.rng.random(len(at)) * counts[mine.place[at]]).astype(np.int64)
        partner = pool[starts[mine.place[at]] + chosen]
        pair = (mine.rows[at], partner) if number == 0 else (partner, mine.rows[at])
        out[at] = _met(self.both, dict(enumerate(s.snapshot for s in self.sides)), *pair)
        return out

    def _all_pairs(self) -> int:
        """Pairs of two whole windows that meet the conditions."""
        a, b = self.samples
        order = np.argsort(b.place, kind="stable")
        first = np.searchsorted(b.place[order], a.place)
        counts = self.found[1].astype(np.int64)[a.place]
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        pair = (np.repeat(a.rows, counts), b.rows[order][np.repeat(first, counts) + within])
        return int(_met(self.both, dict(enumerate(s.snapshot for s in self.sides)), *pair).sum())


def _met(conditions: list[Compiled], sources: dict[int, Snapshot], *rows: Rows) -> NDArray[np.bool_]:
    out = np.zeros(len(rows[0]), np.bool_)
    left = passing(conditions, sources, Batch(rows, np.arange(len(rows[0]))))
    assert left.draw is not None
    out[left.draw] = True
    return out


# --- sketches ----------------------------------------------------------------------------------------------------


def sketched(bound: Bound, snapshots: list[Snapshot]) -> Guess:
    """Pairs with equal keys from summaries alone, without reading a tuple: for windows that are partly on disk."""
    assert bound.join is not None
    a, b = (s.tuples for s in snapshots)
    most = Guess(a.value * b.value, 0.0, a.upper * b.upper)
    sketches = [_sketch(summary, snapshot) for summary, snapshot in zip(bound.join.summaries, snapshots, strict=True)]
    if bound.constants is not None or sketches[0] is None or sketches[1] is None:
        return most
    found = join_size(sketches[0], sketches[1])
    return most if found is None else Guess(*(min(max(x, 0.0), most.upper) for x in found))


def _sketch(summary: SummaryIndex | None, snapshot: Snapshot) -> Sketched | None:
    try:
        return None if summary is None else window_sketch(summary, (snapshot.start, snapshot.end))
    except UnknownName:  # dropped concurrently
        return None


def join_size(a: Sketched, b: Sketched) -> Guess | None:
    """Estimated pairs with equal keys: the inner product of two sketches, None if their shapes differ.

    The lower bound counts tuples surely in both windows, the upper bound those that may be. Per row and bucket the
    variance is at most (F2 F2' + J²) / width; the median of the rows errs by more than sqrt(variance / p) with
    probability at most 1 - `BOUNDS` (see `CountSketch.inner`).
    """
    if a.inside.shape != b.inside.shape:
        return None
    value, _ = _inner(a.inside + a.likely, b.inside + b.likely)
    low, reach = _inner(a.inside, b.inside)
    high, far = _inner(a.inside + a.across, b.inside + b.across)
    return Guess(min(max(value, low - reach), high + far), max(low - reach, 0.0), high + far)


def _inner(a: Floats, b: Floats) -> tuple[float, float]:
    """The estimate and its error bound."""
    rows = np.einsum("brc,brc->br", a, b)
    squares = [np.einsum("brc,brc->br", x, x) for x in (a, b)]
    variance = float(((squares[0] * squares[1] + rows**2) / a.shape[2]).sum(axis=0).max())
    return float(np.median(rows.sum(axis=0))), math.sqrt(variance / tail_point(a.shape[1], 1 - BOUNDS))
