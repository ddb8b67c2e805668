"""Spans, horizons and zones; and several summaries that share one watermark."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promising.errors import BadCollapse, BadGranularity, UnknownName
from promising.index import Options, Stream
from promising.index.geometry import Geometry
from promising.index.instants import BEGINNING, FARTHEST
from promising.testing import ManualClock, Oracle
from tests.index.world import SCHEMA, columns, ids, oracle_for, pairs, words

SMALL = Options(buckets=4, depth=3, width=8, maxlength=256, filter_bits=256, coarse_bits=512)

geometries = st.integers(1, 10**7).flatmap(
    lambda g: st.builds(
        Geometry,
        st.just(g),
        st.integers(2, 9),
        st.integers(1, 6),
        st.one_of(st.none(), st.integers(8 * g, 9 * g), st.integers(8 * g, 1 << 60)),
    )
)
watermarks = st.integers(-(1 << 60), 1 << 60)


@given(geometries, watermarks)
def test_horizons(g, watermark):
    horizons = g.horizons(watermark)
    assert len(horizons) == g.levels == len(g.spans) + 1 == len(g.reaches) + 1
    assert list(horizons) == sorted(horizons, reverse=True)
    assert horizons[-1] == g.oldest(watermark)
    if g.keep is None:
        assert horizons[-1] == BEGINNING
        assert g.spans[-1] * g.rate >= FARTHEST, "granularities follow until all of time is covered"
    else:
        longest = g.zone_length(g.levels)
        assert longest <= g.keep // 8 < longest * g.rate
        assert 0 <= watermark - g.keep - horizons[-1] < longest
        assert horizons[-1] % longest == 0
    for i, (horizon, span, reach) in enumerate(zip(horizons, g.spans, g.reaches, strict=False)):
        assert span == g.granularity * g.rate**i
        assert reach == sum(g.spans[: i + 1])
        if horizon == BEGINNING:
            continue
        assert horizon % span == 0
        assert reach <= watermark - horizon < reach + span  # so G_i spans from T_i to 2 T_i
        assert horizon % g.zone_length(i + 2) == 0  # a border of G_(i+1)'s zones, whose length is T_i


@given(geometries, watermarks, st.integers(0, 1 << 40))
def test_horizons_never_go_back(g, watermark, by):
    assert all(a <= b for a, b in zip(g.horizons(watermark), g.horizons(watermark + by), strict=True))


@given(
    st.integers(1, 500),
    st.integers(2, 5),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(4000, 10**6)),
    st.integers(-(10**6), 10**6),
    st.data(),
)
def test_the_oracle_agrees(granularity, rate, depth, keep, watermark, data):
    g = Geometry(granularity, rate, depth, keep)
    oracle = Oracle("ts", "k", granularity=granularity, collapse=(rate, depth), keep=keep, clock=ManualClock(0))
    oracle.advance(watermark)
    for i, horizon in enumerate(g.horizons(watermark), 1):
        assert horizon == BEGINNING or horizon == oracle.horizon(i)
    ts = watermark - data.draw(st.integers(0, 2 * (keep or 10**6)))
    place = oracle.zone_of(ts)
    assert (place is None) == (ts < g.oldest(watermark))
    if place is not None and place[0] > 1:
        assert place[1] == ts // g.zone_length(place[0])


@pytest.mark.parametrize(
    ("rate", "depth"), [(1, 3), (0, 3), (-2, 3), (2, 0), (2, -1), (2, 62), (1 << 61, 1), (2.0, 2), (2, "3")]
)
def test_bad_collapse(rate, depth):
    with pytest.raises(BadCollapse, match=str(rate if rate not in (2,) else depth)):
        Geometry(1, rate, depth)


def test_a_granularity_is_at_most_an_eighth_of_what_is_kept():
    assert Geometry(60, 2, 3, 480).levels == 2
    with pytest.raises(BadGranularity, match="at most an eighth"):
        Geometry(61, 2, 3, 480)


@pytest.mark.parametrize("granularity", [0, -1, 0.5, "60"])
def test_bad_granularity(granularity):
    with pytest.raises(BadGranularity, match=str(granularity)):
        Geometry(granularity, 2, 2)


# --- several summaries of one stream -----------------------------------------------------------------------------


SHAPES = {"short": ("k", 20, (2, 1)), "long": ("s", 35, (3, 3)), "odd": ("k", 26, (2, 2))}


def test_summaries_advance_together():
    """Each has whole zones of its own; a tuple is refused only if all are past it."""
    clock = ManualClock(0)
    stream = Stream("s", SCHEMA, "ts", clock=clock, max_tuples=20_000, max_future=1000, keep=500)
    made = {
        name: stream.create_summary(name, key, granularity=g, collapse=c, options=SMALL)
        for name, (key, g, c) in SHAPES.items()
    }
    oracles = {name: oracle_for(summary, stream, clock) for name, summary in made.items()}
    rng = np.random.default_rng(2)
    asked = np.arange(12)
    seen = accepted = refused = now = 0
    for _ in range(60):
        now += int(rng.integers(0, 60))
        clock.set(now)
        n = int(rng.integers(1, 120))
        batch = columns(now - rng.integers(0, 700, n) * (rng.random(n) < 0.5), rng.integers(0, 12, n), seen)
        seen += n
        out = stream.append(batch)
        for i, ts in enumerate(batch["ts"].tolist()):
            fits = any(o.granularity_of(ts) for o in oracles.values())
            accepted, refused = accepted + fits, refused + (not fits)
            for oracle in oracles.values():
                if fits:
                    oracle._accepted[int(batch["id"][i])] = {name: values[i] for name, values in batch.items()}
                    oracle.advance(ts)
        assert (stream.accepted, stream.refused.get("too_old", 0)) == (accepted, refused)
        assert out.accepted + sum(out.refused.values()) == n
        for name, summary in made.items():
            told = summary.describe()
            assert told.watermark == stream.watermark == now
            assert told.tuples == len(oracles[name].live())
            assert told.tuples + told.expired == accepted
            keys = words(asked) if summary.key == "s" else asked
            assert pairs(stream, summary, keys, None) == oracles[name].join(keys)
    assert refused > 50


def test_no_summary_removes_a_tuple_and_keep_removes_for_all(monkeypatch):
    monkeypatch.setattr("promising.index.log.CHUNK", 16)
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(10_000), max_tuples=2000)
    fine = stream.create_summary("fine", "k", granularity=10, collapse=(2, 1), options=SMALL)
    stream.append(columns(np.arange(0, 1000), np.arange(1000) % 7))
    coarse = stream.create_summary("coarse", "k", granularity=100, collapse=(2, 2), options=SMALL)
    for summary in (fine, coarse):
        assert sorted(ids(stream, summary.probe(np.arange(7)).rows)) == list(range(1000))
        assert summary.count == stream.kept == stream.count == 1000
    assert len(fine.describe().spans) == 7, "granularities follow until the past is covered: 10 * (1 + ... + 64)"
    assert stream.would_remove(800) == 100
    assert stream.set_keep(800) == 100
    for summary in (fine, coarse):
        assert sorted(ids(stream, summary.probe(np.arange(7)).rows)) == list(range(summary.state.oldest, 1000))
    assert (stream.oldest, fine.state.oldest, coarse.state.oldest) == (100, 160, 100), "each has whole zones"
    stream.drop_summary("coarse")
    assert stream.kept == 900, "to drop a summary removes nothing"
    stream.append(columns([1000], [3], 1000))
    assert stream.oldest == 160 == fine.state.oldest
    assert stream.set_keep(None) == 0
    told = stream.append(columns([5, 160, 9000], [3, 3, 3], 1001))
    assert told.refused == {"too_old": 1}, "what was removed does not come back"
    assert stream.kept == 1001 - 160 + 2 == fine.count
    with pytest.raises(UnknownName, match="'coarse'; it has fine"):
        stream.drop_summary("coarse")


def test_a_summary_on_an_empty_stream_and_one_with_a_watermark_only():
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(1000), max_tuples=100, keep=160)
    first = stream.create_summary("first", "k", granularity=10, collapse=(2, 2), options=SMALL)
    assert first.describe().watermark is None
    assert (first.count, len(first.probe([1])), len(first.regions([1])), first.estimate([1]).value[0]) == (0, 0, 0, 0)
    stream.advance(500)
    second = stream.create_summary("second", "k", granularity=10, collapse=(2, 2), options=SMALL)
    assert first.describe().horizons == second.describe().horizons == Geometry(10, 2, 2, 160).horizons(500)[:2]
    assert stream.append(columns([10], [1])).refused == {"too_old": 1}
    stream.advance(400)
    assert stream.watermark == 500
