"""Pruning loses no region that holds a tuple asked for: a million pairs of key and zone, none excepted."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from promising.index import Options, Stream, SummaryIndex
from promising.index.regions import Regions
from promising.testing import streams
from promising.testing.streams import Columns
from tests.index.world import cells

SEED = 77
TUPLES = 40_000
PROBES = 1_000_000
SCHEMA = {"store_id": "int", "transaction_id": "int", "ts": "timestamp", "item_id": "int", "price": "float"}
# Filters small enough that many a key passes by chance, and ones that let few pass.
LOOSE = Options(buckets=4, depth=3, width=8, maxlength=256, filter_bits=512, coarse_bits=1024)
TIGHT = Options(buckets=16, depth=3, width=16, maxlength=256, filter_bits=1 << 13, coarse_bits=1 << 15, probes=3)


def data() -> Iterator[tuple[str, Columns]]:
    yield "skewed", streams.zipf(TUPLES, 3000, 1.1, seed=1)
    yield "drifting", streams.drift(TUPLES, 3000, 1.1, seed=2)
    yield "rotating", streams.rotation(TUPLES, 2000, 1.2, at=range(5000, TUPLES, 5000), seed=3)
    yield "late", streams.late(streams.zipf(TUPLES, 3000, 1.0, seed=4), 0.3, 4_000_000, seed=5)
    yield "one bucket", streams.adversarial(TUPLES, 1500, bits=4, prefix=9, hash_seed=SEED, seed=6)
    yield "all distinct", streams.all_distinct(TUPLES, seed=7)


CASES = dict(data())


def asked(columns: Columns, rng: np.random.Generator) -> NDArray[np.int64]:
    """Keys of every popularity, rare ones most of all, and some that never came; not one of them twice."""
    seen = np.unique(columns["item_id"])
    absent = rng.integers(1 << 50, 1 << 51, 100)
    return np.concatenate((rng.permutation(seen)[:900], np.unique(absent)))


def homes(summary: SummaryIndex) -> tuple[NDArray[np.int64], NDArray[np.int32], dict[tuple[int, int], int]]:
    """Every live row with the number of its zone in the returned table."""
    table: dict[tuple[int, int], int] = {}
    zones, rows = [], []
    for granularity, zone, bucket in cells(summary):
        held = summary.visit((granularity, zone, bucket))
        zones.append(np.full(len(held), table.setdefault((granularity, zone), len(table)), np.int64))
        rows.append(held)
    return np.concatenate(zones), np.concatenate(rows), table


def listed(found: Regions, table: dict[tuple[int, int], int]) -> NDArray[np.int64]:
    zone = [table[g, z] for g, z in zip(found.granularity.tolist(), found.zone.tolist(), strict=True)]
    return found.key * len(table) + np.array(zone, np.int64)


def check(stream: Stream, summary: SummaryIndex, keys: NDArray[np.int64], rng: np.random.Generator) -> int:
    """Compare what is found with what is there, for all time and for windows; returns the pairs of key and zone."""
    zone, rows, table = homes(summary)
    assert len(rows) == len(np.unique(rows)) == summary.count
    taken = stream.take(rows, ["ts", "item_id"])
    times = taken.column("ts").cast("int64").to_numpy()
    items = taken.column("item_id").to_numpy()
    order = np.argsort(keys)
    at = np.minimum(np.searchsorted(keys, items, sorter=order), len(keys) - 1)
    key = order[at]
    wanted = keys[key] == items
    truth = key * len(table) + zone
    windows = [None, *(tuple(np.sort(rng.choice(times, 2)).tolist()) for _ in range(2))]
    for window in windows:
        inside = wanted if window is None else wanted & (times >= window[0]) & (times < window[1])
        there = np.unique(truth[inside])
        for search in ("flat", "pyramid"):
            found = summary.regions(keys, window, search)
            assert np.isin(there, listed(found, table)).all(), f"{search} search lost a region in {window}"
            assert len(there) <= len(found) < found.considered
            assert found.considered == len(keys) * len(table)
    return len(keys) * len(table)


@pytest.mark.parametrize("options", [LOOSE, TIGHT], ids=["loose", "tight"])
def test_no_true_region_is_pruned(options):
    rng = np.random.default_rng(8)
    pairs = 0
    for columns in CASES.values():
        stream = Stream("s", SCHEMA, "ts", clock=lambda: 1 << 60, max_tuples=1 << 16, seed=SEED)
        made = [
            stream.create_summary(s, "item_id", granularity=g, collapse=(4, 3), structure=s, options=options)
            for s, g in (("adaptive", 45_000_000), ("grid", 13_000_000), ("time", 1_500_000))
        ]
        for start in range(0, TUPLES, 7001):
            stream.append({name: values[start : start + 7001] for name, values in columns.items()})
        keys = asked(columns, rng)
        for summary in made:
            pairs += check(stream, summary, keys, rng)
    assert pairs >= PROBES


def test_pruning_prunes():
    """A filter that let everything through would pass the test above."""
    stream = Stream("s", SCHEMA, "ts", clock=lambda: 1 << 60, max_tuples=1 << 16, seed=SEED)
    summary = stream.create_summary("a", "item_id", granularity=13_000_000, collapse=(4, 3), options=TIGHT)
    stream.append(CASES["all distinct"])
    keys = CASES["all distinct"]["item_id"][-1000:]
    found = summary.regions(keys)
    assert found.by_filter > 0.9 * found.considered
    late = int(CASES["all distinct"]["ts"][-500])
    assert summary.regions(keys, (late, late + 1)).by_window > 0.5 * found.considered
