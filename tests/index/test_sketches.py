"""The sketch of a window against the same sketch made tuple by tuple, and the join sizes told from two of them."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from promising.errors import UnknownName
from promising.index import Options, Stream, SummaryIndex
from promising.index.regions import ZoneInfo
from promising.index.sketches import window_counts
from promising.query.join_cardinality import join_size
from promising.summaries.counts import WindowCounts
from promising.summaries.hashing import hash_keys
from promising.summaries.sketch_counts import SketchCounts
from promising.testing import ManualClock
from promising.testing.streams import zipf_law
from tests.conftest import NO_JIT
from tests.index.kernels.plain import sketch
from tests.index.world import SMALL, Columns, columns
from tests.tiers import examples

EVER = 1 << 61
SCHEMA = {"ts": "timestamp", "k": "int", "s": "string", "id": "int", "x": "float"}
TUNED = Options(buckets=2, depth=3, width=8, maxlength=256, tolerance=0.5, filter_bits=64, coarse_bits=64)


def summarised(
    options: Options, structure: str = "adaptive", key: str = "k", seed: int = 5, lateness: int = 0
) -> tuple[Stream, SummaryIndex]:
    clock = ManualClock(1 << 50)
    stream = Stream("s", SCHEMA, "ts", clock=clock, seed=seed, max_tuples=8192, lateness=lateness, keep=1600)
    summary = stream.create_summary("a", key, granularity=100, collapse=(2, 3), structure=structure, options=options)
    return stream, summary


def rebuilt(stream: Stream, summary: SummaryIndex, start: int, end: int) -> WindowCounts:
    """Zone by zone, as the summary describes them; tuples of the open zone and late ones count one by one."""
    sizes = summary.state.identity.sizes
    start = max(start, summary.state.oldest)
    kind = sizes.counts
    shape = (kind.buckets, kind.depth, kind.width)
    inside, across = np.zeros(shape), np.zeros(shape)
    tuples = covered = 0.0
    for zone in summary.describe().zones:
        cells = [summary.visit((zone.granularity, zone.zone, b)) for b in range(sizes.buckets)]
        rows = np.concatenate(cells)
        table = stream.take(rows)
        times = table.column("ts").cast("int64").to_numpy()
        keys = table.column(summary.key).combine_chunks()
        hashes = hash_keys(keys.to_numpy() if summary.key == "k" else keys, stream.seed).view(np.int64)
        loose = zone.reason in ("open", "late")
        member = (times >= start) & (times < end)
        if loose or member.all():
            inside += sketch(hashes[member].tolist(), *shape)
        elif times.min() < end and times.max() >= start:
            across += sketch(hashes.tolist(), *shape)
            part = member.mean() if zone.granularity == 1 else by_spans(zone, times, start, end)
            tuples += len(times)
            covered += len(times) * part
    return known(inside, across, covered / tuples if tuples else 0.0)


def known(inside: NDArray[Any], across: NDArray[Any], share: float) -> WindowCounts:
    """Of counters [bucket][row][column]."""
    kind = SketchCounts(*inside.shape)
    states = []
    for counters in (inside, across):
        states.append(kind.allocate(1, "window"))
        states[-1].counters[0] = counters.reshape(-1)
    return WindowCounts(kind, states[0], states[1], share)


def by_spans(zone: ZoneInfo, times: NDArray[np.int64], start: int, end: int) -> float:
    """The share of a calendar zone: a quarter across an edge (100 is divisible by 4, not by 8) counts by time."""
    found, length = 0.0, (zone.end - zone.start) // 4
    for first in range(zone.start, zone.end, length):
        held = int(((times >= first) & (times < first + length)).sum())
        low, high = max(first, times.min()), min(first + length, times.max() + 1)
        if held:
            found += held * max(min(high, end) - max(low, start), 0) / (high - low)
    return found / len(times)


def batch(seed: int, n: int, first: int, last: int, at: int = 0, keys: int = 30) -> Columns:
    rng = np.random.default_rng(seed)
    return columns(np.sort(rng.integers(first, last, n)), rng.choice(keys, n, p=zipf_law(keys, 1.0)), at)


def same(found: WindowCounts | None, expected: WindowCounts) -> None:
    assert found is not None
    for part in ("inside", "across"):
        assert (getattr(found, part).counters == getattr(expected, part).counters).all()
    assert found.share == pytest.approx(expected.share)
    assert 0.0 <= found.share <= 1.0


@pytest.mark.kernel
@settings(max_examples=examples(3 if NO_JIT else 40))
@given(
    st.integers(0, 999),
    st.sampled_from([SMALL, TUNED]),
    st.sampled_from(["time", "grid", "adaptive"]),
    st.sampled_from(["k", "s"]),
    st.lists(st.tuples(st.integers(-100, 1500), st.integers(0, 900)), min_size=1, max_size=4),
)
def test_any_window(seed, options, structure, key, windows):
    """Over zones of every granularity, late tuples in closed blocks and the open zone; some tuples are gone."""
    stream, summary = summarised(options, structure, key, lateness=150)
    at = 0
    for first in range(0, 1300, 100):
        n = 20 + seed % 30
        stream.append(batch(seed + first, n, first, first + 120, at))
        late = batch(seed + first + 1, 6, max(first - 90, 0), first + 10, at + n)
        stream.append(late)
        at += n + 6
    for start, length in windows:
        same(window_counts(summary, (start, start + length)), rebuilt(stream, summary, start, start + length))
    same(window_counts(summary, None), rebuilt(stream, summary, -EVER, EVER))


@pytest.mark.kernel
def test_the_edges_are_exact_where_tuples_are_loose():
    stream, summary = summarised(SMALL)
    stream.append(columns([10, 20, 30, 40], [1, 2, 3, 4]))
    for start, end, keys in [(20, 40, [2, 3]), (21, 40, [3]), (20, 41, [2, 3, 4]), (0, 10, []), (30, 30, [])]:
        found = window_counts(summary, (start, end))
        assert found is not None
        hashes = hash_keys(np.array(keys, np.int64), stream.seed).view(np.int64).tolist()
        assert (found.inside.counters == sketch(hashes, 4, 3, 8).reshape(-1)).all()
        assert not found.across.counters.any() and found.share == 0.0


@pytest.mark.kernel
def test_a_zone_across_an_edge_is_told_apart():
    stream, summary = summarised(SMALL, "time")
    stream.append(columns(range(0, 100), [5] * 100))
    stream.append(columns([700], [6], 100))  # what came before is now in zones of their own length
    whole = window_counts(summary, (0, 701))
    part = window_counts(summary, (30, 701))
    assert whole is not None and part is not None
    for window, inside in [((0, 100), 100), ((0, 99), 0), ((1, 100), 0)]:  # the last is at 99
        edge = window_counts(summary, window)
        assert edge is not None
        assert (np.abs(edge.inside.counters).max(), np.abs(edge.across.counters).max()) == (inside, 100 - inside)
    assert not whole.across.counters.any() and whole.share == 0.0
    assert np.abs(whole.inside.counters).max() == 100
    assert np.abs(part.inside.counters).max() == 1 and np.abs(part.across.counters).max() == 100
    assert part.share == pytest.approx(0.7)


def test_tuples_that_have_aged_are_in_no_sketch():
    stream, summary = summarised(SMALL)
    stream.append(batch(1, 300, 0, 300))
    stream.append(columns([5000], [3], 300))
    found = window_counts(summary, (-EVER, EVER))
    assert found is not None
    assert np.abs(found.inside.counters).sum() == SMALL.depth and not found.across.counters.any()


def test_without_structure_there_is_none_and_a_dropped_summary_says_so():
    stream, summary = summarised(SMALL, "none")
    stream.append(batch(1, 30, 0, 100))
    assert window_counts(summary, None) is None
    stream, summary = summarised(SMALL)
    stream.drop_summary("a")
    with pytest.raises(UnknownName):
        window_counts(summary, None)


# --- join sizes --------------------------------------------------------------------------------------------------

Side = tuple[NDArray[np.int64], NDArray[np.int64]]


def pairs(a: Side, b: Side, start: int, end: int) -> int:
    counts = [Counter(keys[(times >= start) & (times < end)].tolist()) for times, keys in (a, b)]
    return sum(n * counts[1][k] for k, n in counts[0].items())


def trials(options: Options, window: tuple[int, int], exponent: float, n: int = 1000) -> NDArray[np.float64]:
    """[trial, (truth, value, lower, upper)] of joins of two streams, under another key hash in each trial."""
    out = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sides, sketches, shared = [], [], int(rng.integers(1 << 60))
        for _ in range(2):
            times = np.sort(rng.integers(0, 900, n))
            keys = rng.choice(200, n, p=zipf_law(200, exponent))
            stream, summary = summarised(options, seed=shared)
            for first in range(0, n, 250):
                part = slice(first, first + 250)
                stream.append(columns(times[part], keys[part], first))
            sides.append((times, keys))
            found = window_counts(summary, window)
            assert found is not None
            sketches.append(found)
            oldest = summary.state.oldest
        guess = join_size(sketches[0], sketches[1])
        assert guess is not None
        out.append((pairs(sides[0], sides[1], max(window[0], oldest), window[1]), *guess))
    return np.array(out, np.float64)


NARROW = Options(buckets=2, depth=5, width=16, maxlength=256, tolerance=4.0, filter_bits=64, coarse_bits=64)


@pytest.mark.deep("statistics over many trials")
@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("window", [(-EVER, EVER), (650, EVER), (333, 777)], ids=["all", "recent", "across"])
def test_the_bounds_of_a_join_size_hold(exponent, window):
    found = trials(NARROW, window, exponent)
    truth, value, lower, upper = found.T
    assert (lower >= 0).all() and (lower <= value).all() and (value <= upper).all()
    assert ((lower <= truth) & (truth <= upper)).mean() >= 0.95
    if window != (333, 777):
        assert (upper < 1000 * 1000 / 2).all(), "bounds that say something"
        assert np.abs(value - truth).mean() < 0.6 * truth.mean()
        assert abs((value - truth).mean()) < 4 * (value - truth).std() / np.sqrt(len(found)), "no bias"
    assert (np.abs(value - truth) > 0).any(), "a sketch this narrow errs"


@pytest.mark.deep("statistics over many trials")
def test_a_wide_sketch_knows_the_join_size():
    wide = Options(buckets=16, depth=5, width=1024, maxlength=2000, filter_bits=128, coarse_bits=128)
    truth, value, lower, upper = trials(wide, (-EVER, EVER), 1.0, n=300)[:10].T
    assert np.abs(value / truth - 1).max() < 0.02
    assert (lower > 0.8 * truth).all() and (upper < 1.2 * truth).all()


def test_what_lies_across_an_edge_widens_the_bounds_by_what_it_may_be():
    """Counters of one key alone, so that there is nothing to err: only the tuples across are in doubt."""
    one = np.zeros((1, 1, 1 << 16))
    one[0, 0, 3] = 1.0
    a, b = known(10 * one, 4 * one, 0.25), known(5 * one, 2 * one, 0.5)
    guess = join_size(a, b)
    assert guess is not None
    assert guess.value == 11.0 * 6.0
    assert 0.8 * 50.0 < guess.lower < 50.0 and 98.0 < guess.upper < 1.2 * 98.0


def test_sketches_of_different_shapes_say_nothing():
    a, b = (known(np.zeros((1, 3, w)), np.zeros((1, 3, w)), 0.0) for w in (8, 16))
    assert join_size(a, b) is None
    assert join_size(a, a) == (0.0, 0.0, 0.0)
