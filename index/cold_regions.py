"""Regions of a snapshot's tuples, for an order by what they bring a byte: a row group of a cold file each.

What is known of a region without reading it: its tuples, its bytes not yet read, and counts of its keys by part of the
hash range. Chunks in memory are no regions: they are `warm`, and free.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.errors import DataDamaged
from promising.index.instants import EVER
from promising.index.snapshot import Rows, Snapshot
from promising.index.storage.cold import Cold
from promising.index.storage.key_counts import KeyCounts

Longs = NDArray[np.int64]
Ranges = Mapping[str, tuple[int | float, int | float]]


@dataclass
class _File:
    """The chunks of a run, in its order: their places in it, their first rows, their tuples in the snapshot."""

    run: int
    places: Longs
    starts: Longs
    used: Longs


@dataclass
class Regions:
    """One entry per region. `counts.starts` has one more; a region without entries in it knows nothing of its keys.

    pruned: regions and tuples left out, by reason.
    """

    file: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    group: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    tuples: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    bytes: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    counts: KeyCounts = field(default_factory=lambda: joined([]))
    pruned: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.group)

    @property
    def known(self) -> NDArray[np.bool_]:
        return np.diff(self.counts.starts) > 0

    def without(self, out: NDArray[np.bool_], why: str) -> "Regions":
        """Those that are left when these are pruned."""
        if not out.any():
            return self
        regions, tuples = self.pruned.get(why, (0, 0))
        pruned = {**self.pruned, why: (regions + int(out.sum()), tuples + int(self.tuples[out].sum()))}
        kept = ~out
        counts = chosen(self.counts, kept)
        return Regions(self.file[kept], self.group[kept], self.tuples[kept], self.bytes[kept], counts, pruned)


class ColdRegions:
    """The cold tuples of a snapshot, as regions. Reads footers only, one file at a time."""

    def __init__(self, snapshot: Snapshot, key: str, columns: list[str], ranges: Ranges) -> None:
        """key: whose counts are wanted. columns: those to read. ranges: relevant values, as for `ColdScan`."""
        self.snapshot = snapshot
        self._key, self._columns = key, columns
        time = snapshot.stream.schema.time
        least, most = ranges.get(time, EVER)
        self._ranges = {**ranges, time: (max(least, snapshot.start), min(most, snapshot.end - 1))}
        with snapshot.holding(), snapshot.stream.reading() as log:
            starts, used, earliest, latest = log.spans()
            bases, runs, places = log.homes()
            self._cold = log.reader if isinstance(log.reader, Cold) else None
        near = (bases < snapshot.until) & (latest >= snapshot.start) & (earliest < snapshot.end)
        used = np.minimum(used, snapshot.until - bases)
        cold = near & (runs >= 0) & (self._cold is not None)
        self._files = []
        for run in np.unique(runs[cold]).tolist():
            of = np.flatnonzero(cold & (runs == run))
            of = of[np.argsort(places[of])]
            self._files.append(_File(run, places[of], starts[of], used[of]))
        warm = near & ~cold
        self._warm = list(zip(starts[warm].tolist(), (starts + used)[warm].tolist(), strict=True))

    def warm(self, most: int) -> Iterator[Rows]:
        """Rows in memory, so many at a time."""
        for first, last in self._warm:
            for at in range(first, last, most):
                yield np.arange(at, min(at + most, last), dtype=np.int32)

    def regions(self) -> Iterator[Regions]:
        """Those of each file."""
        for number, file in enumerate(self._files):
            yield self._regions(number, file)

    def _regions(self, number: int, file: _File) -> Regions:
        assert self._cold is not None
        try:
            _, footer = self._cold.file(file.run)
            unread = self._cold.unread(file.run, self._columns)
        except DataDamaged:
            with self.snapshot.holding():  # raises if it has aged out meanwhile
                raise
        groups = len(footer.rows)
        counts = footer.counts() if footer.key == self._key else None
        found = Regions(
            np.full(groups, number),
            np.arange(groups),
            footer.rows,
            unread,
            unknown(groups) if counts is None else counts,
        )
        for name, (low, high) in self._ranges.items():
            extents = [footer.extent(group, footer.index(name)) for group in found.group.tolist()]
            out = [extent is not None and (extent[1] < low or extent[0] > high) for extent in extents]
            found = found.without(
                np.array(out, np.bool_), "window" if name == self.snapshot.stream.schema.time else f"bounds of {name}"
            )
        return found

    def rows(self, file: int, group: int) -> Rows:
        """The rows of a region, those that are not in the snapshot included."""
        assert self._cold is not None
        found = self._files[file]
        with self.snapshot.holding():
            offsets = np.flatnonzero(self._cold.group_of(found.run) == group)
        at = np.searchsorted(found.places, offsets, side="right") - 1
        local = offsets - found.places[at]
        here = (at >= 0) & (local < found.used[at])
        rows: NDArray[Any] = found.starts[at[here]] + local[here]
        return rows.astype(np.int32)


def unknown(groups: int) -> KeyCounts:
    return KeyCounts(
        np.zeros(groups + 1, np.int64), np.zeros(groups, np.uint8), np.empty(0, np.uint16), np.empty(0, np.float32)
    )


def joined(parts: list[KeyCounts]) -> KeyCounts:
    parts = [unknown(0), *parts]
    sizes = np.concatenate([np.diff(part.starts) for part in parts])
    return KeyCounts(
        np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        np.concatenate([part.lg for part in parts]),
        np.concatenate([part.parts for part in parts]),
        np.concatenate([part.tuples for part in parts]),
    )


def chosen(counts: KeyCounts, kept: NDArray[np.bool_]) -> KeyCounts:
    sizes = np.diff(counts.starts)
    entries = np.repeat(kept, sizes)
    return KeyCounts(
        np.concatenate(([0], np.cumsum(sizes[kept]))).astype(np.int64),
        counts.lg[kept],
        counts.parts[entries],
        counts.tuples[entries],
    )


def together(parts: list[Regions]) -> Regions:
    """All of them."""
    parts = [Regions(), *parts]
    pruned: dict[str, tuple[int, int]] = {}
    for part in parts:
        for why, (regions, tuples) in part.pruned.items():
            before = pruned.get(why, (0, 0))
            pruned[why] = before[0] + regions, before[1] + tuples
    return Regions(
        np.concatenate([part.file for part in parts]),
        np.concatenate([part.group for part in parts]),
        np.concatenate([part.tuples for part in parts]),
        np.concatenate([part.bytes for part in parts]),
        joined([part.counts for part in parts]),
        pruned,
    )
