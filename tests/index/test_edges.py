"""A zone across a window's edge counts by its tuples inside: against the tuples themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.index import Stream, SummaryIndex
from promising.index.edges import inside
from promising.index.ladder import Ladder
from promising.index.zone import CoarseZone, FineZone
from promising.testing import ManualClock
from tests.conftest import NO_JIT
from tests.index.world import SCHEMA, SMALL, ColdShelf, columns, cool, small_chunks
from tests.tiers import examples

MINUTE = 60_000_000


def stream_with(times: np.ndarray, keys: np.ndarray, structure: str = "grid") -> tuple[Stream, SummaryIndex]:
    """In arrival order; old tuples are in zones of `G_2` and further."""
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(1 << 60), max_tuples=1 << 14, lateness=10 * MINUTE, seed=5)
    summary = stream.create_summary(
        "a", "k", granularity=20 * MINUTE, collapse=(2, 3), structure=structure, options=SMALL
    )
    for first in range(0, len(times), 700):
        part = slice(first, first + 700)
        stream.append(columns(times[part], keys[part], first))
    return stream, summary


def every_zone(summary: SummaryIndex) -> list[FineZone | CoarseZone]:
    state = summary.state
    fine = [zone for block in state.fine.blocks.values() for zone in block.zones]
    return [*fine, *(zone for zones in state.coarse.levels.values() for zone in zones.values())]


def uneven(rng: np.random.Generator, n: int) -> np.ndarray:
    """Nearly in order, with busy hours and quiet ones."""
    gaps = rng.exponential(1.0, n) * np.where(np.arange(n) // 150 % 2, 20, 1) * 1_000_000
    times = 1 << 50
    return times + np.cumsum(gaps).astype(np.int64) - (rng.random(n) < 0.1) * rng.integers(0, 300_000_000, n)


@pytest.mark.kernel
@settings(max_examples=examples(3 if NO_JIT else 15), deadline=None)
@given(st.integers(0, 9999), st.booleans(), st.booleans())
def test_the_share_is_exact_in_memory_and_the_bounds_hold_on_disk(seed, cold, visited):
    with pytest.MonkeyPatch.context() as patch:
        small_chunks(patch, 64)
        rng = np.random.default_rng(seed)
        times = uneven(rng, 1500)
        stream, summary = stream_with(times, rng.integers(0, 9, 1500))
        zones = every_zone(summary)
        if visited:
            for zone in zones:
                zone.tuples.cell(0, summary.state.identity.sizes, summary.state.hashes)
        assert not cold or cool(stream, ColdShelf(), 0, int(rng.integers(1, 12)))
        ladder = Ladder({})
        ladder.add(stream._log, stream._log.rows())
        log = stream._log
        for zone in zones:
            start, end = sorted(rng.choice(times, 2).tolist())
            rows = zone.tuples.rows
            held = times[log.arrivals(rows)]
            truth = int(((held >= start) & (held < end)).sum())
            for known in (None, ladder):
                part = inside(log, zone, start, end, known)
                assert part.least <= truth <= part.most
                assert part.least <= part.share * zone.count + 1e-6 and part.share * zone.count <= part.most + 1e-6
                if not cold:
                    assert (part.least, part.most) == (truth, truth)


def test_cold_chunks_are_shared_by_the_ladder_and_without_one_by_time(monkeypatch):
    small_chunks(monkeypatch, 256)
    start = 1 << 50
    start -= start % (20 * MINUTE)
    # all but 16 in the first minute
    times = start + np.concatenate((np.arange(240) * (MINUTE // 250), MINUTE * (2 + np.arange(16))))
    stream, summary = stream_with(np.concatenate((times, times + 100 * MINUTE)), np.zeros(512, np.int64))
    assert cool(stream, ColdShelf(), 0, 1)
    ladder = Ladder({})
    ladder.minutes = ladder.hours = 0
    ladder.add(stream._log, np.arange(256, 512, dtype=np.int32))
    ladder.first[:], ladder.last[:] = ladder.first - 100 * MINUTE, ladder.last - 100 * MINUTE
    zone = min(every_zone(summary), key=lambda zone: zone.first)
    window = (start, start + MINUTE)
    assert inside(stream._log, zone, *window, None).share == pytest.approx(1 / 17, rel=0.1)
    assert inside(stream._log, zone, *window, ladder).share == pytest.approx(240 / 256, rel=0.01)
    assert inside(stream._log, zone, *window, None)[1:] == (0, 256)


def test_an_estimate_at_an_edge_follows_the_tuples_not_the_time():
    """Nine tenths of a zone arrive in the first tenth of its time."""
    times = (1 << 50) + np.concatenate((np.arange(230), np.arange(260, 2600, 90)))
    stream, summary = stream_with(times, np.full(len(times), 7), "time")
    early = ((1 << 50), (1 << 50) + 230)
    assert (len(times), summary.describe().zones[0].tuples) == (256, 256), "sealed, so that a sketch answers"
    found = summary.estimate([7], early)
    assert found.value.tolist() == found.lower.tolist() == found.upper.tolist() == [230]
    assert stream.count == 256


@pytest.mark.kernel
@pytest.mark.parametrize("structure", ["time", "adaptive"])
def test_tuples_in_no_sealed_zone_count_one_by_one(structure):
    times = (1 << 50) + np.array([0, 1, 2, 50, 99])
    _, summary = stream_with(times, np.array([1, 1, 2, 1, 1]), structure)
    found = summary.estimate([1, 2, 3], ((1 << 50) + 1, (1 << 50) + 99))
    assert found.value.tolist() == found.lower.tolist() == found.upper.tolist() == [2, 1, 0]


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 9999))
def test_the_ladder_counts_before_a_time_exactly_at_the_ends_of_spans(seed):
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, 500 * MINUTE, 300))
    stream, _ = stream_with(times, np.zeros(300, np.int64))
    ladder = Ladder({})
    ladder.minutes = ladder.hours = 0
    ladder.add(stream._log, stream._log.rows())
    asked = np.concatenate((np.arange(-1, 501) * MINUTE, rng.integers(-9, 501 * MINUTE, 50)))
    found, truth = ladder.before(asked), np.searchsorted(times, asked)
    ends = asked % MINUTE == 0
    assert found[ends] == pytest.approx(truth[ends])
    assert (np.diff(found[np.argsort(asked)]) >= -1e-9).all()
    span = np.bincount(times // MINUTE, minlength=501).max()
    assert np.abs(found - truth).max() <= span
