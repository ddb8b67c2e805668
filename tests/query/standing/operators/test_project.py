"""A projection shows what is live."""

from collections import Counter

import pytest

from promising.query.standing.operators.project import ProjectNode
from tests.query.standing.harness import col
from tests.query.standing.operators.story import K0, MODES, Story

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(2))
def test_a_projection_shows_what_is_live(mode, seed):
    story = Story(seed, mode)
    node = ProjectNode(story.leaves[0], [K0, col(0, "s", "string")])
    story.run(node, lambda now: Counter((k, s) for k, _, _, s in story.live(0, now)))
