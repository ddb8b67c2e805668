"""The read side of a summary: regions, estimates, probes, visits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.errors import UnknownName
from promising.index.asked_keys import check_keys
from promising.index.edges import inside
from promising.index.fine import counts_among
from promising.index.kernels.gather import expand, number
from promising.index.kernels.probe import may_hold, survivors
from promising.index.log import TupleLog
from promising.index.options import Sizes
from promising.index.postings import Postings
from promising.index.pyramid import descend
from promising.index.regions import Matches, Region, Regions, Window, check_window
from promising.index.summary import SummaryState
from promising.index.unindexed import BareState
from promising.index.unposted import rows_of
from promising.index.zone import CoarseZone, FineZone, buckets_of
from promising.summaries.adt import Estimates
from promising.summaries.counts import Bounds, Floats
from promising.summaries.hashing import hash_checked
from promising.summaries.keys import Keys

Hashes = NDArray[np.int64]

REPEATED = 16  # rows per key above which duplicate keys in a query are worth detecting


class Reader:
    """Answers queries on one summary; the caller holds the stream's lock."""

    def __init__(self, state: SummaryState) -> None:
        self.state = state
        self.sizes: Sizes = state.identity.sizes

    def hashes(self, keys: Any) -> Hashes:
        return hash_checked(self.keys(keys), self.state.seed).view(np.int64)

    def keys(self, keys: Any) -> Keys:
        return check_keys(keys, self.state.identity.key, self.state.log.schema)

    # --- exact ---------------------------------------------------------------------------------------------------

    def probe(self, keys: Any, window: Window) -> Matches:
        """Every tuple with one of the keys, from the postings; without them, from the cells that may hold it."""
        asked = self.keys(keys)
        return Matches(*self._found(asked, window))

    def _found(self, asked: Keys, window: Window) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        hashes = hash_checked(asked, self.state.seed).view(np.int64)
        if isinstance(self.state.postings, Postings):
            return self._walk(self.state.postings, asked, *self.state.postings.counts(hashes), window)
        edges = check_window(window)
        return matching(self.state, asked, *rows_of(self.state, hashes, *edges), *edges)

    def _walk(
        self,
        postings: Postings,
        asked: Keys,
        newest: NDArray[np.int32],
        counts: NDArray[np.int64],
        total: int,
        window: Window,
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Rows of keys that the postings found: (index of the key, row), filtered by the window."""
        edges = check_window(window)
        return matching(self.state, asked, *postings.walk(newest, counts, total), *edges)

    def fetch(self, keys: Any, window: Window, columns: list[str] | None) -> tuple[NDArray[np.int32], pa.Table]:
        """`probe` with the columns. A key that is asked for repeatedly is read once and copied."""
        log = self.state.log
        names = log.names(columns)
        asked, postings = self.keys(keys), self.state.postings
        if not isinstance(postings, Postings):
            probe, rows = self._found(asked, window)
            return probe, pa.table({name: log.array(name, rows) for name in names})
        newest, counts, total = postings.counts(hash_checked(asked, self.state.seed).view(np.int64))
        ints = isinstance(asked, np.ndarray)  # two strings may share a hash, and so a newest row
        there = np.flatnonzero(counts) if ints and total >= REPEATED * len(counts) else np.empty(0, np.int64)
        _, first, again = np.unique(newest[there], return_index=True, return_inverse=True)
        if len(first) == len(there):  # no duplicates, or too few rows to pay off
            probe, rows = self._walk(postings, asked, newest, counts, total, window)
            return probe, pa.table({name: log.array(name, rows) for name in names})
        once = there[first]
        which = np.full(len(counts), -1, np.int64)
        which[there] = again
        counts = counts[once]
        probe, rows = self._walk(postings, asked[once], newest[once], counts, int(counts.sum()), window)
        counts = np.bincount(probe, minlength=len(once)).astype(np.int64)
        copies = _Copies(counts, which)
        return copies.probe(), pa.table({name: copies.column(log, name, rows) for name in names})

    def visit(self, region: Region | tuple[int, int, int], window: Window) -> NDArray[np.int32]:
        """Rows of one cell, given as a Region or (granularity, zone, bucket)."""
        place = (region.granularity, region.zone, region.bucket) if isinstance(region, Region) else region
        rows = self._cell(*place)
        if window is None:
            return rows.copy()
        start, end = check_window(window)
        return rows[self.state.log.between(rows, start, end)]

    def _hasher(self, rows: NDArray[np.int32]) -> Hashes:
        return self.state.log.hashes(self.state.identity.key, rows, self.state.seed)

    def _cell(self, granularity: int, number: int, bucket: int) -> NDArray[np.int32]:
        if not 0 <= bucket < self.sizes.buckets:
            raise UnknownName(f"no bucket {bucket}; there are {self.sizes.buckets}")
        if granularity == 1:
            return self._fine_cell(number, bucket)
        zones = self.state.coarse.levels.get(granularity)
        zone: CoarseZone | None = None if zones is None else zones.get(number)
        if zone is None:
            raise UnknownName(f"no zone {number} in G_{granularity}: never there, or aged since")
        return zone.tuples.cell(bucket, self.sizes, self._hasher)

    def _fine_cell(self, number: int, bucket: int) -> NDArray[np.int32]:
        fine = self.state.fine
        if number == fine.number:
            return self._of_bucket(self._hasher(fine.open_rows), fine.open_rows, bucket)
        for ahead in fine.ahead.zones():
            if number == fine.ahead.number:
                return self._of_bucket(ahead.hashes, ahead.rows, bucket)
        for block in fine.blocks.values():
            if block.aside and number == block.late:
                return self._of_bucket(*block.waiting(), bucket)
            for zone in block.zones:
                if zone.number == number:
                    return zone.tuples.cell(bucket, self.sizes, self._hasher)
        raise UnknownName(f"no zone {number} in G_1: never there, or aged since")

    def _of_bucket(self, hashes: Hashes, rows: NDArray[np.int32], bucket: int) -> NDArray[np.int32]:
        cell: NDArray[np.int32] = rows[buckets_of(hashes, self.sizes) == bucket]
        return cell

    # --- estimated -----------------------------------------------------------------------------------------------

    def regions(self, keys: Any, window: Window, search: str) -> Regions:
        """The cells that may hold each key. No cell that holds it is missing."""
        return self._regions(self.hashes(keys), window, search)

    def _regions(self, hashes: Hashes, window: Window, search: str) -> Regions:
        start, end = check_window(window)
        start = max(start, self.state.oldest)
        found = _Found(self, hashes, start, end)
        found.fine(search)
        found.waiting()
        for granularity, zones in self.state.coarse.levels.items():
            for zone in zones.values():
                found.coarse(granularity, zone)
        return found.regions()

    def estimate(self, keys: Any, window: Window) -> Estimates:
        """The number of tuples of each key in the window, from the summaries of all its cells."""
        return self.estimate_hashed(self.hashes(keys), window)

    def estimate_hashed(self, hashes: Hashes, window: Window) -> Estimates:
        regions = self._regions(hashes, window, "flat")
        n = len(hashes)
        sums = [
            np.bincount(regions.key, w, n).astype(np.float64) for w in (regions.estimate, regions.lower, regions.upper)
        ]
        value, lower, upper = sums
        if isinstance(self.state.postings, Postings):
            _, known, _ = self.state.postings.counts(hashes)  # the postings never undercount
            upper = np.minimum(upper, known.astype(np.float64))
        return Estimates(np.minimum(value, upper), np.minimum(lower, upper), upper)


def matching(
    state: SummaryState | BareState,
    asked: Keys,
    probe: NDArray[np.int32],
    rows: NDArray[np.int32],
    start: int,
    end: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Of candidates (index of the key, row), those that lie in the window and really have their key."""
    if not len(rows):
        return probe, rows
    start = max(start, state.oldest)
    earliest, latest = state.log.time_range
    if start > earliest or end <= latest:
        inside = state.log.between(rows, start, end)
        probe, rows = probe[inside], rows[inside]
    same = state.log.same(state.identity.key, rows, asked, probe)
    return (probe, rows) if same is None else (probe[same], rows[same])


class _Copies:
    """Values read once per distinct key, copied once per requested key."""

    def __init__(self, counts: NDArray[np.int64], which: NDArray[np.int64]) -> None:
        self.counts, self.which = counts, which
        self.starts = np.cumsum(counts) - counts
        self.total = int(counts[which[which >= 0]].sum())

    def probe(self) -> NDArray[np.int32]:
        out = np.empty(self.total, np.int32)
        number(self.counts, self.which, out)
        return out

    def column(self, log: TupleLog, name: str, rows: NDArray[np.int32]) -> pa.Array:
        if log.plain(name):
            return log.to_arrow(name, self._expand(log.values(name, rows)), None)
        places = self._expand(np.arange(len(rows), dtype=np.int32))
        return log.array(name, rows).take(pa.array(places))

    def _expand(self, values: NDArray[Any]) -> NDArray[Any]:
        out = np.empty(self.total, values.dtype)
        expand(values, self.starts, self.counts, self.which, out)
        return out


class _Found:
    """Collects regions part by part."""

    def __init__(self, reader: Reader, hashes: Hashes, start: int, end: int) -> None:
        self.reader, self.hashes, self.start, self.end = reader, hashes, start, end
        self.buckets = buckets_of(hashes, reader.sizes)
        self.parts: list[tuple[NDArray[Any], ...]] = []
        self.considered = self.by_window = self.by_filter = 0

    def _add(
        self,
        key: NDArray[np.int64],
        granularity: int,
        zone: NDArray[np.int64],
        counts: Bounds,
        tuples: NDArray[np.int64],
        first: NDArray[np.int64],
        last: NDArray[np.int64],
    ) -> None:
        value, lower, upper = counts
        made = np.full(len(key), granularity, np.int64)
        self.parts.append((key, made, zone, self.buckets[key], value, lower, upper, tuples, first, last + 1))

    def _part(self, zone: FineZone | CoarseZone, value: Floats, lower: Floats, upper: Floats) -> Bounds:
        """Counts of some of a zone's tuples, for those of them in the window."""
        if zone.first >= self.start and zone.last < self.end:
            return value, lower, upper
        part = inside(self.reader.state.log, zone, self.start, self.end)
        return part.of(zone.count, value, lower, upper)

    def fine(self, search: str) -> None:
        fine, sizes = self.reader.state.fine, self.reader.sizes
        pool = fine.pool
        zones = sum(len(b.zones) for b in fine.blocks.values())
        wanted = ((pool.sealed > 0) & (pool.first < self.end) & (pool.last >= self.start)).astype(np.uint8)
        possible = int(wanted.sum())
        if search == "pyramid":
            key, slot = descend(fine, self.hashes, wanted)
        elif search == "flat":
            groups = np.array([g for b in fine.blocks.values() for g in b.groups], np.int64)
            args = (pool.sliced, groups, self.hashes, sizes.shift, sizes.probes, Sizes.lg(sizes.slots), wanted)
            none = np.empty(0, np.int64)
            found = survivors(*args, none, none)
            key, slot = np.empty(found, np.int64), np.empty(found, np.int64)
            survivors(*args, key, slot)
        else:
            raise UnknownName(f"no search {search!r}; there are flat and pyramid")
        n = len(self.hashes)
        self.considered += n * zones
        self.by_window += n * (zones - possible)
        self.by_filter += n * possible - len(key)
        buckets = self.buckets[key]
        tuples = pool.cells[slot, buckets]
        counts = pool.kind.estimates(pool.counts, self.hashes, key, slot, buckets, tuples)
        first, last = pool.first[slot], pool.last[slot]
        value, lower, upper = (part.copy() for part in counts)  # a kind may give one array as several
        for across in np.unique(slot[(first < self.start) | (last >= self.end)]):
            zone, where = pool.zones[across], slot == across
            assert zone is not None
            value[where], lower[where], upper[where] = self._part(zone, value[where], lower[where], upper[where])
        self._add(key, 1, pool.numbers[slot], (value, lower, upper), tuples, first, last)

    def waiting(self) -> None:
        """Tuples of `G_1` in no sealed zone yet, counted exactly."""
        fine = self.reader.state.fine
        if len(fine.open_rows):
            self._loose(fine.number, self.reader._hasher(fine.open_rows), fine.open_rows, fine.open_counts)
        for ahead in fine.ahead.zones():
            self._loose(fine.ahead.number, ahead.hashes, ahead.rows)
        for block in fine.blocks.values():
            if block.aside:
                self._loose(block.late, *block.waiting())

    def _loose(
        self,
        zone: int,
        hashes: Hashes,
        rows: NDArray[np.int32],
        counts: Callable[[Hashes], NDArray[np.int64]] | None = None,
    ) -> None:
        """counts: what counts keys among all of these tuples, if anything is faster than their hashes."""
        n, log = len(self.hashes), self.reader.state.log
        self.considered += n
        first, last = log.span(rows)
        if first >= self.end or last < self.start:
            self.by_window += n
            return
        whole = first >= self.start and last < self.end
        if whole and counts is not None:
            exact = counts(self.hashes)
        else:
            exact = counts_among(self.hashes, hashes if whole else hashes[log.between(rows, self.start, self.end)])
        key = np.flatnonzero(exact)
        self.by_filter += n - len(key)
        held = np.bincount(buckets_of(hashes, self.reader.sizes), minlength=self.reader.sizes.buckets)
        count = exact[key].astype(np.float64)
        self._add_one(key, 1, zone, (count, count, count), held[self.buckets[key]], first, last)

    def coarse(self, granularity: int, zone: CoarseZone) -> None:
        n, sizes = len(self.hashes), self.reader.sizes
        self.considered += n
        if zone.first >= self.end or zone.last < self.start:
            self.by_window += n
            return
        hit = np.empty(n, np.bool_)
        may_hold(zone.bits, self.hashes, sizes.shift, sizes.probes, Sizes.lg(sizes.coarse_slots), hit)
        key = np.flatnonzero(hit)
        self.by_filter += n - len(key)
        buckets = self.buckets[key]
        tuples = zone.cells[buckets]
        counts = zone.kind.estimates(zone.counts, self.hashes, key, np.zeros(len(key), np.int64), buckets, tuples)
        counts = self._part(zone, *counts)
        self._add_one(key, granularity, zone.number, counts, tuples, zone.first, zone.last)

    def _add_one(
        self,
        key: NDArray[np.int64],
        granularity: int,
        zone: int,
        counts: Bounds,
        tuples: NDArray[np.int64],
        first: int,
        last: int,
    ) -> None:
        def full(value: int) -> NDArray[np.int64]:
            return np.full(len(key), value, np.int64)

        self._add(key, granularity, full(zone), counts, tuples.astype(np.int64), full(first), full(last))

    def regions(self) -> Regions:
        columns: list[Any] = [np.concatenate(c) for c in zip(*self.parts, strict=True)]
        order = np.lexsort((columns[2], columns[1], columns[0]))
        counts: list[Any] = [self.considered, self.by_window, self.by_filter]
        return Regions(*(c[order] for c in columns), *counts)
