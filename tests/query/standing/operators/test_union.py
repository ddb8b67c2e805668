"""UNION ALL puts bags together."""

from collections import Counter

import pytest

from promising.query.standing.operators.project import ProjectNode
from promising.query.standing.operators.union import UnionNode
from tests.query.standing.operators.story import K0, K1, MODES, Story

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(2))
def test_union_all_puts_bags_together(mode, seed):
    story = Story(seed, mode)
    node = UnionNode([ProjectNode(story.leaves[0], [K0]), ProjectNode(story.leaves[1], [K1])])

    def truth(now):
        return Counter((k,) for number in (0, 1) for k, *_ in story.live(number, now))

    story.run(node, truth)
