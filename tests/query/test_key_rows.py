"""A side's directory of keys against a dict of lists, while the stream goes on between two slices of work."""

from collections import defaultdict
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

import promising.query.key_rows
from promising.errors import TokenExpired
from promising.index import Stream
from promising.index.snapshot import Snapshot, postings_of
from promising.query.key_rows import Keys, Lists
from promising.query.planner import column_hasher
from promising.summaries.hashing import hash_keys
from promising.testing import ManualClock
from tests.index.world import SMALL, small_chunks

T = TypeVar("T")
EVER = 1 << 61


class World:
    """A stream with a summary on `k`, and all that came in. It keeps 40 to 45 units of time before the latest."""

    def __init__(self, chunk: int, monkeypatch: pytest.MonkeyPatch, max_tuples: int = 4096) -> None:
        small_chunks(monkeypatch, chunk)
        schema = {"ts": "timestamp", "k": "int", "id": "int", "other": "int"}
        self.stream = Stream("s", schema, "ts", keep=40, clock=ManualClock(1 << 50), max_tuples=max_tuples, seed=11)
        self.summary = self.stream.create_summary("by_k", "k", granularity=5, collapse=(2, 2), options=SMALL)
        self.told: list[tuple[int, int, int | None]] = []

    def append(self, times: Any, keys: Any, other: list[int | None] | None = None) -> None:
        n, first = len(times), len(self.told)
        if n == 0:
            return
        other = [int(k) for k in keys] if other is None else other
        batch = {"ts": np.asarray(times), "k": np.asarray(keys), "id": np.arange(first, first + n), "other": other}
        assert self.stream.append(batch).accepted == n
        self.told += zip(np.asarray(times).tolist(), np.asarray(keys).tolist(), other, strict=True)

    def snapshot(self, start: int = -EVER, end: int = EVER) -> Snapshot:
        return Snapshot(self.stream, start, end, self.summary)

    def keys(self, snapshot: Snapshot) -> Keys:
        postings = postings_of(self.summary)
        assert postings is not None
        hasher = column_hasher(snapshot, "k")
        return Keys(snapshot, hasher, postings, exact=snapshot.everything, summary=self.summary)

    def expected(self, snapshot: Snapshot, column: int = 1) -> dict[int, list[int]]:
        """Ids of each key in the snapshot, the newest first."""
        out: dict[int, list[int]] = defaultdict(list)
        for number, tuple_ in enumerate(self.told[: snapshot.until]):
            key = tuple_[column]
            if snapshot.start <= tuple_[0] < snapshot.end and key is not None:
                out[key].insert(0, number)
        return out

    def hashes(self, keys: Any) -> NDArray[np.int64]:
        return hash_keys(np.asarray(keys, np.int64), self.stream.seed).view(np.int64)

    def by_key(self, lists: Lists) -> list[list[int]]:
        found = self.stream.take(lists.rows, ["id"]).column("id").to_pylist()
        return [found[s : s + n] for s, n in zip(lists.starts.tolist(), lists.counts.tolist(), strict=True)]


def drive(working: Generator[None, None, T], between: Callable[[int], None] = lambda step: None) -> tuple[T, int]:
    """What a generator returns, and how often it paused; `between` happens meanwhile."""
    pauses = 0
    while True:
        try:
            next(working)
        except StopIteration as stop:
            return stop.value, pauses
        pauses += 1
        between(pauses)


# --- listing -----------------------------------------------------------------------------------------------------


def collect(keys: Keys, between: Callable[[int], None] = lambda part: None) -> tuple[list[int], int]:
    """The hashes listed since the last new beginning, and how many beginnings there were."""
    found: list[int] = []
    again = parts = 0
    for part in keys.listed():
        if part is None:
            found, again = [], again + 1
            continue
        found += part.tolist()
        parts += 1
        between(parts)
    return found, again


