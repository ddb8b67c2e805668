"""What a step of a standing query holds: entries by key, by their end, and by the results that they are."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from promising.index.instants import NEVER
from promising.query.aggregate.grouping import GroupKeys, GroupTable
from promising.query.kernels import entries as kernels
from promising.query.kernels.entries import CODE, COUNT, ENDLESS, FIELDS, FREE, METAS, NOTE, SHIFT, SLOT, TOP
from promising.query.scalar.types import Kind
from promising.query.standing.deltas import Ids, Times

Places = NDArray[np.int32]
Codes = NDArray[np.int32]
State = tuple[Any, Any, Any, Any, Any, Any, Any]
"""As kernels take it."""

A = TypeVar("A", bound=np.generic)

LEAST = 64
SLOTS = 1024
ANY_SLOT = 1 << 62


def slot_width(length: int | None) -> int:
    """Of a calendar whose entries live for at most `length`, so that its slots go round at most once: a power of 2."""
    return 1 << max(0, (2 * (length or 0) // SLOTS).bit_length())


class Entries:
    """Entries that came and have not ended yet. O(1) for each that comes, ends, is removed or looked up.

    Memory is proportional to the most entries there were since the last `shrink`. A place stays an entry's until it is
    taken out, and what was there can be read until the next insert.
    """

    def __init__(self, width: int, slot: int, indexed: bool) -> None:
        """`slot` is the width of a slot of the calendar, a power of 2; only if `indexed` are results looked up."""
        self.width = width
        self.indexed = indexed
        self.ids: Ids = np.empty((LEAST, width), np.int64)
        self.times: NDArray[np.int64] = np.empty((LEAST, 2), np.int64)
        self.links: NDArray[np.int32] = np.full((LEAST, FIELDS), -1, np.int32)
        self.heads: NDArray[np.int32] = np.empty((0, 2), np.int32)
        self._slots: NDArray[np.int32] = np.full(SLOTS, -1, np.int32)
        self._index: NDArray[np.int32] = np.zeros(2 * LEAST if indexed else 0, np.int32)
        self._meta: NDArray[np.int64] = np.zeros(METAS, np.int64)
        self._meta[FREE], self._meta[SLOT], self._meta[SHIFT] = -1, ANY_SLOT, slot.bit_length() - 1
        self._meta[ENDLESS] = NEVER
        self.extras: list[NDArray[np.generic]] = []
        """More about each entry, by place."""
        self.codes(LEAST)

    def extra(self, dtype: DTypeLike) -> int:
        """Room for one more value of each entry; its number in `extras`."""
        self.extras.append(np.zeros(len(self.ids), dtype))
        return len(self.extras) - 1

    def __len__(self) -> int:
        return int(self._meta[COUNT])

    @property
    def nbytes(self) -> int:
        return sum(int(part.nbytes) for part in (*self._state(), *self.extras))

    @property
    def counts(self) -> NDArray[np.int32]:
        """Entries of each code."""
        return self.heads[:, 1]

    def codes(self, count: int) -> None:
        """There are codes up to `count` from now on."""
        if count <= len(self.heads):
            return
        wider = np.empty((max(count, 2 * len(self.heads)), 2), np.int32)
        wider[:, 0], wider[:, 1] = -1, 0
        wider[: len(self.heads)] = self.heads
        self.heads = wider

    def _state(self) -> State:
        return self.ids, self.times, self.links, self.heads, self._slots, self._index, self._meta

    def insert(self, ids: Ids, ts: Times, exp: Times, codes: Codes) -> Places:
        """Take in results, none of which is there; their codes are below what `codes` was told."""
        places = np.empty(len(codes), np.int32)
        if not len(codes):
            return places
        if len(self) + len(codes) > len(self.ids):
            self._widen(len(self) + len(codes))
        kernels.insert(*self._state(), ids, ts, exp, codes, places)
        return places

    def _widen(self, count: int) -> None:
        size = max(count, 2 * len(self.ids))
        self.ids = _wider(self.ids, size)
        self.times = _wider(self.times, size)
        self.links = _wider(self.links, size)
        self.extras = [_wider(extra, size) for extra in self.extras]
        if self.indexed:
            self._reseat(size)

    def _reseat(self, size: int) -> None:
        slots = 2 * LEAST
        while slots < 2 * size:
            slots *= 2
        self._index = np.zeros(slots, np.int32)
        kernels.reseat(self.ids, self.links, self._meta[TOP], self._index)

    def expire(self, now: int) -> Places:
        """Take out what ends at `now` or before; where it was."""
        if not len(self) or int(self._meta[SLOT]) > now >> int(self._meta[SHIFT]):
            return np.empty(0, np.int32)
        places = np.empty(len(self), np.int32)
        return places[: kernels.expire(*self._state(), now, places)]

    def find(self, ids: Ids) -> Places:
        """Where the results are, -1 for those that are not there."""
        places = np.empty(len(ids), np.int32)
        kernels.find(self.ids, self._index, ids, places)
        return places

    def remove(self, ids: Ids) -> Places:
        """Take out results, all of which are there; where they were."""
        places = self.find(ids)
        if len(places) and places.min() < 0:
            missing = ids[int(np.argmin(places))].tolist()
            raise KeyError(f"result {missing} was retracted, but is not held")
        self.remove_at(places)
        return places

    def remove_at(self, places: Places) -> None:
        """Take out the entries at these places, which all differ."""
        if len(places):
            kernels.remove(*self._state(), places)

    def codes_at(self, places: Places) -> Codes:
        """The codes of entries, of those that were taken out since the last insert too."""
        codes: Codes = self.links[places, CODE]
        past = codes < 0
        codes[past] = -1 - codes[past]
        return codes

    @property
    def notes(self) -> NDArray[np.int32]:
        """A number that the owner keeps with each entry, 0 for a new one."""
        return self.links[:, NOTE]

    def members(self, codes: Codes) -> tuple[NDArray[np.int32], Places]:
        """All entries of these codes: the number among `codes`, and the place."""
        room = kernels.members_of(codes, self.heads)
        which, places = np.empty(room, np.int32), np.empty(room, np.int32)
        kernels.members(codes, self.heads, self.links, which, places)
        return which, places

    def all(self) -> Places:
        """Where there are entries."""
        return np.flatnonzero(self.links[: self._meta[TOP], CODE] >= 0).astype(np.int32)

    def recode(self, kept: NDArray[np.int64], numbers: Codes) -> None:
        """Only the codes of `kept` are left, all others have no entries; `numbers` is the new one of each."""
        kernels.recode(self.links, self._meta[TOP], numbers)
        heads = self.heads
        self.heads = np.empty((0, 2), np.int32)
        self.codes(max(LEAST, 2 * len(kept)))
        self.heads[: len(kept)] = heads[kept]

    def shrink(self) -> Places | None:
        """Give memory back if most of it is not used: the new place of each old one, None if all is as it was."""
        if len(self.ids) <= 16 * LEAST or 8 * len(self) > len(self.ids):
            return None
        old = self.all()
        ids, times, notes = self.ids[old], self.times[old], self.notes[old]
        codes, extras = self.links[old, CODE], [extra[old] for extra in self.extras]
        size = max(LEAST, 2 * len(old))
        moved = np.full(len(self.ids), -1, np.int32)
        self.ids, self.times = np.empty((size, self.width), np.int64), np.empty((size, 2), np.int64)
        self.links = np.full((size, FIELDS), -1, np.int32)
        self.heads[:, 0], self.heads[:, 1] = -1, 0
        self._slots[:] = -1
        self._meta[FREE], self._meta[COUNT], self._meta[TOP] = -1, 0, 0
        if self.indexed:
            self._reseat(size)
        self.extras = [_wider(extra, size) for extra in extras]
        # As they came: a chain starts with what came last.
        moved[old] = self.insert(ids, times[:, 0].copy(), times[:, 1].copy(), codes)
        self.notes[: len(old)] = notes
        return moved


def _wider(array: NDArray[A], size: int) -> NDArray[A]:
    """The same with room for `size`; links of new places are those of none."""
    out = np.empty((size, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    out[len(array) :] = -1 if array.ndim == 2 else 0
    return out


class Coder:
    """Dense numbers of keys, of any kinds. NULL is a key like others."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.kinds = tuple(kinds)
        self._keys = GroupKeys(self.kinds)
        self._table = GroupTable(self._keys.width)
        self._look = LEAST  # keys at which dead ones are looked for
        self._marks = np.zeros(LEAST, np.uint8)

    @property
    def size(self) -> int:
        """Codes are below it."""
        return self._table.size if self.kinds else 1

    def enter(self, arrays: Sequence[pa.Array], rows: int) -> Codes:
        """The code of each row; new ones get the next numbers."""
        if not self.kinds or not rows:
            return np.zeros(rows, np.int32)
        return self._table.enter(self._keys.encode(arrays, rows))

    def decode(self, codes: NDArray[np.integer]) -> list[pa.Array]:
        """The key columns of these codes."""
        return self._keys.decode(self._table.stored[codes])

    def different(self, codes: Sequence[Codes]) -> Codes:
        """Each code once."""
        every = np.concatenate(codes) if len(codes) != 1 else codes[0]
        if not len(every):
            return every
        if len(self._marks) < self.size:
            self._marks = np.zeros(2 * self.size, np.uint8)
        out = np.empty(min(len(every), self.size), np.int32)
        return out[: kernels.different(every, self._marks, out)]

    @property
    def crowded(self) -> bool:
        """Whether it is time to ask which codes are in use, and to `renumber` if half of them are not."""
        return self.size >= self._look and bool(self.kinds)

    def renumber(self, used: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Codes] | None:
        """Forget the keys that are not used, if they are most: the codes that stay, in order, and the new numbers."""
        kept = np.flatnonzero(used[: self.size])
        self._look = max(LEAST, 2 * len(kept), self.size + self.size // 2 if 2 * len(kept) > self.size else 0)
        if 2 * len(kept) > self.size:
            return None
        numbers = np.full(self.size, -1, np.int32)
        numbers[kept] = np.arange(len(kept), dtype=np.int32)
        arrays = self.decode(kept)
        self._keys = GroupKeys(self.kinds)
        self._table = GroupTable(self._keys.width)
        if len(kept):
            self._table.enter(self._keys.encode(arrays, len(kept)))
        return kept, numbers

    @property
    def nbytes(self) -> int:
        """About what it holds; strings not counted."""
        return self.size * (8 * self._keys.width + 16)
