"""`OPTIONS (postings = off)`: the same zones and cells, nothing by key, and tuples found through filters."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from promising.errors import BadOptions
from promising.index import Options, Stream
from promising.index.check import check_stream
from promising.index.kernels.unposted import count_keys
from promising.index.summary import SummaryState
from promising.index.unposted import candidates, cells_with, counted
from promising.index.zone import Tuples, distinct
from promising.summaries.hashing import hash_keys
from promising.testing import ManualClock
from tests.index.world import SCHEMA, SMALL, columns, flat, restarted

CLOCK = ManualClock(10**9)
OFF = replace(SMALL, postings=False)


def make(seed: int, *, measures: tuple[str, ...] = (), options: Options = SMALL) -> Stream:
    """Summaries with and without postings of one column, fed alike: late tuples, cuts, collapses, some of it aged."""
    rng = np.random.default_rng(seed)
    stream = Stream("s", SCHEMA, "ts", lateness=25, clock=CLOCK, keep=700, seed=7)
    for name, given in (("on", options), ("off", replace(options, postings=False))):
        stream.create_summary(name, "k", granularity=40, collapse=(2, 4), options=given, measures=measures)
    newest = 0
    for batch in range(16):
        n = int(rng.integers(1, 1_200))
        times = newest + np.cumsum(rng.exponential(0.1, n)).astype(np.int64)
        newest = int(times[-1])
        times -= (rng.random(n) < 0.2) * rng.integers(0, 300, n)
        stream.append(columns(np.maximum(times, 0), rng.zipf(1.4, n) % 50 + 7 * (batch // 5), stream.accepted))
        if batch == 6:
            stream = restarted(stream, CLOCK)
    return stream


def zones_of(stream: Stream, name: str) -> Any:
    """All a summary has but postings, and what they know of the open zone."""
    image = stream.summaries[name].state.image()
    for part in ("keys", "counts"):
        del image["fine"][part]
    del image["postings"]
    return flat(image)


@pytest.mark.parametrize("measures", [(), ("moments(x)", "distinct(s)")])
def test_zones_are_those_of_a_summary_with_postings(measures):
    for seed in range(3):
        stream = make(seed, measures=measures)
        assert len(stream.summaries["on"].describe().cuts) > 1
        assert zones_of(stream, "off") == zones_of(stream, "on")
        assert check_stream(stream) == []


def test_measures_that_begin_in_the_middle_of_a_zone():
    stream = make(1)
    for name in ("on", "off"):
        list(stream.set_measures(name, ["moments(x)"]))
    stream.append(columns(np.full(300, stream.latest), np.arange(300) % 9, stream.accepted))
    assert zones_of(stream, "off") == zones_of(stream, "on")
    assert check_stream(stream) == []


@pytest.mark.parametrize("window", [None, (500, 800), (5, 5)])
def test_probes_find_what_postings_find_in_their_order(window):
    for seed in range(3):
        stream = make(seed)
        on, off = (stream.summaries[name] for name in ("on", "off"))
        for keys in ([3, 7, 3, 999], list(range(60)), [], [12]):
            asked = np.array(keys, np.int64)
            found, known = off.probe(asked, window), on.probe(asked, window)
            assert found.probe.tolist() == known.probe.tolist() and found.rows.tolist() == known.rows.tolist()
            estimated = off.estimate(asked, window)
            assert (estimated.lower <= estimated.value).all() and (estimated.value <= estimated.upper).all()


def test_cells_without_the_key_are_not_read():
    stream = Stream("s", SCHEMA, "ts", clock=CLOCK, seed=7)
    options = Options(buckets=16, maxlength=256, postings=False)
    summary = stream.create_summary("off", "k", granularity=100, collapse=(2, 3), options=options)
    n = 20_000
    stream.append(columns(np.arange(n) // 10, np.arange(n)))
    state = summary.state
    assert isinstance(state, SummaryState)
    for key in (5, 12_345, n + 1):
        hashes = hash_keys(np.array([key]), 7).view(np.int64)
        cells = cells_with(state, hashes, 0, n)
        read = sum(map(len, candidates(cells, state.identity.sizes, state.hashes)))
        assert read < n // 10
        assert len(summary.probe([key])) == (key < n)


def test_a_large_zone_is_sorted_in_slices():
    """As at once, unless tuples arrive meanwhile: then it is left as it is."""
    stream = make(2)
    state = stream.summaries["off"].state
    assert isinstance(state, SummaryState)
    sizes, zones = state.identity.sizes, list(state.coarse.levels[3].values())
    assert len(zones) > 3
    for zone in zones:
        whole, parts = Tuples(zone.tuples.rows.copy()), Tuples.of(zone.tuples.stretches.copy())
        assert len(list(parts.sorting(zone.cells, sizes, state.hashes, 64))) == -(-len(parts) // 64) > 2
        for bucket in range(sizes.buckets):
            assert parts.cell(bucket, sizes, state.hashes).tolist() == whole.cell(bucket, sizes, state.hashes).tolist()
        late = Tuples(zone.tuples.rows.copy())
        sorting = late.sorting(zone.cells, sizes, state.hashes, 64)
        next(sorting)
        late.extend(Tuples(np.array([7], np.int32)))
        assert list(sorting) and late.starts is None
        assert not list(late.sorting(zone.cells, sizes, state.hashes, 64))


def test_it_takes_no_bytes_for_keys():
    stream = Stream("s", SCHEMA, "ts", clock=CLOCK, seed=7)
    sizes = [
        stream.create_summary(name, "k", granularity=10_000, options=Options(postings=name == "on"))
        for name in ("on", "off")
    ]
    n = 100_000
    stream.append(
        {**columns([0], [0]), "ts": np.arange(n) // 20, "k": np.arange(n)}
        | {name: [None] * n if name == "x" else ["" if name == "s" else 0] * n for name in ("s", "id", "x")}
    )
    on, off = (summary.describe() for summary in sizes)
    assert off.key_bytes == off.keys == 0 and off.tuple_bytes == on.tuple_bytes - 4
    assert off.bytes + 36 * n < on.bytes
    assert off.bytes <= off.sketch_bytes + n * off.tuple_bytes
    stream.drop_summary("on")
    assert stream._summaries.postings_bytes == 4 * n


def test_keys_are_counted_as_by_sorting():
    rng = np.random.default_rng(3)
    for n in (0, 1, 2, 1_000):
        hashes = rng.integers(-(n // 3) - 1, n // 3 + 1, n)
        keys, counts = counted(hashes)
        order = np.argsort(keys)
        expected = distinct(hashes)
        assert (keys[order] == expected[0]).all() and (counts[order] == expected[1]).all()
    full = np.arange(6)
    assert count_keys(full, np.zeros(8, np.int32), np.empty(6, np.int64), np.empty(6, np.int32)) == 6


def test_what_the_option_takes():
    wrong: list[Any] = [1, "off", None]
    for value in wrong:
        with pytest.raises(BadOptions, match="postings must be on or off"):
            Options(postings=value)
    with pytest.raises(BadOptions, match="STRUCTURE auto"):
        Stream("s", SCHEMA, "ts").create_summary("a", "k", granularity=40, structure="auto", options=OFF)


def test_zones_that_collapse_meanwhile_are_read_once():
    stream, asked = make(0), np.arange(60)
    hashes = hash_keys(asked, 7).view(np.int64)
    state = stream.summaries["off"].state
    assert isinstance(state, SummaryState)
    for _ in range(12):
        rows = state.log.rows()
        held = np.isin(stream.take(rows, ["k"])["k"].to_numpy(), asked) & (state.log.when(rows) >= state.oldest)
        reading = candidates(cells_with(state, hashes, 0, 1 << 40), state.identity.sizes, state.hashes)
        parts = [next(reading)]
        assert stream.watermark is not None
        stream.set_watermark(stream.watermark + 40)
        found = np.concatenate([*parts, *reading])
        assert len(np.unique(found)) == len(found)
        assert set(found.tolist()) >= set(rows[held].tolist())
