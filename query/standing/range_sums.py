"""Counts and sums over many ranges of a few columns at once: the cost per tuple is independent of the number of ranges.

The bounds of all ranges cut each column into pieces. A tuple is added to the cell where its pieces meet, and a range is
the sum of O(log ranges) nodes along one column: see `query.kernels.range_sums`. Integer sums are exact. Float sums
track their rounding error, so they are accurate to about the last bit in any order.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from promising.query.kernels import range_sums as kernels
from promising.query.scalar.types import Kind
from promising.query.standing.intervals import LEAST, MOST, Intervals, Term

KEY_OF_NAN: Final = 0x7FF8000000000000
KEY_OF_INF: Final = 0x7FF0000000000000
MOST_PLACES: Final = 1 << 15
"""Maximum nodes of one group of ranges: with more, summing nodes would cost more than the tuples of a batch."""
SLOTS: Final = 1 << 10, 1 << 13
"""Minimum and maximum slots of a lookup table of cuts: it should stay in the L1 cache."""
NEAR: Final = 1 << 16
"""Maximum distance of the first and last cut for which every integer has its own slot."""
FEW_CUTS: Final = 2  # cuts in one slot for which no larger table is tried

Places = NDArray[np.int32]
Values = tuple[NDArray[Any], NDArray[np.bool_] | None]  # of a column: floats or integers, and the null mask


@dataclass(frozen=True)
class Asked:
    """Count and sum of non-null `argument`s (None: tuples) from arrival `first` on that satisfy all terms."""

    terms: tuple[Term, ...]  # none on strings
    argument: str | None
    kind: Kind | None
    first: int = 0

    @property
    def places(self) -> int:
        """The number of nodes it needs alone."""
        return _nodes(len(_ends(term.intervals)) for term in self.terms)


@dataclass
class Sums:
    """By range: (sum, rounding error, count) of floats, (high, low, count) of others."""

    floats: NDArray[np.float64]
    ints: NDArray[np.int64]

    def join(self, more: "Sums") -> None:
        kernels.join_floats(self.floats, more.floats)
        kernels.join_ints(self.ints, more.ints)

    @property
    def nbytes(self) -> int:
        return self.floats.nbytes + self.ints.nbytes


class Ranges:
    """Ranges that are computed together."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._groups = [_Group(members) for members in _grouped(asked)]
        self._cuts = {name: self._shared(name) for name in {n for group in self._groups for n in group.cuts}}
        self._sizes = [0, 0]  # rows of floats, and of others
        place: dict[int, int] = {}
        for group in self._groups:
            group.settle(self._cuts)
            start = self._sizes[not group.floats]
            group.rows = slice(start, start + len(group.members))
            place.update((number, start + at) for at, number in enumerate(group.members))
            self._sizes[not group.floats] = group.rows.stop
        self._scratch = np.empty((len(self._cuts) + 1, 0), np.int32)
        self.rows = [place[number] for number in range(len(asked))]  # row of each in `floats` or `ints`

    def _shared(self, name: str) -> "Cuts":
        mine = [group.cuts[name] for group in self._groups if name in group.cuts]
        return Cuts(mine[0].kind, set().union(*(cuts.keys.tolist() for cuts in mine)))

    def none(self) -> Sums:
        return Sums(np.zeros((self._sizes[0], 3)), np.zeros((self._sizes[1], 3), np.int64))

    def fold(self, columns: Callable[[str], Values], rows: int, before: Callable[[int], int]) -> Sums:
        """The sums of some tuples in order of arrival; `before` returns how many of them arrived before a number."""
        known: dict[str, Values] = {}

        def values(name: str) -> Values:
            if name not in known:
                known[name] = columns(name)
            return known[name]

        made = self.none()
        room = self._room(rows)
        pieces = {name: cuts.pieces(values(name), room[at]) for at, (name, cuts) in enumerate(self._cuts.items())}
        for group in self._groups:
            argument = None if group.argument is None else values(group.argument)
            group.fold(pieces, argument, room[-1], before(group.first), made)
        return made

    def _room(self, rows: int) -> list[Places]:
        """Scratch arrays: the pieces of each column, and the cells."""
        if rows > self._scratch.shape[1]:
            self._scratch = np.empty((len(self._cuts) + 1, rows), np.int32)
        return [row[:rows] for row in self._scratch]


def _grouped(asked: Sequence[Asked]) -> Iterable[list[tuple[int, Asked]]]:
    """Numbered, grouped by the same columns, so that each group can share cells."""
    alike: dict[Any, list[tuple[int, Asked]]] = {}
    for number, one in enumerate(asked):
        columns = frozenset(term.column for term in one.terms)
        alike.setdefault((columns, one.argument, one.first), []).append((number, one))
    for members in alike.values():
        ends: dict[str, set[int]] = {}
        some: list[tuple[int, Asked]] = []
        for number, one in members:
            new = {term.column: _ends(term.intervals) for term in one.terms}
            known = ends or {name: set() for name in new}
            if some and _nodes(len(known[name]) + len(more - known[name]) for name, more in new.items()) > MOST_PLACES:
                yield some
                some, known = [], {name: set() for name in new}
            some.append((number, one))
            for name, more in new.items():
                known[name] |= more
            ends = known
        yield some


