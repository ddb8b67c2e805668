"""Changing the structure of a summary changes no answer: at any moment, whatever is under way, over a restart too."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import BadOptions, BadQuestion, CeilingTooLow, TokenExpired, UnknownName
from promising.index import Stream, SummaryIndex
from promising.index.auto_structure import Auto
from promising.index.check import check_stream
from promising.index.options import STRUCTURES, Sizes
from promising.index.snapshot import Snapshot, postings_of
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.index.summary import SummaryState
from promising.query.key_rows import Keys
from promising.summaries.hashing import hash_keys
from promising.testing import ManualClock, Oracle
from tests.conftest import NO_JIT
from tests.index.test_purity import coarse
from tests.index.world import SCHEMA, SMALL, ColdShelf, columns, contents, cool, oracle_for, pairs, restarted
from tests.index.world import small_chunks as with_chunks
from tests.tiers import examples

KEYS = list(range(-2, 14))
EVER = 1 << 61


@pytest.fixture
def by_hand(monkeypatch):
    """No change but those that a test makes."""
    monkeypatch.setattr(Auto, "choice", lambda self, tuples, cold=0: None)


def store(clock: ManualClock, lateness: int = 30, structure: str = "auto") -> Stream:
    stream = Stream("store", SCHEMA, "ts", clock=clock, max_tuples=1 << 14, lateness=lateness, keep=320, seed=3)
    stream.create_summary("x", "k", granularity=40, collapse=(2, 3), structure=structure, options=SMALL)
    return stream


def batch(rng: random.Random, now: int, first: int, most: int = 300) -> Any:
    n = rng.randint(1, most)
    times = (
        sorted(now + rng.randint(-60, 40) for _ in range(n)) if rng.random() < 0.5 else [now + i // 8 for i in range(n)]
    )
    return columns(times, [int(rng.paretovariate(1)) % 12 for _ in range(n)], first)


class Under:
    """An answer under way: a snapshot with the postings of its moment, and what it must find."""

    def __init__(
        self, stream: Stream, summary: SummaryIndex, truth: dict[int, list[int]], start: int, end: int
    ) -> None:
        with stream.reading():
            self.snapshot = Snapshot(stream, start, end, summary)
            postings = postings_of(summary)
        self.stream = stream
        self.truth = truth
        self.keys: Keys | None = None
        if postings is not None:
            everything = self.snapshot.everything
            self.keys = Keys(self.snapshot, self.hasher, postings, exact=everything, summary=summary)

    def hasher(self, rows: Any) -> Any:
        return self.snapshot.hashes("k", rows), None

    def check(self) -> bool:
        """Whether it could still be asked; then it found just what was there."""
        asked = hash_keys(np.array(KEYS, np.int64), 3).view(np.int64)
        if self.keys is None:  # there were no postings: it has its own
            work = Keys.build(self.snapshot, self.hasher)
            while self.keys is None:
                try:
                    next(work)
                except StopIteration as done:
                    self.keys = done.value
                except TokenExpired:
                    return False
        try:
            counts = self.keys.counts(asked)
            lists = _all(self.keys.load(asked))
            listed = np.concatenate([h for h in self.keys.listed() if h is not None])
        except TokenExpired:
            return False
        names = self.stream.take(lists.rows, ["id"]).column("id").to_pylist()
        for key, start, found, count in zip(KEYS, lists.starts, lists.counts, counts, strict=True):
            expected = self.truth.get(key, [])
            assert sorted(names[start : start + found]) == expected
            assert count == len(expected) if self.keys.exact else count >= len(expected)
        there = set(listed.tolist())
        assert all(h in there for key, h in zip(KEYS, asked.tolist(), strict=True) if self.truth.get(key))
        return True


def _all(work: Any) -> Any:
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


def truth_of(oracle: Oracle, start: int, end: int) -> dict[int, list[int]]:
    return {key: [oracle._accepted[a]["id"] for a in oracle.tuples(key, (start, end))] for key in KEYS}


@settings(max_examples=examples(4 if NO_JIT else 30))
@given(st.integers(0, 1 << 32), st.sampled_from([1, 8, 64]), st.booleans())
def test_changes_at_any_moment_change_no_answer(seed, chunk, cold):
    """Against the oracle; with answers under way, restarts, tuples that go cold and rows that are used again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Auto, "choice", lambda self, tuples, cold=0: None)
        with_chunks(patch, chunk)
        rng, clock = random.Random(seed), ManualClock(1 << 50)
        stream = store(clock)
        summary = stream.summaries["x"]
        oracle = oracle_for(summary, stream, clock)
        shelf, under, finished, now, first = ColdShelf(), [], 0, 0, 0
        for _ in range(25):
            step = rng.random()
            if step < 0.45:
                now += rng.choice([0, 5, 30, 200])
                given = batch(rng, now, first)
                first += len(given["ts"])
                assert stream.append(given).accepted == oracle.append(given)[0]
            elif step < 0.75:
                summary.change(rng.choice(STRUCTURES))
            elif step < 0.85 and stream.watermark is not None:
                start = rng.choice([-EVER, now - 90])
                oldest = stream.oldest
                real = start if oldest is None else max(start, oldest)
                under.append(Under(stream, summary, truth_of(oracle, real, EVER), start, EVER))
            elif step < 0.9 and cold:
                cool(stream, shelf, 0, 4)
            elif step < 0.95 and not under:
                stream = restarted(stream, clock)
                summary = stream.summaries["x"]
            window = rng.choice([None, (now - 50, now), (now - 200, now + 1)])
            expected = [(at, oracle._accepted[a]["id"]) for at, a in oracle.join(KEYS, window)]
            assert pairs(stream, summary, KEYS, window) == sorted(expected)
            under = [one for one in under if one.check()]
            finished += len(under)
        told = summary.describe()
        assert (told.tuples, told.expired) == (len(oracle.live()), oracle.expired)
        assert told.structure == "auto" and told.now == summary.structure
        assert sorted(contents(stream, summary)) == sorted(oracle._accepted[a]["id"] for a in oracle.live())
        assert check_stream(stream) == []


