"""What is promised is there: room in the log, memory under the ceiling, an end to dropped summaries."""

import numpy as np
import pyarrow as pa
import pytest

from promising.errors import BadGranularity, BadOptions, CeilingTooLow, UnknownName
from promising.index import Options, Stream
from promising.index.stream import MINUTE
from promising.testing import ManualClock, streams
from tests.index.world import small_chunks

CHUNK = 512
SCHEMA = {"ts": "timestamp", "k": "int"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, CHUNK)


def at(times: list[int] | np.ndarray, key: int = 7) -> dict[str, np.ndarray]:
    times = np.asarray(times, np.int64)
    return {"ts": times, "k": np.full(len(times), key)}


@pytest.mark.usefixtures("small")
def test_tuples_that_expire_in_their_own_batch_make_room_for_the_next():
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(1 << 40), max_tuples=2 * CHUNK, keep=800)
    summary = stream.create_summary("s", "k", granularity=100, collapse=(2, 1))
    stream.append(at([*range(2 * CHUNK - 1), 10**6]))
    assert stream.append(at([10**6 + 1] * CHUNK)).accepted == CHUNK
    assert summary.count == len(summary.probe([7])) == CHUNK + 1


@pytest.mark.usefixtures("small")
def test_what_is_no_longer_kept_makes_room_and_a_dropped_summary_no_longer_answers():
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(1 << 40), max_tuples=2 * CHUNK)
    stream.create_summary("short", "k", granularity=100, collapse=(2, 1))
    long = stream.create_summary("long", "k", granularity=10**6, collapse=(2, 1))
    stream.append(at(np.arange(2 * CHUNK) * 10))
    with pytest.raises(BadGranularity, match="summary 'long': GRANULARITY is 1 second"):
        stream.set_keep(800)
    stream.drop_summary("long")
    assert stream.set_keep(800) == stream.accepted - stream.kept > CHUNK
    assert stream.append(at([2 * CHUNK * 10] * CHUNK, 8)).accepted == CHUNK
    for ask in (lambda: long.probe([7]), lambda: long.estimate([7]), long.describe, lambda: long.count):
        with pytest.raises(UnknownName, match="'long' has been dropped"):
            ask()


@pytest.mark.usefixtures("small")
def test_rows_that_have_left_are_refused_and_never_read():
    stream = Stream(
        "s", {"ts": "timestamp", "k": "string"}, "ts", clock=ManualClock(1 << 40), max_tuples=2 * CHUNK, keep=800
    )
    summary = stream.create_summary("s", "k", granularity=100, collapse=(2, 1))
    stream.append({"ts": np.arange(CHUNK), "k": [f"key {i}" for i in range(CHUNK)]})
    rows = summary.probe([f"key {i}" for i in range(CHUNK)]).rows
    stream.advance(10**6)  # the chunk is free
    with pytest.raises(UnknownName, match="stay good until"):
        stream.take(rows)
    stream.append({"ts": [10**6, 10**6], "k": ["a", "b"]})  # and used again, for two
    with pytest.raises(UnknownName, match="stay good until"):
        stream.take(rows)
    assert stream.take(summary.probe(["b"]).rows)["k"].to_pylist() == ["b"]


@pytest.mark.parametrize(("hot", "light"), [(15_000, 300), (5_000, 1_000), (2_000, 1_000), (1_000, 100)])
@pytest.mark.parametrize(("depth", "width"), [(5, 64), (5, 16), (1, 64)])
def test_the_bounds_of_a_key_that_fills_its_cell_hold(depth, width, hot, light):
    """What else is in the cell is little beside the key, and all that its estimate errs by."""
    outside = 0
    for seed in range(60):
        stream = Stream("s", SCHEMA, "ts", clock=ManualClock(1 << 40), max_tuples=40_000, seed=seed)
        options = Options(buckets=1, depth=depth, width=width, maxlength=hot + light, tolerance=1e9, effect=1e9)
        summary = stream.create_summary("s", "k", granularity=MINUTE, structure="grid", options=options)
        keys = np.concatenate((np.zeros(hot, np.int64), np.arange(1, light + 1)))
        stream.append({"ts": np.arange(len(keys)), "k": keys})
        region = summary.regions([0])[0]
        assert summary.describe().zones[0].reason == "maxlength"
        outside += not region.lower <= hot <= region.upper
    assert outside <= 3


@pytest.mark.parametrize("structure", ["time", "grid", "adaptive"])
@pytest.mark.parametrize("buckets", [1, 2, 64])
def test_the_ceiling_holds_with_every_pyramid_built_and_every_cell_read(structure, buckets):
    n = 1 << 16
    options = Options(buckets=buckets, filter_bits=1 << 18, maxlength=512, coarse_bits=1 << 12)
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(1 << 50), max_tuples=n, lateness=MINUTE)
    summary = stream.create_summary("s", "k", granularity=MINUTE, structure=structure, options=options)
    columns = streams.rotation(n, 2000, at=[n // 3, n // 2], seed=1)
    batch = {"ts": columns["ts"] // 100, "k": columns["item_id"]}
    for start in range(0, n - 4096, 4096):
        stream.append({name: column[start : start + 4096] for name, column in batch.items()})
        stream.append({name: column[start : start + 1] for name, column in batch.items()})
        regions = summary.regions(np.arange(50), search="pyramid")
        for region in list(regions)[:100]:
            summary.visit(region)
        known = summary.describe()
        assert known.bytes <= known.ceiling


def test_a_visit_hands_out_rows_of_its_own():
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(1 << 40))
    options = Options(buckets=1, maxlength=256)
    summary = stream.create_summary("s", "k", granularity=MINUTE, options=options)
    stream.append({"ts": np.arange(1000), "k": np.arange(1000) % 5})
    for region in summary.regions([3]):
        rows = summary.visit(region)
        before = rows.copy()
        rows[:] = 0
        assert (summary.visit(region) == before).all()


def test_sizes_that_no_machine_has_are_refused_by_name():
    stream = Stream("s", SCHEMA, "ts", lateness=24 * 60 * MINUTE)
    with pytest.raises(CeilingTooLow, match="nearer to the lateness"):
        stream.create_summary("s", "k", granularity=2_000_000, options=Options(buckets=4096, width=1 << 14))
    assert not stream.summaries


def test_a_filter_has_no_more_probes_than_its_hash_has_bits():
    stream = Stream("s", SCHEMA, "ts")
    options = Options(probes=4, filter_bits=1 << 22)
    stream.create_summary("grid", "k", granularity=MINUTE, options=options)
    with pytest.raises(BadOptions, match="lower probes or filter_bits"):
        stream.create_summary("time", "k", granularity=MINUTE, structure="time", options=options)


@pytest.mark.parametrize("seed", [1 << 63, -(1 << 63) - 1, 0.5])
def test_a_seed_that_is_none_is_refused_before_anything_comes_in(seed):
    with pytest.raises(BadOptions, match="seed"):
        Stream("s", SCHEMA, "ts", seed=seed)


def test_what_was_refused_is_told_in_a_dictionary_of_the_callers_own():
    stream = Stream("s", SCHEMA, "ts", clock=ManualClock(0), max_future=10)
    stream.append(pa.table(at([5, 50])))
    stream.refused.clear()
    assert stream.refused == {"too_far_ahead": 1}
