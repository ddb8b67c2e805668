"""Zones of `G_1`: cut where the stream changes, for a reason that is kept, and never more than there is room for."""

import itertools

import numpy as np
import pytest

from benchmarks.zones import MAKERS, against_fixed, delay, false_cuts, summarised
from promising.errors import BadOptions
from promising.index import Options, Stream
from promising.index.kernels.open_zone import ROW, WINDOW
from promising.index.summary_index import SummaryIndex
from promising.summaries.hashing import hash_keys
from promising.testing import streams

SECOND = 1_000_000


def new_stream(
    granularity: int, collapse=(2, 2), lateness=0, room=1 << 16, options=None, keep=None
) -> tuple[Stream, SummaryIndex]:
    schema = {"ts": "timestamp", "item_id": "int"}
    stream = Stream("s", schema, time="ts", clock=lambda: 1 << 60, max_tuples=room, lateness=lateness, keep=keep)
    summary = stream.create_summary("s", key="item_id", granularity=granularity, collapse=collapse, options=options)
    return stream, summary


def of_one_key(n: int, key: int = 7) -> streams.Columns:
    return {"ts": np.arange(n, dtype=np.int64), "item_id": np.full(n, key, np.int64)}


def sealed(summary: SummaryIndex):
    """Zones of `G_1` that have been cut, in order of cutting."""
    found = [z for z in summary.describe().zones if z.granularity == 1 and z.reason not in ("open", "late")]
    return sorted(found, key=lambda z: z.zone)


# --- behaviour -----------------------------------------------------------------------------------------------------


@pytest.mark.deep("statistics over many streams")
def test_a_stationary_stream_is_hardly_ever_cut_for_behaviour():
    false = cuts = 0
    for exponent, items in itertools.product((0.8, 0.9, 1.0, 1.1, 1.2, 1.3), (100, 2000, 40_000)):
        for maxlength in (2048, 16384):
            f, c = false_cuts(400_000, items, exponent, maxlength, seed=items + maxlength)
            false, cuts = false + f, cuts + c
    assert cuts >= 1000
    assert false <= 0.01 * cuts


def test_the_detector_was_awake_all_through_a_stationary_stream():
    """Once zones run short nothing is cut for behaviour any more; the test above must not pass by that."""
    columns = streams.zipf(400_000, 2000, 1.3, seed=1)
    columns["item_id"][390_000:] += 1000
    assert summarised(columns).describe().cuts.get("behaviour", 0) >= 1


@pytest.mark.deep("statistics over many streams")
@pytest.mark.parametrize(
    ("items", "exponent"),
    [(100, 1.1), (2000, 0.8), (2000, 1.1), (40_000, 0.8), (40_000, 0.9), (40_000, 1.1), (40_000, 1.3)],
)
def test_a_rotation_of_the_popular_items_is_cut_within_512_tuples(items, exponent):
    delays = [delay(items, exponent, seed) for seed in range(100)]
    assert sum(d is not None and d <= 512 for d in delays) >= 95


def test_the_zone_after_a_rotation_begins_near_it():
    for seed in range(20):
        at = 10_000 + 37 * seed
        zones = sealed(summarised(streams.rotation(at + 4000, 2000, 1.1, at=[at], seed=seed)))
        borders = np.cumsum([z.tuples for z in zones])
        assert np.abs(borders - at).min() <= WINDOW


def test_where_a_stream_is_cut_does_not_depend_on_its_batches():
    columns = streams.rotation(40_000, 2000, 1.1, at=[7_777, 20_001], seed=3)
    whole = [(z.tuples, z.reason) for z in sealed(summarised(columns))]
    rng = np.random.default_rng(3)
    stream, summary = new_stream(1 << 45)
    start = 0
    while start < 40_000:
        stop = start + int(rng.integers(1, 3000))
        stream.append({name: columns[name][start:stop] for name in ("ts", "item_id")})
        start = stop
    assert [(z.tuples, z.reason) for z in sealed(summary)] == whole
    assert [reason for _, reason in whole].count("behaviour") >= 2


def ratio(maker: str, n: int, seeds: int) -> float:
    """The error of adaptive zones against that of as many fixed ones."""
    adaptive = fixed = 0.0
    for seed in range(seeds):
        ours, theirs, zones, many = against_fixed(MAKERS[maker](n, seed), seed)
        assert abs(many - zones) <= 1
        adaptive, fixed = adaptive + ours, fixed + theirs
    return adaptive / fixed


@pytest.mark.parametrize("jumps", ["rotations", "bursts"])
def test_at_jumps_adaptive_zones_err_half_as_much_as_fixed_ones_at_most(jumps):
    assert ratio(jumps, 100_000, 2) <= 0.5


@pytest.mark.deep("statistics over many streams")
@pytest.mark.parametrize("drift", ["fast drift", "slow drift", "no drift"])
def test_elsewhere_adaptive_zones_err_no_more_than_fixed_ones(drift):
    assert ratio(drift, 150_000, 3) <= 1.02


