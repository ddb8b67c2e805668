"""Deferred probes of a join that has less CPU time than it needs: the most promising first."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from promising.query.kernels.standing_join import earlier_partners
from promising.query.preference import BoundPreference
from promising.query.standing.operators.entry_store import Entries, Places

MOST = 1 << 14  # probes ordered at once
CHUNK = 256  # probes between two checks of the remaining time
NO_PLACES: Places = np.empty(0, np.int32)


class Waiting:
    """Tuples of both sides that have arrived and have not been joined yet.

    A tuple probes only partners that arrived before it, so each pair is found exactly once in any order of probes.
    Without a preference, tuples with the most partners are first. The preference is the product of both counts, as the
    binder ensures, and means what it does in a SELECT: DESC and ASC order keys by their number of pairs; WEIGHTED draws
    pairs with equal probability, so tuples by their number of partners.
    """

    def __init__(self, sides: tuple[Entries, Entries], preference: BoundPreference | None) -> None:
        self._sides = sides
        self._direction = None if preference is None else preference.direction
        self._order = [side.extra(np.int64) for side in sides]
        self._flag = [side.extra(np.uint8) for side in sides]
        self._places = [NO_PLACES, NO_PLACES]
        self._next = 1
        self._random = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self._places[0]) + len(self._places[1])

    def order(self, number: int) -> NDArray[np.int64]:
        """The order of arrival of a side's entries."""
        return self._sides[number].extras[self._order[number]]  # type: ignore[return-value]  # made as int64

    def flags(self, number: int) -> NDArray[np.uint8]:
        """Which entries of a side are waiting."""
        return self._sides[number].extras[self._flag[number]]  # type: ignore[return-value]  # made as uint8

    def enter(self, number: int, places: Places, waits: bool) -> None:
        self.order(number)[places] = np.arange(self._next, self._next + len(places))
        self._next += len(places)
        self.flags(number)[places] = waits
        if waits:
            self._places[number] = np.concatenate((self._places[number], places))

    def over(self, gone: Sequence[Places]) -> float:
        """The number of pairs lost because these entries of each side expired."""
        if not len(self):
            return 0.0
        lost = 0.0
        for number, places in enumerate(self._places):
            others = gone[1 - number]
            if len(places) and len(others):
                mine, theirs = self.order(number)[places], self.order(1 - number)[others]
                least = min(int(mine.min()), int(theirs.min()))
                codes = self._sides[number].codes_at(places).astype(np.int64) << 32
                ended = np.sort((self._sides[1 - number].codes_at(others).astype(np.int64) << 32) + theirs - least)
                earlier = np.searchsorted(ended, codes + mine - least) - np.searchsorted(ended, codes)
                lost += float(earlier.sum())
        return lost + sum(self.leave(number, places) for number, places in enumerate(gone))

    def leave(self, number: int, places: Places) -> float:
        """The number of partners of those removed entries that were still waiting."""
        if not len(places) or not len(self._places[number]):
            return 0.0
        flags = self.flags(number)
        lost = places[flags[places] != 0]
        if not len(lost):
            return 0.0
        flags[lost] = 0
        self._keep(number, flags[self._places[number]] != 0)
        made, _ = self.pairs(number, lost, False)
        return float(len(made))

    def _keep(self, number: int, kept: NDArray[np.bool_]) -> None:
        self._places[number] = self._places[number][kept]

    def moved(self, number: int, places: Places) -> None:
        """Apply the new places of entries."""
        self._places[number] = places[self._places[number]]

    def pairs(self, number: int, places: Places, filled: bool = True) -> tuple[Places, Places]:
        """Entries with their earlier partners; arrays of the right size only, unless `filled`."""
        side, other = self._sides[number], self._sides[1 - number]
        given = places, side.links, self.order(number), other.heads, other.links, self.order(1 - number)
        room = earlier_partners(*given, NO_PLACES, NO_PLACES)
        mine, theirs = np.empty(room, np.int32), np.empty(room, np.int32)
        if room and filled:
            earlier_partners(*given, mine, theirs)
        return mine, theirs

    def told(self, number: int, mine: Places, theirs: Places) -> NDArray[np.bool_]:
        """Which pairs have been found: those whose later entry is not waiting."""
        later = self.order(number)[mine] > self.order(1 - number)[theirs]
        return np.asarray(np.where(later, self.flags(number)[mine], self.flags(1 - number)[theirs]) == 0)

    def best(self) -> list[tuple[int, Places]]:
        """The most promising waiting entries, in chunks of one side each. Entries without partners stop waiting."""
        promises: list[NDArray[np.float64]] = []
        for number, side in enumerate(self._sides):
            counts = self._sides[1 - number].counts[side.codes_at(self._places[number])]
            if not counts.all():
                self.flags(number)[self._places[number][counts == 0]] = 0
                self._keep(number, counts > 0)
                counts = counts[counts > 0]
            promise = counts.astype(np.float64)
            if self._direction in ("DESC", "ASC"):
                promise *= side.counts[side.codes_at(self._places[number])]
            promises.append(promise)
        promise = np.concatenate(promises)
        if self._direction == "WEIGHTED":
            key = self._random.exponential(size=len(promise)) / promise
        else:
            key = promise if self._direction == "ASC" else -promise
        few = np.argpartition(key, MOST)[:MOST] if len(key) > 2 * MOST else np.arange(len(key))
        order = few[np.argsort(key[few], kind="stable")]
        chunks: list[tuple[int, Places]] = []
        first = len(promises[0])
        for at in range(0, len(order), CHUNK):
            some = order[at : at + CHUNK]
            left, right = some[some < first], some[some >= first] - first
            chunks += [(number, self._places[number][mine]) for number, mine in ((0, left), (1, right)) if len(mine)]
        return chunks

    def done(self, number: int, places: Places) -> None:
        """Mark entries as joined."""
        self.flags(number)[places] = 0

    def sweep(self) -> None:
        """Remove joined entries from the queue."""
        for number in (0, 1):
            self._keep(number, self.flags(number)[self._places[number]] != 0)
