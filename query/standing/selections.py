"""Thousands of selections on one stream, indexed together, so that a tuple is not checked against each.

Each batch of arrivals is sorted once per referenced column; a selection is then a few runs of a sorted order: O(n log
n) per batch and column, O(log n) per selection. Of conditions on several columns, the one that the fewest rows of the
batch satisfy is scanned and the others are looked up. Only conditions other than comparisons of a column with constants
are evaluated row by row, on the remaining rows.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from promising.errors import QueryError
from promising.query.aggregate.arrow_memory import present
from promising.query.aggregate.grouping import Strings
from promising.query.kernels.selections import (
    GONE,
    MORE,
    PLAIN,
    arrange,
    collect,
    collect_all,
    locate,
    sort_rows,
    step_of,
)
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.types import ARROW, Kind
from promising.query.standing.intervals import Term, keys, terms
from promising.query.standing.operators.step import Rows

FEWEST = 64  # removed selections before the lists are compacted

Seqs = NDArray[np.int64]
Ints = NDArray[np.int64]
Places = NDArray[np.int32]


class Selections:
    """The selections of one stream, identified by number."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.queries: dict[int, _Query] = {}
        self.columns: dict[str, _Column] = {}
        self.lists = _Lists()
        self._words = np.empty((2, 0), np.uint64)  # scratch to sort a batch
        self._places = np.empty((2, 0), np.int32)
        self._counts = np.empty((8, 256), np.int64)

    def __len__(self) -> int:
        return len(self.queries)

    def add(self, number: int, predicates: Sequence[Compiled], conditions: Sequence[exp.Expression]) -> None:
        """Add a conjunction of predicates and the expressions they were compiled from. Amortised O(its conditions)."""
        if number in self.queries:
            raise ValueError(f"selection {number} is there already")
        found, rest = terms(predicates, conditions)
        pieces: list[tuple[int, list[tuple[int, int]]]] = []
        for term in found:
            column = self.columns.get(term.column)
            if column is None:
                column = self.columns[term.column] = _Column(term.column, term.kind, len(self.columns))
            column.uses += 1
            pieces.append((column.place, column.intervals(term)))
        place = self.lists.append(number, MORE if rest else PLAIN, pieces)
        self.queries[number] = _Query(place, tuple(rest), tuple(term.column for term in found))

    def plain(self, number: int) -> bool:
        """Whether all conditions of a selection are comparisons of columns with constants."""
        return not self.queries[number].rest

    def remove(self, number: int) -> None:
        query = self.queries.pop(number)
        self.lists.states[query.place] = GONE
        for name in query.columns:
            self.columns[name].uses -= 1
        if self.lists.count - len(self.queries) > max(FEWEST, len(self.queries)):
            self._compact()

    def index(self, first: int, ts: Seqs, columns: Callable[[str], pa.Array]) -> "SelectionBatch":
        """Arrivals from `first` on with their times. Lookups are lazy, and read the columns they need by `columns`."""
        return SelectionBatch(self, first, ts, columns)

    def sorted(self, found: Seqs, rows: Seqs) -> Places:
        """These rows, or all if none are given, in order of their keys; valid until the next call."""
        count = len(rows) or len(found)
        if count > self._words.shape[1]:
            self._words, self._places = np.empty((2, count), np.uint64), np.empty((2, count), np.int32)
        return self._places[sort_rows(found, rows, self._words, self._places, self._counts), :count]

    def _compact(self) -> None:
        """Rebuild the lists without removed selections. Batches detect it, and look up their places again."""
        self.lists = self.lists.compacted()
        for place, number in enumerate(self.lists.numbers.values.tolist()):
            self.queries[number].place = place
        for column in self.columns.values():
            if column.strings is not None:
                column.strings = self.lists.renumber(column.place, column.strings)

    @property
    def nbytes(self) -> int:
        return self.lists.nbytes + self._words.nbytes + self._places.nbytes + self._counts.nbytes


@dataclass(slots=True)
class _Query:
    place: int
    rest: tuple[Compiled, ...]  # predicates not covered by its terms
    columns: tuple[str, ...]


class _Known(Strings):
    @property
    def size(self) -> int:
        return int(self._used[0])


