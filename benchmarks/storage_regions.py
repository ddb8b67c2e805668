"""What a join of cold tuples has after a quarter of its bytes, its regions read in the order of promise.

Bytes are those of the compressed chunks of the columns that the join reads, and of the positions in them; footers are
read before and not counted. Beside it: the log's ceiling, every key alone, best first, by tuples; the ideal order of
the same regions, by exact counts of every key; and the same statement key by key, the way of a join without a budget.
What an order brings is counted by brute force, from the keys of the tuples.

Layouts: those of the files are tiers of log2(count); against row groups of their own for keys from one tuple in 1,024,
or in 256, of their zone on. All are compared at the bytes that are a quarter of the tiers'.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import storage_data
from benchmarks.harness import Effort, Figure, Report
from benchmarks.paper.joins import SEED, fill, statement
from benchmarks.paper.logs import Log, complete_journey, generated
from promising.index.cold_regions import ColdRegions, Regions, together
from promising.index.instants import EVER
from promising.index.schema import Column
from promising.index.snapshot import Snapshot
from promising.index.storage import cold_layout
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.query import Session
from promising.query.region_order import Known, Peel

QUARTER = 0.25
OF_CEILING, OF_IDEAL = ">= 0.85", ">= 0.95"
MINUTE = 60_000_000.0
GEOMETRY = "GRANULARITY 4 SECONDS AND COLLAPSE (4, 4)"
USED = ["item_id", "number"]
ROUNDS = 400  # of the ideal order: a step drops that part of the bytes

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
LOGS: dict[str, Callable[[int], Log]] = {
    "Complete Journey": lambda rows: complete_journey(rows, 1, gap_us=2 * MINUTE / rows),
    "generated, with drift": lambda rows: generated(rows, 1, drift=True, gap_us=2 * MINUTE / rows),
    "generated, no drift": lambda rows: generated(rows, 1, drift=False, gap_us=2 * MINUTE / rows),
    "generated, flat, drift": lambda rows: generated(
        rows, 1, drift=True, gap_us=2 * MINUTE / rows, items=4_000, spell=rows // 16, exponent=0.6
    ),
}


def run(report: Report, effort: Effort) -> None:
    rows = effort.rows[0] if effort.rows else (1 << 16 if effort.quick else 1 << 18)
    figures = []
    for name, make in LOGS.items():
        log = make(rows)
        tiers = _measured(log, rows // 2, by_key=True)
        sizes: dict[str, int | float | str] = {"tuples": 2 * rows, "regions": tiers.regions}
        quarter = QUARTER * tiers.bytes
        ours = tiers.ours(quarter)
        figures += [
            Figure(name, ours, _ceiling(log), "every key alone", "of the output", OF_CEILING, sizes),
            Figure(name, ours, tiers.ideal(quarter), "ideal order", "of the output", OF_IDEAL, sizes),
            Figure(f"{name}, key by key", tiers.by_key, ours, "by regions", "of the output", "", sizes),
        ]
        for part in (1024, 256):
            with heavy_apart(part):
                other = _measured(log, rows // 2)
            packed = {**sizes, "regions": other.regions, "bytes a tuple": round(other.bytes / 2 / rows, 2)}
            packed["of tiers"] = round(tiers.bytes / 2 / rows, 2)
            apart = f"{name}, keys from 1/{part} apart"
            figures.append(
                Figure(apart, other.ideal(quarter), tiers.ideal(quarter), "tiers", "of the output", "", packed)
            )
    report.part("regions", "output of a join of cold tuples after a quarter of its bytes", figures)


@dataclass
class _Measured:
    """ours, ideal: the share of the output after so many bytes."""

    regions: int
    bytes: float
    ours: Callable[[float], float]
    ideal: Callable[[float], float]
    by_key: float


def _measured(log: Log, run_tuples: int, *, by_key: bool = False) -> _Measured:
    with storage_data.folder() as folder:
        path = folder / "store"
        _fill(path, log, run_tuples)
        with _opened(path) as session:
            sides = [_side(session, name) for name in "ab"]
            keys = np.unique(np.concatenate([np.concatenate(side.keys) for side in sides]))
            counts = [_counts(side.keys, keys) for side in sides]
            regions = [side.regions for side in sides]
            sizes = [np.maximum(part.bytes, 1).astype(np.float64) for part in regions]
            peel = Peel(regions, [Known.none(), Known.none()])
            for _ in peel.work():
                pass
            order = list(zip(peel.side.tolist(), peel.region.tolist(), strict=True))
            total = float(sum(part.sum() for part in sizes))
        share = 0.0
        if by_key:
            with _opened(path) as session:
                share = _by_key(session, total)
        return _Measured(
            sum(map(len, regions)),
            total,
            _along(order, counts, sizes),
            _along(_ideal(counts, sizes), counts, sizes),
            share,
        )


def _fill(path: Path, log: Log, run_tuples: int) -> None:
    with _opened(path, run_tuples) as session:
        fill(session, log, GEOMETRY)
        for name, columns in log.sides().items():
            session.advance(name, int(columns["ts"][-1]) + int(MINUTE))
        assert session.store is not None
        session.store.checkpoint()


@contextmanager
def _opened(path: Path, run_tuples: int = 1 << 16) -> Iterator[Session]:
    options = StoreOptions(sync="relaxed", hot_tuples=0, run_tuples=run_tuples)
    store = Store.open(path, seed=SEED, options=options, clock=lambda: 1 << 60)
    with Session(store=store) as session:
        yield session


@dataclass
class _Side:
    regions: Regions
    keys: list[Ints]


def _side(session: Session, name: str) -> _Side:
    snapshot = Snapshot(session.stream(name), *EVER)
    if snapshot.cold != snapshot.size:
        raise AssertionError("some tuples are still in memory")
    cold = ColdRegions(snapshot, "item_id", USED, {})
    regions = together(list(cold.regions()))
    places = zip(regions.file.tolist(), regions.group.tolist(), strict=True)
    keys = [session.stream(name).take(cold.rows(*place), ["item_id"])["item_id"].to_numpy() for place in places]
    return _Side(regions, keys)


def _counts(parts: list[Ints], keys: Ints) -> Floats:
    """By region and key."""
    out = np.zeros((len(parts), len(keys)))
    for number, part in enumerate(parts):
        found, counts = np.unique(part, return_counts=True)
        out[number, np.searchsorted(keys, found)] = counts
    return out


def _along(order: list[tuple[int, int]], counts: list[Floats], sizes: list[Floats]) -> Callable[[float], float]:
    """Whole regions in that order: the share of all pairs after so many bytes."""
    read = [np.zeros(counts[0].shape[1]) for _ in range(2)]
    ends, made = [0.0], [0.0]
    for side, region in order:
        made.append(made[-1] + float(counts[side][region] @ read[1 - side]))
        ends.append(ends[-1] + float(sizes[side][region]))
        read[side] += counts[side][region]
    return lambda most: made[int(np.searchsorted(ends, most, side="right")) - 1] / made[-1]


def _ideal(counts: list[Floats], sizes: list[Floats]) -> list[tuple[int, int]]:
    """Peeled by exact counts, a small step at a time."""
    left = [np.ones(len(part), np.bool_) for part in sizes]
    sums = [part.sum(axis=0) for part in counts]
    every, split = np.concatenate(sizes), len(sizes[0])
    step = every.sum() / ROUNDS
    dropped: list[int] = []
    while any(part.any() for part in left):
        density = np.concatenate([counts[s] @ sums[1 - s] / sizes[s] for s in range(2)])
        these = np.flatnonzero(np.concatenate(left))
        these = these[np.argsort(density[these], kind="stable")]
        for place in these[: max(int(np.searchsorted(np.cumsum(every[these]), step)), 1)].tolist():
            side, region = (0, place) if place < split else (1, place - split)
            left[side][region] = False
            sums[side] = sums[side] - counts[side][region]
            dropped.append(place)
    return [(0, place) if place < split else (1, place - split) for place in dropped[::-1]]


def _ceiling(log: Log) -> float:
    """Every key alone, those of most pairs a tuple first."""
    sides = [np.unique(side["item_id"], return_counts=True) for side in log.sides().values()]
    keys = np.union1d(sides[0][0], sides[1][0])
    a, b = np.zeros(len(keys)), np.zeros(len(keys))
    for out, (found, counts) in zip((a, b), sides, strict=True):
        out[np.searchsorted(keys, found)] = counts
    order = np.argsort(-a * b / (a + b))
    tuples, pairs = np.cumsum((a + b)[order]), np.cumsum((a * b)[order])
    return float(np.interp(QUARTER, tuples / tuples[-1], pairs / pairs[-1]))


def _by_key(session: Session, total: float) -> float:
    """The share of the rows that had come when a quarter of the bytes was read; footers are read by the planner."""
    assert session.store is not None
    sql = statement("a.item_id, a.number, b.number AS other")
    session.plan_scan(sql)
    before = session.store.stats()["cold_bytes_read"]
    got, rows = 0, 0
    for frame in session.query(sql):
        rows += frame.rows.num_rows
        if session.store.stats()["cold_bytes_read"] - before <= QUARTER * total:
            got = rows
    return got / rows


@contextmanager
def heavy_apart(part: int) -> Iterator[None]:
    """Keys that are one tuple in `part` of their zone, or more, in row groups of their own; all others by bucket."""
    arranged, group_starts = cold_layout.arranged, cold_layout.group_starts
    alone = np.empty(0, np.int64)

    def arrange(key: Column, zone: Ints, bucket: Ints) -> tuple[Ints, NDArray[np.int8]]:
        nonlocal alone
        order, _ = arranged(key, zone, bucket)
        assert key.values is not None
        zones, values, buckets = zone[order], key.values[order].astype(np.int64), bucket[order]
        _, into, sizes = np.unique(zones, return_inverse=True, return_counts=True)
        pairs = into * (int(values.max()) + 1) + values
        _, pair, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        heavy = counts[pair] * part >= sizes[into]
        again = np.lexsort((values, buckets, ~heavy, zones))
        alone = np.where(heavy, values, -1)[again]
        return order[again], heavy[again].astype(np.int8)

    def starts(zone: Ints, bucket: Ints, heat: NDArray[np.int8]) -> list[int]:
        shared = set(group_starts(zone, bucket, heat))
        return sorted(shared | {0, *(np.flatnonzero(alone[1:] != alone[:-1]) + 1).tolist()})

    cold_layout.arranged, cold_layout.group_starts = arrange, starts
    try:
        yield
    finally:
        cold_layout.arranged, cold_layout.group_starts = arranged, group_starts
