"""USING EXACT: every key of a cell with its count."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from promising.summaries.adt import Estimate
from promising.summaries.cells import Longs
from promising.summaries.counts import Bounds, CountsKind, Floats, Ints, Room, WindowCounts, Zones

LOOKUP = 512  # bytes of a zone without keys, at most


class Run(NamedTuple):
    """Distinct keys in ascending order, and how many tuples each has. Runs are shared, and never change."""

    keys: Longs
    sizes: Ints

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.sizes.nbytes


NONE = Run(np.empty(0, np.int64), np.empty(0, np.int32))
"""Of no tuples."""


def merged(runs: list[Run]) -> Run:
    """One run of all tuples."""
    if len(runs) < 2:
        return runs[0] if runs else NONE
    keys, sizes = (np.concatenate(parts) for parts in zip(*runs, strict=True))
    order = np.argsort(keys, kind="stable")  # finds the runs, and merges them
    keys, sizes = keys[order], sizes[order]
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return Run(keys[first], np.add.reduceat(sizes, first, dtype=np.int32)) if len(keys) else NONE


def looked_up(run: Run, hashes: Longs) -> Ints:
    """The tuples of each key."""
    if not len(run.keys):
        return np.zeros(len(hashes), np.int32)
    at = np.minimum(np.searchsorted(run.keys, hashes), len(run.keys) - 1)
    found: Ints = np.where(run.keys[at] == hashes, run.sizes[at], np.int32(0))
    return found


class RunZones:
    """The runs of each zone, each at least twice as long as the next: a key is merged O(log n) times."""

    def __init__(self, zones: int) -> None:
        self.runs: list[list[Run]] = [[] for _ in range(zones)]
        self.nbytes = 0

    def put(self, zone: int, runs: list[Run]) -> None:
        """Replace the runs of a zone."""
        self.nbytes += sum(run.nbytes for run in runs) - sum(run.nbytes for run in self.runs[zone])
        self.runs[zone] = runs

    def push(self, zone: int, run: Run) -> None:
        """Add tuples to a zone."""
        if len(run.keys):
            runs = [*self.runs[zone], run]
            while len(runs) > 1 and len(runs[-2].keys) < 2 * len(runs[-1].keys):
                runs[-2:] = [merged(runs[-2:])]
            self.put(zone, runs)


class ExactCounts(CountsKind[RunZones]):
    """Keys are told apart by their hashes of 64 bits: integers always, strings but for 2**-64 a pair."""

    name = "exact"
    tuple_bytes = 24  # of its key in a sealed zone, and in the zone that will take it in

    def allocate(self, zones: int, room: Room = "zone") -> RunZones:
        return RunZones(zones)

    def grow(self, state: RunZones, zones: int) -> None:
        state.runs += [[] for _ in range(zones - len(state.runs))]

    def clear(self, state: RunZones, zone: int) -> None:
        state.put(zone, [])

    def release(self, state: RunZones, zone: int) -> None:
        state.put(zone, [])

    def insert(self, state: RunZones, zone: int, keys: Longs, sizes: Ints, cells: Longs) -> None:
        order = np.argsort(keys)
        state.push(zone, Run(keys[order], sizes[order]))
        cells += np.bincount(self.bucket_of(keys), sizes, self.buckets).astype(np.int64)

    def merge(self, state: RunZones, zone: int, other: RunZones, at: int) -> None:
        for run in list(other.runs[at]):
            state.push(zone, run)

    def take(self, state: RunZones, zone: int, other: RunZones, at: int) -> None:
        less = merged(other.runs[at])
        keys, sizes = merged([merged(state.runs[zone]), Run(less.keys, -less.sizes)])
        state.put(zone, [Run(keys[sizes != 0], sizes[sizes != 0])] if sizes.any() else [])

    def estimates(
        self, state: RunZones, hashes: Longs, key: Longs, zone: Longs, bucket: Longs, tuples: Longs
    ) -> Bounds:
        value = np.zeros(len(key), np.float64)
        order = np.argsort(zone, kind="stable")
        edges = np.flatnonzero(np.diff(zone[order])) + 1
        for at in np.split(order, edges) if len(order) else ():
            for run in state.runs[int(zone[at[0]])]:
                value[at] += looked_up(run, hashes[key[at]])
        return value, value, value

    def confidence(self, state: RunZones, cell: int) -> float:
        return 1.0

    def join(self, one: WindowCounts, other: WindowCounts) -> Estimate | None:
        """Without error, but for the tuples at the edges of the windows."""
        _, ((a, across_a), (b, across_b)) = _aligned(one, other)
        value = _inner(a + one.share * across_a, b + other.share * across_b)
        return Estimate(value, _inner(a, b), _inner(a + across_a, b + across_b))

    def pairs(self, one: WindowCounts, other: WindowCounts) -> Floats | None:
        keys, ((a, across_a), (b, across_b)) = _aligned(one, other)
        pairs = (a + one.share * across_a) * (b + other.share * across_b)
        return np.bincount(self.bucket_of(keys), pairs, self.buckets).astype(np.float64)

    def faults(self, state: RunZones, zone: int, rebuilt: RunZones, at: int) -> Iterator[str]:
        mine, right = merged(state.runs[zone]), merged(rebuilt.runs[at])
        keys = np.union1d(mine.keys, right.keys)
        wrong = int((looked_up(mine, keys) != looked_up(right, keys)).sum())
        if wrong:
            yield f"the counts of {wrong:,} of its {len(right.keys):,} keys are not those of its tuples"

    def count(self, state: RunZones) -> int:
        return len(state.runs)

    def saved(self, state: RunZones, zones: Zones) -> dict[str, Any]:
        runs = [merged(state.runs[zone]) for zone in ([zones] if isinstance(zones, int) else zones)]
        ends = np.cumsum([0, *(len(run.keys) for run in runs)]).astype(np.int64)
        keys, sizes = (np.concatenate(parts) for parts in zip(NONE, *runs, strict=True))
        return {"counted": {"ends": ends, "keys": keys, "sizes": sizes}}

    def load(self, state: RunZones, zones: Zones, saved: Mapping[str, Any]) -> None:
        found = saved["counted"]
        keys, sizes, ends = found["keys"].copy(), found["sizes"].copy(), found["ends"].tolist()
        for at, zone in enumerate([zones] if isinstance(zones, int) else zones):
            run = Run(keys[ends[at] : ends[at + 1]], sizes[ends[at] : ends[at + 1]])
            state.put(zone, [run] if len(run.keys) else [])

    def restore(self, image: Any) -> RunZones:
        state = self.allocate(len(image["counted"]["ends"]) - 1)
        self.load(state, range(self.count(state)), image)
        return state

    def nbytes(self, state: RunZones, zones: int | None = None) -> int:
        return state.nbytes + LOOKUP * (self.count(state) if zones is None else zones)

    def zone_bytes(self, room: Room) -> int:
        return LOOKUP


def _aligned(one: WindowCounts, other: WindowCounts) -> tuple[Longs, list[list[Floats]]]:
    """The keys of either, and of each the tuples inside and across."""
    sides = [[merged(part.runs[0]) for part in (window.inside, window.across)] for window in (one, other)]
    keys = np.unique(np.concatenate([run.keys for side in sides for run in side]))
    return keys, [[looked_up(run, keys).astype(np.float64) for run in side] for side in sides]


def _inner(a: Floats, b: Floats) -> float:
    return float(a @ b)
