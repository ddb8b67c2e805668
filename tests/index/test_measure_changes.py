"""ALTER SUMMARY ... MEASURES in the index: built in slices while everything goes on, and made in one step."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising.index.measure_changes as changes
from promising.errors import BadMeasure, CeilingTooLow, InUse, UnknownName
from promising.index import Stream
from promising.index.check import check_stream
from promising.index.measure_reading import window_measure
from promising.index.options import Options
from promising.index.storage.package import attach, read_manifest, write_manifest, write_part
from promising.testing import ManualClock
from tests.index.test_measures import MEASURES, SPAN, TYPES, check, feed, new_stream, windows
from tests.tiers import examples

FEW = ("moments(n)", "distinct(w)")


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SLICE", 100)


def checked(stream: Stream, measures: tuple[str, ...], seed: int) -> None:
    """The summary measures these, in every window what its tuples give."""
    summary = stream.summaries["by_k"]
    assert summary.measures == measures
    assert summary.building is None
    assert not list(check_stream(stream))
    for window in windows(stream, seed) if set(measures) == set(MEASURES) else ():
        check(stream, window)


def run(stream: Stream, measures: tuple[str, ...]) -> int:
    """Returns how often it paused between slices."""
    return sum(1 for _ in stream.set_measures("by_k", measures)) - 1  # first it has only begun


def happens(stream: Stream, what: int, seed: int) -> None:
    """Something that goes on during a change."""
    summary = stream.summaries["by_k"]
    if what == 0:
        feed(stream, seed, 2)
    elif what == 1 and summary.auto is not None:
        summary.change(("adaptive", "time", "grid", "none")[seed % 4])
    elif what == 2:
        stream.set_keep((20 + seed % 30) * SPAN)
    elif what == 3 and stream.watermark is not None:
        stream.set_watermark(stream.watermark - (seed % 5) * SPAN)
    elif what == 4 and stream.time is not None:
        stream.advance(stream.time + (seed % 10) * SPAN)
    else:
        summary.probe(np.arange(9))
        window_measure(summary, summary.measures[0]) if summary.measures else None


@pytest.mark.parametrize("structure", ["adaptive", "time", "none", "auto"])
@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 30), what=st.lists(st.integers(0, 5), max_size=8))
def test_whatever_goes_on_measures_are_those_of_the_tuples(structure: str, seed: int, what: list[int]):
    stream = new_stream(structure, FEW)
    feed(stream, seed)
    for at, built in enumerate(stream.set_measures("by_k", MEASURES)):
        assert stream.summaries["by_k"].measures == FEW
        assert 0 <= built.tuples <= built.total
        if at < len(what):
            happens(stream, what[at], seed + at)
            again = new_stream(measures=())
            again.drop_summary("by_k")
            again.restore(stream.image())  # an image in the middle has the previous measures
            assert again.summaries["by_k"].measures == FEW
            assert not list(check_stream(again))
    after = (*(m for m in MEASURES if m in FEW), *(m for m in MEASURES if m not in FEW))
    checked(stream, after, seed)
    feed(stream, seed + 1, 3)
    checked(stream, after, seed)
    assert run(stream, FEW[1:]) == 0
    feed(stream, seed + 2, 2)
    checked(stream, FEW[1:], seed)
    run(stream, (*FEW[1:], "moments(x)"))
    feed(stream, seed + 3, 2)
    checked(stream, (*FEW[1:], "moments(x)"), seed)


def test_it_is_built_in_slices_and_says_how_far():
    stream = new_stream()
    feed(stream, 3, 9)
    run(stream, ())
    feed(stream, 6, 1)  # the open zone has tuples whose hashes nobody needed
    summary = stream.summaries["by_k"]
    sealed = summary.count - len(window_measure_rows(stream))
    seen = []
    change = stream.set_measures("by_k", ("moments(x)", "distinct(w)"))
    next(change)  # it has begun
    for built in change:
        seen.append(built.tuples)
        assert built.total == sealed
        assert summary.describe().building == (
            f"building MOMENTS(x), DISTINCT(w): {built.tuples:,} of {sealed:,} tuples"
        )
    assert len(seen) > 5
    assert max(np.diff([0, *seen])) <= 100
    assert summary.describe().building == ""
    feed(stream, 4)
    assert not list(check_stream(stream))


def window_measure_rows(stream: Stream) -> Any:
    """Rows in no sealed zone."""
    fine: Any = stream.summaries["by_k"].state
    waiting = [block.waiting()[1] for block in fine.fine.blocks.values()]
    ahead = [zone.rows for zone in fine.fine.ahead.zones()]
    return np.concatenate([fine.fine.open_rows, *waiting, *ahead])


@pytest.mark.parametrize("after", [0, 1, 3])
def test_what_is_given_up_leaves_nothing(after: int):
    stream = new_stream(measures=FEW)
    feed(stream, 5)
    summary = stream.summaries["by_k"]
    before = summary.state.nbytes
    change = stream.set_measures("by_k", MEASURES)
    for _ in range(after):
        next(change)
    change.close()  # type: ignore[attr-defined]  # a generator
    assert summary.state.nbytes == before
    checked(stream, FEW, 5)
    run(stream, MEASURES)
    assert set(summary.measures) == set(MEASURES)


def test_one_change_at_a_time_and_none_of_what_is_gone():
    stream = new_stream(measures=FEW)
    feed(stream, 5)
    change = stream.set_measures("by_k", MEASURES)
    next(change)
    with pytest.raises(InUse, match=r"summary 'by_k' is building .* wait until it is done"):
        run(stream, ())
    stream.drop_summary("by_k")
    with pytest.raises(UnknownName, match="has been dropped"):
        next(change)
    with pytest.raises(UnknownName, match="no summary 'by_k'"):
        run(stream, ())


def test_what_is_wrong_changes_nothing():
    stream = Stream("s", TYPES, "ts", clock=ManualClock(10**9))
    least = stream.create_summary("plain", "k", granularity=SPAN).describe().ceiling
    summary = stream.create_summary("by_k", "k", granularity=SPAN, options=Options(ceiling=least))
    feed(stream, 2)
    for measures, kind in ((("moments(w)",), BadMeasure), (("quantiles(x)",), CeilingTooLow), (FEW * 2, BadMeasure)):
        with pytest.raises(kind):
            run(stream, measures)
        assert summary.measures == ()
        assert summary.building is None
    assert not list(check_stream(stream))


def test_ceilings_follow_measures():
    stream = new_stream(measures=())
    feed(stream, 2)
    summary = stream.summaries["by_k"]
    plain = summary.describe()
    run(stream, MEASURES)
    assert summary.describe().ceiling > plain.ceiling
    assert summary.describe().bytes > plain.bytes
    run(stream, ())
    assert (summary.describe().ceiling, summary.describe().tuple_bytes) == (plain.ceiling, plain.tuple_bytes)


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_a_load_that_was_prepared_for_other_measures(tmp_path: Path, when: str):
    """It is attached before, between the slices of, or after a change: zones have what the summary measures by then."""
    source, stream = new_stream(measures=()), new_stream(measures=FEW)
    feed(source, 9, 12)
    with source.reading() as log:
        table = log.take(log.rows())
    plan = stream.load_plan()
    shape = plan.shaped(int(pc.max(table["ts"]).cast(pa.int64()).as_py()))
    parts = [write_part(str(tmp_path), f"p{at}", plan, shape, table.slice(at, 700)) for at in range(0, len(table), 700)]
    write_manifest(str(tmp_path), plan, shape, "once", parts, {})
    first = table.slice(0, 600)
    stream.append(first)

    def load() -> None:
        assert attach(stream, read_manifest(str(tmp_path)), "once").accepted > 0

    if when == "before":
        load()
    for number, _ in enumerate(stream.set_measures("by_k", MEASURES)):
        if when == "between" and number == 1:
            load()
    if when == "after":
        load()
    measures = tuple(sorted(MEASURES, key=lambda text: (text not in FEW, MEASURES.index(text))))
    checked(stream, measures, 9)
