"""Spans, horizons and zones; and several summaries that share one watermark."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promising.errors import BadCollapse, BadGranularity, UnknownName
from promising.index import Options, Stream
from promising.index.geometry import Geometry
from promising.testing import ManualClock, Oracle
from tests.index.world import SCHEMA, columns, ids, oracle_for, pairs, words

SMALL = Options(buckets=4, depth=3, width=8, maxlength=256, filter_bits=256, coarse_bits=512)

geometries = st.builds(Geometry, st.integers(1, 10**7), st.integers(2, 9), st.integers(1, 6))
watermarks = st.integers(-(1 << 60), 1 << 60)


@given(geometries, watermarks)
def test_horizons(g, watermark):
    horizons = g.horizons(watermark)
    assert len(horizons) == g.depth == len(g.spans) == len(g.reaches)
    assert list(horizons) == sorted(horizons, reverse=True)
    assert horizons[-1] == g.oldest(watermark)
    for i, (horizon, span, reach) in enumerate(zip(horizons, g.spans, g.reaches, strict=True)):
        assert span == g.granularity * g.rate**i
        assert reach == sum(g.spans[: i + 1])
        assert horizon % span == 0
        assert reach <= watermark - horizon < reach + span  # so G_i spans from T_i to 2 T_i
        assert horizon % g.zone_length(i + 2) == 0  # a border of G_(i+1)'s zones, whose length is T_i


@given(geometries, watermarks, st.integers(0, 1 << 40))
def test_horizons_never_go_back(g, watermark, by):
    assert all(a <= b for a, b in zip(g.horizons(watermark), g.horizons(watermark + by), strict=True))


@given(geometries, st.lists(watermarks, min_size=1, max_size=20))
def test_many_watermarks_at_once(g, many):
    assert g.oldest_at(np.array(many)).tolist() == [g.oldest(w) for w in many]


@given(st.integers(1, 500), st.integers(2, 5), st.integers(1, 5), st.integers(-(10**6), 10**6), st.data())
def test_the_oracle_agrees(granularity, rate, depth, watermark, data):
    g = Geometry(granularity, rate, depth)
    oracle = Oracle("ts", "k", granularity=granularity, collapse=(rate, depth), clock=ManualClock(0))
    oracle.advance(watermark)
    assert list(g.horizons(watermark)) == [oracle.horizon(i) for i in range(1, depth + 1)]
    ts = watermark - data.draw(st.integers(0, 2 * sum(g.spans)))
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


@pytest.mark.parametrize("granularity", [0, -1, 0.5, "60"])
def test_bad_granularity(granularity):
    with pytest.raises(BadGranularity, match=str(granularity)):
        Geometry(granularity, 2, 2)


# --- several summaries of one stream -----------------------------------------------------------------------------


SHAPES = {"short": ("k", 20, (2, 1)), "long": ("s", 35, (3, 3)), "odd": ("k", 50, (2, 2))}


def test_summaries_advance_together():
    """Each keeps what its own geometry says of all that any took; a tuple is refused only if all are past it."""
    clock = ManualClock(0)
    stream = Stream("s", SCHEMA, "ts", clock=clock, max_tuples=20_000, max_future=1000)
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
    assert len({summary.count for summary in made.values()}) == 3


def test_the_log_keeps_what_the_longest_summary_keeps(monkeypatch):
    monkeypatch.setattr("promising.index.log.CHUNK", 16)
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(10_000), max_tuples=2000)
    short = stream.create_summary("short", "k", granularity=10, collapse=(2, 1), options=SMALL)
    long = stream.create_summary("long", "k", granularity=100, collapse=(2, 2), options=SMALL)
    stream.append(columns(np.arange(0, 1000), np.arange(1000) % 7))
    assert stream.count >= long.count > 10 * short.count
    assert sorted(ids(stream, long.probe(np.arange(7)).rows)) == list(range(long.state.oldest, 1000))
    stream.drop_summary("long")
    assert list(stream.summaries) == ["short"]
    stream.append(columns([1000], [3], 1000))
    assert short.count <= stream.count <= short.count + 16
    assert sorted(ids(stream, short.probe(np.arange(7)).rows)) == list(range(short.state.oldest, 1001))
    with pytest.raises(UnknownName, match="'long'; it has short"):
        stream.drop_summary("long")
    again = stream.create_summary("long", "k", granularity=100, collapse=(2, 2), options=SMALL)
    kept = range(short.state.oldest, 1001)
    assert sorted(ids(stream, again.probe(np.arange(7)).rows)) == list(kept), "what has aged out stays out"
    assert again.count == len(kept) == stream.kept
    stream.drop_summary("short")
    stream.drop_summary("long")
    told = stream.append(columns([5, kept[0], 9000], [3, 3, 3], 1001))
    assert told.refused == {"too_old": 1}, "without summaries nothing more ages, but what has stays gone"
    assert ids(stream, stream._log.rows()).tolist()[-2:] == [1002, 1003]


def test_a_summary_on_an_empty_stream_and_one_with_a_watermark_only():
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(1000), max_tuples=100)
    first = stream.create_summary("first", "k", granularity=10, collapse=(2, 2), options=SMALL)
    assert first.describe().watermark is None
    assert (first.count, len(first.probe([1])), len(first.regions([1])), first.estimate([1]).value[0]) == (0, 0, 0, 0)
    stream.advance(500)
    second = stream.create_summary("second", "k", granularity=10, collapse=(2, 2), options=SMALL)
    assert first.describe().horizons == second.describe().horizons == Geometry(10, 2, 2).horizons(500)
    assert stream.append(columns([10], [1])).refused == {"too_old": 1}
    stream.advance(400)
    assert stream.watermark == 500
