"""Checks every zone of a summary against its tuples, with the kernels that built it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.errors import DataDamaged
from promising.index.check.open_zone import check_open
from promising.index.fine import Block
from promising.index.instants import BEGINNING, END
from promising.index.kernels.seal import extent, filter_keys
from promising.index.measures import Measured, Measures, logged
from promising.index.options import GROUP, Sizes
from promising.index.pyramid import FANOUT, build
from promising.index.summary import SummaryState
from promising.index.zone import TAKEN, CoarseZone, FineZone, Tuples, buckets_of, distinct, unpacked

Rows = NDArray[np.int32]

SLICE = 1 << 18
ABSENT, KEPT, AGED, PLACED = range(4)  # status of a row: no tuple, in no zone yet, too old, in a zone


def parts(tuples: Tuples, most: int) -> Iterator[Rows]:
    """The rows of a zone in order, at most `SLICE` at a time; none if they are more than `most`."""
    if tuples._stretches is None:
        yield from (tuples.rows[first : first + SLICE] for first in range(0, len(tuples.rows), SLICE))
        return
    lengths = np.diff(tuples._stretches.astype(np.int64), axis=1)[:, 0]
    if (lengths < 0).any() or lengths.sum() > most:
        return
    room, held = SLICE, []
    for first, stop in tuples._stretches.tolist():
        start = first
        while start < stop:
            taken = min(room, stop - start)
            held.append((start, start + taken))
            start, room = start + taken, room - taken
            if not room:
                yield unpacked(np.array(held, np.int32))
                room, held = SLICE, []
    if held:
        yield unpacked(np.array(held, np.int32))


class Rebuilt:
    """The expected summary of tuples: counts, cells, first and last, and a filter of each given size."""

    def __init__(self, state: SummaryState, *filters: int) -> None:
        self.state = state
        self.sizes = sizes = state.identity.sizes
        self.measured = Measures(state.measures.kinds, sizes.buckets).empty()
        self.kind = sizes.counts
        self.counts = self.kind.allocate(1)
        self.cells = np.zeros(sizes.buckets, np.int64)
        self.bits = {slots: np.zeros(sizes.buckets * slots // 8, np.uint8) for slots in filters}
        self.first, self.last = END, BEGINNING
        self.like: CoarseZone | None = None  # with the same spans
        self.spans = np.zeros(0, np.int64)

    def by_time(self, zone: CoarseZone) -> None:
        """Count by spans as the zone does."""
        if zone.spans is not None and zone.span > 0:
            self.like, self.spans = zone, np.zeros(len(zone.spans), np.int64)

    def add(self, rows: Rows, hashes: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        self.measured.add(logged(self.state.log, rows, hashes))
        keys, counts = distinct(hashes)
        s = self.sizes
        self.kind.insert(self.counts, 0, keys, counts, self.cells)
        for slots, bits in self.bits.items():
            filter_keys(keys, s.shift, s.probes, Sizes.lg(slots), bits)
        if len(times):
            self._spread(*extent(times))
        if self.like is not None:
            places = (times - self.like.start) // self.like.span
            np.add.at(self.spans, places[(places >= 0) & (places < len(self.spans))], 1)

    def absorb(self, other: "Rebuilt") -> None:
        self.kind.merge(self.counts, 0, other.counts, 0)
        self.cells += other.cells
        self.measured.absorb(other.measured)
        for slots in self.bits:
            self.bits[slots] |= other.bits[slots]
        self.spans += other.spans
        self._spread(other.first, other.last)

    def _spread(self, first: int, last: int) -> None:
        self.first, self.last = min(self.first, first), max(self.last, last)


class ZoneCheck:
    """Checks all zones of one summary. `rows` are those of the log."""

    def __init__(self, state: SummaryState, rows: Iterable[Rows]) -> None:
        self.state = state
        self.sizes = state.identity.sizes
        self.log = state.log
        self.marks = np.zeros(self.log.capacity, np.uint8)
        self.unread = 0
        for part in rows:
            self.marks[part] = np.where(self._times(part) >= state.oldest, KEPT, AGED)

    def findings(self) -> Iterator[str]:
        """Violations, without the summary's name."""
        yield from self._pool()
        for number, block in self.state.fine.blocks.items():
            yield from self._block(number, block)
        for ahead in self.state.fine.ahead.zones():
            yield from self._ahead(*ahead)
        yield from check_open(self.state)
        open_block, rows = self.state.fine.open_block, self.state.fine.open_rows
        if len(rows) and open_block is not None:
            where = f", G_1, zone {self.state.fine.number} (open)"
            yield from self._members(where, Tuples(rows), Rebuilt(self.state), open_block.whole.start, self._length(1))
        for granularity, zones in self.state.coarse.levels.items():
            for number, zone in zones.items():
                yield from self._coarse(granularity, number, zone)
        missing = int((self.marks == KEPT).sum())
        if missing:
            yield f": {missing:,} tuples that it keeps are in no zone"
        placed = int((self.marks == PLACED).sum())
        if not self.unread and placed != self.state.count:
            yield f": it counts {self.state.count:,} tuples, its zones have {placed:,}"

    def _times(self, rows: Rows) -> NDArray[np.int64]:
        return self.log.when(rows)

    def _hashes(self, rows: Rows) -> NDArray[np.int64]:
        return self.log.hashes(self.state.identity.key, rows, self.state.seed)

    def _length(self, granularity: int) -> int:
        geometry = self.state.identity.geometry
        return geometry.granularity if granularity == 1 else geometry.zone_length(granularity)

    # --- tuples of a zone ----------------------------------------------------------------------------------------

    def _members(self, where: str, tuples: Tuples, rebuilt: Rebuilt, start: int, length: int) -> Iterator[str]:
        """Each row has a tuple of [start, start + length) that is in no other zone; they are added to `rebuilt`."""
        borders, first = tuples.starts, 0
        if borders is not None and not self._borders(borders, len(tuples)):
            yield f"{where}: the borders of its cells are no borders"
            borders = None
        problems: Counter[str] = Counter()
        for part in parts(tuples, len(self.marks)):
            inside = (part >= 0) & (part < len(self.marks))
            known = np.where(inside, self.marks[np.where(inside, part, 0)], ABSENT)
            problems["rows that hold no tuple"] += int((known == ABSENT).sum())
            problems["tuples that have aged out"] += int((known == AGED).sum())
            problems["tuples that another zone has, or this one twice"] += int((known == PLACED).sum())
            there = part[known != ABSENT]
            problems["tuples that another zone has, or this one twice"] += len(there) - len(np.unique(there))
            self.marks[there] = PLACED
            hashes, times = self._hashes(there), self._times(there)
            problems["tuples of another time"] += int(((times < start) | (times >= start + length)).sum())
            if borders is not None:
                places = np.flatnonzero(known != ABSENT) + first
                expected = np.searchsorted(borders, places, side="right") - 1
                problems["tuples in the wrong cell"] += int((buckets_of(hashes, self.sizes) != expected).sum())
            rebuilt.add(there, hashes, times)
            first += len(part)
        if first != len(tuples):
            yield f"{where}: it names {first:,} tuples and counts {len(tuples):,}"
        yield from (f"{where}: it has {count:,} {what}" for what, count in problems.items() if count)

    def _borders(self, borders: NDArray[np.int64], rows: int) -> bool:
        right = len(borders) == self.sizes.buckets + 1 and borders[0] == 0 and borders[-1] == rows
        return right and bool((np.diff(borders) >= 0).all())

    def _differences(
        self,
        where: str,
        rebuilt: Rebuilt,
        counts: Any,
        at: int,
        cells: NDArray[np.int64],
        bits: NDArray[np.uint8],
        edges: tuple[int, int],
        measured: Measured,
    ) -> Iterator[str]:
        for kind, state, right in zip(measured.of.kinds, measured.states, rebuilt.measured.states, strict=True):
            wrong_how = kind.differs(state, right)
            if wrong_how is not None:
                yield f"{where}: {kind.measure} {wrong_how}"
        yield from (f"{where}: {what}" for what in rebuilt.kind.faults(counts, at, rebuilt.counts, 0))
        wrong = int((cells != rebuilt.cells).sum())
        if wrong:
            yield f"{where}: the tuples of {wrong:,} of {len(cells):,} cells are counted wrong"
        expected = rebuilt.bits[8 * len(bits) // self.sizes.buckets]
        less, more = (int(np.bitwise_count(a & ~b).sum()) for a, b in ((expected, bits), (bits, expected)))
        if less or more:
            yield f"{where}: its filter lacks {less:,} bits of its keys and has {more:,} of none"
        if edges != (rebuilt.first, rebuilt.last):
            yield f"{where}: its tuples are from {rebuilt.first} to {rebuilt.last}, not from {edges[0]} to {edges[1]}"

    # --- G_1 -----------------------------------------------------------------------------------------------------

    def _pool(self) -> Iterator[str]:
        fine, pool = self.state.fine, self.state.fine.pool
        groups = [group for block in fine.blocks.values() for group in block.groups]
        if sorted([*groups, *pool._free]) != list(range(pool.groups)):
            yield ", G_1: the groups of zones in use and those free are not all there are, each once"
        zones = [zone for block in fine.blocks.values() for zone in block.zones]
        if fine._zones != len(zones):
            yield f", G_1: it counts {fine._zones:,} sealed zones, its blocks have {len(zones):,}"
        late = [block.late for block in fine.blocks.values() if block.aside]
        late += [fine.ahead.number] * bool(len(fine.ahead))
        numbers = [*(zone.number for zone in zones), *late, fine.number]
        if len(set(numbers)) != len(numbers) or max(numbers) > fine._issued or min(numbers) < 1:
            yield ", G_1: two zones have one number, or one has a number that was never given out"
        if {slot for slot, sealed in enumerate(pool.sealed) if sealed} != {zone.slot for zone in zones}:
            yield ", G_1: the slots that are sealed are not those of its zones"
        used = Counter(zone.reason for zone in zones)
        if any(fine.cuts.get(reason, 0) < count for reason, count in used.items()):
            yield ", G_1: it counts fewer cuts than it has zones"

    def _block(self, number: int, block: Block) -> Iterator[str]:
        fine, whole, length = self.state.fine, block.whole, self._length(1)
        where = f", G_1, block {number}"
        if (whole.number, whole.start) != (number, number * length):
            yield f"{where}: it calls itself block {whole.number} from {whole.start} on"
        if number * length >= fine.limit:
            yield f"{where}: it is ahead of the watermark by more than the lateness"
        if self.state.horizons and number * length < self.state.horizons[0]:
            yield f"{where}: it should have left G_1 at this watermark"
        if len(block.groups) != -(-len(block.zones) // GROUP):
            yield f"{where}: {len(block.zones):,} zones do not take {len(block.groups):,} groups"
            return
        total = Rebuilt(self.state, self.sizes.coarse_slots)
        total.by_time(whole)
        for place, zone in enumerate(block.zones):
            if zone.slot != block.groups[place // GROUP] * GROUP + place % GROUP:
                yield f", G_1, zone {zone.number}: its slot is {zone.slot}, which is not its block's"
                return
            yield from self._fine(zone, total, number * length)
        yield from self._differences(
            where, total, whole.counts, 0, whole.cells, whole.bits, (whole.first, whole.last), whole.measured
        )
        yield from self._spans(where, whole, total)
        yield from self._history(where, whole)
        if len(whole.tuples):
            yield f"{where}: what it will be in G_2 has tuples of its own"
        yield from self._unused(where, block)
        yield from self._pyramid(where, block)
        if block.aside:
            yield from self._aside(block, number * length)
        if (block is fine.open_block) != (block is fine.blocks.peekitem()[1]):
            yield f"{where}: the newest block is not the open one"

    def _fine(self, zone: FineZone, total: Rebuilt, start: int) -> Iterator[str]:
        where = f", G_1, zone {zone.number}"
        pool, slot = self.state.fine.pool, zone.slot
        both = Rebuilt(self.state, self.sizes.slots, self.sizes.coarse_slots)
        if total.like is not None:
            both.by_time(total.like)
        try:
            yield from self._members(where, zone.tuples, both, start, self._length(1))
        except DataDamaged as problem:
            yield self._lost(where, problem)
            return
        total.absorb(both)
        column = (pool.sliced[slot // GROUP] >> np.uint64(slot % GROUP)) & np.uint64(1)
        bits = np.packbits(column.astype(np.uint8), bitorder="little")
        edges = (zone.first, zone.last)
        yield from self._differences(where, both, pool.counts, slot, pool.cells[slot], bits, edges, zone.measured)
        if (int(pool.first[slot]), int(pool.last[slot])) != edges or pool.zones[slot] is not zone:
            yield f"{where}: its slot is taken for another zone's"
        if not 0 < zone.count <= self.sizes.maxlength:
            yield f"{where}: it has {zone.count:,} tuples; {self.sizes.maxlength:,} is the most"

    def _lost(self, where: str, problem: DataDamaged) -> str:
        self.unread += 1
        return f"{where}: its tuples cannot be read: {problem}"

    def _unused(self, where: str, block: Block) -> Iterator[str]:
        """The unused slots of its last group have no bits set."""
        if len(block.zones) % GROUP:
            free = ~np.uint64(0) << np.uint64(len(block.zones) % GROUP)
            if (self.state.fine.pool.sliced[block.groups[-1]] & free).any():
                yield f"{where}: the filter has bits of zones that are not there"

    def _pyramid(self, where: str, block: Block) -> Iterator[str]:
        for (level, first), node in block.pyramid.items():
            if first % FANOUT**level or first + FANOUT**level > len(block.zones):
                yield f"{where}: its pyramid has a node of level {level} at zone {first}, where none can be"
                continue
            expected = build(self.state.fine, block, first, level)
            right = (node.level, node.first, node.zones) == (level, first, FANOUT**level)
            if not right or (node.bits != expected.bits).any():
                yield f"{where}: its pyramid's node of level {level} at zone {first} is not what is below it"

    def _aside(self, block: Block, start: int) -> Iterator[str]:
        hashes, rows = block.waiting()
        where = f", G_1, zone {block.late} (late)"
        if len(rows) != block.aside or block.aside >= self.sizes.maxlength or block is self.state.fine.open_block:
            yield f"{where}: {block.aside:,} tuples are aside, which cannot be"
            return
        times = block.aside_times[: block.aside]
        yield from self._loose(where, hashes, rows, times, start, self._length(1))

    def _ahead(self, hashes: NDArray[np.int64], rows: Rows, times: NDArray[np.int64]) -> Iterator[str]:
        fine = self.state.fine
        yield from self._loose(
            f", G_1, zone {fine.ahead.number} (ahead)", hashes, rows, times, fine.limit, END - fine.limit
        )

    def _loose(
        self, where: str, hashes: NDArray[np.int64], rows: Rows, times: NDArray[np.int64], start: int, length: int
    ) -> Iterator[str]:
        try:
            yield from self._members(where, Tuples(rows), Rebuilt(self.state), start, length)
            there = (rows >= 0) & (rows < len(self.marks))
            wrong = int((hashes[there] != self._hashes(rows[there])).sum())
            misdated = int((times[there] != self.state.log.when(rows[there])).sum())
        except DataDamaged as problem:
            yield self._lost(where, problem)
            return
        if wrong:
            yield f"{where}: {wrong:,} of its hashes are not those of its tuples"
        if misdated:
            yield f"{where}: {misdated:,} of its times are not those of its tuples"

    def _spans(self, where: str, zone: CoarseZone, rebuilt: Rebuilt) -> Iterator[str]:
        if zone.spans is not None and (rebuilt.like is None or (zone.spans != rebuilt.spans).any()):
            yield f"{where}: its tuples by span of time are counted wrong"

    def _history(self, where: str, zone: CoarseZone) -> Iterator[str]:
        """The origins of its tuples account for all of them."""
        if zone.taken.shape != (len(TAKEN), 2) or (zone.taken < 0).any() or zone.taken[:, 1].sum() != zone.count:
            yield f"{where}: it has {zone.count:,} tuples, and took in {int(zone.taken[:, 1].sum()):,}"

    # --- G_2..G_m ------------------------------------------------------------------------------------------------

    def _coarse(self, granularity: int, number: int, zone: CoarseZone) -> Iterator[str]:
        where = f", G_{granularity}, zone {number}"
        length, horizons = self._length(granularity), self.state.horizons
        if (zone.number, zone.start) != (number, number * length):
            yield f"{where}: it calls itself zone {zone.number} from {zone.start} on"
        if number * length < horizons[granularity - 1] or (number + 1) * length > horizons[granularity - 2]:
            yield f"{where}: it is of another granularity at this watermark"
        rebuilt = Rebuilt(self.state, self.sizes.coarse_slots)
        rebuilt.by_time(zone)
        try:
            yield from self._members(where, zone.tuples, rebuilt, number * length, length)
        except DataDamaged as problem:
            yield self._lost(where, problem)
            return
        yield from self._differences(
            where, rebuilt, zone.counts, 0, zone.cells, zone.bits, (zone.first, zone.last), zone.measured
        )
        yield from self._spans(where, zone, rebuilt)
        yield from self._history(where, zone)
