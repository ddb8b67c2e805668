"""The watermark, tuple by tuple, against the oracle: batches cut anywhere, clocks that move, jumps, restarts."""

import shutil
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import BadWatermark, DataDamaged, WrongType
from promising.index import Options, Stream
from promising.index.ahead import Ahead, Loose
from promising.index.check import check_stream
from promising.index.instants import FARTHEST
from promising.index.progress import Progress, check_watermark
from promising.index.regions import Appended
from promising.index.storage import records
from promising.index.storage.store import Store
from promising.testing import ManualClock, Oracle
from tests.tiers import examples

SCHEMA = {"ts": "timestamp", "k": "int"}
SMALL = Options(buckets=4, depth=3, width=8, maxlength=256, filter_bits=128, coarse_bits=256)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("clock"), st.integers(-50, 300)),
        st.tuples(st.just("tuples"), st.lists(st.integers(-400, 120), min_size=1, max_size=8)),
        st.tuples(st.just("history"), st.lists(st.integers(-9_000, 0), min_size=1, max_size=8)),
        st.tuples(st.just("advance"), st.integers(-400, 0)),
    ),
    max_size=12,
)


def batch(times: list[int]) -> dict[str, Any]:
    return {"ts": np.array(times, np.int64), "k": np.zeros(len(times), np.int64)}


def made(lateness: int, jump: int | None, clock: ManualClock) -> tuple[Stream, Oracle]:
    stream = Stream("s", SCHEMA, "ts", lateness=lateness, max_future=100, max_jump=jump, clock=clock, max_tuples=5_000)
    oracle = Oracle(
        "ts", "k", granularity=1 << 50, collapse=(2, 2), clock=clock, lateness=lateness, max_future=100, max_jump=jump
    )
    return stream, oracle


@settings(max_examples=examples(100))
@given(st.sampled_from([0, 30]), st.sampled_from([None, 40, 500]), steps, st.randoms(use_true_random=False))
def test_the_watermark_is_that_of_the_oracle_however_batches_are_cut(lateness, jump, told, random):
    highest = 10_000
    clock = ManualClock(highest)
    stream, oracle = made(lateness, jump, clock)
    cut, _ = made(lateness, jump, clock)
    cut.create_summary("a", "k", granularity=16, collapse=(2, 3), options=SMALL)
    for what, given_ in told:
        now = clock()
        if what == "clock":
            clock.set(now + given_)
        elif what == "advance":
            for one in (stream, cut):
                one.advance(now + given_)
            oracle.punctuate(now + given_)
        else:
            times = [now + offset for offset in given_]
            first = not stream.accepted
            stream.append(batch(times))
            oracle.append(batch(times))
            borders = sorted({0, len(times), *(random.randrange(len(times)) for _ in range(0 if first else 3))})
            for start, stop in pairwise(borders):
                cut.append(batch(times[start:stop]))
        assert stream.watermark == oracle.watermark
        assert stream.progress == cut.progress
        highest = max(highest, clock())
        assert stream.watermark is None or stream.watermark <= highest
    assert check_stream(stream) == check_stream(cut) == []


@settings(max_examples=examples(15), deadline=None)
@given(st.sampled_from([0, 30]), st.sampled_from([None, 40]), steps, st.sampled_from([-FARTHEST, 0, FARTHEST]))
def test_recovery_does_not_read_the_clock(lateness, jump, told, then):
    clock = ManualClock(10_000)
    with TemporaryDirectory() as folder:
        store = Store.open(Path(folder), clock=clock)
        stream = store.create_stream("s", SCHEMA, "ts", lateness=lateness, max_future=100, max_jump=jump)
        stream.create_summary("a", "k", granularity=16, collapse=(2, 3), options=SMALL)
        for what, given_ in told:
            if what == "clock":
                clock.set(clock() + given_)
            elif what == "advance":
                stream.advance(clock() + given_)
            else:
                stream.append(batch([clock() + offset for offset in given_]))
        if told and stream.watermark is not None and len(told) % 2:
            stream.set_watermark(min(stream.watermark - 100, clock()))
        stream.wait()
        before = stream.progress, stream.latest, stream.oldest, stream.kept, stream.summaries["a"].count
        crashed = Path(folder) / "copy"
        _copied(Path(folder), crashed)
        store.close()
        clock.set(then)
        with Store.open(crashed, clock=clock) as again:
            found = again.streams["s"]
            assert before == (found.progress, found.latest, found.oldest, found.kept, found.summaries["a"].count)
            assert check_stream(found) == [] and not found.damages


def _copied(folder: Path, to: Path) -> None:
    """The files as a crash leaves them: without the last checkpoint."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("copy", "LOCK"))


def test_old_records_replay_as_they_were_made():
    """Without the progress that came later, the clock and MAX JUMP did not count."""
    clock = ManualClock(0)
    stream, _ = made(5, None, clock)
    old = records.unpack_append(
        b"".join(records.pack_append(stream.schema.columns(batch([50, 70]), frozenset()), 2, Appended(2), None, None))
    )
    assert old.progress is None
    stream.again(old)
    assert stream.progress == Progress(65, 70, 70)
    stream.advance_again(200, None)
    assert (stream.watermark, stream.time) == (200, 200)
    assert stream.append(batch([60])).accepted == 1  # such a store opens, and takes tuples
    stream.set_watermark(-10)
    assert (stream.watermark, stream.time, stream.kept) == (-10, -10, 3)
    assert check_stream(stream) == []


@pytest.mark.parametrize("logged", [[1, 2, 3], [1, 2, 3, 4], ["a", 1, 1, []], [1, 1, 1, ["a"]], {}, 7])
def test_a_damaged_progress_is_reported(logged):
    with pytest.raises(DataDamaged, match="how far the stream has come"):
        Progress.of(logged)


def test_what_is_no_watermark():
    stream, _ = made(0, None, ManualClock(1_700_000_000_000_000))
    for wrong in (FARTHEST + 1, -FARTHEST - 1, 1.5, "now", None):
        with pytest.raises(WrongType, match="is no date"):
            stream.advance(wrong)  # type: ignore[arg-type]  # on purpose
        with pytest.raises(WrongType, match="is no date"):
            stream.set_watermark(wrong)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(BadWatermark, match="nanoseconds: in microseconds it is 1700000000000000"):
        stream.set_watermark(1_700_000_000_000_000_000)
    assert stream.watermark is None
    assert check_watermark(np.int64(7)) == 7


@given(st.lists(st.lists(st.integers(-100, 100), min_size=1, max_size=9), max_size=9), st.lists(st.integers(-12, 12)))
def test_tuples_ahead_are_taken_out_once_by_block_in_order_of_arrival(added, limits):
    ahead, left, number = Ahead(10), [], 0
    for times in added:
        rows = np.arange(number, number + len(times), dtype=np.int32)
        number += len(times)
        ahead.add(Loose(rows.astype(np.int64) * 7, rows, np.array(times)))
        left += list(zip(times, rows.tolist(), strict=True))
    for limit in sorted(limits):
        taken = ahead.take(limit * 10)
        expected = {(t, r) for t, r in left if t < limit * 10}
        assert set(zip(taken.times.tolist(), taken.rows.tolist(), strict=True)) == expected
        assert taken.hashes.tolist() == [7 * row for row in taken.rows.tolist()]
        for home in {t // 10 for t, _ in expected}:
            rows = taken.rows[taken.times // 10 == home]
            assert rows.tolist() == sorted(rows.tolist())
        left = [one for one in left if one not in expected]
        assert len(ahead) == len(left) == len(ahead.tuples.rows)