class _Column:
    """A column named by `uses` selections."""

    def __init__(self, name: str, kind: Kind, place: int) -> None:
        self.name = name
        self.kind = kind
        self.place = place
        self.uses = 0
        self.strings = _Known() if kind == "string" else None

    def intervals(self, term: Term) -> list[tuple[int, int]]:
        if self.strings is None:
            return term.intervals
        codes = sorted(self.strings.enter(pa.array(term.texts, ARROW["string"])).tolist())
        return [(code, code) for code in codes]


class _Growing:
    def __init__(self, dtype: Any, values: NDArray[Any] | None = None) -> None:
        self.array: NDArray[Any] = np.zeros(16, dtype) if values is None else values.astype(dtype)
        self.count = 0 if values is None else len(values)

    def extend(self, values: Sequence[int]) -> None:
        end = self.count + len(values)
        if end > len(self.array):
            wider = np.zeros(max(2 * len(self.array), end), self.array.dtype)
            wider[: self.count] = self.values
            self.array = wider
        self.array[self.count : end] = values
        self.count = end

    @property
    def values(self) -> NDArray[Any]:
        return self.array[: self.count]


class _Lists:
    """Selections, their terms and intervals, in the layout of the kernels."""

    def __init__(self) -> None:
        self.numbers = _Growing(np.int64)
        self._states = _Growing(np.uint8)
        self._terms = _Growing(np.int64, np.zeros(1))
        self._columns = _Growing(np.int64)
        self._pieces = _Growing(np.int64, np.zeros(1))
        self._low = _Growing(np.int64)
        self._high = _Growing(np.int64)

    def append(self, number: int, state: int, terms: Iterable[tuple[int, list[tuple[int, int]]]]) -> int:
        """Append a selection with terms on these columns; returns its place."""
        for column, intervals in terms:
            self._columns.extend([column])
            self._low.extend([low for low, _ in intervals])
            self._high.extend([high for _, high in intervals])
            self._pieces.extend([self._low.count])
        self._terms.extend([self._columns.count])
        self._states.extend([state])
        self.numbers.extend([number])
        return self.count - 1

    @property
    def count(self) -> int:
        return self.numbers.count

    @property
    def pieces(self) -> int:
        return self._low.count

    @property
    def states(self) -> NDArray[np.uint8]:
        return self._states.array

    @property
    def terms(self) -> tuple[Ints, Ints, Ints]:
        """Offsets of each selection's terms, the column of each term, and offsets of each term's intervals."""
        return self._terms.array, self._columns.array, self._pieces.array

    @property
    def intervals(self) -> tuple[Ints, Ints]:
        return self._low.array, self._high.array

    def compacted(self) -> "_Lists":
        kept = self._states.values != GONE
        terms, pieces = np.diff(self._terms.values), np.diff(self._pieces.values)
        kept_terms = np.repeat(kept, terms)
        kept_pieces = np.repeat(kept_terms, pieces)
        made = _Lists()
        made.numbers = _Growing(np.int64, self.numbers.values[kept])
        made._states = _Growing(np.uint8, self._states.values[kept])
        made._terms = _Growing(np.int64, np.concatenate([[0], np.cumsum(terms[kept])]))
        made._columns = _Growing(np.int64, self._columns.values[kept_terms])
        made._pieces = _Growing(np.int64, np.concatenate([[0], np.cumsum(pieces[kept_terms])]))
        made._low = _Growing(np.int64, self._low.values[kept_pieces])
        made._high = _Growing(np.int64, self._high.values[kept_pieces])
        return made

    def renumber(self, column: int, strings: _Known) -> _Known:
        """Only the strings of a column that are still used; the intervals of that column get the new codes."""
        made = _Known()
        mine = np.repeat(self._columns.values == column, np.diff(self._pieces.values))
        old = self._low.values[mine]
        used = np.unique(old)
        new = made.enter(strings.take(used))
        # Codes follow first appearance, so the codes of one term stay ascending.
        self._low.values[mine] = self._high.values[mine] = new[np.searchsorted(used, old)]
        return made

    @property
    def nbytes(self) -> int:
        parts = (self.numbers, self._states, self._terms, self._columns, self._pieces, self._low, self._high)
        return sum(part.array.nbytes for part in parts)


