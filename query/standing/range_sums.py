"""Counts and sums over many ranges of a few columns at once: what a tuple costs does not rise with their number.

The ends of all ranges cut each column into pieces. A tuple is added where its pieces meet, and each range is made of
sums of such places, O(log ranges) of them along one column: see `query.kernels.range_sums`. Sums of integers are exact;
those of floats know what their roundings lost, so they are right to the last bit or nearly so in whatever order.
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
"""Nodes that the ranges of one group may have: more would be dearer to sum up than the tuples of a batch."""
SLOTS: Final = 1 << 10, 1 << 13
"""Of a table to look cuts up in, at least and at most: it is to stay in the fastest cache."""
NEAR: Final = 1 << 16
"""Whole numbers from the first cut to the last, up to which each has a slot of its own."""
FEW_CUTS: Final = 2
"""In one slot, for which no larger table is tried."""

Places = NDArray[np.int32]
Values = tuple[NDArray[Any], NDArray[np.bool_] | None]
"""Of a column: floats or whole numbers, and which of them are missing if any."""


@dataclass(frozen=True)
class Asked:
    """The values of `argument` that are there, counted and, of numbers, summed up, over the tuples that meet all terms;
    without an argument the tuples. Those that arrived before `first` do not belong. No term is one of strings."""

    terms: tuple[Term, ...]
    argument: str | None
    kind: Kind | None
    first: int = 0

    @property
    def places(self) -> int:
        """Nodes that it takes alone."""
        return _nodes(len(_ends(term.intervals)) for term in self.terms)


@dataclass
class Sums:
    """By range, (sum, lost, count) of floats and (high, low, count) of everything else."""

    floats: NDArray[np.float64]
    ints: NDArray[np.int64]

    def join(self, more: "Sums") -> None:
        kernels.join_floats(self.floats, more.floats)
        kernels.join_ints(self.ints, more.ints)

    @property
    def nbytes(self) -> int:
        return self.floats.nbytes + self.ints.nbytes


class Ranges:
    """Ranges that are asked for together."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._groups = [_Group(members) for members in _grouped(asked)]
        self._cuts = {name: self._shared(name) for name in {n for group in self._groups for n in group.cuts}}
        self._sizes = [0, 0]  # rows of floats, and of the others
        place: dict[int, int] = {}
        for group in self._groups:
            group.settle(self._cuts)
            start = self._sizes[not group.floats]
            group.rows = slice(start, start + len(group.members))
            place.update((number, start + at) for at, number in enumerate(group.members))
            self._sizes[not group.floats] = group.rows.stop
        self._scratch = np.empty((len(self._cuts) + 1, 0), np.int32)
        self.rows = [place[number] for number in range(len(asked))]
        """Where in `floats` or `ints` the sums of each are."""

    def _shared(self, name: str) -> "Cuts":
        mine = [group.cuts[name] for group in self._groups if name in group.cuts]
        return Cuts(mine[0].kind, set().union(*(cuts.keys.tolist() for cuts in mine)))

    def none(self) -> Sums:
        """The sums of no tuples."""
        return Sums(np.zeros((self._sizes[0], 3)), np.zeros((self._sizes[1], 3), np.int64))

    def fold(self, columns: Callable[[str], Values], rows: int, before: Callable[[int], int]) -> Sums:
        """The sums of some tuples in order of arrival; `before` tells how many of them arrived before a number."""
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
        """An array for the pieces of each column, and one for places."""
        if rows > self._scratch.shape[1]:
            self._scratch = np.empty((len(self._cuts) + 1, rows), np.int32)
        return [row[:rows] for row in self._scratch]


def _grouped(asked: Sequence[Asked]) -> Iterable[list[tuple[int, Asked]]]:
    """Numbered, those that can share their places: they look at the same columns."""
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
    """Where a column is cut: at the first key of each interval, and the first after it."""
    return {low for low, _ in intervals if low > LEAST} | {high + 1 for _, high in intervals if high < MOST}


def _nodes(cuts: Iterable[int]) -> int:
    """Nodes of ranges over columns that are cut so often."""
    return 2 * math.prod(number + 2 for number in cuts)


class _Group:
    """Ranges over the same columns, of one argument: a tree along the column with the most cuts, for each way in which
    pieces of the others meet."""

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
        self._long = along.pop() if along else 1  # places of a tree
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
        self._places = np.arange(len(self._tree), dtype=np.int32)  # the node of each place

    def _nodes(self, one: Asked) -> list[int]:
        """Whose sum is that of a range."""
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
        """Know what the pieces of shared cuts say about the place of a tuple."""
        for name, cuts in self.cuts.items():
            own = cuts.within(shared[name])
            stride = self._strides.get(name)
            self._maps[name] = (self._long + own if stride is None else stride * own).astype(np.int32)
        if len(self._maps) == 1:  # a place is a piece
            (self._places,) = self._maps.values()

    def fold(self, pieces: dict[str, Places], argument: Values | None, room: Places, skipped: int, out: Sums) -> None:
        """Add the sums of tuples, whose pieces are known, but for the first so many. `room` is for as many places."""
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
        """Where the pieces of each tuple meet; without columns all tuples do."""
        room[:] = 0 if self._maps else 1
        for name, nodes in self._maps.items():
            kernels.go_on(pieces[name], nodes, room)
        return room


def _covering(first: int, end: int, places: int) -> list[int]:
    """The fewest nodes of a tree that have these places below them, each once."""
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
    """Where a column is cut, and how the piece of a value is found. The last piece but one holds the greatest values,
    the last what is NULL."""

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
        """The pieces from one key to another, which are cut there."""
        first = int(np.searchsorted(self.keys, low)) + 1 if low > LEAST else 0
        end = int(np.searchsorted(self.keys, high + 1)) + 1 if high < MOST else len(self.keys) + 1
        return first, end

    def within(self, finer: "Cuts") -> NDArray[np.int64]:
        """In which of these pieces each piece of finer cuts lies."""
        inside = np.searchsorted(self.keys, finer.keys, side="right")
        return np.concatenate([[0], inside, [len(self.keys) + 1]])

    def pieces(self, given: Values, out: Places) -> Places:
        """Of each value, in `out`."""
        if self._looked_up is None:
            self._looked_up = _Lookup(self.kind, self.keys)
        values, missing = given
        self._looked_up.find(values, out)
        if missing is not None:
            out[missing] = len(self.keys) + 1
        return out


class _Lookup:
    """Finds how many cuts are not greater than a value, by a table over the stretch in which the cuts lie."""

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
        """Make a table over a stretch, the smallest that leaves few cuts in a slot; none if that cannot be had."""
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
        """The slot of each cut, as the kernels have it."""
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
