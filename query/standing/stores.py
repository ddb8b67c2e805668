"""Stores of the live results of a standing query: one per pattern of insertion and expiry.

A ring holds results that expire in order of insertion, a calendar those with a known expiry; if some are retracted
earlier, it is indexed by ids. Where every removal is reported, a hash by ids suffices. The scan is for comparison.

Ids of live results are distinct. An insert costs O(1); memory is proportional to the live results. Removal costs:

    store              a result expires                        a result is retracted
    ring               O(1); a late one as in the calendar     full scan
    calendar           O(1) if its slot is about one tick      full scan
    indexed calendar   O(1) if its slot is about one tick      O(1)
    hash               never; the owner removes it             O(1)
    scan               full scan                               full scan
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from promising.errors import NotContained
from promising.index.instants import NEVER
from promising.query.kernels import pages
from promising.query.kernels import stores as kernels
from promising.query.kernels.pages import PAGE
from promising.query.standing.deltas import Ids, Times

Places = NDArray[np.int32]

LEAST = 16  # initial capacity
SLOTS = 4096  # maximum, where no window bounds the expiry
BEFORE_ALL = -(1 << 62)  # a tick


class Store(ABC):
    """The live results of one query."""

    name: str

    def __init__(self, width: int) -> None:
        self.width = width
        self._touched = 0

    @abstractmethod
    def insert(self, ids: Ids, exp: Times, born: int) -> None:
        """Insert results of tick `born`. Ticks never decrease; expiries may be in any order."""

    @abstractmethod
    def expire(self, now: int) -> int:
        """Remove results that end at `now` or before; returns their number."""

    @abstractmethod
    def remove(self, ids: Ids) -> int:
        """Remove results before their expiry; raises `NotContained` if one is missing (the others are removed)."""

    @abstractmethod
    def live(self) -> tuple[Ids, Times, Times]:
        """Ids, expiries and ticks of all results, in any order."""

    @abstractmethod
    def since(self, tick: int) -> tuple[Ids, Times]:
        """Ids and expiries of the results inserted after that tick."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held."""

    @property
    def touches(self) -> int:
        """Entries visited so far, including those inserted and those copied to other arrays."""
        return self._touched

    def _rows(self, ids: Ids) -> Ids:
        rows = np.ascontiguousarray(ids, np.int64)
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise ValueError(f"ids of shape {rows.shape}, not (n, {self.width})")
        return rows

    def _look_for(self, wanted: Ids, ids: Ids, exp: Times, start: int, stop: int) -> Places:
        """The places of these ids by a full scan; -1 if missing."""
        places = np.empty(len(wanted), np.int32)
        index = _Index(_power(len(wanted)))
        index.add(np.arange(len(wanted), dtype=np.int32), wanted)
        self._touched += kernels.look_for(wanted, *index.lists, ids, exp, start, stop, places)
        return places


def store_for(name: str, width: int, window: int | None, slot: int = 100_000) -> Store:
    """An empty store for results of `width` ids that expire within `window`; ideally a calendar `slot` is one tick."""
    made: dict[str, Callable[[], Store]] = {
        "ring": lambda: Ring(width, window, slot),
        "calendar": lambda: Calendar(width, window, slot),
        "indexed calendar": lambda: IndexedCalendar(width, window, slot),
        "hash": lambda: HashStore(width),
        "scan": lambda: ScanStore(width),
    }
    return made[name]()


# --- in order of insertion -------------------------------------------------------------------------------------------


