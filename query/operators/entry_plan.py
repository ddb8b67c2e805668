"""Plans the promising set of a query: entries for its keys or tuples, refined until their priority is exact."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.index.cell_rows import CellRows
from promising.index.regions import Window
from promising.index.snapshot import Rows, Snapshot
from promising.index.summary_index import SummaryIndex
from promising.query.fade import Bands, HalfLife
from promising.query.key_rows import ENTERED, SLICE, Counts, Hasher, Hashes, Keys, finished
from promising.query.measured_estimates import MeasuredEstimate
from promising.query.preference import BoundPreference, exact_counts
from promising.query.promising_set import ANY, READY, ROUGH, PromisingSet

REFINED, MOST_REFINED = 64, 1024  # rough entries refined at once: at first, and at most
EVERY = 1 << 31  # more tuples than a key can have
BAND = 4096  # keys listed at first, most frequent first; times eight each time
AHEAD = 1 << 13  # newest tuples whose keys are tried first if there is no time to list all keys

ValueOf = Callable[[Rows], NDArray[np.float64]]


@dataclass
class Side:
    snapshot: Snapshot
    hasher: Hasher
    attribute: str | None
    summary: SummaryIndex | None
    keys: Keys | None  # None: to be built
    building: Keys | None = None
    cells: CellRows | None = None  # where the only keys that count are looked for
    only: Hashes | None = None

    def ready(self) -> Generator[None, None, Keys]:
        if self.keys is None:
            self.building = Keys.empty(self.snapshot, self.hasher)
            if self.cells is not None and self.only is not None:
                yield from self.building.fill_from(self.cells.with_keys(self.only), self.only)
            else:
                yield from self.building.fill()
            self.keys, self.building = self.building, None
        return self.keys

    @property
    def nbytes(self) -> int:
        return sum(keys.held for keys in (self.keys, self.building) if keys is not None)

    @property
    def window(self) -> Window:
        return self.snapshot.start, self.snapshot.end


class EntryPlan:
    """Fills a promising set and refines its entries.

    An entry is a key or, if the preference reads columns, a tuple; its candidates are the key's tuples, or the pairs of
    them from both sides. `restrict` lists the hashes of the only relevant keys.
    """

    def __init__(
        self,
        sides: list[Side],
        preference: BoundPreference | None,
        *,
        restrict: Hashes | None = None,
        value_of: ValueOf | None = None,
        extra: Sequence[Side] = (),
        measured: Sequence[MeasuredEstimate] = (),
    ) -> None:
        self.sides = sides
        self.preference = preference
        self.restrict = restrict
        self.value_of = value_of
        self.extra = extra  # sides that `value_of` reads
        self.measured = measured
        self.set = PromisingSet(len(sides))
        self.planned = False
        self.entries = 0
        self.total = 0.0  # upper bound of the candidates of all entries
        self.listed = 0  # keys examined
        self._until: NDArray[np.int64] = np.zeros(0, np.int64)
        self._refining = REFINED
        self.top: NDArray[np.int32] = np.empty(0, np.int32)
        self._tried: Hashes = np.empty(0, np.int64)

    def again(self) -> "EntryPlan":
        return EntryPlan(self.sides, self.preference, **self._how)

    @property
    def _how(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("restrict", "value_of", "extra", "measured")}

    @property
    def banded(self) -> bool:
        """Whether entries are split by the bands of a fade."""
        return self.preference is not None and self.preference.fade is not None

    def bands(self, side: int, rows: Rows) -> Bands:
        """The band of each row; only if `banded`, and inside `holding`."""
        return self.sides[side].snapshot.granularity(rows, self.horizons(side))

    def horizons(self, side: int) -> NDArray[np.int64]:
        assert self.preference is not None and self.preference.fade is not None
        return self.preference.fade.horizons(self.sides[side].snapshot)

    @property
    def exact(self) -> bool:
        return all(s.keys is not None and s.keys.exact for s in self.sides)

    @property
    def even(self) -> bool:
        """Whether all candidates are equally likely: the preference is the product of all counts."""
        preference = self.preference
        if preference is None:
            return True
        wanted = {(number, side.attribute) for number, side in enumerate(self.sides)}
        return (
            preference.counts_only
            and not self.banded
            and {(e.side, e.attribute) for e in preference.estimates} == wanted
        )

    @property
    def until(self) -> NDArray[np.int64]:
        """Candidates processed per entry."""
        return self._until[: len(self.set)]

    def ready(self) -> Generator[None, None, None]:
        """Know the keys of every side, and what the preference asks of measures."""
        for side in self.sides:
            yield from side.ready()
        for estimate in self.measured:
            yield from estimate.read()

    def fill(self) -> Generator[None, None, None]:
        yield from self.ready()
        for side in self.extra:
            yield from side.ready()
        if self.preference is not None and self.preference.side is not None:
            yield from self._plan_tuples(self.preference.side)
        elif self.restrict is not None:
            self._enter(np.unique(self.restrict))
        else:
            yield from self.list_keys(self.lister)
        self.planned = True

    @property
    def by_bands(self) -> bool:
        """Whether keys are listed by descending frequency, which bounds the unlisted ones."""
        preference = self.preference
        if preference is None or preference.direction != "DESC" or not preference.rising or preference.side is not None:
            return False
        return self.restrict is None and self.keys(self.lister).postings.keys > 4 * BAND

    @property
    def lister(self) -> int:
        """The side with the smaller directory."""
        return min(range(len(self.sides)), key=lambda s: self.keys(s).postings.lines)

    def keys(self, side: int) -> Keys:
        keys = self.sides[side].keys
        assert keys is not None
        return keys

    def list_keys(self, lister: int, least: int = 1, most: int = EVERY) -> Generator[None, None, None]:
        """Add the keys that have from `least` to `most` tuples on the listing side."""
        keys, grown = self.keys(lister), self.sides[lister].snapshot.grown
        if least == 1:
            self.set.reserve(len(self.set) + keys.postings.keys)
        if len(self.set) and (grown or not keys.exact):
            most = EVERY  # the count of a key skipped earlier may have changed
        yield from self._list_between(keys, least, most)
        if most < EVERY and self.sides[lister].snapshot.grown != grown:
            yield from self._list_between(keys, least, EVERY)

    def _list_between(self, keys: Keys, least: int, most: int) -> Generator[None, None, None]:
        known = len(self.set)
        before = np.unique(self.set.hash) if most == EVERY or len(self._tried) else np.empty(0, np.int64)
        entries, total, listed = self.entries, self.total, self.listed
        for part in keys.listed(least, most):
            if part is None:  # the listing starts over; nothing from it has been taken yet
                self.set.forget(known)
                self._until[known:] = 0
                self.entries, self.total, self.listed = entries, total, listed
                continue
            hashes = part[~np.isin(part, before)] if len(before) else part
            for first in range(0, len(hashes), SLICE):
                self._enter(hashes[first : first + SLICE])
                yield

    def _present(self, hashes: Hashes) -> tuple[NDArray[np.int64], ...]:
        """The keys present on every side, and their counts."""
        counts: list[Counts] = []
        for side in range(len(self.sides)):
            found = self.keys(side).counts(hashes)
            there = found > 0
            hashes, counts = hashes[there], [c[there] for c in (*counts, found)]
        return hashes, *counts

    def _enter(self, hashes: Hashes) -> None:
        self.listed += len(hashes)
        self._add(*self._present(hashes))

    def _add(self, hashes: Hashes, *counts: Counts) -> None:
        preference = self.preference
        priority = np.zeros(len(hashes)) if preference is None else self.priorities(hashes, *counts)
        rough = self.banded or (preference is not None and not self.exact and preference.direction == "DESC")
        if rough and preference is not None and not preference.rising:
            priority = np.full(len(hashes), np.inf)  # unbounded: all are refined before any is processed
        before = len(self.set)
        # Among equal priorities rough entries come first: once refined they may precede the others.
        tie = np.full(len(hashes), np.iinfo(np.int64).min) if rough else None
        self.set.add(hashes, list(counts), priority, ROUGH if rough else READY, tie=tie)
        self._grow(before)

    def priorities(self, hashes: Hashes, *counts: Counts) -> NDArray[np.float64]:
        """The final priorities of keys with these counts."""
        assert self.preference is not None
        return self.preference.priority(self._values(hashes, counts))

    def bound(self, most: Sequence[int]) -> float:
        """At least the priority of any key with at most so many tuples per side; only if the preference is `rising`."""
        return float(self.priorities(np.zeros(1, np.int64), *(np.array([m]) for m in most))[0])

    def _values(self, hashes: Hashes, counts: Sequence[Counts]) -> NDArray[np.float64]:
        assert self.preference is not None
        known = {(i, s.attribute): c for i, (s, c) in enumerate(zip(self.sides, counts, strict=True))}
        columns = exact_counts(self.preference.estimates, known)
        columns |= {estimate.input: estimate.of(hashes) for estimate in self.measured}
        return self.preference.value(columns, len(hashes))

    def _grow(self, before: int) -> None:
        fresh = len(self.set) - before
        self.entries += fresh
        if len(self.set) > len(self._until):
            grown = np.zeros(max(len(self.set), 2 * len(self._until)), np.int64)
            grown[: len(self._until)] = self._until
            self._until = grown
        self.total += float(self.set.units[before:].astype(np.float64).sum())

    def _plan_tuples(self, side: int) -> Generator[None, None, None]:
        snapshot, hasher = self.sides[side].snapshot, self.sides[side].hasher
        assert self.value_of is not None and self.preference is not None
        self.set.reserve(snapshot.size)
        for first in range(0, snapshot.size, ENTERED):
            numbers = np.arange(first, min(first + ENTERED, snapshot.size))
            with snapshot.holding():
                rows = snapshot.rows_at(numbers)
                if not snapshot.whole:
                    kept = snapshot.admitted(rows)
                    rows, numbers = rows[kept], numbers[kept]
                hashes, missing = hasher(rows)
            if missing is not None:
                hashes, rows, numbers = hashes[~missing], rows[~missing], numbers[~missing]
            if self.restrict is not None:
                kept = np.isin(hashes, self.restrict)
                hashes, rows, numbers = hashes[kept], rows[kept], numbers[kept]
            counts = [np.ones(len(rows), np.int64) for _ in self.sides]
            if len(self.sides) == 2:
                counts[1 - side] = self.keys(1 - side).counts(hashes)
                kept = counts[1 - side] > 0
                hashes, rows, numbers = hashes[kept], rows[kept], numbers[kept]
                counts = [c[kept] for c in counts]
            value = self.value_of(rows)
            if self.banded:
                with snapshot.holding():
                    value = self.preference.faded(value, [self.bands(side, rows)])
            before = len(self.set)
            self.set.add(hashes, counts, self.preference.priority(value), READY, row=rows, tie=numbers)
            self.listed += len(rows)
            self._grow(before)
            yield

    def enter_newest(self) -> None:
        """Add entries for the keys of the newest tuples of the smaller side, which include frequent keys."""
        side = min(self.sides, key=lambda s: s.snapshot.size)
        snapshot = side.snapshot
        with snapshot.holding():
            rows = snapshot.rows_in(max(snapshot.size - AHEAD, 0), snapshot.size)
            hashes, missing = side.hasher(rows)
        hashes = np.unique(hashes if missing is None else hashes[~missing])
        self._tried = hashes
        self._enter(hashes)

    # --- refining ------------------------------------------------------------------------------------------------

    def refine_top(self, above: float = np.nan) -> Generator[None, None, None]:
        """Refine the rough ones among the best entries, more each time."""
        ids = self.set.pop(ANY, 1 << 62, self._refining, above)
        self._refining = min(2 * self._refining, MOST_REFINED)
        rough = self.set.state[ids] == ROUGH
        self.set.push(ids[~rough])
        yield from self._refine(ids[rough])

    def _refine(self, ids: NDArray[np.int32]) -> Generator[None, None, None]:
        yield from self._split(ids) if self.banded else self._count(ids)

    def refine_all(self) -> Generator[None, None, None]:
        rough = self.set.take_out(ROUGH)
        for first in range(0, len(rough), MOST_REFINED):
            yield from self._refine(rough[first : first + MOST_REFINED])
            yield

    def _count(self, ids: NDArray[np.int32]) -> Generator[None, None, None]:
        """Count each key's tuples in the window, and put the entries back with their exact priority."""
        counts = []
        for side in range(len(self.sides)):
            lists = yield from self.keys(side).load(self.set.hash[ids])
            counts.append(lists.counts)
        units = self.set.units[ids].astype(np.float64).sum()
        there = np.all([c > 0 for c in counts], axis=0)
        for side, count in enumerate(counts):
            self.set.counts[side][ids] = count
        self.set.units[ids] = np.prod(counts, axis=0)
        self.total += float(self.set.units[ids].astype(np.float64).sum() - units)
        self.entries -= int((~there).sum())
        ids = ids[there]
        self.set.priority[ids] = self.priorities(self.set.hash[ids], *(c[there] for c in counts))
        self.set.tie[ids] = self.set.hash[ids]
        self.set.state[ids] = READY
        self.set.push(ids)

    def _split(self, ids: NDArray[np.int32]) -> Generator[None, None, None]:
        """Replace each entry by one per combination of bands of its tuples.

        The value of an entry is that of its own tuples if they fade by granularity. If they fade by age it is that of
        all tuples of the key, so that it does not depend on how wide bands are; WEIGHTED shares it among them.
        """
        assert self.preference is not None
        counts = []  # by side: [entry, band]
        for number, side in enumerate(self.sides):
            lists = yield from self.keys(number).load(self.set.hash[ids])
            with side.snapshot.holding():
                bands = self.bands(number, lists.rows) - 1
            wide = len(self.horizons(number)) + 1
            owner = np.repeat(np.arange(len(ids)), lists.counts)
            counts.append(np.bincount(owner * wide + bands, minlength=len(ids) * wide).reshape(len(ids), wide))
        if len(counts) == 1:
            where = counts[0].nonzero()
        else:
            where = (counts[0][:, :, None] * counts[1][:, None, :] > 0).nonzero()
        entry, *at = where
        inside = [c[entry, band] for c, band in zip(counts, at, strict=True)]
        whole = [c.sum(axis=1)[entry] for c in counts]
        bands_of = [band + 1 for band in at]
        by_age = isinstance(self.preference.fade, HalfLife)
        shown = whole if by_age or self.preference.direction == "ASC" else inside
        hashes = self.set.hash[ids][entry]
        value = self._values(hashes, shown)
        if by_age and self.preference.direction == "WEIGHTED":
            value *= np.prod(inside, axis=0) / np.prod(whole, axis=0, dtype=np.float64)
        value = self.preference.faded(value, bands_of)
        self.total -= float(self.set.units[ids].astype(np.float64).sum())
        self.until[ids] = self.set.units[ids]
        self.entries -= len(ids)
        before = len(self.set)
        tie = hashes.copy()
        for band in bands_of:
            tie = tie * 31 + band
        self.set.add(hashes, inside, self.preference.priority(value), READY, tie=tie, bands=bands_of)
        self._grow(before)

    def best(self, entries: int) -> Generator[None, None, None]:
        """Fill the set, and put the best entries, refined, into `top`."""
        yield from self.fill()
        found = [np.empty(0, np.int32)]
        while sum(map(len, found)) < entries:
            ids = self.set.pop(READY, 1 << 62, entries - sum(map(len, found)))
            if not len(ids):
                if not self.set.size:
                    break
                yield from self.refine_top()
                yield
                continue
            found.append(ids)
        self.top = np.concatenate(found)

    def key_of(self, side: int, entry: int) -> int | str | None:
        """The key of an entry, read from one of its tuples; None if none is in the snapshot."""
        attribute = self.sides[side].attribute
        lists = finished(self.keys(side).load(self.set.hash[entry : entry + 1]))
        if not len(lists.rows) or attribute is None:
            return None
        snapshot = self.sides[side].snapshot
        with snapshot.holding():
            found: int | str = snapshot.column(attribute, lists.rows[:1])[0].as_py()
        return found

    @property
    def nbytes(self) -> int:
        return self.set.nbytes + self._until.nbytes + sum(side.nbytes for side in (*self.sides, *self.extra))
