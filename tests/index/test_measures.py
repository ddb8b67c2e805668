"""What zones measure: equal to the tuples in every window, through sealing, late and early tuples, collapse, expiry,
a change of structure or of KEEP, and a restart."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import BadMeasure, CeilingTooLow, UnknownMeasure
from promising.index import Stream, SummaryIndex
from promising.index.check import check_stream
from promising.index.measure_reading import _add, complete, window_estimate, window_measure, zones
from promising.index.options import Options
from promising.index.storage.package import attach, read_manifest, write_manifest, write_part
from promising.summaries.cells import same_images
from promising.testing import ManualClock
from tests.index.world import SMALL, flat, small_chunks
from tests.tiers import examples

TYPES = {"ts": "timestamp", "k": "int", "x": "float", "n": "int", "w": "string"}
MEASURES = (
    "moments(x)",
    "moments(n)",
    "quantiles(x)",
    "distinct(w)",
    "distinct(n)",
    "frequent(w)",
    "histogram(x, -4, 4, 16)",
    "sample(8)",
)
SPAN = 40
KEEP = 32 * SPAN


def new_stream(structure: str = "adaptive", measures: tuple[str, ...] = MEASURES, **settings_: Any) -> Stream:
    stream = Stream("s", TYPES, "ts", lateness=SPAN, keep=KEEP, clock=ManualClock(10**9), seed=3, **settings_)
    stream.create_summary(
        "by_k", "k", granularity=SPAN, collapse=(2, 3), structure=structure, options=SMALL, measures=measures
    )
    return stream


def feed(stream: Stream, seed: int, batches: int = 6) -> None:
    """Late, early and ordinary tuples; nulls, NaN, infinities."""
    rng = np.random.default_rng(seed)
    newest = stream.latest or 10_000
    for _ in range(batches):
        n = int(rng.integers(1, 500))
        times = newest + np.cumsum(rng.exponential(0.3, n)).astype(np.int64)
        newest = int(times[-1])
        times -= (rng.random(n) < 0.2) * rng.integers(0, 12 * SPAN, n)
        times += (rng.random(n) < 0.02) * rng.integers(0, 3 * SPAN, n)
        x = rng.normal(0, 3, n).tolist()
        for at in np.flatnonzero(rng.random(n) < 0.15):
            x[at] = [None, math.nan, math.inf, -math.inf, 0.0, -0.0][int(rng.integers(6))]
        w = [None if rng.random() < 0.1 else f"w{int(v)}" for v in rng.zipf(1.5, n) % 30]
        stream.append({"ts": times, "k": rng.zipf(1.4, n) % 50, "x": x, "n": rng.integers(-9, 9, n), "w": w})


def told(stream: Stream, window: tuple[int, int] | None) -> dict[str, list[Any]]:
    """The tuples that the summary retains in the window."""
    summary = stream.summaries["by_k"]
    with stream.reading() as log:
        rows = log.rows()
        times = log.when(rows)
    start, end = window or (-(1 << 60), 1 << 60)
    kept = rows[(times >= max(start, summary.state.oldest)) & (times < end)]
    table = stream.take(kept)
    return {"rows": kept.tolist(), **{name: table.column(name).to_pylist() for name in TYPES}}


def check(stream: Stream, window: tuple[int, int] | None) -> None:
    """Every measure of a window holds for its tuples; those that are exact are equal to a state built at once."""
    summary, truth = stream.summaries["by_k"], told(stream, window)
    for text in summary.measures:
        found = window_measure(summary, text, window)
        assert found.covered + len(found.rows) == len(truth["rows"])
        everything = found.kind.empty(summary.buckets if found.kind.grain == "cell" else 1)
        with summary.reading() as state:
            _add(state, found.kind, everything, np.array(truth["rows"], np.int32))
        assert found.kind.differs(complete(summary, found), everything) is None, text
    x = [value for value in truth["x"] if value is not None]
    if x:
        median = window_estimate(summary, "quantiles(x)", window, 0.5)
        ordered = sorted(value for value in x if not math.isnan(value))
        at = max(0, math.ceil(0.5 * len(x)) - 1)
        if at < len(ordered):
            assert not median.lower > ordered[at]
            assert not median.upper < ordered[at]
    words = {value for value in truth["w"] if value is not None}
    estimate = window_estimate(summary, "distinct(w)", window)
    assert estimate.lower <= len(words) <= estimate.upper
    for word in sorted(words)[:3]:
        bounds = window_estimate(summary, "frequent(w)", window, word)
        assert bounds.lower <= truth["w"].count(word) <= bounds.upper


def windows(stream: Stream, seed: int) -> list[tuple[int, int] | None]:
    rng = np.random.default_rng(seed)
    latest = stream.latest or 0
    return [None, *((int(a), int(b)) for a, b in np.sort(rng.integers(latest - 2 * KEEP, latest + 3, (3, 2)), axis=1))]


@pytest.mark.parametrize("structure", ["adaptive", "grid", "time", "none", "auto"])
@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 30))
def test_every_window_is_that_of_its_tuples(structure: str, seed: int):
    stream = new_stream(structure)
    for step in range(3):
        feed(stream, seed + step)
        assert not list(check_stream(stream))
        for window in windows(stream, seed + step):
            check(stream, window)


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 30))
def test_they_survive_restart_keep_and_changes_of_structure(seed: int):
    stream = new_stream("auto")
    feed(stream, seed, 8)
    for change in (
        lambda s: s.summaries["by_k"].change("adaptive"),
        lambda s: s.set_keep(2 * KEEP),
        lambda s: s.summaries["by_k"].change("time"),
        lambda s: s.set_watermark(s.watermark - 3 * SPAN),
        lambda s: s.rebuild(),
    ):
        change(stream)
        assert stream.summaries["by_k"].measures == MEASURES
        again = new_stream(measures=())
        again.drop_summary("by_k")
        again.restore(stream.image())
        for one in (stream, again):
            assert not list(check_stream(one))
            for window in windows(one, seed):
                check(one, window)
        stream = again
        feed(stream, seed + 1, 3)


def test_states_of_collapsed_zones_do_not_depend_on_batches(monkeypatch: pytest.MonkeyPatch):
    small_chunks(monkeypatch, 256)
    exact = ("moments(x)", "distinct(w)", "histogram(x, -4, 4, 16)", "sample(8)")
    one, two = new_stream(measures=exact), new_stream(measures=exact)
    feed(one, 5)
    with one.reading() as log:
        table = log.take(log.rows())
    for start in range(0, len(table), 37):
        two.append(table.slice(start, 37))
    states = []
    for stream in (one, two):
        coarse = [zone for zone in zones(stream.summaries["by_k"]) if zone.granularity > 1]
        kinds = stream.summaries["by_k"].kinds
        states.append(
            [(zone.first, zone.last, kind.image(zone.states[str(kind.measure)])) for zone in coarse for kind in kinds]
        )
    assert states[0]
    assert flat(states[0]) == flat(states[1])


# --- what is seen when it is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("granularity", [1, 2, 3])
def test_the_check_finds_a_wrong_state(granularity: int):
    stream = new_stream(measures=MEASURES)
    feed(stream, 1)
    zone = next(z for z in zones(stream.summaries["by_k"]) if z.granularity == granularity)
    zone.states["distinct(w)"].summaries[0].registers[3] += 1
    found = list(check_stream(stream))
    assert any("distinct(w) is not that of its tuples" in line for line in found)


# --- definitions -------------------------------------------------------------------------------------------------


def test_bad_measures_change_nothing():
    stream = Stream("s", TYPES, "ts", clock=ManualClock(10**9))
    for measures, said in (
        (["quantiles(w)"], "of type string"),
        (["distinct(w)", "DISTINCT( w )"], r"distinct\(w\) is measured twice"),
        (["sample(0)"], "1 to 16,384 rows"),
        (["tea(x)"], "unknown measure TEA"),
        ("distinct(w)", "a list"),
    ):
        with pytest.raises(BadMeasure, match=said):
            stream.create_summary("by_k", "k", granularity=SPAN, measures=measures)
    assert stream.summaries == {}


def test_the_ceiling_includes_measures():
    stream = Stream("s", TYPES, "ts", clock=ManualClock(10**9))
    plain = stream.create_summary("plain", "k", granularity=SPAN, options=SMALL)
    more = stream.create_summary("more", "k", granularity=SPAN, options=SMALL, measures=MEASURES)
    least, most = plain.describe(), more.describe()
    assert most.ceiling > least.ceiling
    assert most.tuple_bytes > least.tuple_bytes
    with pytest.raises(CeilingTooLow):
        stream.create_summary(
            "too_much", "k", granularity=SPAN, options=Options(ceiling=least.ceiling), measures=MEASURES
        )


def test_a_measure_that_is_not_there_is_named():
    stream = new_stream(measures=("distinct(w)",))
    with pytest.raises(
        UnknownMeasure, match=r'measures are: DISTINCT\(w\); add it .*SUMMARY "by_k" ADD MEASURES \(QUANTILES\(x\)\)'
    ):
        window_measure(stream.summaries["by_k"], "quantiles(x)")


def test_all_null_columns_answer():
    stream = new_stream()
    summary: SummaryIndex = stream.summaries["by_k"]
    n = 2000
    stream.append(
        {
            "ts": 10_000 + np.arange(n) // 4,
            "k": np.arange(n),
            "x": [None] * n,
            "n": np.zeros(n, np.int64),
            "w": [None] * n,
        }
    )
    assert window_estimate(summary, "distinct(w)", None).upper == 0
    assert window_estimate(summary, "histogram(x, -4, 4, 16)", None, -1, 1).upper == 0
    assert not list(check_stream(stream))


def test_a_load_equals_live_ingest(tmp_path: Any):
    """To the bit, in zones of `G_2` and further; samples are drawn by arrival, which differs."""
    live, loaded = new_stream(), new_stream()
    feed(live, 9, 12)
    with live.reading() as log:
        table = log.take(log.rows())
    plan = loaded.load_plan()
    latest = int(pc.max(table["ts"]).cast(pa.int64()).as_py())
    shape = plan.shaped(latest)
    parts = [write_part(str(tmp_path), f"p{at}", plan, shape, table.slice(at, 700)) for at in range(0, len(table), 700)]
    write_manifest(str(tmp_path), plan, shape, "once", parts, {})
    assert attach(loaded, read_manifest(str(tmp_path)), "once").accepted == len(table)
    live.advance(loaded.watermark or 0)
    assert not list(check_stream(loaded))
    assert live.ladder is not None
    assert loaded.ladder is not None
    assert loaded.ladder.until == loaded.arrived, "a load is in the ladder at once"
    live.catch_up_all()
    images = [live.ladder.image(), loaded.ladder.image()]
    assert same_images(*images)
    states = []
    for stream in (live, loaded):
        kinds = [kind for kind in stream.summaries["by_k"].kinds if kind.exact and kind.types]
        coarse = [zone for zone in zones(stream.summaries["by_k"]) if zone.granularity > 1]
        assert coarse
        states.append([(zone.first, [kind.image(zone.states[str(kind.measure)]) for kind in kinds]) for zone in coarse])
        for window in windows(stream, 9):
            check(stream, window)
    assert flat(states[0]) == flat(states[1])