def crowd(monkeypatch: pytest.MonkeyPatch, old: int, lately: int, slices: int) -> tuple[World, Snapshot, Keys]:
    """Many keys from time 5 to 20, some more at 45, which the snapshot covers; the directory takes `slices` to list."""
    world = World(16, monkeypatch, 16_384)
    world.append(5 + np.arange(old) * 15 // max(old, 1), np.arange(old))
    world.append(np.full(lately, 45), np.arange(10_000, 10_000 + lately))
    snapshot = world.snapshot(start=45)
    keys = world.keys(snapshot)
    monkeypatch.setattr(promising.query.key_rows, "LINES", keys.postings.lines // slices)
    return world, snapshot, keys


@pytest.mark.parametrize("slices", [1, 2, 8])
def test_every_key_is_listed_once(monkeypatch, slices):
    world, _, keys = crowd(monkeypatch, 1500, 300, slices)
    parts = list(keys.listed())
    assert len(parts) == slices
    listed = np.concatenate([p for p in parts if p is not None])
    assert sorted(listed.tolist()) == sorted(world.hashes([*range(1500), *range(10_000, 10_300)]).tolist())


def test_keys_that_come_meanwhile_do_no_harm(monkeypatch):
    world, snapshot, keys = crowd(monkeypatch, 0, 300, 8)
    found, again = collect(keys, lambda part: world.append([46] * 5, [part * 5 + i for i in range(5)]))
    assert again == 0
    assert len(found) == len(set(found))
    assert set(found) >= set(world.hashes(list(world.expected(snapshot))).tolist())


@pytest.mark.parametrize("when", [1, 3, 7, 8])
def test_a_directory_that_grows_is_listed_again(monkeypatch, when):
    world, snapshot, keys = crowd(monkeypatch, 0, 400, 8)

    def grow(part: int) -> None:
        if part == when:
            world.append([46] * 1000, np.arange(20_000, 21_000))

    lines = keys.postings.lines
    found, again = collect(keys, grow)
    assert keys.postings.lines > lines
    assert again == 1 or when == 8  # by then all of it has been listed
    assert len(found) == len(set(found))
    assert set(found) >= set(world.hashes(list(world.expected(snapshot))).tolist())


@pytest.mark.parametrize("when", [1, 2, 3, 4, 7])
def test_a_directory_that_shrinks_is_listed_again(monkeypatch, when):
    world, snapshot, keys = crowd(monkeypatch, 4000, 100, 8)

    def shrink(part: int) -> None:
        if part == when:
            world.append([70], [10_000])

    lines = keys.postings.lines
    found, again = collect(keys, shrink)
    assert keys.postings.lines < lines // 4
    assert again == 1
    assert len(found) == len(set(found))
    assert set(found) == set(world.hashes(list(world.expected(snapshot))).tolist())


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_directory_that_never_rests_is_listed_in_one_go_at_last(monkeypatch, every):
    world, snapshot, keys = crowd(monkeypatch, 0, 100, 4)
    fresh = iter(range(1, 9))

    def grow(part: int) -> None:
        if part % every == 0 and (step := next(fresh, 0)):
            world.append([46] * (300 << step), np.arange(300 << step) + 100_000 * step)

    found, again = collect(keys, grow)
    assert again <= 3
    assert len(found) == len(set(found))
    assert set(found) >= set(world.hashes(list(world.expected(snapshot))).tolist())


# --- loading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3, 8, 1 << 15])
@pytest.mark.parametrize("start", [-EVER, 42, 59])
def test_the_rows_of_keys_are_those_of_the_snapshot(monkeypatch, steps, start):
    world = World(8, monkeypatch)
    rng = np.random.default_rng(steps)
    times = np.concatenate((np.zeros(10), rng.integers(35, 60, 200)))
    keys_of = np.minimum(rng.geometric(0.2, 210), 20)
    world.append(times.astype(np.int64), keys_of)
    snapshot = world.snapshot(start, 58)
    keys = world.keys(snapshot)
    monkeypatch.setattr(promising.query.key_rows, "STEPS", steps)
    asked = [*rng.permutation(25).tolist(), 3, 3, 99]
    lists, pauses = drive(keys.load(world.hashes(asked)))
    expected = world.expected(snapshot)
    assert world.by_key(lists) == [expected.get(k, []) for k in asked]
    assert (pauses > 0) == (steps < 1 << 15)
    counts = keys.counts(world.hashes(asked)).tolist()
    assert all(n >= len(expected.get(k, [])) for n, k in zip(counts, asked, strict=True))
    nothing, _ = drive(keys.load(world.hashes([])))
    assert len(nothing.rows) == len(nothing.starts) == len(nothing.counts) == 0


def test_exact_counts_are_those_of_the_snapshot(monkeypatch):
    world = World(8, monkeypatch)
    world.append([50] * 9, [1, 2, 2, 3, 3, 3, 2, 1, 2])
    keys = world.keys(world.snapshot())
    assert keys.exact
    assert keys.counts(world.hashes([3, 2, 1, 0])).tolist() == [3, 4, 2, 0]


def test_what_comes_after_a_snapshot_of_everything_is_not_loaded(monkeypatch):
    world = World(8, monkeypatch)
    world.append([50] * 6, [1, 2, 1, 2, 2, 3])
    snapshot = world.snapshot()
    assert snapshot.everything
    world.append([50] * 4, [1, 2, 3, 4])
    lists, _ = drive(world.keys(snapshot).load(world.hashes([1, 2, 3, 4])))
    assert world.by_key(lists) == [[2, 0], [4, 3, 1], [5], []]


@pytest.mark.parametrize("seed", range(25))
def test_the_stream_goes_on_while_rows_are_loaded(monkeypatch, seed):
    """Tuples come, and old chunks go and are used again, while a long chain is followed stretch by stretch."""
    world = World(4, monkeypatch)
    rng = np.random.default_rng(seed)
    world.append(np.sort(rng.integers(0, 40, 60)), rng.integers(0, 6, 60))
    world.append(np.sort(rng.integers(40, 60, 60)), rng.integers(0, 6, 60))
    snapshot = world.snapshot(start=60 - int(rng.integers(1, 20)), end=60 - int(rng.integers(0, 3)))
    monkeypatch.setattr(promising.query.key_rows, "STEPS", int(rng.integers(1, 12)))
    now = 60

    def go_on(step: int) -> None:
        nonlocal now
        if step < 40 and rng.random() < 0.7:
            now = min(now + int(rng.integers(0, 4)), 84)  # as late as nothing that the snapshot needs has aged
            n = int(rng.integers(0, 9))
            world.append(np.full(n, now) - rng.integers(0, 20, n), rng.integers(0, 6, n))

    asked = rng.permutation(7).tolist()
    before = world.keys(snapshot).postings.forgotten
    lists, _ = drive(world.keys(snapshot).load(world.hashes(asked)), go_on)
    expected = world.expected(snapshot)
    assert world.by_key(lists) == [expected.get(k, []) for k in asked]
    go_on(0)
    assert seed or world.keys(snapshot).postings.forgotten > before, "some of these let chunks go"


def test_a_chain_that_loses_its_end_is_followed_anew(monkeypatch):
    world = World(4, monkeypatch)
    world.append([0] * 20 + [45] * 20, [7] * 40)
    snapshot = world.snapshot(start=45)
    monkeypatch.setattr(promising.query.key_rows, "STEPS", 8)

    def age(step: int) -> None:
        if step == 2:
            world.append([60, 60, 61, 61, 62, 62], [7, 8, 7, 8, 7, 8])  # in the chunks of the first 20

    lists, _ = drive(world.keys(snapshot).load(world.hashes([7])), age)
    assert world.by_key(lists) == [list(range(39, 19, -1))]


def test_a_chain_of_which_nothing_is_left_is_an_empty_list(monkeypatch):
    """All its rows were outside the window, and have gone while they were looked through."""
    world = World(4, monkeypatch)
    world.append([0] * 20 + [45] * 4, [7] * 20 + [8] * 4)
    snapshot = world.snapshot(start=45)
    monkeypatch.setattr(promising.query.key_rows, "STEPS", 8)

    def age(step: int) -> None:
        if step == 1:
            world.append([61], [9])

    lists, _ = drive(world.keys(snapshot).load(world.hashes([7, 8])), age)
    assert world.by_key(lists) == [[], [23, 22, 21, 20]]


def test_loading_stops_when_something_needed_has_gone(monkeypatch):
    world = World(4, monkeypatch)
    world.append([0] * 4 + [45] * 20, [7] * 24)
    snapshot = world.snapshot(start=45)
    monkeypatch.setattr(promising.query.key_rows, "STEPS", 4)
    keys = world.keys(snapshot)
    for working in (keys.load(world.hashes([7])), keys.load(world.hashes([8, 9, 10, 11, 7]))):
        next(working)
    world.append([100], [1])
    with pytest.raises(TokenExpired, match=r"before 1970-01-01 00:00:00\.000060"):
        next(working)
    with pytest.raises(TokenExpired):
        next(keys.listed())
    with pytest.raises(TokenExpired):
        keys.counts(world.hashes([7]))


# --- building ----------------------------------------------------------------------------------------------------


def hasher_of(snapshot: Snapshot) -> promising.query.key_rows.Hasher:
    return lambda rows: (snapshot.hashes("other", rows), snapshot.nulls("other", rows))


@pytest.mark.parametrize("window", [(-EVER, EVER), (50, 57), (57, 58), (90, 99)])
@pytest.mark.parametrize("size", [3, 16, 1 << 14])
def test_a_directory_built_for_a_query_has_the_snapshot_alone(monkeypatch, window, size):
    """Without the tuples that have no key, and without those that come while it is built."""
    monkeypatch.setattr(promising.query.key_rows, "ENTERED", size)
    monkeypatch.setattr(promising.query.key_rows, "STEPS", 5)
    world = World(8, monkeypatch)
    rng = np.random.default_rng(5)
    other = [None if i % 7 == 0 else int(k) for i, k in enumerate(rng.integers(0, 9, 100))]
    world.append(np.sort(rng.integers(30, 60, 100)), np.arange(100), other)
    snapshot = world.snapshot(*window)
    expected = world.expected(snapshot, column=2)
    later = lambda step: world.append([56] * 3, [1, 2, 3])  # noqa: E731  # said where it is used
    keys, _ = drive(Keys.build(snapshot, hasher_of(snapshot)), later)
    assert keys.built and keys.exact
    asked = list(range(10))
    assert keys.counts(world.hashes(asked)).tolist() == [len(expected.get(k, [])) for k in asked]
    lists, _ = drive(keys.load(world.hashes(asked)), later)
    assert world.by_key(lists) == [expected.get(k, []) for k in asked]
    found, again = collect(keys, later)
    assert sorted(found) == sorted(world.hashes(list(expected)).tolist()) and again == 0


def test_a_directory_that_is_built_has_room_from_the_start(monkeypatch):
    world = World(256, monkeypatch)
    world.append([50] * 3000, np.arange(3000))
    snapshot = world.snapshot()
    keys, _ = drive(Keys.build(snapshot, lambda rows: (snapshot.hashes("k", rows), None)))
    assert keys.postings.version == 0 and keys.postings.keys == 3000


def test_building_stops_when_something_needed_has_gone(monkeypatch):
    monkeypatch.setattr(promising.query.key_rows, "ENTERED", 4)
    world = World(4, monkeypatch)
    world.append([45] * 20, [7] * 20)
    snapshot = world.snapshot()
    building = Keys.build(snapshot, hasher_of(snapshot))
    next(building)
    world.append([100], [1])
    with pytest.raises(TokenExpired):
        next(building)