@pytest.mark.parametrize("structure", ["time", "grid", "adaptive"])
@pytest.mark.parametrize("seed", range(4))
def test_a_rebuilt_structure_is_to_the_bit_one_that_was_there_all_along(by_hand, monkeypatch, structure, seed):
    with_chunks(monkeypatch, 64)
    rng, clock = random.Random(seed), ManualClock(1 << 50)
    stream = store(clock)
    stream.create_summary("twin", "k", granularity=40, collapse=(2, 3), structure=structure, options=SMALL)
    stream.create_summary("long", "k", granularity=35, collapse=(3, 4), structure="none")  # keeps some that x does not
    summary, now, first, compared = stream.summaries["x"], 0, 0, 0
    for _ in range(30):
        given = batch(rng, now, first)
        first += len(given["ts"])
        now += rng.choice([5, 30, 90])
        stream.append(given)
        if rng.random() < 0.6:
            summary.change(rng.choice(STRUCTURES))
        if rng.random() < 0.5:
            summary.change(structure)
            assert coarse(stream, summary) == coarse(stream, stream.summaries["twin"])
            compared += len(coarse(stream, summary))
            told, twin = summary.describe(), stream.summaries["twin"].describe()
            assert (told.tuples, told.expired, told.keys) == (twin.tuples, twin.expired, twin.keys)
    assert compared > 0 and check_stream(stream) == []


def test_what_was_gone_before_the_summary_was_made_stays_gone(by_hand):
    """Rows whose chunk is still in use, of tuples that were removed while less was kept."""
    stream = Stream("store", SCHEMA, "ts", clock=ManualClock(1 << 50), max_tuples=1 << 14, keep=80, seed=3)
    stream.append(columns(range(200), [i % 5 for i in range(200)]))
    assert stream.set_keep(None) == 0
    summary = stream.create_summary("x", "k", granularity=100, collapse=(2, 3), structure="auto", options=SMALL)
    twin = stream.create_summary("twin", "k", granularity=100, collapse=(2, 3), structure="grid", options=SMALL)
    assert 0 < twin.count < 200
    for structure in ("grid", "none", "time", "grid"):
        summary.change(structure)
        assert pairs(stream, summary, KEYS, None) == pairs(stream, twin, KEYS, None)
        assert (summary.describe().tuples, summary.describe().expired) == (twin.count, twin.describe().expired)
    assert coarse(stream, summary) == coarse(stream, twin) and check_stream(stream) == []


def test_postings_that_are_left_are_told_of_what_goes_as_long_as_somebody_reads_them(by_hand, monkeypatch):
    with_chunks(monkeypatch, 8)
    stream = store(ManualClock(1 << 50))
    summary = stream.summaries["x"]
    summary.change("grid")
    stream.append(columns(range(32), [1] * 32))
    with stream.reading():
        held = postings_of(summary)
    assert held is not None
    summary.change("none")
    assert len(stream._summaries.left) == 1 and held.until == 32
    stream.append(columns([1000] * 8, [1] * 8, 32))  # all that was before has aged out
    assert held.keys == 0 and held.forgotten == 32
    stream.append(columns([2000] * 8, [1] * 8, 40))  # what came later is none of its business
    assert held.forgotten == 32
    del held
    assert len(stream._summaries.left) == 0


def test_numbers_of_zones_are_not_used_again(by_hand):
    stream = store(ManualClock(1 << 50))
    summary = stream.summaries["x"]
    summary.change("time")
    stream.append(columns(range(30), [1] * 30))
    (region,) = list(summary.regions([1]))
    for structure in ("none", "grid", "adaptive"):
        summary.change(structure)
        with pytest.raises(UnknownName):
            summary.visit(region)


