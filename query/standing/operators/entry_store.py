"""The state of a step: entries indexed by key, by expiry and by result."""

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

A = TypeVar("A", bound=np.generic)

LEAST = 64
SLOTS = 1024
ANY_SLOT = 1 << 62


def slot_width(length: int | None) -> int:
    """Slot width, a power of 2, of a calendar whose entries live at most `length`: slots go round at most once."""
    return 1 << max(0, (2 * (length or 0) // SLOTS).bit_length())


class Entries:
    """Live entries. Each insert, expiry, removal and lookup costs O(1).

    Memory is proportional to the maximum number of entries since the last `shrink`. An entry keeps its place until
    removed, and stays readable until the next insert.
    """

    def __init__(self, width: int, slot: int, indexed: bool) -> None:
        """`slot`: width of a calendar slot, a power of 2. `indexed`: results can be looked up by id."""
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
        self.extras: list[NDArray[np.generic]] = []  # additional values of each entry, by place
        self.codes(LEAST)

    def extra(self, dtype: DTypeLike) -> int:
        """Add a value per entry; returns its index in `extras`."""
        self.extras.append(np.zeros(len(self.ids), dtype))
        return len(self.extras) - 1

    def __len__(self) -> int:
        return int(self._meta[COUNT])

    @property
    def nbytes(self) -> int:
        return sum(int(part.nbytes) for part in (*self._state(), *self.extras))

    @property
    def counts(self) -> NDArray[np.int32]:
        """Entries per code."""
        return self.heads[:, 1]

    def codes(self, count: int) -> None:
        """Make room for codes below `count`."""
        if count <= len(self.heads):
            return
        wider = np.empty((max(count, 2 * len(self.heads)), 2), np.int32)
        wider[:, 0], wider[:, 1] = -1, 0
        wider[: len(self.heads)] = self.heads
        self.heads = wider

    def _state(self) -> State:
        return self.ids, self.times, self.links, self.heads, self._slots, self._index, self._meta

    def insert(self, ids: Ids, ts: Times, exp: Times, codes: Codes) -> Places:
        """Insert results that are not present; their codes are below the last `codes`."""
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
        """Remove entries that end at `now` or before; returns their places."""
        if not len(self) or int(self._meta[SLOT]) > now >> int(self._meta[SHIFT]):
            return np.empty(0, np.int32)
        places = np.empty(len(self), np.int32)
        return places[: kernels.expire(*self._state(), now, places)]

    def find(self, ids: Ids) -> Places:
        """The places of results, -1 for those not present."""
        places = np.empty(len(ids), np.int32)
        kernels.find(self.ids, self._index, ids, places)
        return places

    def remove(self, ids: Ids) -> Places:
        """Remove results, all of which are present; returns their places."""
        places = self.find(ids)
        if len(places) and places.min() < 0:
            missing = ids[int(np.argmin(places))].tolist()
            raise KeyError(f"result {missing} was retracted, but is not held")
        self.remove_at(places)
        return places

    def remove_at(self, places: Places) -> None:
        """Remove the entries at these distinct places."""
        if len(places):
            kernels.remove(*self._state(), places)

    def codes_at(self, places: Places) -> Codes:
        """The codes of entries, including those removed since the last insert."""
        codes: Codes = self.links[places, CODE]
        past = codes < 0
        codes[past] = -1 - codes[past]
        return codes

    @property
    def notes(self) -> NDArray[np.int32]:
        """The owner's number for each entry, initially 0."""
        return self.links[:, NOTE]

    def members(self, codes: Codes) -> tuple[NDArray[np.int32], Places]:
        """All entries of these codes: the index into `codes`, and the place."""
        room = kernels.members_of(codes, self.heads)
        which, places = np.empty(room, np.int32), np.empty(room, np.int32)
        kernels.members(codes, self.heads, self.links, which, places)
        return which, places

    def all(self) -> Places:
        return np.flatnonzero(self.links[: self._meta[TOP], CODE] >= 0).astype(np.int32)

    def recode(self, kept: NDArray[np.int64], numbers: Codes) -> None:
        """Retain only the codes of `kept`, renumbered by `numbers`; the others have no entries."""
        kernels.recode(self.links, self._meta[TOP], numbers)
        heads = self.heads
        self.heads = np.empty((0, 2), np.int32)
        self.codes(max(LEAST, 2 * len(kept)))
        self.heads[: len(kept)] = heads[kept]

    def shrink(self) -> Places | None:
        """Release memory if most of it is unused: the new place of each old one, None if nothing moved."""
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
        # In order of insertion: a chain starts with the newest entry.
        moved[old] = self.insert(ids, times[:, 0].copy(), times[:, 1].copy(), codes)
        self.notes[: len(old)] = notes
        return moved


def _wider(array: NDArray[A], size: int) -> NDArray[A]:
    """A copy with capacity `size`; links of new places are empty."""
    out = np.empty((size, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    out[len(array) :] = -1 if array.ndim == 2 else 0
    return out


class Coder:
    """Dense codes of keys of any kinds. NULL is a key like any other."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.kinds = tuple(kinds)
        self._keys = GroupKeys(self.kinds)
        self._table = GroupTable(self._keys.width)
        self._look = LEAST  # number of keys at which to search for unused ones
        self._marks = np.zeros(LEAST, np.uint8)

    @property
    def size(self) -> int:
        """All codes are below it."""
        return self._table.size if self.kinds else 1

    def enter(self, arrays: Sequence[pa.Array], rows: int) -> Codes:
        """The code of each row; new keys get the next codes."""
        if not self.kinds or not rows:
            return np.zeros(rows, np.int32)
        return self._table.enter(self._keys.encode(arrays, rows))

    def decode(self, codes: NDArray[np.integer]) -> list[pa.Array]:
        return self._keys.decode(self._table.stored[codes])

    def different(self, codes: Sequence[Codes]) -> Codes:
        every = np.concatenate(codes) if len(codes) != 1 else codes[0]
        if not len(every):
            return every
        if len(self._marks) < self.size:
            self._marks = np.zeros(2 * self.size, np.uint8)
        out = np.empty(min(len(every), self.size), np.int32)
        return out[: kernels.different(every, self._marks, out)]

    @property
    def crowded(self) -> bool:
        """Whether to check for unused codes, and to `renumber` if at least half are."""
        return self.size >= self._look and bool(self.kinds)

    def renumber(self, used: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Codes] | None:
        """Drop unused keys if they are the majority: the remaining codes in order, and the new number of each."""
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
        """Approximate size, without strings."""
        return self.size * (8 * self._keys.width + 16)
