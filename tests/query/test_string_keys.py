"""Joins and groups on strings against brute force: late and old tuples, collapse, expiry, cold tuples, restarts."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising
import promising.index.coded
import promising.index.dictionary
import promising.query.planner
from promising.index.check import check_stream
from promising.index.dictionary import CodedStrings, Dictionary
from promising.query import Session
from promising.query.aggregate.aggregates import Aggregate, Groups
from promising.query.planner import _Planner
from promising.query.steps import Steps
from tests.index.storage import stores
from tests.index.world import ColdShelf, cool, narrow_hashes, small_chunks
from tests.tiers import examples

KEEP = 32_000_000
JOIN = "SELECT a.id AS a, b.id AS b, a.key AS key FROM a JOIN b ON a.key = b.key"


class World:
    """Streams a and b with keys of their own dictionaries, and their tuples."""

    def __init__(self, session: Session, seed: int, *, summaries: bool) -> None:
        self.session = session
        self.rng = np.random.default_rng(seed)
        self.held: dict[str, list[tuple[int, str | None, int]]] = {"a": [], "b": []}
        self.summaries = summaries
        self.now = 0
        for name in "ab":
            session.execute(
                f"CREATE STREAM {name} (ts TIMESTAMP, key STRING, city STRING, id INT) TIMESTAMP BY ts"
                f" LATENESS 8 SECONDS KEEP {KEEP // 1_000_000} SECONDS"
            )
            if summaries:
                session.execute(
                    f"CREATE SUMMARY {name}_k ON {name} (key) WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 3)"
                )

    def ingest(self, name: str, n: int) -> None:
        self.now += int(self.rng.integers(0, 5_600_000))
        ids = np.arange(n) + len(self.held[name])
        ts = self.now - self.rng.integers(0, 7_200_000, n).clip(0, self.now)
        shift = 10 * (self.now // 16_000_000)  # keys drift, so that old strings are forgotten
        keys: list[str | None] = [f"item {k}" if k % 5 else "" for k in self.rng.integers(shift, shift + 40, n)]
        if not self.summaries:
            keys = [None if i % 11 == 0 else key for i, key in enumerate(keys)]
        done = self.session.ingest(
            name, {"ts": ts.tolist(), "key": keys, "city": [self.city(i) for i in ids.tolist()], "id": ids.tolist()}
        )
        assert done.accepted == n
        self.held[name] += zip(ts.tolist(), keys, ids.tolist(), strict=True)

    @staticmethod
    def city(number: int) -> str | None:
        return None if number % 9 == 0 else "é" * (number % 7)

    def kept(self, name: str) -> list[tuple[str | None, int]]:
        """Key and id of the tuples that have not expired."""
        oldest = self.session.catalog.streams[name].oldest
        return [(key, number) for ts, key, number in self.held[name] if oldest is None or ts >= oldest]

    def check(self) -> None:
        a, b = self.kept("a"), self.kept("b")
        by_key = defaultdict(list)
        for key, number in b:
            by_key[key].append(number)
        pairs = Counter((i, j, key) for key, i in a if key is not None for j in by_key[key])
        assert Counter(self.rows(JOIN)) == pairs
        latest = max(s.time for s in self.session.catalog.streams.values() if s.time is not None)
        recent = {name: {i for ts, _, i in self.held[name] if ts > latest - 6_000_000} for name in "ab"}
        near = Counter({p: n for p, n in pairs.items() if p[0] in recent["a"] and p[1] in recent["b"]})
        assert Counter(self.rows(f"{JOIN} WINDOW 6 SECONDS")) == near
        (count,) = self.rows("SELECT count(*) AS n FROM a JOIN b ON a.key = b.key")
        assert count == (sum(pairs.values()),)
        assert dict(self.rows("SELECT key, count(*) FROM a GROUP BY key")) == Counter(key for key, _ in a)
        cities = Counter((key, self.city(i)) for key, i in a)
        assert {row[:2]: row[2] for row in self.rows("SELECT key, city, count(*) FROM a GROUP BY key, city")} == cities
        joined = Counter(self.city(j) for _, j, _ in pairs.elements())
        grouped = "SELECT b.city, count(*) FROM a JOIN b ON b.key = a.key GROUP BY b.city"
        assert dict(self.rows(grouped)) == joined
        itself = sum(n * n for n in Counter(key for key, _ in a if key is not None).values())
        assert self.rows("SELECT count(*) AS n FROM a JOIN a AS c ON a.key = c.key") == [(itself,)]
        if self.summaries:
            best = self.rows(f"{JOIN} WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.key)")
            assert Counter(best) == pairs
        for name in "ab":
            assert check_stream(self.session.catalog.streams[name]) == []

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.session.query(sql).to_arrow().to_pylist()]


@pytest.fixture(params=[16, 1 << 14], ids=["small chunks", "large chunks"])
def chunks(request, monkeypatch):
    if request.param < 1 << 14:
        small_chunks(monkeypatch, request.param)
    monkeypatch.setattr(promising.index.dictionary, "UNUSED", 8)


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("summaries", [True, False])
@pytest.mark.parametrize("way", ["coded", "in part", "narrow", "cold"])
@pytest.mark.parametrize("seed", range(2))
def test_joins_and_groups_on_strings(monkeypatch, way, summaries, seed):
    if way == "in part":
        monkeypatch.setattr(promising.index.coded, "FEWEST", 30)
    if way == "narrow":
        narrow_hashes(monkeypatch, 4)
    world, shelves = World(promising.open(seed=3), seed, summaries=summaries), (ColdShelf(), ColdShelf())
    for turn in range(8):
        for name, shelf in zip("ab", shelves, strict=True):
            world.ingest(name, int(world.rng.integers(1, 60)))
            if way == "cold" and summaries and turn % 2:
                cool(world.session.catalog.streams[name], shelf, 20, 2)
        if turn % 2:
            world.check()


@pytest.mark.usefixtures("chunks")
def test_joins_and_groups_on_strings_after_a_restart(tmp_path: Path):
    options = stores.SMALL
    world = World(promising.open(tmp_path, seed=3, options=options), 5, summaries=True)
    for turn in range(6):
        for name in "ab":
            world.ingest(name, 40)
        if turn % 2 == 0:
            assert world.session.store is not None
            world.session.store.checkpoint()
        world.session.close()
        world.session = promising.open(tmp_path, options=options)
        world.check()
    world.session.close()


def test_a_long_proof_is_planned_in_steps_and_can_be_cancelled(monkeypatch):
    world = World(promising.open(seed=3), 1, summaries=True)
    for name in "ab":
        world.ingest(name, 50)
    whole = world.session.query(JOIN).to_arrow()
    world = World(promising.open(seed=3), 1, summaries=True)
    for name in "ab":
        world.ingest(name, 50)
    monkeypatch.setattr(promising.query.planner, "PROOF", 1)
    answer = world.session.query(JOIN)
    answer.cancel()
    answer.run()
    assert answer.progress.cut == "cancelled" and answer.progress.token is not None
    assert answer.progress.rows == 0
    rest = world.session.resume(answer.progress.token).to_arrow()
    assert sorted(map(str, rest.to_pylist())) == sorted(map(str, whole.to_pylist()))


def test_a_join_whose_hashes_tell_strings_apart_compares_no_pair(monkeypatch):
    told: list[bool] = []
    before = _Planner._told_apart

    def recorded(planner: _Planner) -> Steps[bool]:
        told.append((yield from before(planner)))
        return told[-1]

    monkeypatch.setattr(_Planner, "_told_apart", recorded)
    world = World(promising.open(seed=3), 1, summaries=True)
    for name in "ab":
        world.ingest(name, 50)
    world.check()
    assert told.count(True) == 6  # each of the joins
    assert "keep where" not in str(world.session.execute(f"EXPLAIN {JOIN}"))
    del told[:]
    narrow_hashes(monkeypatch, 3)
    world = World(promising.open(seed=3), 1, summaries=True)
    for name in "ab":
        world.ingest(name, 50)
    world.check()
    assert not any(told)


def test_a_window_without_cold_tuples_compares_no_pair(monkeypatch):
    small_chunks(monkeypatch, 16)
    world, shelf = World(promising.open(seed=3), 2, summaries=True), ColdShelf()
    for turn in range(5):
        for name in "ab":
            world.ingest(name, 50)
        if turn > 1:
            world.check()
    assert cool(world.session.catalog.streams["a"], shelf, 60, 4)
    world.check()
    assert "keep where" in str(world.session.execute(f"EXPLAIN {JOIN}"))
    assert "keep where" not in str(world.session.execute(f"EXPLAIN {JOIN} WINDOW 1 SECONDS"))


def test_a_proof_that_takes_longer_than_the_budget_is_left_for_the_next_query(monkeypatch):
    monkeypatch.setattr(promising.query.planner, "PROOF", 30)
    world = World(promising.open(seed=3), 1, summaries=True)
    for name in "ab":
        world.ingest(name, 60)
    budgeted = f"EXPLAIN {JOIN} BUDGET 1000 MILLISECONDS"
    shown = ["keep where" in str(world.session.execute(budgeted)) for _ in range(12)]
    assert shown[0] and not shown[-1]
    assert shown == sorted(shown, reverse=True)


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["array", "codes", "codes of another", "renumbered"]),
            st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=30),
        ),
        max_size=12,
    )
)
def test_groups_are_the_same_whether_their_strings_come_as_codes(steps):
    """Also of several dictionaries, and of one that has other codes between two slices."""
    groups, of_arrays = (Groups(["string", "int"], [Aggregate("count")]) for _ in range(2))
    first, second = Dictionary(), Dictionary()
    for kind, numbers in steps:
        words = pa.array([None if n is None else f"word {n}" for n in numbers], pa.large_string())
        ids = pa.array([i % 2 for i in range(len(numbers))], pa.int64())
        of_arrays.add([words, ids], [None], len(words))
        key: pa.Array | CodedStrings = words
        if kind != "array":
            dictionary = second if kind == "codes of another" else first
            codes = dictionary.enter(words, words.is_null().to_numpy(zero_copy_only=False))
            key = dictionary.coded(codes)
            if kind == "renumbered":  # what a slice has read stays valid
                dictionary.leave(codes[: len(codes) // 2])
                dictionary.renumbered()
        groups.add([key, ids], [None], len(words))
    found, expected = groups.result(), of_arrays.result()
    assert [a.to_pylist() for a in (*found.keys, *found.values)] == [
        a.to_pylist() for a in (*expected.keys, *expected.values)
    ]
