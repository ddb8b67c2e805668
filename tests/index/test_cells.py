"""Cells as `describe` counts them: what a visit finds, and no tuple ordered for it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.index import Stream, SummaryIndex
from promising.index.summary import SummaryState
from promising.testing import ManualClock
from tests.index.world import SCHEMA, SMALL, STRUCTURES, columns
from tests.tiers import examples


def make(structure: str, key: str = "k") -> tuple[Stream, SummaryIndex]:
    stream = Stream("s", SCHEMA, "ts", lateness=25, clock=ManualClock(10**9), max_tuples=20_000)
    return stream, stream.create_summary("a", key, granularity=20, collapse=(2, 3), structure=structure, options=SMALL)


@settings(max_examples=examples(40))
@given(
    batches=st.lists(st.tuples(st.integers(1, 600), st.integers(0, 60), st.integers(0, 99)), min_size=1, max_size=8),
    structure=st.sampled_from(["time", "grid", "adaptive"]),
    key=st.sampled_from(["k", "s"]),
)
def test_cells_are_what_a_visit_finds(batches, structure, key):
    stream, summary = make(structure, key)
    now = 0
    for n, reach, seed in batches:
        rng = np.random.default_rng(seed)
        times = now + rng.integers(-reach, reach + 1, n)
        stream.append(columns(times, rng.integers(0, 50, n)))
        now = max(now, int(times.max()))
    told = summary.describe(cells=True)
    assert told.cells is not None
    assert told.cells.dtype == np.int64
    assert told.cells.shape == (len(told.zones), summary.state.identity.sizes.buckets)
    assert told.cells.sum(axis=1).tolist() == [zone.tuples for zone in told.zones]
    for zone, cells in zip(told.zones, told.cells, strict=True):
        found = [len(summary.visit((zone.granularity, zone.zone, bucket))) for bucket in range(len(cells))]
        assert cells.tolist() == found


@pytest.mark.parametrize("structure", STRUCTURES)
def test_cells_come_only_if_asked_for_and_a_summary_without_zones_has_none(structure):
    _, summary = make(structure)
    assert summary.describe().cells is None
    cells = summary.describe(cells=True).cells
    assert cells is not None
    assert cells.shape == (0, summary.state.identity.sizes.buckets)


def test_counting_cells_orders_no_tuples_and_hands_out_a_copy():
    stream, summary = make("grid")
    stream.append(columns(np.arange(200), np.arange(200)))
    first = summary.describe(cells=True).cells
    assert first is not None
    first[:] = -1
    again = summary.describe(cells=True).cells
    assert again is not None
    assert again.sum() == 200 - summary.describe().expired
    state = summary.state
    assert isinstance(state, SummaryState)
    assert all(z.tuples.starts is None for block in state.fine.blocks.values() for z in block.zones)
    assert all(z.tuples.starts is None for zones in state.coarse.levels.values() for z in zones.values())