def _ends(intervals: Intervals) -> set[int]:
    """The cuts of a column: the first key of each interval, and the first after it."""
    return {low for low, _ in intervals if low > LEAST} | {high + 1 for _, high in intervals if high < MOST}


def _nodes(cuts: Iterable[int]) -> int:
    """The number of nodes for columns with these numbers of cuts."""
    return 2 * math.prod(number + 2 for number in cuts)


class _Group:
    """Ranges over the same columns and argument: a tree along the most-cut column per combination of other pieces."""

    rows: slice

    def __init__(self, members: list[tuple[int, Asked]]) -> None:
        self.members = [number for number, _ in members]
        first = members[0][1]
        self.argument, self.first = first.argument, first.first
        self.floats, self._summed = first.kind == "float", first.kind in ("int", "float")
        kinds = {term.column: term.kind for term in first.terms}
        ends: dict[str, set[int]] = {name: set() for name in kinds}
        for _, one in members:
            for term in one.terms:
                ends[term.column] |= _ends(term.intervals)
        names = sorted(kinds, key=lambda name: len(ends[name]))
        self.cuts = {name: Cuts(kinds[name], ends[name]) for name in names}
        along = [self.cuts[name].places for name in names]
        self._long = along.pop() if along else 1  # cells of a tree
        self._width = 2 * self._long
        steps = [1] * len(along)
        for at in range(len(along) - 2, -1, -1):
            steps[at] = steps[at + 1] * along[at + 1]
        self._strides = {name: self._width * step for name, step in zip(names, steps, strict=False)}
        nodes_in_all = self._width * math.prod(along)
        self._tree: NDArray[Any] = np.zeros((nodes_in_all, 3), np.float64 if self.floats else np.int64)
        nodes = [self._nodes(one) for _, one in members]
        self._ends = np.cumsum([len(some) for some in nodes]).astype(np.int64)
        self._flat = np.array([node for some in nodes for node in some], np.int32)
        self._maps: dict[str, Places] = {}
        self._places = np.arange(len(self._tree), dtype=np.int32)  # the node of each cell

    def _nodes(self, one: Asked) -> list[int]:
        """The nodes that add up to a range."""
        stretches = {
            term.column: [self.cuts[term.column].stretch(low, high) for low, high in term.intervals]
            for term in one.terms
        }
        *others, last = self.cuts or [""]
        bases = product(
            *([self._strides[name] * p for pair in stretches[name] for p in range(*pair)] for name in others)
        )
        tree = [node for pair in stretches.get(last, [(0, 1)]) for node in _covering(*pair, self._long)]
        return [sum(base) + node for base in bases for node in tree]

    def settle(self, shared: "dict[str, Cuts]") -> None:
        """Map the pieces of shared cuts to this group's cells."""
        for name, cuts in self.cuts.items():
            own = cuts.within(shared[name])
            stride = self._strides.get(name)
            self._maps[name] = (self._long + own if stride is None else stride * own).astype(np.int32)
        if len(self._maps) == 1:  # a cell is a piece
            (self._places,) = self._maps.values()

    def fold(self, pieces: dict[str, Places], argument: Values | None, room: Places, skipped: int, out: Sums) -> None:
        """Add the sums of tuples with known pieces, without the first `skipped`. `room`: scratch for as many cells."""
        places = pieces[next(iter(self._maps))] if len(self._maps) == 1 else self._met(pieces, room)
        values, missing = (None, None) if argument is None else argument
        kept: slice | NDArray[np.bool_] = slice(skipped, None)
        if missing is not None:
            kept = ~missing
            kept[:skipped] = False
        places = places[kept]
        self._tree[:] = 0
        if self._summed and values is not None:
            if self.floats:
                kernels.fold_floats(places, self._places, values[kept], self._tree)
            else:
                kernels.fold_ints(places, self._places, values[kept], self._tree)
        else:
            kernels.fold_rows(places, self._places, self._tree)
        if self.floats:
            kernels.range_floats(self._tree, self._width, self._ends, self._flat, out.floats[self.rows])
        else:
            kernels.range_ints(self._tree, self._width, self._ends, self._flat, out.ints[self.rows])

    def _met(self, pieces: dict[str, Places], room: Places) -> Places:
        """The cell of each tuple; without columns there is only one."""
        room[:] = 0 if self._maps else 1
        for name, nodes in self._maps.items():
            kernels.go_on(pieces[name], nodes, room)
        return room