def test_a_change_that_fails_leaves_all_as_it_was(monkeypatch):
    stream = store(ManualClock(1 << 50))
    summary = stream.summaries["x"]
    stream.append(columns(range(300), [i % 5 for i in range(300)]))
    monkeypatch.setattr(Auto, "choice", lambda self, tuples, cold=0: "grid")

    def fails(*_: Any) -> None:
        raise MemoryError

    assert summary.auto is not None
    summary.auto.news = True  # something to choose by
    with monkeypatch.context() as patch:
        patch.setattr(SummaryState, "insert", fails)
        found = pairs(stream, summary, [1, 2], None)
        assert summary.structure == "none"
        assert summary.auto.why == "a change to grid failed: MemoryError"
    for _ in range(4):  # of which not every one is looked at
        assert pairs(stream, summary, [1, 2], None) == found
    assert summary.structure == "grid" and check_stream(stream) == []


def test_only_auto_changes_and_the_ceiling_is_that_of_the_largest(by_hand):
    stream = store(ManualClock(1 << 50))
    fixed = stream.create_summary("y", "k", granularity=40, collapse=(2, 3), options=SMALL)
    with pytest.raises(BadQuestion, match="STRUCTURE adaptive, and keeps it"):
        fixed.change("grid")
    auto = stream.summaries["x"]
    ceilings = set()
    for structure in STRUCTURES:
        auto.change(structure)
        ceilings.add(auto.describe().ceiling)
    geometry = auto.state.identity.geometry
    every = [Sizes.of(s, SMALL, geometry, stream._log.capacity, stream.lateness).ceiling for s in STRUCTURES]
    assert ceilings == {max(every)}
    with pytest.raises(BadOptions):  # time could not have them
        stream.create_summary("z", "k", granularity=40, structure="auto", options=type(SMALL)(probes=4))
    with pytest.raises(CeilingTooLow):
        stream.create_summary("z", "k", granularity=40, structure="auto", options=type(SMALL)(ceiling=10_000))


def test_it_changes_by_itself_when_questions_come_and_when_they_stop():
    """With a clock that stands still nothing is measured, and the model alone decides."""
    stream = Stream("store", SCHEMA, "ts", clock=ManualClock(1 << 50), max_tuples=1 << 15, keep=8_000_000, seed=3)
    summary = stream.create_summary("x", "k", granularity=1_000_000, collapse=(2, 3), structure="auto", options=SMALL)
    stream.cpu = lambda: 0
    assert summary.structure_text == "auto: none, because nothing was asked yet"
    for i in range(4):
        stream.append(columns(range(i * 4096, (i + 1) * 4096), [j % 90 for j in range(4096)], i * 4096))
    for _ in range(2_000):
        summary.probe(KEYS)
        if summary.structure != "none":
            break
    assert summary.structure == "time" and summary.structure_text.startswith("auto: time, because none has cost ")
    last = 4 * 4096
    for i in range(2_000):
        stream.append(columns(np.full(4096, last + i * 4_000_000), [j % 90 for j in range(4096)], i))
        if summary.structure == "none":
            break
    assert summary.structure == "none"


# --- on disk -----------------------------------------------------------------------------------------------------


def test_a_store_remembers_what_was_chosen_and_the_log_does_not_care(by_hand, tmp_path, monkeypatch):
    with_chunks(monkeypatch, 64)
    clock = ManualClock(1 << 50)
    options = StoreOptions(hot_tuples=256, run_tuples=128)
    rng, now, first = random.Random(5), 0, 0
    oracle: Oracle | None = None
    before = ("none", "auto: none, because nothing was asked yet")
    for life, structure in enumerate(("grid", "none", "time", "adaptive", "none")):
        with Store.open(tmp_path, seed=3, clock=clock, options=options) as kept:
            if oracle is None:
                stream = kept.create_stream("store", SCHEMA, "ts", lateness=30, max_tuples=1 << 14)
                stream.create_summary("x", "k", granularity=40, collapse=(2, 3), structure="auto", options=SMALL)
                oracle = oracle_for(stream.summaries["x"], stream, clock)
            stream = kept.streams["store"]
            summary = stream.summaries["x"]
            assert (summary.structure, summary.structure_text) == before
            for _ in range(4):
                given = batch(rng, now, first)
                first, now = first + len(given["ts"]), now + 40
                assert stream.append(given).accepted == oracle.append(given)[0]
                if life % 2:
                    kept.checkpoint()
            summary.change(structure)
            if life % 2 == 0:
                kept.checkpoint()  # else the change is in the image that closing writes
            given = batch(rng, now, first)
            first, now = first + len(given["ts"]), now + 40
            oracle.append(given)
            stream.append(given)  # after the last image: the log has it
            expected = [(at, oracle._accepted[a]["id"]) for at, a in oracle.join(KEYS)]
            assert pairs(stream, summary, KEYS, None) == sorted(expected)
            assert check_stream(stream) == []
            assert stream.definitions()[0]["structure"] == "auto"
            assert stream.definitions(now=True)[0]["structure"] == structure
            before = (structure, summary.structure_text)
