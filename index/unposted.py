"""`OPTIONS (postings = off)`: nothing is stored by key. Cells and their filters find the tuples of keys."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from promising.index.kernels.probe import may_hold, survivors
from promising.index.kernels.unposted import count_keys, find_rows
from promising.index.options import GROUP, Sizes
from promising.index.zone import Hasher, Tuples, buckets_of

if TYPE_CHECKING:
    from promising.index.summary import SummaryState

Hashes = NDArray[np.int64]
Rows = NDArray[np.int32]

PASSED = 1 << 20  # pairs of key and zone that pass filters, looked at together
MOST = 1 << 18  # rows looked at together
DENSE = 2  # a zone of which one bucket in so many is wanted is read whole, and not sorted by bucket


class Unposted:
    """In place of postings: it is given what they are, and stores nothing."""

    zone_keys = 0

    def reserve(self, capacity: int) -> None: ...

    def begin_zone(self) -> None: ...

    def enter(self, *tuples: Any) -> None: ...

    def enter_all(self, hashes: Hashes, rows: Rows) -> None: ...

    def take_back(self, hashes: Hashes, sizes: NDArray[np.int32]) -> None: ...

    def note(self, *tuples: Any) -> None: ...

    def image(self, stretches: list[tuple[int, int]]) -> None: ...

    def restore(self, image: None, stretches: list[tuple[int, int]]) -> None: ...

    def nbytes(self, rows: int) -> int:
        return 0


def counted(hashes: Hashes) -> tuple[Hashes, NDArray[np.int32]]:
    """The distinct keys and their counts."""
    _, keys, counts = _table(hashes)
    return keys, counts


def _table(hashes: Hashes) -> tuple[NDArray[np.int32], Hashes, NDArray[np.int32]]:
    lines = np.zeros(1 << (2 * len(hashes)).bit_length(), np.int32)
    keys, counts = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int32)
    found = count_keys(hashes, lines, keys, counts)
    return lines, keys[:found], counts[:found]


def rows_of(state: "SummaryState", hashes: Hashes, start: int, end: int) -> tuple[Rows, Rows]:
    """Every row of the summary with one of the keys, and some outside of the window: (index of the key, row).

    Keys in the given order, newest row first, as postings give them.
    """
    lines, keys, _ = _table(np.ascontiguousarray(hashes))
    which: list[Rows] = [np.empty(0, np.int32)]
    found: list[Rows] = [np.empty(0, np.int32)]
    for rows in candidates(cells_with(state, keys, start, end), state.identity.sizes, state.hashes):
        here, places = np.empty(len(rows), np.int32), np.empty(len(rows), np.int32)
        n = find_rows(keys, lines, state.hashes(rows), here, places)
        which.append(here[:n])
        found.append(rows[places[:n]])
    key, row = np.concatenate(which), np.concatenate(found)
    order = np.lexsort((-state.log.arrivals(row), key))
    key, row = key[order], row[order]
    counts = np.bincount(key, minlength=len(keys))
    starts = np.cumsum(counts) - counts
    place = np.argsort(keys)
    asked = place[np.searchsorted(keys[place], hashes)] if len(keys) else np.empty(0, np.int64)
    many = counts[asked]
    at = np.repeat(starts[asked] - np.cumsum(many) + many, many) + np.arange(int(many.sum()))
    return np.repeat(np.arange(len(hashes), dtype=np.int32), many), row[at]


@dataclass(frozen=True)
class Part:
    """Cells of one zone; `buckets` None: all of its tuples.

    A coarse zone takes in all its finer ones at once, when the first is behind the horizon: what exists takes in none.
    So no tuple is in two parts, whatever collapses before they are read.
    """

    tuples: Tuples
    buckets: NDArray[np.int64] | None
    cells: NDArray[np.int64]  # tuples by bucket, as they are now


def cells_with(state: "SummaryState", keys: Hashes, start: int, end: int) -> list[Part]:
    """The cells whose filters pass one of these keys, in zones with tuples of the window, and all unsealed tuples."""
    sizes, fine = state.identity.sizes, state.fine
    buckets = buckets_of(keys, sizes)
    found = _sealed(state, keys, buckets, start, end)
    for zones in state.coarse.levels.values():
        for coarse in zones.values():
            if coarse.first < end and coarse.last >= start:
                hit = np.empty(len(keys), np.bool_)
                may_hold(coarse.bits, keys, sizes.shift, sizes.probes, Sizes.lg(sizes.coarse_slots), hit)
                found.append(Part(coarse.tuples, np.unique(buckets[hit]), coarse.cells.copy()))
    loose = [fine.open_rows, *(ahead.rows for ahead in fine.ahead.zones())]
    loose += [block.waiting()[1] for block in fine.blocks.values()]
    return found + [Part(Tuples(rows.copy()), None, np.empty(0, np.int64)) for rows in loose if len(rows)]


def _sealed(state: "SummaryState", keys: Hashes, buckets: NDArray[np.int64], start: int, end: int) -> list[Part]:
    sizes, pool = state.identity.sizes, state.fine.pool
    wanted = ((pool.sealed > 0) & (pool.first < end) & (pool.last >= start)).astype(np.uint8)
    groups = np.array([g for b in state.fine.blocks.values() for g in b.groups], np.int64)
    if not len(groups):
        return []
    many = max(PASSED // (GROUP * len(groups)), 1)
    passed = np.zeros((len(pool.zones), sizes.buckets), np.bool_)
    for first in range(0, len(keys), many):
        part = keys[first : first + many]
        room = len(part) * len(groups) * GROUP
        key, slot = np.empty(room, np.int64), np.empty(room, np.int64)
        given = (pool.sliced, groups, part, sizes.shift, sizes.probes, Sizes.lg(sizes.slots), wanted, key, slot)
        n = survivors(*given)
        passed[slot[:n], buckets[first : first + many][key[:n]]] = True
    out = []
    for at in np.flatnonzero(passed.any(axis=1)).tolist():
        zone = pool.zones[at]
        assert zone is not None  # it is sealed
        out.append(Part(zone.tuples, np.flatnonzero(passed[at]), pool.cells[at].copy()))
    return out


def candidates(cells: list[Part], sizes: Sizes, hasher: Hasher, most: int = MOST) -> Iterator[Rows]:
    """The rows of these cells, at most so many at once; none while a large zone is being sorted."""
    for part in cells:
        if part.buckets is None or DENSE * len(part.buckets) > sizes.buckets:
            found = [part.tuples.rows]
        else:
            if len(part.tuples) > most:
                for _ in part.tuples.sorting(part.cells, sizes, hasher, most):
                    yield np.empty(0, np.int32)
            found = [part.tuples.cell(bucket, sizes, hasher) for bucket in part.buckets.tolist()]
        rows = np.concatenate([np.empty(0, np.int32), *found])
        for first in range(0, len(rows), most):
            yield rows[first : first + most]