class SelectionBatch:
    """Arrivals `first` to `first + size - 1` and their matches; a lookup locates all selections that exist by then."""

    def __init__(self, owner: Selections, first: int, ts: Seqs, columns: Callable[[str], pa.Array]) -> None:
        self.first = first
        self.ts = ts
        self.size = len(ts)
        self.failed: dict[int, QueryError] = {}  # selections that failed in the last `lists` or `pairs`
        self._owner = owner
        self._arrays: dict[str, pa.Array] = {}
        self._built: dict[str, tuple[_Known | None, int]] = {}
        self._keys = np.zeros((0, self.size), np.int64)
        self._order = np.zeros((0, self.size), np.int32)
        self._rank = np.zeros((0, self.size), np.int32)
        self._marks = np.zeros((0, self.size // step_of(self.size) + 1, (self.size + 63) >> 6), np.uint64)
        self._counts = np.zeros(0, np.int64)
        self._lists = owner.lists
        self._located = 0
        self._first = self._last = self._sizes = np.zeros(0, np.int32)
        self._chosen = np.zeros(0, np.int64)
        self._bits = np.zeros((2, (self.size + 63) >> 6), np.uint64)
        self._columns: Callable[[str], pa.Array] | None = columns

    def matches(self, number: int, first: int = 0) -> Seqs:
        """Ascending numbers of matches, from `first` on. Raises a condition's QueryError, or KeyError if unknown."""
        query = self._owner.queries[number]
        self._located_to(query.place)
        low = self._low(first)
        out = np.empty(min(int(self._sizes[query.place]), self.size - low), np.int64)
        end = collect(query.place, *self._places(), low, self.first, self._bits, out, 0)
        found = out[:end]
        return self._checked(found, query.rest) if query.rest and end else found

    def gather(self, numbers: Sequence[int], first: int = 0) -> tuple[Seqs, Seqs]:
        """As `matches`, for several `plain` selections: end offsets, and the concatenated matches."""
        self._locate()
        queries = self._owner.queries
        return self._collected(np.array([queries[number].place for number in numbers], np.int64), first)

    def _collected(self, which: Seqs, first: int) -> tuple[Seqs, Seqs]:
        """By places in the lists instead of numbers."""
        low = self._low(first)
        out = np.empty(int(np.minimum(self._sizes[which], self.size - low).sum()), np.int64)
        ends = np.empty(len(which), np.int64)
        made = collect_all(which, *self._places(), low, self.first, self._bits, out, ends)
        return ends, out[:made]

    def count(self, number: int) -> int:
        """An upper bound on the matches of a selection. O(1)."""
        place = self._owner.queries[number].place
        self._located_to(place)
        return int(self._sizes[place])

    def touched(self) -> Seqs:
        """The selections that may have a match."""
        self._locate()
        count = self._lists.count
        found: Seqs = self._lists.numbers.values[(self._sizes[:count] > 0) & (self._lists.states[:count] != GONE)]
        return found

    def lists(self, first: int = 0) -> tuple[Seqs, Seqs, Seqs]:
        """Selections with matches from arrival `first` on, end offsets, matches; failing selections go to `failed`."""
        self._locate()
        count = self._lists.count
        states, sizes = self._lists.states[:count], self._sizes[:count]
        self.failed = {}
        which = np.flatnonzero((states == PLAIN) & (sizes > 0))
        ends, out = self._collected(which, first)
        some = np.flatnonzero(np.diff(ends, prepend=0))
        numbers, ends, parts, made = self._lists.numbers.values[which[some]], ends[some], [out], len(out)
        more: list[tuple[int, int]] = []
        for number in self._lists.numbers.values[(states == MORE) & (sizes > 0)].tolist():
            try:
                found = self.matches(number, first)
            except QueryError as error:
                self.failed[number] = error
                continue
            if len(found):
                made += len(found)
                more.append((number, made))
                parts.append(found)
        if more:
            extra = np.array(more, np.int64)
            numbers, ends = np.concatenate([numbers, extra[:, 0]]), np.concatenate([ends, extra[:, 1]])
        return numbers, ends, parts[0] if len(parts) == 1 else np.concatenate(parts)

    def pairs(self, first: int = 0) -> tuple[Seqs, Seqs]:
        """As `lists`, with the number of its selection for each match."""
        numbers, ends, found = self.lists(first)
        return np.repeat(numbers, np.diff(ends, prepend=0)), found

    @property
    def nbytes(self) -> int:
        orders = (self._keys, self._order, self._rank, self._marks, self._bits)
        return sum(part.nbytes for part in (*orders, self._first, self._last, self._sizes, self._chosen))

    def _places(self) -> tuple[Ints, Ints, Ints, Places, Places, Ints, Places, Places, Places, NDArray[np.uint64]]:
        found = self._first, self._last, self._chosen, self._sizes
        return *self._lists.terms, *found, self._order, self._rank, self._marks

    def _low(self, first: int) -> int:
        """The row of an arrival, or of the next one after it."""
        return min(max(first - self.first, 0), self.size)

    def _located_to(self, place: int) -> None:
        if place >= self._located or self._lists is not self._owner.lists:
            self._locate()

    def _locate(self) -> None:
        """Look up all selections added since the last call."""
        owner = self._owner
        lists = owner.lists
        if self._lists is not lists:
            self._lists, self._located = lists, 0
        if self._located == lists.count:
            return
        for column in owner.columns.values():
            if column.uses:
                self._build(column)
        self._chosen, self._sizes = _widened(self._chosen, len(lists.states)), _widened(self._sizes, len(lists.states))
        low, high = lists.intervals
        self._first, self._last = _widened(self._first, len(low)), _widened(self._last, len(low))
        batch = self._keys, self._counts, self.size
        found = self._first, self._last, self._chosen, self._sizes
        locate(lists.states, *lists.terms, low, high, *batch, self._located, lists.count, *found)
        self._located = lists.count
        self._columns = None

    def _build(self, column: _Column) -> None:
        """Sort the rows by a column unless done; strings again when new ones are named."""
        version = (column.strings, column.strings.size if column.strings is not None else 0)
        if self._built.get(column.name) == version:
            return
        if column.name in self._built:
            self._located = 0
        self._built[column.name] = version
        if column.place >= len(self._counts):
            wide = len(self._owner.columns)
            self._keys, self._order = _taller(self._keys, wide), _taller(self._order, wide)
            self._rank, self._marks = _taller(self._rank, wide), _taller(self._marks, wide)
            self._counts = _widened(self._counts, wide)
        array = self._array(column.name)
        if column.strings is None:
            found, there = keys(array, column.kind), present(array)
            rows = np.empty(0, np.int64) if there is None else np.flatnonzero(there)
            missing = there is not None
        else:
            found = column.strings.find(array)
            rows = np.flatnonzero(found >= 0)
            missing = True
        at = column.place
        self._counts[at] = len(rows) if missing else self.size
        if missing and not len(rows):
            self._rank[at] = self.size
            return
        places = self._owner.sorted(found, rows)
        arrange(found, places, self._keys[at], self._order[at], self._rank[at], self._marks[at])

    def _array(self, name: str) -> pa.Array:
        array = self._arrays.get(name)
        if array is None:
            if self._columns is not None:
                array = self._columns(name)
            else:
                array = self._owner.rows.take(name, np.arange(self.first, self.first + self.size, dtype=np.int64))
            self._arrays[name] = array
        return array

    def _checked(self, found: Seqs, rest: Sequence[Compiled]) -> Seqs:
        """The tuples that satisfy the predicates, each evaluated only where the previous ones hold."""
        columns = {i: self._array(i.name) for predicate in rest for i in predicate.inputs}
        if len(found) < self.size:
            places = pa.array(found - self.first)
            columns = {i: array.take(places) for i, array in columns.items()}
        for predicate in rest:
            kept = predicate.evaluate(columns, len(found)).cast(pa.bool_()).fill_null(False)
            if kept.true_count < len(found):
                found = found[kept.to_numpy(zero_copy_only=False)]
                if not len(found):
                    break
                columns = {i: array.filter(kept) for i, array in columns.items()}
        return found


def _widened(array: NDArray[Any], length: int) -> NDArray[Any]:
    if len(array) >= length:
        return array
    made = np.zeros(length, array.dtype)
    made[: len(array)] = array
    return made


def _taller(array: NDArray[Any], rows: int) -> NDArray[Any]:
    made = np.zeros((rows, *array.shape[1:]), array.dtype)
    made[: len(array)] = array
    return made
