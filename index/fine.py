"""`G_1`: blocks of length `T_1`, each a sequence of zones cut by content.

The newest block has the open zone. Late tuples of a closed block are set aside until they fill a zone, or until the
block collapses. A sealed zone never changes. Tuples from `limit` on wait in `ahead`: there are few blocks.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from promising.index.ahead import Ahead, Loose
from promising.index.geometry import Geometry
from promising.index.instants import END
from promising.index.kernels import open_zone as kernels
from promising.index.kernels.seal import extent, filter_keys, filter_sliced
from promising.index.log import TupleLog
from promising.index.measures import Measures, logged
from promising.index.options import GROUP, Options, Sizes
from promising.index.postings import Postings
from promising.index.unposted import Unposted, counted
from promising.index.zone import CoarseZone, FineZone, Hasher, Tuples, distinct, in_order
from promising.summaries.reserved import Reserved, longer

REASONS = {kernels.CUT_ERROR: "error", kernels.CUT_BEHAVIOUR: "behaviour", kernels.CUT_MAXLENGTH: "maxlength"}


class ZonePool:
    """Counts of keys, filters and cells of all sealed zones of `G_1`, by slot; `counts` is a state of `kind`.

    64 slots form a group with bit-sliced filters: bit z of a word belongs to zone z of the group, so one word answers
    for 64 zones. A group belongs to one block. The pool doubles when no group is free.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.kind = sizes.counts
        self.counts = self.kind.allocate(GROUP, "sealed")
        self.groups = 1
        self._sliced = Reserved(np.uint64, 1, (sizes.buckets * sizes.slots,))
        self._cells = Reserved(np.int64, GROUP, (sizes.buckets,))
        self.numbers = np.full(GROUP, -1, np.int64)
        self.first = np.zeros(GROUP, np.int64)
        self.last = np.zeros(GROUP, np.int64)
        self.sealed = np.zeros(GROUP, np.uint8)
        self.zones: list[FineZone | None] = [None] * GROUP
        self._free = [0]

    @property
    def sliced(self) -> NDArray[np.uint64]:
        return self._sliced.array

    @property
    def cells(self) -> NDArray[np.int64]:
        return self._cells.array

    def grow(self, groups: int) -> None:
        """Have so many groups."""
        slots, before = groups * GROUP, self.groups * GROUP
        self.kind.grow(self.counts, slots)
        self._cells.grow(slots, [(0, before)])
        self._sliced.grow(groups, [(0, self.groups)])
        self.numbers, self.sealed = longer(self.numbers, slots, -1), longer(self.sealed, slots)
        self.first, self.last = longer(self.first, slots), longer(self.last, slots)
        self.zones += [None] * (slots - before)
        self._free[:0] = range(groups - 1, self.groups - 1, -1)
        self.groups = groups

    def take_group(self) -> int:
        if not self._free:
            self.grow(2 * self.groups)
        group = self._free.pop()
        self.sliced[group] = 0
        return group

    def give_group(self, group: int) -> None:
        for slot in range(group * GROUP, (group + 1) * GROUP):
            self.kind.release(self.counts, slot)
        self.sealed[group * GROUP : (group + 1) * GROUP] = 0
        self.zones[group * GROUP : (group + 1) * GROUP] = [None] * GROUP
        self._free.append(group)

    def fill(
        self, zone: FineZone, keys: NDArray[np.int64], counts: NDArray[np.int32], block_bits: NDArray[np.uint8]
    ) -> None:
        """Build the summary of a zone in its slot, and add its keys to its block's filter."""
        s, slot = self.sizes, zone.slot
        cells = self.cells[slot]
        cells[:] = 0
        self.kind.clear(self.counts, slot)
        self.kind.insert(self.counts, slot, keys, counts, cells)
        filter_sliced(keys, s.shift, s.probes, Sizes.lg(s.slots), slot % GROUP, self.sliced[slot // GROUP])
        filter_keys(keys, s.shift, s.probes, Sizes.lg(s.coarse_slots), block_bits)
        self.seal(zone)

    def seal(self, zone: FineZone) -> None:
        """Mark the slot's content as the summary of that zone."""
        slot = zone.slot
        self.numbers[slot], self.first[slot], self.last[slot] = zone.number, zone.first, zone.last
        self.zones[slot] = zone
        self.sealed[slot] = 1

    @property
    def groups_used(self) -> int:
        return self.groups - len(self._free)

    @property
    def nbytes(self) -> int:
        zones = int((self.sealed > 0).sum())
        groups: int = self.groups_used * self.sliced[0].nbytes
        return groups + zones * (int(self.cells[0].nbytes) + 25) + self.kind.nbytes(self.counts, zones)


@dataclass
class Block:
    """One period of `T_1`: its sealed zones, and its future zone of `G_2` (`whole`, without unsealed tuples)."""

    whole: CoarseZone
    zones: list[FineZone] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    aside: int = 0  # late tuples, at the front of the three arrays
    aside_hashes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    aside_rows: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    aside_times: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    late: int = 0  # number of their future zone
    pyramid: dict[tuple[int, int], Any] = field(default_factory=dict)  # nodes by (level, first zone)

    def waiting(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        return self.aside_hashes[: self.aside], self.aside_rows[: self.aside]

    def set_aside(self, hashes: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int64]) -> None:
        total = self.aside + len(rows)
        if total > len(self.aside_rows):
            room = max(total, 2 * len(self.aside_rows))
            self.aside_hashes = np.resize(self.aside_hashes, room)
            self.aside_rows = np.resize(self.aside_rows, room)
            self.aside_times = np.resize(self.aside_times, room)
        self.aside_hashes[self.aside : total] = hashes
        self.aside_rows[self.aside : total] = rows
        self.aside_times[self.aside : total] = times
        self.aside = total


class Fine:
    def __init__(
        self,
        sizes: Sizes,
        options: Options,
        geometry: Geometry,
        log: TupleLog,
        postings: Postings | Unposted,
        measures: Measures,
        hasher: Hasher,
    ) -> None:
        self.sizes = sizes
        self.measures = measures
        self.geometry = geometry
        self.length = length = geometry.granularity
        self.pool = ZonePool(sizes)
        self.blocks: SortedDict[int, Block] = SortedDict()
        self.ahead = Ahead(length)
        self.limit = END  # a multiple of the length
        self.cuts: dict[str, int] = {}
        self._log = log
        self._hasher = hasher
        self._postings = postings
        self._issued = 0
        self.number = self._issue()  # of the open zone
        self.open_block: Block | None = None
        self._recent = np.empty(kernels.WINDOW, np.int64)
        self._rows = np.empty(sizes.maxlength, np.int32)
        self._times = np.empty(sizes.maxlength, np.int64)  # of these rows: sealing a zone reads nothing
        self._hashes = np.empty(sizes.maxlength, np.int64)  # of their keys, if `_hashing`
        self._unhashed = 0  # rows at the front that lack them
        self._signed = np.zeros((kernels.SIGNED, kernels.ROW), np.int32)
        self._state = np.zeros(kernels.STATE_SIZE, np.int64)
        self._keys = np.empty(sizes.maxlength, np.int64)
        self._counts = np.empty(sizes.maxlength, np.int32)
        tolerated = sizes.counts.tolerated(options.tolerance)
        self._limits = np.array([tolerated, options.effect, sizes.maxlength, 0.0])
        self._spare = sizes.zones // 2
        self._zones = 0  # sealed
        self._watch()

    def _watch(self) -> None:
        """Between two zones: cut for error and behaviour while enough zones remain for mandatory cuts."""
        if not self._limits[kernels.L_WATCHED]:
            self._signed[kernels.S_REFERENCE :] = 0  # the next one cannot refer to it either
            self._state[[kernels.REF_COUNT, kernels.REF_F2, kernels.BLOCK_COUNT, kernels.BLOCK_WINDOWS]] = 0
        self._limits[kernels.L_WATCHED] = float(self.sizes.structure == "adaptive" and self._roomy)

    @property
    def _roomy(self) -> bool:
        """Whether there are fewer zones than the sizes allow; a stream without a limit may have more tuples than they
        are for, and as many more zones as those need."""
        if self._zones < self._spare:
            return True
        beyond = self.count - self.sizes.tuples
        return beyond > 0 and self._zones < self._spare + beyond // self.sizes.maxlength

    def number_after(self, issued: int) -> None:
        """Number zones from `issued` + 1 on; called before the first insert."""
        self._issued = issued
        self.number = self._issue()

    @property
    def issued(self) -> int:
        return self._issued

    def _issue(self) -> int:
        """A number that no other zone of `G_1` has had."""
        self._issued += 1
        return self._issued

    def extended_by(self, least: int, greatest: int) -> bool:
        """Whether tuples of these times go to the open zone, or to the one that the next newest block begins."""
        home = least // self.length
        if home != greatest // self.length or greatest >= self.limit:
            return False
        if self.open_block is not None and self.blocks.get(home) is self.open_block:
            return True
        return not self.blocks or home > self.blocks.keys()[-1]

    def insert(
        self,
        hashes: NDArray[np.int64],
        rows: NDArray[np.int32],
        times: NDArray[np.int64],
        least: int,
        greatest: int,
        posted: bool,
    ) -> None:
        """Add tuples to the blocks of their timestamps and, unless `posted`, to the postings in order of arrival."""
        if greatest >= self.limit:
            if not posted:
                self._postings.enter_all(hashes, rows)
            later = times >= self.limit
            self._keep_ahead(Loose(hashes, rows, times).at(later))
            hashes, rows, times = Loose(hashes, rows, times).at(~later)
            if not len(rows):
                return
            greatest, posted = int(times.max()), True
        low, high = least // self.length, greatest // self.length
        if low == high:
            self._insert_block(low, hashes, rows, times, posted)
            return
        homes = times // self.length
        edges = np.flatnonzero(homes[1:] != homes[:-1]) + 1
        if len(edges) <= high - low + 1:  # runs of one block each
            borders = [0, *edges.tolist(), len(homes)]
            for start, stop in pairwise(borders):
                part = slice(start, stop)
                self._insert_block(int(homes[start]), hashes[part], rows[part], times[part], posted)
        else:
            if not posted:  # blocks alternate, and chains must be in order of arrival
                self._postings.enter_all(hashes, rows)
            for home in np.unique(homes):
                where = homes == home
                self._insert_block(int(home), hashes[where], rows[where], times[where], True)

    def _keep_ahead(self, tuples: Loose) -> None:
        if len(tuples.rows):
            if not len(self.ahead):
                self.ahead.number = self._issue()
            self.ahead.add(tuples)

    def reach(self, limit: int) -> Loose:
        """Move the limit, never back; returns the tuples before it, which now belong into zones."""
        self.limit = limit
        due = self.ahead.take(limit)
        if len(due.rows):
            self.ahead.number = self._issue() if len(self.ahead) else 0
        return due

    def _insert_block(
        self, home: int, hashes: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int64], posted: bool
    ) -> None:
        block = self.blocks.get(home)
        if block is None:
            whole = CoarseZone.empty(home, self.length, self.geometry, self.sizes, self.measures)
            block = self.blocks[home] = Block(whole)
            if home == self.blocks.keys()[-1]:
                self._close_block()
                self.open_block = block
        if block is self.open_block:
            self._extend(block, hashes, rows, times, posted)
        else:
            if not posted:
                self._postings.enter_all(hashes, rows)
            self._set_aside(block, hashes, rows, times)

    def _extend(
        self, block: Block, hashes: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int64], posted: bool
    ) -> None:
        """The common path: tuples of the newest block."""
        start, stop = 0, len(rows)
        while start < stop:
            count = int(self._state[kernels.COUNT])
            until, cut = kernels.absorb(
                self._recent, self._rows, self._signed, self._state, self._limits, hashes, rows, start, stop
            )
            self._times[count : count + until - start] = times[start:until]
            if self._hashing:
                self._hashes[count : count + until - start] = hashes[start:until]
            if posted:
                self._postings.note(hashes[start:until], self.number, self._keys, self._counts)
            else:
                self._postings.enter(hashes, rows, start, until, self.number, self._keys, self._counts)
            start = until
            if cut != kernels.NOT_CUT:
                self._seal_open(block, REASONS[cut])

    def _seal_open(self, block: Block, reason: str) -> None:
        changed = reason == "behaviour"
        kept = int(self._state[kernels.SUB]) if changed else 0
        if kept:
            self._postings.take_back(self._recent[:kept], self._counts)
        n = self._postings.zone_keys
        keys, counts = self._keys[:n], self._counts[:n]
        if kept:
            keys, counts = keys[counts > 0], counts[counts > 0]
        sealed = int(self._state[kernels.COUNT]) - kept
        if sealed:
            rows, hashes = self._rows[:sealed].copy(), self._hashes[:sealed]
            if self._unhashed and self._hashing:
                self._hashes[: self._unhashed] = self._hasher(self._rows[: self._unhashed])
            self._unhashed = 0
            if isinstance(self._postings, Unposted):
                keys, counts = counted(hashes)
            self._seal(block, self.number, keys, counts, rows, self._times[:sealed], hashes, reason)
        elif block.zones:  # the previous cut is where behaviour changed: a better reason for it
            self.cuts[block.zones[-1].reason] -= 1
            self.cuts[reason] = self.cuts.get(reason, 0) + 1
            block.whole.take(block.zones[-1].reason, -1, -block.zones[-1].count)
            block.whole.take(reason, 1, block.zones[-1].count)
            block.zones[-1].reason = reason
        self._postings.begin_zone()
        self.number = self._issue()
        kernels.restart(self._rows, self._signed, self._state, changed)
        for array in (self._times, self._hashes):
            array[:kept] = array[sealed : sealed + kept].copy()
        if kept:
            self._postings.note(self._recent[:kept], self.number, self._keys, self._counts)
        self._watch()

    def _seal(
        self,
        block: Block,
        number: int,
        keys: NDArray[np.int64],
        counts: NDArray[np.int32],
        rows: NDArray[np.int32],
        times: NDArray[np.int64],
        hashes: NDArray[np.int64],
        reason: str,
        late: bool = False,
    ) -> None:
        at = len(block.zones) % GROUP
        if at == 0:
            block.groups.append(self.pool.take_group())
        first, last = extent(times)
        measured = self.measures.built(logged(self._log, rows, hashes))
        zone = FineZone(number, block.groups[-1] * GROUP + at, Tuples(rows), first, last, reason, measured, late)
        whole = block.whole
        whole.measured.absorb_states(measured)
        self.pool.fill(zone, keys, counts, whole.bits)
        block.zones.append(zone)
        self._zones += 1
        whole.kind.merge(whole.counts, 0, self.pool.counts, zone.slot)
        whole.cells += self.pool.cells[zone.slot]
        whole.date(times)
        whole.take("late" if late else reason, 1, zone.count)
        self.cuts[reason] = self.cuts.get(reason, 0) + 1

    def _set_aside(
        self, block: Block, hashes: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int64]
    ) -> None:
        """Late tuples of a closed block; a full set of them becomes a zone."""
        start = 0
        while start < len(rows):
            if not block.aside:
                block.late = self._issue()
            take = min(self.sizes.maxlength - block.aside, len(rows) - start)
            part = slice(start, start + take)
            block.set_aside(hashes[part], rows[part], times[part])
            start += take
            if block.aside == self.sizes.maxlength:
                waiting, waiting_rows = block.waiting()
                times_of = block.aside_times[: block.aside]
                keys, counts = distinct(waiting)
                late = (waiting_rows.copy(), times_of, waiting)
                self._seal(block, block.late, keys, counts, *late, "maxlength", late=True)
                block.aside = 0

    def _close_block(self) -> None:
        if self.open_block is not None and self._state[kernels.COUNT]:
            self._seal_open(self.open_block, "boundary")

    def collapse(self, horizon: int) -> list[CoarseZone]:
        """Remove the blocks before `horizon` from `G_1`, each as one zone."""
        out = []
        while self.blocks and self.blocks.peekitem(0)[1].whole.start < horizon:
            _, block = self.blocks.popitem(0)
            if block is self.open_block:
                self._close_block()
                self.open_block = None
            whole = block.whole
            hashes, rows = block.waiting()
            if block.aside:
                whole.insert(hashes, rows, block.aside_times[: block.aside], self.sizes, self._log)
                whole.take("late", 1, block.aside)
            whole.tuples.extend(*(zone.tuples for zone in block.zones))
            for zone in block.zones:
                whole.measured.absorb_drafts(zone.measured)
            for group in block.groups:
                self.pool.give_group(group)
            self._zones -= len(block.zones)
            out.append(whole)
        return out

    # --- to disk and back --------------------------------------------------------------------------------------

    def image(self) -> dict[str, Any]:
        """The state as a tree of arrays, without what can be recomputed."""
        pool, count, keys = self.pool, int(self._state[kernels.COUNT]), self._postings.zone_keys
        recent = int(self._state[kernels.SUB]) if self.watched else 0
        return {
            "blocks": [self._block_image(home, block) for home, block in self.blocks.items()],
            "free": np.array(pool._free, np.int64),
            "cuts": dict(self.cuts),
            "issued": self._issued,
            "number": self.number,
            "open": None if self.open_block is None else self.open_block.whole.number,
            "recent": self._recent[:recent].copy(),
            "rows": self._rows[:count].copy(),
            "times": self._times[:count].copy(),
            "signed": self._signed.copy(),
            "state": self._state.copy(),
            "keys": self._keys[:keys].copy(),
            "counts": self._counts[:keys].copy(),
            "watched": float(self._limits[kernels.L_WATCHED]),
            "ahead": {"number": self.ahead.number, **self.ahead.ordered._asdict()},
        }

    def _block_image(self, home: int, block: Block) -> dict[str, Any]:
        pool, slots = self.pool, [zone.slot for zone in block.zones]
        return {
            "home": home,
            "whole": block.whole.image(self._log),
            "numbers": np.array([[z.number, z.first, z.last, z.late] for z in block.zones], np.int64),
            "reasons": [zone.reason for zone in block.zones],
            "tuples": [in_order(zone.tuples, self._log) for zone in block.zones],
            "measures": [zone.measured.image() for zone in block.zones],
            **pool.kind.saved(pool.counts, slots),
            "cells": pool.cells[slots],
            "groups": list(block.groups),
            "sliced": pool.sliced[block.groups],
            "aside_hashes": block.waiting()[0].copy(),
            "aside_rows": block.waiting()[1].copy(),
            "aside_times": block.aside_times[: block.aside].copy(),
            "late": block.late,
        }

    def restore(self, image: dict[str, Any]) -> None:
        """Restore from `image`, after the postings."""
        free = image["free"].tolist()
        groups = len(free) + sum(len(saved["groups"]) for saved in image["blocks"])
        if groups > self.pool.groups:
            self.pool.grow(groups)
        self.pool._free = free
        for saved in image["blocks"]:
            self._restore_block(saved)
        self.cuts, self._issued, self.number = dict(image["cuts"]), image["issued"], image["number"]
        self.open_block = None if image["open"] is None else self.blocks[image["open"]]
        kept: dict[str, NDArray[Any]] = {
            "recent": self._recent,
            "rows": self._rows,
            "times": self._times,
            "keys": self._keys,
            "counts": self._counts,
        }
        for name, own in kept.items():
            own[: len(image[name])] = image[name]
        for now, then in ((self._signed, image["signed"]), (self._state, image["state"])):
            now[: len(then)] = then  # old images have fewer
        self.measure_all()
        self._limits[kernels.L_WATCHED] = image["watched"]
        saved = image.get("ahead")  # absent in old images
        if saved is not None and len(saved["rows"]):
            self.ahead.number = saved["number"]
            self.ahead.add(Loose(*(saved[name].copy() for name in Loose._fields)))

    def _restore_block(self, saved: dict[str, Any]) -> None:
        pool = self.pool
        block = self.blocks[saved["home"]] = Block(
            CoarseZone.restored(saved["whole"], pool.kind, self.measures), groups=saved["groups"]
        )
        pool.sliced[block.groups] = saved["sliced"]
        measures = saved.get("measures") or [{}] * len(saved["reasons"])
        for i, (number, first, last, late) in enumerate(saved["numbers"].tolist()):
            slot = block.groups[i // GROUP] * GROUP + i % GROUP
            tuples = Tuples.of(saved["tuples"][i].copy())
            measured = self.measures.restored(measures[i])
            zone = FineZone(number, slot, tuples, first, last, saved["reasons"][i], measured, bool(late))
            block.zones.append(zone)
            pool.cells[slot] = saved["cells"][i]
            pool.seal(zone)
        pool.kind.load(pool.counts, [zone.slot for zone in block.zones], saved)
        self._zones += len(block.zones)
        if len(saved["aside_rows"]):
            block.set_aside(saved["aside_hashes"], saved["aside_rows"], saved["aside_times"])
        block.late = saved["late"]

    @property
    def watched(self) -> bool:
        """Whether the open zone may be cut for error and behaviour."""
        return bool(self._limits[kernels.L_WATCHED])

    @property
    def _hashing(self) -> bool:
        """Whether sealing the open zone needs the hashes of its keys."""
        return self.measures.any or isinstance(self._postings, Unposted)

    def measure_all(self) -> None:
        """Measures begin in the middle of the open zone: the hashes of its keys are read again when it is sealed."""
        self._unhashed = len(self.open_rows)

    @property
    def open_rows(self) -> NDArray[np.int32]:
        return self._rows[: int(self._state[kernels.COUNT])]

    def open_counts(self, hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        if isinstance(self._postings, Postings):
            return self._postings.open_sizes(hashes, self.number, self._counts)
        return counts_among(hashes, self._hasher(self.open_rows))

    @property
    def count(self) -> int:
        sealed = sum(b.whole.count + b.aside for b in self.blocks.values())
        return sealed + len(self.open_rows) + len(self.ahead)

    @property
    def nbytes(self) -> int:
        own = (self._recent, self._rows, self._times, self._hashes, self._signed, self._keys, self._counts)
        blocks = self.blocks.values()
        whole = sum(b.whole.nbytes + b.aside_hashes.nbytes + b.aside_rows.nbytes + b.aside_times.nbytes for b in blocks)
        zones = sum(z.tuples.nbytes + z.measured.nbytes + 200 for b in blocks for z in b.zones)
        pyramids = sum(int(node.nbytes) for b in blocks for node in b.pyramid.values())
        return self.pool.nbytes + self.ahead.nbytes + sum(a.nbytes for a in own) + whole + zones + pyramids


def counts_among(hashes: NDArray[np.int64], held: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each key is among those held."""
    if not len(held):
        return np.zeros(len(hashes), np.int64)
    keys, counts = distinct(held)
    at = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
    return np.where(keys[at] == hashes, counts[at], 0).astype(np.int64)
