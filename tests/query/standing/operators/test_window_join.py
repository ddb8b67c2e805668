"""The join over windows that are only appended to, against the one that can take tuples back."""

import numpy as np
import pytest

from promising.query.standing.deltas import POS, Mode
from promising.query.standing.operators.join import JoinNode
from promising.query.standing.operators.project import ProjectNode
from promising.query.standing.operators.step import rows_of
from promising.query.standing.operators.window_join import JoinWindow, WindowJoinNode
from tests.query.standing.harness import Stream, View
from tests.query.standing.operators.story import K0, K1, KINDS, X0, X1, Story, less

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("mode", [Mode.TIME, Mode.PIGGYBACK])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("keys", [1, 4, 40])
@pytest.mark.parametrize("seed", range(3))
def test_both_joins_say_the_same_tick_by_tick(mode, residual, keys, seed):
    """Also when they have no results to tell of, but some that ended: steps above rely on the time."""
    story = Story(seed, mode, windows=(40, 25), keys=keys)
    others = [stream.leaf(mode, place) for place, stream in enumerate(story.streams)]
    given = [(K0, K1)], [less(X0, X1)] if residual else []
    a, b = story.leaves
    joins = WindowJoinNode(a, b, *given), JoinNode(others[0], others[1], *given)
    views = [View(ProjectNode(join, [K0])) for join in joins]
    taken = [0, 0]
    for _ in range(150):
        story.arrivals()
        for number, (stream, leaf) in enumerate(zip(story.streams, others, strict=True)):
            leaf.arrive(np.arange(taken[number], len(stream.times)), np.array(stream.times[taken[number] :], np.int64))
            taken[number] = len(stream.times)
        said = [view.tick(story.now) for view in views]
        results = [sorted(zip(d.ids.tolist(), d.ts.tolist(), d.exp.tolist(), strict=True)) for d in said]
        assert results[0] == results[1]
        assert said[0].time == said[1].time
        assert views[0].counters == views[1].counters


def test_a_window_holds_no_more_than_lives_however_late_tuples_are():
    """One that ends before others which came earlier goes with these, and memory comes back."""
    stream = Stream(KINDS, 1_000)
    window = JoinWindow(stream.leaf(Mode.PIGGYBACK), [K0])
    window.reserve(0, 3)
    sizes = []
    for n in range(0, 20_000, 10):
        assert not len(window.expire(n))
        ids, ts = np.arange(n, n + 40), n - np.arange(40) * (10 if n < 10_000 else 25)
        window.reserve(40, 3)
        window.append(rows_of(ids.reshape(-1, 1), ts, ts + 1_000, POS), np.arange(40, dtype=np.int32) % 3)
        assert len(window) <= 4_000
        sizes.append(window.nbytes)
    assert max(sizes[200:]) == max(sizes[:200])
    window.expire(20_989)
    assert len(window) == 40  # all but one have ended, behind that one
    window.expire(20_990)
    assert len(window) == 0
    assert window.nbytes < max(sizes) / 4
