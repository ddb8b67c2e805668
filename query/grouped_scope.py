"""The scope of a grouped query: its columns are the group keys and the aggregates."""

from collections.abc import Hashable
from typing import Any, Protocol

from sqlglot import exp

from promising.errors import BadClause
from promising.query.aggregate.aggregates import Aggregate
from promising.query.bound import RESULT, Bound
from promising.query.scalar.compiled import Compiled
from promising.query.scalar.positions import Place
from promising.query.scalar.scope import Input, Scope

AGGREGATES: dict[type[exp.Expression], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.Median: "median",
    exp.Quantile: "quantile",
    exp.ApproxQuantile: "approx_quantile",
    exp.ApproxDistinct: "approx_count_distinct",
    exp.ApproxTopK: "approx_top_k",
}
_LEAVES = (exp.Column, exp.Literal)


class AggregateBinder(Protocol):
    def aggregate(self, node: exp.Expression) -> tuple[Aggregate, Compiled | None]:
        """The aggregate that a call computes, and its argument; None for count(*)."""
        ...


class GroupedScope:
    """Finds the group key or the aggregate that holds the value of an expression. All lookups in n nodes cost O(n)."""

    def __init__(self, rows: Scope, binder: AggregateBinder, bound: Bound) -> None:
        self.rows = rows
        self.sql = rows.sql
        self._binder = binder
        self._bound = bound
        self._numbers = Numbering(rows)
        self._found: dict[int, Input] = {}  # by number
        for place, key in enumerate(bound.terms):
            self._found.setdefault(self._numbers.of(key), Input(RESULT, f"k{place}", bound.group_keys[place].kind))

    def resolve(self, node: exp.Column) -> Input:
        found = self.rows.resolve(node)
        raise Place.of(node, self.sql).error(
            BadClause, f"column {found.name} is neither in GROUP BY nor inside an aggregate such as max(...)"
        )

    def replace(self, node: exp.Expression) -> Input | None:
        kind = type(node)
        if kind in AGGREGATES:
            number = self._numbers.of(node)
            if number not in self._found:
                aggregate, argument = self._binder.aggregate(node)
                self._found[number] = Input(RESULT, f"a{len(self._bound.aggregates)}", aggregate.result_kind)
                self._bound.aggregates.append(aggregate)
                self._bound.calls.append(node)
                self._bound.arguments.append(argument)
            return self._found[number]
        if not self._bound.group_keys or kind is exp.Literal:
            return None
        return self._found.get(self._numbers.of(node))


class Numbering:
    """Numbers expressions: equal ones, however their columns are qualified, have the same number."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, tuple[exp.Expression, int]] = {}  # by identity, which lasts as long as the node

    def of(self, node: exp.Expression) -> int:
        known = self._known.get(id(node))
        if known is not None:
            return known[1]
        number = self._numbers.setdefault(self._content(node), len(self._numbers))
        self._known[id(node)] = node, number
        return number

    def _content(self, node: exp.Expression) -> Hashable:
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            return self._scope.resolve(node)
        if isinstance(node, exp.Exists):  # its columns are in another scope
            return id(node)
        return type(node), *((name, self._part(value)) for name, value in node.args.items() if value)

    def _part(self, value: Any) -> Hashable:
        if isinstance(value, exp.Expression):
            return self.of(value)
        return tuple(self._part(one) for one in value) if isinstance(value, list) else value


def aggregates_in(node: exp.Expression) -> list[exp.Expression]:
    """The aggregates of an expression, the outermost first."""
    found: list[exp.Expression] = []
    level = [node]
    while level:
        below: list[exp.Expression] = []
        for part in level:
            if type(part) in AGGREGATES:
                found.append(part)
            if type(part) in _LEAVES:
                continue
            for value in part.args.values():
                if type(value) is list:
                    below += value
                elif isinstance(value, exp.Expression):
                    below.append(value)
        level = below
    return found
