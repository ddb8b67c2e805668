"""Joins of two windows: every pair once, with little time as well, in memory that follows what is live."""

from collections import Counter

import numpy as np
import pytest

from promising.query.aggregate.aggregates import Aggregate
from promising.query.preference import BoundPreference
from promising.query.standing.deltas import Mode
from promising.query.standing.operators.group import GroupNode
from promising.query.standing.operators.join import JoinNode
from promising.query.standing.operators.project import ProjectNode
from promising.query.standing.operators.window_join import WindowJoinNode
from tests.query.standing.harness import View
from tests.query.standing.operators.story import K0, K1, MODES, X0, X1, Story, joined, less, result

pytestmark = pytest.mark.kernel

JOINS = [
    (mode, join) for mode in MODES for join in (JoinNode, WindowJoinNode) if (mode, join) != (Mode.NTA, WindowJoinNode)
]
"""Where each end is told only the one that can take tuples back will do."""


@pytest.mark.parametrize(("mode", "made"), JOINS)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_join_pairs_equal_keys(mode, made, residual, seed):
    story = Story(seed, mode, windows=(40, 25) if seed % 2 else (30, 30))
    join = made(story.leaves[0], story.leaves[1], [(K0, K1)], [less(X0, X1)] if residual else [])
    node = ProjectNode(join, [K0, X0, X1])
    view = story.run(node, lambda now: Counter((a[0], a[1], b[1]) for a, b in joined(story, now, residual)))
    assert view.inversions == 0
    counters = view.counters
    assert (counters.negatives > 0) == (mode is Mode.NTA)
    assert (counters.expiry_probes > 0) == (mode is Mode.NTA)
    assert (counters.times > 0) == (mode in (Mode.TIME, Mode.PIGGYBACK))


@pytest.mark.parametrize(("mode", "made"), JOINS)
def test_memory_follows_what_is_live(mode, made):
    """Ever new keys: neither codes nor entries pile up."""
    story = Story(1, mode, windows=(5, 5))
    node = ProjectNode(made(story.leaves[0], story.leaves[1], [(K0, K1)]), [K0])
    leaf_of_groups = story.streams[0].leaf(mode)
    below = GroupNode(leaf_of_groups, [K0], [Aggregate("count")], [None], [result("k0"), result("a0")])
    view, groups = View(node), View(below)
    sizes = []
    for n in range(300):
        now = 1000 + n
        for leaf, stream in zip(story.leaves, story.streams, strict=True):
            first = len(stream.times)
            stream.add(leaf, [(now, 10 * n + i, 1, 0.0, "") for i in range(10)])
            if stream is story.streams[0]:
                leaf_of_groups.arrive(range_of(first, 10), range_of(now, 1).repeat(10))
        view.tick(now)
        groups.tick(now)
        assert len(view.shown()) == 10 * min(n + 1, 5) == len(groups.shown())
        sizes.append((node.nbytes, below.nbytes))
    assert sizes[-1][0] <= 2 * sizes[40][0]
    assert sizes[-1][1] <= 2 * sizes[40][1]


def range_of(first, count):
    return np.arange(first, first + count)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("direction", ["DESC", "ASC", "WEIGHTED", None])
@pytest.mark.parametrize("seed", range(3))
def test_a_join_with_little_time_finds_each_pair_at_most_once(mode, direction, seed):
    """What is shown is always right, though not all; once there is time, nothing is missing that is still live."""
    story = Story(seed, mode, windows=(40, 40))
    preference = None if direction is None else BoundPreference(direction, (), (), None, None, True, True)
    join = JoinNode(story.leaves[0], story.leaves[1], [(K0, K1)], [], preference)
    view = View(ProjectNode(join, [K0, X0, X1]))

    def truth(now):
        return Counter((a[0], a[1], b[1]) for a, b in joined(story, now, False))

    for n in range(120):
        story.arrivals()
        left = story.random.choice([0, 0, 1, 2])

        def allowed():
            nonlocal left
            left -= 1
            return left >= 0

        generous = n % 20 > 15
        view.tick(story.now, None if generous else allowed)
        if mode is Mode.ITA:
            continue
        expected = truth(story.now)
        assert view.shown() <= expected
        if generous:
            assert not join.pending
            assert view.shown() == expected
    assert join.deferred
    assert join.shed > 0
