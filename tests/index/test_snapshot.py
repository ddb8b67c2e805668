"""A snapshot is what had arrived when it was taken, to the tuple and the microsecond, whatever comes after it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import TokenExpired, UnknownName
from promising.index import Stream, SummaryIndex
from promising.index.geometry import Geometry
from promising.index.snapshot import Snapshot, postings_of
from promising.summaries.hashing import hash_keys
from promising.testing import ManualClock
from tests.conftest import NO_JIT
from tests.index.world import SMALL, columns, ids, small_chunks
from tests.tiers import examples

pytestmark = pytest.mark.kernel

EVER = 1 << 61
GEOMETRY = Geometry(10, 2, 3, keep=160)
SCHEMA = {"ts": "timestamp", "k": "int", "s": "string", "id": "int", "x": "float"}


class World:
    """A stream, and the time of every tuple by its id, in order of arrival."""

    def __init__(self, lateness: int = 0, summary: bool = True, structure: str = "adaptive") -> None:
        clock = ManualClock(1 << 50)
        self.stream = Stream("store", SCHEMA, "ts", clock=clock, max_tuples=2048, lateness=lateness, keep=160, seed=3)
        self.summary: SummaryIndex | None = None
        if summary:
            g = GEOMETRY
            self.summary = self.stream.create_summary(
                "by_k", "k", granularity=g.granularity, collapse=(g.rate, g.depth), structure=structure, options=SMALL
            )
        self.times: list[int] = []

    def append(self, *times: int) -> None:
        batch = columns(times, [i % 7 for i in range(len(times))], len(self.times))
        assert self.stream.append(batch).accepted == len(times)
        self.times += times

    def snapshot(self, start: int = -EVER, end: int = EVER) -> Snapshot:
        return Snapshot(self.stream, start, end, self.summary)

    def expected(self, snapshot: Snapshot) -> list[int]:
        """Ids that belong, in order of arrival."""
        return [i for i, t in enumerate(self.times[: snapshot.until]) if snapshot.start <= t < snapshot.end]

    def check(self, snapshot: Snapshot) -> None:
        """The snapshot has its tuples and no others, asked in every way there is."""
        with snapshot.holding():
            rows = snapshot.rows_between(0, snapshot.size)
            assert snapshot.rows_at(np.arange(snapshot.size)).tolist() == rows.tolist()
            kept = snapshot.admitted(rows)
            found = ids(self.stream, rows[kept]).tolist()
            assert found == self.expected(snapshot)
            all_rows = self.stream._log.rows()
            assert ids(self.stream, all_rows[snapshot.admitted(all_rows)]).tolist() == found
            assert snapshot.whole == bool(kept.all())
            assert snapshot.tuples.lower <= len(found) <= snapshot.tuples.upper
            assert snapshot.tuples.lower <= snapshot.tuples.value <= snapshot.tuples.upper
            assert snapshot.touched(rows[kept]) & ~snapshot.reached == 0
            levels = snapshot.granularity(rows[kept])
            assert snapshot.touched(rows[kept]) == sum(1 << int(g) for g in np.unique(levels))


def spread(seed: int, n: int, first: int, last: int) -> list[int]:
    return [int(t) for t in np.sort(np.random.default_rng(seed).integers(first, last, n))]


# --- what belongs ------------------------------------------------------------------------------------------------


@settings(max_examples=examples(5 if NO_JIT else 60))
@given(
    st.lists(st.lists(st.integers(-9, 12), min_size=1, max_size=12), min_size=1, max_size=8),
    st.sampled_from([1, 2, 8, 64]),
    st.integers(-20, 60),
    st.integers(0, 60),
    st.booleans(),
)
def test_a_window_over_any_stream(steps, chunk, start, length, summary):
    """While tuples come and chunks go, until the first that is needed has aged; then it says so, and not before."""
    with pytest.MonkeyPatch.context() as patch:
        small_chunks(patch, chunk)
        world = World(summary=summary)
        now = 0
        taken: list[Snapshot] = []
        earliest: dict[int, int] = {}
        for step in steps:
            world.append(*(now + t for t in step))
            now = max(now, now + max(step))
            oldest = world.stream.oldest
            taken.append(world.snapshot(start, start + length))
            taken.append(world.snapshot())
            for snapshot in taken[-2:]:  # a chunk goes as a whole, so all of those it reads count
                read = snapshot.rows_between(0, snapshot.size)
                earliest[id(snapshot)] = min((world.times[i] for i in ids(world.stream, read).tolist()), default=EVER)
            everything = all(taken[-1].start <= t for t in kept_of(world))
            assert taken[-1].everything == everything
            assert taken[-1].start == (-EVER if oldest is None else oldest)
            for snapshot in taken:
                oldest = world.stream.oldest
                if oldest is None or oldest <= max(snapshot.start, earliest[id(snapshot)]):
                    world.check(snapshot)
                else:
                    with pytest.raises(TokenExpired), snapshot.holding():
                        pass


def kept_of(world: World) -> list[int]:
    """Times of all that is in the log, aged or not."""
    return [world.times[i] for i in ids(world.stream, world.stream._log.rows()).tolist()]


def test_the_edges_of_a_window_are_exact(monkeypatch):
    small_chunks(monkeypatch, 4)
    world = World()
    world.append(*range(40, 60))
    for start, end in [(45, 50), (44, 48), (45, 45), (40, 60), (59, 60), (60, 70), (0, 40), (0, 41), (50, 45)]:
        snapshot = world.snapshot(start, end)
        rows = snapshot.rows_between(0, snapshot.size)
        found = ids(world.stream, rows[snapshot.admitted(rows)])
        assert [world.times[i] for i in found] == [t for t in range(40, 60) if start <= t < end]
    whole = world.snapshot(44, 52)
    assert whole.whole and not whole.everything and whole.size == 8
    assert not world.snapshot(44, 51).whole and not world.snapshot(45, 52).whole
    assert world.snapshot(40, 60).everything and not world.snapshot(41, 60).everything
    assert not world.snapshot(40, 59).everything


def test_what_arrives_later_is_not_in_it(monkeypatch):
    small_chunks(monkeypatch, 8)
    world = World()
    world.append(50, 51, 52)
    snapshot = world.snapshot(50, 60)
    assert (snapshot.grown, snapshot.kept) == (0, 3)
    world.append(*[51] * 20)
    assert (snapshot.grown, snapshot.size, snapshot.kept) == (20, 3, 3)
    rows = world.stream._log.rows()
    assert ids(world.stream, rows[snapshot.admitted(rows)]).tolist() == [0, 1, 2]
    world.check(snapshot)


def test_a_chunk_used_again_never_leaks_into_it(monkeypatch):
    """Its new tuples have times of the window, and stand at rows that were there when the snapshot was taken."""
    small_chunks(monkeypatch, 4)
    world = World()
    world.append(*[-100] * 8, *[95] * 6)
    snapshot = world.snapshot(90, 100)
    before = set(world.stream._log.rows().tolist())
    world.append(110)
    world.append(*[97] * 30)
    rows = world.stream._log.rows()
    fresh = {r for r, i in zip(rows.tolist(), ids(world.stream, rows).tolist(), strict=True) if i >= 14}
    assert len(fresh & before) >= 8, "rows were used again"
    assert ids(world.stream, rows[snapshot.admitted(rows)]).tolist() == list(range(8, 14))
    world.check(snapshot)


def test_it_says_when_something_it_needs_has_aged(monkeypatch):
    small_chunks(monkeypatch, 4)
    world = World()
    world.append(*spread(1, 30, 0, 100))
    snapshot = world.snapshot(60, 100)
    for now in range(100, 60 + 160 + 40):
        world.append(now)
        if GEOMETRY.oldest(now) <= 60:
            world.check(snapshot)
        else:
            said = r"'store' has removed the tuples before 1970-01-01 00:00:00.000080, .* ask again"
            with pytest.raises(TokenExpired, match=said), snapshot.holding():
                pass
            break
    else:
        pytest.fail("it never did")
    world.stream.advance(1000)
    with pytest.raises(TokenExpired, match=r"before 1970-01-01 00:00:00\.000840"), snapshot.holding():
        pass


def test_tuples_that_have_aged_are_not_in_a_new_one(monkeypatch):
    """Their chunk may still be there."""
    small_chunks(monkeypatch, 64)
    world = World()
    world.append(0, 1, 39, 40, 41, 200)
    assert world.stream.oldest == 40 and len(world.stream._log) == 6
    snapshot = world.snapshot()
    assert (snapshot.start, snapshot.kept, snapshot.everything, snapshot.whole) == (40, 6, False, False)
    world.check(snapshot)
    assert world.expected(snapshot) == [3, 4, 5]


def test_the_stream_stands_still_while_it_is_held():
    world = World()
    world.append(50)
    snapshot = world.snapshot()
    with snapshot.holding():
        assert world.stream._lock._is_owned()  # type: ignore[attr-defined]  # of RLock, for Condition
    assert not world.stream._lock._is_owned()  # type: ignore[attr-defined]  # of RLock, for Condition


# --- numbers and rows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 2, 4, 16, 128])
def test_numbers_go_over_the_chunks_in_order_of_arrival(monkeypatch, chunk):
    """Also when chunks in between are outside the window, and when their rows are not in order."""
    small_chunks(monkeypatch, chunk)
    world = World()
    world.append(*spread(0, 40, 0, 20))
    world.append(*spread(1, 30, 90, 110))
    world.append(*[60] * 20)
    world.append(*spread(2, 33, 100, 120))
    world.append(*spread(3, 33, 110, 130))
    snapshot = world.snapshot(85, 125)
    with snapshot.holding():
        rows = snapshot.rows_between(0, snapshot.size)
        numbers = ids(world.stream, rows)
        assert (np.diff(numbers) > 0).all(), "as they came"
        for first in range(0, snapshot.size + 1, 7):
            for last in range(first, snapshot.size + 1, 5):
                assert snapshot.rows_between(first, last).tolist() == rows[first:last].tolist()
        mixed = np.random.default_rng(3).integers(0, snapshot.size, 50)
        assert snapshot.rows_at(mixed).tolist() == rows[mixed].tolist()
        assert snapshot.rows_at(mixed).dtype == rows.dtype == np.int32
        assert snapshot.rows_at(np.empty(0, np.int64)).tolist() == []
    assert chunk > 16 or snapshot.size < 136, "the chunks outside are not numbered"
    world.check(snapshot)


@pytest.mark.parametrize(("start", "end"), [(200, 300), (-EVER, 0), (70, 70)])
def test_an_empty_window(monkeypatch, start, end):
    small_chunks(monkeypatch, 4)
    world = World()
    world.append(*spread(0, 20, 60, 65), *spread(0, 20, 75, 80))
    snapshot = world.snapshot(start, end)
    world.check(snapshot)
    assert snapshot.size == 0 and snapshot.tuples == (0.0, 0.0, 0.0)
    assert snapshot.whole and not snapshot.everything
    assert snapshot.reached == 0


def test_an_empty_stream():
    world = World()
    snapshot = world.snapshot()
    assert (snapshot.size, snapshot.kept, snapshot.until, snapshot.oldest) == (0, 0, 0, None)
    assert (snapshot.whole, snapshot.everything, snapshot.grown) == (True, True, False)
    with snapshot.holding():
        assert snapshot.rows_between(0, 0).tolist() == []
    world.append(5)
    assert snapshot.grown
    rows = world.stream._log.rows()
    assert not snapshot.admitted(rows).any()


# --- how many ----------------------------------------------------------------------------------------------------


def test_a_chunk_across_an_edge_is_taken_to_have_its_share(monkeypatch):
    small_chunks(monkeypatch, 128)
    world = World()
    world.append(*range(0, 128), *[200] * 10)
    guess = world.snapshot(96, 128).tuples
    assert (guess.value, guess.lower, guess.upper) == (32.0, 0.0, 128.0)
    guess = world.snapshot(64, 201).tuples
    assert (guess.value, guess.lower, guess.upper) == (74.0, 10.0, 138.0)
    guess = world.snapshot(0, 201).tuples  # what has aged is behind the edge as well
    oldest = GEOMETRY.oldest(200)
    assert oldest == 40 and guess.value == 128 - 40 + 10


def test_the_number_of_tuples_is_certain_where_chunks_are_whole(monkeypatch):
    small_chunks(monkeypatch, 8)
    world = World()
    world.append(*range(60, 100))
    assert world.snapshot(60, 100).tuples == (40.0, 40.0, 40.0)
    assert world.snapshot(68, 92).tuples == (24.0, 24.0, 24.0)
    assert world.snapshot(66, 92).tuples == (26.0, 24.0, 32.0)


# --- granularities -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", ["adaptive", "none"])
def test_granularities_are_those_of_the_moment_it_was_taken(monkeypatch, structure):
    small_chunks(monkeypatch, 16)
    world = World(structure=structure)
    world.append(*spread(7, 150, 0, 137), 137)
    snapshot = world.snapshot()
    horizons = GEOMETRY.horizons(137)
    assert snapshot.horizons.tolist() == list(horizons)
    rows = snapshot.rows_between(0, snapshot.size)
    rows = rows[snapshot.admitted(rows)]
    times = [world.times[i] for i in ids(world.stream, rows)]
    expected = [next(g for g in (1, 2, 3) if t >= horizons[g - 1]) for t in times]
    assert snapshot.granularity(rows).tolist() == expected
    assert set(expected) == {1, 2, 3}
    for level in (1, 2, 3):
        assert snapshot.touched(rows[np.array(expected) == level]) == 1 << level
    assert snapshot.touched(rows) == 0b1110 and snapshot.touched(rows[:0]) == 0
    world.append(149)
    assert GEOMETRY.horizons(149) != horizons
    assert snapshot.granularity(rows).tolist() == expected


@pytest.mark.parametrize(
    ("start", "end", "reached"),
    [
        (-EVER, EVER, 0b1110),
        (120, 138, 0b0010),
        (119, 138, 0b0110),
        (100, 120, 0b0100),
        (80, 120, 0b1100),
        (40, 100, 0b1000),
        (40, 101, 0b1100),
        (40, 121, 0b1110),
    ],
)
def test_the_granularities_that_a_window_can_reach(start, end, reached):
    """At 137 the horizons are 120, 100 and -40."""
    world = World()
    world.append(*range(40, 138))
    assert GEOMETRY.horizons(137) == (120, 100, -40)
    snapshot = world.snapshot(start, end)
    assert snapshot.reached == reached
    world.check(snapshot)


def test_a_granularity_that_no_tuple_is_in_is_not_reached():
    world = World()
    world.append(*range(101, 110), 137)
    world.stream.advance(139)
    assert world.snapshot(-EVER, 120).reached == 0b0100
    assert world.snapshot().reached == 0b0110


def test_without_a_summary_everything_is_of_the_finest():
    world = World(summary=False)
    world.append(*range(0, 1000, 7))
    snapshot = world.snapshot()
    rows = snapshot.rows_between(0, snapshot.size)
    assert (snapshot.granularity(rows) == 1).all() and snapshot.touched(rows) == snapshot.reached == 0b10


# --- reading -----------------------------------------------------------------------------------------------------


def test_columns_hashes_and_nulls(monkeypatch):
    small_chunks(monkeypatch, 4)
    world = World()
    world.append(*range(50, 70))
    snapshot = world.snapshot(52, 66)
    rows = snapshot.rows_between(0, snapshot.size)
    table: Any = world.stream.take(rows)
    for name in SCHEMA:
        assert snapshot.column(name, rows).equals(table.column(name).combine_chunks())
    for name in ("k", "s"):
        keys = table.column(name).combine_chunks() if name == "s" else table.column(name).to_numpy()
        assert snapshot.hashes(name, rows).tolist() == hash_keys(keys, 3).view(np.int64).tolist()
    missing = snapshot.nulls("x", rows)
    assert missing is not None and missing.tolist() == [x is None for x in table.column("x").to_pylist()]
    assert snapshot.nulls("k", rows) is None and snapshot.nulls("x", rows[~missing]) is None
    assert snapshot.capacity > rows.max()


def test_postings_are_there_as_long_as_the_summary_is():
    world = World()
    assert world.summary is not None
    assert postings_of(world.summary) is world.summary.state.postings  # type: ignore[union-attr]  # not bare
    bare = World(structure="none")
    assert bare.summary is not None and postings_of(bare.summary) is None
    world.stream.drop_summary("by_k")
    with pytest.raises(UnknownName, match="'by_k' has been dropped"):
        postings_of(world.summary)
