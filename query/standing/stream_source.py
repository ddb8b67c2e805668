"""One stream as standing queries read it: the arrivals since the last tick, indexed once for all of them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import PromisingError, StorageUnavailable
from promising.index import Stream
from promising.index.instants import BEGINNING, NEVER
from promising.query.scalar.scope import Input
from promising.query.standing.column_cache import StreamRows
from promising.query.standing.plan import Window
from promising.query.standing.selections import SelectionBatch, Selections
from promising.query.standing.shared_sums import Totals

"""The time of a stream that has none yet."""

LARGEST = 1 << 16  # maximum tuples of a merged batch
ENDLESS = 1 << 16  # tuples of history that queries without WINDOW can read

_numbers = count()


class Reader:
    """What one window of one query reads of a source."""

    def __init__(self, source: "StreamSource", window: Window, columns: frozenset[str], first: int) -> None:
        self.source = source
        self.first = first  # the first readable arrival
        self.window = window
        self.columns = columns
        self.number = next(_numbers)
        self.taken = 0  # arrivals before this number have been applied
        self.late = 0  # tuples that had expired before they arrived
        self._indexed = bool(window.predicates)
        if self._indexed:
            source.selections.add(self.number, window.predicates, window.conditions)

    def of(self, batch: SelectionBatch, now: int, first: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Matching arrivals of a batch from number `first` on, and their times."""
        first = max(first, self.first)
        if self._indexed:
            ids = batch.matches(self.number, first)
        else:
            ids = np.arange(max(first, batch.first), batch.first + batch.size)
        times = batch.ts[ids - batch.first]
        length = self.window.length
        if length is not None and len(ids):
            live = times > now - length
            if not live.all():
                return ids[live], times[live]
        return ids, times

    def since(self, first: int, now: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The live matching arrivals from number `first` on, and their times."""
        parts = [self.of(batch, now, first) for batch in self.source.since(first)]
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    @property
    def plain(self) -> bool:
        """Whether it can be read together with others: it has conditions, and all compare columns with constants."""
        return self._indexed and self.source.selections.plain(self.number)

    def close(self) -> None:
        if self._indexed:
            self.source.selections.remove(self.number)
        self.source.leave(self)


@dataclass(frozen=True)
class News:
    """New results of several selections with end offsets `ends`; `missed`: some can no longer be looked up."""

    ids: NDArray[np.int64]
    exp: NDArray[np.int64]
    rows: pa.Table
    ends: list[int]
    missed: bool


class Alike:
    """Selections with equal plain columns and window length; looked up together, each costs its results and a slice."""

    def __init__(self, source: "StreamSource", length: int | None, columns: tuple[str, ...], schema: pa.Schema) -> None:
        self.source = source
        self._length = length
        self._columns = columns
        self._schema = schema

    @property
    def changed(self) -> int:
        """The last tick in which a tuple arrived or expired."""
        return self.source.changed.get(self._length, 0)

    def since(self, numbers: list[int], first: int) -> News:
        """New results from arrival `first` on, for readers by number; they are `plain` and can read from there."""
        source, length = self.source, self._length
        ends, ids, times = self._found(numbers, first)
        if length is None:
            exp = np.full(len(ids), NEVER)
        else:
            live = times > source.clock - length
            if not live.all():
                ends = np.concatenate([[0], np.cumsum(live)])[ends]
                ids, times = ids[live], times[live]
            exp = times + length
        rows = pa.Table.from_arrays([source.rows.take(name, ids) for name in self._columns], schema=self._schema)
        return News(ids, exp, rows, ends.tolist(), length is None and first < source.oldest)

    def _found(self, numbers: list[int], first: int) -> tuple[NDArray[np.int64], ...]:
        """End offsets by reader, the arrivals, and their times."""
        batches = self.source.since(first)
        if not batches:
            return np.zeros(len(numbers), np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
        parts = [batch.gather(numbers, first) for batch in batches]
        times = [batch.ts[ids - batch.first] for batch, (_, ids) in zip(batches, parts, strict=True)]
        if len(parts) == 1:
            return *parts[0], times[0]
        sizes = np.array([np.diff(ends, prepend=0) for ends, _ in parts])
        owners = np.concatenate([np.repeat(np.arange(len(numbers)), size) for size in sizes])
        order = np.argsort(owners, kind="stable")  # by reader, then by arrival
        ids = np.concatenate([ids for _, ids in parts])
        return np.cumsum(sizes.sum(axis=0)), ids[order], np.concatenate(times)[order]


class StreamSource:
    """A stream's arrivals in batches, retained for the longest window."""

    def __init__(self, stream: Stream, number: int) -> None:
        self.stream = stream
        self.rows = StreamRows(stream)
        self.selections = Selections(self.rows)
        self.totals: dict[int, Totals] = {}  # by window length
        self.batches: list[SelectionBatch] = []  # in order of arrival
        self.fresh: SelectionBatch | None = None  # the arrivals of this tick
        self.problem: PromisingError | None = None  # why the last read failed
        self.opened = self.rows.end  # arrivals when opened
        self.clock = BEGINNING
        self.number = number  # the last tick applied
        self.changed: dict[int | None, int] = {}  # by window length, the last tick with an arrival or expiry
        self._alike: WeakValueDictionary[tuple[object, ...], Alike] = WeakValueDictionary()
        self._woke: tuple[int, int] | None = None  # wall clock and stream clock at the last arrival
        self._columns: Counter[str] = Counter()
        self._lengths: Counter[int | None] = Counter()
        self._ends: dict[int, int] = {}  # by window length, the next expiry
        self._before = BEGINNING  # the clock one tick ago
        self._set_clock()

    # --- time ----------------------------------------------------------------------------------------------------

    def _set_clock(self) -> None:
        if self.rows.time is not None:
            self.clock = max(self.clock, self.rows.time)

    def _go_on(self, wall: int, silence: int) -> None:
        """While no tuples arrive, time follows the wall clock."""
        if self._woke is None or self.fresh is not None or self.clock == BEGINNING:
            self._woke = wall, self.clock
            return
        since, clock = self._woke
        if wall - since >= silence:
            self.clock = max(self.clock, clock + wall - since)

    def _ended(self, length: int) -> bool:
        """Whether any tuple of a window expired with this tick."""
        end = self._ends.get(length)
        if end is None:
            end = self._next_end(length, self._before)
        self._ends[length] = self._next_end(length, self.clock) if end <= self.clock else end
        return end <= self.clock

    def _next_end(self, length: int, after: int) -> int:
        live = [batch.ts[batch.ts > after - length] for batch in self.batches]
        return min((int(times.min()) + length for times in live if len(times)), default=NEVER)

    @property
    def waiting(self) -> int:
        """Arrivals not applied yet."""
        with self.stream.reading() as log:
            return log.arrived - self.rows.end

    # --- arrivals ------------------------------------------------------------------------------------------------

    def pull(self, number: int, wall: int | None = None, silence: int = 0) -> None:
        """Read new arrivals. With the wall clock, a stream that was silent for `silence` follows it."""
        self.number = number
        self.fresh = None
        self._before = self.clock
        self.problem = None
        try:
            first, end = self.rows.pull()
        except (PromisingError, OSError, MemoryError) as problem:  # the next tick retries
            told = f"stream {self.stream.name!r} cannot be read: {problem}"
            self.problem = problem if isinstance(problem, PromisingError) else StorageUnavailable(told)
            return
        if end > first:
            self._ends.clear()
            self.fresh = self._batch(first, end)
            self.batches.append(self.fresh)
        self._set_clock()
        if wall is not None:
            self._go_on(wall, silence)
        for length in self._lengths:
            if self.fresh is not None or (length is not None and self._ended(length)):
                self.changed[length] = number

    def _batch(self, first: int, end: int) -> SelectionBatch:
        ids = np.arange(first, end)
        return self.selections.index(first, self.rows.times(first, end), lambda name: self.rows.take(name, ids))

    def settle(self, forget: bool) -> None:
        """Merge small batches and, with `forget`, evict those outside all windows."""
        batches = self.batches
        while len(batches) > 1 and 2 * batches[-1].size >= batches[-2].size:
            first, end = batches[-2].first, batches[-1].first + batches[-1].size
            if end - first > LARGEST or first + batches[-2].size != batches[-1].first:  # some between were evicted
                break
            batches[-2:] = [self._batch(first, end)]
        if not forget:
            return
        gone = 0
        longest = max((n for n in self._lengths if n is not None), default=0)
        for batch in batches:
            needed = None in self._lengths and batch.first + batch.size + ENDLESS > self.rows.end
            if needed or (batch.size and int(batch.ts.max()) > self.clock - longest):
                break
            gone += 1
        if gone:
            del batches[:gone]
            kept = batches[0].first if batches else self.rows.end
            self.rows.trim(kept)
            if self.fresh is not None and self.fresh.first < kept:
                self.fresh = None

    # --- readers -------------------------------------------------------------------------------------------------

    def since(self, first: int) -> list[SelectionBatch]:
        """The batches with the arrivals from number `first` on."""
        held = self.batches if self.fresh is None or first < self.fresh.first else [self.fresh]
        return [batch for batch in held if batch.first + batch.size > first]

    def alike(self, length: int | None, columns: tuple[str, ...], schema: pa.Schema) -> "Alike":
        """The group of selections with these columns and window length."""
        key = length, columns, tuple(schema.names)
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = Alike(self, length, columns, schema)
        return found

    def enter(self, window: Window, inputs: Iterable[Input]) -> Reader:
        """A new reader, with what is still available of its window."""
        names = frozenset(i.name for i in inputs if i.source == window.place)
        since = self.clock - window.length if window.length is not None else self.clock
        readable = self.rows.reach(names, since)
        first = self.oldest
        if self.rows.first < first:
            self.batches.insert(0, self._batch(self.rows.first, first))
        made = Reader(self, window, names, readable)
        self._columns.update(names)
        self._lengths[window.length] += 1
        return made

    def leave(self, reader: Reader) -> None:
        self._columns.subtract(reader.columns)
        self._lengths[reader.window.length] -= 1
        self._lengths += Counter()  # drops zeros
        for known in (self.changed, self._ends, self.totals):
            if reader.window.length not in self._lengths:
                known.pop(reader.window.length, None)  # type: ignore[arg-type]  # None is never there
        unused = frozenset(name for name in reader.columns if self._columns[name] <= 0)
        self._columns += Counter()
        self.rows.forget(unused)

    def totals_of(self, window: Window) -> Totals:
        assert window.length is not None
        return self.totals.setdefault(window.length, Totals(self.rows, window.length))

    @property
    def oldest(self) -> int:
        return self.batches[0].first if self.batches else self.rows.end

    @property
    def used(self) -> bool:
        return bool(self._lengths)

    @property
    def nbytes(self) -> int:
        totals = sum(some.nbytes for some in self.totals.values())
        return self.rows.nbytes + totals + sum(batch.nbytes for batch in self.batches)
