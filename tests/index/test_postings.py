"""Postings against a dict of lists: every key's rows, newest first, whatever comes and goes."""

from collections import Counter, deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from promising.index.postings import LEAST, Postings
from tests.conftest import NO_JIT
from tests.tiers import examples

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
@settings(max_examples=examples(5 if NO_JIT else 60))
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
@settings(max_examples=examples(5 if NO_JIT else 60))
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


# --- listing, following, room from the start ---------------------------------------------------------------------


def listed_by(postings: Postings, step: int) -> list[int]:
    parts = [postings.listed(at, min(at + step, postings.lines)) for at in range(0, postings.lines, step)]
    return [int(h) for part in parts for h in part]


@pytest.mark.kernel
@settings(max_examples=examples(5 if NO_JIT else 40))
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=6),
    st.integers(0, 99),
    st.sampled_from([64, 100, LEAST, 1 << 20]),
)
def test_every_key_is_in_one_line(steps, seed, step):
    """In whatever parts the directory is listed; by how many rows they have as well."""
    rng = np.random.default_rng(seed)
    model = Model()
    for entered, forgotten in steps:
        model.enter(rng.choice(POOL, entered))
        model.forget(forgotten)
        assert sorted(listed_by(model.postings, step)) == sorted(model.rows)
        lengths = {h: len(rows) for h, rows in model.rows.items()}
        parts = [(at, min(at + step, model.postings.lines)) for at in range(0, model.postings.lines, step)]
        sizes, dense = np.zeros(6, np.int64), np.full(model.postings.lines, 77, np.uint8)
        for part in parts:
            model.postings.tally(*part, sizes, dense)
        assert model.postings.most >= max(lengths.values(), default=0)
        expected = Counter(min(n, 5) for n in lengths.values())
        assert sizes[1:].tolist() == [expected[n] for n in range(1, 6)], "the last counts all that have more"
        assert Counter(dense[dense > 0].tolist()) == Counter(min(n, 255) for n in lengths.values())
        for least, most in [(1, 1), (2, 3), (3, 1 << 31), (5, 4)]:
            chosen = sorted(h for h, n in lengths.items() if least <= n <= most)
            for known in (None, dense):
                found = [model.postings.listed(*part, least, most, known) for part in parts]
                assert sorted(np.concatenate(found).tolist()) == chosen


@pytest.mark.kernel
@pytest.mark.parametrize("stretch", [1, 3, 40, 100])
def test_a_chain_can_be_followed_stretch_by_stretch(stretch):
    model = Model()
    rng = np.random.default_rng(4)
    model.enter(rng.choice(POOL[:4], 300))
    model.forget(50)
    model.enter(rng.choice(POOL[:4], 30))
    for h, chain in model.rows.items():
        newest, counts, _ = model.postings.counts(np.array([h]))
        row, left, found = int(newest[0]), int(counts[0]), []
        while left:
            rows = np.full(min(stretch, left), -1, np.int32)
            row = model.postings.follow(row, rows)
            left -= len(rows)
            found += rows.tolist()
        assert found == list(chain)
    none = np.empty(0, np.int32)
    assert model.postings.follow(17, none) == 17


def test_with_room_for_its_keys_a_directory_never_moves():
    for keys in (0, 1, 511, 512, 513, 3000):
        postings = Postings(CAPACITY, keys=keys)
        lines = postings.lines
        hashes = np.random.default_rng(keys).integers(-(1 << 62), 1 << 62, keys)
        postings.enter_all(hashes, np.arange(keys, dtype=np.int32))
        postings.enter_all(hashes, np.arange(keys, dtype=np.int32))
        assert (postings.keys, postings.version, postings.lines) == (keys, 0, lines)
        assert LEAST <= lines <= max(LEAST, 8 * keys)
    assert Postings(CAPACITY).lines == LEAST


@pytest.mark.kernel
def test_the_version_tells_that_lines_have_moved():
    """As long as it stays, a key is in the line that it was in."""
    model = Model()
    rng = np.random.default_rng(8)
    version = model.postings.version
    lines: dict[int, int] = {}
    grown = kept = 0
    for turn in range(40):
        if turn % 8 == 7:
            gone = model.postings.forgotten
            model.forget(100)
            assert model.postings.forgotten == gone + 100
            assert model.postings.version > version
        else:
            model.enter(rng.integers(0, 10_000, 60))
        places = model.postings._entries[:, 0]
        now = {h: int(np.flatnonzero((places == h) & (model.postings._tags != 0))[0]) for h in list(model.rows)[:50]}
        if model.postings.version == version:
            kept += 1
            assert all(now[h] == at for h, at in lines.items() if h in now)
        else:
            grown += turn % 8 != 7
        version, lines = model.postings.version, now
    assert grown and kept
    assert model.postings.forgotten == 500
