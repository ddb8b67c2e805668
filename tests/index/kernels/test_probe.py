"""Reading summaries, against plain Python."""

import numpy as np
import pytest

from promising.index.kernels.probe import filter_slots, may_hold, survivors
from promising.summaries.kernels.counts import medians
from tests.index.kernels.plain import bucket, filter_places, filtered, places, sketch, some_hashes

pytestmark = pytest.mark.kernel

BUCKETS, SLOTS, PROBES = 8, 32, 2
SHIFT, LG_SLOTS = 61, 5


def zones_of(groups: int, seed: int):
    """Zones of random keys, the filters of all, and the words that hold them by 64."""
    rng = np.random.default_rng(seed)
    pool = some_hashes(400, 400, seed)
    zones = [rng.choice(pool, 12).tolist() for _ in range(64 * groups)]
    filters = [filtered(z, BUCKETS, PROBES, SLOTS) for z in zones]
    sliced = np.zeros((groups, BUCKETS * SLOTS), np.uint64)
    for at, bits in enumerate(filters):
        sliced[at // 64] |= bits.reshape(-1).astype(np.uint64) << np.uint64(at % 64)
    return pool, zones, filters, sliced


def test_survivors_are_the_zones_whose_filter_lets_the_key_through():
    pool, zones, filters, sliced = zones_of(3, 1)
    asked = np.concatenate((pool[:20], some_hashes(10, 10, 99)))
    wanted = np.ones(3 * 64, np.uint8)
    wanted[[0, 5, 70, 191]] = 0
    groups = np.array([2, 0], np.int64)
    expected = []
    for i, h in enumerate(asked.tolist()):
        for group in groups.tolist():
            for at in range(64 * group, 64 * group + 64):
                if wanted[at] and all(filters[at][bucket(h, BUCKETS), s] for s in filter_places(h, PROBES, SLOTS)):
                    expected.append((i, at))
    args = (sliced, groups, asked, SHIFT, PROBES, LG_SLOTS, wanted)
    empty = np.empty(0, np.int64)
    found = int(survivors(*args, empty, empty))
    key, zone = np.empty(found, np.int64), np.empty(found, np.int64)
    assert survivors(*args, key, zone) == found
    assert list(zip(key.tolist(), zone.tolist(), strict=True)) == expected
    holding = {(i, at) for i, h in enumerate(asked.tolist()) for at in (*range(64), *range(128, 192)) if h in zones[at]}
    assert {pair for pair in holding if wanted[pair[1]]} <= set(expected), "no zone that holds a key is left out"


def test_survivors_write_no_more_than_there_is_room_for():
    pool, _, _, sliced = zones_of(1, 2)
    args = (sliced, np.zeros(1, np.int64), pool, SHIFT, PROBES, LG_SLOTS, np.ones(64, np.uint8))
    key, zone = np.full(8, -1, np.int64), np.full(8, -1, np.int64)
    assert survivors(*args, key[:5], zone[:5]) > 5
    assert (key[:5] >= 0).all() and (key[5:] == -1).all() and (zone[5:] == -1).all()


def test_filter_slots_are_those_that_the_contract_names():
    hashes = some_hashes(30, 30, 3)
    out = np.empty((3, 30), np.int64)
    filter_slots(hashes, 7, out)
    assert out.T.tolist() == [filter_places(h, 3, 128) for h in hashes.tolist()]


def test_a_plain_filter_lets_through_what_has_all_its_bits():
    pool = some_hashes(60, 60, 4)
    bits = filtered(pool[:30].tolist(), BUCKETS, PROBES, SLOTS)
    out = np.empty(60, np.bool_)
    may_hold(np.packbits(bits.reshape(-1), bitorder="little"), pool, SHIFT, PROBES, LG_SLOTS, out)
    assert out[:30].all()
    assert out.tolist() == [
        all(bits[bucket(h, BUCKETS), s] for s in filter_places(h, PROBES, SLOTS)) for h in pool.tolist()
    ]
    assert not out.all()


@pytest.mark.parametrize("kind", [np.int16, np.int32])
@pytest.mark.parametrize(("depth", "width"), [(1, 2), (5, 16), (9, 1 << 12)])
def test_the_estimate_is_the_median_of_the_rows(depth, width, kind):
    grids = [sketch(some_hashes(80, 25, seed).tolist(), BUCKETS, depth, width) for seed in (5, 6, 7)]
    counters = np.stack([g.reshape(-1) for g in grids]).astype(kind)
    hashes = some_hashes(20, 25, 5)
    rng = np.random.default_rng(8)
    key, zone = rng.integers(0, 20, 50), rng.integers(0, 3, 50)
    value, own = np.empty(50), np.empty(50)
    medians(counters, hashes, key, zone, SHIFT, depth, width.bit_length() - 1, value, own)
    for i in range(50):
        h = int(hashes[key[i]])
        rows = [s * grids[zone[i]][bucket(h, BUCKETS), r, c] for r, (c, s) in enumerate(places(h, depth, width))]
        assert value[i] == sorted(rows)[depth // 2]
        assert own[i] == pytest.approx(sum(int(c) ** 2 for c in rows) / depth)