class _Line(Store):
    """Contiguous entries from `_start` to `_stop`; space freed at the front is reused."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self._start = self._stop = 0
        self._ids: Ids = np.empty((LEAST, width), np.int64)
        self._exp: Times = np.empty(LEAST, np.int64)
        self._born: Times = np.empty(LEAST, np.int64)

    def _reserve(self, capacity: int) -> None:
        """Copy the entries to the front of new arrays."""
        held = slice(self._start, self._stop)
        count = self._stop - self._start
        ids = np.empty((capacity, self.width), np.int64)
        exp, born = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        ids[:count], exp[:count], born[:count] = self._ids[held], self._exp[held], self._born[held]
        self._touched += count
        self._ids, self._exp, self._born = ids, exp, born
        self._start, self._stop = 0, count

    def _append(self, ids: Ids, exp: Times, born: int) -> None:
        stop = self._stop + len(exp)
        if stop > len(self._exp):
            self._reserve(2 * (stop - self._start))
            stop = self._stop + len(exp)
        new = slice(self._stop, stop)
        self._ids[new], self._exp[new], self._born[new] = ids, exp, born
        self._stop = stop
        self._touched += len(exp)

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        held = slice(self._start, self._stop)
        count = int(np.count_nonzero(kept))
        stop = self._start + count
        for column in (self._ids, self._exp, self._born):
            column[self._start : stop] = column[held][kept]
        self._stop = stop
        self._shrink()

    def _shrink(self) -> None:
        count = self._stop - self._start
        if len(self._exp) > LEAST and count < len(self._exp) // 8:
            self._reserve(max(2 * count, LEAST))

    def _remove(self, ids: Ids) -> Ids:
        """Remove ids; returns those not present."""
        places = self._look_for(ids, self._ids, self._exp, self._start, self._stop)
        kept = np.ones(self._stop - self._start, np.bool_)
        kept[places[places >= 0] - self._start] = False
        self._keep(kept)
        missing: Ids = ids[places < 0]
        return missing

    def live(self) -> tuple[Ids, Times, Times]:
        held = slice(self._start, self._stop)
        return self._ids[held].copy(), self._exp[held].copy(), self._born[held].copy()

    def since(self, tick: int) -> tuple[Ids, Times]:
        first = self._start + int(np.searchsorted(self._born[self._start : self._stop], tick, side="right"))
        return self._ids[first : self._stop].copy(), self._exp[first : self._stop].copy()

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def nbytes(self) -> int:
        return self._ids.nbytes + self._exp.nbytes + self._born.nbytes


class ScanStore(_Line):
    """One list, scanned by every expiry."""

    name = "scan"

    def insert(self, ids: Ids, exp: Times, born: int) -> None:
        self._append(self._rows(ids), exp, born)

    def expire(self, now: int) -> int:
        before = len(self)
        self._touched += before
        kept = self._exp[self._start : self._stop] > now
        if not kept.all():
            self._keep(kept)
        return before - len(self)

    def remove(self, ids: Ids) -> int:
        _none(self._remove(self._rows(ids)))
        return len(ids)


class Ring(_Line):
    """A FIFO queue of entries in order of expiry. Entries out of order are in a calendar."""

    name = "ring"

    def __init__(self, width: int, window: int | None, slot: int = 100_000) -> None:
        super().__init__(width)
        self._late = Calendar(width, window, slot)

    def insert(self, ids: Ids, exp: Times, born: int) -> None:
        ids = self._rows(ids)
        if len(exp) == 0:
            return
        if np.any(exp[1:] < exp[:-1]):
            order = np.argsort(exp, kind="stable")
            ids, exp = ids[order], exp[order]
            self._touched += len(exp)
        if self._stop > self._start and exp[0] < (last := self._exp[self._stop - 1]):
            late = int(np.searchsorted(exp, last))
            self._late.insert(ids[:late], exp[:late], born)
            ids, exp = ids[late:], exp[late:]
        self._append(ids, exp, born)

    def expire(self, now: int) -> int:
        ended = int(np.searchsorted(self._exp[self._start : self._stop], now, side="right"))
        self._touched += min(ended + 1, self._stop - self._start)  # the expired ones, and the first live one
        self._start += ended
        self._shrink()
        return ended + self._late.expire(now)

    def remove(self, ids: Ids) -> int:
        missing = self._remove(self._rows(ids))
        self._late.remove(missing)
        return len(ids)

    def live(self) -> tuple[Ids, Times, Times]:
        (ids, exp, born), late = super().live(), self._late.live()
        return np.concatenate((ids, late[0])), np.concatenate((exp, late[1])), np.concatenate((born, late[2]))

    def since(self, tick: int) -> tuple[Ids, Times]:
        (ids, exp), late = super().since(tick), self._late.since(tick)
        return np.concatenate((ids, late[0])), np.concatenate((exp, late[1]))

    def __len__(self) -> int:
        return self._stop - self._start + len(self._late)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._late.nbytes

    @property
    def touches(self) -> int:
        return self._touched + self._late.touches


# --- in slots of time ------------------------------------------------------------------------------------------------


class _Circle:
    """Circular time slots, for results by expiry.

    A result whose slot has passed goes into the current slot. One that ends more than a round ahead is skipped until
    its
    time: exact, for an extra visit. Unless fixed, the number of slots grows with the results, down to a width of
    `slot`.
    """

    def __init__(self, window: int | None, slot: int, parts: int | None) -> None:
        if slot < 1 or (parts is not None and parts < 1):
            raise ValueError("a calendar has slots of a microsecond or more, and one of them or more")
        self._window = window
        self._slot = slot
        self._parts = parts
        self._now: int | None = None  # the latest time received

    def fit(self, capacity: int) -> int:
        """The number of slots for so many results: one more than the window has, and one for results that never end."""
        if self._window is None:
            parts, self.step = self._parts or min(capacity, SLOTS), self._slot
        else:
            parts = self._parts or max(min(capacity, -(-self._window // self._slot)), 1)
            self.step = max(1 if self._parts else self._slot, -(-self._window // parts))
        self.swept = NEVER if self._now is None else self._now // self.step
        return parts + 2

    def come(self, exp: Times) -> None:
        if self._now is None:  # no time received yet: the next results may end before all of these
            self.swept = min(self.swept, int(exp.min()) // self.step)

    def go(self, now: int) -> tuple[int, int]:
        """Advance to `now`: the first slot to visit, and the maximum number of slots passed."""
        slot, first = now // self.step, self.swept
        if self._now is None:
            self._now, self.swept = now, slot
        else:
            self._now, self.swept = max(self._now, now), max(first, slot)
        return first, max(slot - first, 0) + 1


class Calendar(Store):
    """Slots by expiry, in pages; an expiry visits the slots passed since the last one. parts: fixes their number.

    The results of the last tick are also stored in order of insertion until time advances: subscribers ask for them.
    """

    name = "calendar"

    def __init__(self, width: int, window: int | None, slot: int = 100_000, parts: int | None = None) -> None:
        super().__init__(width)
        self._circle = _Circle(window, slot, parts)
        self._count = 0
        self._latest = self._before = BEFORE_ALL  # the last two ticks with inserts
        self._fresh: list[tuple[Ids, Times]] | None = []
        self._arrange(LEAST, np.empty((0, width), np.int64), np.empty(0, np.int64), np.empty(0, np.int64))

    def _arrange(self, capacity: int, ids: Ids, exp: Times, born: Times) -> None:
        """New pages for that many results, filled with these."""
        self._capacity = capacity
        slots = self._circle.fit(capacity)
        number = capacity // PAGE + slots + 1  # the first page of each slot may be almost empty
        self._ids = np.empty((number * PAGE, self.width), np.int64)
        self._exp = np.full(number * PAGE, kernels.FREE, np.int64)
        self._born = np.empty(number * PAGE, np.int64)
        after = np.arange(1, number + 1, dtype=np.int32)
        self._pages = np.full(slots, -1, np.int32), np.zeros(slots, np.int32), after, np.full(number, -1, np.int32)
        self._free = 0
        self._file(ids, exp, born)

    def _file(self, ids: Ids, exp: Times, born: Times) -> None:
        if len(exp) == 0:
            return
        circle = self._circle
        circle.come(exp)
        self._free = pages.file(ids, exp, born, circle.step, circle.swept, NEVER, self._free, *self._state)
        self._touched += len(exp)

    @property
    def _state(self) -> tuple[Ids, Times, Times, Places, Places, Places, Places]:
        return self._ids, self._exp, self._born, *self._pages

    def insert(self, ids: Ids, exp: Times, born: int) -> None:
        ids, exp = self._rows(ids), np.ascontiguousarray(exp, np.int64)
        if len(exp) == 0:
            return
        count = self._count + len(exp)
        if count > self._capacity:
            self._arrange(_power(count), *self.live())
        self._file(ids, exp, np.full(1, born, np.int64))
        self._count = count
        if born != self._latest:
            self._before, self._latest, self._fresh = self._latest, born, []
        if self._fresh is not None:
            self._fresh.append((ids, exp))

    def expire(self, now: int) -> int:
        self._fresh = None
        first, number = self._circle.go(now)
        if not self._count:
            return 0
        number = min(number, len(self._pages[0]) - 1)
        touched, ended, self._free = pages.sweep(now, first, number, self._free, *self._state)
        self._touched += touched
        self._gone(int(ended))
        return int(ended)

    def remove(self, ids: Ids) -> int:
        self._fresh = None
        ids = self._rows(ids)
        places = self._look_for(ids, self._ids, self._exp, 0, len(self._exp))
        found = places[places >= 0]
        self._free = pages.take_out(found, self._free, *self._state)
        self._gone(len(found))
        _none(ids[places < 0])
        return len(ids)

    def _gone(self, number: int) -> None:
        self._count -= number
        if number and self._capacity > LEAST and self._count < self._capacity // 4:
            self._arrange(_power(max(2 * self._count, LEAST)), *self.live())

    def live(self) -> tuple[Ids, Times, Times]:
        places = np.flatnonzero(self._exp != kernels.FREE)
        return self._ids[places], self._exp[places], self._born[places]

    def since(self, tick: int) -> tuple[Ids, Times]:
        if tick >= self._latest:
            return np.empty((0, self.width), np.int64), np.empty(0, np.int64)
        if tick >= self._before and self._fresh is not None:
            return np.concatenate([ids for ids, _ in self._fresh]), np.concatenate([exp for _, exp in self._fresh])
        places = np.flatnonzero((self._exp != kernels.FREE) & (self._born > tick))
        return self._ids[places], self._exp[places]

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        fresh = sum(ids.nbytes + exp.nbytes for ids, exp in self._fresh or ())
        return fresh + sum(part.nbytes for part in self._state)


# --- in places -------------------------------------------------------------------------------------------------------


class _Index:
    """Places by ids: buckets of places, twice as many buckets as places."""

    def __init__(self, capacity: int) -> None:
        self.lists = np.full(2 * capacity, -1, np.int32), np.empty(capacity, np.int32), np.empty(capacity, np.int32)

    def add(self, places: Places, ids: Ids) -> None:
        kernels.seat(places, ids, *self.lists)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.lists)


class _Shelves(_Circle):
    """Places by expiry: each slot is a list of the places that expire in it."""

    def arrange(self, capacity: int) -> None:
        heads = np.full(self.fit(capacity), -1, np.int32)
        self.lists = heads, np.empty(capacity, np.int32), np.empty(capacity, np.int32)

    def add(self, places: Places, exp: Times) -> None:
        self.come(exp[places])
        kernels.shelve(places, exp, self.step, self.swept, NEVER, *self.lists)

    def sweep(self, now: int, exp: Times, count: int) -> tuple[Places, int]:
        """Remove and return what has expired; and the number of entries visited."""
        first, number = self.go(now)
        if not count:
            return np.empty(0, np.int32), 0
        dead = np.empty(count, np.int32)
        touched, died = kernels.sweep(now, first, min(number, len(self.lists[0]) - 1), exp, *self.lists, dead)
        return dead[:died], touched

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.lists)


class _Placed(Store):
    """Entries in reusable places, found by expiry, by ids, or both."""

    def __init__(self, width: int, shelves: _Shelves | None, indexed: bool) -> None:
        super().__init__(width)
        self._shelves = shelves
        self._indexed = indexed
        self._count = 0
        self._free = 0
        self._arrange(LEAST, np.empty((0, width), np.int64), np.empty(0, np.int64), np.empty(0, np.int64))

    def _arrange(self, capacity: int, ids: Ids, exp: Times, born: Times) -> None:
        count = len(exp)
        self._ids = np.empty((capacity, self.width), np.int64)
        self._exp = np.full(capacity, kernels.FREE, np.int64)
        self._born = np.full(capacity, kernels.FREE, np.int64)
        self._ids[:count], self._exp[:count], self._born[:count] = ids, exp, born
        if self._shelves is not None:
            self._shelves.arrange(capacity)
        self._index = _Index(capacity) if self._indexed else None
        self._spare = np.empty(capacity, np.int32) if self._shelves is None else self._shelves.lists[1]
        self._spare[:] = np.arange(1, capacity + 1)
        self._free = count
        self._file(np.arange(count, dtype=np.int32))
        self._touched += count

    def _file(self, places: Places) -> None:
        if len(places) == 0:
            return
        if self._shelves is not None:
            self._shelves.add(places, self._exp)
        if self._index is not None:
            self._index.add(places, self._ids)

    def insert(self, ids: Ids, exp: Times, born: int) -> None:
        ids = self._rows(ids)
        count = self._count + len(exp)
        if count > len(self._exp):
            self._arrange(_power(count), *self.live())
        places = np.empty(len(exp), np.int32)
        self._free = kernels.settle(
            ids,
            np.ascontiguousarray(exp, np.int64),
            born,
            self._free,
            self._ids,
            self._exp,
            self._born,
            self._spare,
            places,
        )
        self._file(places)
        self._count = count
        self._touched += len(exp)

    def expire(self, now: int) -> int:
        if self._shelves is None:
            return 0
        dead, touched = self._shelves.sweep(now, self._exp, self._count)
        self._touched += touched
        if self._index is not None:
            kernels.unlink_all(dead, *self._index.lists)
        self._let_go(dead)
        return len(dead)

    def remove(self, ids: Ids) -> int:
        ids = self._rows(ids)
        if self._index is None:
            places = self._look_for(ids, self._ids, self._exp, 0, len(self._exp))
        else:
            places = np.empty(len(ids), np.int32)
            self._touched += kernels.unseat(ids, self._ids, *self._index.lists, places)
        found = places[places >= 0]
        if self._shelves is not None:
            kernels.unlink_all(found, *self._shelves.lists)
        self._let_go(found)
        _none(ids[places < 0])
        return len(ids)

    def _let_go(self, places: Places) -> None:
        if len(places) == 0:
            return
        self._free = kernels.release(places, self._free, self._exp, self._born, self._spare)
        self._count -= len(places)
        if len(self._exp) > LEAST and self._count < len(self._exp) // 4:
            self._arrange(_power(max(2 * self._count, LEAST)), *self.live())

    def live(self) -> tuple[Ids, Times, Times]:
        places = np.flatnonzero(self._exp != kernels.FREE)
        return self._ids[places], self._exp[places], self._born[places]

    def since(self, tick: int) -> tuple[Ids, Times]:
        places = np.flatnonzero(self._born > tick)
        return self._ids[places], self._exp[places]

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        own = self._ids.nbytes + self._exp.nbytes + self._born.nbytes
        shelves = self._spare.nbytes if self._shelves is None else self._shelves.nbytes
        return own + shelves + (self._index.nbytes if self._index is not None else 0)


class IndexedCalendar(_Placed):
    name = "indexed calendar"

    def __init__(self, width: int, window: int | None, slot: int = 100_000, parts: int | None = None) -> None:
        super().__init__(width, _Shelves(window, slot, parts), indexed=True)


class HashStore(_Placed):
    """Entries found by ids only: the owner reports every removal, including expiries."""

    name = "hash"

    def __init__(self, width: int) -> None:
        super().__init__(width, None, indexed=True)


def _power(number: int) -> int:
    """The least power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()


def _none(missing: Ids) -> None:
    if len(missing):
        first = tuple(missing[0].tolist())
        raise NotContained(
            f"{len(missing)} of the results to retract are not held, among them the one with ids {first}"
        )