def test_drift_is_not_cut_but_a_jump_in_it_is():
    columns = streams.drift(60_000, 2000, 1.1, seed=2)
    assert summarised(columns).describe().cuts.get("behaviour", 0) == 0
    columns["item_id"][40_000:] = (columns["item_id"][40_000:] + 700) % 2000
    borders = np.cumsum([zone.tuples for zone in sealed(summarised(columns))])
    assert np.abs(borders - 40_000).min() <= WINDOW


def test_zones_cut_for_error_have_one_length_while_items_even_out():
    """F2 halves, and cut by F2 alone zones would grow by two fifths."""
    summary = summarised(streams.drift(120_000, 2000, 1.1, seed=2))
    lengths = [zone.tuples for zone in sealed(summary)]
    assert {zone.reason for zone in sealed(summary)} == {"error"}
    assert max(lengths[2:]) <= 1.05 * min(lengths)


# --- every cut has its reason --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [8.0, 32.0, 50.0])
def test_error_cuts_a_zone_as_soon_as_its_estimates_are_too_uncertain(tolerance):
    """n tuples of one key have F2 = n^2; the error of an estimate is sqrt(F2 / counters of a row)."""
    options = Options(tolerance=tolerance)
    summary = summarised(of_one_key(20_000), options=options)
    limit = tolerance * np.sqrt(options.buckets * options.width)
    expected = int(limit // WINDOW + 1) * WINDOW
    zones = sealed(summary)
    assert {(z.tuples, z.reason) for z in zones} == {(expected, "error")}
    assert summary.describe().cuts == {"error": 20_000 // expected}


def test_maxlength_cuts_a_zone_that_nothing_else_does():
    summary = summarised(streams.uniform(10_000, 5000, seed=1), options=Options(maxlength=1000))
    assert [(z.tuples, z.reason) for z in sealed(summary)] == [(1000, "maxlength")] * 10


def test_a_boundary_cuts_a_zone_at_every_multiple_of_the_granularity():
    stream, summary = new_stream(10 * SECOND, lateness=100 * SECOND)
    columns = streams.uniform(4_500, 5000, seed=1, rate=100.0)
    stream.append({name: columns[name] for name in ("ts", "item_id")})
    blocks, sizes = np.unique(columns["ts"] // (10 * SECOND), return_counts=True)
    zones = sealed(summary)
    assert [(z.tuples, z.reason) for z in zones] == [(n, "boundary") for n in sizes[:-1]]
    assert [z.start // (10 * SECOND) for z in zones] == blocks[:-1].tolist()
    assert all((z.end - 1) // (10 * SECOND) == z.start // (10 * SECOND) for z in zones)


def test_behaviour_is_a_reason_and_all_reasons_are_counted():
    stream, summary = new_stream(40 * SECOND, lateness=200 * SECOND, room=1 << 17, options=Options(maxlength=6000))
    columns = streams.rotation(100_000, 2000, 1.2, at=[10_000, 70_000], seed=5)
    columns["item_id"][45_000:60_000] = 3
    stream.append({name: columns[name] for name in ("ts", "item_id")})
    zones = sealed(summary)
    reasons = [z.reason for z in zones]
    assert set(reasons) == {"error", "behaviour", "maxlength", "boundary"}
    assert {r: reasons.count(r) for r in set(reasons)} == summary.describe().cuts
    assert sum(z.tuples for z in summary.describe().zones) == 100_000


def test_a_change_seen_right_after_another_cut_is_told_by_that_cut():
    """A zone is cut by its error and the very next window is of new behaviour: there is nothing between to cut."""
    columns = of_one_key(6000)
    columns["item_id"][2304:] = np.random.default_rng(1).integers(10, 5000, 6000 - 2304)
    zones = sealed(summarised(columns))
    assert [(z.tuples, z.reason) for z in zones] == [(2304, "behaviour")]


# --- bounds --------------------------------------------------------------------------------------------------------


def test_sixteen_bits_hold_the_longest_zone_of_a_single_key():
    longest = 32767
    options = Options(maxlength=longest, tolerance=1e9)
    summary = summarised(of_one_key(2 * longest + 5), options=options)
    regions = summary.regions([7])
    assert [(z.tuples, z.reason) for z in sealed(summary)] == [(longest, "maxlength")] * 2
    assert regions.estimate.tolist() == [longest, longest, 5]
    assert summary.estimate([7]).value.tolist() == [2 * longest + 5]


def test_longer_zones_than_sixteen_bits_hold_are_refused():
    with pytest.raises(BadOptions, match="32767"):
        Options(maxlength=32768)


def test_late_tuples_of_a_single_key_do_not_overflow_either():
    longest = 32767
    options = Options(maxlength=longest, tolerance=1e9)
    stream, summary = new_stream(SECOND, lateness=10 * SECOND, room=1 << 18, options=options)
    stream.append({"ts": [0, SECOND], "item_id": [7, 7]})
    late = of_one_key(longest + 40_000)
    stream.append(late)
    assert [(z.tuples, z.reason) for z in sealed(summary)] == [(1, "boundary"), *[(longest, "maxlength")] * 2]
    assert summary.estimate([7]).value.tolist() == [longest + 40_002]
    stream.advance(5 * SECOND // 2)  # the block collapses: 16 bits no longer hold it, 32 do
    assert summary.estimate([7]).value.tolist() == [longest + 40_002]


def everchanging(n: int, spell: int, start: int) -> streams.Columns:
    """A new favourite every `spell` tuples, for ever: as many changes as can be seen."""
    at = np.arange(start, start + n, dtype=np.int64)
    return {"ts": at * 100, "item_id": at // spell}


@pytest.mark.parametrize("spell", [256, 512])
def test_a_stream_that_always_changes_runs_out_of_cuts_not_of_memory(spell):
    stream, summary = new_stream(6 * SECOND, room=1 << 20, options=Options(maxlength=8192), keep=48 * SECOND)
    most = summary.state.identity.sizes.zones
    reasons: set[str] = set()
    for start in range(0, 1 << 21, 1 << 14):
        stream.append(everchanging(1 << 14, spell, start))
        described = summary.describe()
        assert len(sealed(summary)) <= most
        assert described.bytes <= described.ceiling
        assert described.tuples == sum(z.tuples for z in described.zones)
        reasons |= {z.reason for z in sealed(summary)}
    assert {"behaviour", "maxlength"} <= reasons  # cut for behaviour while there is room, by length when there is not


def test_cutting_for_behaviour_goes_on_when_old_zones_have_left():
    stream, summary = new_stream(6 * SECOND, room=1 << 20, options=Options(maxlength=8192), keep=48 * SECOND)
    for start in range(0, 1 << 20, 1 << 14):
        stream.append(everchanging(1 << 14, 256, start))
    before = summary.describe().cuts["behaviour"]
    for start in range(1 << 20, 1 << 21, 1 << 14):
        stream.append(everchanging(1 << 14, 256, start))
    assert summary.describe().cuts["behaviour"] > before


def test_a_block_for_every_tuple_fits_too():
    """Every block of `G_1` takes a group of zones; a sparse stream makes as many blocks as the lateness allows."""
    stream, summary = new_stream(SECOND, lateness=50 * SECOND, room=1 << 14)
    rng = np.random.default_rng(2)
    sent = 0
    for second in range(0, 400, 3):
        late = second - rng.integers(0, 50, 5)
        stream.append({"ts": (np.array([second, *late]).clip(0)) * SECOND, "item_id": rng.integers(0, 9, 6)})
        sent += 6
        described = summary.describe()
        assert described.bytes <= described.ceiling
        assert described.tuples + described.expired == sent


def test_two_spells_that_cancel_out_in_the_detectors_row_are_still_two_behaviours():
    """Keys of the same place and of opposite signs: the sum of window and reference is nothing at all."""
    keys = np.arange(100_000, dtype=np.int64)
    words = hash_keys(keys, 0)
    place = (words >> np.uint64(1)) & np.uint64(ROW - 1) == np.uint64(5)
    plus, minus = keys[place & (words & np.uint64(1) == 0)][0], keys[place & (words & np.uint64(1) == 1)][0]
    columns = of_one_key(2 * WINDOW, int(plus))
    columns["item_id"][WINDOW:] = minus
    assert [(z.tuples, z.reason) for z in sealed(summarised(columns))] == [(WINDOW, "behaviour")]


@pytest.mark.parametrize("lateness", [0, 3 * SECOND], ids=["at the end of a block", "in the middle of a block"])
def test_waking_up_takes_nothing_for_a_change_and_loses_nothing(lateness):
    """Old zones leave while half a window is in the open one: what the detector has not seen it must not judge."""
    options = Options(maxlength=4096, tolerance=10.0)
    stream, summary = new_stream(6 * SECOND, collapse=(2, 4), lateness=lateness, room=1 << 19, options=options)
    n = 60_100
    stream.append(everchanging(n, 256, 0))
    cuts = summary.describe().cuts
    assert cuts["maxlength"] >= 1  # zones have run short
    calm = streams.zipf(300_000, 500, 1.2, seed=2)["item_id"] + 1_000_000
    times = np.arange(n, n + len(calm), dtype=np.int64) * 100
    for start in range(0, len(calm), 997):
        part = slice(start, start + 997)
        stream.append({"ts": times[part], "item_id": calm[part]})
    described = summary.describe()
    assert described.cuts["behaviour"] == cuts["behaviour"]  # the change to calm went by unwatched
    assert described.cuts["error"] > cuts.get("error", 0)  # awake again
    assert described.tuples + described.expired == n + len(calm)
    keys, truth = np.unique(calm[times >= described.horizons[-1]], return_counts=True)
    estimates = summary.estimate(keys)
    assert (estimates.upper >= truth).mean() >= 0.95
    assert (estimates.lower <= truth).mean() >= 0.95
