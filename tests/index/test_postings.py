"""Postings against a dict of lists: every key's rows, newest first, whatever comes and goes."""

from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from index.postings import LEAST, Postings
from tests.conftest import NO_JIT

CAPACITY = 4096


def crowded(count: int, home: int) -> list[int]:
    """Different hashes that all want the same line of a directory of any size up to 2^32."""
    return [(i << 32) + home for i in range(-count // 2, count - count // 2)]


# Lines in the middle, at the end (so that lines wrap around to the start), and 0, which an empty line holds too.
POOL = np.array([*crowded(40, 5), *crowded(60, LEAST - 2), *crowded(3, 0), *range(4, 50), -1, 1 << 62], np.int64)


class Model:
    """The postings, and the same in plain Python. Rows are given out round and round, as the log does."""

    def __init__(self) -> None:
        self.postings = Postings(CAPACITY)
        self.rows: dict[int, deque[int]] = {}
        self.order: deque[int] = deque()
        self.next = 0

    def enter(self, hashes: NDArray[np.int64]) -> None:
        assert len(self.order) + len(hashes) <= CAPACITY
        rows = np.arange(self.next, self.next + len(hashes), dtype=np.int32) % CAPACITY
        self.next += len(hashes)
        self.postings.enter_all(hashes, rows)
        for h, row in zip(hashes.tolist(), rows.tolist(), strict=True):
            self.rows.setdefault(h, deque()).appendleft(row)
            self.order.append(h)

    def forget(self, count: int) -> None:
        leaving = [self.order.popleft() for _ in range(min(count, len(self.order)))]
        self.postings.forget(np.array(leaving, np.int64))
        for h in leaving:
            self.rows[h].pop()
            if not self.rows[h]:
                del self.rows[h]

    def check(self, asked: NDArray[np.int64]) -> None:
        newest, counts, total = self.postings.counts(asked)
        expected = [list(self.rows.get(h, ())) for h in asked.tolist()]
        assert counts.tolist() == [len(e) for e in expected]
        assert total == sum(counts)
        probe, rows = self.postings.walk(newest, counts, total)
        assert probe.tolist() == [i for i, e in enumerate(expected) for _ in e]
        assert rows.tolist() == [row for e in expected for row in e]
        assert self.postings.keys == len(self.rows)


@pytest.mark.kernel
@settings(max_examples=5 if NO_JIT else 60)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 220), st.booleans()), min_size=1, max_size=10),
    st.integers(0, 1 << 32),
)
def test_churn(steps, seed):
    rng = np.random.default_rng(seed)
    model = Model()
    for entered, forgotten, skewed in steps:
        pool = POOL[:20] if skewed else POOL
        model.enter(rng.choice(pool, entered))
        model.forget(forgotten)
        model.check(np.concatenate((POOL, [77_777, -5])))
    model.forget(CAPACITY)
    model.check(POOL)
    assert not model.postings._entries.any()
    assert not model.postings._tags.any()


@pytest.mark.kernel
def test_the_directory_grows_and_shrinks():
    rng = np.random.default_rng(3)
    model = Model()
    model.enter(np.empty(0, np.int64))
    model.enter(rng.integers(-(1 << 62), 1 << 62, 2500))
    grown = len(model.postings._entries)
    assert grown > LEAST
    model.check(np.array(list(model.rows)[:200]))
    model.forget(2400)
    model.check(np.array(list(model.rows)))
    model.forget(100)
    assert len(model.postings._entries) < grown
    model.enter(POOL)
    model.check(POOL)


def test_long_churn():
    """Many laps of the rows: chains that were cut short are never followed into rows given out anew."""
    rng = np.random.default_rng(9)
    model = Model()
    for lap in range(150):
        model.enter(
            rng.choice(POOL, 400, p=None if lap % 3 else np.arange(len(POOL)) * 2 / len(POOL) / (len(POOL) - 1))
        )
        model.forget(int(rng.integers(0, 800)) if len(model.order) < 3000 else 1500)
        model.check(rng.permutation(POOL))


@pytest.mark.kernel
@settings(max_examples=5 if NO_JIT else 60)
@given(
    st.lists(st.tuples(st.integers(1, 80), st.integers(0, 80), st.booleans()), min_size=1, max_size=8),
    st.integers(0, 99),
)
def test_the_open_zone_counts_its_keys(steps, seed):
    """Entered, or entered before and noted; the last ones taken back when a cut leaves them to the next zone."""
    rng = np.random.default_rng(seed)
    postings = Postings(CAPACITY)
    keys, sizes = np.empty(1000, np.int64), np.empty(1000, np.int32)
    at = 0
    for zone, (count, back, noted) in enumerate(steps, start=1):
        postings.begin_zone()
        hashes = rng.choice(POOL, count)
        rows = np.arange(at, at + count, dtype=np.int32)
        at += count
        if noted:
            postings.enter_all(hashes, rows)
            postings.note(hashes, zone, keys, sizes)
        else:
            postings.enter(hashes, rows, 0, count, zone, keys, sizes)
        assert postings.zone_keys == len(set(hashes.tolist()))
        kept = max(count - back, 0)
        postings.take_back(hashes[kept:], sizes)
        expected = Counter(hashes[:kept].tolist())
        assert postings.open_sizes(POOL, zone, sizes).tolist() == [expected[h] for h in POOL.tolist()]
        n = postings.zone_keys
        assert {k: s for k, s in zip(keys[:n].tolist(), sizes[:n].tolist(), strict=True) if s} == dict(expected)
        assert not postings.open_sizes(POOL, zone + 1, sizes).any()


@pytest.mark.kernel
def test_forgetting_what_is_not_there_is_noticed():
    postings = Postings(16)
    postings.enter_all(np.array([5], np.int64), np.array([0], np.int32))
    with pytest.raises(AssertionError, match="2 rows"):
        postings.forget(np.array([6, 5, 5], np.int64))
