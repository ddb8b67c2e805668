"""Summaries in `G_2..G_m` depend on the tuples and the watermark, and on nothing else: equal to the bit."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.index import Options, Stream, SummaryIndex
from promising.index.check import check_stream
from promising.index.geometry import Geometry
from promising.summaries.hashing import hash_keys
from promising.testing import ManualClock
from tests.index.counted import counted
from tests.index.world import SCHEMA, Columns, columns, ids, part
from tests.tiers import examples

WORD = (1 << 64) - 1
SHAPES = [
    Options(buckets=4, depth=3, width=8, maxlength=256, filter_bits=128, coarse_bits=256, tolerance=0.5),
    Options(buckets=1, depth=15, width=64, maxlength=2000, filter_bits=64, coarse_bits=64, probes=4, tolerance=1e6),
    Options(buckets=16, depth=7, width=4096, maxlength=256, filter_bits=1024, coarse_bits=4096, probes=3),
]

Zones = dict[tuple[int, int], tuple[Any, ...]]


def coarse(stream: Stream, summary: SummaryIndex) -> Zones:
    """All that zones of `G_2..G_m` are: sketch, filter, cell counts, extent, tuples."""
    return {
        (level, number): (
            *counted(zone),
            zone.bits.tobytes(),
            zone.cells.tobytes(),
            (zone.first, zone.last, zone.start),
            sorted(ids(stream, zone.tuples.rows).tolist()),
        )
        for level, zones in summary.state.coarse.levels.items()  # type: ignore[union-attr]  # none has no zones
        for number, zone in zones.items()
    }


def remix(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & WORD
    return word ^ word >> 31


def rebuilt(geometry: Geometry, options: Options, watermark: int, batch: Columns, key: str, seed: int) -> Zones:
    """The same zones from the tuples at rest, one at a time, by the rules for the bits of a hash."""
    width, depth, buckets = options.width, options.depth, options.buckets
    lg_width, lg_buckets = width.bit_length() - 1, buckets.bit_length() - 1
    slots = options.coarse_bits // buckets
    horizons = geometry.horizons(watermark)
    made: dict[tuple[int, int], list[Any]] = {}
    hashes = hash_keys(batch[key], seed)
    for ts, h, name in zip(batch["ts"].tolist(), hashes.tolist(), batch["id"].tolist(), strict=True):
        level = next((i + 1 for i, horizon in enumerate(horizons) if ts >= horizon), 0)
        if level < 2:
            continue
        length = geometry.spans[level - 2]
        zone = made.setdefault(
            (level, ts // length),
            [np.zeros((buckets, depth, width), np.int32), np.zeros(buckets * slots, np.uint8), [0] * buckets, [], []],
        )
        bucket = h >> (64 - lg_buckets)
        word, used = remix(h), 0
        bits = word
        for row in range(depth):
            if 64 - used < lg_width + 1:
                word, used = remix(word), 0
                bits = word
            column = bits >> 1 & width - 1
            zone[0][bucket, row, column] += -1 if bits & 1 else 1
            bits >>= lg_width + 1
            used += lg_width + 1
        word = remix(h ^ 0x9E3779B97F4A7C15)
        for _ in range(options.probes):
            zone[1][bucket * slots + (word & slots - 1)] = 1
            word >>= slots.bit_length() - 1
        zone[2][bucket] += 1
        zone[3].append(ts)
        zone[4].append(name)
    return {
        (level, number): (
            counters.tobytes(),
            np.packbits(bits, bitorder="little").tobytes(),
            np.array(cells, np.int64).tobytes(),
            (min(times), max(times), number * geometry.spans[level - 2]),
            sorted(names),
        )
        for (level, number), (counters, bits, cells, times, names) in made.items()
    }


@pytest.mark.deep("compares whole streams in many orders")
@settings(max_examples=examples(25))
@given(data=st.data(), shape=st.sampled_from(SHAPES), seed=st.integers(0, 1 << 32))
def test_neither_arrival_nor_batches_nor_path_leave_a_trace(data, shape, seed):
    rng = np.random.default_rng(seed)
    length = data.draw(st.integers(8, 40))
    keep = data.draw(st.sampled_from([8, 30, 100])) * length
    geometry = Geometry(length, data.draw(st.integers(2, 3)), data.draw(st.integers(2, 4)), keep)
    lateness = data.draw(st.sampled_from([0, 5, 60]))
    newest = data.draw(st.sampled_from([-10_000, 123_456]))
    n = data.draw(st.sampled_from([30, 400, 2500]))
    oldest = geometry.oldest(newest)  # so whatever the order, no tuple is too old
    times = np.concatenate((rng.integers(oldest, newest + 1, n // 2), newest - rng.integers(0, 3, n - n // 2)))
    keys = (rng.zipf(1.3, n) % 50).astype(np.int64)
    batch = columns(times, keys)
    watermark = newest + data.draw(st.integers(0, 5 * geometry.granularity))
    behind = data.draw(st.sampled_from([0, 3 * geometry.granularity, 5_000]))  # tuples may be ahead of the clock
    expected = {key: rebuilt(geometry, shape, watermark, batch, key, seed=3) for key in ("k", "s")}

    for trial in range(3):
        clock = ManualClock(newest - behind)
        stream = Stream("s", SCHEMA, "ts", lateness=lateness, keep=keep, clock=clock, max_tuples=5000, seed=3)
        made = {}
        for name, key, structure in (("a", "k", "adaptive"), ("g", "k", "grid"), ("t", "s", "adaptive")):
            made[name] = stream.create_summary(
                name,
                key,
                granularity=geometry.granularity,
                collapse=(geometry.rate, geometry.depth),
                structure=structure,
                options=shape,
            )
        by_key = np.argsort(keys, kind="stable")  # so that behaviour changes at every turn
        order = (np.argsort(times, kind="stable"), by_key, rng.permutation(n))[trial]
        mixed = {name: np.asarray(values, object)[order].tolist() for name, values in batch.items()}
        borders = sorted({0, n, *rng.integers(0, n, int(rng.integers(0, 9))).tolist()})
        for i, (start, stop) in enumerate(pairwise(borders)):
            assert stream.append(part(mixed, start, stop)).accepted == stop - start
            if i % 2:
                stream.advance(min(int(max(mixed["ts"][:stop])), clock()))  # the same watermark by another way
            if i % 3 == 1:
                for summary in made.values():  # visiting orders a zone's tuples by cell
                    for zone in summary.describe().zones:
                        summary.visit((zone.granularity, zone.zone, 0))
        assert check_stream(stream) == []
        clock.set(watermark)
        stream.advance(watermark)
        assert coarse(stream, made["a"]) == expected["k"]
        assert coarse(stream, made["g"]) == expected["k"]
        assert coarse(stream, made["t"]) == expected["s"]


@pytest.mark.parametrize("structure", ["time", "grid", "adaptive"])
def test_a_summary_made_later_is_the_same(structure):
    rng = np.random.default_rng(5)
    shape = SHAPES[0]
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(10**6), max_tuples=5000)

    def create(name: str) -> SummaryIndex:
        return stream.create_summary(name, "k", granularity=50, collapse=(3, 3), structure=structure, options=shape)

    before = create("before")
    times = np.sort(rng.integers(0, 1500, 3000)) - (rng.random(3000) < 0.1) * rng.integers(0, 400, 3000)
    stream.append(columns(times, rng.integers(0, 30, 3000)))
    after = create("after")
    asked = np.arange(31)
    assert coarse(stream, before) == coarse(stream, after)
    assert len(coarse(stream, before)) > 4
    assert before.count == after.count
    for window in (None, (900, 1450)):
        a, b = before.probe(asked, window), after.probe(asked, window)
        np.testing.assert_array_equal(a.probe, b.probe)
        np.testing.assert_array_equal(a.rows, b.rows)
    stream.append(columns(np.full(600, 1501), rng.integers(0, 30, 600), 3000))
    stream.advance(2000)
    assert coarse(stream, before) == coarse(stream, after)
    assert before.count == after.count


@pytest.mark.parametrize("lateness", [0, 30])
def test_cuts_leave_no_trace(lateness):
    """The same tuples by key, so that behaviour changes again and again, and mixed, so that it never does."""
    rng = np.random.default_rng(6)
    batch = columns(rng.integers(0, 40, 4000), np.repeat(np.arange(8), 500))
    found = []
    for order in (np.arange(4000), rng.permutation(4000)):
        stream = Stream("s", SCHEMA, "ts", lateness=lateness, clock=ManualClock(100), max_tuples=5000)
        summary = stream.create_summary("a", "k", granularity=40, collapse=(2, 2), options=SHAPES[1])
        stream.append({name: np.asarray(values, object)[order].tolist() for name, values in batch.items()})
        cuts = summary.describe().cuts
        stream.advance(100)
        found.append((cuts.get("behaviour", 0), coarse(stream, summary)))
    (changes, by_key), (none, mixed) = found
    assert changes >= 4
    assert none == 0
    assert len(by_key) == 1
    assert by_key == mixed
