"""Tuples that have left memory: nobody can tell, but by how long it takes."""

import numpy as np
import pytest

from promising.errors import DataDamaged
from promising.index import Stream
from promising.index.snapshot import Snapshot
from promising.testing import ManualClock
from tests.index.world import SCHEMA, SMALL, ColdShelf, columns, contents, cool, pairs, restarted, small_chunks, words

KEYS = np.arange(40)
FAR = 1 << 40


def made(room: int = 6000) -> Stream:
    stream = Stream("s", SCHEMA, "ts", lateness=20, clock=ManualClock(FAR), max_tuples=room, keep=1200, seed=5)
    for name, key, structure in (("a", "k", "adaptive"), ("b", "s", "grid"), ("c", "k", "none")):
        stream.create_summary(name, key, granularity=50, collapse=(3, 3), structure=structure, options=SMALL)
    return stream


def batches(seed: int, count: int):
    rng = np.random.default_rng(seed)
    first, now = 0, 0
    for _ in range(count):
        n = int(rng.integers(1, 400))
        times = now + np.cumsum(rng.exponential(0.3, n)).astype(np.int64)
        now = int(times[-1])
        times = times - (rng.random(n) < 0.1) * rng.integers(0, 300, n)
        yield columns(times, rng.choice(KEYS, n), first)
        first += n


def same(cold: Stream, warm: Stream, windows: list[tuple[int, int] | None]) -> None:
    assert (cold.count, cold.kept, cold.watermark) == (warm.count, warm.kept, warm.watermark)
    rows = cold._log.rows()
    assert rows.tolist() == warm._log.rows().tolist()
    assert cold.take(rows).equals(warm.take(rows))
    mixed = np.random.default_rng(len(rows)).permutation(rows)[:300]
    assert cold.take(mixed).equals(warm.take(mixed))
    for name, summary in cold.summaries.items():
        asked = words(KEYS) if summary.key == "s" else KEYS
        for window in windows:
            assert pairs(cold, summary, asked, window) == pairs(warm, warm.summaries[name], asked, window)
            mine, theirs = summary.estimate(asked, window), warm.summaries[name].estimate(asked, window)
            assert mine.value.tolist() == theirs.value.tolist()
            place, table = summary.fetch(asked, window)
            there, expected = warm.summaries[name].fetch(asked, window)
            assert place.tolist() == there.tolist()
            assert table.equals(expected)
        assert contents(cold, summary) == contents(warm, warm.summaries[name])
        assert summary.describe().zones == warm.summaries[name].describe().zones
    for window in windows:
        start, end = window or (-(1 << 60), 1 << 60)
        one, other = (Snapshot(stream, start, end, stream.summaries["a"]) for stream in (cold, warm))
        with one.holding():
            assert one.admitted(rows).tolist() == other.admitted(rows).tolist()
            assert one.granularity(rows).tolist() == other.granularity(rows).tolist()
            assert one.touched(rows) == other.touched(rows)


@pytest.mark.deep("asks everything of whole stores")
@pytest.mark.parametrize("seed", range(6))
def test_a_stream_with_cold_tuples_answers_like_one_without(seed, monkeypatch):
    small_chunks(monkeypatch, 64)
    cold, warm, shelf = made(), made(), ColdShelf()
    rng = np.random.default_rng(seed)
    cooled = left = 0
    for number, batch in enumerate(batches(seed, 60)):
        runs = cold._log.runs
        assert cold.append(batch) == warm.append(batch)
        left += any(run not in cold._log.runs for run in runs)
        if rng.random() < 0.5:
            cooled += cool(cold, shelf, int(rng.integers(0, 500)), int(rng.integers(1, 5)))
        if rng.random() < 0.2:
            cold = restarted(cold, cold.clock)
        if number % 6 == 0:
            newest = cold.latest or 0
            same(cold, warm, [None, (newest - 300, newest - 40), (newest - 120, newest + 1)])
    assert cooled > 5
    assert left > 2


def test_memory_of_cold_tuples_is_given_back(monkeypatch):
    stream = Stream("s", {"ts": "timestamp", "k": "int"}, "ts", clock=ManualClock(FAR), max_tuples=1 << 20)
    stream.create_summary("a", "k", granularity=1000, collapse=(4, 5))
    n = 1 << 18
    stream.append({"ts": np.arange(n), "k": np.arange(n) % 100})
    before = stream.nbytes
    shelf = ColdShelf()
    assert cool(stream, shelf, n // 2, 16)
    assert stream.nbytes == before // 2 + (before // 2) % 16
    with stream.reading() as log:
        assert (log.warm, log.runs) == (n // 2, [0])
        assert not log._times[1000 : n // 4].any()  # the pages are gone


def test_tuples_that_cannot_be_read_any_more_leave_all_the_same(monkeypatch):
    small_chunks(monkeypatch, 64)
    stream, shelf = made(), ColdShelf()
    feed = batches(1, 80)
    while not cool(stream, shelf, 100, 4):
        stream.append(next(feed))
    shelf.lost.add(0)
    with pytest.raises(DataDamaged):
        stream.summaries["a"].fetch(KEYS)
    for batch in feed:
        stream.append(batch)
    assert 0 not in stream._log.runs
    twin = made()
    for batch in batches(1, 80):
        twin.append(batch)
    same(stream, twin, [None])


def test_a_run_that_is_lost_is_given_up(monkeypatch):
    small_chunks(monkeypatch, 64)
    stream, shelf = made(), ColdShelf()
    kept = 0
    for batch in batches(2, 30):
        kept += stream.append(batch).accepted
    assert cool(stream, shelf, 0, 4)
    before = stream.count
    shelf.lost.add(0)
    with stream.reading() as log:
        assert log.lose(0) == 256
    stream.rebuild()
    assert stream.count == before - 256
    found = stream.take(stream._log.rows(), ["id"]).column("id").to_pylist()
    assert sorted(contents(stream, stream.summaries["a"])) == sorted(
        i for i in found if i in contents(stream, stream.summaries["c"])
    )
    stream.append(columns([stream.latest], [3], 10**6))
    assert 10**6 in contents(stream, stream.summaries["a"])


def test_tuples_go_cold_in_order_and_only_when_no_fine_zone_has_them(monkeypatch):
    small_chunks(monkeypatch, 64)
    stream = made()
    for batch in batches(3, 20):
        stream.append(batch)
    with stream.reading() as log:
        horizon = stream.summaries["a"].state.horizons[0]
        chunks = log.coolable(horizon, 0, 1000)
        assert chunks
        assert all(c.used == 64 and c.latest < horizon for c in chunks)
        assert [c.base for c in chunks] == list(range(chunks[0].base, chunks[-1].base + 1, 64))
        assert len(log.coolable(horizon, 0, 3)) == 3
        assert log.coolable(horizon, len(log), 1000) == []
        shelf = ColdShelf()
        log.reader = shelf
        shelf.runs[7] = log.columns_of(chunks[:2])
        gone = chunks[0]
        monkeypatch.setattr(log, "_chunks", type(log._chunks)(c for c in log._chunks if c is not gone))
        assert not log.cool(7, chunks[:2])
