"""A zone across a window's edge counts by its tuples inside: against the tuples themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.index import Stream, SummaryIndex
from promising.index.edges import inside
from promising.index.summary import SummaryState
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


def state_of(summary: SummaryIndex) -> SummaryState:
    assert isinstance(summary.state, SummaryState)
    return summary.state


def every_zone(summary: SummaryIndex) -> list[FineZone | CoarseZone]:
    state = state_of(summary)
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
def test_the_share_is_exact_in_g1_and_as_fine_as_the_spans_beyond(seed, cold, visited):
    with pytest.MonkeyPatch.context() as patch:
        small_chunks(patch, 64)
        rng = np.random.default_rng(seed)
        times = uneven(rng, 1500)
        stream, summary = stream_with(times, rng.integers(0, 9, 1500))
        zones = every_zone(summary)
        if visited:
            for zone in zones:
                zone.tuples.cell(0, state_of(summary).identity.sizes, state_of(summary).hashes)
        assert not cold or cool(stream, ColdShelf(), 0, int(rng.integers(1, 12)))
        log = stream._log
        fine = state_of(summary).fine
        aside = sum(block.aside for block in fine.blocks.values()) + sum(len(part.rows) for part in fine.ahead.zones())
        assert sum(zone.count for zone in zones) + len(fine.open_rows) + aside == 1500
        for zone in zones:
            held = times[log.arrivals(zone.tuples.rows)]
            start, end = sorted(rng.choice(times, 2).tolist())
            truth = int(((held >= start) & (held < end)).sum())
            part = inside(log, zone, start, end)
            likely = part.share * zone.count
            assert part.least <= truth <= part.most
            assert part.least <= likely + 1e-6 and likely <= part.most + 1e-6
            if isinstance(zone, FineZone):
                assert part.least == part.most
            else:
                assert zone.spans is not None and zone.spans.sum() == zone.count
                assert (zone.spans == np.bincount((held - zone.start) // zone.span, minlength=64)).all()
                edges = [(edge - zone.start) // zone.span for edge in (start, end)]
                assert part.most - part.least <= sum(zone.spans[edge] for edge in edges if 0 <= edge < 64)


def test_a_zone_of_an_older_image_counts_by_time():
    times = (1 << 50) + np.arange(3000) * MINUTE
    stream, summary = stream_with(times, np.zeros(3000, np.int64))
    zone = next(zone for zone in every_zone(summary) if isinstance(zone, CoarseZone))
    image = {name: value for name, value in zone.image(stream._log).items() if name not in ("span", "spans")}
    old = CoarseZone.restored(image, zone.kind, state_of(summary).measures)
    middle = (zone.first + zone.last + 1) // 2
    assert inside(stream._log, old, middle, 1 << 60).share == pytest.approx(0.5)
    assert inside(stream._log, old, middle, 1 << 60)[1:] == (0, zone.count)
    assert inside(stream._log, old, zone.first, 1 << 60) == (1.0, zone.count, zone.count)
    zone.absorb(old)
    assert zone.spans is None


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