def _covering(first: int, end: int, places: int) -> list[int]:
    """The fewest nodes of a tree that cover these cells exactly once."""
    found = []
    first, end = first + places, end + places
    while first < end:
        if first & 1:
            found.append(first)
            first += 1
        if end & 1:
            end -= 1
            found.append(end)
        first >>= 1
        end >>= 1
    return found


class Cuts:
    """The cuts of a column, and the lookup of a value's piece; the last piece is NULL."""

    def __init__(self, kind: Kind, keys: Iterable[int]) -> None:
        self.kind = kind
        known = sorted(keys)
        if kind == "float":  # no value has a key after that of NaN
            known = [key for key in known if key <= KEY_OF_NAN]
        self.keys = np.array(known, np.int64)
        self._looked_up: _Lookup | None = None

    @property
    def places(self) -> int:
        """One more than the pieces: NULL is in none of them."""
        return len(self.keys) + 2

    def stretch(self, low: int, high: int) -> tuple[int, int]:
        """The pieces between two keys, both of which are cuts."""
        first = int(np.searchsorted(self.keys, low)) + 1 if low > LEAST else 0
        end = int(np.searchsorted(self.keys, high + 1)) + 1 if high < MOST else len(self.keys) + 1
        return first, end

    def within(self, finer: "Cuts") -> NDArray[np.int64]:
        """The piece that contains each piece of finer cuts."""
        inside = np.searchsorted(self.keys, finer.keys, side="right")
        return np.concatenate([[0], inside, [len(self.keys) + 1]])

    def pieces(self, given: Values, out: Places) -> Places:
        """Writes the piece of each value to `out`."""
        if self._looked_up is None:
            self._looked_up = _Lookup(self.kind, self.keys)
        values, missing = given
        self._looked_up.find(values, out)
        if missing is not None:
            out[missing] = len(self.keys) + 1
        return out


class _Lookup:
    """Finds the number of cuts that are at most a value, by a table over the range of the cuts."""

    def __init__(self, kind: Kind, keys: NDArray[np.int64]) -> None:
        self._number = len(keys)
        self._near: Places | None = None
        self._table: Places = np.zeros(1, np.int32)
        self._start, self._scale, self._most = 0.0, 0.0, 0
        self._floats = kind == "float"
        points = _floats(keys) if self._floats else keys.astype(np.float64)
        if not self._floats and len(keys) and int(keys[-1]) - int(keys[0]) < NEAR:
            self._first = int(keys[0]) - 1
            every = np.arange(int(keys[-1]) - self._first + 1) + self._first
            self._near = np.searchsorted(keys, every, side="right").astype(np.int32)
            return
        sane = points[np.isfinite(points)]
        if len(sane) > 1:
            self._tabulate(points, float(sane[0]), float(sane[-1]))
        beyond = np.full(kernels.MOST_CUTS, np.nan) if self._floats else np.full(kernels.MOST_CUTS, MOST)
        self._cuts = np.append(points if self._floats else keys, beyond)

    def _tabulate(self, points: NDArray[np.float64], first: float, last: float) -> None:
        """Build the smallest table over a range that leaves few cuts per slot; none if impossible."""
        slots, most = SLOTS
        while True:
            with np.errstate(over="ignore", divide="ignore"):
                scale = float(np.float64(slots - 1) / (np.float64(last) - np.float64(first)))
            if not 0 < scale < np.inf:
                return
            self._start, self._scale = first, scale
            in_slot = np.bincount(self._slots(points, slots), minlength=slots)
            cuts = int(in_slot.max())
            if cuts <= FEW_CUTS or slots == most:
                break
            slots *= 2
        if cuts <= kernels.MOST_CUTS:
            self._table = (np.cumsum(in_slot) - in_slot).astype(np.int32)
            self._most = cuts

    def _slots(self, points: NDArray[np.float64], slots: int) -> NDArray[np.int64]:
        """The slot of each cut, computed as in the kernels."""
        with np.errstate(over="ignore", invalid="ignore"):
            at: NDArray[np.float64] = (points - self._start) * self._scale
        at = np.where(at < slots - 1, at, slots - 1)
        return np.where(at > 0, at, 0).astype(np.int64)

    def find(self, values: NDArray[Any], out: Places) -> None:
        if self._near is not None:
            kernels.locate_near(values, self._first, self._near, out)
            return
        cuts, number, table = self._cuts, self._number, self._table
        kernels.locate(values, cuts, number, table, self._start, self._scale, self._most, out)


def _floats(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """The least float of at least each key; NaN where there is no number."""
    bits = np.where(keys < 0, keys ^ MOST, keys)
    found = bits.view(np.float64).copy()
    found[keys < -KEY_OF_INF - 1] = -np.inf
    return found
