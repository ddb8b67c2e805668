"""Builds the steps of a standing plan."""

from collections.abc import Callable
from typing import Final

from promising.query.standing import plan
from promising.query.standing.deltas import Mode
from promising.query.standing.labels import Label, label, retracts
from promising.query.standing.operators.distinct import DistinctNode
from promising.query.standing.operators.exists import ExistsNode
from promising.query.standing.operators.group import GroupNode
from promising.query.standing.operators.join import JoinNode
from promising.query.standing.operators.leaf import Leaf
from promising.query.standing.operators.multiplicity import Rule
from promising.query.standing.operators.past_rows import KeptNode
from promising.query.standing.operators.project import ProjectNode
from promising.query.standing.operators.sets import SetNode
from promising.query.standing.operators.step import Body, Step
from promising.query.standing.operators.table_join import TableJoinNode
from promising.query.standing.operators.union import UnionNode
from promising.query.standing.operators.window_join import WindowJoinNode

MakeLeaf = Callable[[plan.Window], Leaf]

RULES: Final[dict[tuple[str, bool], Rule]] = {
    ("intersect", False): "intersect",
    ("intersect", True): "intersect all",
    ("except", False): "except",
    ("except", True): "except all",
}


def build(standing: plan.Standing, mode: Mode, leaf: MakeLeaf) -> Step:
    """The steps of a standing query; `leaf` makes one per window, from left to right, all in this mode."""
    made = Builder(standing, leaf).query(standing.root)
    assert made.mode is mode
    # Without retractions, results are immutable tuples, or groups that emit every change.
    return KeptNode(made) if mode is Mode.ITA and label(standing.root) is Label.STR else made


class Builder:
    def __init__(self, standing: plan.Standing, leaf: MakeLeaf) -> None:
        self._standing = standing
        self._leaf = leaf

    def query(self, query: plan.Query) -> Step:
        if isinstance(query, plan.StandingSelect):
            return self._select(query)
        if query.operator != "union":
            return SetNode(self.query(query.left), self.query(query.right), RULES[query.operator, query.all])
        if query.all:
            return UnionNode([self.query(branch) for branch in branches(query)])
        every = plan.SetOperation("union", True, query.left, query.right)
        return DistinctNode(self.query(every), retracts(every))

    def _select(self, query: plan.StandingSelect) -> Step:
        made = self._body(query.body)
        node: Step
        if query.grouped:
            node = GroupNode(made, query.keys, query.aggregates, query.arguments, query.outputs, query.having)
        else:
            node = ProjectNode(made, query.outputs)
        if not query.distinct:
            return node
        return DistinctNode(node, query.grouped or label(query.body) is Label.STR)

    def _body(self, query: plan.Body) -> Body:
        if isinstance(query, plan.Window):
            return self._window(query)
        if isinstance(query, plan.Join):
            left, right = self._window(query.left), self._window(query.right)
            standing = self._standing
            if standing.budget is None and standing.preference is None and left.mode is not Mode.NTA:
                return WindowJoinNode(left, right, query.keys, query.residual)
            return JoinNode(left, right, query.keys, query.residual, standing.preference)
        if isinstance(query, plan.TableJoin):
            leaf, stream = self._window(query.window), query.window.stream.name
            return TableJoinNode(leaf, stream, query.table, query.place, query.key, query.residual)
        outer = self._body(query.left)
        return ExistsNode(outer, self._window(query.right), query.keys, query.negated)

    def _window(self, window: plan.Window) -> Leaf:
        made = self._leaf(window)
        made.at(window.place)
        return made


def branches(query: plan.Query) -> list[plan.Query]:
    """The inputs of nested UNION ALLs."""
    if isinstance(query, plan.SetOperation) and query.operator == "union" and query.all:
        return branches(query.left) + branches(query.right)
    return [query]
