"""EXISTS and NOT EXISTS keep tuples by their partners."""

from collections import Counter

import pytest

from promising.query.standing.deltas import Mode
from promising.query.standing.operators.exists import ExistsNode
from promising.query.standing.operators.join import JoinNode
from promising.query.standing.operators.project import ProjectNode
from promising.query.standing.operators.window_join import WindowJoinNode
from tests.query.standing.harness import col
from tests.query.standing.operators.story import K0, K1, MODES, X0, X1, Story, joined

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("over_join", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_exists_keeps_those_with_a_partner(mode, negated, over_join, seed):
    if over_join:
        story = Story(seed, mode, windows=(40, 25, 15))
        join = (JoinNode if mode is Mode.NTA else WindowJoinNode)(story.leaves[0], story.leaves[1], [(K0, K1)])
        node = ExistsNode(join, story.leaves[2], [(X0, col(2, "x"))], negated)

        def truth(now):
            there = {x for _, x, *_ in story.live(2, now)} - {None}
            return Counter((a[0], a[1], b[1]) for a, b in joined(story, now, False) if (a[1] in there) != negated)

        # In `ita` the join may have heard of a later time than what stands above it, and miss what ended in between.
        story.run(ProjectNode(node, [K0, X0, X1]), truth, partly=mode is Mode.ITA)
        return
    story = Story(seed, mode, windows=(30, 30) if seed % 2 else (20, 40))
    node = ExistsNode(story.leaves[0], story.leaves[1], [(K0, K1)], negated)

    def truth_of_one(now):
        there = {k for k, *_ in story.live(1, now)} - {None}
        return Counter((k, x) for k, x, *_ in story.live(0, now) if (k in there) != negated)

    view = story.run(ProjectNode(node, [K0, X0]), truth_of_one)
    assert negated or view.inversions == 0, "each knew its end"
