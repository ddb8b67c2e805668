"""Stories: what they say is true, and what a zone absorbed adds up, whatever happened."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import BadQuestion, UnknownName
from promising.index import Options, Stream, SummaryIndex
from promising.index.story import leaves
from promising.index.summary import SummaryState
from promising.index.zone import TAKEN
from promising.testing import ManualClock
from tests.index.world import SCHEMA, SMALL, columns
from tests.tiers import examples

SECOND = 1_000_000
MINUTE = 60 * SECOND


def make(structure: str = "adaptive", options: Options = SMALL, **stream: int) -> tuple[Stream, SummaryIndex]:
    made = Stream("s", SCHEMA, "ts", clock=ManualClock(1 << 50), max_tuples=20_000, keep=16 * MINUTE, **stream)
    return made, made.create_summary(
        "a", "k", granularity=MINUTE, collapse=(2, 3), structure=structure, options=options
    )


def fill(stream: Stream, start: int, n: int, step: int = SECOND, keys: int = 40, first: int = 0) -> None:
    stream.append(columns(start + np.arange(n) * step, first + np.arange(n) % keys))


def told(summary: SummaryIndex, reason: str, granularity: int = 1) -> str:
    """The story of the first zone of that reason."""
    zone = next(z for z in summary.describe().zones if (z.granularity, z.reason) == (granularity, reason))
    story = summary.story(zone.granularity, zone.zone)
    assert story.zone == zone
    return " ".join(story.lines)


def test_an_open_zone_says_what_would_end_it():
    stream, summary = make()
    fill(stream, 0, 30)
    text = told(summary, "open")
    assert "30 tuples from 1970-01-01 to 1970-01-01 00:00:29" in text
    assert "tolerance of 4 tuples" in text
    assert "effect = 0.2" in text
    assert "maxlength = 256 tuples" in text
    assert "a tuple from 1970-01-01 00:01 on arrives" in text
    assert "collapses into zone 0 of G_2 when the watermark reaches 1970-01-01 00:02" in text
    assert "The watermark is at 1970-01-01 00:00:29." in text


def test_a_zone_that_was_full_and_the_one_after_it():
    stream, summary = make("grid")
    fill(stream, 0, 300, step=1000)
    assert "It ends because it was full, with maxlength = 256 tuples." in told(summary, "maxlength")
    after = told(summary, "open")
    assert "It begins where zone 1 was cut: it was full" in after
    assert "tolerance" not in after  # a grid does not watch
    assert "one of 2 zones of its block, 1970-01-01 to 1970-01-01 00:01" in after


def test_a_zone_cut_for_its_error():
    options = Options(buckets=4, depth=3, width=8, maxlength=4096, tolerance=4.0, filter_bits=256, coarse_bits=512)
    stream, summary = make(options=options)
    fill(stream, 0, 3000, step=1000)
    assert "passed the tolerance of 4 tuples (by its sketches it is " in told(summary, "error")
    fixed = "zones have one length: behaviour has not jumped"
    assert fixed in told(summary, "open") and fixed in summary.describe().cutting


def test_a_zone_cut_for_its_behaviour():
    stream, summary = make(options=Options(buckets=4, maxlength=8192, tolerance=1000.0))
    fill(stream, 0, 2560, step=1000)
    fill(stream, 3 * SECOND, 2560, step=1000, first=1000)
    text = told(summary, "behaviour")
    assert "2,560 tuples" in text
    jumps = "zones are cut at jumps of behaviour, 1 so far"
    assert jumps in told(summary, "open") and jumps == summary.cutting
    assert "the 256 tuples after it differ" in text
    assert "effect = 0.2" in text


def test_a_cut_that_turns_out_to_stand_where_behaviour_changed_is_absorbed_as_that():
    stream, summary = make(options=Options(buckets=4, maxlength=512, tolerance=1000.0))
    fill(stream, 0, 512, step=1000)
    assert told(summary, "maxlength")
    fill(stream, SECOND, 300, step=1000, first=1000)
    assert "512 tuples" in told(summary, "behaviour")
    stream.advance(2 * MINUTE)
    absorbed = {a.reason: (a.zones, a.tuples) for a in summary.story(2, 0).absorbed}
    assert absorbed == {"behaviour": (1, 512), "boundary": (1, 300)}


def test_a_zone_ended_by_its_block_and_the_one_after_it():
    stream, summary = make("grid")
    fill(stream, 0, 90)
    assert "its block of T_1 = 1 minute ended at 1970-01-01 00:01" in told(summary, "boundary")
    assert "It begins with its block. Zone 1 before it had ended with the block before." in told(summary, "open")


def test_late_tuples_wait_and_are_counted_when_they_collapse():
    stream, summary = make(lateness=MINUTE)
    fill(stream, 0, 90)
    stream.append(columns([5 * SECOND, 6 * SECOND], [1, 2]))
    assert "2 tuples" in told(summary, "late")
    assert "fewer join the block when it collapses" in told(summary, "late")
    fill(stream, 5 * MINUTE, 1)
    text = told(summary, "calendar", 2)
    assert "It took in 1 zone of G_1 with 60 tuples: 1 ended with a block (60 tuples)." in text
    assert "2 tuples arrived late" in text
    assert "zones of G_2 are T_1 = 1 minute long" in text


def test_a_full_zone_of_late_tuples_counts_as_late():
    stream, summary = make("grid", lateness=MINUTE)
    fill(stream, 0, 90)
    fill(stream, 0, 300, step=1000)
    assert "consists of late tuples" in told(summary, "maxlength")
    stream.advance(2 * MINUTE)
    absorbed = {a.reason: (a.zones, a.tuples) for a in summary.story(2, 0).absorbed}
    assert absorbed == {"boundary": (1, 60), "late": (2, 300)}


def test_the_last_granularity_expires():
    stream, summary = make()
    fill(stream, 0, 600)
    text = told(summary, "calendar", 3)
    assert "It is removed when the watermark reaches" in text
    assert "the stream keeps 16 minutes" in text


@pytest.mark.parametrize("granularity", [0, 4, -1, "1", None])
def test_a_granularity_there_is_not(granularity):
    stream, summary = make()
    fill(stream, 0, 5)
    with pytest.raises(BadQuestion, match="granularities 1 to 3"):
        summary.story(granularity, 1)


def test_zones_there_are_not():
    stream, summary = make()
    with pytest.raises(UnknownName, match="no zone 1 in G_1: never there, or aged since"):
        summary.story(1, 1)  # the open zone has a number before it has tuples
    fill(stream, 0, 5)
    assert summary.story(1, 1).zone.tuples == 5
    stream.advance(10 * MINUTE)
    for granularity in (1, 2):
        with pytest.raises(UnknownName):
            summary.story(granularity, 1)


def test_without_structure_there_are_no_stories():
    stream, summary = make("none")
    fill(stream, 0, 5)
    with pytest.raises(BadQuestion, match="STRUCTURE none"):
        summary.story(1, 0)


steps = st.lists(
    st.tuples(
        st.sampled_from(["on", "late", "other", "advance"]), st.integers(1, 700), st.integers(0, 12), st.integers(0, 9)
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(60))
@given(steps=steps, structure=st.sampled_from(["time", "grid", "adaptive"]), lateness=st.sampled_from([0, 7, 90]))
def test_whatever_happened_what_was_absorbed_adds_up(steps, structure, lateness):
    stream = Stream("s", SCHEMA, "ts", lateness=lateness, clock=ManualClock(10**9), max_tuples=20_000, keep=320)
    summary = stream.create_summary("a", "k", granularity=20, collapse=(2, 3), structure=structure, options=SMALL)
    state = summary.state
    assert isinstance(state, SummaryState)
    now = 0
    for what, n, reach, seed in steps:
        rng = np.random.default_rng(seed)
        if what == "advance":
            stream.advance(now + n)
        else:
            times = now + np.sort(rng.integers(0, 5 * reach + 1, n)) - (what == "late") * rng.integers(0, 60, n)
            stream.append(columns(times, rng.integers(0, 9, n) + 100 * seed * (what == "other")))
            now = max(now, int(times.max()))
        zones = summary.describe().zones
        cuts = {z.zone: (z.reason, z.tuples) for z in zones if z.granularity == 1}
        for block in state.fine.blocks.values():  # what will be absorbed stands at what the zones say now
            mine = [("late" if z.late else cuts[z.number][0], z.count) for z in block.zones]
            expected = [[sum(r == reason for r, _ in mine), sum(t for r, t in mine if r == reason)] for reason in TAKEN]
            assert block.whole.taken.tolist() == expected
        for zone in zones:
            story = summary.story(zone.granularity, zone.zone)
            assert story.zone == zone
            assert all(line.endswith(".") for line in story.lines)
            if zone.granularity > 1:
                assert sum(a.tuples for a in story.absorbed) == zone.tuples
                assert all(a.zones > 0 or a.reason == "late" for a in story.absorbed)
            else:
                assert story.absorbed == ()


@settings(max_examples=examples(40))
@given(granularity=st.integers(1, 3), at=st.integers(-500, 500), rate=st.integers(2, 4))
def test_a_zone_leaves_when_its_story_says(granularity, at, rate):
    """It is there one microsecond before, and gone at that watermark."""
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(10**9), max_tuples=500, keep=80 * rate)
    summary = stream.create_summary("a", "k", granularity=10, collapse=(rate, 3), options=SMALL)
    geometry = summary.state.identity.geometry
    stream.append(columns([at], [1]))
    for g in range(1, granularity + 1):
        (zone,) = summary.describe().zones
        assert zone.granularity == g
        start = at // 10 * 10 if g == 1 else zone.start
        leaving = leaves(geometry, g, start)
        stream.advance(leaving - 1)
        assert summary.describe().zones[0].granularity == g
        stream.advance(leaving)
        assert [z.granularity for z in summary.describe().zones] == ([] if g == 3 else [g + 1])
