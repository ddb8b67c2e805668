"""Figures of zones and cells: those of their tuples, in the order of `describe`."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import UnknownMeasure
from promising.index import Stream
from tests.index.test_measures import feed, new_stream
from tests.tiers import examples


def rows_by_zone(stream: Stream) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows of each zone of `describe`, and their buckets."""
    summary = stream.summaries["by_k"]
    with stream.reading() as log:
        rows = log.rows()
        times = log.when(rows)
    buckets = summary.state.hashes(rows).view(np.uint64) >> np.uint64(64 - (summary.buckets.bit_length() - 1))
    return [
        (rows[(times >= zone.start) & (times < zone.end)], buckets[(times >= zone.start) & (times < zone.end)])
        for zone in summary.describe().zones
    ]


def truth(values: list[float | None], figure: str) -> float:
    known = [value for value in values if value is not None]
    if figure == "count":
        return len(known)
    if not known:
        return math.nan
    if figure == "sum":
        return sum(known)
    return sum(known) / len(known) if figure == "avg" else min(known) if figure == "min" else max(known)


@settings(max_examples=examples(6))
@given(seed=st.integers(0, 1 << 30), figure=st.sampled_from(["count", "sum", "avg", "min", "max"]))
def test_moments_of_every_cell_are_those_of_its_tuples(seed: int, figure: str):
    stream = new_stream()
    rng = np.random.default_rng(seed)
    n = 3000
    times = 10_000 + np.arange(n)  # in order and without ties: a zone is its range of time
    x = [None if rng.random() < 0.2 else float(rng.integers(-9, 9)) for _ in range(n)]
    stream.append({"ts": times, "k": rng.integers(0, 50, n), "x": x, "n": np.zeros(n, np.int64), "w": ["a"] * n})
    summary = stream.summaries["by_k"]
    told = summary.describe(cells=True, show=f" {figure.upper()}( X )")
    assert told.show == f"{figure}(x)"
    assert told.shown is not None
    assert told.cells is not None
    assert told.shown.shape == told.cells.shape
    for zone, (rows, buckets) in enumerate(rows_by_zone(stream)):
        found = stream.take(rows).column("x").to_pylist()
        for bucket in range(summary.buckets):
            mine = [value for value, b in zip(found, buckets, strict=True) if b == bucket]
            np.testing.assert_allclose(told.shown[zone, bucket], truth(mine, figure), rtol=1e-12)


def test_sketches_have_a_figure_of_each_zone():
    stream = new_stream()
    feed(stream, 4)
    summary = stream.summaries["by_k"]
    zones = summary.describe().zones
    for show in ("median(x)", "distinct(w)", "most_frequent(w)"):
        told = summary.describe(show=show)
        assert told.show == show
        assert told.shown is not None
        assert told.shown.shape == (len(zones), 1)
        assert np.isfinite(told.shown).any()
    distinct = summary.describe(show="distinct(w)").shown
    assert distinct is not None
    assert (distinct <= 31).all()


def test_a_story_has_a_line_for_each_measure():
    stream = new_stream()
    feed(stream, 4)
    summary = stream.summaries["by_k"]
    for zone in summary.describe().zones:
        lines = summary.story(zone.granularity, zone.zone).measures
        assert [line.partition("(")[0] for line in lines] == [m.partition("(")[0].upper() for m in summary.measures]
        assert re.fullmatch(r"MOMENTS\(n\): count ([\d,]+), sum \S+, avg \S+, min \S+, max \S+", lines[1])
        assert f"count {zone.tuples:,}," in lines[1]
        assert lines[-1] == "SAMPLE(8)"


@pytest.mark.parametrize("show", ["avg(w)", "avg", "tea(x)", "avg(x, 5)", "median(n)", "rows()", "avg(nothing)", "("])
def test_what_cannot_be_shown_is_refused_with_what_can(show: str):
    summary = new_stream(measures=("moments(x)", "distinct(w)", "sample(8)")).summaries["by_k"]
    said = r"there are count\(x\), sum\(x\), avg\(x\), min\(x\), max\(x\), distinct\(w\)"
    with pytest.raises(UnknownMeasure, match=said):
        summary.describe(show=show)
    with pytest.raises(UnknownMeasure, match=r"such as MOMENTS\(column\)"):
        new_stream(measures=()).summaries["by_k"].describe(show=show)
