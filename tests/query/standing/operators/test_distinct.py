"""DISTINCT shows each row once, for as long as one of its tuples lives."""

from collections import Counter

import pytest

from promising.query.standing.deltas import Mode
from promising.query.standing.operators.distinct import DistinctNode
from promising.query.standing.operators.join import JoinNode
from promising.query.standing.operators.project import ProjectNode
from promising.query.standing.operators.window_join import WindowJoinNode
from tests.query.standing.harness import View
from tests.query.standing.operators.story import K0, K1, MODES, X0, X1, Story, joined

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("retracted", [False, True])
@pytest.mark.parametrize("over_join", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_distinct_shows_each_row_once(mode, retracted, over_join, seed):
    story = Story(seed, mode)
    if over_join:
        join = (JoinNode if mode is Mode.NTA else WindowJoinNode)(story.leaves[0], story.leaves[1], [(K0, K1)])
        below = ProjectNode(join, [K0, X1])
    else:
        below = ProjectNode(story.leaves[0], [K0, X0])
    node = DistinctNode(below, retracted)

    def truth(now):
        if over_join:
            return Counter({(a[0], b[1]) for a, b in joined(story, now, False)})
        return Counter({(k, x) for k, x, *_ in story.live(0, now)})

    view = story.run(node, truth)
    assert view.inversions == 0
    if not retracted:
        assert node.own_entries() <= 2 * max(len(view.results), 1)
    if mode is not Mode.ITA:
        assert node.own_entries() == 0


@pytest.mark.parametrize("mode", MODES)
def test_the_spare_of_a_row_is_the_one_that_ends_last(mode):
    """Late tuples come between: neither the first that outlives what is shown nor the youngest will do."""
    story = Story(0, mode)
    stream, leaf = story.streams[0], story.leaves[0]
    view = View(DistinctNode(ProjectNode(leaf, [K0]), False))
    for n, ts in enumerate([100, 105, 115, 110]):
        stream.add(leaf, [(ts, 1, n, 0.0, "")])
        view.tick(115)
        assert view.shown() == {(1,): 1}
    for now in (141, 146, 151, 154):
        stream.add(leaf, [(now, 2, 0, 0.0, "")])  # so that `ita` hears of the time
        view.tick(now)
        assert view.shown() == {(1,): 1, (2,): 1}, now
    stream.add(leaf, [(155, 3, 0, 0.0, "")])
    view.tick(155)
    assert view.shown() == {(2,): 1, (3,): 1}
