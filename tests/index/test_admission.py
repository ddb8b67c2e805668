"""Which tuples a stream takes, against a model that takes them one at a time in plain integers."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promising.errors import TooFarAhead, TooOld
from promising.index.admission import Judged, Retention, judge
from promising.index.geometry import Geometry
from promising.index.instants import BEGINNING, FARTHEST
from promising.index.progress import Pace, Progress
from promising.index.time_text import instant

TAKEN, AHEAD, OLD = "taken", "too_far_ahead", "too_old"


@dataclass
class Model:
    """The rules, tuple by tuple. `told` is what became of each."""

    pace: Pace
    keep: int | None
    geometries: frozenset[Geometry]
    max_future: int
    floor: int | None
    watermark: int | None = None
    counted: int | None = None
    doubted: set[int] = field(default_factory=set)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watermark, self.counted, _, doubted = self.pace.progress
        self.doubted = set(doubted)
        self.follow()

    def follow(self) -> None:
        """Until nothing changes: every doubted time that is near counts, or else the third latest."""
        jump, now = self.pace.jump, self.pace.now
        while True:
            if self.counted is not None:
                reached = min(self.counted - self.pace.lateness, now)
                self.watermark = reached if self.watermark is None else max(self.watermark, reached)
            counts = {t for t in self.doubted if jump is None or self.watermark is None or t <= self.watermark + jump}
            if not counts and len(self.doubted) >= 3:
                counts = {sorted(self.doubted)[-3]}
            if not counts:
                return
            self.counted = max(counts | ({self.counted} if self.counted is not None else set()))
            self.doubted -= counts

    def oldest(self) -> int | None:
        known = [] if self.floor is None else [self.floor]
        if self.watermark is not None and self.keep is not None:
            behind = self.watermark - self.keep
            steps = [self.longest(g) for g in self.geometries] or [self.keep // 8]
            known.append(min(behind - behind % step for step in steps))
        return max(known, default=None)

    def longest(self, g: Geometry) -> int:
        """The longest zone of at most an eighth of what is kept."""
        assert self.keep is not None
        length = g.granularity
        while length * g.rate <= self.keep // 8:
            length *= g.rate
        return length

    def offer(self, time: int) -> None:
        oldest = self.oldest()
        if time > self.pace.now + self.max_future:
            self.told.append(AHEAD)
        elif oldest is not None and time < oldest:
            self.told.append(OLD)
        else:
            self.told.append(TAKEN)
            self.doubted.add(time)
            self.follow()
            self.floor = self.oldest()


near = st.integers(-300, 300)
far = st.one_of(st.integers(-FARTHEST, FARTHEST), st.sampled_from([-FARTHEST, FARTHEST]))
keeps = st.one_of(st.none(), st.integers(8, 500), st.integers(8, FARTHEST))


def geometries(keep: int | None) -> st.SearchStrategy[frozenset[Geometry]]:
    """Of summaries that a stream may have that keeps this long."""
    most = 1 << 56 if keep is None else min(keep // 8, 1 << 56)
    lengths = st.one_of(st.integers(1, min(30, most)), st.integers(1, most))
    return st.frozensets(st.builds(Geometry, lengths, st.integers(2, 3), st.integers(1, 3), st.just(keep)), max_size=3)


@st.composite
def states(draw: st.DrawFn) -> tuple[Retention, Pace, int]:
    """What a stream may have come to, the clock, and how far ahead of it a tuple may be."""
    lateness = draw(st.one_of(st.integers(0, 60), st.integers(0, FARTHEST)))
    watermark = draw(st.one_of(st.none(), near, far))
    keep = draw(keeps)
    held, known = Retention(keep, draw(geometries(keep)), None), Progress()
    jump = draw(st.none() | st.integers(1, 100) | st.integers(1, FARTHEST))
    if watermark is None:
        jump = None  # of the first batch
    else:
        counted = draw(near | far if jump is not None else st.none() | near | far)
        doubted = () if jump is None else tuple(sorted(draw(st.sets(near | far, max_size=2))))
        known = Progress(watermark, counted, counted, doubted)
        # what was removed while less was kept
        held = held._replace(floor=draw(st.one_of(st.none(), st.integers(0, 200).map(lambda by: watermark - by))))
    pace = Pace(known, lateness, jump, draw(st.one_of(near, far)))
    return held, pace, draw(st.one_of(st.integers(0, 60), st.integers(0, FARTHEST)))


batches = st.lists(st.lists(st.one_of(near, near, far), min_size=1, max_size=12), min_size=1, max_size=5)


def judged(times: list[int], held: Retention, pace: Pace, max_future: int, strict: bool = False) -> Judged:
    return judge(np.array(times), min(times), max(times), held, pace, max_future=max_future, column="ts", strict=strict)


def outcomes(found: Judged, tuples: int) -> list[str]:
    out = [TAKEN] * tuples
    for word, mask in ((AHEAD, found.ahead), (OLD, found.old)):
        for row in np.flatnonzero(mask) if mask is not None else ():
            assert out[row] == TAKEN, "a tuple is refused for one reason"
            out[row] = word
    return out


@given(states(), batches)
@example(
    (
        Retention(FARTHEST, frozenset({Geometry(1 << 58, 2, 1, FARTHEST)}), None),
        Pace(Progress(), FARTHEST, None, 0),
        5,
    ),
    [[-FARTHEST, 5, 6]],
)
def test_each_tuple_is_judged_at_the_watermark_before_it_whatever_the_batches(state, parts):
    held, pace, max_future = state
    model = Model(pace, held.keep, held.geometries, max_future, held.floor)
    everything = [time for part in parts for time in part]
    for time in everything:
        model.offer(time)
    assert outcomes(judged(everything, held, pace, max_future), len(everything)) == model.told
    told: list[str] = []
    for part in parts:
        found = judged(part, held, pace, max_future)
        told += outcomes(found, len(part))
        taken = part if found.taken is None else np.array(part)[found.taken].tolist()
        assert sum(found.refused.values()) == len(part) - len(taken)
        assert all(found.refused.values())
        pace = pace._replace(progress=pace.after(np.array(taken, np.int64), max(taken, default=BEGINNING)))
        if taken:
            assert pace.progress.watermark is not None
            held = held._replace(floor=held.oldest(pace.progress.watermark))
    assert told == model.told
    assert pace.progress[:2] == (model.watermark, model.counted)
    assert pace.progress.doubted == tuple(sorted(model.doubted))
    assert held.floor == model.floor or TAKEN not in told


@given(states(), st.lists(st.one_of(near, near, far), min_size=1, max_size=20))
def test_strict_names_the_first_too_far_ahead_or_else_the_first_too_old(state, times):
    held, pace, max_future = state
    told = outcomes(judged(times, held, pace, max_future), len(times))
    if told.count(TAKEN) == len(told):
        assert judged(times, held, pace, max_future, strict=True) == Judged(None, None)
        return
    word, error = (AHEAD, TooFarAhead) if AHEAD in told else (OLD, TooOld)
    row = told.index(word)
    with pytest.raises(error) as caught:
        judged(times, held, pace, max_future, strict=True)
    assert str(caught.value).startswith(f"column 'ts', row {row}: {instant(times[row])} is ")


@given(states(), st.lists(st.one_of(near, far), min_size=1, max_size=20))
def test_many_watermarks_at_once(state, times):
    held, pace, _ = state
    before = pace.before(np.array(times), max(times)).tolist()
    one_by_one = []
    for time in times:
        pace = pace._replace(progress=pace.after(np.empty(0, np.int64)))
        one_by_one.append(BEGINNING if pace.progress.watermark is None else pace.progress.watermark)
        assert pace.bound(time) >= one_by_one[-1]
        pace = pace._replace(progress=pace.after(np.array([time]), time))
    assert before == one_by_one
    ages = held.keep is not None or held.floor is not None
    assert not ages or held.oldest_at(np.array(before)).tolist() == [held.oldest(at) for at in before]


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([100, 20, 19, 151, 150, 20], [TAKEN, TAKEN, OLD, AHEAD, TAKEN, TAKEN]),
        ([150, 19, 20], [TAKEN, OLD, TAKEN]),
        ([151, 15], [AHEAD, TAKEN]),
    ],
)
def test_in_order_of_arrival(times, found):
    """KEEP 80, granularity 10: at watermark w all before w - 80, rounded down to tens, is too old."""
    held, pace = Retention(80, frozenset({Geometry(10, 2, 1, 80)}), None), Pace(Progress(95, 95, 95), 0, None, 100)
    assert outcomes(judged(times, held, pace, max_future=50), len(times)) == found
    told = judged(times, held, pace, max_future=50)
    assert told.refused == {word: found.count(word) for word in (AHEAD, OLD) if word in found}
    assert told.taken is not None
    assert told.taken.tolist() == [word == TAKEN for word in found]


def test_with_keep_all_only_what_was_removed_before_is_too_old():
    new = Pace(Progress(), 0, None, FARTHEST)
    assert judged([-FARTHEST, FARTHEST, 0], Retention(None, frozenset(), None), new, 0) == Judged(None, None)
    told = judged([-FARTHEST, 50, 49], Retention(None, frozenset(), 50), Pace(Progress(100, 100, 100), 0, None, 100), 0)
    assert outcomes(told, 3) == [OLD, TAKEN, OLD]


def test_an_empty_batch_has_no_watermarks():
    assert Pace(Progress(7, 7, 7), 0, None, 9).before(np.empty(0, np.int64), BEGINNING).tolist() == []
