"""INTERSECT and EXCEPT count rows, and undo what is retracted below them."""

from collections import Counter

import pytest

from promising.query.standing.operators.distinct import DistinctNode
from promising.query.standing.operators.project import ProjectNode
from promising.query.standing.operators.sets import SetNode
from promising.query.standing.operators.step import Step
from promising.query.standing.operators.union import UnionNode
from tests.query.standing.operators.story import K0, K1, MODES, Story

pytestmark = pytest.mark.kernel

RULES = {
    "intersect all": lambda a, b: a & b,
    "intersect": lambda a, b: Counter(set(a) & set(b)),
    "except all": lambda a, b: a - b,
    "except": lambda a, b: Counter(set(a) - set(b)),
}


def bags(story, now):
    return [Counter((k,) for k, *_ in story.live(number, now)) for number in (0, 1)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_set_operations_count(mode, rule, seed):
    story = Story(seed, mode, windows=(30, 30) if seed % 2 else (40, 25))
    node = SetNode(ProjectNode(story.leaves[0], [K0]), ProjectNode(story.leaves[1], [K1]), rule)
    view = story.run(node, lambda now: RULES[rule](*bags(story, now)))
    assert rule.startswith("except") or view.inversions == 0, "each knew its end"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("outer", ["intersect all", "except all", "except", "intersect", "union", "distinct"])
@pytest.mark.parametrize("seed", range(2))
def test_retractions_from_below_are_undone(mode, outer, seed):
    """Both inputs may retract: EXCEPT ALL of two streams, and of the same the other way round."""
    story = Story(seed, mode, windows=(30, 45))
    mirrored = [stream.leaf(mode, place) for place, stream in enumerate(story.streams)]
    for leaf, other in zip(story.leaves, mirrored, strict=True):
        leaf.arrive = both_arrive(leaf, other)
    left = SetNode(ProjectNode(story.leaves[0], [K0]), ProjectNode(story.leaves[1], [K1]), "except all")
    right = SetNode(ProjectNode(mirrored[1], [K1]), ProjectNode(mirrored[0], [K0]), "except")
    node: Step
    if outer == "union":
        node = DistinctNode(UnionNode([left, right]), True)
    elif outer == "distinct":
        node = DistinctNode(left, True)
    else:
        node = SetNode(left, right, outer)

    def truth(now):
        a, b = bags(story, now)
        first, second = a - b, Counter(set(b) - set(a))
        if outer == "union":
            return Counter(set(first) | set(second))
        return Counter(set(first)) if outer == "distinct" else RULES[outer](first, second)

    story.run(node, truth, 80)


def both_arrive(leaf, other):
    arrive = leaf.arrive

    def told(seqs, ts):
        arrive(seqs, ts)
        other.arrive(seqs, ts)

    return told
